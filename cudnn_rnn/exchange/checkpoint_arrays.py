"""Converts between the tensors of a checkpoint and `RnnWeights`, with NumPy.

The saveables of this package, which are of graphs, do the same conversion in a program.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError, StoredRnn, name_of
from cudnn_rnn.model import dialects, keys, layout
from cudnn_rnn.model.dialects import CELLS, CELLS_1_3, Pair
from cudnn_rnn.model.keys import CELL_NAMES
from cudnn_rnn.model.spec import CUDNN_GRU
from cudnn_rnn.model.weights import LayerWeights, RnnWeights, from_buffer


def from_arrays(
    stored: StoredRnn,
    arrays: Sequence[np.ndarray],
    split: Callable[[np.ndarray], Pair] = dialects.halves_of,
) -> RnnWeights:
    """Returns the weights for the tensors of an RNN, in the order of `stored.keys`.

    A cell has one bias for cuDNN's two; `split` makes two of it.

    Raises:
      ExchangeError: a shape is not what the writers of such checkpoints make.
    """
    config = stored.config
    if stored.generation == keys.OPAQUE:
        return from_buffer(arrays[0], config, stored.scope)
    if stored.generation == keys.CANONICAL:
        _check(stored, arrays, _canonical_shapes(config, arrays))
        vector = np.concatenate([array.reshape(-1) for array in arrays])
        return from_buffer(vector, config, stored.scope)
    has_summands = stored.generation == keys.CELLS_WITH_BIASES
    _check(stored, arrays, _cell_shapes(config, has_summands))
    dialect = CELLS_1_3 if has_summands else CELLS
    num_cells = config.num_layers * config.num_directions
    num_kernels = len(CELL_NAMES[config.rnn_mode].weights) + bool(config.num_proj)
    kernels = _groups(arrays[: num_cells * num_kernels], num_cells)
    biases = _groups(arrays[num_cells * num_kernels :], num_cells)
    for of_cell, forget_bias in zip(biases, stored.forget_biases):
        of_cell[0] = dialects.with_forget_bias(of_cell[0], forget_bias)
    cells = []
    for (kernel, *rest), of_cell in zip(kernels, biases):
        projection = rest.pop().T if config.num_proj else None
        weights = dialects.from_dialect(
            dialect, config.rnn_mode, [kernel, *rest], of_cell, split, config.num_proj
        )
        cells.append(weights._replace(projection=projection))
    layers: List[List[LayerWeights]] = _groups(cells, config.num_layers)
    return RnnWeights(config.rnn_mode, layers, stored.scope)


def to_arrays(
    generation: str,
    rnn: RnnWeights,
    number: int = 0,
    merge: Callable[[Pair], np.ndarray] = dialects.sum_of,
) -> Dict[str, np.ndarray]:
    """Returns the tensors of a generation by key, relative to the scope of the RNN.

    `number` is that of the RNN in the file, and `merge` makes one bias of cuDNN's two.
    """
    config = rnn.layout
    has_summands = generation == keys.CELLS_WITH_BIASES and keys.has_cells_in_1_3(config)
    if generation != keys.CELLS and not has_summands:
        vector = rnn.to_opaque()
        arrays = [
            vector[region.offset : region.offset + region.size].reshape(region.shape)
            for region in layout.regions(config)
        ]
        return dict(zip(keys.keys_of_canonical(config, number), arrays))
    kernels, biases = [], []
    for _, _, weights in rnn.places():
        dialect = CELLS_1_3 if has_summands else CELLS
        parts = dialects.to_dialect(dialect, config.rnn_mode, weights, merge)
        kernels += parts[0]
        biases += parts[1]
    names = keys.keys_of_cells_1_3(config) if has_summands else keys.keys_of_cells(config)
    return dict(zip(names, kernels + biases))


def _groups(values, count):
    """Splits a list into `count` lists of the same length."""
    size = len(values) // count
    return [values[start : start + size] for start in range(0, len(values), size)]


def _cell_shapes(config, has_summands):
    """Returns a list of one shape for each tensor of an RNN's cells, in the order of the keys."""
    units, num_rows = config.num_units, len(config.gates) * config.num_units
    outputs = config.num_proj or units
    kernels: List[Any] = []
    biases: List[Any] = []
    for layer in range(config.num_layers):
        width = config.input_weights_width(layer)
        if config.rnn_mode == CUDNN_GRU:
            of_cell = [[width + units, 2 * units], [width, units], [units, units]]
            of_biases, summand = [[2 * units], [units], [units]], [2 * units]
        else:
            of_cell, of_biases, summand = [[width + outputs, num_rows]], [[num_rows]], [num_rows]
            of_cell += [[units, config.num_proj]] * bool(config.num_proj)
        kernels += of_cell * config.num_directions
        biases += (of_biases + [summand, summand] * has_summands) * config.num_directions
    return [[shape] for shape in kernels + biases]


def _canonical_shapes(config, arrays):
    """Returns the list of the possible shapes of each canonical tensor.

    Since TensorFlow 1.4, weights are `[num_units, width]`. Before, each was a vector or
    `[width, num_units]`, with the same elements in the same order. No release mixed the two.
    """
    shapes = [list(region.shape) for region in layout.canonical_weights(config)]
    actual = [list(array.shape) for array in arrays]
    if all(shape == own for shape, own in zip(shapes, actual) if 0 not in shape):
        possible = [[shape] for shape in shapes]
    else:
        possible = [[shape[::-1], [shape[0] * shape[1]]] for shape in shapes]
    return possible + [[list(region.shape)] for region in layout.canonical_biases(config)]


def _check(stored, arrays, expected):
    wrong = [
        "  %s: has shape %s; expected %s"
        % (key, list(array.shape), " or ".join(map(str, possible)))
        for key, array, possible in zip(stored.keys, arrays, expected)
        if list(array.shape) not in possible and not (array.size == 0 and 0 in possible[0])
    ]
    if wrong or len(arrays) != len(expected):
        raise ExchangeError(
            "The tensors of %s do not fit together:\n%s"
            % (name_of(stored.scope), "\n".join(wrong[:8]))
        )
