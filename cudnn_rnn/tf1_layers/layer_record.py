"""`LayerRecord`: the record of its calls that a TensorFlow 1 layer keeps, for other versions.

The cells and the layers inherit what they had as TensorFlow 1 layers: creation of variables,
losses, updates, inputs and outputs of calls, and copying.
"""

from __future__ import annotations

import contextlib
import copy
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.texts import shape_text
from cudnn_rnn.graph.types import DTypeLike, Initializer, Nested, ShapeLike, TensorLike
from cudnn_rnn.tf1_layers import keras_guard


def snake_case(name):
    """Returns the name of a class's layers, which keys of checkpoints have, as in TensorFlow 1.15.

    For example, `CudnnCompatibleLSTMCell` becomes `cudnn_compatible_lstm_cell`, `My2LSTM` becomes
    `my2lstm`, and `_My` becomes `private__my`.
    """
    for boundary in ("(.)([A-Z][a-z0-9]+)", "([a-z])([A-Z])"):
        name = re.sub(boundary, r"\1_\2", name)
    return ("private" if name.startswith("_") else "") + name.lower()


def _named_initializer(name):
    """Returns the initializer of a name such as "glorot_uniform", with its default arguments."""
    # Other names of tf.initializers are functions that initialize all variables.
    classes = {key: made for key, made in vars(tf.initializers).items() if isinstance(made, type)}
    if name not in classes:
        raise ValueError(
            "initializer must be an initializer or one of %s, but is %r"
            % (", ".join(sorted(classes)), name)
        )
    return classes[name]()


class LayerRecord(tf.Module):
    """Base of layers that record losses, updates, and the inputs and outputs of calls.

    A subclass has `trainable`, `variables` and `_scope` (a variable scope or None), calls
    `_remember_call` after each call, and defines `_keep_variable`. Nothing inside a `tf.function`
    is recorded: code outside cannot use its tensors, and the layer must not keep the function's
    graph alive.
    """

    def __init__(self, name: str, dtype: Optional[DTypeLike]) -> None:
        # tf.Module opens a name scope. In the default graph, that would use up the name.
        with _scratch_graph(name) as unique_name:
            super().__init__(name=unique_name)
        self._name = name
        self._dtype: Optional[str] = None if dtype is None else tf.as_dtype(dtype).name
        # Bypasses tf.Module, which would add these names to object-based checkpoints.
        self.__dict__["_calls"] = []  # (inputs, outputs), lists of tensors
        self.__dict__["_added_losses"] = []  # (tensor, `_key` of its inputs)
        self.__dict__["_added_updates"] = []  # (operation, `_key` of its inputs)
        self.__dict__["_graph"] = None

    @property
    def _keras_history(self):
        # keras.Sequential looks up this attribute of every object it is given.
        keras_guard.refuse(self, "it was added to keras.Sequential")

    def _cells(self):
        """Returns the inner layers, whose losses, updates and variables belong to this layer."""
        return []

    @property
    def dtype(self) -> Optional[str]:
        """Name of the variables' dtype; None if it was not given and is not known yet."""
        return self._dtype

    # --- Losses and updates ---

    activity_regularizer: Any = None

    @property
    def losses(self) -> List[tf.Tensor]:
        """The regularization losses of the variables, and the losses given to `add_loss`."""
        return [loss for loss, _ in self._all_pairs("_added_losses")]

    @property
    def updates(self) -> List[tf.Operation]:
        """The operations given to `add_update`."""
        return [update for update, _ in self._all_pairs("_added_updates")]

    def add_loss(
        self, losses: Union[tf.Tensor, Sequence[tf.Tensor]], inputs: Nested = None
    ) -> None:
        """Adds loss tensors to `losses` and to `tf.GraphKeys.REGULARIZATION_LOSSES`.

        Args:
          losses: a tensor, or a list of them.
          inputs: the tensors that the losses depend on, or None; see `get_losses_for`.
        """
        _refuse_when_eager("add_loss")
        added = _as_list(losses)
        self._added_losses.extend((loss, _key(inputs)) for loss in added)
        _add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, added)

    def add_update(
        self, updates: Union[tf.Operation, Sequence[tf.Operation]], inputs: Nested = None
    ) -> None:
        """Adds operations to `updates` and to `tf.GraphKeys.UPDATE_OPS`; see `add_loss`."""
        _refuse_when_eager("add_update")
        added = _as_list(updates)
        self._added_updates.extend((update, _key(inputs)) for update in added)
        _add_to_collection(tf.GraphKeys.UPDATE_OPS, added)

    def get_losses_for(self, inputs: Nested) -> List[tf.Tensor]:
        """Returns the losses that were added with the same `inputs` (tensors or None)."""
        return [loss for loss, key in self._all_pairs("_added_losses") if key == _key(inputs)]

    def get_updates_for(self, inputs: Nested) -> List[tf.Operation]:
        """Returns the updates that were added with the same `inputs` (tensors or None)."""
        return [update for update, key in self._all_pairs("_added_updates") if key == _key(inputs)]

    def _all_pairs(self, attribute):
        pairs = list(getattr(self, attribute))
        for cell in self._cells():
            added = getattr(cell, "_all_pairs", None)
            pairs.extend(added(attribute) if added else [])
        return pairs

    # --- Variables ---

    def add_variable(
        self,
        name: str,
        shape: ShapeLike,
        dtype: Optional[DTypeLike] = None,
        initializer: Union[None, str, Initializer] = None,
        regularizer: Optional[Callable[[tf.Tensor], Any]] = None,
        trainable: Optional[bool] = None,
        constraint: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
        use_resource: Optional[bool] = None,
        synchronization: tf.VariableSynchronization = tf.VariableSynchronization.AUTO,
        aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
        partitioner: Optional[Callable[..., Any]] = None,
    ) -> tf.Variable:
        """Creates (or, in a reusing scope, finds) the variable `<scope of this layer>/<name>`.

        Args:
          name, shape, regularizer, constraint, use_resource, synchronization, aggregation,
            partitioner: see `tf.get_variable`.
          initializer: as for `tf.get_variable`, or the name of one in `tf.initializers`.
          dtype: dtype of the variable; the layer's, or else float32, by default.
          trainable: whether the variable is trained if the layer is; by default, True unless
            `synchronization` is ON_READ.

        Returns:
          The variable, which is also in the layer's lists of variables.

        Raises:
          ValueError: the scope reuses variables and has none of this name, or does not reuse them
            and has one already; `trainable` is True with ON_READ; or no initializer has the name.
        """
        if trainable is None:
            trainable = synchronization != tf.VariableSynchronization.ON_READ
        is_trainable = bool(trainable and self.trainable)
        if isinstance(initializer, str):
            initializer = _named_initializer(initializer)
        with self._scope_of_variables():
            variable = self._remember_regularization(
                lambda: tf.get_variable(
                    name,
                    shape=shape,
                    dtype=tf.as_dtype(dtype or self._dtype or tf.float32),
                    initializer=initializer,
                    regularizer=regularizer,
                    trainable=is_trainable,
                    constraint=constraint,
                    use_resource=use_resource,
                    synchronization=synchronization,
                    aggregation=aggregation,
                    partitioner=partitioner,
                )
            )
        self._keep_variable(variable, is_trainable)
        return variable

    add_weight = add_variable

    def _scope_of_variables(self):
        """Returns a context for `add_variable`. Cells call it in their own scope."""
        return contextlib.nullcontext()

    def _keep_variable(self, variable, is_trainable):
        """Adds a new variable to `variables`."""
        raise NotImplementedError("%s does not keep variables" % type(self).__name__)

    def _remember_regularization(self, make_variable):
        """Calls `make_variable`, and records the losses that the variable's regularizer adds."""
        if _makes_short_lived_tensors():
            return make_variable()
        collected = tf.get_collection_ref(tf.GraphKeys.REGULARIZATION_LOSSES)
        num_before = len(collected)
        variable = make_variable()
        self._added_losses.extend((loss, None) for loss in collected[num_before:])
        return variable

    # --- Calls ---

    def _remember_call(self, inputs, outputs):
        if _makes_short_lived_tensors():
            return
        if self._graph is None:
            self.__dict__["_graph"] = tf.get_default_graph()
        self._calls.append((tf.nest.flatten(inputs), tf.nest.flatten(outputs)))

    @property
    def graph(self) -> Optional[tf.Graph]:
        """The graph of the first call outside a `tf.function`; None before that call."""
        _refuse_when_eager("graph")
        return self._graph

    def get_input_at(self, node_index: int) -> Nested:
        """Returns the input of call number `node_index`: a tensor, or a list of several."""
        return _single(self._call_at(node_index, "input")[0])

    def get_output_at(self, node_index: int) -> Nested:
        """Returns a call's output and new states: a list, or a tensor if there is only one."""
        return _single(self._call_at(node_index, "output")[1])

    def get_input_shape_at(self, node_index: int) -> Nested:
        """Returns the static shape of a call's input: a tuple, or a list of several."""
        return _single(_shapes(self._call_at(node_index, "input shape")[0]))

    def get_output_shape_at(self, node_index: int) -> Nested:
        """Returns the static shapes of a call's outputs: a list of tuples, or a single tuple."""
        return _single(_shapes(self._call_at(node_index, "output shape")[1]))

    @property
    def input(self) -> Nested:
        """The input of the only call; raises `AttributeError` unless there was exactly one."""
        return _single(self._only_call("input")[0])

    @property
    def output(self) -> Nested:
        """The output and new states of the only call; see `get_output_at` and `input`."""
        return _single(self._only_call("output")[1])

    @property
    def input_shape(self) -> Nested:
        """The static shape of the input, a tuple, if all calls have the same."""
        return self._only_shape("input", 0)

    @property
    def output_shape(self) -> Nested:
        """The static shapes of the outputs, if all calls have the same."""
        return self._only_shape("output", 1)

    def _call_at(self, index, what):
        _refuse_when_eager(what)
        if not self._calls:
            raise RuntimeError("%s has no %s before its first call." % (self.name, what))
        if not -len(self._calls) <= index < len(self._calls):
            raise ValueError(
                "%s has no %s of the call with index %d: it was called %d times."
                % (self.name, what, index, len(self._calls))
            )
        return self._calls[index]

    def _only_call(self, what):
        _refuse_when_eager(what)
        if len(self._calls) != 1:
            raise AttributeError(
                "%s was called %d times, but has a single %s only after exactly one call. Use "
                "get_%s_at(0) for the first call." % (self.name, len(self._calls), what, what)
            )
        return self._calls[0]

    def _only_shape(self, what, place):
        _refuse_when_eager(what + "_shape")
        shapes = [_shapes(call[place]) for call in self._calls]
        if not shapes or any(shape != shapes[0] for shape in shapes):
            raise AttributeError(
                "%s has been called with %s, so its %s_shape is not defined."
                % (self.name, "different shapes" if shapes else "no inputs yet", what)
            )
        return _single(shapes[0])

    # --- The rest of a layer ---

    def apply(self, inputs: TensorLike, *arguments: Any, **named: Any) -> Any:
        """Calls the layer."""
        return self(inputs, *arguments, **named)

    def count_params(self) -> int:
        """Returns the number of elements of all variables; raises `ValueError` before `build`."""
        if not self.built:
            raise ValueError(
                "%s has no variables to count before it is built. Call it first." % self.name
            )
        return sum(variable.shape.num_elements() for variable in self.variables)

    def get_weights(self) -> List[np.ndarray]:
        """Returns a list of the values; `RuntimeError` in a graph without a default session."""
        if tf.executing_eagerly():
            return [variable.numpy() for variable in self.weights]
        return self._default_session("get_weights").run(self.weights)

    def set_weights(self, weights: Sequence[TensorLike]) -> None:
        """Assigns values to the variables.

        Args:
          weights: arrays, one for each variable in `self.weights`, of the same shapes.

        Raises:
          ValueError: the number of arrays or a shape does not match.
          RuntimeError: in a graph without a default session.
        """
        values = [np.asarray(value) for value in weights]
        if len(values) != len(self.weights):
            raise ValueError(
                "weights must be a list of %d arrays, one for each variable of %s, but has %d."
                % (len(self.weights), self.name, len(values))
            )
        pairs = list(zip(self.weights, values))
        for variable, value in pairs:
            if not variable.shape.is_compatible_with(value.shape):
                raise ValueError(
                    "weights: the array for the variable %s must have shape %s, but has %s."
                    % (variable.name, shape_text(variable.shape), shape_text(value.shape))
                )
        session = None if tf.executing_eagerly() else self._default_session("set_weights")
        for variable, value in pairs:
            variable.assign(value) if session is None else variable.load(value, session)

    def _default_session(self, what):
        session = tf.get_default_session()
        if session is None:
            raise RuntimeError(
                "%s of %s reads or writes variables of a graph, which needs a default session. "
                "Call it inside `with session.as_default():`." % (what, self.name)
            )
        return session

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        """Returns a copy with its own settings that shares the variables that exist already."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        shared = list(self.variables) + [self._scope, self._graph]
        memo.update((id(value), value) for value in shared if value is not None)
        memo[id(self._calls)] = []
        for name in ("_added_losses", "_added_updates"):
            memo[id(getattr(self, name))] = list(getattr(self, name))
        for name, value in vars(self).items():
            copied.__dict__[name] = copy.deepcopy(value, memo)
        return copied


@contextlib.contextmanager
def _scratch_graph(name):
    """Enters a graph for opening the name scope that `name` would open in the default graph.

    Yields the last part of that scope's name. In eager execution, nothing uses up names.
    """
    if tf.executing_eagerly():
        yield name
        return
    unique_name = tf.get_default_graph().unique_name(name, mark_as_used=False)
    outer_scope, _, last_part = unique_name.rpartition("/")
    with tf.Graph().as_default(), tf.name_scope(outer_scope + "/" if outer_scope else None):
        yield last_part


def _makes_short_lived_tensors():
    """Returns whether new tensors are eager values or belong to a function's graph."""
    return tf.executing_eagerly() or tf.get_default_graph().building_function


def _refuse_when_eager(what):
    if tf.executing_eagerly():
        raise RuntimeError(
            "%s is available only in graph mode, but TensorFlow executes eagerly." % what
        )


def _add_to_collection(name, values):
    collected = tf.get_collection_ref(name)
    collected.extend(value for value in values if not any(value is old for old in collected))


def _as_list(values):
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _key(inputs):
    """Returns a hashable key that identifies the inputs, None for None."""
    return None if inputs is None else tuple(id(tensor) for tensor in tf.nest.flatten(inputs))


def _single(values):
    return values[0] if len(values) == 1 else values


def _shapes(tensors):
    return [
        None if tensor.shape.rank is None else tuple(tensor.shape.as_list()) for tensor in tensors
    ]
