"""The contents of `tf.contrib.cudnn_rnn` in each TensorFlow release, from 1.0 to 1.15.

`namespaces(minor)` returns the names of every module of the package in TensorFlow 1.`minor`, bound
to this library's classes and functions. If a release had other defaults or another argument order
than this library, the name is bound to a class or function generated for that release.
"""

import functools
import importlib
import inspect
import re
from typing import Any, Dict

from cudnn_rnn import cudnn_rnn_ops, layers, op_level
from cudnn_rnn._compat import gen_cudnn_rnn_ops, tf
from cudnn_rnn.graph import canonical
from cudnn_rnn.graph.arguments import as_tensors, checked_params
from cudnn_rnn.model import spec

# The modules that `_own_class` searches for the names that the modules above lack.
_MODULES = ("cells.compatible", "saveables", "checkpoints.converters")

_RNNS = ("CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh")
# The base classes, which had the same names among the op-level classes and among the layers.
_OP_LEVEL_BASES = {
    "_CudnnRNN": op_level._OpLevelRNN,
    "_CudnnRNNNoInputC": op_level._OpLevelRNNWithoutCellState,
}
_LAYER_BASES = {
    "_CudnnRNN": layers._RNNLayer,
    "_CudnnRNNNoInputC": layers._RNNLayerWithoutCellState,
}
_CELLS = ("CudnnCompatibleGRUCell", "CudnnCompatibleLSTMCell")
_SAVEABLES = tuple(name + "Saveable" for name in _RNNS)
_CONVERTERS = tuple("CudnnParamsFormatConverter" + kind for kind in ("GRU", "LSTM", "Relu", "Tanh"))
_CONSTANTS = tuple(name for name in vars(spec) if name.startswith("CUDNN_"))
_CONSTANTS_OF_1_3 = tuple(name for name in _CONSTANTS if not re.search("_INPUT_|_PARAMS_", name))
_CHECKS = ("_check_rnn_mode", "_get_num_params", "_get_seed", "check_direction", "check_input_mode")
_RAW_OPS = (
    "_CudnnRNNBackpropOutput",
    "_CudnnRNNOutput",
    "_CudnnRNNParamsToCanonicalOutput",
    "cudnn_rnn",
    "cudnn_rnn_backprop",
    "cudnn_rnn_canonical_to_params",
    "cudnn_rnn_params_size",
    "cudnn_rnn_params_to_canonical",
)
_EAGER_RAW_OPS = tuple(name + "_eager_fallback" for name in _RAW_OPS if name.startswith("cudnn"))
_CALLS_AND_CONVERSIONS = tuple(name for name in vars(cudnn_rnn_ops) if re.match("_?cudnn_", name))


def namespaces(minor):
    """Returns the contents of the package in TensorFlow 1.`minor`.

    Returns:
      A dict from module names, relative to `tensorflow.contrib.cudnn_rnn` (""), to dicts of the
      modules' contents.
    """
    ops = _ops(minor)
    found = {"": None, "python": {}, "python.ops": {}, "python.ops.cudnn_rnn_ops": ops}
    if minor <= 7:
        found["ops"] = {}
        found["ops.gen_cudnn_rnn_ops"] = _select(
            vars(gen_cudnn_rnn_ops), _RAW_OPS + (_EAGER_RAW_OPS if minor == 7 else ())
        )
    if minor < 4:
        public = _select(ops, _RNNS + ("RNNParamsSaveable",))
    elif minor == 4:
        public = _select(ops, _RNNS + _CELLS + _SAVEABLES)
    if minor >= 4:
        of_layers = _layers(minor)
        found["python.layers.cudnn_rnn"] = of_layers
        found["python.layers"] = {}
    if minor >= 5:
        public = _select(ops, _CELLS + _SAVEABLES + (_CONVERTERS if minor >= 13 else ()))
        public.update(_select(of_layers, _RNNS))
        found["python.layers"] = dict(public)
    found[""] = public
    return found


def _ops(minor):
    """Returns the contents of `python.ops.cudnn_rnn_ops`."""
    names = {name: _op_level_class(name, minor) for name in _RNNS}
    names["gen_cudnn_rnn_ops"] = gen_cudnn_rnn_ops
    names["_cudnn_rnn_common_doc_string"] = op_level.__doc__
    names.update(_OP_LEVEL_BASES)
    if minor >= 3:
        constants = _CONSTANTS if minor >= 4 else _CONSTANTS_OF_1_3
        names.update(_select(vars(spec), constants))
        names.update(_own_classes(_CELLS))
    if minor < 4:
        names["RNNParamsSaveable"] = _rnn_params_saveable(minor)
        if minor == 3:
            names["CudnnCompatibleLSTMBlockCell"] = names["CudnnCompatibleLSTMCell"]
        return names
    names.update(_own_classes(_SAVEABLES + ("CudnnOpaqueParamsSaveable",)))
    names.update(_select(vars(cudnn_rnn_ops), _CHECKS))
    for name in _CALLS_AND_CONVERSIONS:
        names[name] = _function(name, minor)
    if minor <= 12:
        names["CudnnRNNSimpleSaveable"] = _simple_saveable()
    else:
        names.update(_own_classes(_CONVERTERS + ("CudnnParamsFormatConverter",)))
        names["CudnnParamsFormatConverterBasic"] = _own_class("_OneKernel")
    if minor >= 5:
        names.update(_BIAS_VARIABLE_NAME="bias", _WEIGHTS_VARIABLE_NAME="kernel")
    return names


def _layers(minor):
    """Returns the contents of `python.layers.cudnn_rnn`."""
    names = _select(vars(spec), _CONSTANTS)
    names.update(_select(vars(layers), _RNNS), **_LAYER_BASES)
    if minor >= 5:
        names["__all__"] = list(_RNNS)
    return names


def _select(names, wanted):
    return {name: names[name] for name in wanted}


def _own_classes(names):
    return {name: _own_class(name) for name in names}


def _own_class(name):
    """Returns this library's class of the given name."""
    for module_name in _MODULES:
        module = importlib.import_module("cudnn_rnn." + module_name)
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError("cudnn_rnn has no %s." % name)


def _signature(*required, **optional):
    """Returns the signature `(*required, **optional)`; all by position or by keyword."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(name, kind) for name in required]
        + [inspect.Parameter(name, kind, default=value) for name, value in optional.items()]
    )


def _method(function, signature, fill_in=None):
    """Returns the method `function` with another visible signature.

    The method still accepts all arguments that `function` accepts, such as a dtype in the position
    of the dropout. `fill_in`, if given, maps the arguments (a list and a dict) before the call.
    """

    @functools.wraps(function)
    def method(self, *arguments, **named):
        if fill_in is not None:
            arguments, named = fill_in(list(arguments), dict(named))
        return function(self, *arguments, **named)

    parameters = [*_signature("self").parameters.values(), *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


@functools.lru_cache(maxsize=None)
def _op_level_class(name, minor):
    """Returns the class `CudnnLSTM`, ... of `python.ops.cudnn_rnn_ops` in a release."""
    base = getattr(op_level, name)
    is_lstm = name == "CudnnLSTM"
    default_mode = spec.CUDNN_INPUT_AUTO_MODE if minor <= 2 else spec.CUDNN_INPUT_LINEAR_MODE
    optional: Dict[str, Any] = {"input_mode": default_mode}
    optional["direction"] = spec.CUDNN_RNN_UNIDIRECTION
    if minor >= 4:
        optional["dtype"] = tf.float32
    optional.update(dropout=0.0, seed=0)
    if minor <= 1:
        optional["seed2"] = 0
    if minor >= 15 and is_lstm:
        optional["num_proj"] = None

    def fill_in(arguments, named):
        if len(arguments) < 4:
            named.setdefault("input_mode", default_mode)
        return arguments, named

    init = _method(
        base.__init__,
        _signature("num_layers", "num_units", "input_size", **optional),
        fill_in if default_mode != spec.CUDNN_INPUT_LINEAR_MODE else None,
    )
    required = ("input_data", "input_h") + (("input_c",) if is_lstm else ()) + ("params",)
    optional = dict(sequence_lengths=None, time_major=True) if minor >= 14 else {}
    optional["is_training"] = True
    call = _method(base.__call__, _signature(*required, **optional))
    bases = (_PaddedBuffer, base) if minor <= 2 else (base,)
    made = type(name, bases, {"__init__": init, "__call__": call, "__doc__": base.__doc__})
    return _name_for_pickle(made, name, minor)


def _name_for_pickle(made, name, minor):
    """Names an object generated for a release so that pickle finds it here; returns it."""
    made.__module__ = __name__
    made.__qualname__ = "%s_of_1_%d" % (name, minor)
    return made


def __getattr__(qualified_name):
    """Finds an object named by `_name_for_pickle`; generates it if this process has not done so."""
    match = re.match(r"(\w+)_of_1_(\d|1[0-5])$", qualified_name)
    found = _ops(int(match.group(2))).get(match.group(1)) if match else None
    if getattr(found, "__qualname__", None) != qualified_name:
        raise AttributeError("module %r has no attribute %r" % (__name__, qualified_name))
    return found


class _PaddedBuffer(op_level._OpLevelRNN):
    """Reserves room for unused input weights in the buffer, as in TensorFlow 1.0 to 1.2.

    In those releases, input_mode defaults to auto_select, which skips the input weights if sizes
    are equal. cuDNN's buffer was nevertheless at least as large as one with input weights, and
    programs relied on that. Here, the spare elements are zeros at the end of the buffer.
    """

    def _num_params(self):
        linear = self.config._replace(input_mode=spec.CUDNN_INPUT_LINEAR_MODE)
        return canonical.static_params_size(linear)

    def params_size(self):
        return tf.constant(self._num_params(), tf.int32, name="params_size")

    def params_to_canonical(self, params):
        return super().params_to_canonical(self._used(params))

    def canonical_to_params(self, weights, biases):
        params = super().canonical_to_params(weights, biases)
        spare = self._num_params() - super()._num_params()
        return tf.pad(params, [[0, spare]]) if spare else params

    def _call(self, input_data, input_h, input_c, params, *others):
        return super()._call(input_data, input_h, input_c, self._used(params), *others)

    def _used(self, params):
        """Returns `params` without the spare elements."""
        if self._num_params() == super()._num_params():
            return params
        (params,) = as_tensors([("params", params)], self._given_dtype, self.dtype)
        return checked_params(params, self._num_params())[: super()._num_params()]


@functools.lru_cache(maxsize=None)
def _rnn_params_saveable(minor):
    base = _own_class("RNNParamsSaveable")
    required = ["cudnn_rnn"] if minor == 3 else []
    required += ["params_to_canonical", "canonical_to_params"]
    required += ["param_variables"] if minor >= 2 else []
    optional: Dict[str, Any] = {"base_variable_scope": None} if minor == 3 else {}
    if minor >= 1:
        optional["name"] = "params_canonical"
    signature = _signature(*required, **optional)
    if minor <= 1:
        variables = inspect.Parameter("param_variables", inspect.Parameter.VAR_POSITIONAL)
        signature = signature.replace(parameters=[*signature.parameters.values(), variables])
    init = _method(base.__init__, signature)
    made = type(base.__name__, (base,), {"__init__": init, "__doc__": base.__doc__})
    return _name_for_pickle(made, base.__name__, minor)


@functools.lru_cache(maxsize=None)
def _simple_saveable():
    """Returns the base of simple RNNs' saveables up to 1.12; they pass `isinstance` with it."""
    tanh, relu = _own_class("CudnnRNNTanhSaveable"), _own_class("CudnnRNNReluSaveable")

    class Simple(type(tanh)):  # type: ignore[misc]
        def __instancecheck__(cls, instance):
            return isinstance(instance, (tanh, relu)) or super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass):
            return issubclass(subclass, (tanh, relu)) or super().__subclasscheck__(subclass)

    base = _own_class("CudnnLSTMSaveable")
    name = "CudnnRNNSimpleSaveable"
    return _name_for_pickle(Simple(name, (base,), {"__doc__": base.__doc__}), name, minor=12)


@functools.lru_cache(maxsize=None)
def _function(name, minor):
    """Returns a function of `cudnn_rnn_ops`, without arguments newer than the release."""
    function = getattr(cudnn_rnn_ops, name)
    unknown = {"num_proj"} if minor <= 14 else set()
    if minor <= 13:
        unknown |= {"sequence_lengths", "time_major"}
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in unknown]
    if len(parameters) == len(signature.parameters):
        return function
    signature = signature.replace(parameters=parameters)

    @functools.wraps(function)
    def of_release(*arguments, **named):
        return function(**signature.bind(*arguments, **named).arguments)

    of_release.__signature__ = signature  # type: ignore[attr-defined]
    return _name_for_pickle(of_release, name, minor)
