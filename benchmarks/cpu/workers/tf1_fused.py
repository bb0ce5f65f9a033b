"""TensorFlow 1.15's `LSTMBlockFusedCell`: one op for all steps of a layer and direction."""

import tensorflow
from graph_network import matrix_product, start, tf  # noqa: F401  (used by worker.py)
from problem import stacks
from refusal import Refused
from tf1_cells import CellNetwork, Lstm


class _FusedLstm(Lstm):
    """The fused cell; it has the same parameters as the LSTM cell."""

    def __init__(self, units):
        self.cell = tensorflow.contrib.rnn.LSTMBlockFusedCell(units, forget_bias=0.0)


class Network(CellNetwork):
    """Runs one layer after the other."""

    def __init__(self, configuration, arrays, threads):
        if configuration.rnn_mode != "lstm":
            raise Refused("it supports only LSTM")
        super().__init__(configuration, arrays, threads)

    def connect(self, x, states, lengths):
        configuration = self.configuration
        self.cells, last = {}, []
        h, c = [tf.unstack(state) for state in states]
        for layer, direction in stacks(configuration):
            if direction == 0:
                layer_input, outputs = x, []
            made = _FusedLstm(configuration.num_units)
            self.cells[layer, direction] = made
            index = layer * configuration.num_directions + direction
            with tf.variable_scope("cell_%d_%d" % (layer, direction)):
                output, (final_c, final_h) = made.cell(
                    _turned(layer_input, lengths, direction),
                    initial_state=(c[index], h[index]),
                    sequence_length=lengths,
                )
            outputs.append(_turned(output, lengths, direction))
            last.append((final_h, final_c))
            x = outputs[0] if direction == 0 else tf.concat(outputs, axis=2)
        return x, [tf.stack(list(parts)) for parts in zip(*last)]


def _turned(sequences, lengths, direction):
    """Returns the sequences in the order in which the direction reads them."""
    if direction == 0:
        return sequences
    if lengths is None:
        return tf.reverse(sequences, [0])
    return tf.reverse_sequence(sequences, lengths, seq_axis=0, batch_axis=1)
