"""Models with a precision of their own: their nodes say which.

The kernel of a forward node reads the attribute. A gradient's kernel finds the precision in the
reserve space, so a gradient has that of its forward node.
"""

from cudnn_rnn._compat import tf

ATTRIBUTE = "_cudnn_rnn_float32_matmul_precision"
"""Name of the node's attribute; `cc/tf/rnn_model.cc` reads it."""


def mark(tensor, precision):
    """Sets the precision of the node that has this output; None leaves that of the process."""
    if precision is not None:
        tensor.op._set_attr(ATTRIBUTE, tf.AttrValue(s=precision.encode()))
