"""The cell format against its definition in NumPy, and the conversion back."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.checkpoints.cell_layout import CellFormat, GRUFormat, LSTMFormat
from cudnn_rnn.checkpoints.converters import (
    CudnnParamsFormatConverter,
    CudnnParamsFormatConverterTanh,
)
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.model.keys import CELL_NAMES
from helpers.checkpoints import assert_all_equal

NUM_UNITS, WIDTH = 5, 3


def matrices(num_gates, seed=0):
    """Returns (W, then R of every gate) and (bW, then bR of every gate)."""
    random = np.random.RandomState(seed)
    shapes = [[NUM_UNITS, WIDTH]] * num_gates + [[NUM_UNITS, NUM_UNITS]] * num_gates
    weights = [random.randn(*shape).astype(np.float32) for shape in shapes]
    return weights, [random.randn(NUM_UNITS).astype(np.float32) for _ in shapes]


def constants(arrays):
    return [tf.constant(array) for array in arrays]


def assert_multiplies(kernel, weights, gates):
    """Checks that the kernel's columns compute W x + R h of these gates, one after the other."""
    assert kernel.shape == (WIDTH + NUM_UNITS, len(gates) * NUM_UNITS)
    x, h = np.arange(WIDTH, dtype=np.float32), np.arange(WIDTH, WIDTH + NUM_UNITS, dtype=np.float32)
    recurrent = weights[len(weights) // 2 :]
    expected = np.concatenate([weights[gate].dot(x) + recurrent[gate].dot(h) for gate in gates])
    np.testing.assert_allclose(np.concatenate([x, h]).dot(kernel), expected, rtol=1e-4, atol=1e-5)


def test_lstm_layer(session):
    weights, biases = matrices(4)
    (kernel,) = session.run(LSTMFormat.weights_to_cell(constants(weights)))
    # The cell's gates i, g, f, o are cuDNN's gates 0, 2, 1, 3.
    assert_multiplies(kernel, weights, [0, 2, 1, 3])
    converted = session.run(LSTMFormat.biases_to_cell(constants(biases)))
    input_bias = np.concatenate([biases[i] for i in (0, 2, 1, 3)])
    recurrent_bias = np.concatenate([biases[i] for i in (4, 6, 5, 7)])
    assert_all_equal(converted, [input_bias + recurrent_bias, input_bias, recurrent_bias])


def test_gru_layer(session):
    weights, biases = matrices(3)
    gates, input_kernel, hidden_kernel = session.run(GRUFormat.weights_to_cell(constants(weights)))
    assert_multiplies(gates, weights, [0, 1])
    assert_all_equal([input_kernel, hidden_kernel], [weights[2].T, weights[5].T])
    converted = session.run(GRUFormat.biases_to_cell(constants(biases)))
    input_bias, recurrent_bias = np.concatenate(biases[:2]), np.concatenate(biases[3:5])
    expected = [input_bias + recurrent_bias, biases[2], biases[5], input_bias, recurrent_bias]
    assert_all_equal(converted, expected)


@pytest.mark.parametrize("layer_format, num_gates", [(LSTMFormat, 4), (GRUFormat, 3)])
def test_layer_there_and_back(session, layer_format, num_gates):
    weights, biases = matrices(num_gates)
    cell_weights = layer_format.weights_to_cell(constants(weights))
    cell_biases = layer_format.biases_to_cell(constants(biases))
    names = CELL_NAMES["lstm" if num_gates == 4 else "gru"]
    assert len(cell_weights) == len(names.weights)
    assert len(cell_biases) == len(names.biases + names.summands)
    returned = session.run(
        layer_format.weights_from_cell(cell_weights, NUM_UNITS)
        + layer_format.biases_from_cell(cell_biases)
    )
    assert_all_equal(returned, weights + biases)


@pytest.mark.parametrize("rnn_mode, num_gates", [("lstm", 4), ("gru", 3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_skipped_input_weights_are_identities_in_the_cell(session, rnn_mode, num_gates, dtype):
    sizes = 2, NUM_UNITS, NUM_UNITS
    cell_format = CellFormat(
        rnn_config(rnn_mode, *sizes, "skip_input", "unidirectional", tf.float32, 0.0, 0)
    )
    shapes = [[NUM_UNITS, 0]] * num_gates + [[NUM_UNITS, NUM_UNITS]] * 3 * num_gates
    weights = [np.random.RandomState(1).randn(*shape).astype(dtype) for shape in shapes]
    cell_weights = cell_format.weights_to_cells(constants(weights))
    first_kernel = session.run(cell_weights[0])
    for gate in range(first_kernel.shape[1] // NUM_UNITS):
        columns = slice(gate * NUM_UNITS, (gate + 1) * NUM_UNITS)
        np.testing.assert_array_equal(first_kernel[:NUM_UNITS, columns], np.eye(NUM_UNITS))
    returned = session.run(cell_format.weights_from_cells(cell_weights))
    assert_all_equal(returned, weights)
    assert [array.shape for array in returned] == [array.shape for array in weights]


def test_a_converter_without_a_conversion_names_it():
    class Incomplete(CudnnParamsFormatConverter):
        _rnn_mode = "gru"

    converter = Incomplete(1, NUM_UNITS, WIDTH)
    for thing in ["weights", "biases"]:
        for name in ["_cudnn_to_tf_" + thing, "_tf_to_cudnn_" + thing]:
            with pytest.raises(NotImplementedError, match="Incomplete has no " + name):
                getattr(converter, name)(0)


@pytest.mark.parametrize("count", [0, 4, 9])
def test_a_wrong_number_of_tensors_is_refused(session, count):
    """Two layers in two directions have four cells, each with at least a kernel and a bias."""
    sizes = dict(num_layers=2, num_units=NUM_UNITS, input_size=WIDTH)
    converter = CudnnParamsFormatConverterTanh(**sizes, direction="bidirectional")
    message = r"multiple of 2 \* num_layers 2 \* directions 2, but has %d tensors" % count
    with pytest.raises(ValueError, match=message):
        converter.tf_canonical_to_opaque([tf.zeros([NUM_UNITS])] * count)
