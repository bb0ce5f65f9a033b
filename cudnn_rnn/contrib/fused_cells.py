"""Cells of `tf.contrib.rnn` that compute whole sequences: `LSTMBlockFusedCell`, and time reversed.

Names of variables, defaults and results are those of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

from cudnn_rnn._compat import tf
from cudnn_rnn.contrib.block_cells import lstm_attributes, make_lstm_variables, peepholes_of
from cudnn_rnn.graph.arguments import shape_for_build
from cudnn_rnn.graph.config import checked_size
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.texts import described
from cudnn_rnn.graph.types import DTypeLike, Nested, ScopeLike, ShapeLike, SizeLike, TensorLike
from cudnn_rnn.tf1_layers.cell_base import LSTMStateTuple
from cudnn_rnn.tf1_layers.layer_base import Layer

__all__ = ["LSTMBlockFusedCell", "TimeReversedFusedRNN"]

# A tensor [time, batch, width], or a list of tensors [batch, width], one for each time step.
Sequence = Union[TensorLike, List[TensorLike]]


class LSTMBlockFusedCell(Layer):
    """`tf.contrib.rnn.LSTMBlockFusedCell`: an LSTM layer that is one op for the whole sequence.

    Variables, in the scope `lstm_fused_cell`, are those of `LSTMBlockCell`: `kernel`, `bias`, and
    with `use_peephole` `w_i_diag`, `w_f_diag` and `w_o_diag`.

    Args:
      num_units: number of units, at least 1.
      forget_bias: number that is added to the bias of the forget gate.
      cell_clip: limit of the cell state's absolute value; None or a negative number for no limit.
      use_peephole: whether the gates also see the cell state.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.
      dtype: dtype of the variables; by default that of the inputs.
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
        reuse: Any = None,
        dtype: Optional[DTypeLike] = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        attributes = lstm_attributes(forget_bias, cell_clip, use_peephole)
        num_units = checked_size("num_units", num_units)
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self._num_units = num_units
        self._forget_bias, self._cell_clip, self._use_peephole = attributes

    @property
    def num_units(self) -> int:
        """Number of units, an int."""
        return self._num_units

    def build(self, input_shape: ShapeLike) -> None:
        """Creates the variables for inputs of static shape `[time, batch, input_size]`."""
        shape = shape_for_build(input_shape)
        if shape.ndims != 3 or shape.as_list()[2] is None:
            raise ValueError(
                "inputs of %s must have shape [time, batch, input_size] with an input_size that is "
                "known when the graph is built, but has shape %s." % (type(self).__name__, shape)
            )
        input_size = shape.as_list()[2]
        make_lstm_variables(self._make_variable, input_size, self._num_units, self._use_peephole)
        self.built = True

    def _make_variable(self, name, shape, initializer=None):
        setattr(self, name, self.add_variable(name, shape=shape, initializer=initializer))

    def call(
        self,
        inputs: Sequence,
        initial_state: Optional[Nested] = None,
        dtype: Optional[DTypeLike] = None,
        sequence_length: Optional[TensorLike] = None,
    ) -> Tuple[Sequence, LSTMStateTuple]:
        """Computes a batch of sequences.

        Args:
          inputs: tensor `[time, batch, input_size]`, or a list of tensors `[batch, input_size]`.
          initial_state: pair `(c, h)` of tensors `[batch, num_units]`; by default zeros of `dtype`.
          dtype: dtype of the initial state; required without `initial_state`.
          sequence_length: integers `[batch]`, from 0 to the number of time steps, which is the
            default. Outputs after the end of a sequence are zero.

        Returns:
          `(outputs, LSTMStateTuple(c, h))`; `outputs` is `[time, batch, num_units]`, a list if
          `inputs` is one. The state is that of the last step of each sequence.

        Raises:
          ValueError: a shape is wrong, or neither `initial_state` nor `dtype` is given.
        """
        is_list = isinstance(inputs, (list, tuple))
        inputs = tf.convert_to_tensor(inputs)
        memory, previous = self._initial_state(inputs, initial_state, dtype)
        if sequence_length is None:
            memories, outputs = self._run(inputs, memory, previous, tf.shape(inputs)[0])
            state = LSTMStateTuple(memories[-1], outputs[-1])
        else:
            lengths = tf.cast(sequence_length, tf.int32)
            memories, outputs = self._run(inputs, memory, previous, tf.reduce_max(lengths))
            mask = tf.sequence_mask(lengths, tf.shape(inputs)[0], dtype=outputs.dtype)
            outputs *= tf.transpose(mask)[:, :, tf.newaxis]
            state = LSTMStateTuple(
                _at_the_end(memory, memories, lengths), _at_the_end(previous, outputs, lengths)
            )
        return (tf.unstack(outputs) if is_list else outputs), state

    def _initial_state(self, inputs, initial_state, dtype):
        """Returns `(c, h)` as tensors."""
        name = type(self).__name__
        batch = inputs.shape.as_list()[1]
        if initial_state is None:
            if dtype is None:
                raise ValueError(
                    "Neither initial_state nor dtype of %s is given. Pass dtype=inputs.dtype to "
                    "start with zeros." % name
                )
            zeros = tf.zeros([tf.shape(inputs)[1], self._num_units], dtype)
            return zeros, zeros
        if not isinstance(initial_state, (list, tuple)) or len(initial_state) != 2:
            raise ValueError(
                "initial_state of %s must be a pair (c, h), but is %s."
                % (name, described(initial_state))
            )
        for part, value in zip("ch", initial_state):
            refuse("initial_state.%s" % part, value)
        pair = [tf.convert_to_tensor(part) for part in initial_state]
        for part, tensor in zip("ch", pair):
            if not tensor.shape.is_compatible_with([batch, self._num_units]):
                raise ValueError(
                    "initial_state.%s of %s has shape %s; expected [batch, num_units] = [%s, %d]."
                    % (
                        part,
                        name,
                        tensor.shape,
                        "batch" if batch is None else batch,
                        self._num_units,
                    )
                )
        return pair

    def _run(self, inputs, memory, previous, num_steps):
        """Returns the cell states and the outputs of all steps, both `[time, batch, num_units]`."""
        # BlockLSTMV2 has another order of gates, and no forget bias.
        results = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(num_steps, tf.int64),
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
        return results.cs, results.h


def _at_the_end(first, values, lengths):
    """Returns the value after each sequence's last step; `first` for a sequence of length 0."""
    after_steps = tf.concat([first[tf.newaxis], values], 0)
    return tf.gather_nd(after_steps, tf.stack([lengths, tf.range(tf.shape(lengths)[0])], 1))


class TimeReversedFusedRNN:
    """`tf.contrib.rnn.TimeReversedFusedRNN`: runs a cell of whole sequences backwards in time.

    Args:
      cell: `LSTMBlockFusedCell`, or another callable of the same arguments.
    """

    def __init__(self, cell: Callable[..., Any]) -> None:
        if not callable(cell):
            raise TypeError("cell must be callable, such as LSTMBlockFusedCell, but is %r." % cell)
        self._cell = cell

    def __call__(
        self,
        inputs: Sequence,
        initial_state: Optional[Nested] = None,
        dtype: Optional[DTypeLike] = None,
        sequence_length: Optional[TensorLike] = None,
        scope: Optional[ScopeLike] = None,
    ) -> Tuple[Sequence, Nested]:
        """Reverses the inputs, calls the cell with all arguments, and reverses the outputs.

        A tensor is reversed within `sequence_length`; a list is reversed as a whole, as in
        TensorFlow 1.15.

        Returns:
          `(outputs, state)`; the state is that of the first time step.
        """
        outputs, state = self._cell(
            _reversed(inputs, sequence_length),
            initial_state=initial_state,
            dtype=dtype,
            sequence_length=sequence_length,
            scope=scope,
        )
        return _reversed(outputs, sequence_length), state


def _reversed(sequence, lengths):
    if isinstance(sequence, list):
        return sequence[::-1]
    if lengths is None:
        return tf.reverse(sequence, [0])
    return tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1)
