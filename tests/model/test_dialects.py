"""`cudnn_rnn.model.dialects`: both directions, and the orders of gates against definitions."""

import numpy as np
import pytest

from cudnn_rnn.model import dialects
from cudnn_rnn.model.spec import GATES
from cudnn_rnn.model.weights import LayerWeights

UNITS, WIDTH = 3, 5
# From the documents of the frameworks, with the letters of `dialects`.
ORDERS = {
    ("pytorch", "lstm"): "ifgo",  # W_ii|W_if|W_ig|W_io
    ("pytorch", "gru"): "run",  # W_ir|W_iz|W_in
    ("onnx", "lstm"): "iofg",  # iofc
    ("onnx", "gru"): "urn",  # zrh
    ("keras", "lstm"): "ifgo",  # i, f, c, o
    ("keras", "gru"): "urn",  # z, r, h
    ("keras of cuDNN", "lstm"): "ifgo",
    ("keras of cuDNN", "gru"): "urn",
    ("cells", "lstm"): "igfo",  # i, j, f, o of BasicLSTMCell
    ("cells", "gru"): "run",
}


def random_layer(rnn_mode, dtype=np.float32):
    random, rows = np.random.RandomState(3), len(GATES[rnn_mode]) * UNITS
    shapes = [(rows, WIDTH), (rows, UNITS), (rows,), (rows,)]
    return LayerWeights(*[random.uniform(-1, 1, shape).astype(dtype) for shape in shapes])


def gate(array, rnn_mode, letter):
    return np.split(array, len(GATES[rnn_mode]))[dialects.CUDNN_GATES[rnn_mode].index(letter)]


@pytest.mark.parametrize("rnn_mode", sorted(GATES))
@pytest.mark.parametrize("name", sorted(dialects.DIALECTS))
def test_there_and_back(name, rnn_mode):
    """Matrices are exact; a sum of biases comes back as two halves."""
    dialect, weights = dialects.DIALECTS[name], random_layer(rnn_mode)
    parts = dialects.to_dialect(dialect, rnn_mode, weights)
    again = dialects.from_dialect(dialect, rnn_mode, *parts)
    for kind in ("input_weights", "recurrent_weights"):
        np.testing.assert_array_equal(getattr(again, kind), getattr(weights, kind))
    sums = [one.input_bias + one.recurrent_bias for one in (weights, again)]
    np.testing.assert_array_equal(*sums)
    if rnn_mode not in dialect.keeps_sums or dialect.adds_summands:
        np.testing.assert_array_equal(again.input_bias, weights.input_bias)
    elif rnn_mode != "gru":
        np.testing.assert_array_equal(again.input_bias, again.recurrent_bias)


@pytest.mark.parametrize("name, rnn_mode", sorted(ORDERS))
def test_order_of_gates(name, rnn_mode):
    dialect, weights = dialects.DIALECTS[name], random_layer(rnn_mode)
    matrices, _ = dialects.to_dialect(dialect, rnn_mode, weights)
    expected = [gate(weights.input_weights, rnn_mode, letter) for letter in ORDERS[name, rnn_mode]]
    found = matrices[0].T if dialect.is_transposed else matrices[0]
    if dialect.is_reshaped:
        gates = np.split(matrices[0], len(GATES[rnn_mode]), axis=1)
        found = np.concatenate([np.reshape(columns, (UNITS, WIDTH)) for columns in gates])
    num_joined = len(found) // UNITS  # the last gate of a GRU cell has matrices of its own
    np.testing.assert_array_equal(found[:, :WIDTH], np.concatenate(expected[:num_joined]))


def test_a_gru_cell_keeps_both_biases_of_its_candidate():
    weights = random_layer("gru")
    (kernel, w, r), biases = dialects.to_dialect(dialects.CELLS, "gru", weights)
    assert kernel.shape == (WIDTH + UNITS, 2 * UNITS)
    np.testing.assert_array_equal(w, gate(weights.input_weights, "gru", "n").T)
    np.testing.assert_array_equal(r, gate(weights.recurrent_weights, "gru", "n").T)
    np.testing.assert_array_equal(biases[1], gate(weights.input_bias, "gru", "n"))
    np.testing.assert_array_equal(biases[2], gate(weights.recurrent_bias, "gru", "n"))
    assert len(biases) == 3


def test_slots_are_means_there_and_copies_back():
    weights = random_layer("lstm", np.float16)
    parts = dialects.to_dialect(dialects.CELLS, "lstm", weights, dialects.mean_of)
    again = dialects.from_dialect(dialects.CELLS, "lstm", *parts, dialects.copies_of)
    mean = (weights.input_bias + weights.recurrent_bias) / np.float16(2)
    np.testing.assert_array_equal(again.input_bias, mean)
    np.testing.assert_array_equal(again.recurrent_bias, mean)
    assert again.input_bias.dtype == np.float16
