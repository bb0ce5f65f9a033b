"""Ours: the op in a graph, through the classes `CudnnLSTM` etc.

With the option "plain": TensorFlow's standard ops in place of the op. The option "precision" is
what float32 models multiply matrices with.
"""

import contextlib

import graph_network
from graph_network import matrix_product, tf  # noqa: F401  (used by worker.py)
from problem import joined

import cudnn_rnn

_CLASSES = {
    "lstm": cudnn_rnn.CudnnLSTM,
    "gru": cudnn_rnn.CudnnGRU,
    "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.CudnnRNNRelu,
}


def start(options):
    """Switches to graph mode, sets the precision; returns the versions."""
    if "precision" in options:
        cudnn_rnn.set_float32_matmul_precision(options["precision"])
    return dict(graph_network.start(options), cudnn_rnn=cudnn_rnn.__version__)


class Network(graph_network.GraphNetwork):
    """One op for all layers."""

    def connect(self, x, states, lengths):
        # Creates the variable outside the decode loop.
        with tf.init_scope():
            # A resource variable, as in TensorFlow 2: the op keeps its packed weights.
            self._params = tf.Variable(
                tf.zeros(joined(self._weights).shape, self.dtype), use_resource=True
            )
        output, *final_states = self.call(x, states, self._params, lengths)
        return output, final_states

    def call(self, x, states, params, lengths):
        """Connects the op; returns its output and final states."""
        configuration = self.configuration
        sizes = configuration.num_layers, configuration.num_units, configuration.input_size
        model = _CLASSES[configuration.rnn_mode](*sizes, direction=configuration.direction)
        options = {"is_training": configuration.is_training, "sequence_lengths": lengths}
        with cudnn_rnn.plain_ops() if self.options.get("plain") else contextlib.nullcontext():
            return model(x, *states, params=params, **options)

    def parameters(self, weights):
        return [(self._params, joined(weights))]
