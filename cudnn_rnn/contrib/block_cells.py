"""The block cells of `tf.contrib.rnn`: one op for each step of an LSTM or a GRU.

Names of variables, defaults and results are those of TensorFlow 1.15. The ops belong to every
TensorFlow; `block_gradients` has the gradients that TensorFlow 2 lacks.
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Dict, Optional, Tuple

from cudnn_rnn._compat import tf
from cudnn_rnn.contrib import block_gradients
from cudnn_rnn.graph.types import DTypeLike, Nested, SizeLike
from cudnn_rnn.tf1_layers.cell_base import LSTMStateTuple
from cudnn_rnn.tf1_layers.checked_cell import CheckedCell

__all__ = ["GRUBlockCell", "GRUBlockCellV2", "LSTMBlockCell"]

# Negative values turn clipping off.
_NO_CLIPPING = -1.0
# The arguments of the ops, and the names of the variables.
_PEEPHOLES = {"wci": "w_i_diag", "wcf": "w_f_diag", "wco": "w_o_diag"}

block_gradients.register()


def lstm_attributes(
    forget_bias: float, cell_clip: Optional[float], use_peephole: bool
) -> Tuple[float, float, bool]:
    """Returns the attributes of the LSTM ops; raises `TypeError` for what is no number."""
    _check_number("forget_bias", forget_bias, "a number")
    if cell_clip is None:
        cell_clip = _NO_CLIPPING
    _check_number("cell_clip", cell_clip, "a number, or None for no clipping")
    return float(forget_bias), float(cell_clip), bool(use_peephole)


def _check_number(name, value, expected):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError("%s must be %s, but is %r." % (name, expected, value))


def make_lstm_variables(
    make: Callable[..., None], input_size: int, num_units: int, use_peephole: bool
) -> None:
    """Makes the variables of an LSTM by `make(name, shape, initializer)`."""
    make("kernel", [input_size + num_units, 4 * num_units])
    make("bias", [4 * num_units], tf.constant_initializer(0.0))
    for name in _PEEPHOLES.values() if use_peephole else ():
        make(name, [num_units])


def peepholes_of(cell: Any, dtype: tf.DType) -> Dict[str, Any]:
    """Returns the peepholes of an LSTM as arguments of its op; zeros if it has none."""
    if not cell._use_peephole:
        return dict.fromkeys(_PEEPHOLES, tf.zeros([cell._num_units], dtype))
    return {argument: getattr(cell, name) for argument, name in _PEEPHOLES.items()}


class LSTMBlockCell(CheckedCell):
    """`tf.contrib.rnn.LSTMBlockCell`: an LSTM cell that is one op.

    Variables, in the scope `lstm_cell`, the same as of `tf.nn.rnn_cell.LSTMCell`:

    - `kernel` `[input_size + num_units, 4 * num_units]`: rows of the inputs, then of the previous
      output; columns in the gate order input, new memory, forget, output;
    - `bias` `[4 * num_units]`, initially zero;
    - `w_i_diag`, `w_f_diag`, `w_o_diag` `[num_units]` with `use_peephole`.

    Args:
      num_units: number of units, at least 1.
      forget_bias: number that is added to the bias of the forget gate.
      cell_clip: limit of the cell state's absolute value; None or a negative number for no limit.
      use_peephole: whether the gates also see the cell state.
      dtype: dtype of the variables; by default that of the inputs.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.
      name: name of the variable scope.

    Raises:
      TypeError: `num_units` is not an integer, or `forget_bias` or `cell_clip` no number.
      ValueError: `num_units` is below 1.
    """

    def __init__(
        self,
        num_units: SizeLike,
        forget_bias: float = 1.0,
        cell_clip: Optional[float] = None,
        use_peephole: bool = False,
        dtype: Optional[DTypeLike] = None,
        reuse: Any = None,
        name: str = "lstm_cell",
    ) -> None:
        attributes = lstm_attributes(forget_bias, cell_clip, use_peephole)
        super().__init__(num_units, reuse, name, dtype)
        self._forget_bias, self._cell_clip, self._use_peephole = attributes

    @property
    def state_size(self) -> LSTMStateTuple:
        """The state is `LSTMStateTuple(c, h)`, both `[batch, num_units]`."""
        return LSTMStateTuple(self._num_units, self._num_units)

    def _make_variables(self, input_size):
        make_lstm_variables(self._make_variable, input_size, self._num_units, self._use_peephole)

    def call(self, inputs: tf.Tensor, state: Nested) -> Tuple[tf.Tensor, LSTMStateTuple]:
        """Computes one step from `inputs`, `[batch, input_size]`.

        `state` is `LSTMStateTuple(c, h)` or a pair, both `[batch, num_units]`; so is the second
        part of the result, `(h, LSTMStateTuple(c, h))`. Raises the errors of `__call__`.
        """
        memory, previous = self._pair_of_states(inputs, state)
        results = tf.raw_ops.LSTMBlockCell(
            x=inputs,
            cs_prev=memory,
            h_prev=previous,
            w=self.kernel,
            b=self.bias,
            **peepholes_of(self, inputs.dtype),
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        return results.h, LSTMStateTuple(results.cs, results.h)


class GRUBlockCell(CheckedCell):
    """`tf.contrib.rnn.GRUBlockCell`: a GRU cell that is one op.

    It computes what `tf.nn.rnn_cell.GRUCell` computes. Variables, in the scope `gru_cell`:

    - `w_ru` `[input_size + num_units, 2 * num_units]`: rows of the inputs, then of the previous
      output; columns of the reset gate, then of the update gate; `b_ru` `[2 * num_units]`,
      initially one;
    - `w_c` `[input_size + num_units, num_units]` and `b_c` `[num_units]`, initially zero, of the
      candidate.

    Args:
      num_units: number of units, at least 1.
      cell_size: old name of `num_units`.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.
      name: name of the variable scope.

    Raises:
      TypeError: `num_units` is not an integer.
      ValueError: `num_units` is below 1, or not exactly one of `num_units` and `cell_size` is
        given.
    """

    # The names of the variables: kernel and bias of the gates, kernel and bias of the candidate.
    _variable_names: Tuple[str, ...] = ("w_ru", "b_ru", "w_c", "b_c")

    def __init__(
        self,
        num_units: Optional[SizeLike] = None,
        cell_size: Optional[SizeLike] = None,
        reuse: Any = None,
        name: str = "gru_cell",
    ) -> None:
        if (num_units is None) == (cell_size is None):
            raise ValueError(
                "Exactly one of num_units and cell_size, its old name, must be given, but "
                "num_units is %r and cell_size is %r. Pass num_units alone."
                % (num_units, cell_size)
            )
        super().__init__(cell_size if num_units is None else num_units, reuse, name)

    @property
    def state_size(self) -> int:
        """The state is one tensor `[batch, num_units]`."""
        return self._num_units

    def _make_variables(self, input_size):
        rows = input_size + self._num_units
        of_gates, of_candidate = self._variable_names[:2], self._variable_names[2:]
        self._make_projection(of_gates, rows, 2 * self._num_units, 1.0)
        self._make_projection(of_candidate, rows, self._num_units, 0.0)

    def _make_projection(self, names, input_width, output_width, first_bias):
        self._make_variable(names[0], [input_width, output_width])
        self._make_variable(names[1], [output_width], tf.constant_initializer(first_bias))

    def call(self, inputs: tf.Tensor, state: Nested) -> Tuple[tf.Tensor, tf.Tensor]:
        """Computes one step from `inputs`, `[batch, input_size]`.

        `state` is the previous output, `[batch, num_units]`; so are both parts of the result,
        `(h, h)`. Raises the errors of `__call__`.
        """
        previous = self._single_state(inputs, state)
        w_ru, b_ru, w_c, b_c = (getattr(self, name) for name in self._variable_names)
        output = tf.raw_ops.GRUBlockCell(
            x=inputs, h_prev=previous, w_ru=w_ru, w_c=w_c, b_ru=b_ru, b_c=b_c
        ).h
        return output, output


class GRUBlockCellV2(GRUBlockCell):
    """`tf.contrib.rnn.GRUBlockCellV2`: `GRUBlockCell` with the variables of `GRUCell`.

    They are `gates/kernel`, `gates/bias`, `candidate/kernel` and `candidate/bias`.
    """

    _variable_names = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")
