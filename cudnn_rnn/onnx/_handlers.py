"""This package's converters in the place of tf2onnx's."""

from __future__ import annotations

import threading
from typing import Any, List, Tuple

from cudnn_rnn.exchange.contents import library
from cudnn_rnn.model.spec import FORWARD_OPS
from cudnn_rnn.onnx import _nodes

_lock = threading.Lock()
# What was replaced: (the dict of an opset, op, its former entry or None).
_replaced: List[Tuple[Any, str, Any]] = []
_FIRST_OPSET = 1


def register_handlers() -> None:
    """Lets tf2onnx convert `CudnnRNN`, `CudnnRNNV2` and `CudnnRNNV3` to LSTM, GRU and RNN nodes.

    Afterwards `tf2onnx.convert.from_keras`, `from_function` and `from_graph_def`, and
    `keras.Model.export(format="onnx")`, give one node for each layer. tf2onnx itself knows only a
    GRU of one op and converts some of these wrongly. This replaces entries of its registry
    `tf2onnx.handler.tf_op` for these three ops; `unregister_handlers` puts the old ones back. A
    second call does nothing.

    tf2onnx only logs the error of a node that cannot be converted; the model then has a node that
    no runtime knows. `export_onnx` raises it, and makes loops of what ONNX's nodes cannot say.

    Raises:
      cudnn_rnn.exchange.ExchangeError: tf2onnx is not installed.
    """
    library("tf2onnx.convert", "onnx")  # which fills the registry
    registry = library("tf2onnx.handler", "onnx").tf_op
    domain = library("tf2onnx.constants", "onnx").ONNX_DOMAIN
    with _lock:
        if _replaced:
            return
        # Makes the dict of this opset if there is none.
        registry.register_handler(None, _FIRST_OPSET, [], domain, {})
        for number, entries in enumerate(registry.get_opsets()[domain]):
            for op in FORWARD_OPS:
                if op in entries or number == _FIRST_OPSET:
                    _replaced.append((entries, op, entries.get(op)))
                    entries[op] = (_handler, {})


def unregister_handlers() -> None:
    """Puts tf2onnx's own converters back; does nothing if they are there."""
    with _lock:
        while _replaced:
            entries, op, former = _replaced.pop()
            if former is None:
                entries.pop(op, None)
            else:
                entries[op] = former


def are_registered() -> bool:
    """Returns whether `register_handlers` is in effect."""
    return bool(_replaced)


def _handler(graph, node, **_):
    _nodes.convert(graph, node)
