"""cuDNN's recurrent networks for graph-mode TensorFlow: the successor of `tf.contrib.cudnn_rnn`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, List

from cudnn_rnn._version import __version__
from cudnn_rnn.cli.launch import is_command_starting

__all__ = [
    "BasicRNNCell",
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
    "LSTMStateTuple",
    "MultiRNNCell",
    "__version__",
    "contrib",
    "cudnn_rnn_ops",
    "export_onnx",
    "export_plain",
    "float32_matmul_precision",
    "get_float32_matmul_precision",
    "import_meta_graph",
    "kernels_in_charge",
    "layers",
    "library_path",
    "plain_function",
    "plain_graph_def",
    "plain_ops",
    "set_float32_matmul_precision",
    "stack_bidirectional_dynamic_rnn",
]

# `python -m cudnn_rnn` must answer even if TensorFlow or the library is broken.
if not is_command_starting():
    from cudnn_rnn._native.library import library_path, load_library

    # Runs before anything else imports TensorFlow, to explain a broken TensorFlow or library.
    load_library()

    from cudnn_rnn import _patches, contrib, cudnn_rnn_ops, layers, saveables
    from cudnn_rnn._native.gpu_kernels import kernels_in_charge
    from cudnn_rnn._native.precision import (
        float32_matmul_precision,
        get_float32_matmul_precision,
        set_float32_matmul_precision,
    )
    from cudnn_rnn.checkpoints.meta_graph import import_meta_graph
    from cudnn_rnn.graph import flops, second_order  # noqa: F401  (register with TensorFlow)
    from cudnn_rnn.graph.plain_rnn import plain_ops
    from cudnn_rnn.model import spec as _spec
    from cudnn_rnn.model.spec import *  # noqa: F403
    from cudnn_rnn.op_level import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh
    from cudnn_rnn.plain import export_plain, plain_function, plain_graph_def
    from cudnn_rnn.saveables import *  # noqa: F403

    __all__ += _spec.__all__ + saveables.__all__
    _patches.install()

# Imported on first use: importing the cells may import Keras.
_LAZY = {
    "BasicRNNCell": "cudnn_rnn.cells.basic",
    "CudnnCompatibleGRUCell": "cudnn_rnn.cells.compatible",
    "CudnnCompatibleLSTMCell": "cudnn_rnn.cells.compatible",
    "LSTMStateTuple": "cudnn_rnn.cells.compatible",
    "MultiRNNCell": "cudnn_rnn.cells.compatible",
    "export_onnx": "cudnn_rnn.onnx",
    "stack_bidirectional_dynamic_rnn": "cudnn_rnn.cells.basic",
}

# Imported on first use as well: Keras is optional, and a program that trains needs no `exchange`.
_LAZY_MODULES = ("exchange", "keras", "onnx")

if TYPE_CHECKING:
    from cudnn_rnn import exchange, keras, onnx  # noqa: F401
    from cudnn_rnn.cells.basic import BasicRNNCell, stack_bidirectional_dynamic_rnn
    from cudnn_rnn.cells.compatible import (
        CudnnCompatibleGRUCell,
        CudnnCompatibleLSTMCell,
        LSTMStateTuple,
        MultiRNNCell,
    )
    from cudnn_rnn.onnx import export_onnx
else:  # A type checker that sees this function accepts any name.

    def __getattr__(name):
        if name in _LAZY:
            globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
            return globals()[name]
        if name in _LAZY_MODULES:
            return importlib.import_module("cudnn_rnn." + name)
        raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__() -> List[str]:
    special = {name for name in globals() if name.startswith("__")}
    return sorted(special.union(__all__, _LAZY_MODULES, ("plain", "saveables")))
