"""Converts the tensors of a checkpoint to an opaque vector, with NumPy.

`checkpoints/cell_layout.py` describes the tensors of cells; the saveables of this package, which
are of graphs, do the same conversion in a program. One graph for each RNN of a file takes minutes.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_LSTM
from cudnn_rnn.exchange.checkpoint_keys import CANONICAL, CELLS_WITH_BIASES, Found
from cudnn_rnn.exchange.contents import ExchangeError, name_of
from cudnn_rnn.exchange.weights import reorder_gates

# Index in cuDNN's order (i, f, g, o) of each gate of the LSTM cell (i, g, f, o), and vice versa.
_LSTM_GATE_ORDER = (0, 2, 1, 3)


def to_opaque(found: Found, arrays: Sequence[np.ndarray], is_slot: bool = False) -> np.ndarray:
    """Returns the opaque vector for the tensors of an RNN, in the order of `found.keys`.

    A cell has one bias for cuDNN's two. Each of them gets half of a weight; of a slot, each gets
    all (`checkpoints/optimizer_slots.py` says why).

    Raises:
      ExchangeError: a shape is not what the writers of such checkpoints make.
    """
    if found.generation == CANONICAL:
        _check(found, arrays, _canonical_shapes(found.config, arrays))
        return np.concatenate([array.reshape(-1) for array in arrays])
    config = found.config
    expected, num_parts = _cell_shapes(found), config.num_layers * config.num_directions
    _check(found, arrays, expected)
    num_kernels = 3 if config.rnn_mode == CUDNN_GRU else 1
    parts: List[Any] = []
    for start in range(0, num_parts * num_kernels, num_kernels):
        parts += _matrices(config, arrays[start : start + num_kernels])
    of_biases = arrays[num_parts * num_kernels :]
    num_biases = len(of_biases) // num_parts
    has_both = found.generation == CELLS_WITH_BIASES
    for start in range(0, len(of_biases), num_biases):
        parts += _biases(config, of_biases[start : start + num_biases], has_both, is_slot)
    return np.concatenate([np.asarray(part).reshape(-1) for part in parts])


def _matrices(config, kernels):
    """Returns [W, R] for the kernels of one cell."""
    units = config.num_units
    rows = kernels[0].T  # [gates * num_units, width + num_units]
    if config.rnn_mode == CUDNN_LSTM:
        rows = reorder_gates(rows, _LSTM_GATE_ORDER)
    matrices = [rows[:, :-units], rows[:, -units:]]
    if config.rnn_mode == CUDNN_GRU:
        candidates = [kernel.T for kernel in kernels[1:]]
        return [np.concatenate(pair) for pair in zip(matrices, candidates)]
    return matrices


def _biases(config, biases, has_both, is_slot):
    """Returns [bW, bR] for the biases of one cell."""
    if config.rnn_mode == CUDNN_GRU:
        both = biases[3:] if has_both else _shares(biases[0], is_slot)
        return [np.concatenate(pair) for pair in zip(both, biases[1:3])]
    both = biases[1:] if has_both else _shares(biases[0], is_slot)
    if config.rnn_mode == CUDNN_LSTM:
        return [reorder_gates(bias, _LSTM_GATE_ORDER) for bias in both]
    return list(both)


def _shares(bias, is_slot):
    """Returns what each of cuDNN's two biases gets of a cell's."""
    share = bias if is_slot else bias * np.asarray(0.5, bias.dtype)
    return [share, share]


def _cell_shapes(found):
    """Returns the shapes of an RNN's cells, in the order of the keys."""
    config, units = found.config, found.config.num_units
    num_rows = len(config.gates) * units
    kernels, biases = [], []
    for layer in range(config.num_layers):
        width = config.input_weights_width(layer)
        if config.rnn_mode == CUDNN_GRU:
            of_cell = [[width + units, 2 * units], [width, units], [units, units]]
            of_biases, summand = [[2 * units], [units], [units]], [2 * units]
        else:
            of_cell, of_biases, summand = [[width + units, num_rows]], [[num_rows]], [num_rows]
        if found.generation == CELLS_WITH_BIASES:
            of_biases = of_biases + [summand, summand]
        kernels += of_cell * config.num_directions
        biases += of_biases * config.num_directions
    return [[shape] for shape in kernels + biases]


def _canonical_shapes(config, arrays):
    """Returns the list of the possible shapes of each canonical tensor.

    Since TensorFlow 1.4, weights are `[num_units, width]`. Before, each was a vector or
    `[width, num_units]`, with the same elements in the same order. No release mixed the two.
    """
    shapes = [entry.shape for entry in config.canonical_weights()]
    found = [list(array.shape) for array in arrays]
    if all(shape == one for shape, one in zip(shapes, found) if 0 not in shape):
        possible = [[shape] for shape in shapes]
    else:
        possible = [[shape[::-1], [shape[0] * shape[1]]] for shape in shapes]
    biases = [[entry.shape] for entry in config.canonical_biases()]
    return possible + biases


def _check(found, arrays, expected):
    wrong = [
        "  %s: has shape %s; expected %s"
        % (key, list(array.shape), " or ".join(map(str, possible)))
        for key, array, possible in zip(found.keys, arrays, expected)
        if list(array.shape) not in possible and not (array.size == 0 and 0 in possible[0])
    ]
    if wrong or len(arrays) != len(expected):
        raise ExchangeError(
            "The tensors of %s do not fit together:\n%s"
            % (name_of(found.scope), "\n".join(wrong[:8]))
        )
