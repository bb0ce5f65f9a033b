"""Configurations of models as any Keras since 2.0 wrote them, in the form of today's Keras.

A configuration comes from a file that may be hostile. Its names of classes are looked up among the
layers of Keras and what the program registered or passes as `custom_objects`; a module that it
names is never imported.

The tables say what has changed since: names of classes, arguments, and what activations mean.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import tensorflow

from cudnn_rnn._compat import IS_TENSORFLOW_1
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.keras_configs import class_name_of
from cudnn_rnn.keras import _functions, _new_nodes, _old_nodes
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, OLD_HARD_SIGMOID, OUR_PREFIX, registered
from cudnn_rnn.keras._implicit_masks import MERGING, MaskFlow, leaves_own_mask, makes_masks
from cudnn_rnn.keras._new_nodes import calls_without_mask, layer_of
from cudnn_rnn.keras._old_arguments import as_taken, name_of_dtype, without_neutral
from cudnn_rnn.keras._old_nodes import TAKE_STATES, layers_of
from cudnn_rnn.keras._time_major import is_time_major, with_time_major
from cudnn_rnn.model.keras_classes import ADDED_ARGUMENTS, RNN_CLASSES

keras = tensorflow.keras

_RENAMED = {
    "L1": "L1L2",  # the name that every Keras has
    "L2": "L1L2",
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
}
# Arguments that change nothing in what a layer computes, or that an InputLayer has instead.
_WITHOUT_EFFECT = ("implementation", "unroll", "input_length", "batch_input_shape")
# The arguments that some class of today does not take.
_NOT_TAKEN = {
    "SpatialDropout1D": ("trainable",),
    "SpatialDropout2D": ("trainable",),
    "SpatialDropout3D": ("trainable",),
}
_OF_EVERY_LAYER = ("name", "trainable", "dtype", "batch_input_shape")
# The layers of this package besides the recurrent ones that Keras has.
_OTHER_CLASSES = ("InputMask", "RNNStack", "TensorFlowFunction", "TimeMajor")
_PLAIN_NAMES = {new_name: name for name, new_name in MERGING.items()}
# Layers of Keras that run code or read other files, as their configuration says.
_UNSAFE = ("FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper")
_KINDS_OF_ARGUMENTS = (
    ("initializer", "keras.initializers"),
    ("regularizer", "keras.regularizers"),
    ("constraint", "keras.constraints"),
)
# The distributions of VarianceScaling that have other names today.
_DISTRIBUTIONS = {"normal": "truncated_normal"}
_MODULES_OF_KERAS = re.compile(r"(tensorflow\.(python\.)?)?(tf_)?keras(\..*)?")


class _Class(NamedTuple):
    """A class that a configuration names.

    Attributes:
      module: the module of Keras or of this package that has it; None for a class of the program.
      name: its name there; of a class of the program the name under which that is known.
    """

    module: Optional[str]
    name: str

    def entry(self, config: Any) -> Dict[str, Any]:
        """Returns the configuration of an object of the class."""
        is_ours = self.module == "cudnn_rnn.keras"
        known_as = OUR_PREFIX + self.name if is_ours else self.name
        if not IS_KERAS_3:
            return {"class_name": known_as, "config": config}
        return {
            "module": self.module,
            "class_name": self.name,
            "config": config,
            "registered_name": None if self.module and not is_ours else known_as,
        }


_TIME_MAJOR = _Class("cudnn_rnn.keras", "TimeMajor")
_FUNCTION = _Class("cudnn_rnn.keras", "TensorFlowFunction")
_INPUT_MASK = _Class("cudnn_rnn.keras", "InputMask")


class Translator:
    """Translates the configuration of a model.

    Args:
      keras_version: of the file, such as "2.2.4-tf".
      custom_objects: dict of classes and functions of the program by the names in the file.
      with_ours: whether recurrent layers become this package's, or Keras's own.
    """

    def __init__(self, keras_version: str, custom_objects: Dict[str, Any], with_ours: bool = True):
        self._is_old = int(keras_version.split(".")[0]) < 3
        self._custom = custom_objects
        self._module_of_rnns = "cudnn_rnn.keras" if with_ours else "keras.layers"
        self._outermost: Any = None  # the entry of the model that is no layer
        self._may_have_masks: Optional[bool] = None  # the tensors of that model

    def model(self, entry: Any) -> Dict[str, Any]:
        """Returns the configuration of a model, which may be a layer of another model."""
        layers, config = layers_of(entry), entry["config"]
        if self._may_have_masks is None:
            self._may_have_masks, self._outermost = makes_masks(entry), entry
        if isinstance(config, list):  # a Sequential up to Keras 2.2.2
            config = {"name": entry.get("name", "sequential")}
        changed = {key: config[key] for key in ("name", "trainable") if config.get(key) is not None}
        if entry["class_name"] == "Sequential":
            made = [self.layer(layer) for layer in layers]
            changed["layers"] = _with_input_layer(made, layers)
            if "build_input_shape" in config:
                changed["build_input_shape"] = _shape(config["build_input_shape"])
            return _Class("keras", "Sequential").entry(changed)
        calls: Any = None
        if IS_KERAS_3 and self._is_old:
            calls = _old_nodes.Calls(layers, config["output_layers"])
        elif not IS_KERAS_3 and not self._is_old:
            calls = _new_nodes.Calls(layers)
        changed["layers"] = self._called_layers(layers, calls, self._mask_flow(entry, calls))
        for key in ("input_layers", "output_layers"):
            changed[key] = calls.ends(config[key]) if calls else config[key]
        return self._class_of_model(entry).entry(changed)

    def _class_of_model(self, entry):
        if entry["class_name"] in ("Model", "Functional"):
            return _Class("keras", "Model")
        return self._class_of(entry, "keras.layers", entry["config"].get("name"))

    def _mask_flow(self, entry, calls):
        """Returns the `MaskFlow` of a functional model of the other Keras, None without masks."""
        if calls is None or not self._may_have_masks:
            return None
        return MaskFlow(layers_of(entry), calls.parents, entry is not self._outermost)

    def _called_layers(self, entries, calls, masks):
        """Returns the entries of a functional model, in which masks go where they did."""
        made = []
        for entry in entries:
            changed = self._called_layer(entry, calls)
            class_name = class_name_of(changed)
            if masks is not None and class_name in MERGING and masks.may_meet(entry):
                changed.update(_with_masks_of_keras_2(entry["name"], class_name, changed["config"]))
            if masks is not None and class_name in TAKE_STATES:
                # Calls in the form of Keras 3.
                nodes = (changed if IS_KERAS_3 else entry)["inbound_nodes"]
                for number, node in enumerate(nodes):
                    if calls_without_mask(node) and masks.may_leave(layer_of(node["args"][0])):
                        made.append(_with_mask(entry["name"], number, node))
            made.append(changed)
        return made

    def _called_layer(self, entry, calls):
        """Returns an entry of a functional model, with the calls of the layer."""
        if not self._is_old and _new_nodes.is_mask_operation(entry):
            made = _Class("keras.src.ops.numpy", entry["class_name"]).entry(entry["config"])
            nodes = entry["inbound_nodes"]
            if not IS_KERAS_3:
                arguments, nodes = calls.mask_operation(entry)
                made = _FUNCTION.entry(arguments)
            return dict(made, name=entry["name"], inbound_nodes=nodes)
        made, nodes = self.layer(entry), entry["inbound_nodes"]
        if IS_KERAS_3 and self._is_old and made["class_name"] == _FUNCTION.name:
            arguments, node = _functions.call_of(entry["name"], entry["config"], nodes, calls)
            made, nodes = dict(made, config=arguments), [node]
        elif not IS_KERAS_3 and entry["class_name"] in _functions.CLASSES:
            nodes = _functions.with_ellipsis(nodes)
        elif calls:
            class_name = class_name_of(made)
            nodes = [calls.node(entry["name"], class_name, node) for node in nodes]
        return dict(made, name=entry["name"], inbound_nodes=nodes)

    def layer(self, entry: Any) -> Dict[str, Any]:
        """Returns the configuration of a layer or a model."""
        if layers_of(entry) is not None:
            return self.model(entry)
        config = entry["config"]
        name = config.get("name")
        made = self._class_of(entry, "keras.layers", name)
        if made.name == "InputLayer":
            return made.entry(_input_layer(config))
        if made == _Class("keras.layers", "Lambda"):
            return made.entry(self._lambda(config))
        if entry["class_name"] in _functions.CLASSES and made.module is not None:
            _functions.check(name, config["function"], entry.get("inbound_nodes"))
            return made.entry(config)
        if made == _TIME_MAJOR:
            if not IS_KERAS_3:  # whose layers have the argument
                settings = dict(config["layer"]["config"], name=name)
                return self.layer(dict(config["layer"], config=with_time_major(settings, True)))
        elif IS_KERAS_3 and made.name in TAKE_STATES and is_time_major(config):
            inner = self.layer(dict(entry, config=with_time_major(config, False)))
            return _TIME_MAJOR.entry({"name": name, "layer": inner})
        if made.name == "TimeDistributed" and IS_KERAS_3 == self._is_old:
            _refuse_masks_of_each_step(name, config["layer"])
        config = {key: self._argument(key, value, name) for key, value in config.items()}
        if made.module is None:
            return made.entry(config)
        config = dict(
            ADDED_ARGUMENTS.get(entry["class_name"], {}) if self._is_old else {}, **config
        )
        without = (*_WITHOUT_EFFECT, *_NOT_TAKEN.get(made.name, ()))
        kept = {key: value for key, value in config.items() if key not in without}
        return made.entry(self._taken(made, without_neutral(kept)))

    def _lambda(self, config):
        """Returns the arguments of a Lambda, with a function of the program."""
        stored = config["function"]
        known_as = [
            name for name in (config["name"], stored) if registered(name, self._custom) is not None
        ]
        if not known_as:
            raise ExchangeError(
                "The layer %r is a Lambda. Its function is not in this program, and code in the "
                "file is not run. Pass the function: custom_objects={%r: the function}."
                % (config["name"], stored if isinstance(stored, str) else config["name"])
            )
        kept = ("name", "trainable", "dtype", "arguments")
        changed = {key: self._argument(key, config[key], "") for key in kept if key in config}
        if config.get("output_shape_type", "raw") == "raw":
            changed["output_shape"] = config.get("output_shape")
        if not IS_KERAS_3:
            types = {"function_type": "raw", "output_shape_type": "raw"}
            return dict(changed, function=registered(known_as[0], self._custom), **types)
        return dict(changed, function=_function(known_as[0]))

    def _argument(self, key: str, value: Any, layer: str) -> Any:
        """Returns an argument of the layer of this name."""
        if key == "dtype":
            return self._policy(value, layer)
        if key == "axis" and isinstance(value, list) and len(value) == 1:
            return value[0]
        if key.endswith("activation"):
            return self._activation(value, layer)
        if key == "vocabulary" and isinstance(value, str):
            raise ExchangeError(
                "The layer %r takes its vocabulary from the file %s, which is not opened. Save the "
                "model again, with the vocabulary in it." % (layer, value)
            )
        if isinstance(value, list):
            return [self._argument(key, part, layer) for part in value]
        if not isinstance(value, dict) or "class_name" not in value:
            return value
        if "items" in value:
            return _shape(value)
        for ending, module in _KINDS_OF_ARGUMENTS:
            if key.endswith(ending):
                return self._object(value, module, layer)
        return self.layer(value)

    def _activation(self, value, layer):
        """Returns an activation: a name, a function of the program or a layer."""
        if isinstance(value, dict):
            if value["class_name"] != "function":
                return self.layer(value)
            value = value["config"]
        if value == "hard_sigmoid" and self._is_old and IS_KERAS_3:
            value = OLD_HARD_SIGMOID
        elif value == "hard_sigmoid" and not self._is_old and not IS_KERAS_3:
            raise ExchangeError(
                "The layer %r has the activation hard_sigmoid of Keras 3, which has another slope "
                "in Keras 2. Load the file with Keras 3." % layer
            )
        if not IS_KERAS_3 or registered(value, self._custom) is None:
            return value
        return _function(value)

    def _policy(self, value, layer):
        """Returns the dtype of a layer, or a dtype policy, which may be a map of policies."""
        value = name_of_dtype(value)
        if not isinstance(value, dict):
            return as_taken(value)
        config = dict(value["config"])
        if isinstance(config.get("default_policy"), dict):
            config["default_policy"] = self._policy(config["default_policy"], layer)
        if "policy_map" in config:
            policies = config["policy_map"].items()
            config["policy_map"] = {key: self._policy(each, layer) for key, each in policies}
        return self._class_of(value, "keras.dtype_policies", layer).entry(config)

    def _object(self, entry, module, layer):
        """Returns an initializer, a regularizer or a constraint."""
        config = {key: value for key, value in entry["config"].items() if key != "dtype"}
        if config.get("distribution") in _DISTRIBUTIONS:
            config["distribution"] = _DISTRIBUTIONS[config["distribution"]]
        made = self._class_of(entry, module, layer)
        return made.entry(self._taken(made, config))

    def _taken(self, made, config):
        """Returns the arguments of a class, for Keras 2 without those that only Keras 3 has.

        Such an argument that has an effect stays; Keras then says that it does not know it.
        """
        if self._is_old or IS_KERAS_3 or not str(made.module).startswith("keras"):
            return config
        found = getattr(_module(made.module), made.name, object)  # TensorFlow 1 does not export all
        taken = inspect.signature(found.__init__).parameters
        return {
            key: value
            for key, value in config.items()
            if key in taken or key in _OF_EVERY_LAYER or value not in (None, False)
        }

    def _class_of(self, entry: Any, module: str, layer: Optional[str]) -> _Class:
        """Returns the class of an entry: the program's, this package's, or one of a Keras module.

        Raises:
          ExchangeError: neither has the class; the message names the layer.
        """
        class_name, registered_name = entry["class_name"], entry.get("registered_name")
        for known_as in (registered_name, class_name):
            found = registered(known_as, self._custom)
            if found is not None and not found.__module__.startswith("cudnn_rnn."):
                return _Class(None, known_as)
        package, _, name = class_name.rpartition(">")
        is_ours = package + ">" == OUR_PREFIX or str(registered_name).startswith(OUR_PREFIX)
        has_keras_module = _MODULES_OF_KERAS.fullmatch(entry.get("module") or "keras") is not None
        is_of_keras = not package and has_keras_module and name not in _UNSAFE
        if name in _OTHER_CLASSES and (is_ours or not package):  # TensorFlow 1 writes no package
            return _Class("cudnn_rnn.keras", name)
        if is_ours and name in _PLAIN_NAMES:
            if IS_KERAS_3:
                return _Class("cudnn_rnn.keras", name)
            return _Class(module, _PLAIN_NAMES[name])  # Keras 2 has these masks by itself
        if name in RNN_CLASSES and module == "keras.layers" and (is_ours or is_of_keras):
            return _Class(self._module_of_rnns, RNN_CLASSES[name])
        if name in _functions.CLASSES and is_of_keras and not IS_TENSORFLOW_1:
            # Keras 2 does not export its class, but reads it.
            return _FUNCTION if IS_KERAS_3 else _Class(module, name)
        name = _RENAMED.get(name, name)
        # TensorFlow 1 does not export all that its Keras reads.
        is_known = not IS_KERAS_3 and module != "keras.layers"
        if is_of_keras and (is_known or isinstance(getattr(_module(module), name, None), type)):
            return _Class(module, name)
        raise ExchangeError(
            "The layer %r has the class %r, which is not in this Keras and not registered. If the "
            "program has the class, pass it: custom_objects={%r: the class}."
            % (layer, class_name, class_name)
        )


def _refuse_masks_of_each_step(name, inside):
    """Raises `ExchangeError` if the layer inside a TimeDistributed makes masks."""
    if leaves_own_mask(inside):
        raise ExchangeError(
            "The layer %r is a TimeDistributed whose layer makes a mask for each step. Keras 2 "
            "passes it on, Keras 3 does not. Load the file with the Keras that wrote it, Keras %d "
            "(Keras 2 in new TensorFlows: tf_keras and TF_USE_LEGACY_KERAS=1)."
            % (name, 2 if IS_KERAS_3 else 3)
        )


def _with_mask(name, number, node):
    """Passes the mask of a call's inputs to the call; returns the entry of the layer that has it.

    Raises:
      ExchangeError: the file is one of Keras 3, which computes the call without the mask.
    """
    if not IS_KERAS_3:
        raise ExchangeError(
            "The layer %r is called with initial_state and, as far as the file tells, inputs that "
            "have a mask. Keras 3 leaves such a mask out, Keras 2 applies it. Load the file with "
            "Keras 3; if the mask is meant, pass mask= to the layer there, and save the model "
            "again." % name
        )
    config = {"name": "%s_mask_%d" % (name, number)}
    node["kwargs"]["mask"] = _old_nodes.tensor_of([config["name"], 0, 0])
    call = {"args": node["args"][:1], "kwargs": {}}
    return dict(_INPUT_MASK.entry(config), name=config["name"], inbound_nodes=[call])


def _with_masks_of_keras_2(name, class_name, config):
    """Returns the entry of a layer that merges inputs and their masks as Keras 2 does.

    Raises:
      ExchangeError: the file is one of Keras 3.
    """
    if not IS_KERAS_3:
        raise ExchangeError(
            "The layer %r (%s) may have inputs with different masks. Keras 2 and 3 combine these "
            "in different ways. Load the file with Keras 3." % (name, class_name)
        )
    return _Class("cudnn_rnn.keras", MERGING[class_name]).entry(config)


def _function(known_as):
    """Returns the configuration of a function of the program, for Keras 3."""
    return dict(_Class(None, known_as).entry(known_as), class_name="function")


def _module(name):
    return getattr(keras, name.rpartition(".")[2])


def _input_layer(config):
    """Returns the arguments of an InputLayer."""
    changed = dict(config)
    shape = changed.pop("batch_input_shape", None) or changed.pop("batch_shape", None)
    return dict(
        {key: value for key, value in changed.items() if value not in (None, False)},
        **{"batch_shape" if IS_KERAS_3 else "batch_input_shape": _shape(shape)},
    )


def _with_input_layer(made: List[Any], entries: List[Any]) -> List[Any]:
    """Returns the layers of a Sequential; the first has the shape of the inputs if it is known."""
    shape, dtype, name = _input_of(entries[0]) if entries else (None, None, None)
    if shape is None:
        return made
    if made[0]["class_name"] != "InputLayer":
        config = dict(batch_input_shape=shape, dtype=dtype, name="%s_input" % name)
        made = [_Class("keras.layers", "InputLayer").entry(_input_layer(config)), *made]
    if IS_TENSORFLOW_1 and len(made) > 1 and "layers" not in made[1]["config"]:
        # TensorFlow 1.14 does not write the InputLayer of a Sequential.
        made[1]["config"]["batch_input_shape"] = _shape(shape)
    return made


def _input_of(entry: Any) -> Tuple[Any, Any, Any]:
    """Returns batch shape, dtype and name of the layer that has the shape of the inputs."""
    while layers_of(entry):
        entry = layers_of(entry)[0]
    config = entry["config"]
    dtype = config.get("dtype")
    shape = config.get("batch_input_shape") or config.get("batch_shape")
    return shape, dtype if isinstance(dtype, str) else None, config.get("name")


def _shape(shape):
    """Returns a shape as a list."""
    return shape["items"] if isinstance(shape, dict) else shape
