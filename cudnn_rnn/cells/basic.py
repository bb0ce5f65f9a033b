"""`BasicRNNCell` and `stack_bidirectional_dynamic_rnn`, for every TensorFlow.

`BasicRNNCell` is TensorFlow's own class if TensorFlow has it. The cell runs a model that was
trained with `CudnnRNNTanh` (or `CudnnRNNRelu`, using `activation=tf.nn.relu`) and saved in
canonical form, one step at a time. Simple RNNs need no separate cuDNN-compatible cell, because the
cell computes the same formula:

    h = activation(W x + R h' + b),  b the sum of cuDNN's two biases.

`stack_bidirectional_dynamic_rnn`, formerly in `tf.contrib.rnn`, restores the checkpoints of
bidirectional RNNs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, Union

from cudnn_rnn._compat import native_rnn_cell_module, tf
from cudnn_rnn.graph.arguments import shape_for_build
from cudnn_rnn.graph.config import checked_size
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.types import DTypeLike, Nested, ScopeLike, ShapeLike, SizeLike, TensorLike
from cudnn_rnn.tf1_layers.cell_base import RNNCell

__all__ = ["BasicRNNCell", "stack_bidirectional_dynamic_rnn"]


class _FallbackBasicRNNCell(RNNCell):
    """The simplest RNN cell: `activation(concat(inputs, state) kernel + bias)`.

    Variables, in the scope `basic_rnn_cell`: `kernel` `[input_size + num_units, num_units]`, with
    the rows of the inputs first, and `bias` `[num_units]`, initially zero.

    Args:
      num_units: number of units, at least 1.
      activation: function of a tensor, or the name of one in `tf.nn`; `tf.tanh` by default.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.
      name: name of the cell and of its variable scope.
      dtype: dtype of the variables; by default that of the inputs.

    Raises:
      TypeError: `num_units` is not an integer, or `activation` is not a function.
      ValueError: `num_units` is below 1.
    """

    def __init__(
        self,
        num_units: SizeLike,
        activation: Union[str, Callable[[tf.Tensor], tf.Tensor], None] = None,
        reuse: Any = None,
        name: Optional[str] = None,
        dtype: Optional[DTypeLike] = None,
    ) -> None:
        num_units = checked_size("num_units", num_units)
        if isinstance(activation, str):
            activation = getattr(tf.nn, activation, activation)
        if activation is not None and not callable(activation):
            raise TypeError("activation must be a function of a tensor, but is %r" % (activation,))
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._num_units = num_units
        self._activation = activation or tf.tanh

    @property
    def state_size(self) -> int:
        """The state is one tensor `[batch, num_units]`."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """The output is `[batch, num_units]`."""
        return self._num_units

    def __call__(
        self, inputs: TensorLike, state: TensorLike, scope: Optional[ScopeLike] = None
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """Runs one step; see the base class."""
        refuse("inputs", inputs)
        refuse("state", state)
        return super().__call__(inputs, state, scope)

    def build(self, inputs_shape: ShapeLike) -> None:
        """Creates the variables for inputs of static shape `[batch, input_size]`."""
        input_size = shape_for_build(inputs_shape).with_rank(2).as_list()[1]
        if input_size is None:
            raise ValueError(
                "inputs of BasicRNNCell must have a last dimension that is known when the graph is "
                "built, but has shape %s. Set it with inputs.set_shape." % (inputs_shape,)
            )
        units = self._num_units
        self.kernel = self.add_variable("kernel", [input_size + units, units])
        self.bias = self.add_variable("bias", [units], initializer=tf.zeros_initializer())
        self.built = True

    def call(self, inputs: tf.Tensor, state: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """Computes one step from `[batch, input_size]` and `[batch, num_units]`: `(h, h)`."""
        joined = tf.concat([inputs, state], 1)
        output = self._activation(tf.nn.bias_add(tf.matmul(joined, self.kernel), self.bias))
        return output, output


_NATIVE = native_rnn_cell_module()
if TYPE_CHECKING or _NATIVE is None:
    BasicRNNCell = _FallbackBasicRNNCell
    BasicRNNCell.__name__ = BasicRNNCell.__qualname__ = "BasicRNNCell"
else:
    BasicRNNCell = _NATIVE.BasicRNNCell


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: TensorLike,
    initial_states_fw: Optional[Sequence[Nested]] = None,
    initial_states_bw: Optional[Sequence[Nested]] = None,
    dtype: Optional[DTypeLike] = None,
    sequence_length: Optional[TensorLike] = None,
    parallel_iterations: Optional[int] = None,
    time_major: bool = False,
    scope: Optional[ScopeLike] = None,
    swap_memory: bool = False,
) -> Tuple[tf.Tensor, Tuple[Nested, ...], Tuple[Nested, ...]]:
    """Runs stacked bidirectional layers; each reads both directions' outputs of the layer below.

    Variables of layer i are in `stack_bidirectional_rnn/cell_<i>/bidirectional_rnn/{fw,bw}`.

    Args:
      cells_fw: list of RNN cells, one per layer; the first reads the inputs.
      cells_bw: list of cells for the backward direction, as long as `cells_fw`.
      inputs: `[batch, time, input_size]`, or `[time, batch, input_size]` if `time_major`.
      initial_states_fw: list of initial states, one per layer; None for zeros.
      initial_states_bw: likewise.
      dtype: dtype of the initial states; required if they are not given.
      sequence_length: int32 or int64 `[batch]`; outputs after a sequence's length are 0. None if
        all steps are valid.
      parallel_iterations: passed to the loops, as in `tf.nn.dynamic_rnn`.
      time_major: whether time is the first dimension of inputs and output.
      scope: variable scope or its name, instead of "stack_bidirectional_rnn".
      swap_memory: passed to the loops, as in `tf.nn.dynamic_rnn`.

    Returns:
      `(output, states_fw, states_bw)`. `output` is the last layer's, `[batch, time, 2 *
      output_size]` (or time first), forward then backward; the others are tuples of each layer's
      final state.

    Raises:
      ValueError: cells or states are not lists, or the lists are empty or differ in length.
    """
    num_layers = _checked_length("cells_fw", cells_fw, None)
    _checked_length("cells_bw", cells_bw, num_layers)
    if initial_states_fw is not None:
        _checked_length("initial_states_fw", initial_states_fw, num_layers)
    if initial_states_bw is not None:
        _checked_length("initial_states_bw", initial_states_bw, num_layers)
    refuse("inputs", inputs, "sequence_length")
    inputs = tf.convert_to_tensor(inputs)
    none = [None] * num_layers
    states_fw, states_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        layers = zip(cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none)
        for layer, (cell_fw, cell_bw, initial_fw, initial_bw) in enumerate(layers):
            with tf.variable_scope("cell_%d" % layer):
                outputs, states = tf.nn.bidirectional_dynamic_rnn(
                    cell_fw,
                    cell_bw,
                    inputs,
                    initial_state_fw=initial_fw,
                    initial_state_bw=initial_bw,
                    sequence_length=sequence_length,
                    dtype=dtype,
                    parallel_iterations=parallel_iterations,
                    swap_memory=swap_memory,
                    time_major=time_major,
                )
                inputs = tf.concat(outputs, 2)
            states_fw.append(states[0])
            states_bw.append(states[1])
    return inputs, tuple(states_fw), tuple(states_bw)


def _checked_length(name, values, expected):
    """Checks a list; returns its length."""
    if not isinstance(values, (list, tuple)):
        raise ValueError("%s must be a list, one item for each layer, but is %r" % (name, values))
    if not values:
        raise ValueError("%s must have an item for each layer, but is empty" % name)
    if expected is not None and len(values) != expected:
        raise ValueError(
            "%s must have as many items as cells_fw, %d, but has %d" % (name, expected, len(values))
        )
    return len(values)
