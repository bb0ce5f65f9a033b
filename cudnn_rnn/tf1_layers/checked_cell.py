"""`CheckedCell`, the base of this package's cells: their arguments, variables and shape checks."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.arguments import shape_for_build
from cudnn_rnn.graph.config import checked_size
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.texts import described
from cudnn_rnn.graph.types import DTypeLike, Nested, ScopeLike, ShapeLike, SizeLike, TensorLike
from cudnn_rnn.tf1_layers.cell_base import RNNCell, layer_call


class CheckedCell(RNNCell):
    """A cell of `num_units` units that creates its variables once and checks what it is given.

    A subclass defines `_make_variables(input_size)`, `state_size` and `call`.
    """

    def __init__(
        self,
        num_units: SizeLike,
        reuse: Any,
        name: Optional[str] = None,
        dtype: Optional[DTypeLike] = None,
    ) -> None:
        num_units = checked_size("num_units", num_units)
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self._num_units = num_units
        self._input_size: Optional[int] = None

    @property
    def output_size(self) -> int:
        """The output is `[batch, num_units]`."""
        return self._num_units

    def __call__(
        self,
        inputs: TensorLike,
        state: Nested,
        scope: Optional[ScopeLike] = None,
        training: Any = None,
    ) -> Tuple[tf.Tensor, Nested]:
        """Runs one step; the first call creates the variables, with the dtype of `inputs`.

        Args:
          inputs: tensor `[batch, input_size]`; `input_size` must be known statically.
          state: the previous state, with the structure of `zero_state(batch_size, dtype)`.
          scope: variable scope, or its name, for the variables; by default the cell's own name.
          training: ignored, since a step is the same in both. Decoders of tensorflow-addons pass it
            to every cell.

        Returns:
          `(output, new_state)`; `output` is `[batch, num_units]`.

        Raises:
          TypeError: an argument cannot be converted to a tensor.
          ValueError: `inputs` and `state` have incompatible shapes or dtypes.
        """
        del training
        refuse("inputs", inputs)
        if isinstance(inputs, (list, tuple)):
            inputs = tf.convert_to_tensor(inputs)
        parts = self._parts(state)
        for name, part in zip(("state.c", "state.h") if len(parts) == 2 else ("state",), parts):
            refuse(name, part)
        return layer_call(self, inputs, state, scope=scope)

    def build(self, inputs_shape: ShapeLike) -> None:
        """Creates the variables for inputs of static shape `[batch, input_size]`."""
        shape = shape_for_build(inputs_shape)
        if shape.ndims not in (None, 2):
            raise ValueError(
                "inputs of %s must have shape [batch, input_size], but has shape %s"
                % (type(self).__name__, shape)
            )
        self._input_size = shape.as_list()[-1] if shape.ndims else None
        if self._input_size is None:
            raise ValueError(
                "inputs of %s must have a last dimension that is known when the graph is built, "
                "but has shape %s. Set it with inputs.set_shape." % (type(self).__name__, shape)
            )
        self._make_variables(self._input_size)
        self.built = True

    def _make_variables(self, input_size):
        raise NotImplementedError

    def _make_variable(self, name, shape, initializer=None):
        # The attribute name gives it the same object-based checkpoint key in every TensorFlow.
        setattr(self, name, self.add_variable(name, shape=shape, initializer=initializer))

    def _check_tensor(self, argument, tensor, inputs, size):
        """Raises `ValueError` unless `tensor` is `[batch, size]` and matches `inputs`."""
        shape = tf.TensorShape(tensor.shape)
        batch = tf.TensorShape(inputs.shape).as_list()[0] if inputs.shape.ndims else None
        if not shape.is_compatible_with([batch, size]):
            expected = "[%s, %d]" % ("batch" if batch is None else batch, size)
            meaning = "input_size" if tensor is inputs else "num_units"
            raise ValueError(
                "%s of %s must have shape %s ([batch, %s]), but has shape %s"
                % (argument, type(self).__name__, expected, meaning, shape)
            )
        wanted, found = inputs.dtype.base_dtype.name, tensor.dtype.base_dtype.name
        if found != wanted:
            raise ValueError(
                "%s of %s must have the dtype of inputs, %s, but has %s"
                % (argument, type(self).__name__, wanted, found)
            )

    def _parts(self, state):
        """Returns the tensors of a state; `ValueError` if it has not as many as `state_size`."""
        is_list = isinstance(state, (list, tuple))
        is_pair = isinstance(self.state_size, (list, tuple))
        if is_list and len(state) == (2 if is_pair else 1):
            return list(state)
        if is_list or is_pair:
            expected = "a pair (c, h)" if is_pair else "one tensor"
            raise ValueError(
                "state of %s must be %s, but is %s"
                % (type(self).__name__, expected, described(state))
            )
        return [state]

    def _pair_of_states(self, inputs, state):
        """Returns `(c, h)` as tensors; raises `ValueError` unless they fit the inputs."""
        memory, previous = (tf.convert_to_tensor(part) for part in self._parts(state))
        self._check_tensor("inputs", inputs, inputs, self._input_size)
        self._check_tensor("state.c", memory, inputs, self._num_units)
        self._check_tensor("state.h", previous, inputs, self._num_units)
        return memory, previous

    def _single_state(self, inputs, state):
        """Returns the state as one tensor; raises `ValueError` unless it fits the inputs."""
        previous = tf.convert_to_tensor(self._parts(state)[0])
        self._check_tensor("inputs", inputs, inputs, self._input_size)
        self._check_tensor("state", previous, inputs, self._num_units)
        return previous
