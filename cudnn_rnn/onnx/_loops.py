"""Standard ops for the nodes that ONNX's LSTM, GRU and RNN cannot express."""

from __future__ import annotations

from typing import Any, List

from cudnn_rnn.graph import model_sizes
from cudnn_rnn.model.spec import FORWARD_OPS
from cudnn_rnn.onnx import _nodes
from cudnn_rnn.plain import _graphs


def make_loops(graph_def: Any) -> List[str]:
    """Rewrites these nodes in place; returns a sentence for each RNN among them.

    Conversions of parameters (`CudnnRNNCanonicalToParams` and so on) are rewritten, too.

    Raises:
      ValueError: a node computes in bfloat16, for which tf2onnx has no constants.
    """
    found: List[str] = []

    def is_chosen(op):
        if op.type not in FORWARD_OPS:
            return True
        config, _ = model_sizes.model_of_operation(op)
        reason = _nodes.inexpressible(config, op.get_attr("is_training"))
        if config.dtype == "bfloat16":
            raise ValueError(
                "The node %r (%s) computes in bfloat16, which tf2onnx cannot convert. Build the "
                "same model in float32, cast its weights with tf.cast, and export that."
                % (op.name, op.type)
            )
        if reason is None and config.dtype == "float64":
            reason = "ONNX Runtime's LSTM, GRU and RNN do not take float64"
        if reason is not None:
            found.append("The node %r (%s) becomes a loop: %s." % (op.name, op.type, reason))
        return reason is not None

    _graphs.replace_nodes(graph_def, training=False, is_chosen=is_chosen)
    return found
