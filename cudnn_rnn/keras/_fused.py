"""Keras's weights and masks on the fused ops, with Keras's results.

Sequences are batch-major, `[batch, time, input_size]`, and so are states, `[batch, layers *
directions, units]`. Keras's weights are `kernel`, `[input_size, gates * units]`,
`recurrent_kernel`, `[units, gates * units]`, and `bias`: `[gates * units]`, for a GRU `[2, gates *
units]` (input and recurrent bias), or None.
"""

import functools

from cudnn_rnn._compat import tf
from cudnn_rnn._core import nodes, plain_rnn
from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_LSTM, GATES, RnnConfig

# The op's gates by their positions in Keras's weights. A GRU of Keras has the update gate first,
# the op the reset gate.
_KERAS_GATES = {CUDNN_GRU: (1, 0, 2)}


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
      config: from `describe`.
      sequences: `[batch, time, input_size]`.
      states: a list of h and, for an LSTM, c: `[batch, layers * directions, units]`.
      weights: for every layer and direction, `(kernel, recurrent_kernel, bias)`.
      mask: bool `[batch, time]`, or None. A masked step leaves the states as they are, and its
        output is that of the step before, or 0 if there is none.
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
    params = _opaque_params(config.rnn_mode, weights)
    if go_backwards:
        sequences = tf.reverse(sequences, [1])
        mask = None if mask is None else tf.reverse(mask, [1])
    if mask is None:
        outputs, *states = call(config, None, sequences, params, *states)
        return outputs, states, None
    mask = tf.cast(mask, tf.bool)
    lengths, sequences = _without_masked_steps(sequences, mask)
    outputs, *states = call(config, lengths, sequences, params, *states)
    # For each step, the position of the last unmasked step so far; -1 if there is none.
    last_unmasked = tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1
    has_output = mask if zero_output_for_mask else last_unmasked >= 0
    outputs = tf.gather(outputs, tf.maximum(last_unmasked, 0), batch_dims=1)
    outputs *= tf.cast(has_output, outputs.dtype)[:, :, None]
    return outputs, states, has_output[:, -1]


def describe(rnn_mode, sequences, units, num_layers=1, bidirectional=False, dropout=0.0):
    """Returns the `RnnConfig` of a model for `sequences`; dropout is between the layers."""
    direction = "bidirectional" if bidirectional else "unidirectional"
    sizes = (num_layers, units, sequences.shape[-1])
    return RnnConfig.checked(
        rnn_mode, *sizes, "linear_input", direction, sequences.dtype, dropout, seed=0, seed2=0
    )


def _opaque_params(rnn_mode, weights):
    """Returns the opaque buffer, `[params_size]`, whose layout `_core/config.py` describes.

    An LSTM or simple RNN of Keras has one bias for each gate; it becomes the op's input bias, and
    the recurrent bias is 0.
    """
    parts = [_parts_of_layer(rnn_mode, *of_layer) for of_layer in weights]
    return plain_rnn.canonical_to_params(
        [matrix for matrices, _ in parts for matrix in matrices],
        [bias for _, biases in parts for bias in biases],
    )


def _parts_of_layer(rnn_mode, kernel, recurrent_kernel, bias):
    """Returns the matrices and the biases of one layer and direction, in the order of the op."""
    num_gates = len(GATES[rnn_mode])
    gates = _KERAS_GATES.get(rnn_mode, range(num_gates))
    units = recurrent_kernel.shape[0]
    if bias is None:
        bias = tf.zeros([2, num_gates * units], kernel.dtype)
    elif rnn_mode != CUDNN_GRU:
        bias = tf.stack([bias, tf.zeros_like(bias)])
    matrices, biases = [tf.transpose(kernel), tf.transpose(recurrent_kernel)], [bias[0], bias[1]]
    if rnn_mode in _KERAS_GATES:
        matrices, biases = (
            [part[gate * units : (gate + 1) * units] for part in parts for gate in gates]
            for parts in (matrices, biases)
        )
    return matrices, biases


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
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                results = _call(True, config, lengths, *inputs)
            return tape.gradient(results, inputs, upstream)

        return _call(False, config, lengths, *inputs), gradient

    return infer(*inputs)
