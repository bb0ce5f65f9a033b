"""Type annotations: every public function, method and property has complete ones."""

import inspect
import os
import types
import typing

import pytest

import cudnn_rnn
import cudnn_rnn.keras
from cudnn_rnn import exchange
from cudnn_rnn._native import gpu_kernels, library

# Public, but not in `cudnn_rnn.__all__`.
OTHERS = [library.build_info, library.load_library, gpu_kernels.KernelsInCharge, exchange]


def functions_of(value):
    """Yields this package's functions, which have annotations, in a module, class or attribute.

    With Keras 2 and in TensorFlow 1, some base classes, and some of the cells, are TensorFlow's.
    """
    if isinstance(value, types.ModuleType):
        for name in value.__all__:
            yield from functions_of(getattr(value, name))
    elif inspect.isclass(value):
        for name, part in (item for base in value.__mro__ for item in vars(base).items()):
            if not name.startswith("_") or name in ("__init__", "__call__"):
                yield from functions_of(part)
    else:
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        function = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(function) and function.__module__.startswith("cudnn_rnn."):
            yield function


PUBLIC_FUNCTIONS = {
    "%s.%s" % (function.__module__, function.__qualname__): function
    for value in [getattr(cudnn_rnn, name) for name in cudnn_rnn.__all__]
    + [cudnn_rnn.keras]
    + OTHERS
    for function in functions_of(value)
}


@pytest.mark.parametrize("name", sorted(PUBLIC_FUNCTIONS))
def test_annotations_are_complete(name):
    function = PUBLIC_FUNCTIONS[name]
    # Evaluates the annotations, which are strings. Fails for names that exist only while checking.
    hints = typing.get_type_hints(function)
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert set(hints) == parameters | {"return"}


def test_public_functions_are_found():
    expected = """
        _native.gpu_kernels.kernels_in_charge
        _native.library.library_path
        cells.compatible.CudnnCompatibleLSTMCell.state_size
        checkpoints.cell_saveables.CudnnOpaqueParamsSaveable.restore
        contrib.install
        exchange.conversion.convert
        exchange.onnx_format.to_model
        model.weights.RnnWeights.from_opaque
        cudnn_rnn_ops.cudnn_lstm
        layers._RNNLayer.__init__
        layers._RNNLayer.call
        op_level.CudnnLSTM.__call__
        op_level._OpLevelRNN.num_layers
        op_level._OpLevelRNN.params_size
    """
    missing = {"cudnn_rnn." + name for name in expected.split()} - set(PUBLIC_FUNCTIONS)
    assert not missing


def test_the_marker_for_type_checkers_and_the_types_of_fields():
    assert os.path.exists(os.path.join(os.path.dirname(cudnn_rnn.__file__), "py.typed"))
    assert typing.get_type_hints(gpu_kernels.KernelsInCharge) == {"provider": str, "reason": str}
