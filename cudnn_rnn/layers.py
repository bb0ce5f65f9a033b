"""The layers `CudnnLSTM`, `CudnnGRU`, `CudnnRNNTanh` and `CudnnRNNRelu`.

A layer owns its parameters (one opaque vector in the variable `<scope>/opaque_kernel`) and the
saveable that stores them in checkpoints as the variables of platform-independent cells:

    lstm = CudnnLSTM(num_layers=2, num_units=128, direction="bidirectional")
    outputs, (h, c) = lstm(inputs, training=True)
    saver = tf.train.Saver()

See `op_level.py` for the formulas and for classes that own no variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from cudnn_rnn._compat import IS_TENSORFLOW_1, tf, without_autograph
from cudnn_rnn.checkpoints import cell_saveables, layer_saveables
from cudnn_rnn.graph import calls, canonical
from cudnn_rnn.graph import config as config_module
from cudnn_rnn.graph.arguments import as_tensors, cast_tensors, check_shape, shape_for_build
from cudnn_rnn.graph.call_shapes import Sizes
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.texts import described, shape_text
from cudnn_rnn.graph.types import (
    BoolLike,
    DTypeLike,
    Initializer,
    ScopeLike,
    ShapeLike,
    SizeLike,
    TensorLike,
)
from cudnn_rnn.model import layout, spec
from cudnn_rnn.model.keys import OPAQUE_NAME
from cudnn_rnn.tf1_layers.layer_base import Layer
from cudnn_rnn.tf1_layers.old_calls import refuse_input_size

if TYPE_CHECKING:
    from cudnn_rnn.graph.types import LayerCall

__all__ = ["CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh"]


class _RNNLayer(Layer):
    """Common base of the four layers."""

    _rnn_mode: Any = None  # a str in subclasses
    _num_params_per_layer: Any = None  # an int in subclasses
    _saveable_cls: Any = None  # a class in subclasses

    if TYPE_CHECKING:
        __call__: LayerCall  # The base class's accepts any arguments.
    else:

        @without_autograph
        def __call__(self, inputs: TensorLike, *arguments: Any, **named: Any) -> Any:
            # Refuses what the base class would take for a structure of tensors.
            refuse("inputs", inputs, "sequence_lengths")
            return super().__call__(inputs, *arguments, **named)

    @refuse_input_size
    def __init__(
        self,
        num_layers: SizeLike,
        num_units: SizeLike,
        input_mode: str = spec.CUDNN_INPUT_LINEAR_MODE,
        direction: str = spec.CUDNN_RNN_UNIDIRECTION,
        dropout: float = 0.0,
        seed: Optional[int] = None,
        dtype: DTypeLike = tf.float32,
        kernel_initializer: Optional[Initializer] = None,
        bias_initializer: Optional[Initializer] = None,
        name: Optional[ScopeLike] = None,
        compute_dtype: Optional[DTypeLike] = None,
        float32_matmul_precision: Optional[str] = None,
    ) -> None:
        """Creates a layer; `build` creates its variable.

        Args:
          num_layers: int, at least 1, or a scalar tensor whose value follows from static shapes.
          num_units: likewise; the output size of one direction.
          input_mode: "linear_input", "skip_input" (the first layer adds its input unchanged to
            every gate; the input size must equal `num_units`) or "auto_select" (skip_input if the
            two sizes are equal, otherwise linear_input).
          direction: "unidirectional" or "bidirectional".
          dropout: number between 0 and 1, the fraction of inputs that every layer except the first
            drops in training. Has no effect with one layer (a warning is issued).
          seed: int or None, the seed of the dropout and of the default `kernel_initializer`.
          dtype: dtype of the variable; tf.float16, tf.float32, tf.float64 or (TensorFlow 2)
            tf.bfloat16. Optimizers such as Adam diverge on a float16 variable; for 16-bit
            computations, leave this at float32 and set `compute_dtype`.
          kernel_initializer: function of (shape, dtype=) for every canonical matrix; Glorot uniform
            by default.
          bias_initializer: likewise for every canonical bias; zeros by default.
          name: str or `tf.VariableScope`, name of the variable scope; by default derived from the
            class, such as `cudnn_lstm`. A name already used in the enclosing scope gets a numeric
            suffix.
          compute_dtype: dtype of the computations, outputs and states, one of the above; `dtype` by
            default. If the two differ, inputs and initial states may have either; the variable's
            gradient and its values in checkpoints have `dtype`.
          float32_matmul_precision: "highest", "high" or "medium", the precision of this layer's
            matrix products; None for that of the process (`set_float32_matmul_precision`).

        Raises:
          TypeError: an argument has the wrong type.
          ValueError: an argument is out of range.
        """
        super().__init__(dtype=dtype, name=name)
        self._plain_dtype = config_module.checked_dtype(dtype)
        self._computation_dtype = self._plain_dtype
        if compute_dtype is not None:
            self._computation_dtype = config_module.checked_dtype(compute_dtype, "compute_dtype")
        self._num_layers = config_module.checked_size("num_layers", num_layers)
        self._num_units = config_module.checked_size("num_units", num_units)
        self._input_mode = input_mode
        self._direction = direction
        self._dropout = dropout
        self._seed = seed
        self._precision = float32_matmul_precision
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer
        self._input_size: Optional[int] = None
        self._saveable: Optional[cell_saveables.CudnnOpaqueParamsSaveable] = None
        # Checks the remaining arguments; any input size that is valid in every mode will do.
        self._config(self._num_units)
        config_module.warn_about_dropout(self, dropout)

    def _config(self, input_size, for_a_call=False):
        """Returns the `RnnConfig`, with the seeds of a node if `for_a_call`."""
        # Resolving a seed of None can consume an op seed and so change the seeds of other ops.
        seed = 0 if self._seed is None and not for_a_call else self._seed
        sizes = (self._num_layers, self._num_units, input_size)
        others = (self._input_mode, self._direction, self._plain_dtype, self._dropout, seed)
        precision = self._precision
        return rnn_config(self._rnn_mode, *sizes, *others, float32_matmul_precision=precision)

    @property
    def num_layers(self) -> int:
        """Number of layers, an int."""
        return self._num_layers

    @property
    def num_units(self) -> int:
        """Output size of one direction, an int."""
        return self._num_units

    @property
    def input_mode(self) -> str:
        """ "linear_input", "skip_input" or "auto_select"."""
        return self._input_mode

    @property
    def input_size(self) -> int:
        """Last dimension of the inputs, an int; `ValueError` before `build`."""
        if self._input_size is None:
            raise ValueError(
                "input_size of %s is unknown before the layer is built. Call the layer, or "
                "build([None, None, input_size])." % type(self).__name__
            )
        return self._input_size

    @property
    def rnn_mode(self) -> str:
        """ "lstm", "gru", "rnn_relu" or "rnn_tanh"."""
        return self._rnn_mode

    @property
    def direction(self) -> str:
        """ "unidirectional" or "bidirectional"."""
        return self._direction

    @property
    def compute_dtype(self) -> str:
        """Name of the dtype of computations, outputs and states; the variable has `dtype`."""
        return self._computation_dtype.name

    @property
    def num_dirs(self) -> int:
        """Number of directions, 1 or 2."""
        return 2 if self._direction == spec.CUDNN_RNN_BIDIRECTION else 1

    @property
    def saveable(self) -> Optional[cell_saveables.CudnnOpaqueParamsSaveable]:
        """The `CudnnOpaqueParamsSaveable`.

        None before `build`, with `reuse=True`, and if a custom getter returned a tensor that is not
        the value of a variable.
        """
        return self._saveable

    @property
    def canonical_weight_shapes(self) -> List[Tuple[int, ...]]:
        """Shapes of the canonical matrices, a list of tuples; `RuntimeError` before `build`."""
        self._check_built("canonical_weight_shapes")
        config = self._config(self._input_size)
        return [weights.shape for weights in layout.canonical_weights(config)]

    @property
    def canonical_bias_shapes(self) -> List[List[int]]:
        """Shapes of the canonical biases, a list of lists."""
        config = self._config(self._num_units)
        return [list(bias.shape) for bias in layout.canonical_biases(config)]

    def _canonical_weight_shape(self, layer):
        return self._of_layer(self.canonical_weight_shapes, layer)

    def _canonical_bias_shape(self, layer):
        return self._of_layer(self.canonical_bias_shapes, layer)

    def _of_layer(self, shapes, layer):
        """Returns the part of a list of canonical shapes for one layer, all directions."""
        if not 0 <= layer < self._num_layers:
            raise ValueError(
                "layer must be between 0 and %d, but is %r." % (self._num_layers - 1, layer)
            )
        per_layer = len(shapes) // self._num_layers
        return shapes[layer * per_layer : (layer + 1) * per_layer]

    def _zero_state(self, batch_size):
        """Returns a tuple of zeros of the shapes of `state_shape`, in the dtype of the outputs."""
        shapes = self.state_shape(batch_size)
        return tuple(tf.zeros(shape, self._computation_dtype) for shape in shapes)

    def state_shape(self, batch_size: SizeLike) -> Tuple[List[Any], ...]:
        """Returns the shapes of the states, a tuple of lists, for time-major inputs."""
        num_states = 2 if self._rnn_mode == spec.CUDNN_LSTM else 1
        sizes = (self.num_layers * self.num_dirs, batch_size, self.num_units)
        return tuple(list(sizes) for _ in range(num_states))

    def build(self, input_shape: ShapeLike) -> None:
        """Creates the variable and, unless the scope has `reuse=True`, the saveable.

        Checkpoint keys start with the name of the enclosing variable scope: the caller's scope if
        the caller calls `build`, the layer's own scope if the first call builds the layer.

        Args:
          input_shape: static shape of the inputs: three dimensions, of which only the last one, the
            input size, must be known. The others may be None or anything else.

        Raises:
          ValueError: the shape is invalid, or the reused variable has the wrong size.
        """
        if self.built:
            return
        shape = shape_for_build(input_shape)
        input_size = shape.as_list()[-1] if shape.rank == 3 else None
        if input_size is None:
            raise ValueError(
                "inputs of %s must have three dimensions, the last of which is known when the "
                "layer is built, but have shape %s. Set it with inputs.set_shape([None, None, "
                "input_size])." % (type(self).__name__, shape_text(shape))
            )
        config = self._config(input_size)
        weights = list(self._trainable_weights), list(self._non_trainable_weights)
        self._input_size = input_size
        try:
            # Lifts variables and initial values out of any enclosing loop or tf.function.
            with tf.init_scope():
                self._create_variable(config)
                if tf.get_variable_scope().reuse is not True:
                    self._create_saveable()
        except BaseException:
            self._input_size = None
            self.__dict__.pop("kernel", None)
            self._trainable_weights[:], self._non_trainable_weights[:] = weights
            raise
        self.built = True

    def _create_variable(self, config):
        self._set_scope(None)
        getter = self._update_trainable_weights
        with tf.variable_scope(self._scope, custom_getter=getter) as scope:
            scope.set_partitioner(None)  # The buffer is one piece.
            initial = self._initial_params()
            dtype = self._plain_dtype
            kernel = tf.get_variable(OPAQUE_NAME, dtype=dtype, initializer=initial)
        layer_saveables.refuse_no_variable(self, kernel)
        size = layout.params_size(config)
        if not kernel.shape.is_compatible_with([size]):
            raise ValueError(
                "The variable %s, which this %s shares, must have %d elements for the sizes of "
                "this layer, but has shape %s. Give the layer another name or scope."
                % (kernel.name, type(self).__name__, size, shape_text(kernel.shape))
            )
        self.kernel = kernel

    def _initial_params(self):
        if self._kernel_initializer is None:
            self._kernel_initializer = tf.glorot_uniform_initializer(seed=self._seed)
        if self._bias_initializer is None:
            self._bias_initializer = tf.zeros_initializer()
        dtype = self._plain_dtype
        weights = [
            # The first layer has no input weights with skip_input: their width is 0.
            tf.zeros(shape, dtype) if 0 in shape else self._kernel_initializer(shape, dtype=dtype)
            for shape in self.canonical_weight_shapes
        ]
        initializer = self._bias_initializer
        biases = [initializer(shape, dtype=dtype) for shape in self.canonical_bias_shapes]
        return self._canonical_to_opaque(weights, biases)

    def _canonical_to_opaque(self, cu_weights, cu_biases):
        """Returns the opaque buffer for canonical tensors; the layer must be built."""
        self._check_built("_canonical_to_opaque")
        return canonical.canonical_to_params(
            self._config(self._input_size), None, list(cu_weights), list(cu_biases)
        )

    def _check_built(self, what):
        if self._input_size is None:
            raise RuntimeError(
                "%s.%s needs input_size, which is unknown before the layer is built. Call the "
                "layer, or build([None, None, input_size])." % (type(self).__name__, what)
            )

    def _update_trainable_weights(self, getter, *arguments, **named):
        """Custom getter that adds each variable to the layer's lists of weights."""
        variable = getter(*arguments, **named)
        is_trainable = named.get("trainable") is not False
        known = self._trainable_weights if is_trainable else self._non_trainable_weights
        if not any(variable is other for other in known):
            known.append(variable)
        return variable

    def _create_saveable(self):
        """Creates the saveable and registers it for the graph's Savers; at most once per layer.

        It saves the first trainable variable, which a program may have replaced.
        """
        if self._saveable is not None:
            raise RuntimeError(
                "Cudnn saveable already created: the layer %s has the saveable %r."
                % (self.name, self._saveable.name)
            )
        size = layout.params_size(self._config(self.input_size))
        variables = [v for v in self.trainable_variables if v.shape.is_compatible_with([size])]
        self._saveable = layer_saveables.create_saveable(
            self,
            self._saveable_cls,
            (variables + [self.kernel])[0],
            num_layers=self.num_layers,
            num_units=self.num_units,
            input_size=self.input_size,
            input_mode=self.input_mode,
            direction=self.direction,
        )

    @property
    def _gather_saveables_for_checkpoint(self):
        # TensorFlow 1 supported only LSTMs; programs, such as its own tests, may rely on the error.
        if IS_TENSORFLOW_1 and self._rnn_mode != spec.CUDNN_LSTM:
            raise NotImplementedError(
                "%s cannot be in an object-based checkpoint in TensorFlow 1. Use tf.train.Saver."
                % type(self).__name__
            )
        return super()._gather_saveables_for_checkpoint

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        """Returns a copy with its own settings that shares the variable and the saveable."""
        shared = list(self.variables) + [self._saveable]
        memo.update((id(value), value) for value in shared)
        return super().__deepcopy__(memo)

    @without_autograph
    def call(
        self,
        inputs: TensorLike,
        initial_state: Optional[Tuple[TensorLike, ...]] = None,
        sequence_lengths: Optional[TensorLike] = None,
        time_major: bool = True,
        training: Optional[BoolLike] = True,
    ) -> Tuple[tf.Tensor, Tuple[tf.Tensor, ...]]:
        """Runs the RNN.

        Args:
          inputs: `[time, batch, input_size]`; batch-major `[batch, time, input_size]`.
          initial_state: tuple of the states, `(h, c)` for an LSTM, otherwise `(h,)`; each
            `[num_layers * num_dirs, batch, num_units]`, batch-major `[batch, num_layers * num_dirs,
            num_units]`. Zeros by default.
          sequence_lengths: integers `[batch]`, each from 0 to `time`: the number of valid steps of
            each sequence. Later outputs are 0; the returned states are those after the last valid
            step. None: all steps are valid. A bool or bool tensor here means `training`, which had
            this position up to TensorFlow 1.13.
          time_major: False for batch-major `inputs`, states and outputs.
          training: bool or scalar bool tensor. Only training applies dropout and has a gradient;
            with a tensor, the computed outputs have a gradient for either value. None means False,
            as in Keras.

        Returns:
          `(outputs, states)`. `outputs` is `[time, batch, num_dirs * num_units]` (batch-major:
          batch first); `states` is a tuple like `initial_state`.

        Raises:
          TypeError: an argument has the wrong type or dtype.
          ValueError: an argument has the wrong static shape. A wrong shape that is known only at
            run time raises `InvalidArgumentError` when the op runs, except of narrower inputs.
        """
        num_states = len(self.state_shape(1))
        if initial_state is None:
            inputs, initial_state = self._with_zero_states(inputs, time_major)
        elif not isinstance(initial_state, tuple) or len(initial_state) != num_states:
            raise (ValueError if isinstance(initial_state, tuple) else TypeError)(
                "initial_state must be a tuple of %d tensors, %s, but is %s."
                % (num_states, "(h, c)" if num_states == 2 else "(h,)", described(initial_state))
            )
        h, c = initial_state if num_states == 2 else (initial_state[0], [])
        outputs, states = self._forward(
            inputs, h, c, self.kernel, sequence_lengths, time_major, training
        )
        return outputs, tuple(states[:num_states])

    def _with_zero_states(self, inputs, time_major):
        """Returns the inputs as a tensor, and states of zeros for its batch."""
        dtype = self._computation_dtype
        (inputs,) = as_tensors([("inputs", self._cast("inputs", inputs))], dtype, dtype)
        axes = "[time, batch, input_size]" if time_major else "[batch, time, input_size]"
        check_shape("inputs", inputs, [None, None, self._input_size], axes)
        return inputs, calls.zero_states(inputs, time_major, self.state_shape, dtype)

    def _cast(self, argument, value):
        return cast_tensors(argument, value, self._plain_dtype, self._computation_dtype)

    def _forward(
        self, inputs, h, c, opaque_params, sequence_lengths=None, time_major=True, training=True
    ):
        """Runs the RNN on any tensor as the buffer; the layer need not be built.

        The arguments are those of `call`; only an LSTM uses `c`. A bool as `sequence_lengths` means
        `training`, which had this position up to TensorFlow 1.13.

        Returns:
          `(outputs, (h, c))`; `c` is meaningful only for an LSTM.
        """
        sequence_lengths, training = calls.lengths_and_training(
            sequence_lengths, False if training is None else training, training_name="training"
        )
        values = (inputs, h, c, opaque_params)
        input_size = self._input_size
        shape = getattr(inputs, "shape", None)
        if input_size is None and shape is not None:
            input_size = tf.TensorShape(shape).with_rank(3).as_list()[-1]
        # The node has no input_size attribute. If unknown, num_units passes the checks of any mode.
        config = self._config(input_size or self._num_units, for_a_call=True)
        config = config._replace(input_size=input_size)
        params_size = canonical.static_params_size(config) if input_size else None
        output, output_h, output_c = calls.run(
            config,
            tuple(map(self._cast, ("inputs", "input_h", "input_c", "params"), values)),
            training,
            sequence_lengths,
            time_major,
            Sizes(input_size, self.num_layers * self.num_dirs, self.num_units, params_size),
            dtype=self._computation_dtype,
            default_dtype=self._computation_dtype,
            input_name="inputs",
            training_name="training",
        )
        return output, (output_h, output_c)


class CudnnLSTM(_RNNLayer):
    """A stack of LSTM layers with one opaque parameter vector."""

    _rnn_mode = spec.CUDNN_LSTM
    _num_params_per_layer = spec.CUDNN_LSTM_PARAMS_PER_LAYER
    _saveable_cls = cell_saveables.CudnnLSTMSaveable


class _RNNLayerWithoutCellState(_RNNLayer):
    """Common base of the layers without a cell state."""


class CudnnGRU(_RNNLayerWithoutCellState):
    """A stack of GRU layers with one opaque parameter vector.

    The reset gate multiplies the recurrent product, which has its own bias (see `op_level.py`). The
    matching cell is therefore `CudnnCompatibleGRUCell`, not `tf.nn.rnn_cell.GRUCell`.
    """

    _rnn_mode = spec.CUDNN_GRU
    _num_params_per_layer = spec.CUDNN_GRU_PARAMS_PER_LAYER
    _saveable_cls = cell_saveables.CudnnGRUSaveable


class CudnnRNNTanh(_RNNLayerWithoutCellState):
    """A stack of simple tanh RNN layers with one opaque parameter vector."""

    _rnn_mode = spec.CUDNN_RNN_TANH
    _num_params_per_layer = spec.CUDNN_RNN_TANH_PARAMS_PER_LAYER
    _saveable_cls = cell_saveables.CudnnRNNTanhSaveable


class CudnnRNNRelu(_RNNLayerWithoutCellState):
    """A stack of simple ReLU RNN layers with one opaque parameter vector."""

    _rnn_mode = spec.CUDNN_RNN_RELU
    _num_params_per_layer = spec.CUDNN_RNN_RELU_PARAMS_PER_LAYER
    _saveable_cls = cell_saveables.CudnnRNNReluSaveable
