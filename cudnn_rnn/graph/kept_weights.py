"""Marks the nodes whose kernels may keep packed weights between calls.

A kernel that keeps a reference to the buffer of its parameters knows that they are the same as long
as it gets the same buffer: nothing writes into a buffer that others refer to, but into a copy. That
holds for constants and for the values of resource variables. It does not hold for TensorFlow 1's
reference variables, which are updated in place. A kernel sees only a tensor and not where it comes
from, so Python marks its node. Graphs without the mark work as before.
"""

from cudnn_rnn._compat import tf

ATTRIBUTE = "_cudnn_rnn_params_are_copied_on_write"
"""Name of the node's attribute; `cc/tf/kept_weights.h` reads it."""

_PARAMS_INPUT = 3  # of CudnnRNN, V2 and V3


def mark(tensor):
    """Marks the node of `tensor`, an output of an inference node, if its parameters allow it.

    Ops that are executed eagerly have no node and are not marked.
    """
    if tf.executing_eagerly():
        return
    node = tensor.op
    if _is_copied_on_write(node.inputs[_PARAMS_INPUT]):
        node._set_attr(ATTRIBUTE, tf.AttrValue(b=True))


def _is_copied_on_write(tensor):
    """Returns whether the tensor is a constant or a resource variable's value, passed on as is."""
    while True:
        node = tensor.op
        if node.type in ("Const", "ReadVariableOp"):
            return True
        passes_on = node.type in ("Identity", "Reshape") or (
            node.type == "Enter" and node.get_attr("is_constant")
        )
        if not passes_on:
            return False
        tensor = node.inputs[0]
