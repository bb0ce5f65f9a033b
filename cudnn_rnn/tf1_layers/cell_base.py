"""`RNNCell`, `MultiRNNCell` and `LSTMStateTuple`, for every TensorFlow.

If TensorFlow has `tf.nn.rnn_cell` (1.x, and 2.x with Keras 2), these are TensorFlow's own classes,
so that its wrappers and `isinstance` work. With Keras 3, TensorFlow lacks them, and this module
defines small replacements that `tf.compat.v1.nn.dynamic_rnn`, `bidirectional_dynamic_rnn` and
`static_rnn` accept.
"""

from __future__ import annotations

import collections
import contextlib
import numbers
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from cudnn_rnn._compat import native_rnn_cell_module, tf
from cudnn_rnn.graph.types import DTypeLike, Nested, ScopeLike, SizeLike, TensorLike
from cudnn_rnn.tf1_layers import keras_guard
from cudnn_rnn.tf1_layers.layer_record import LayerRecord, snake_case


class _FallbackLSTMStateTuple(collections.namedtuple("LSTMStateTuple", ("c", "h"))):
    """State of an LSTM: the cell state `c` and the output `h`, both `[batch, num_units]`."""

    __slots__ = ()

    @property
    def dtype(self) -> tf.DType:
        """The common dtype of `c` and `h`; `TypeError` if the two differ."""
        if self.c.dtype != self.h.dtype:
            raise TypeError(
                "LSTMStateTuple: c and h must have the same dtype, but c has %s and h has %s"
                % (self.c.dtype, self.h.dtype)
            )
        return self.c.dtype


class _FallbackRNNCell(LayerRecord):
    """Base of RNN cells for a TensorFlow without `tf.nn.rnn_cell.RNNCell`.

    A subclass defines `state_size`, `output_size` and `call(inputs, state)`; its `build` creates
    variables with `add_variable`. The first call creates the variables, in a variable scope named
    after the class (`MyCell` -> `my_cell`). The scope that encloses this first call determines
    names, sharing (`reuse`), initializers, partitioners and custom getters.
    """

    def __init__(
        self,
        trainable: bool = True,
        name: Optional[str] = None,
        dtype: Optional[DTypeLike] = None,
        _reuse: Any = None,
    ) -> None:
        scope_name = name or snake_case(type(self).__name__)
        super().__init__(scope_name, dtype)
        self.trainable = trainable
        self.built = False
        self._scope_name = scope_name
        self._reuse = _reuse
        # Bypasses tf.Module, which would add these attributes to object-based checkpoints.
        self.__dict__["_scope"] = None
        self.__dict__["_own_weights"] = []

    @property
    def state_size(self) -> Any:
        """Size of the state, or a (nested) tuple of sizes: each tensor is `[batch, size]`."""
        raise NotImplementedError("%s does not define state_size" % type(self).__name__)

    @property
    def output_size(self) -> Any:
        """Size of the output: the output is `[batch, output_size]`."""
        raise NotImplementedError("%s does not define output_size" % type(self).__name__)

    def build(self, inputs_shape: Nested) -> None:
        """Creates the variables; `inputs_shape` is the static shape `[batch, input_size]`."""
        self.built = True

    def call(self, inputs: Nested, state: Nested) -> Tuple[Nested, Nested]:
        """Computes one step; returns `(output, new_state)`."""
        raise NotImplementedError("%s does not define call" % type(self).__name__)

    def __call__(
        self, inputs: Nested, state: Nested, scope: Optional[ScopeLike] = None
    ) -> Tuple[Nested, Nested]:
        """Runs one step; the first call creates the variables.

        Args:
          inputs: tensor `[batch, input_size]`.
          state: tensor `[batch, state_size]`, or a tuple of them in the structure of `state_size`.
          scope: variable scope, or its name, for the variables; by default the cell's own name.

        Returns:
          `(output, new_state)`; `output` is `[batch, output_size]`, `new_state` is like `state`.

        Raises:
          TypeError: the call is part of a Keras model; see `tf1_layers/keras_guard.py`.
        """
        keras_guard.refuse_inside(self, (inputs, state))
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        if self._dtype is None:
            self._dtype = tf.nest.flatten(inputs)[0].dtype.base_dtype.name
        with self._enter_scope(scope), tf.name_scope(self._scope_name):
            if not self.built:
                self.build(tf.nest.map_structure(lambda tensor: tensor.shape, inputs))
                self.built = True
            outputs = self.call(inputs, state)
        self._remember_call(inputs, outputs)
        return outputs

    @contextlib.contextmanager
    def _enter_scope(self, scope):
        if self._scope is not None:
            # Reuse lets a subclass request its variables in call() as well.
            with tf.variable_scope(self._scope, reuse=self.built, auxiliary_name_scope=False):
                yield
            return
        # With reuse the name must be exact; otherwise a default name is made unique.
        name = self._scope_name if self._reuse and scope is None else scope
        options = {"reuse": self._reuse} if self._reuse else {"default_name": self._scope_name}
        with tf.variable_scope(name, auxiliary_name_scope=False, **options) as entered:
            self.__dict__["_scope"] = entered
            yield

    def _keep_variable(self, variable, is_trainable):
        self._own_weights.append((variable, is_trainable))

    def _weights(self, wanted):
        found = [variable for variable, trainable in self._own_weights if trainable in wanted]
        for cell in self._cells():
            if isinstance(cell, _FallbackRNNCell):
                found.extend(cell._weights(wanted))
                continue
            # A cell of another library, such as tf_keras.
            found.extend(cell.trainable_variables if True in wanted else [])
            found.extend(cell.non_trainable_variables if False in wanted else [])
        return found

    @property
    def variables(self) -> List[tf.Variable]:
        """All variables."""
        return self._weights((True, False))

    @property
    def trainable_variables(self) -> List[tf.Variable]:
        """The variables that are trained."""
        return self._weights((True,))

    @property
    def non_trainable_variables(self) -> List[tf.Variable]:
        """The variables that are not trained."""
        return self._weights((False,))

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    @property
    def scope_name(self) -> str:
        """Name of the variable scope; `ValueError` before the first call."""
        if self._scope is None:
            raise ValueError("%s has no scope_name before it is first called" % self.name)
        return self._scope.name

    def zero_state(self, batch_size: SizeLike, dtype: DTypeLike) -> Nested:
        """Returns zeros in the structure of `state_size`; each tensor is `[batch_size, size]`."""
        with tf.name_scope(type(self).__name__ + "ZeroState"):
            return tf.nest.map_structure(
                lambda size: tf.zeros([batch_size] + tf.TensorShape(size).as_list(), dtype=dtype),
                self.state_size,
            )

    def get_initial_state(
        self,
        inputs: Optional[TensorLike] = None,
        batch_size: Optional[SizeLike] = None,
        dtype: Optional[DTypeLike] = None,
    ) -> Nested:
        """Returns `zero_state` for the batch and dtype of `inputs`, or for those given.

        Args:
          inputs: tensor `[batch, ...]`, or None if `batch_size` and `dtype` are given.
          batch_size: number of sequences. With `inputs`, it must be theirs, if given.
          dtype: of the state. With `inputs`, it must be theirs, if given.

        Raises:
          ValueError: too little is given, or `inputs` has another batch or dtype.
        """
        if inputs is not None:
            inputs = tf.convert_to_tensor(inputs)
            found = tf.compat.dimension_value(inputs.shape[0])
            wanted: Any = batch_size
            if tf.is_tensor(batch_size):
                wanted = tf.get_static_value(batch_size)
            if found is not None and wanted is not None and found != wanted:
                raise ValueError(
                    "batch_size must be the batch of inputs, %s, but is %s" % (found, wanted)
                )
            if dtype is not None and tf.as_dtype(dtype) != inputs.dtype:
                raise ValueError(
                    "dtype must be that of inputs, %s, but is %s"
                    % (inputs.dtype.name, tf.as_dtype(dtype).name)
                )
            batch_size, dtype = tf.shape(inputs)[0] if found is None else found, inputs.dtype
        if batch_size is None or dtype is None:
            raise ValueError(
                "get_initial_state needs inputs, or batch_size and dtype, but batch_size is %r and "
                "dtype is %r" % (batch_size, dtype)
            )
        return self.zero_state(batch_size, dtype)


class _FallbackMultiRNNCell(_FallbackRNNCell):
    """Stacked cells: the output of each cell is the input of the next.

    Variables of layer i are in the scope `multi_rnn_cell/cell_<i>`.

    Args:
      cells: non-empty list of RNN cells; the first reads the inputs.
      state_is_tuple: True: the state is a tuple of the cells' states. False (only for cells with a
        single state tensor): the state is the cells' states concatenated along the last axis.

    Raises:
      TypeError: `cells` is not a list or tuple.
      ValueError: `cells` is empty or contains one cell twice, or `state_is_tuple` is False and a
        cell has several state tensors.
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        super().__init__()
        if not isinstance(cells, (list, tuple)):
            raise TypeError("cells must be a list or tuple of RNN cells, but is %r" % (cells,))
        if not cells:
            raise ValueError("cells must hold at least one cell, but is empty")
        if len({id(cell) for cell in cells}) < len(cells):
            raise ValueError(
                "cells must be different objects, but one is listed twice. Create one cell for "
                "each layer: [cell_class(num_units) for _ in range(num_layers)]."
            )
        self.__dict__["_stacked_cells"] = list(cells)
        self._state_is_tuple = bool(state_is_tuple)
        sizes = [cell.state_size for cell in cells]
        if not state_is_tuple and not all(isinstance(size, numbers.Integral) for size in sizes):
            raise ValueError(
                "state_is_tuple=False needs cells with a single state tensor, but state_size is %r"
                % (sizes,)
            )
        for index, cell in enumerate(cells):
            # TensorFlow's MultiRNNCell has these names in object-based checkpoints.
            setattr(self, "cell-%d" % index, cell)

    def _cells(self):
        return self._stacked_cells

    @property
    def state_size(self) -> Any:
        sizes = tuple(cell.state_size for cell in self._stacked_cells)
        return sizes if self._state_is_tuple else sum(sizes)

    @property
    def output_size(self) -> Any:
        return self._stacked_cells[-1].output_size

    def zero_state(self, batch_size: SizeLike, dtype: DTypeLike) -> Nested:
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        return tuple(cell.zero_state(batch_size, dtype) for cell in self._stacked_cells)

    def call(self, inputs: Nested, state: Nested) -> Tuple[Nested, Nested]:
        if not self._state_is_tuple:
            states = tf.split(state, [cell.state_size for cell in self._stacked_cells], axis=-1)
        elif isinstance(state, (list, tuple)) and len(state) == len(self._stacked_cells):
            states = state
        else:
            raise ValueError(
                "state must be a tuple of %d states, one for each cell, but is %r"
                % (len(self._stacked_cells), state)
            )
        new_states = []
        for index, (cell, cell_state) in enumerate(zip(self._stacked_cells, states)):
            with tf.variable_scope("cell_%d" % index):
                inputs, new_state = cell(inputs, cell_state)
            new_states.append(new_state)
        return inputs, tuple(new_states) if self._state_is_tuple else tf.concat(new_states, -1)


_NATIVE = native_rnn_cell_module()
if TYPE_CHECKING or _NATIVE is None:
    RNNCell = _FallbackRNNCell
    MultiRNNCell = _FallbackMultiRNNCell
    LSTMStateTuple = _FallbackLSTMStateTuple
    # repr() and error messages show the public names.
    RNNCell.__name__ = RNNCell.__qualname__ = "RNNCell"
    MultiRNNCell.__name__ = MultiRNNCell.__qualname__ = "MultiRNNCell"
    LSTMStateTuple.__name__ = LSTMStateTuple.__qualname__ = "LSTMStateTuple"
    layer_call = RNNCell.__call__
else:
    RNNCell = _NATIVE.RNNCell
    MultiRNNCell = _NATIVE.MultiRNNCell
    LSTMStateTuple = _NATIVE.LSTMStateTuple
    # RNNCell.__call__ is for cells that request variables in every call. These cells create theirs
    # once, in build(), like a layer.
    layer_call = tf.layers.Layer.__call__
