"""Short texts for values in error messages."""

import numpy as np

from cudnn_rnn._compat import tf


def shape_text(shape):
    """Formats a shape as a list, with a question mark for each unknown dimension."""
    shape = tf.TensorShape(shape)
    if shape.rank is None:
        return "<unknown>"
    return "[%s]" % ", ".join("?" if size is None else str(size) for size in shape.as_list())


def described(value):
    """Returns what a value is, such as "a tensor of shape [2, 4]"."""
    if isinstance(value, np.ndarray):
        return "an array of shape %s" % shape_text(value.shape)
    if tf.is_tensor(value):
        return "a tensor of shape %s" % shape_text(value.shape)
    if isinstance(value, (list, tuple)):
        return "a %s of length %d" % (type(value).__name__, len(value))
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return "an object of type %s" % type(value).__name__
