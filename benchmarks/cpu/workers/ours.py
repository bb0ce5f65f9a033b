"""Ours: the op in a graph, through the classes `CudnnLSTM` etc."""

import graph_network
import numpy as np
from configurations import GATES
from graph_network import matrix_product, tf  # noqa: F401  (used by worker.py)
from problem import stacks

import cudnn_rnn

_CLASSES = {
    "lstm": cudnn_rnn.CudnnLSTM,
    "gru": cudnn_rnn.CudnnGRU,
    "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.CudnnRNNRelu,
}


def start(threads):
    """Switches to graph mode; returns the versions."""
    return dict(graph_network.start(threads), cudnn_rnn=cudnn_rnn.__version__)


def regions(configuration):
    """Yields the name and shape of each part of the opaque buffer, in order."""
    units = configuration.num_units
    width = GATES[configuration.rnn_mode] * units
    for layer, direction in stacks(configuration):
        yield "w_%d_%d" % (layer, direction), (width, configuration.layer_input_size(layer))
        yield "r_%d_%d" % (layer, direction), (width, units)
    for layer, direction in stacks(configuration):
        yield "bw_%d_%d" % (layer, direction), (width,)
        yield "br_%d_%d" % (layer, direction), (width,)


class Network(graph_network.GraphNetwork):
    """One op for all layers."""

    def connect(self, x, states, lengths):
        configuration = self.configuration
        model = _CLASSES[configuration.rnn_mode](
            configuration.num_layers,
            configuration.num_units,
            configuration.input_size,
            direction=configuration.direction,
        )
        sizes = [int(np.prod(shape)) for _, shape in regions(configuration)]
        # Creates the variable outside the decode loop.
        with tf.init_scope():
            self._params = tf.Variable(tf.zeros([sum(sizes)]))
        results = model(
            x,
            *states,
            params=self._params,
            is_training=self.configuration.is_training,
            sequence_lengths=lengths,
        )
        return results[0], list(results[1:])

    def parameters(self, arrays):
        parts = [arrays[name].ravel() for name, _ in regions(self.configuration)]
        return [(self._params, np.concatenate(parts))]

    def canonical(self, gradients):
        (buffer,) = gradients
        found, offset = {}, 0
        for name, shape in regions(self.configuration):
            size = int(np.prod(shape))
            found[name] = buffer[offset : offset + size].reshape(shape)
            offset += size
        return found
