"""Whole graphs in ONNX, where `CudnnRNN*` nodes become nodes LSTM, GRU and RNN.

tf2onnx converts the rest of a graph. `_nodes` makes the nodes of one RNN, `_handlers` puts it into
tf2onnx, `_sources` reads models, `_loops` rewrites what ONNX's nodes cannot say, `_comparison`
runs the original and the result, and `_export` does all of it.

May import `_compat`, `exchange`, `graph`, `model`, `plain` and TensorFlow; inside functions also
`keras`. tf2onnx, onnx and ONNX Runtime are imported only when they are needed.
"""

from cudnn_rnn.onnx._export import export_onnx
from cudnn_rnn.onnx._handlers import register_handlers, unregister_handlers

__all__ = ["export_onnx", "register_handlers", "unregister_handlers"]
