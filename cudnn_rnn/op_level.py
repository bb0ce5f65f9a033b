"""The op-level classes `CudnnLSTM`, `CudnnGRU`, `CudnnRNNRelu` and `CudnnRNNTanh`.

Such an object describes an RNN and builds its nodes; it owns no variables. The workflow: construct
the object, create a variable with `params_size()` elements, call the object, and save the variable
through an `RNNParamsSaveable`.

The computation per layer and direction; W multiplies the layer's input x, R the previous output h':

    LSTM    i, f, o = sigmoid(W x + bW + R h' + bR) each;  g = tanh(W_g x + bW_g + R_g h' + bR_g)
            c = f * c' + i * g;  h = o * tanh(c)
    GRU     r, u = sigmoid(W x + bW + R h' + bR) each
            n = tanh(W_n x + bW_n + r * (R_n h' + bR_n));  h = (1 - u) * n + u * h'
    ReLU    h = max(0, W x + bW + R h' + bR)
    Tanh    h = tanh(W x + bW + R h' + bR)

Dropout applies only in training, to the input of every layer except the first. With `skip_input`,
the first layer has no W and adds its input unchanged to every gate. An LSTM with a projection P
outputs h = P (o * tanh(c)), which is `num_proj` wide and is also what R multiplies.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import numpy as np

from cudnn_rnn._compat import tf, with_signature_of
from cudnn_rnn.graph import calls, canonical
from cudnn_rnn.graph.call_shapes import Sizes
from cudnn_rnn.graph.config import checked_dtype, dtype_of, rnn_config, warn_about_dropout
from cudnn_rnn.graph.old_names import OldName
from cudnn_rnn.graph.types import BoolLike, SizeLike, TensorLike
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_GRU_PARAMS_PER_LAYER,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_LSTM,
    CUDNN_LSTM_PARAMS_PER_LAYER,
    CUDNN_RNN_RELU,
    CUDNN_RNN_RELU_PARAMS_PER_LAYER,
    CUDNN_RNN_TANH,
    CUDNN_RNN_TANH_PARAMS_PER_LAYER,
    CUDNN_RNN_UNIDIRECTION,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _missing(function, arguments, named):
    """Returns the names of a method's required arguments that a call does not give."""
    parameters = list(inspect.signature(function).parameters.values())[1:]  # without self
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    return [name for name in required[len(arguments) :] if name not in named]


def _explaining_missing_sizes(constructor: _Function) -> _Function:
    """Decorator: says which class has no `input_size`, if only `input_size` is missing."""

    @functools.wraps(constructor)
    def checked(self, *arguments, **named):
        if len(arguments) < 3 and _missing(constructor, arguments, named) == ["input_size"]:
            name = type(self).__name__
            raise TypeError(
                "input_size is missing: %s(num_layers, num_units, input_size, ...) is the op-level "
                "class of TensorFlow 1.0 to 1.4, whose parameters are a variable of the program. "
                "The layer of TensorFlow 1.5 to 1.15, which has no input_size, is "
                "cudnn_rnn.layers.%s." % (name, name)
            )
        constructor(self, *arguments, **named)

    return with_signature_of(constructor, checked)


def _explaining_missing_tensors(call: _Function) -> _Function:
    """Decorator: takes missing states and params as None, for an error that says what to pass."""
    num_tensors = len(_missing(call, (), {}))

    @functools.wraps(call)
    def checked(self, *arguments, **named):
        if len(arguments) < num_tensors:
            missing = _missing(call, arguments, named)
            if "input_data" not in missing:
                named.update(dict.fromkeys(missing))
        return call(self, *arguments, **named)

    return with_signature_of(call, checked)


class _OpLevelRNN:
    """Common base of the four classes."""

    _rnn_mode: Any = None  # a str in subclasses
    _NUM_PARAMS_PER_LAYER: Any = None  # an int in subclasses
    # Names of the positional arguments from the sixth on, if the sixth is a dtype.
    _TRAILING_ARGUMENTS: Tuple[str, ...] = ("dtype", "dropout", "seed")

    @_explaining_missing_sizes
    def __init__(
        self,
        num_layers: SizeLike,
        num_units: SizeLike,
        input_size: SizeLike,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
        *trailing: Any,
        **named: Any,
    ) -> None:
        """Describes an RNN.

        The arguments after `direction` are `dtype=tf.float32, dropout=0., seed=0` and, for an LSTM,
        `num_proj=None`. TensorFlow 1.0 to 1.3 had `dropout=0., seed=0` there (1.0 and 1.1 also
        `seed2=0`), so a number as the sixth positional argument means the dropout, followed by the
        seed. Keyword arguments are unambiguous; `float32_matmul_precision` can only be one.

        Args:
          num_layers: int, at least 1, or a scalar tensor whose value follows from static shapes.
          num_units: likewise; the output size of one direction.
          input_size: likewise; the last dimension of the input, such as `tf.shape(inputs)[2]`.
          input_mode: "linear_input", "skip_input" (the first layer adds its input unchanged to
            every gate; `input_size` must equal `num_units`) or "auto_select" (skip_input if the
            two sizes are equal, otherwise linear_input).
          direction: "unidirectional" or "bidirectional".
          dtype: tf.float16, tf.float32, tf.float64 or (TensorFlow 2) tf.bfloat16; the dtype of
            inputs, states, parameters and outputs. If omitted, it is inferred from the tensors of
            each call; float32 by default.
          dropout: number between 0 and 1, the fraction of inputs that every layer except the first
            drops in training. Has no effect with one layer (a warning is issued).
          seed: int or None, the seed of the dropout; combines with `tf.set_random_seed` as in any
            op. Without both seeds, the pattern is that of seed 0, the same in every process.
          seed2: int, the second seed of the dropout. If given, the op gets both seeds unchanged.
          num_proj: int, the width to which an LSTM projects h, below `num_units`; None or 0 for no
            projection.
          float32_matmul_precision: "highest", "high" or "medium", the precision of this model's
            matrix products; None for that of the process (`set_float32_matmul_precision`).

        Raises:
          TypeError: an argument has the wrong type or is given twice.
          ValueError: an argument is out of range.
        """
        arguments = _trailing_arguments(self._TRAILING_ARGUMENTS, trailing, named)
        dtype = arguments.pop("dtype", None)
        # The dtype that tensors must have; None to infer it from the tensors.
        self._given_dtype = None if dtype is None else checked_dtype(dtype)
        arguments = dict({"dropout": 0.0, "seed": 0}, **arguments)
        sizes = (num_layers, num_units, input_size)
        others = (input_mode, direction, self._given_dtype or tf.float32)
        self.config = rnn_config(self._rnn_mode, *sizes, *others, **arguments)
        warn_about_dropout(self, self.dropout)

    @property
    def num_layers(self) -> int:
        """Number of layers, an int."""
        return self.config.num_layers

    @property
    def num_units(self) -> int:
        """Output size of one direction, an int."""
        return self.config.num_units

    @property
    def input_size(self) -> int:
        """Last dimension of the input, an int."""
        return self.config.input_size

    @property
    def input_mode(self) -> str:
        """ "linear_input", "skip_input" or "auto_select"."""
        return self.config.input_mode

    @property
    def direction(self) -> str:
        """ "unidirectional" or "bidirectional"."""
        return self.config.direction

    @property
    def rnn_mode(self) -> str:
        """ "lstm", "gru", "rnn_relu" or "rnn_tanh"."""
        return self._rnn_mode

    @property
    def dtype(self) -> tf.DType:
        """The given `tf.DType`, or float32; used if no tensor determines the dtype."""
        return dtype_of(self.config)

    @property
    def num_proj(self) -> Optional[int]:
        """Width to which an LSTM projects its output h, an int; None without a projection."""
        return self.config.num_proj or None

    @property
    def dropout(self) -> float:
        """Fraction of inputs that every layer except the first drops in training, a float."""
        return self.config.dropout

    _num_layers, _num_units = OldName("num_layers"), OldName("num_units")
    _input_size, _input_mode = OldName("input_size"), OldName("input_mode")
    _direction, _dropout, _dtype = OldName("direction"), OldName("dropout"), OldName("dtype")

    def params_size(self) -> tf.Tensor:
        """Returns the number of elements of the opaque parameter buffer, a scalar int32 tensor.

        The value is known at graph construction: `tf.get_static_value` returns it, and
        `tf.Variable(tf.random_uniform([rnn.params_size()]))` has a static shape.

        Raises:
          ValueError: the buffer would have more than 2**31 - 1 elements.
        """
        return canonical.params_size(self.config)

    def _num_params(self):
        """Returns the number of elements of the opaque parameter buffer, an int."""
        return canonical.static_params_size(self.config)

    def params_to_canonical(self, params: TensorLike) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
        """Splits the opaque parameter buffer into canonical tensors. Differentiable.

        Args:
          params: the opaque buffer, `[params_size]`; another shape and more elements are possible
            as in a call.

        Returns:
          `(weights, biases)`, two lists of tensors, equally long without a projection. For every
          layer and direction (forward, backward), `weights` holds the input weights `[num_units,
          width]` of every gate, then the recurrent weights `[num_units, num_units]` of every gate;
          `biases` holds vectors `[num_units]` in the same order. `width` is `input_size` in the
          first layer (0 with skip_input) and `num_directions * num_units` in the layers above. Gate
          order of an LSTM: input, forget, new memory, output; of a GRU: reset, update, new memory.
          With a projection, `num_proj` replaces `num_units` in `width` and in the last dimension of
          the recurrent weights, and a matrix `[num_proj, num_units]` follows the recurrent weights
          of every layer and direction.

        Raises:
          TypeError: `params` has the wrong dtype.
          ValueError: `params` has too few elements.
        """
        return canonical.params_to_canonical(self.config, self._given_dtype, params)

    def canonical_to_params(
        self, weights: Sequence[TensorLike], biases: Sequence[TensorLike]
    ) -> tf.Tensor:
        """Assembles the opaque buffer, the inverse of `params_to_canonical`. Differentiable.

        Args:
          weights: list as returned by `params_to_canonical`; a tensor may have any shape with the
            right number of elements, in row-major order.
          biases: likewise.

        Returns:
          The opaque buffer, `[params_size]`.

        Raises:
          TypeError: the tensors have different or wrong dtypes.
          ValueError: a list has the wrong length, or a tensor the wrong number of elements.
        """
        return canonical.canonical_to_params(self.config, self._given_dtype, weights, biases)

    def _call(self, input_data, input_h, input_c, params, is_training, lengths, time_major):
        """Builds a call; returns `(output, output_h, output_c)`. Only an LSTM uses `input_c`."""
        config = self.config
        sizes = Sizes(
            config.input_size,
            config.num_layers * config.num_directions,
            config.num_units,
            canonical.static_params_size(config),
        )
        tensors = (input_data, input_h, input_c, params)
        lengths, is_training = calls.lengths_and_training(lengths, is_training)
        dtypes = dict(dtype=self._given_dtype, default_dtype=self.dtype)
        return calls.run(config, tensors, is_training, lengths, time_major, sizes, **dtypes)


class CudnnLSTM(_OpLevelRNN):
    """A stack of LSTM layers whose parameters are one opaque vector."""

    _rnn_mode = CUDNN_LSTM
    _NUM_PARAMS_PER_LAYER = CUDNN_LSTM_PARAMS_PER_LAYER
    _TRAILING_ARGUMENTS = ("dtype", "dropout", "seed", "num_proj")

    @_explaining_missing_tensors
    def __call__(
        self,
        input_data: TensorLike,
        input_h: TensorLike,
        input_c: TensorLike,
        params: TensorLike,
        sequence_lengths: Optional[TensorLike] = None,
        time_major: bool = True,
        is_training: BoolLike = True,
    ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Runs the LSTM. Differentiable in the first four arguments if `is_training`.

        Args:
          input_data: `[time, batch, input_size]`, or a list of `time` tensors `[batch,
            input_size]`.
          input_h: `[num_layers * directions, batch, num_units]`, the initial hidden states h; with
            a projection, the last dimension is `num_proj`.
          input_c: `[num_layers * directions, batch, num_units]`, the initial cell states c.
          params: `[params_size]`, the opaque parameter buffer; any tensor, not only a variable.
            Another shape is read in row-major order. The RNN uses the first `params_size` elements
            of a longer buffer (a warning is issued).
          sequence_lengths: integers `[batch]`, each from 0 to `time`: the number of valid steps of
            each sequence. Later outputs are 0; the returned states are those after the last valid
            step. None: all steps are valid. A bool or bool tensor here means `is_training`, which
            had this position up to TensorFlow 1.13.
          time_major: bool. If False, `input_data`, the output and all states have the batch as
            their first dimension, and time or layer as their second.
          is_training: bool or scalar bool tensor. Only training applies dropout and has a gradient;
            with a tensor, the computed outputs have a gradient for either value.

        Returns:
          `(output, output_h, output_c)`. `output` is `[time, batch, directions * num_units]`, or
          `[time, batch, directions * num_proj]` with a projection; the states have the shapes of
          `input_h` and `input_c`. With zero time steps, they equal `input_h` and `input_c`.

        Raises:
          TypeError: an argument has the wrong type or dtype.
          ValueError: an argument has the wrong static shape. A wrong shape that is known only at
            run time raises `InvalidArgumentError` when the op runs, except of narrower inputs.
        """
        return self._call(
            input_data, input_h, input_c, params, is_training, sequence_lengths, time_major
        )


class _OpLevelRNNWithoutCellState(_OpLevelRNN):
    """Common base of the classes without a cell state."""

    @_explaining_missing_tensors
    def __call__(
        self,
        input_data: TensorLike,
        input_h: TensorLike,
        params: TensorLike,
        sequence_lengths: Optional[TensorLike] = None,
        time_major: bool = True,
        is_training: BoolLike = True,
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        """Runs the RNN. Differentiable in the first three arguments if `is_training`.

        Arguments and errors are those of `CudnnLSTM.__call__`, without `input_c`.

        Returns:
          `(output, output_h)`. `output` is `[time, batch, directions * num_units]`; `output_h` has
          the shape of `input_h`, `[num_layers * directions, batch, num_units]`. With zero time
          steps, it equals `input_h`.
        """
        return self._call(
            input_data, input_h, None, params, is_training, sequence_lengths, time_major
        )[:2]


class CudnnGRU(_OpLevelRNNWithoutCellState):
    """A stack of GRU layers whose parameters are one opaque vector.

    The reset gate multiplies the recurrent product, which has its own bias (see the formula in the
    module's docstring). The matching cell is therefore `CudnnCompatibleGRUCell`, not
    `tf.nn.rnn_cell.GRUCell`.
    """

    _rnn_mode = CUDNN_GRU
    _NUM_PARAMS_PER_LAYER = CUDNN_GRU_PARAMS_PER_LAYER


class CudnnRNNTanh(_OpLevelRNNWithoutCellState):
    """A stack of simple tanh RNN layers whose parameters are one opaque vector."""

    _rnn_mode = CUDNN_RNN_TANH
    _NUM_PARAMS_PER_LAYER = CUDNN_RNN_TANH_PARAMS_PER_LAYER


class CudnnRNNRelu(_OpLevelRNNWithoutCellState):
    """A stack of simple ReLU RNN layers whose parameters are one opaque vector."""

    _rnn_mode = CUDNN_RNN_RELU
    _NUM_PARAMS_PER_LAYER = CUDNN_RNN_RELU_PARAMS_PER_LAYER


def _trailing_arguments(names, values, named):
    """Returns the arguments after `direction` as a dict by name; see `_OpLevelRNN.__init__`."""
    by_keyword = ("seed2", "float32_matmul_precision")
    unknown = sorted(set(named).difference(names, by_keyword))
    if unknown:
        raise TypeError(
            "Got an unexpected keyword argument %r. The arguments after direction are %s."
            % (unknown[0], ", ".join(names))
        )
    sixth = values[0] if values else None
    if isinstance(sixth, (bool, np.bool_)):
        raise TypeError(
            "The sixth argument must be a dtype (or, as in TensorFlow 1.0 to 1.3, the dropout), "
            "but is %r." % (sixth,)
        )
    sixth_is_dropout = isinstance(sixth, numbers.Real)
    places = ("dropout", "seed", "seed2") if sixth_is_dropout else names
    if len(values) > len(places):
        raise TypeError(
            "Got %d positional arguments, but with a %s in the sixth place there are at most %d."
            % (5 + len(values), "number" if sixth_is_dropout else "dtype", 5 + len(places))
        )
    arguments = dict(zip(places, values))
    for name in named:
        if name in arguments:
            raise TypeError(
                "Got %s twice: by keyword (%r) and by position (%r). A number in the sixth place "
                "means the dropout, with the seed after it, as in TensorFlow 1.0 to 1.3; a dtype "
                "there is followed by dropout and seed, as in 1.4 and later."
                % (name, named[name], arguments[name])
            )
    arguments.update(named)
    return arguments
