"""`RNNParamsSaveable`: saves an opaque parameter buffer as canonical tensors.

TensorFlow 1.0 to 1.2 wrote the canonical tensors under the names of the graph's tensors
(`CudnnRNNParamsToCanonical:0`, ...). TensorFlow 1.3 did the same, with a scope prefix, for simple
and bidirectional RNNs. It wrote unidirectional LSTMs and GRUs as the variables of the
platform-independent cells.
"""

from __future__ import annotations

from typing import Any, List, Sequence

from cudnn_rnn._compat import SaveableObject, SaveSpec, assertion_op, tf
from cudnn_rnn.checkpoints import restore_ops
from cudnn_rnn.checkpoints.cell_layout import CellFormat
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.texts import shape_text
from cudnn_rnn.graph.types import TensorLike
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import CELL_NAMES, has_cells_in_1_3, keys_of_cells_1_3
from cudnn_rnn.op_level import _OpLevelRNN


class RNNParamsSaveable(SaveableObject):
    """Saves the opaque parameters of one RNN in a form that any platform can restore.

    Pass it to a `tf.train.Saver`, or add it to `tf.GraphKeys.SAVEABLE_OBJECTS`, which
    `tf.train.Saver()` saves. If a Saver also holds the parameter variable itself, restoring gives
    the variable the value saved under its own name, which has the same numbers as the canonical
    tensors.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Creates a saveable from either of two argument lists, by position or by keyword.

            (params_to_canonical, canonical_to_params, param_variables, name="params_canonical")
            (cudnn_rnn, params_to_canonical, canonical_to_params, param_variables,
             base_variable_scope=None, name="params_canonical")

        The first list, of TensorFlow 1.2, uses the names of the graph's tensors as keys. Two older
        variants of it are also accepted: 1.0 has the variables as separate arguments instead of a
        list, and 1.1 has the name before the variables. The second list, of TensorFlow 1.3, writes
        a unidirectional LSTM or GRU as the variables of a `MultiRNNCell` of
        `CudnnCompatibleLSTMCell` or `CudnnCompatibleGRUCell`, plus both summands of each bias.

        Args:
          cudnn_rnn: the `CudnnLSTM`, `CudnnGRU`, `CudnnRNNRelu` or `CudnnRNNTanh`.
          params_to_canonical: function of the opaque buffer that returns (weights, biases), as the
            method of that name does.
          canonical_to_params: function of (weights, biases) that returns the opaque buffer, as the
            method of that name does. It may return a tuple, one tensor for each of several
            variables of any shapes; this restores a checkpoint into another RNN's weights. If
            `params_to_canonical` is the method and the first of these variables cannot be the
            opaque buffer, the saveable can restore, but not save.
          param_variables: list of the variables to restore; the first is the opaque buffer to save.
            A single variable needs no list.
          base_variable_scope: str (or `tf.VariableScope`) that prefixes every key, or None.
          name: str, distinguishes the saveables in one Saver; does not affect the keys. A number is
            appended if the graph has the name already. (If the keys are names of the graph's
            tensors, they number the saveables of a graph in order of creation. Create them in the
            same order for restoring, or create each in a `tf.name_scope` of its own, both for
            saving and for restoring.)

        Raises:
          TypeError: the arguments match neither list, or a variable is partitioned.
          ValueError: a variable is neither the opaque buffer nor one of several.
          RuntimeError: the keys are names of the graph's tensors, but TensorFlow executes eagerly.
        """
        model, functions, variables, scope, name = _read_arguments(arguments, named)
        to_canonical, from_canonical = functions
        self._params_to_canonical, self._canonical_to_params = to_canonical, from_canonical
        self._variables = _checked_variables(variables, from_canonical)
        self._why_not_saved = _why_not_saved(to_canonical, from_canonical, self._variables)
        scope = getattr(scope, "name", scope)  # of a tf.VariableScope
        prefix = scope + "/" if scope else ""
        self._format: Any = _TensorNames(prefix)
        # The cells have no projection.
        if model is not None and has_cells_in_1_3(model.config) and not model.config.num_proj:
            self._format = _CellVariables(model.config, prefix)
        keys_and_tensors = self._keys_and_tensors(self._buffer_to_save())
        self._shapes = [tensor.shape for _, tensor in keys_and_tensors]
        if tf.executing_eagerly():
            first = self._variables[0]
            keys, dtypes = zip(*[(key, tensor.dtype) for key, tensor in keys_and_tensors])
            specs = restore_ops.specs_read_later(self._read_part, keys, dtypes, first.device)
            super().__init__(first, specs, name)
            return
        device = nodes.device_of_specs()
        specs = [SaveSpec(tensor, "", key, device=device) for key, tensor in keys_and_tensors]
        # A Saver treats saveables with equal ops as the same one. TensorFlow 1.2 passed None here,
        # so no Saver could hold two.
        name = restore_ops.unique_name(name)
        super().__init__(restore_ops.identity_of_name(specs[0].tensor, name), specs, name)
        restore_ops.saveables_of_graph().append(self)

    def restore(self, restored_tensors: Sequence[TensorLike], restored_shapes: Any) -> tf.Operation:
        """Returns an op that assigns the variables the values read from a checkpoint.

        Args:
          restored_tensors: list of tensors, one for each of `specs`, of any shapes with the right
            number of elements.
          restored_shapes: ignored; a variable's shape says nothing about the canonical tensors.

        Raises:
          ValueError: `canonical_to_params` returns tensors that do not match the variables in
            number or shape.
        """
        del restored_shapes
        keys = [spec.name for spec in self.specs]
        tensors = restore_ops.with_checked_sizes(restored_tensors, keys, self._shapes)
        values = self._canonical_to_params(*self._format.from_checkpoint(tensors))
        if _model_of_method(self._canonical_to_params, "canonical_to_params") is not None:
            values = restore_ops.as_stored(values, self._variables[0])
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if len(values) != len(self._variables):
            raise ValueError(
                "canonical_to_params must return one tensor for each of the %d param_variables of "
                "the saveable %r, but returned %d." % (len(self._variables), self.name, len(values))
            )
        assignments = [
            restore_ops.assign(variable, value, restore_ops.EXACT_SCOPE)
            for variable, value in zip(self._variables, values)
        ]
        return tf.group(*assignments)

    def expected_tensors(self) -> List[restore_ops.Expected]:
        """Returns a `restore_ops.Expected` for each of `specs`."""
        return [
            restore_ops.expected_tensor(spec.name, shape, True, spec.dtype)
            for spec, shape in zip(self.specs, self._shapes)
        ]

    def _keys_and_tensors(self, buffer):
        """Returns a list of (key, tensor) for an opaque buffer."""
        weights, biases = self._params_to_canonical(buffer)
        return self._format.to_checkpoint(list(weights), list(biases))

    def _buffer_to_save(self):
        """Returns the first variable; if it cannot be the buffer, zeros that fail if run."""
        if self._why_not_saved is None:
            return self._variables[0]
        model = _model_of_method(self._params_to_canonical, "params_to_canonical")
        with tf.name_scope("restore_only"):
            # In eager execution only their shape is used.
            failure = [] if tf.executing_eagerly() else [assertion_op(False, self._why_not_saved)]
            with tf.control_dependencies(failure):
                return tf.zeros([model._num_params()], self._variables[0].dtype.base_dtype)

    def _read_part(self, index):
        """Returns the tensor to save of this index, in eager execution."""
        if self._why_not_saved is not None:
            raise tf.errors.InvalidArgumentError(None, None, self._why_not_saved)
        _, tensor = self._keys_and_tensors(self._variables[0])[index]
        return tensor


class _TensorNames:
    """The canonical tensors under the names of the graph's tensors."""

    def __init__(self, prefix):
        self._prefix = prefix
        self._num_weights = None

    def to_checkpoint(self, weights, biases):
        """Returns a list of (key, tensor) to save."""
        if tf.executing_eagerly():
            raise RuntimeError(
                "The keys of this RNNParamsSaveable are names of the graph's tensors, as in "
                "TensorFlow 1.0 to 1.3, but TensorFlow executes eagerly. Create the variables, the "
                "saveable and the Saver in `with tf.Graph().as_default():`, or read such a "
                "checkpoint with `cudnn_rnn.exchange.read(path)`."
            )
        self._num_weights = len(weights)
        return [(self._prefix + tensor.name, tensor) for tensor in weights + biases]

    def from_checkpoint(self, tensors):
        """Returns (weights, biases) for the restored tensors, which are in the order saved."""
        return tensors[: self._num_weights], tensors[self._num_weights :]


class _CellVariables:
    """The canonical tensors as variables of cells; the methods are as in `_TensorNames`."""

    def __init__(self, config, prefix):
        self._format = CellFormat(config)
        self._prefix = prefix
        self._num_canonical_weights = len(layout.canonical_weights(config))
        self._names = keys_of_cells_1_3(config)
        self._num_cell_weights = config.num_layers * len(CELL_NAMES[config.rnn_mode].weights)

    def to_checkpoint(self, weights, biases):
        for name, tensors in (("weights", weights), ("biases", biases)):
            if len(tensors) != self._num_canonical_weights:
                raise ValueError(
                    "params_to_canonical must return %d %s, but returned %d."
                    % (self._num_canonical_weights, name, len(tensors))
                )
        tensors = self._format.weights_to_cells(weights) + self._format.biases_to_cells(biases)
        return [(self._prefix + name, tensor) for name, tensor in zip(self._names, tensors)]

    def from_checkpoint(self, tensors):
        weights = self._format.weights_from_cells(tensors[: self._num_cell_weights])
        return weights, self._format.biases_from_cells(tensors[self._num_cell_weights :])


def _arguments_of_1_0_to_1_2(params_to_canonical, canonical_to_params, *others, **named):
    """Reads the variables and the name, whose positions differ between releases."""
    names = [other for other in others if isinstance(other, str)]
    variables: list = []
    for other in others:
        if isinstance(other, (list, tuple)):
            variables.extend(other)
        elif not isinstance(other, str):
            variables.append(other)
    if len(names) > 1:
        raise TypeError("got several names, %s" % ", ".join(map(repr, names)))
    for given, name in ((variables, "param_variables"), (names, "name")):
        if given and name in named:
            raise TypeError("got multiple values for argument %r" % name)
    if "param_variables" not in named and len(others) == len(names):
        raise TypeError("missing argument 'param_variables'")
    functions = (params_to_canonical, canonical_to_params)

    def rest(param_variables=variables, name=names[0] if names else "params_canonical"):
        return None, functions, param_variables, None, name

    return rest(**named)


def _arguments_of_1_3(
    cudnn_rnn,
    params_to_canonical,
    canonical_to_params,
    param_variables,
    base_variable_scope=None,
    name="params_canonical",
):
    if not isinstance(cudnn_rnn, _OpLevelRNN):
        raise TypeError(
            "cudnn_rnn must be a CudnnLSTM, CudnnGRU, CudnnRNNRelu or CudnnRNNTanh, but is %r."
            % (cudnn_rnn,)
        )
    functions = (params_to_canonical, canonical_to_params)
    return cudnn_rnn, functions, param_variables, base_variable_scope, name


def _read_arguments(arguments, named):
    """Returns (model or None, the two functions, the variables, the scope, the name)."""
    is_1_3 = "cudnn_rnn" in named or (arguments and isinstance(arguments[0], _OpLevelRNN))
    read = _arguments_of_1_3 if is_1_3 else _arguments_of_1_0_to_1_2
    try:
        values = read(*arguments, **named)
    except TypeError as error:
        raise TypeError(
            "RNNParamsSaveable takes (params_to_canonical, canonical_to_params, param_variables, "
            "name) or (cudnn_rnn, params_to_canonical, canonical_to_params, param_variables, "
            "base_variable_scope, name): %s" % str(error).split("() ")[-1]
        )
    for name, value in zip(("params_to_canonical", "canonical_to_params"), values[1]):
        if not callable(value) or isinstance(value, _OpLevelRNN):
            raise TypeError("%s must be a function, but is %r." % (name, value))
    return values


def _checked_variables(variables, from_canonical):
    # A user's own canonical_to_params may return one tensor per part of a partitioned variable.
    is_one_buffer = _model_of_method(from_canonical, "canonical_to_params") is not None
    if is_one_buffer or not isinstance(variables, (list, tuple)):
        restore_ops.refuse_partitioned("param_variables", variables)
    variables = list(variables) if isinstance(variables, (list, tuple)) else [variables]
    if not variables:
        raise ValueError("param_variables must have at least one variable, but is empty.")
    found = [restore_ops.as_variable(variable) for variable in variables]
    for variable in [given for given, checked in zip(variables, found) if checked is None]:
        restore_ops.refuse_partitioned("param_variables", variable)
        raise TypeError(
            "param_variables must be a list of variables, but contains %r." % (variable,)
        )
    return found


def _why_not_saved(to_canonical, from_canonical, variables):
    """Returns an error message if the first variable cannot be the buffer, otherwise None."""
    model = _model_of_method(to_canonical, "params_to_canonical")
    if model is None or _model_of_method(from_canonical, "canonical_to_params") is not None:
        return None
    size = model._num_params()
    if variables[0].shape.is_compatible_with([size]):
        return None
    return (
        "This saveable can only restore, not save: its first variable %s has shape %s; expected "
        "an opaque buffer of %d parameters."
        % (variable_name(variables[0]), shape_text(variables[0].shape), size)
    )


def _model_of_method(function, method_name):
    """Returns the model whose method `function` is, or None."""
    model = getattr(function, "__self__", None)
    if isinstance(model, _OpLevelRNN) and function == getattr(model, method_name):
        return model
    return None
