"""What a model of an older Keras was compiled with: loss, metrics, the optimizer and its state.

A file names classes and functions; they are looked up in today's Keras and in `custom_objects`,
and nothing that a file names is imported.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow

from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.keras import _stored_weights
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, registered
from cudnn_rnn.model import dialects

keras = tensorflow.keras


class _Slot(NamedTuple):
    """One of the arrays that an optimizer has for each variable.

    Attributes:
      name: of the slot before TensorFlow 2.11.
      attribute: of the optimizer since then, a list with an array for each variable.
      setting: the argument of the optimizer without which the slot has no effect; "" if it always
        has one.
    """

    name: str
    attribute: str
    setting: str = ""


# The slots by the class of the optimizer, in the order of Keras's files.
_SLOTS = {
    "Adam": (
        _Slot("m", "_momentums"),
        _Slot("v", "_velocities"),
        _Slot("vhat", "_velocity_hats", "amsgrad"),
    ),
    "SGD": (_Slot("momentum", "momentums", "momentum"),),
    "RMSprop": (
        _Slot("rms", "_velocities"),
        _Slot("momentum", "_momentums", "momentum"),
        _Slot("mg", "_average_gradients", "centered"),
    ),
}
_RENAMED = {"lr": "learning_rate"}
# Arguments with which nothing is lost if today's class does not have them.
_NEUTRAL: Tuple[Any, ...] = (None, False, 0, 0.0, "", {}, [])
_WITHOUT_EFFECT = ("name", "jit_compile", "is_legacy_optimizer", "ema_momentum")


class Stored(NamedTuple):
    """What a file has of a model's training.

    Attributes:
      config: the loss, the metrics and the optimizer, as nested dicts and lists.
      state: the arrays of the optimizer's state by their names, in its order.
    """

    config: Dict[str, Any]
    state: Dict[str, np.ndarray]


class _Left(Exception):
    """A setting cannot be restored; the text names it."""


def compile_model(model: Any, stored: Stored, custom_objects: Dict[str, Any]) -> Optional[str]:
    """Compiles a model as in the file; returns a text if a part was not restored, else None."""
    try:
        with keras.utils.custom_object_scope(custom_objects):
            optimizer = _optimizer(stored.config)
            loss = _objects(stored.config.get("loss"), keras.losses)
            metrics = _objects(stored.config.get("metrics"), keras.metrics)
            if IS_KERAS_3 and isinstance(metrics, list) and len(model.outputs) > 1:
                if not any(isinstance(one, (list, dict)) for one in metrics):
                    metrics = [metrics] * len(model.outputs)  # as Keras 2 applies such a list
            named = {"loss_weights": stored.config.get("loss_weights")}
            model.compile(optimizer, loss, metrics=metrics, **named)
    except _Left as left:
        return "%s; call model.compile" % left
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return "the model cannot be compiled as it was (%s); call model.compile" % error
    try:
        _set_state(model, optimizer, stored.state)
    except _Left as left:
        return "%s; the optimizer starts anew" % left
    return None


def _optimizer(config):
    """Returns the optimizer of today's Keras."""
    entry = config.get("optimizer_config") or config.get("optimizer")
    if isinstance(entry, str):
        return keras.optimizers.get(entry)
    class_name = str(entry["class_name"]).rpartition(">")[2]
    made_by = getattr(keras.optimizers, class_name, None)
    if class_name not in _SLOTS or made_by is None:
        raise _Left("the optimizer %s is not carried over" % class_name)
    settings = {_RENAMED.get(key, key): value for key, value in entry["config"].items()}
    decay = settings.pop("decay", 0.0)
    if decay:
        schedule = keras.optimizers.schedules.InverseTimeDecay
        settings["learning_rate"] = schedule(settings["learning_rate"], 1, decay)
    if isinstance(settings.get("learning_rate"), dict):
        raise _Left("the schedule of the learning rate is not carried over")
    known = inspect.signature(made_by.__init__).parameters
    for key in [key for key in settings if key not in known or settings[key] is None]:
        value = settings.pop(key)
        if key not in _WITHOUT_EFFECT and value not in _NEUTRAL:
            raise _Left("the optimizer's argument %s=%r is not known here" % (key, value))
    return made_by(**settings)


def _objects(entry, module):
    """Returns losses or metrics, in lists or dicts, as `compile` takes them.

    Args:
      entry: from the file.
      module: `keras.losses` or `keras.metrics`.
    """
    if isinstance(entry, (list, tuple)):
        return [_objects(one, module) for one in entry]
    if not isinstance(entry, dict):
        return entry
    if "class_name" not in entry:
        return {name: _objects(one, module) for name, one in entry.items()}
    name, config = str(entry["class_name"]).rpartition(">")[2], entry["config"]
    if name == "MeanMetricWrapper":
        return config["fn"]  # the metrics of functions
    if name == "function":
        return config
    names = (entry.get("registered_name"), entry["class_name"])
    of_program = filter(None, (registered(one, {}) for one in names))
    found = next(of_program, getattr(module, name, None))
    if not isinstance(found, type):
        raise _Left("%s is not in this Keras and not registered" % entry["class_name"])
    taken = inspect.signature(found.__init__).parameters
    # "auto" is the default of Keras 2 and unknown in Keras 3.
    return found(**{key: one for key, one in config.items() if key in taken and one != "auto"})


def _set_state(model, optimizer, state):
    """Gives the optimizer its state."""
    if not state:
        return
    trained = _stored_weights.trained_slots(model)
    kinds = _kinds_of_slots(optimizer)
    num_always = sum(not kind.setting for kind in kinds)
    step, values = _values_of_slots(list(state.items()), len(trained), num_always, len(kinds))
    variables = [slot.weight for slot in trained]
    pairs: List[Tuple[Any, np.ndarray]] = []
    for kind, arrays in zip(kinds, values):
        of_variable = dict(zip(map(id, variables), _slots(optimizer, variables, kind, model)))
        # The two biases of cuDNN have the same gradients.
        for _, slots, found in _stored_weights.by_layer(trained, arrays, dialects.mean_of):
            pairs += [(of_variable[id(slot.weight)], one) for slot, one in zip(slots, found)]
    for slot, array in pairs:
        if tuple(slot.shape) != array.shape:
            raise _Left(
                "the optimizer's state has arrays of the shape %s instead of %s"
                % (array.shape, tuple(slot.shape))
            )
    pairs.append((optimizer.iterations, np.asarray(step)))
    if hasattr(optimizer, "build") or tensorflow.executing_eagerly():
        for slot, array in pairs:
            slot.assign(array)
    else:
        keras.backend.batch_set_value(pairs)


def _kinds_of_slots(optimizer):
    """Returns the slots that have an effect with the settings of the optimizer."""
    settings = optimizer.get_config()
    kinds = _SLOTS[type(optimizer).__name__]
    return [kind for kind in kinds if not kind.setting or settings.get(kind.setting)]


def _values_of_slots(
    state: Sequence[Tuple[str, np.ndarray]], num_variables: int, num_always: int, num_slots: int
) -> Tuple[int, List[List[np.ndarray]]]:
    """Returns the number of steps, and of each slot the arrays of all variables.

    Keras lists all variables of a slot; since TensorFlow 2.11, it first lists, for each variable,
    the `num_always` slots that the optimizer has with any settings.
    """
    names = [name.split("/")[-1].partition(":")[0] for name, _ in state]
    arrays = [array for _, array in state]
    is_new = names[0] == "iteration"
    step = int(arrays.pop(0)) if np.ndim(arrays[0]) == 0 else 0
    if is_new and names[1:2] == ["learning_rate"]:
        arrays.pop(0)
    if not arrays and not step:  # the model was not trained
        return 0, []
    used = num_slots * num_variables
    # Keras 2.1 to 2.3 list arrays of one element for an option of Adam. SGD may have slots that a
    # momentum of 0 leaves without an effect.
    others = arrays[used:] if num_slots else []
    if len(arrays) < used or any(array.size > 1 for array in others):
        raise _Left("the optimizer's state has %d arrays instead of %d" % (len(arrays), used))
    num_first = num_always if is_new else 0
    first = num_first * num_variables
    starts = range(first, used, num_variables)
    return step, [
        *(arrays[slot:first:num_first] for slot in range(num_first)),
        *(arrays[start : start + num_variables] for start in starts),
    ]


def _slots(optimizer, variables, kind, model):
    """Returns the variables of a slot of the optimizer in the order of `variables`."""
    if hasattr(optimizer, "build"):
        if not getattr(optimizer, "built", False):
            optimizer.build(model.trainable_variables)
        order = {id(one): number for number, one in enumerate(model.trainable_variables)}
        slots = getattr(optimizer, kind.attribute)
        if len(slots) != len(order):
            raise _Left("the optimizer has no slot %s here" % kind.name)
        return [slots[order[id(variable)]] for variable in variables]
    optimizer.iterations  # noqa: B018, creates the variable
    optimizer._create_hypers()
    optimizer._create_slots(variables)
    return [optimizer.get_slot(variable, kind.name) for variable in variables]


def state_of_archive(arrays: Dict[str, Any]) -> Dict[str, np.ndarray]:
    """Returns the state of the optimizer in an archive, with names like those in HDF5."""
    keys = [key for key in arrays if key.startswith("optimizer/vars/")]
    keys.sort(key=lambda key: int(key.rpartition("/")[2]))
    names = ["iteration", *keys[1:]]
    if len(keys) > 1 and np.ndim(arrays[keys[1]]) == 0:  # Keras 3
        names[1] = "learning_rate"
    if any(arrays[key] is None for key in keys):
        raise ExchangeError("the optimizer's state has an array that is not numbers")
    return {name: arrays[key] for name, key in zip(names, keys)}
