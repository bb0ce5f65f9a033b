"""The layers, their saveables and the equivalent cells, for the tests."""

import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn.checkpoints import cell_saveables

LAYERS = {
    "lstm": layers.CudnnLSTM,
    "gru": layers.CudnnGRU,
    "rnn_relu": layers.CudnnRNNRelu,
    "rnn_tanh": layers.CudnnRNNTanh,
}
SAVEABLES = {
    "lstm": cell_saveables.CudnnLSTMSaveable,
    "gru": cell_saveables.CudnnGRUSaveable,
    "rnn_relu": cell_saveables.CudnnRNNReluSaveable,
    "rnn_tanh": cell_saveables.CudnnRNNTanhSaveable,
}


def cell(rnn_mode, num_units):
    if rnn_mode == "lstm":
        return cudnn_rnn.CudnnCompatibleLSTMCell(num_units)
    if rnn_mode == "gru":
        return cudnn_rnn.CudnnCompatibleGRUCell(num_units)
    return cudnn_rnn.BasicRNNCell(
        num_units, {"rnn_relu": tf.nn.relu, "rnn_tanh": tf.tanh}[rnn_mode]
    )


def run_cells(rnn_mode, num_layers, num_units, bidirectional, inputs):
    """Builds the cells on time-major inputs, in the variable scopes of the checkpoints.

    Returns:
      `(outputs, states)`: the states are a list of tensors `[layers * directions, batch,
      num_units]` in the order of the layer's states.
    """
    if not bidirectional:
        stack = cudnn_rnn.MultiRNNCell([cell(rnn_mode, num_units) for _ in range(num_layers)])
        outputs, states = tf.nn.dynamic_rnn(stack, inputs, dtype=inputs.dtype, time_major=True)
    else:
        stacks = [[cell(rnn_mode, num_units) for _ in range(num_layers)] for _ in range(2)]
        outputs, forward, backward = cudnn_rnn.stack_bidirectional_dynamic_rnn(
            stacks[0], stacks[1], inputs, dtype=inputs.dtype, time_major=True
        )
        states = [state for pair in zip(forward, backward) for state in pair]
    if rnn_mode == "lstm":
        return outputs, [tf.stack([s.h for s in states]), tf.stack([s.c for s in states])]
    return outputs, [tf.stack(list(states))]
