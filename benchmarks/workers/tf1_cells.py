"""TensorFlow 1.15's cells that can load cuDNN's checkpoints, under dynamic_rnn or fused.

Under dynamic_rnn, the LSTM and GRU cells are tf.contrib's `CudnnCompatible` cells; the simple cell
is `BasicRNNCell`. With the option "fused": `LSTMBlockFusedCell`, one op for all steps of a layer
and direction.
"""

import numpy as np
import tensorflow
from gates import joint_kernel, weights_of
from graph_network import GraphNetwork, matrix_product, start, tf  # noqa: F401  (used by worker.py)
from problem import Refused

# The cells' gates as indices of cuDNN's. The LSTM cell has i, g, f, o, cuDNN i, f, g, o.
_ORDERS = {"lstm": [0, 2, 1, 3], "gru": [0, 1, 2], "rnn_tanh": [0]}


def _make_cell(configuration, is_fused):
    contrib = tensorflow.contrib
    if is_fused:
        return contrib.rnn.LSTMBlockFusedCell(configuration.num_units, forget_bias=0.0)
    kinds = {
        "lstm": contrib.cudnn_rnn.CudnnCompatibleLSTMCell,
        "gru": contrib.cudnn_rnn.CudnnCompatibleGRUCell,
        "rnn_tanh": tensorflow.nn.rnn_cell.BasicRNNCell,
    }
    return kinds[configuration.rnn_mode](configuration.num_units)


class Network(GraphNetwork):
    """`self.cells` has a cell for each layer and direction."""

    def __init__(self, configuration, problem, options):
        self._is_fused = options.get("fused", False)
        if self._is_fused and configuration.rnn_mode != "lstm":
            raise Refused("it supports only LSTM")
        if configuration.rnn_mode == "rnn_relu":
            raise Refused("it has no cell of this mode")
        super().__init__(configuration, problem, options)

    def connect(self, x, states, lengths):
        configuration, initial, last = self.configuration, self._cell_states(states), []
        if configuration.num_directions == 1 and not self._is_fused:
            # One loop over a stack of cells.
            stack = tensorflow.nn.rnn_cell.MultiRNNCell(self.cells)
            x, last = tensorflow.nn.dynamic_rnn(stack, x, lengths, initial, time_major=True)
            return x, self._joined(last)
        connect_layer = self._connect_fused if self._is_fused else self._connect_loops
        for layer in range(configuration.num_layers):
            first = layer * configuration.num_directions
            here = slice(first, first + configuration.num_directions)
            with tf.variable_scope("layer_%d" % layer):
                outputs, final = connect_layer(self.cells[here], x, lengths, initial[here])
            x = outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2)
            last += final
        return x, self._joined(last)

    @staticmethod
    def _connect_loops(cells, x, lengths, initial):
        connect = tensorflow.nn.bidirectional_dynamic_rnn
        return connect(*cells, x, lengths, *initial, time_major=True)

    @staticmethod
    def _connect_fused(cells, x, lengths, initial):
        outputs, last = [], []
        for direction, cell in enumerate(cells):
            run = tensorflow.contrib.rnn.TimeReversedFusedRNN(cell) if direction else cell
            states = tuple(initial[direction])
            with tf.variable_scope("direction_%d" % direction):
                output, (c, h) = run(x, initial_state=states, sequence_length=lengths)
            outputs.append(output)
            last.append(tensorflow.nn.rnn_cell.LSTMStateTuple(c, h))
        return outputs, last

    def connect_step(self, x, states):
        if self._is_fused:
            return self.connect(x, states, None)
        initial = self._cell_states(states)
        output, last = tensorflow.nn.rnn_cell.MultiRNNCell(self.cells)(x[0], initial)
        return output[None], self._joined(last)

    def _cell_states(self, states):
        """Creates the cells; returns the states in their format, a tuple with one for each."""
        configuration = self.configuration
        self.cells = [_make_cell(configuration, self._is_fused) for _ in configuration.stacks]
        parts = [tf.unstack(state) for state in states]
        if len(parts) == 1:
            return tuple(parts[0])
        return tuple(tensorflow.nn.rnn_cell.LSTMStateTuple(c, h) for h, c in zip(*parts))

    def _joined(self, cell_states):
        if len(self.configuration.states) == 1:
            return [tf.stack(list(cell_states))]
        return [tf.stack([getattr(one, name) for one in cell_states]) for name in ("h", "c")]

    def parameters(self, weights):
        found = []
        for cell, stack in zip(self.cells, self.configuration.stacks):
            order = _ORDERS[self.configuration.rnn_mode]
            found += zip(cell.weights, self._convert(weights_of(stack, weights, order)))
        return found

    def _convert(self, weights):
        """Returns the values of the cell's variables, given w, r, bw and br."""
        if self.configuration.rnn_mode != "gru":  # kernel and bias
            return [joint_kernel(weights), weights["bw"] + weights["br"]]
        # The kernel and the bias of r and u, then the two kernels and the two biases of the
        # candidate's projections.
        gates, candidate = {}, {}
        for name, value in weights.items():
            gates[name], candidate[name] = np.split(value, [value.shape[0] * 2 // 3])
        both = [joint_kernel(gates), gates["bw"] + gates["br"]]
        return both + [candidate["w"].T, candidate["r"].T, candidate["bw"], candidate["br"]]
