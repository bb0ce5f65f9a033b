"""Weights of RNNs in other formats: PyTorch, Keras, ONNX, NumPy, checkpoints of all generations.

`RnnWeights` is one RNN as NumPy arrays. `read` and `write` files, or `convert` one; the modules
`torch_format`, `keras_format`, `onnx_format`, `npz_format` and `checkpoint_format` have the same
for objects in memory. docs/exchange.md explains them.

May import `_disk` and `model`; inside functions also `_compat` and TensorFlow. Only checkpoints,
graphs and live Keras models need TensorFlow: all else works without it.
"""

from cudnn_rnn.exchange import (
    checkpoint_format,
    keras_format,
    npz_format,
    onnx_format,
    torch_format,
)
from cudnn_rnn.exchange.contents import Contents, ExchangeError, Facts
from cudnn_rnn.exchange.conversion import TARGETS, Conversion, convert, read, write
from cudnn_rnn.exchange.summary import describe, plot, statistics
from cudnn_rnn.model.weights import LayerWeights, RnnWeights

__all__ = [
    "Contents",
    "Conversion",
    "ExchangeError",
    "Facts",
    "LayerWeights",
    "RnnWeights",
    "TARGETS",
    "checkpoint_format",
    "convert",
    "describe",
    "keras_format",
    "npz_format",
    "onnx_format",
    "plot",
    "read",
    "statistics",
    "torch_format",
    "write",
]
