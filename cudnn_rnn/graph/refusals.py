"""Refuses arguments that cannot be tensors, with errors that name the argument and what to pass."""

import collections.abc
import types

import numpy as np

from cudnn_rnn._compat import Dataset, Variable, tf
from cudnn_rnn.graph.texts import described, shape_text

# How a caller takes the lengths of sequences, by the name of its argument; `%s` is the sequences.
_WITH_LENGTHS = {
    "sequence_lengths": " and sequence_lengths=%s.row_lengths(), with time_major=False",
    "sequence_length": " and sequence_length=%s.row_lengths()",
    "mask": " and mask=tf.sequence_mask(%s.row_lengths())",
}


_FREQUENT = (tf.Tensor, Variable)


def refuse(name, value, lengths=None):
    """Raises unless a value may be a tensor, or lists of tensors of one shape.

    Args:
      name: the name of the argument.
      value: the argument.
      lengths: for sequences, the name of the argument that takes their lengths.

    Raises:
      TypeError: the value, or a part of a list, is of a type that does not convert to a tensor.
      ValueError: a list has parts of different shapes.
    """
    if not isinstance(value, _FREQUENT) or value.dtype == tf.string:
        shape_of(name, value, lengths)


def shape_of(name, value, lengths=None):
    """Returns the static shape of a value, unknown for unknown types; see `refuse`."""
    if isinstance(value, (list, tuple)):
        return _shape_of_list(name, value, lengths)
    if isinstance(value, (bool, int, float)):
        return tf.TensorShape([])
    reason = _reason(name, value, lengths)
    if reason is not None:
        raise TypeError("%s must be a tensor of numbers, but is %s" % (name, reason))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return shape_of(name, value.tolist(), lengths)
    is_array = tf.is_tensor(value) or isinstance(value, (np.ndarray, np.generic))
    return tf.TensorShape(value.shape if is_array else None)


def _reason(name, value, lengths):
    """Returns what a value is that cannot be a tensor, and what to pass; None if it may be one."""
    if value is None:
        return "None."
    if isinstance(value, tf.RaggedTensor):
        with_lengths = _WITH_LENGTHS[lengths] % name if lengths else ""
        return "a RaggedTensor. Pass %s.to_tensor()%s." % (name, with_lengths)
    if isinstance(value, tf.SparseTensor):
        return "a SparseTensor. Pass tf.sparse.to_dense(%s)." % name
    if isinstance(value, Dataset):
        eager = tf.executing_eagerly()
        element = "next(iter(%s))" if eager else "tf.data.make_one_shot_iterator(%s).get_next()"
        return "a Dataset. Pass an element of it, such as %s." % (element % name)
    if isinstance(value, collections.abc.Mapping):
        keys = ", ".join(map(repr, list(value)[:8])) or "none"
        return "a dict with the keys %s. Pass one of its values." % keys
    if isinstance(value, (str, bytes)):
        return "text: %r." % value[:40]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "US":
        return "%s of text. Convert it to numbers first." % described(value)
    if tf.is_tensor(value) and value.dtype.base_dtype == tf.string:
        return "%s of text. Convert it to numbers first." % described(value)
    if isinstance(value, (set, frozenset, types.GeneratorType, collections.abc.Iterator)):
        return "%s. Pass a list or an array." % described(value)
    return None


def _shape_of_list(name, parts, lengths):
    shapes = [shape_of("%s[%d]" % (name, index), part) for index, part in enumerate(parts)]
    first = shapes[0] if shapes else tf.TensorShape([])
    for index, shape in enumerate(shapes):
        if not shape.is_compatible_with(first):
            advice = "Pass one of them."
            if shape.rank == first.rank:
                advice = "Pad them to one shape%s." % (lengths and " and pass %s" % lengths or "")
            raise ValueError(
                "%s must have parts of one shape, but %s[0] has shape %s and %s[%d] has shape %s. "
                "%s" % (name, name, shape_text(first), name, index, shape_text(shape), advice)
            )
    return tf.TensorShape([len(parts)]).concatenate(first)
