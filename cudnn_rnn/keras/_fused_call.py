"""Keras's weights and masks on the fused ops, with Keras's results.

Sequences are batch-major, `[batch, time, input_size]`, and so are states, `[batch, layers *
directions, units]`.
"""

import functools

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import check_shape
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.graph.keras_params import keras_to_params
from cudnn_rnn.model.spec import CUDNN_LSTM


def run(
    config,
    sequences,
    states,
    weights,
    mask=None,
    go_backwards=False,
    zero_output_for_mask=False,
    training=None,
):
    """Runs the layers of a model on all sequences.

    Args:
      config: from `config_of`.
      sequences: `[batch, time, input_size]`.
      states: a list of h and, for an LSTM, c: `[batch, layers * directions, units]`.
      weights: for every layer and direction, `(kernel, recurrent_kernel, bias)`; see
        `graph/keras_params.py`.
      mask: bool `[batch, time]` or `[batch, time, 1]`, or None. A masked step leaves the states as
        they are, and its output is that of the step before, or 0 if there is none.
      go_backwards: whether to run from the last step to the first. The output is in the order of
        the computation.
      zero_output_for_mask: whether the outputs of masked steps are 0.
      training: False if gradients are unlikely to be needed. They are right, but slower.

    Returns:
      `(outputs, states, has_last_output)`: `[batch, time, directions * units]`; a list like
      `states`; and bool `[batch]`, whether the last output is not 0 because of the mask, None if
      there is no mask.
    """
    call = _infer if training is False else functools.partial(_call, True)
    params = keras_to_params(config, weights, training is True)
    mask = None if mask is None else _checked_mask(mask, sequences)
    if go_backwards:
        sequences = tf.reverse(sequences, [1])
        mask = None if mask is None else tf.reverse(mask, [1])
    if mask is None:
        outputs, *states = call(config, None, sequences, params, *states)
        return outputs, states, None
    lengths, sequences = _without_masked_steps(sequences, mask)
    outputs, *states = call(config, lengths, sequences, params, *states)
    # For each step, the position of the last unmasked step so far; -1 if there is none.
    last_unmasked = tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1
    has_output = mask if zero_output_for_mask else last_unmasked >= 0
    outputs = tf.gather(outputs, tf.maximum(last_unmasked, 0), batch_dims=1)
    # TFLite has no new axes in slices of unknown shapes.
    outputs *= tf.expand_dims(tf.cast(has_output, outputs.dtype), 2)
    return outputs, states, has_output[:, -1]


def config_of(
    rnn_mode,
    input_size,
    units,
    dtype,
    precision,
    num_layers=1,
    bidirectional=False,
    dropout=0.0,
    seeds=(0, 0),
):
    """Returns the `RnnConfig` of a model; dropout is between the layers.

    `seeds` are the attributes `seed` and `seed2` of the op.
    """
    direction = "bidirectional" if bidirectional else "unidirectional"
    sizes = (num_layers, units, int(input_size))
    options = dict(input_mode="linear_input", direction=direction, dropout=dropout)
    options.update(float32_matmul_precision=precision, seed=seeds[0], seed2=seeds[1])
    return rnn_config(rnn_mode, *sizes, dtype=tf.as_dtype(dtype), **options)


def _checked_mask(mask, sequences):
    """Returns a mask as bool `[batch, time]`; one for the whole batch is repeated, as in Keras.

    Raises:
      ValueError: the mask has another rank, or another number of steps than the sequences.
    """
    mask, shape = tf.cast(mask, tf.bool), tf.shape(sequences)[:2]
    if mask.shape.rank == 3:
        check_shape("mask", mask, [None, None, 1], "[batch, time, 1]")
        mask = tf.squeeze(mask, 2)
    check_shape("mask", mask, [None, None], "[batch, time]")
    (batch, steps), (expected_batch, expected) = mask.shape.as_list(), sequences.shape.as_list()[:2]
    if steps is None or expected is None:
        text = "mask must have as many steps as the inputs"
        with tf.control_dependencies([tf.assert_equal(tf.shape(mask)[1], shape[1], message=text)]):
            mask = tf.identity(mask)
    elif steps != expected:
        raise ValueError(
            "mask must have as many steps as the inputs, %d, but has the shape %s."
            % (expected, mask.shape)
        )
    return mask if batch is not None and batch == expected_batch else tf.broadcast_to(mask, shape)


def _without_masked_steps(sequences, mask):
    """Moves the unmasked steps to the front; returns lengths `[batch]`, int32, and sequences.

    What follows the unmasked steps is arbitrary. Right-padded sequences stay as they are.
    """
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    is_right_padded = tf.reduce_all(tf.equal(mask, tf.sequence_mask(lengths, tf.shape(mask)[1])))

    def moved():
        order = tf.argsort(tf.cast(mask, tf.int32), axis=1, direction="DESCENDING", stable=True)
        return tf.gather(sequences, order, batch_dims=1)

    return lengths, tf.cond(is_right_padded, lambda: tf.identity(sequences), moved)


def _call(is_training, config, lengths, sequences, params, *states):
    """Builds the node; returns a list of the outputs and the states."""
    is_lstm = config.rnn_mode == CUDNN_LSTM
    outputs, h, c = nodes.rnn(
        config,
        sequences,
        states[0],
        states[1] if is_lstm else tf.constant([], params.dtype),
        params,
        is_training,
        sequence_lengths=lengths,
        time_major=False,
    )
    return [outputs, h, c] if is_lstm else [outputs, h]


def _infer(config, lengths, *inputs):
    """Like `_call` without training, but has a gradient, which runs the node again for training."""

    @tf.custom_gradient
    def infer(*inputs):
        def gradient(*upstream):
            # Copies, because of loops: see `graph/second_order.py`.
            copies = [tf.identity(value) for value in inputs]
            with tf.GradientTape() as tape:
                tape.watch(copies)
                results = _call(True, config, lengths, *copies)
            return tape.gradient(results, copies, upstream)

        return _call(False, config, lengths, *inputs), gradient

    return infer(*inputs)
