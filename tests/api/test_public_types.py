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
SPECIAL_METHODS = ("__init__", "__call__")


def functions_of_class(owner):
    """Yields (name, function) for each public method and property that this package defines.

    With Keras 2 and in TensorFlow 1, some base classes, and some of the cells, are TensorFlow's.
    """
    for base in owner.__mro__:
        if not base.__module__.startswith(("cudnn_rnn.", __name__)):
            continue
        for name, value in vars(base).items():
            value = value.fget if isinstance(value, property) else value
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            value = inspect.unwrap(value) if callable(value) else value
            is_public = not name.startswith("_") or name in SPECIAL_METHODS
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


def missing_annotations(function):
    """Returns the names of the parameters without an annotation, and "return"."""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    missing = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
    if signature.return_annotation is inspect.Signature.empty:
        missing.append("return")
    return missing


def public_functions():
    found = {}
    exported = {name: getattr(cudnn_rnn, name) for name in cudnn_rnn.__all__}
    for name, value in dict(exported, **OTHERS).items():
        for qualified_name, function in functions_of(name, value):
            found["%s.%s" % (function.__module__, qualified_name)] = function
    return found


PUBLIC_FUNCTIONS = public_functions()


@pytest.mark.parametrize("name", sorted(PUBLIC_FUNCTIONS))
def test_annotations_are_complete(name):
    function = PUBLIC_FUNCTIONS[name]
    assert missing_annotations(function) == []
    # Evaluates the annotations, which are strings. Fails for names that exist only while checking.
    hints = typing.get_type_hints(function)
    assert set(hints) == set(function.__annotations__)


def test_public_functions_are_found():
    expected = [
        "cudnn_rnn.op_level._CudnnRNN.params_size",
        "cudnn_rnn.op_level._CudnnRNN.num_layers",
        "cudnn_rnn.op_level.CudnnLSTM.__call__",
        "cudnn_rnn.layers._CudnnRNN.__init__",
        "cudnn_rnn.layers._CudnnRNN.call",
        "cudnn_rnn.cudnn_rnn_ops.cudnn_lstm",
        "cudnn_rnn.contrib.install",
        "cudnn_rnn.cells.compatible.CudnnCompatibleLSTMCell.state_size",
        "cudnn_rnn.checkpoints.cell_saveables.CudnnOpaqueParamsSaveable.restore",
        "cudnn_rnn._native.library.library_path",
        "cudnn_rnn._native.gpu_kernels.kernels_in_charge",
    ]
    assert [name for name in expected if name not in PUBLIC_FUNCTIONS] == []


class Sample:
    def __init__(self, size: int):
        self.size = size

    def scaled(self, factor, *others: int, name: str = "") -> int:
        return self.size * factor

    @property
    def width(self):
        return self.size

    def _private(self, size):
        return size


def test_missing_annotations_are_found():
    found = {name: missing_annotations(part) for name, part in functions_of("Sample", Sample)}
    assert found == {
        "Sample.__init__": ["return"],
        "Sample.scaled": ["factor"],
        "Sample.width": ["return"],
    }


def test_type_checkers_know_that_the_package_is_annotated():
    assert os.path.exists(os.path.join(os.path.dirname(cudnn_rnn.__file__), "py.typed"))


def test_types_of_the_fields_of_kernels_in_charge():
    assert typing.get_type_hints(gpu_kernels.KernelsInCharge) == {"provider": str, "reason": str}
