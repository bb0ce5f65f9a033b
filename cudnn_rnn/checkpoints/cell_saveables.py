"""`CudnnOpaqueParamsSaveable` and its subclasses: opaque buffers saved as the variables of cells.

Since TensorFlow 1.4 a checkpoint holds the variables of the equivalent platform-independent cells
in place of an opaque buffer. `_tf_canonical_name_prefix` and `_tf_canonical_names_single_layer`
define the names, `converters.py` defines the tensors; programs override both.

Restored kernels are bit-exact. A cell has only the sum of cuDNN's two biases per gate, so each bias
is restored as half of the sum (the candidate of a GRU keeps both). But if a `tf.train.Saver` also
holds the opaque variable, restoring always gives the variable the value saved under its own name,
which is bit-exact.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence

from cudnn_rnn._compat import SaveableObject, SaveSpec, tf
from cudnn_rnn.checkpoints import converters, restore_ops
from cudnn_rnn.checkpoints.object_based import BufferParts, track
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.config import checked_size
from cudnn_rnn.graph.types import ScopeLike, SizeLike, TensorLike
from cudnn_rnn.model.keys import CELL_NAMES, place_of_cell
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_GRU_PARAMS_PER_LAYER,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_LSTM,
    CUDNN_LSTM_PARAMS_PER_LAYER,
    CUDNN_RNN_BIDIRECTION,
    CUDNN_RNN_RELU,
    CUDNN_RNN_RELU_PARAMS_PER_LAYER,
    CUDNN_RNN_TANH,
    CUDNN_RNN_TANH_PARAMS_PER_LAYER,
    CUDNN_RNN_UNIDIRECTION,
)

# Conversion steps that were methods of the saveable up to TensorFlow 1.12.
_CONVERTER_HOOKS = (
    "_cudnn_to_tf_gate_params",
    "_tf_to_cudnn_gate_params",
    "_cudnn_to_tf_weights",
    "_tf_to_cudnn_weights",
    "_cudnn_to_tf_biases",
    "_tf_to_cudnn_biases",
)


def _step_of_converter(name):
    """Returns a method that calls the converter's method of this name."""

    def step(self, *arguments):
        # From the class: the converter's own attribute may be this saveable's overriding method.
        return getattr(type(self.format_converter), name)(self.format_converter, *arguments)

    return step


class CudnnOpaqueParamsSaveable(SaveableObject):
    """Saves an opaque buffer as the variables of platform-independent cells.

    Create one of the four subclasses and pass it to a `tf.train.Saver`, or add it to
    `tf.GraphKeys.SAVEABLE_OBJECTS`, which `tf.train.Saver()` saves. The layers do this themselves.
    """

    _rnn_mode: Any = None  # a str in subclasses
    _num_params_per_layer: Any = None  # an int in subclasses
    _format_converter_cls: Any = None  # a class in subclasses
    _rnn_cell_name: Any = None  # a str in subclasses
    _cell_variables = CELL_NAMES[CUDNN_LSTM][1:3]  # names of weights, of biases
    _given_name: Optional[str] = None  # the argument `name`, if the saveable was created in a graph

    def __init__(
        self,
        opaque_params: tf.Variable,
        num_layers: SizeLike,
        num_units: SizeLike,
        input_size: SizeLike,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
        scope: Optional[ScopeLike] = None,
        name: str = "cudnn_rnn_saveable",
    ) -> None:
        """Creates a saveable.

        Args:
          opaque_params: the variable, `[params_size]`.
          num_layers: int, at least 1.
          num_units: int, at least 1.
          input_size: int, at least 1.
          input_mode: "linear_input", "skip_input" or "auto_select". Cells always have input
            weights; if the RNN has none, identity matrices are saved.
          direction: "unidirectional" or "bidirectional".
          scope: str or `tf.VariableScope` that prefixes every key: the scope in which the cells
            would be called. None for no prefix.
          name: str, distinguishes the saveables in one Saver; does not affect the keys. A number is
            appended if the graph has the name already.

        Raises:
          TypeError, ValueError: an argument has the wrong type or is out of range, or
            `opaque_params` is partitioned or has another static shape.
        """
        restore_ops.refuse_partitioned("opaque_params", opaque_params)
        self._num_layers = checked_size("num_layers", num_layers)
        self._num_units = checked_size("num_units", num_units)
        self._input_size = checked_size("input_size", input_size)
        self._input_mode = input_mode
        self._direction = direction
        self._scope = getattr(scope, "name", scope) or None
        self._variables = opaque_params
        self._num_dirs = 2 if direction == CUDNN_RNN_BIDIRECTION else 1
        self._format_converter: Any = None
        self._described: Any = None  # see `_described_parts`
        self._weight_names, self._bias_names = self._tf_canonical_names()
        self._param_names = self._weight_names + self._bias_names
        prefix = self._scope + "/" if self._scope else ""
        keys = [prefix + param_name for param_name in self._param_names]
        if tf.executing_eagerly():
            dtypes = [opaque_params.dtype.base_dtype] * len(keys)
            device = opaque_params.device
            specs = restore_ops.specs_read_later(self._read_part, keys, dtypes, device)
            super().__init__(opaque_params, specs, name)
            return
        device = nodes.device_of_specs()
        parts = zip(self.read_parts(), keys)
        specs = [SaveSpec(tensor, "", key, device=device) for tensor, key in parts]
        self._given_name = name
        name = restore_ops.unique_name(name)
        super().__init__(restore_ops.identity_of_name(opaque_params, name), specs, name)
        restore_ops.saveables_of_graph().append(self)

    @property
    def is_displaced(self) -> bool:
        """Whether `tf.train.Saver()` saves a later saveable in place of this one.

        True if both are in `tf.GraphKeys.SAVEABLE_OBJECTS` and have the same name and keys. As in
        TensorFlow 1, the Saver then saves only the later saveable; programs rely on that. The Saver
        saves the variable of this saveable as well, under the variable's own name.

        False if `opaque_params` is not a variable: this saveable stays in the Saver, so that its
        `restore` raises the error.
        """
        if self._given_name is None:
            return False
        with self.op.graph.as_default():
            if restore_ops.as_variable(self._variables) is None:
                return False
        own, *later = restore_ops.collected_from(self) or [None]
        return own is self and any(map(self._is_alike, later))

    def require_saved_by(self, saved: Iterable[Any]) -> None:
        """Raises `SaverRefusal` unless `saved` (variables, saveables) covers the variable."""
        variable = self._variable_to_restore()
        if not any(variable is getattr(other, "_variables", other) for other in saved):
            raise restore_ops.SaverRefusal(
                "This Saver would save neither the saveable %r nor its variable %s: a later "
                "saveable in tf.GraphKeys.SAVEABLE_OBJECTS has the same name and keys, and the "
                "variable is not in var_list (by default tf.GraphKeys.GLOBAL_VARIABLES). Give each "
                "saveable a scope of its own, or add the variable to var_list."
                % (self.name, variable_name(variable))
            )

    def _is_alike(self, other):
        """Returns whether another saveable was created with the same name and has the same keys."""
        return (
            isinstance(other, CudnnOpaqueParamsSaveable)
            and other._given_name == self._given_name
            and [spec.name for spec in other.specs] == [spec.name for spec in self.specs]
        )

    @property
    def format_converter(self) -> converters.CudnnParamsFormatConverter:
        """The converter, created from `_format_converter_cls` on first access."""
        if self._format_converter is None:
            sizes = (self._num_layers, self._num_units, self._input_size)
            converter = self._format_converter_cls(
                *sizes, input_mode=self._input_mode, direction=self._direction
            )
            for hook in _CONVERTER_HOOKS:
                if getattr(type(self), hook) is not getattr(CudnnOpaqueParamsSaveable, hook):
                    setattr(converter, hook, getattr(self, hook))
            self._format_converter = converter
        return self._format_converter

    def restore(self, restored_tensors: Sequence[TensorLike], restored_shapes: Any) -> tf.Operation:
        """Returns an op that assigns the variable the value read from a checkpoint.

        Args:
          restored_tensors: list of tensors, one for each of `specs`.
          restored_shapes: ignored; the variable's shape says nothing about the cells' tensors.

        Raises:
          TypeError: the saveable was not created for a variable.
          InvalidArgumentError: when run, if a tensor has the wrong shape; names the key.
        """
        del restored_shapes
        return self.write_parts(restored_tensors, [spec.name for spec in self.specs])

    def expected_tensors(self) -> List[restore_ops.Expected]:
        """Returns a `restore_ops.Expected` for each of `specs`."""
        return [
            restore_ops.expected_tensor(spec.name, part.shape, False, part.dtype)
            for spec, part in zip(self.specs, self._described_parts())
        ]

    def _described_parts(self):
        """Returns a list of objects with the shape and the dtype of the cells' tensors."""
        if self._given_name is not None:
            return [spec.tensor for spec in self.specs]
        if self._described is None:  # Tracing a function finds the shapes and converts nothing.
            params = tf.TensorSpec(self._variables.shape, self._variables.dtype.base_dtype)
            function = tf.function(self._parts_of, autograph=False).get_concrete_function(params)
            self._described = [tf.TensorSpec(part.shape, part.dtype) for part in function.outputs]
        return self._described

    def _parts_of(self, opaque_params):
        """Returns the cells' tensors of an opaque buffer, in the order of the keys."""
        weights, biases = self.format_converter.opaque_to_tf_canonical(opaque_params)
        return list(weights) + list(biases)

    def _variable_to_restore(self):
        variable = restore_ops.as_variable(self._variables)
        if variable is None:
            raise TypeError(
                "opaque_params of the saveable %r must be a variable to be restored, but is %r."
                % (self.name, self._variables)
            )
        return variable

    def read_parts(self) -> List[tf.Tensor]:
        """Returns the cells' tensors, in the order of the keys."""
        return self._parts_of(self._variables)

    def _read_part(self, index: int) -> tf.Tensor:
        """Returns `read_parts()[index]`; where possible, converts only the cell that has it."""
        is_bias = index >= len(self._weight_names)
        names = self._bias_names if is_bias else self._weight_names
        cells = self._num_layers * self._num_dirs
        # Programs may override the names, the conversion, or both.
        if len(names) % cells == 0:
            per_cell = len(names) // cells
            cell, place = divmod(index - is_bias * len(self._weight_names), per_cell)
            read = self.format_converter._opaque_to_cell(self._variables, cell)
            tensors = read[is_bias]() if read else []
            if len(tensors) == per_cell:
                return tensors[place]
        return self.read_parts()[index]

    def write_parts(self, tensors: Sequence[TensorLike], keys: Sequence[str]) -> tf.Operation:
        """Returns an op that assigns the variable the value rebuilt from the cells' tensors.

        `tensors` and `keys`, their keys in the checkpoint, are in the order of `read_parts`.
        """
        variable = self._variable_to_restore()
        shapes = [part.shape for part in self._described_parts()]
        tensors = restore_ops.with_checked_shapes(tensors, keys, shapes)
        value = self.format_converter.tf_canonical_to_opaque(list(tensors))
        value = restore_ops.as_stored(value, variable)
        return restore_ops.assign(variable, value, restore_ops.SUMS_SCOPE)

    def _add_trackable_dependencies(self, trackable, dtype):
        """Makes the cells' tensors dependencies of an object, for `tf.train.Checkpoint`.

        The keys are `cell-<layer>/kernel` and so on, like those of a `MultiRNNCell`. A single layer
        also has `kernel`, like a single cell. For a bidirectional RNN these keys are below `fw` and
        below `bw`, like those of two stacks of cells with these names.
        """
        parts = BufferParts(self, self._param_names, dtype, self._variables.device)
        paths = []
        for kind, own_names in zip((self._weight_names, self._bias_names), self._cell_variables):
            per_cell = len(kind) // (self._num_layers * self._num_dirs)
            for index, name in enumerate(kind):
                layer, direction = divmod(index // per_cell, self._num_dirs)
                own_name = own_names[index % per_cell] if per_cell == len(own_names) else name
                top = [] if self._num_dirs == 1 else ["fw" if direction == 0 else "bw"]
                if self._num_layers == 1:
                    paths.append((top + [own_name], parts.trackables[name]))
                paths.append((top + ["cell-%d" % layer, own_name], parts.trackables[name]))
        track(trackable, paths)
        parts.all_tracked()

    def _tf_canonical_names(self):
        """Returns (names of weights, names of biases), relative to `scope`."""
        weight_names: List[str] = []
        bias_names: List[str] = []
        for layer in range(self._num_layers):
            for is_forward in (True, False)[: self._num_dirs]:
                # Programs may override the method without the second argument.
                forward = {} if self._num_dirs == 1 else {"is_fwd": is_forward}
                prefix = self._tf_canonical_name_prefix(layer, **forward)
                self._tf_canonical_names_single_layer(prefix, weight_names, bias_names)
        return weight_names, bias_names

    def _tf_canonical_name_prefix(self, layer, is_fwd=True):
        """Returns the scope of one cell, relative to `scope`."""
        return self._TFCanonicalNamePrefix(layer, is_fwd)

    def _TFCanonicalNamePrefix(self, layer, is_fwd=True):
        """Implements `_tf_canonical_name_prefix`, under its name up to TensorFlow 1.12."""
        ways = 1 if self._direction == CUDNN_RNN_UNIDIRECTION else 2
        return "%s/%s" % (place_of_cell(layer, int(not is_fwd), ways), self._rnn_cell_name)

    def _tf_canonical_names_single_layer(self, prefix, tf_weights_names, tf_biases_names):
        """Appends the names of the weights and biases of one cell to the two lists."""
        weights, biases = self._cell_variables
        tf_weights_names.extend("%s/%s" % (prefix, name) for name in weights)
        tf_biases_names.extend("%s/%s" % (prefix, name) for name in biases)

    # Methods of TensorFlow 1.4 to 1.12, for programs that call or override them.

    def _OpaqueParamsToCanonical(self):
        """Returns (weights, biases), cuDNN's canonical tensors of the variable."""
        return self.format_converter._opaque_to_cu_canonical(self._variables)

    def _TransformCanonical(self, cu_weights, cu_biases):
        """Returns ((weights, their names), (biases, their names)) of the cells."""
        parts = self.format_converter._cu_canonical_to_tf_canonical(cu_weights, cu_biases)
        return (list(parts[0]), self._weight_names), (list(parts[1]), self._bias_names)

    def _CanonicalToOpaqueParams(self, cu_weights, cu_biases):
        """Returns the opaque buffer for cuDNN's canonical tensors."""
        return self.format_converter._cu_canonical_to_opaque(cu_weights, cu_biases)

    def _ReverseTransformCanonical(self, tf_canonicals):
        """Returns (weights, biases), cuDNN's canonical tensors for the cells' tensors."""
        return self.format_converter._tf_canonical_to_cu_canonical(tf_canonicals)

    _cudnn_to_tf_gate_params = _step_of_converter("_cudnn_to_tf_gate_params")
    _tf_to_cudnn_gate_params = _step_of_converter("_tf_to_cudnn_gate_params")
    _cudnn_to_tf_weights = _step_of_converter("_cudnn_to_tf_weights")
    _tf_to_cudnn_weights = _step_of_converter("_tf_to_cudnn_weights")
    _cudnn_to_tf_biases = _step_of_converter("_cudnn_to_tf_biases")
    _tf_to_cudnn_biases = _step_of_converter("_tf_to_cudnn_biases")


class CudnnLSTMSaveable(CudnnOpaqueParamsSaveable):
    """Saves the buffer of a `CudnnLSTM` as variables of `CudnnCompatibleLSTMCell`."""

    _rnn_mode = CUDNN_LSTM
    _num_params_per_layer = CUDNN_LSTM_PARAMS_PER_LAYER
    _format_converter_cls: Any = converters.CudnnParamsFormatConverterLSTM
    _rnn_cell_name = CELL_NAMES[CUDNN_LSTM].cell


class CudnnGRUSaveable(CudnnOpaqueParamsSaveable):
    """Saves the buffer of a `CudnnGRU` as variables of `CudnnCompatibleGRUCell`."""

    _rnn_mode = CUDNN_GRU
    _num_params_per_layer = CUDNN_GRU_PARAMS_PER_LAYER
    _format_converter_cls = converters.CudnnParamsFormatConverterGRU
    _rnn_cell_name = CELL_NAMES[CUDNN_GRU].cell
    _cell_variables = CELL_NAMES[CUDNN_GRU][1:3]


class CudnnRNNTanhSaveable(CudnnLSTMSaveable):
    """Saves the buffer of a `CudnnRNNTanh` as variables of `BasicRNNCell` with tanh."""

    _rnn_mode = CUDNN_RNN_TANH
    _num_params_per_layer = CUDNN_RNN_TANH_PARAMS_PER_LAYER
    _format_converter_cls = converters.CudnnParamsFormatConverterTanh
    _rnn_cell_name = CELL_NAMES[CUDNN_RNN_TANH].cell


class CudnnRNNReluSaveable(CudnnLSTMSaveable):
    """Saves the buffer of a `CudnnRNNRelu` as variables of `BasicRNNCell` with ReLU."""

    _rnn_mode = CUDNN_RNN_RELU
    _num_params_per_layer = CUDNN_RNN_RELU_PARAMS_PER_LAYER
    _format_converter_cls = converters.CudnnParamsFormatConverterRelu
    _rnn_cell_name = CELL_NAMES[CUDNN_RNN_RELU].cell
