"""The layers, their saveables and the cells that compute the same, as the tests use them."""

import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers, opaque_saveable
from cudnn_rnn.rnn_cell_base import RNNCell

LAYERS = {
    "lstm": layers.CudnnLSTM,
    "gru": layers.CudnnGRU,
    "rnn_relu": layers.CudnnRNNRelu,
    "rnn_tanh": layers.CudnnRNNTanh,
}
SAVEABLES = {
    "lstm": opaque_saveable.CudnnLSTMSaveable,
    "gru": opaque_saveable.CudnnGRUSaveable,
    "rnn_relu": opaque_saveable.CudnnRNNReluSaveable,
    "rnn_tanh": opaque_saveable.CudnnRNNTanhSaveable,
}


class BasicCell(RNNCell):
    """tanh or ReLU of `kernel` on input and previous output, with the names of BasicRNNCell."""

    def __init__(self, num_units, activation):
        super().__init__(name="basic_rnn_cell")
        self._num_units = num_units
        self._activation = activation

    state_size = property(lambda self: self._num_units)
    output_size = property(lambda self: self._num_units)

    def build(self, inputs_shape):
        width = tf.TensorShape(inputs_shape).as_list()[-1]
        units = self._num_units
        self._kernel = self.add_variable("kernel", shape=[width + units, units])
        self._bias = self.add_variable(
            "bias", shape=[units], initializer=tf.zeros_initializer(dtype=self.dtype)
        )
        self.built = True

    def call(self, inputs, state):
        output = self._activation(
            tf.matmul(tf.concat([inputs, state], 1), self._kernel) + self._bias
        )
        return output, output


def cell(rnn_mode, num_units):
    if rnn_mode == "lstm":
        return cudnn_rnn.CudnnCompatibleLSTMCell(num_units)
    if rnn_mode == "gru":
        return cudnn_rnn.CudnnCompatibleGRUCell(num_units)
    return BasicCell(num_units, {"rnn_relu": tf.nn.relu, "rnn_tanh": tf.tanh}[rnn_mode])


def run_cells(rnn_mode, num_layers, num_units, bidirectional, inputs):
    """Builds the cells on time-major inputs, in the scopes of the checkpoints.

    Returns:
      `(outputs, states)`: the states as a list of those of the layer, `[layers * directions, batch,
      num_units]`, in its order.
    """
    if not bidirectional:
        stack = cudnn_rnn.MultiRNNCell([cell(rnn_mode, num_units) for _ in range(num_layers)])
        outputs, states = tf.nn.dynamic_rnn(stack, inputs, dtype=inputs.dtype, time_major=True)
    else:
        outputs, states = inputs, []
        for layer in range(num_layers):
            with tf.variable_scope("stack_bidirectional_rnn/cell_%d" % layer):
                outputs, pair = tf.nn.bidirectional_dynamic_rnn(
                    cell(rnn_mode, num_units),
                    cell(rnn_mode, num_units),
                    outputs,
                    dtype=inputs.dtype,
                    time_major=True,
                )
            outputs = tf.concat(outputs, axis=2)
            states.extend(pair)
    if rnn_mode == "lstm":
        return outputs, [tf.stack([s.h for s in states]), tf.stack([s.c for s in states])]
    return outputs, [tf.stack(list(states))]
