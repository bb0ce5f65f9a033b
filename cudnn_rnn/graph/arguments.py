"""Converts the arguments of a call to tensors of one dtype, and checks their static shapes."""

import numbers
import sys
import warnings
from typing import Any, Dict

import numpy as np

from cudnn_rnn._compat import as_tensor, static_value, tf
from cudnn_rnn.graph.config import DTYPE_NAMES, DTYPES, dtype_hint
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.texts import described, shape_text

# Names of the argument that has the sequences, whose lengths are another argument.
_SEQUENCES = ("inputs", "input_data")


def as_tensors(values, dtype, default_dtype):
    """Converts the arguments of one call to tensors of one dtype.

    The tensors among the values determine the dtype, unless `dtype` requires one. `default_dtype`
    is for values without a tensor. `values` is a list of pairs (argument name, value); a value may
    be a list of tensors of one shape, which are stacked along a new first dimension.

    Raises:
      TypeError: the dtypes differ or are not in `DTYPES`, or a value is not numeric.
      ValueError: a list has tensors of different shapes.
    """
    for name, value in values:
        refuse(name, value, "sequence_lengths" if name in _SEQUENCES else None)
    dtype = _common_dtype(values, dtype) or default_dtype
    return [_as_tensor(name, value, dtype) for name, value in values]


def cast_tensors(name, value, dtype, compute_dtype):
    """Casts an argument of a layer from `dtype`, that of its variables, to `compute_dtype`.

    `value` is a tensor, or a list of tensors; other values are returned unchanged. Raises
    `TypeError` if a tensor has a dtype of `DTYPES` that is neither of the two.
    """
    if isinstance(value, (list, tuple)):
        return [cast_tensors(name, part, dtype, compute_dtype) for part in value]
    found: Any = value.dtype.base_dtype if tf.is_tensor(value) else None
    if found in (None, compute_dtype) or found not in DTYPES:
        return value
    if found != dtype:
        accepted = " or ".join(sorted({dtype.name, compute_dtype.name}, reverse=True))
        advice = "dtype=tf.%s" % found.name
        if found.size == 2:
            advice = "compute_%s, which keeps its variables in %s" % (advice, dtype.name)
        raise TypeError(
            "%s must be of dtype %s, the dtype of this layer, but is %s. Convert it with tf.cast, "
            "or create the layer with %s." % (name, accepted, found.name, advice)
        )
    return tf.cast(as_tensor(value, dtype), compute_dtype)


def numpy_dtype(*values):
    """Returns the dtype of the first NumPy value whose dtype is in `DTYPES`; float32 by default."""
    for value in values:
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, (np.ndarray, np.generic)):
                # Compares with as_numpy_dtype, because bfloat16 is not a dtype of NumPy itself.
                found = [dtype for dtype in DTYPES if part.dtype == dtype.as_numpy_dtype]
                if found:
                    return found[0]
    return tf.float32


def check_shape(name, tensor, expected, meaning):
    """Raises `ValueError` if the static shape contradicts `expected`, a list of int and None."""
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(
            "%s must have shape %s (%s), but has shape %s."
            % (name, shape_text(expected), meaning, shape_text(tensor.shape))
        )


def ensured_shape(tensor, expected):
    """Returns the tensor, whose shape is checked at run time where the static shape is unknown.

    `expected` is a list of int and None that the static shape does not contradict. A tensor of
    another shape raises `tf.errors.InvalidArgumentError`.
    """
    shape = tensor.shape
    found = [None] * len(expected) if shape.rank is None else shape.as_list()
    is_known = all(size in (None, known) for size, known in zip(expected, found))
    return tensor if is_known else tf.ensure_shape(tensor, expected)


def checked_params(params, size):
    """Returns the opaque buffer as a vector; a tensor of unknown rank stays as it is.

    As in TensorFlow's kernels, the buffer may have any shape, in row-major order, and may be longer
    than needed; a warning says so if the number of elements is known.

    Args:
      params: the buffer, a tensor.
      size: the number of elements that the RNN needs, None if it is unknown.

    Raises:
      ValueError: the buffer is statically too short.
    """
    found = params.shape.num_elements()
    if None not in (size, found) and found != size:
        if found < size:
            raise ValueError(
                "params must have at least %d elements (params_size), but has %d (shape %s)."
                % (size, found, shape_text(params.shape))
            )
        _warn_caller(
            "params has %d elements (shape %s), but the RNN needs only %d (params_size). It uses "
            "the first %d; the last %d are ignored, and their gradient is 0. If that is not "
            "intended, check input_mode and the sizes of the RNN. To silence this warning, pass "
            "the first %d elements."
            % (found, shape_text(params.shape), size, size, found - size, size)
        )
    return params if params.shape.rank in (None, 1) else tf.reshape(params, [-1])


def _warn_caller(message):
    """Issues a warning at the line of the program that called this package."""
    # TensorFlow's classes call layers, and TensorFlow 1 has the modules of tensorflow_core.
    passed = {__name__.split(".")[0], "tensorflow", "tensorflow_core", "keras", "tf_keras"}
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in passed:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def shape_for_build(shape):
    """Returns the argument of a `build` as a `tf.TensorShape`, of which only the last size matters.

    The other sizes of a list may be anything: what is no size becomes unknown. The last one may be
    a float without a fraction, as in TensorFlow 1. Raises `ValueError` if it is no size.
    """
    if not isinstance(shape, (list, tuple, np.ndarray)) or not len(shape):
        try:
            return tf.TensorShape(shape)
        except Exception:  # that of the first part that is no size
            raise TypeError(
                "The input shape must be a tf.TensorShape or a list of sizes, but is %s."
                % described(shape)
            ) from None
    *others, last = shape
    try:
        if isinstance(last, (float, np.floating)) and int(last) == last:
            last = int(last)
        last = tf.TensorShape([last])
    except Exception as error:  # such as that of int(float("nan"))
        raise ValueError(
            "The last dimension of the input shape must be an integer or None, but is %r in %r: %s."
            % (last, shape, str(error).rstrip("."))
        ) from None
    return tf.TensorShape([_size_or_none(size) for size in others]).concatenate(last)


def _size_or_none(value):
    try:
        return tf.TensorShape([value]).as_list()[0]
    except Exception:  # A tensor raises errors of many types.
        return None


def static_bool(name, value):
    """Returns `value` as a bool, or None for a scalar bool tensor known only at run time.

    Raises:
      TypeError: `value` is not a bool, 0, 1 or a bool tensor.
      ValueError: `value` is a bool tensor, but not a scalar.
    """
    if isinstance(value, bool):
        return value
    if tf.is_tensor(value):
        refuse(name, value)
        tensor = tf.convert_to_tensor(value)
        if tensor.dtype.base_dtype != tf.bool:
            raise TypeError(
                "%s must be a bool or a bool tensor, but is a tensor of dtype %s. Convert it with "
                "tf.cast(value, tf.bool)." % (name, tensor.dtype.base_dtype.name)
            )
        check_shape(name, tensor, [], "a scalar")
        known = static_value(tensor)
        return None if known is None else bool(known)
    if is_python_bool(value):
        return bool(value)
    raise TypeError(
        "%s must be a bool or a scalar bool tensor, but is %r of type %s."
        % (name, value, type(value).__name__)
    )


def is_python_bool(value):
    """Returns whether a value that is no tensor stands for a bool: True, False, 0 or 1."""
    is_bit = isinstance(value, numbers.Integral) and value in (0, 1)
    return is_bit or isinstance(value, np.bool_)


def _common_dtype(values, dtype):
    """Returns the dtype of the tensors among the values, or `dtype` if there are no tensors."""
    names: Dict[tf.DType, str] = {}  # dtype -> name of the first argument that has it
    for name, value in values:
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if tf.is_tensor(part):
                names.setdefault(part.dtype.base_dtype, name)
    for found, name in names.items():
        if found not in DTYPES:
            raise TypeError(
                "%s must be of dtype %s, but is %s.%s"
                % (name, DTYPE_NAMES, found.name, dtype_hint(found))
            )
    if len(names) > 1:
        raise TypeError(
            "All tensors must have the same dtype, but %s. Convert them with tf.cast."
            % " and ".join("%s is %s" % (name, found.name) for found, name in names.items())
        )
    for found, name in names.items():
        if dtype is not None and found != dtype:
            advice = "dtype=tf.%s" % found.name
            if found.size <= 2:  # Optimizers diverge in 16-bit dtypes.
                advice += " and keep params in a float32 variable, passing tf.cast(params, tf.%s)"
                advice %= found.name
            raise TypeError(
                "%s must be of dtype %s, the dtype= of this RNN, but is %s. Convert it with "
                "tf.cast, or create the RNN with %s." % (name, dtype.name, found.name, advice)
            )
        return found
    return dtype


def _as_tensor(name, value, dtype):
    if isinstance(value, (list, tuple)) and all(isinstance(part, np.ndarray) for part in value):
        value = np.asarray(value)  # TensorFlow 1 does not convert arrays in a list.
    try:
        return as_tensor(value, dtype)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind("%s cannot be converted to a tensor of dtype %s: %s" % (name, dtype.name, error))


def variable_name(variable):
    """Returns the name of a variable, which is its default key in a Saver."""
    return variable.name.split(":")[0]
