"""Marks the nodes whose kernels may keep packed weights between calls.

A kernel that keeps a reference to the buffer of its parameters knows that they are the same as long
as it gets the same buffer: nothing writes into a buffer that others refer to, but into a copy. That
holds for constants and for the values of resource variables. It does not hold for TensorFlow 1's
reference variables, which are updated in place. A kernel sees only a tensor and not where it comes
from, so Python marks its node. Graphs without the mark work as before.

The mark is the names of the nodes that the parameters come through, because a node may get other
parameters later: a kernel whose input has another name keeps nothing. `unmark` covers what a kernel
cannot see, an import that replaces the first of these nodes and not the last.
"""

from cudnn_rnn._compat import tf
from cudnn_rnn.model.spec import FORWARD_OPS

ATTRIBUTE = "_cudnn_rnn_copied_on_write"
"""Name of the node's attribute, a list of names; `cc/tf/kept_weights.h` reads it."""

_PARAMS_INPUT = 3  # of FORWARD_OPS


def mark(tensor):
    """Marks the node of `tensor`, an output of an inference node, if its parameters allow it.

    Ops that are executed eagerly have no node and are not marked.
    """
    if tf.executing_eagerly():
        return
    names = _nodes_copied_on_write(tensor.op.inputs[_PARAMS_INPUT])
    if names:
        _set(tensor.op, names)


def unmark(nodes):
    """Empties the marks of those nodes whose parameters may be updated in place.

    `nodes` are new in their graph. Their marks are those of the graph that they were copied from.
    """
    for node in nodes:
        if node.type in FORWARD_OPS and ATTRIBUTE in node.node_def.attr:
            if not _nodes_copied_on_write(node.inputs[_PARAMS_INPUT]):
                _set(node, [])


def _set(node, names):
    values = tf.AttrValue.ListValue(s=[name.encode() for name in names])
    node._set_attr(ATTRIBUTE, tf.AttrValue(list=values))


def _nodes_copied_on_write(tensor):
    """Returns the names of the nodes from `tensor` to the constant or variable that it is of.

    Without such a source, or with one that computes or is updated in place, returns none.
    """
    names = []
    while True:
        node = tensor.op
        names.append(node.name)
        if node.type in ("Const", "ReadVariableOp"):
            return names
        passes_on = node.type in ("Identity", "Reshape") or (
            node.type == "Enter" and node.get_attr("is_constant")
        )
        if not passes_on:
            return []
        tensor = node.inputs[0]
