"""How each framework arranges the weights of a layer and direction, and the conversions in NumPy.

A gate is a letter: i, f, g, o are an LSTM's input, forget, new memory and output gate; r, u, n are
a GRU's reset, update and new memory gate; h is the only gate of a simple RNN. Frameworks differ in
the order of the gates, in whether matrices are transposed, in whether W and R are one matrix, and
in what they keep of the two biases of each gate.

| dialect | matrices | biases |
| --- | --- | --- |
| cuDNN, PyTorch | W `[gates * units, width]`, R `[gates * units, units]` | bW and bR |
| ONNX | the same | one vector, bW then bR |
| Keras | W^T, R^T | the sum; of a GRU `[2, gates * units]`, bW and bR |
| Keras's layers of cuDNN | the same, but reshaped (`is_reshaped`) | one vector, bW then bR |
| cells, plain LSTM cells | one kernel, `[width + units, gates * units]` | the sum |
| cells, GRU | that of r and u, and W_n^T and R_n^T | the sum of r and u, and both of n |
| cells of TensorFlow 1.3 | as the cells of its successors | also the two summands |
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU, CUDNN_RNN_TANH
from cudnn_rnn.model.weights import LayerWeights

# In cuDNN's order; `spec.GATES` has the names.
CUDNN_GATES = {CUDNN_LSTM: "ifgo", CUDNN_GRU: "run", CUDNN_RNN_RELU: "h", CUDNN_RNN_TANH: "h"}

Pair = Tuple[np.ndarray, np.ndarray]


class Dialect(NamedTuple):
    """How a framework arranges the weights of a layer and direction.

    Attributes:
      gates: its order of gates by mode, where it is not cuDNN's.
      is_transposed: whether matrices are `[width, gates * units]`.
      is_joined: whether W and R are one matrix; a GRU's new memory gate has matrices of its own.
      is_reshaped: whether matrices are `[width, gates * units]`, and each gate's columns hold the
        numbers of `[units, width]` in the order of memory.
      keeps_sums: the modes of which it keeps the sum of the two biases.
      adds_summands: whether it also keeps the summands of such sums.
    """

    gates: Dict[str, str] = {}
    is_transposed: bool = False
    is_joined: bool = False
    is_reshaped: bool = False
    keeps_sums: Tuple[str, ...] = ()
    adds_summands: bool = False

    def order(self, rnn_mode: str) -> List[int]:
        """Returns the index in cuDNN's order of each gate in this dialect's order."""
        gates = CUDNN_GATES[rnn_mode]
        return [gates.index(gate) for gate in self.gates.get(rnn_mode, gates)]

    def order_from(self, rnn_mode: str) -> List[int]:
        """Returns the index in this dialect's order of each gate in cuDNN's order."""
        own = self.gates.get(rnn_mode, CUDNN_GATES[rnn_mode])
        return [own.index(gate) for gate in CUDNN_GATES[rnn_mode]]


_SIMPLE = (CUDNN_RNN_RELU, CUDNN_RNN_TANH)
PYTORCH = Dialect()
ONNX = Dialect({CUDNN_LSTM: "iofg", CUDNN_GRU: "urn"})
KERAS = Dialect({CUDNN_GRU: "urn"}, is_transposed=True, keeps_sums=(CUDNN_LSTM, *_SIMPLE))
KERAS_CUDNN = Dialect({CUDNN_GRU: "urn"}, is_reshaped=True)
CELLS = Dialect(
    {CUDNN_LSTM: "igfo"},
    is_transposed=True,
    is_joined=True,
    keeps_sums=(CUDNN_LSTM, CUDNN_GRU, *_SIMPLE),
)
CELLS_1_3 = CELLS._replace(adds_summands=True)
DIALECTS = {
    "pytorch": PYTORCH,
    "onnx": ONNX,
    "keras": KERAS,
    "keras of cuDNN": KERAS_CUDNN,
    "cells": CELLS,
    "cells of 1.3": CELLS_1_3,
}


def sum_of(biases: Pair) -> np.ndarray:
    """Returns the bias of a gate for cuDNN's two."""
    return biases[0] + biases[1]


def mean_of(biases: Pair) -> np.ndarray:
    """Returns the slot of a bias for those of cuDNN's two: see `checkpoints/optimizer_slots`."""
    return sum_of(biases) / np.asarray(2, biases[0].dtype)


def halves_of(bias: np.ndarray) -> Pair:
    """Returns cuDNN's two biases for their sum: half of it each."""
    half = bias * np.asarray(0.5, bias.dtype)
    return half, half


def copies_of(bias: np.ndarray) -> Pair:
    """Returns the slots of cuDNN's two biases for that of their sum: all of it each."""
    return bias, bias


def to_dialect(
    dialect: Dialect,
    rnn_mode: str,
    weights: LayerWeights,
    merge: Callable[[Pair], np.ndarray] = sum_of,
) -> Tuple[List[np.ndarray], List[np.ndarray]]:
    """Returns (matrices, biases) of a layer and direction; a projection is left out.

    `merge` makes one bias of two.
    """
    order = dialect.order(rnn_mode)
    w, r, bias_w, bias_r = [reorder_gates(part, order) for part in weights[:4]]
    num_parts = _num_parts(dialect, rnn_mode)
    matrices = [w, r]
    if dialect.is_joined:
        (w, *w_alone), (r, *r_alone) = _cut(w, num_parts), _cut(r, num_parts)
        matrices = [np.concatenate([w, r], axis=1), *w_alone, *r_alone]
    if dialect.is_transposed:
        matrices = [matrix.T for matrix in matrices]
    if dialect.is_reshaped:
        matrices = [_reshaped(matrix, len(order), axis=0) for matrix in matrices]
    if rnn_mode not in dialect.keeps_sums:
        return matrices, [bias_w, bias_r]
    (bias_w, *w_alone), (bias_r, *r_alone) = _cut(bias_w, num_parts), _cut(bias_r, num_parts)
    biases = [merge((bias_w, bias_r)), *w_alone, *r_alone]
    return matrices, biases + ([bias_w, bias_r] if dialect.adds_summands else [])


def from_dialect(
    dialect: Dialect,
    rnn_mode: str,
    matrices: Sequence[np.ndarray],
    biases: Sequence[np.ndarray],
    split: Callable[[np.ndarray], Pair] = halves_of,
    num_proj: int = 0,
) -> LayerWeights:
    """Undoes `to_dialect`; `split` makes two biases of one, if the dialect has no summands.

    `num_proj` is the width of R if the cell has a projection, which the result lacks.
    """
    if dialect.is_transposed:
        matrices = [matrix.T for matrix in matrices]
    if dialect.is_reshaped:
        num_gates = len(CUDNN_GATES[rnn_mode])
        matrices = [_reshaped(matrix, num_gates, axis=1) for matrix in matrices]
    if dialect.is_joined:
        joined, *alone = matrices
        outputs = num_proj or len(joined) // (len(CUDNN_GATES[rnn_mode]) - len(alone) // 2)
        matrices = [joined[:, :-outputs], joined[:, -outputs:]]
        matrices = [np.concatenate(parts) for parts in zip(matrices, *_pairs(alone))]
    if rnn_mode in dialect.keeps_sums:
        num_alone = 2 * (_num_parts(dialect, rnn_mode) - 1)
        both = biases[-2:] if dialect.adds_summands else split(biases[0])
        biases = [np.concatenate(parts) for parts in zip(both, *_pairs(biases[1 : 1 + num_alone]))]
    order = dialect.order_from(rnn_mode)
    return LayerWeights(*[reorder_gates(part, order) for part in (*matrices, *biases)])


def with_forget_bias(bias: np.ndarray, forget_bias: float) -> np.ndarray:
    """Returns the bias of an LSTM cell of `CELLS` that adds a forget bias in every step."""
    gates = np.split(bias, len(CUDNN_GATES[CUDNN_LSTM]))
    number = CELLS.gates[CUDNN_LSTM].index("f")
    gates[number] = gates[number] + np.asarray(forget_bias, bias.dtype)
    return np.concatenate(gates)


def _reshaped(matrix, num_gates, axis):
    """Returns a matrix whose gates are blocks along the other axis; see `Dialect.is_reshaped`."""
    blocks = np.split(matrix, num_gates, axis)
    return np.concatenate([block.reshape(block.shape[::-1]) for block in blocks], 1 - axis)


def _num_parts(dialect, rnn_mode):
    """Returns 2 if the last gate has tensors of its own, else 1."""
    return 2 if dialect.is_joined and rnn_mode == CUDNN_GRU else 1


def _cut(array, num_parts):
    """Returns [array], or [rows of all gates but the last of three, rows of the last]."""
    return [array] if num_parts == 1 else np.split(array, [2 * len(array) // 3])


def _pairs(alone):
    """Returns [(that of W, that of R)] for a last gate with tensors of its own, else []."""
    return [tuple(alone)] if len(alone) else []


def reorder_gates(array: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Returns the rows of `array` with its gates, blocks of rows, in this order."""
    if list(order) == list(range(len(order))):
        return array
    blocks = np.split(array, len(order))
    return np.concatenate([blocks[gate] for gate in order])
