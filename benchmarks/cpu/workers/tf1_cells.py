"""TensorFlow 1.15's cells under dynamic_rnn, those that can load cuDNN's checkpoints.

The LSTM and GRU cells are tf.contrib's `CudnnCompatible` cells; the simple cell is `BasicRNNCell`.
"""

import numpy as np
import tensorflow
from gates import inverse, joint_kernel, reordered, split_joint_kernel
from graph_network import GraphNetwork, matrix_product, start, tf  # noqa: F401  (used by worker.py)
from problem import stacks
from refusal import Refused

# The LSTM cell's gates i, g, f, o as indices of cuDNN's i, f, g, o.
_LSTM_ORDER = [0, 2, 1, 3]


class Lstm:
    """An LSTM cell; its parameters are kernel and bias."""

    def __init__(self, units):
        self.cell = tensorflow.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(units)

    def values(self, arrays, suffix):
        bias = arrays["bw" + suffix] + arrays["br" + suffix]
        return [joint_kernel(arrays, suffix, _LSTM_ORDER), reordered(bias, _LSTM_ORDER)]

    def canonical(self, gradients, suffix, input_size):
        kernel, bias = gradients
        w, r = split_joint_kernel(kernel, input_size, _LSTM_ORDER)
        return {
            "w" + suffix: w,
            "r" + suffix: r,
            "bw" + suffix: reordered(bias, inverse(_LSTM_ORDER)),
        }


class _Gru:
    """A GRU cell.

    Its parameters are the kernel and the bias of r and u, then the two kernels and the two biases
    of the candidate's projections.
    """

    def __init__(self, units):
        self.cell = tensorflow.contrib.cudnn_rnn.CudnnCompatibleGRUCell(units)

    def values(self, arrays, suffix):
        parts = {
            name: np.split(arrays[name + suffix], [arrays[name + suffix].shape[0] * 2 // 3])
            for name in ("w", "r", "bw", "br")
        }
        gates = np.concatenate([parts["w"][0].T, parts["r"][0].T])
        values = [gates, parts["bw"][0] + parts["br"][0]]
        return values + [parts["w"][1].T, parts["r"][1].T, parts["bw"][1], parts["br"][1]]

    def canonical(self, gradients, suffix, input_size):
        gates, bias, w_n, r_n, bw_n, br_n = gradients
        return {
            "w" + suffix: np.concatenate([gates[:input_size].T, w_n.T]),
            "r" + suffix: np.concatenate([gates[input_size:].T, r_n.T]),
            "bw" + suffix: np.concatenate([bias, bw_n]),
            "br" + suffix: np.concatenate([bias, br_n]),
        }


class _Tanh:
    """A simple cell; its parameters are kernel and bias."""

    def __init__(self, units):
        self.cell = tensorflow.nn.rnn_cell.BasicRNNCell(units)

    def values(self, arrays, suffix):
        return [joint_kernel(arrays, suffix, [0]), arrays["bw" + suffix] + arrays["br" + suffix]]

    def canonical(self, gradients, suffix, input_size):
        kernel, bias = gradients
        w, r = split_joint_kernel(kernel, input_size, [0])
        return {"w" + suffix: w, "r" + suffix: r, "bw" + suffix: bias}


_CELLS = {"lstm": Lstm, "gru": _Gru, "rnn_tanh": _Tanh}


class CellNetwork(GraphNetwork):
    """A network of `self.cells`: objects with cell, values and canonical, by (layer, direction)."""

    def parameters(self, arrays):
        found = []
        for key, made in self.cells.items():
            found += zip(made.cell.weights, made.values(arrays, "_%d_%d" % key))
        return found

    def canonical(self, gradients):
        found, gradients = {}, list(gradients)
        for (layer, direction), made in self.cells.items():
            count = len(made.cell.weights)
            suffix = "_%d_%d" % (layer, direction)
            size = self.configuration.layer_input_size(layer)
            found.update(made.canonical(gradients[:count], suffix, size))
            del gradients[:count]
        return found


class Network(CellNetwork):
    """Unidirectional: one loop over a stack of cells. Bidirectional: two loops for each layer."""

    def __init__(self, configuration, arrays, threads):
        if configuration.rnn_mode not in _CELLS:
            raise Refused("it has no cell of this mode")
        super().__init__(configuration, arrays, threads)

    def connect(self, x, states, lengths):
        self._make_cells()
        directions = self.configuration.num_directions
        if directions == 1:
            stack = self._stack()
            outputs, last = tensorflow.nn.dynamic_rnn(
                stack, x, lengths, self._cell_states(states), time_major=True
            )
            return outputs, self._joined(last)
        initial, last = self._cell_states(states), []
        for layer in range(self.configuration.num_layers):
            pair = [self.cells[layer, direction].cell for direction in range(2)]
            with tf.variable_scope("layer_%d" % layer):
                outputs, final = tensorflow.nn.bidirectional_dynamic_rnn(
                    *pair,
                    inputs=x,
                    sequence_length=lengths,
                    initial_state_fw=initial[2 * layer],
                    initial_state_bw=initial[2 * layer + 1],
                    time_major=True,
                )
            x = tf.concat(outputs, axis=2)
            last += final
        return x, self._joined(last)

    def connect_step(self, x, states):
        self._make_cells()
        output, last = self._stack()(x[0], self._cell_states(states))
        return output[None], self._joined(last)

    def _make_cells(self):
        made = _CELLS[self.configuration.rnn_mode]
        self.cells = {key: made(self.configuration.num_units) for key in stacks(self.configuration)}

    def _stack(self):
        return tensorflow.nn.rnn_cell.MultiRNNCell([made.cell for made in self.cells.values()])

    def _cell_states(self, states):
        """Returns the states in the cells' format, a tuple with one state for each cell."""
        parts = [tf.unstack(state) for state in states]
        if len(parts) == 1:
            return tuple(parts[0])
        pairs = [tensorflow.nn.rnn_cell.LSTMStateTuple(c, h) for h, c in zip(*parts)]
        return tuple(pairs)

    def _joined(self, cell_states):
        if not self.configuration.has_cell_state:
            return [tf.stack(list(cell_states))]
        return [
            tf.stack([state.h for state in cell_states]),
            tf.stack([state.c for state in cell_states]),
        ]
