"""`tf.contrib.seq2seq.sequence_loss`."""

from __future__ import annotations

from typing import Callable, Optional

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.types import TensorLike

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: TensorLike,
    targets: TensorLike,
    weights: TensorLike,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Optional[Callable[..., tf.Tensor]] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the weighted cross-entropy of sequences of classes.

    An average divides the sum by the sum of the weights; a "sum over" divides it by the number of
    weights that are not zero. An axis for which neither is set stays in the result. An average over
    one axis and a "sum over" the other are not combined: the average is computed, and the other
    axis stays. (All this is as in TensorFlow 1.15.)

    Args:
      logits: tensor `[batch, time, num_classes]`.
      targets: integer tensor `[batch, time]`, the true classes.
      weights: tensor `[batch, time]` in the dtype of `logits`.
      average_across_timesteps: whether to average over the time steps.
      average_across_batch: whether to average over the batch.
      sum_over_timesteps: whether to divide the sum over the time steps by their number.
      sum_over_batch: whether to divide the sum over the batch by the number of sequences.
      softmax_loss_function: function of (labels=, logits=), called with `[batch * time]` and
        `[batch * time, num_classes]`; by default TensorFlow's sparse softmax cross-entropy.
      name: name of the operations.

    Returns:
      A tensor of rank 0, 1 or 2.

    Raises:
      ValueError: a rank is wrong, or an average and a "sum over" are set for the same axis.
    """
    _refuse_both("timesteps", average_across_timesteps, sum_over_timesteps)
    _refuse_both("batch", average_across_batch, sum_over_batch)
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        logits = _with_rank("logits", logits, "[batch, time, num_classes]")
        targets = _with_rank("targets", targets, "[batch, time]")
        weights = _with_rank("weights", weights, "[batch, time]")
        loss_function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = loss_function(
            labels=tf.reshape(targets, [-1]),
            logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]),
        )
        losses = tf.reshape(losses, tf.shape(logits)[:2]) * weights
        if average_across_timesteps or average_across_batch:
            axes = _axes(average_across_timesteps, average_across_batch)
            divisor = tf.reduce_sum(weights, axes)
        elif sum_over_timesteps or sum_over_batch:
            axes = _axes(sum_over_timesteps, sum_over_batch)
            divisor = tf.cast(tf.math.count_nonzero(weights, axes), losses.dtype)
        else:
            return losses
        return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), divisor)


def _refuse_both(axis, average, sum_over):
    if average and sum_over:
        raise ValueError(
            "average_across_%s and sum_over_%s are both True. Set average_across_%s=False, which "
            "is True by default, or sum_over_%s=False." % ((axis,) * 4)
        )


def _with_rank(name, value, meaning):
    tensor = tf.convert_to_tensor(value)
    rank = meaning.count(",") + 1
    if tensor.shape.ndims != rank:
        raise ValueError("%s has shape %s; expected %s." % (name, tensor.shape, meaning))
    return tensor


def _axes(over_time, over_batch):
    return [axis for axis, wanted in enumerate((over_batch, over_time)) if wanted]
