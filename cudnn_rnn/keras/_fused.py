"""One layer of a Keras model on the fused ops: Keras's weights and masks in, Keras's results out.

Sequences are batch-major, `[batch, time, input_size]`, and states are `[batch, units]`. Keras's
weights are `kernel`, `[input_size, gates * units]`, `recurrent_kernel`, `[units, gates * units]`,
and `bias`: `[gates * units]`, for a GRU `[2, gates * units]` (input and recurrent bias), or None.
"""

from collections import namedtuple

from cudnn_rnn._compat import tf
from cudnn_rnn._core import nodes
from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_LSTM, GATES

# The attributes that `nodes.rnn` reads.
_Attributes = namedtuple("_Attributes", "rnn_mode input_mode direction dropout seed seed2 num_proj")
# The op's gates by their positions in Keras's weights. A GRU of Keras has the update gate first,
# the op the reset gate.
_KERAS_GATES = {CUDNN_GRU: (1, 0, 2)}


def opaque_params(rnn_mode, *layers):
    """Returns the opaque buffer, `[params_size]`, from Keras's weights.

    Differentiable. An LSTM or simple RNN of Keras has one bias for each gate; it becomes the op's
    input bias, and the recurrent bias is 0.

    Args:
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
      *layers: for every layer and direction, `(kernel, recurrent_kernel, bias)`.
    """
    parts = [_parts_of_layer(rnn_mode, *layer) for layer in layers]
    ordered = [matrix for matrices, _ in parts for matrix in matrices]
    ordered += [bias for _, biases in parts for bias in biases]
    return tf.concat([tf.reshape(part, [-1]) for part in ordered], axis=0)


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


def run(rnn_mode, sequences, states, params, mask=None, go_backwards=False, zero_masked=False):
    """Runs one layer on all sequences.

    Args:
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
      sequences: `[batch, time, input_size]`.
      states: a list of h and, for an LSTM, c: `[batch, units]`.
      params: `[params_size]`, from `opaque_params`.
      mask: bool `[batch, time]`, or None. A masked step leaves the states as they are, and its
        output is that of the step before, or 0 if there is none.
      go_backwards: whether to run from the last step to the first. The output is in the order of
        the computation.
      zero_masked: whether the outputs of masked steps are 0.

    Returns:
      `(last_output, outputs, states)`: `[batch, units]`, `[batch, time, units]`, and a list like
      `states`.
    """
    if mask is None:
        if go_backwards:
            sequences = tf.reverse(sequences, [1])
        outputs, states = _call(rnn_mode, sequences, states, params, None)
        return states[0], outputs, states
    lengths, sequences, last_valid = _without_masked_steps(sequences, mask, go_backwards)
    outputs, states = _call(rnn_mode, sequences, states, params, lengths)
    if zero_masked:
        order_mask = tf.reverse(mask, [1]) if go_backwards else mask
        has_output = order_mask
    else:
        has_output = last_valid >= 0
    outputs = tf.gather(outputs, tf.maximum(last_valid, 0), batch_dims=1)
    outputs *= tf.cast(has_output, outputs.dtype)[:, :, None]
    return outputs[:, -1], outputs, states


def _without_masked_steps(sequences, mask, go_backwards):
    """Moves the unmasked steps to the front, in the order of the computation.

    Returns:
      lengths: `[batch]`, int32, the number of unmasked steps.
      sequences: like `sequences`; what follows the unmasked steps is arbitrary.
      last_valid: `[batch, time]`, int32. For each step in the order of the computation, the
        position in the returned sequences of the last unmasked step so far; -1 if there is none.
    """
    mask = tf.cast(mask, tf.bool)
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    if go_backwards:
        mask, sequences = tf.reverse(mask, [1]), tf.reverse(sequences, [1])
    last_valid = tf.cumsum(tf.cast(mask, tf.int32), axis=1) - 1
    is_right_padded = tf.reduce_all(tf.equal(mask, tf.sequence_mask(lengths, tf.shape(mask)[1])))
    order = tf.argsort(tf.cast(mask, tf.int32), axis=1, direction="DESCENDING", stable=True)
    sequences = tf.cond(
        is_right_padded,
        lambda: tf.identity(sequences),
        lambda: tf.gather(sequences, order, batch_dims=1),
    )
    return lengths, sequences, last_valid


def _call(rnn_mode, sequences, states, params, lengths):
    """Builds the node of one layer; returns `(outputs, states)`, batch-major."""
    states = [state[:, None] for state in states]
    outputs, states = _node(rnn_mode, sequences, states, params, lengths)
    return outputs, [state[:, 0] for state in states]


def _node(rnn_mode, sequences, states, params, lengths, bidirectional=False, dropout=0.0):
    direction = "bidirectional" if bidirectional else "unidirectional"
    is_lstm = rnn_mode == CUDNN_LSTM
    outputs, h, c = nodes.rnn(
        _Attributes(rnn_mode, "linear_input", direction, dropout, 0, 0, 0),
        sequences,
        states[0],
        states[1] if is_lstm else tf.constant([], params.dtype),
        params,
        # Without dropout, training gives the results of inference, and has a gradient.
        is_training=True,
        sequence_lengths=lengths,
        time_major=False,
    )
    return outputs, [h, c] if is_lstm else [h]


def run_stack(rnn_mode, sequences, states, params, mask, bidirectional, dropout):
    """Runs a stack of layers; dropout is between the layers.

    Args:
      rnn_mode, sequences, mask: as in `run`.
      states: a list of h and, for an LSTM, c: `[batch, layers * directions, units]`.
      params: `[params_size]`.
      bidirectional: bool.
      dropout: float; 0 in inference.

    Returns:
      `(outputs, states)`: `[batch, time, directions * units]`, 0 where masked, and a list like
      `states`.
    """
    if mask is None:
        return _node(rnn_mode, sequences, states, params, None, bidirectional, dropout)
    lengths, sequences, last_valid = _without_masked_steps(sequences, mask, go_backwards=False)
    outputs, states = _node(rnn_mode, sequences, states, params, lengths, bidirectional, dropout)
    outputs = tf.gather(outputs, tf.maximum(last_valid, 0), batch_dims=1)
    return outputs * tf.cast(mask, outputs.dtype)[:, :, None], states
