"""Type annotations: every public function, method and property has complete ones."""

import inspect
import os
import types
import typing

import pytest

import cudnn_rnn
from cudnn_rnn._native import gpu_kernels, library

# Public, but not in `cudnn_rnn.__all__`.
OTHERS = {
    "build_info": library.build_info,
    "load_library": library.load_library,
    "KernelsInCharge": gpu_kernels.KernelsInCharge,
}


def functions_of_class(owner):
    """Yields (name, function) for each public method and property that this package defines.

    With Keras 2 and in TensorFlow 1, some base classes, and some of the cells, are TensorFlow's.
    """
    for base in owner.__mro__:
        if not base.__module__.startswith("cudnn_rnn."):
            continue
        for name, value in vars(base).items():
            if isinstance(value, (property, classmethod, staticmethod)):
                value = getattr(value, "fget", None) or value.__func__
            value = inspect.unwrap(value) if callable(value) else value
            is_public = not name.startswith("_") or name in ("__init__", "__call__")
            if is_public and inspect.isfunction(value):
                yield "%s.%s" % (base.__qualname__, name), value


def functions_of(name, value):
    """Yields (name, function) for everything to annotate in a class, a function or a module."""
    if isinstance(value, types.ModuleType):
        for part in value.__all__:
            yield from functions_of(part, getattr(value, part))
    elif inspect.isclass(value):
        yield from functions_of_class(value)
    elif inspect.isfunction(value):
        yield name, value


def public_functions():
    exported = {name: getattr(cudnn_rnn, name) for name in cudnn_rnn.__all__}
    return {
        "%s.%s" % (function.__module__, qualified_name): function
        for name, value in dict(exported, **OTHERS).items()
        for qualified_name, function in functions_of(name, value)
    }


PUBLIC_FUNCTIONS = public_functions()


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
        cudnn_rnn_ops.cudnn_lstm
        layers._CudnnRNN.__init__
        layers._CudnnRNN.call
        op_level.CudnnLSTM.__call__
        op_level._CudnnRNN.num_layers
        op_level._CudnnRNN.params_size
    """
    missing = {"cudnn_rnn." + name for name in expected.split()} - set(PUBLIC_FUNCTIONS)
    assert not missing


def test_the_marker_for_type_checkers_and_the_types_of_fields():
    assert os.path.exists(os.path.join(os.path.dirname(cudnn_rnn.__file__), "py.typed"))
    assert typing.get_type_hints(gpu_kernels.KernelsInCharge) == {"provider": str, "reason": str}
