"""Small parts of `tf.contrib`: initializer and regularizers of `layers`, `learn.ModeKeys`."""

from __future__ import annotations

import functools
import math
import numbers
import operator
from typing import Callable, Optional

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.types import DTypeLike

__all__ = [
    "ModeKeys",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "xavier_initializer",
]

Regularizer = Callable[..., Optional[tf.Tensor]]


class ModeKeys:
    """`tf.contrib.learn.ModeKeys`: the names of the modes of a model."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises `ValueError` unless `key` is one of the names."""
        names = (cls.TRAIN, cls.EVAL, cls.INFER)
        if key not in names:
            raise ValueError("key must be one of %s, but is %r." % (", ".join(names), key))


def xavier_initializer(
    uniform: bool = True, seed: Optional[int] = None, dtype: DTypeLike = tf.float32
) -> Callable[..., tf.Tensor]:
    """Returns `tf.contrib.layers.xavier_initializer`, the initializer of Glorot and Bengio.

    Args:
      uniform: whether the distribution is uniform; otherwise it is a truncated normal one. (The
        latter is wider by 0.3 % than that of `tf.glorot_normal_initializer`.)
      seed: int or None, seed of the random numbers.
      dtype: a floating-point dtype.

    Raises:
      TypeError: `dtype` is not a floating-point dtype.
    """
    _check_floating(dtype)

    def initializer(shape, dtype=dtype, partition_info=None):
        _check_floating(dtype)
        mean_fan = sum(_fans(tf.TensorShape(shape).as_list())) / 2.0
        if uniform:
            limit = math.sqrt(3.0 / mean_fan)
            return tf.random_uniform(shape, -limit, limit, dtype, seed=seed)
        # The factor makes up, nearly, for what truncation takes from the variance.
        return tf.truncated_normal(shape, 0.0, math.sqrt(1.3 / mean_fan), dtype, seed=seed)

    return initializer


def _check_floating(dtype):
    if not tf.as_dtype(dtype).is_floating:
        raise TypeError("dtype must be a floating-point dtype, but is %r." % (dtype,))


def _fans(shape):
    """Returns the numbers of inputs and of outputs of a weight of this shape."""
    if not shape:
        return 1.0, 1.0
    # The leading dimensions of a convolution's filter are its positions.
    num_positions = functools.reduce(operator.mul, shape[:-2], 1)
    return float(num_positions * shape[-2:][0]), float(num_positions * shape[-1])


def l1_regularizer(scale: float, scope: Optional[str] = None) -> Regularizer:
    """Returns a function of weights: `scale` times the sum of their absolute values.

    Args:
      scale: float, at least 0, or a scalar tensor. The function returns None for 0.
      scope: name of the operations.

    Raises:
      ValueError: `scale` is an integer or negative.
    """
    return _regularizer(
        scale, scope or "l1_regularizer", lambda weights: tf.reduce_sum(tf.abs(weights))
    )


def l2_regularizer(scale: float, scope: Optional[str] = None) -> Regularizer:
    """Returns a function of weights: `scale` times half of the sum of their squares.

    Args:
      scale: float, at least 0, or a scalar tensor. The function returns None for 0.
      scope: name of the operations.

    Raises:
      ValueError: `scale` is an integer or negative.
    """
    return _regularizer(scale, scope or "l2_regularizer", tf.nn.l2_loss)


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: Optional[str] = None
) -> Regularizer:
    """Returns the sum of `l1_regularizer(scale_l1)` and `l2_regularizer(scale_l2)`.

    Args:
      scale_l1: float, at least 0, or a scalar tensor.
      scale_l2: likewise.
      scope: name of the operations.

    Raises:
      ValueError: a scale is an integer or negative.
    """
    _check_scale("scale_l1", scale_l1)
    _check_scale("scale_l2", scale_l2)
    scope = scope or "l1_l2_regularizer"
    if _is_zero(scale_l1):
        return l2_regularizer(scale_l2, scope)
    if _is_zero(scale_l2):
        return l1_regularizer(scale_l1, scope)
    parts = [l1_regularizer(scale_l1), l2_regularizer(scale_l2)]

    def regularizer(weights):
        with tf.name_scope(scope, values=[weights]) as name:
            return tf.add_n([part(weights) for part in parts], name=name)

    return regularizer


def _regularizer(scale, scope, penalty):
    """Returns a function of weights: `scale` times their penalty; None for 0."""
    _check_scale("scale", scale)
    if _is_zero(scale):
        return lambda weights, name=None: None

    def regularizer(weights, name=None):
        with tf.name_scope(scope, values=[weights]) as scope_name:
            factor = tf.convert_to_tensor(scale, weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, penalty(weights), name=scope_name)

    return regularizer


def _is_zero(scale):
    return isinstance(scale, numbers.Real) and scale == 0


def _check_scale(argument, scale):
    """Raises `ValueError` for integers, which are mistakes for a fraction, and below 0."""
    if isinstance(scale, numbers.Integral):
        raise ValueError(
            "%s must be a float, but is the integer %r. Write %r." % (argument, scale, float(scale))
        )
    if isinstance(scale, numbers.Real) and not float(scale) >= 0:
        raise ValueError("%s must be at least 0, but is %r." % (argument, scale))
