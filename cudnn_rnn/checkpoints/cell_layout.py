"""Converts between cuDNN's canonical tensors and those of the platform-independent cells.

cuDNN's canonical form has one matrix W `[num_units, width]` and one R `[num_units, num_units]` per
gate, and two biases `[num_units]` per gate. The cells use the transposed matrices, concatenated:

    cudnn_compatible_lstm_cell/kernel           [width + num_units, 4 * num_units], gates i, g, f, o
    cudnn_compatible_gru_cell/gates/kernel      [width + num_units, 2 * num_units], gates r, u
        candidate/input_projection/kernel       [width, num_units]
        candidate/hidden_projection/kernel      [num_units, num_units]

A cell has one bias per gate, the sum of cuDNN's two; only the GRU's candidate keeps both. The
checkpoints of TensorFlow 1.3 also hold the two summands, so they lose no information.
"""

from typing import Any, Dict

from cudnn_rnn._compat import assertion_op, tf
from cudnn_rnn.graph.canonical import chunks
from cudnn_rnn.model import dialects
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM


def join_gates(input_weights, recurrent_weights):
    """Concatenates W `[num_units, width]` and R `[num_units, num_units]` of each gate, axis 1."""
    return [tf.concat(pair, axis=1) for pair in zip(input_weights, recurrent_weights)]


def split_gates(gates, recurrent_width):
    """Returns (list of W, list of R), with R `recurrent_width` wide; undoes `join_gates`."""
    return (
        [gate[:, :-recurrent_width] for gate in gates],
        [gate[:, -recurrent_width:] for gate in gates],
    )


def gates_to_kernel(gates):
    """Converts gates `[num_units, width]` to a kernel `[width, num_gates * num_units]`."""
    return tf.transpose(tf.concat(gates, axis=0))


def gates_from_kernel(kernel, num_gates):
    """Undoes `gates_to_kernel`."""
    return tf.split(tf.transpose(kernel), num_gates, axis=0)


class LSTMFormat:
    """One layer and direction of an LSTM. cuDNN's tensors: 4 W then 4 R; 4 bW then 4 bR."""

    @staticmethod
    def weights_to_cell(weights):
        """Returns `[kernel]` for the 8 matrices of the layer."""
        return [gates_to_kernel(reorder_lstm_gates(join_gates(weights[:4], weights[4:])))]

    @staticmethod
    def weights_from_cell(cell_weights, num_units):
        """Returns the 8 matrices for `[kernel]`."""
        gates = reorder_lstm_gates(gates_from_kernel(cell_weights[0], 4))
        input_weights, recurrent_weights = split_gates(gates, num_units)
        return input_weights + recurrent_weights

    @staticmethod
    def biases_to_cell(biases):
        """Returns `[sum, bW, bR]`, each `[4 * num_units]` in the cell's gate order."""
        input_bias = tf.concat(reorder_lstm_gates(biases[:4]), axis=0)
        recurrent_bias = tf.concat(reorder_lstm_gates(biases[4:]), axis=0)
        return [input_bias + recurrent_bias, input_bias, recurrent_bias]

    @staticmethod
    def biases_from_cell(cell_biases):
        """Returns the 8 biases for `[sum, bW, bR]`, from the two summands."""
        _, input_bias, recurrent_bias = cell_biases
        summands = (tf.split(input_bias, 4), tf.split(recurrent_bias, 4))
        return [gate for gates in summands for gate in reorder_lstm_gates(gates)]


class GRUFormat:
    """One layer and direction of a GRU. cuDNN's tensors: 3 W then 3 R; 3 bW then 3 bR.

    The candidate comes after the reset and the update gate in both orders.
    """

    @staticmethod
    def weights_to_cell(weights):
        """Returns the kernels of gates, input and hidden projection for the 6 matrices."""
        *input_gates, input_projection = weights[:3]
        *recurrent_gates, hidden_projection = weights[3:]
        kernel = gates_to_kernel(join_gates(input_gates, recurrent_gates))
        return [kernel, tf.transpose(input_projection), tf.transpose(hidden_projection)]

    @staticmethod
    def weights_from_cell(cell_weights, num_units):
        """Returns the 6 matrices for the three kernels."""
        kernel, *projections = cell_weights
        input_gates, recurrent_gates = split_gates(gates_from_kernel(kernel, 2), num_units)
        input_projection, hidden_projection = map(tf.transpose, projections)
        return [*input_gates, input_projection, *recurrent_gates, hidden_projection]

    @staticmethod
    def biases_to_cell(biases):
        """Returns `[gates' sums, candidate's bW, candidate's bR, gates' bW, gates' bR]`."""
        *input_gates, input_projection = biases[:3]
        *recurrent_gates, hidden_projection = biases[3:]
        summands = [tf.concat(input_gates, axis=0), tf.concat(recurrent_gates, axis=0)]
        return [summands[0] + summands[1], input_projection, hidden_projection, *summands]

    @staticmethod
    def biases_from_cell(cell_biases):
        """Returns the 6 biases for the result of `biases_to_cell`, from the summands."""
        _, input_projection, hidden_projection, input_bias, recurrent_bias = cell_biases
        input_gates, recurrent_gates = tf.split(input_bias, 2), tf.split(recurrent_bias, 2)
        return [*input_gates, input_projection, *recurrent_gates, hidden_projection]


LAYER_FORMATS: Dict[str, Any] = {CUDNN_LSTM: LSTMFormat, CUDNN_GRU: GRUFormat}


class CellFormat:
    """A unidirectional stack as the cells of a `MultiRNNCell`, with both summands of every bias.

    With skip_input the first layer has no W, but a cell always does: it gets the identity.
    """

    def __init__(self, config):
        """Takes an `RnnConfig` of a unidirectional LSTM or GRU."""
        self._config = config
        self._layer_format = LAYER_FORMATS[config.rnn_mode]
        self._per_layer = 2 * len(config.gates)

    def weights_to_cells(self, weights):
        """Converts all canonical weights; returns a list, cell after cell."""
        cell_weights = []
        for layer, layer_weights in enumerate(chunks(weights, self._per_layer)):
            layer_weights = with_input_weights(self._config, layer, layer_weights)
            cell_weights += self._layer_format.weights_to_cell(layer_weights)
        return cell_weights

    def weights_from_cells(self, cell_weights):
        """Undoes `weights_to_cells`.

        Raises:
          InvalidArgumentError: when run, if the RNN has no W and the cell's is not the identity.
        """
        weights = []
        of_layers = chunks(cell_weights, len(cell_weights) // self._config.num_layers)
        for layer, layer_weights in enumerate(of_layers):
            converted = self._layer_format.weights_from_cell(layer_weights, self._config.num_units)
            weights += without_input_weights(self._config, layer, converted)
        return weights

    def biases_to_cells(self, biases):
        """Converts all canonical biases; returns a list, cell after cell."""
        cell_biases = []
        for layer_biases in chunks(biases, self._per_layer):
            cell_biases += self._layer_format.biases_to_cell(layer_biases)
        return cell_biases

    def biases_from_cells(self, cell_biases):
        """Undoes `biases_to_cells`."""
        biases = []
        for layer_biases in chunks(cell_biases, len(cell_biases) // self._config.num_layers):
            biases += self._layer_format.biases_from_cell(layer_biases)
        return biases


def reorder_lstm_gates(gates):
    """Reorders an LSTM's four gates from cuDNN's order to the cell's, or back."""
    return [gates[index] for index in dialects.CELLS.order(CUDNN_LSTM)]


def with_input_weights(config, layer, weights):
    """Returns the weights of a layer and direction for a cell, which always has a W.

    With skip_input the first layer has no W, so the cell gets the identity.
    """
    if layer > 0 or not config.skips_input_projection:
        return list(weights)
    num_gates = len(config.gates)
    identity = tf.eye(config.num_units, dtype=weights[0].dtype)
    return [identity] * num_gates + list(weights[num_gates:])


def without_input_weights(config, layer, weights):
    """Undoes `with_input_weights`.

    Raises:
      InvalidArgumentError: when run, if the RNN has no W and the cell's is not the identity.
    """
    if layer > 0 or not config.skips_input_projection:
        return list(weights)
    num_gates = len(config.gates)
    return [_emptied_identity(matrix) for matrix in weights[:num_gates]] + list(weights[num_gates:])


def _emptied_identity(matrix):
    """Returns `[num_units, 0]` after checking that the square `matrix` is the identity."""
    identity = tf.eye(tf.shape(matrix)[0], dtype=matrix.dtype)
    check = assertion_op(
        tf.reduce_all(tf.equal(matrix, identity)),
        "The checkpoint has input weights for the first layer, which an RNN with input_mode "
        "skip_input cannot take: they would have to be the identity. Make the RNN with input_mode "
        "linear_input.",
    )
    with tf.control_dependencies([check]):
        return tf.identity(matrix[:, :0])
