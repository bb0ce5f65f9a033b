"""The functional API of `tf.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops`, as of TensorFlow 1.15.

Functions of tensors: `cudnn_lstm`, `cudnn_gru`, `cudnn_rnn_relu` and `cudnn_rnn_tanh` run an RNN on
an opaque parameter buffer, `cudnn_rnn_opaque_params_to_canonical` and
`cudnn_rnn_canonical_to_opaque_params` split and assemble the buffer, and
`cudnn_rnn_opaque_params_size` returns its size. See `op_level.py` for the formulas.

Common arguments:

- `rnn_mode`: "lstm", "gru", "rnn_relu" or "rnn_tanh";
- `input_mode`: "linear_input", "skip_input" or "auto_select"; see `CudnnLSTM`;
- `direction`: "unidirectional" or "bidirectional";
- `dropout`: number from 0 to 1, the fraction of inputs that every layer except the first drops in
  training;
- `seed`: int or None, the seed of the dropout; combines with `tf.set_random_seed`;
- `num_proj`: None or 0, or the width to which an LSTM projects its output h;
- `name`: name of the node.

All tensors must have the same dtype: float16, float32, float64 or (TensorFlow 2) bfloat16. NumPy
arrays are converted to the dtype of the tensors or, without tensors, to that of the first array.

The conversions accept dropout and seed because the ops do; the values have no effect. They raise
`TypeError` for an argument of the wrong type or dtype, and `ValueError` for one that is out of
range, a wrong shape or length of a list, params with too few elements, and a buffer of more than
2**31 - 1 elements.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import calls, canonical
from cudnn_rnn.graph.arguments import numpy_dtype
from cudnn_rnn.graph.config import checked_projection, op_seeds, rnn_config
from cudnn_rnn.graph.types import BoolLike, DTypeLike, SizeLike, TensorLike
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_LSTM,
    CUDNN_RNN_RELU,
    CUDNN_RNN_TANH,
    CUDNN_RNN_UNIDIRECTION,
    DIRECTIONS,
    GATES,
    INPUT_MODES,
    RnnConfig,
    checked_choice,
    checked_dropout,
)

__all__ = [
    "check_direction",
    "check_input_mode",
    "cudnn_gru",
    "cudnn_lstm",
    "cudnn_rnn_canonical_to_opaque_params",
    "cudnn_rnn_opaque_params_size",
    "cudnn_rnn_opaque_params_to_canonical",
    "cudnn_rnn_relu",
    "cudnn_rnn_tanh",
]


def check_direction(direction: str) -> None:
    """Raises `ValueError` unless `direction` is "unidirectional" or "bidirectional"."""
    checked_choice("direction", direction, DIRECTIONS)


def check_input_mode(input_mode: str) -> None:
    """Raises `ValueError` unless `input_mode` is one of the three."""
    checked_choice("input_mode", input_mode, INPUT_MODES)


def _check_rnn_mode(rnn_mode):
    checked_choice("rnn_mode", rnn_mode, tuple(GATES))


def _get_seed(seed):
    """Returns the attributes (seed, seed2) of an op for an int or None."""
    return op_seeds(seed)


def _get_num_params(rnn_mode, num_layers, direction):
    """Returns the number of canonical biases; without a projection, also that of weights."""
    _check_rnn_mode(rnn_mode)
    num_directions = 1 if direction == CUDNN_RNN_UNIDIRECTION else 2
    return num_layers * num_directions * 2 * len(GATES[rnn_mode])


def _cudnn_rnn(
    inputs,
    input_h,
    input_c,
    params,
    is_training,
    rnn_mode,
    sequence_lengths=None,
    time_major=True,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    num_proj=None,
    name=None,
):
    """Runs an RNN of any mode; see `cudnn_lstm`.

    Returns:
      `(output, output_h, output_c)`. Only an LSTM uses `input_c` and has a meaningful `output_c`.
    """
    attributes = _attributes(rnn_mode, input_mode, direction, dropout, seed, num_proj)
    tensors = (inputs, input_h, input_c, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)


def _attributes(rnn_mode, input_mode, direction, dropout, seed, num_proj=None):
    """Returns an `RnnConfig` without sizes and dtype, after checking the arguments."""
    _check_rnn_mode(rnn_mode)
    check_direction(direction)
    check_input_mode(input_mode)
    dropout = checked_dropout(dropout)
    num_proj = checked_projection(rnn_mode, None, num_proj)
    seed, seed2 = op_seeds(seed)
    modes = dict(rnn_mode=rnn_mode, input_mode=input_mode, direction=direction)
    unknown: Any = dict.fromkeys(("num_layers", "num_units", "input_size", "dtype"))
    return RnnConfig(**modes, **unknown, dropout=dropout, seed=seed, seed2=seed2, num_proj=num_proj)


def _run(attributes, tensors, is_training, sequence_lengths, time_major, name):
    """Returns `(output, output_h, output_c)`; `tensors` are those of `calls.run`."""
    options = dict(default_dtype=numpy_dtype(*tensors), input_name="inputs", name=name)
    return calls.run(attributes, tensors, is_training, sequence_lengths, time_major, **options)


def cudnn_lstm(
    inputs: TensorLike,
    input_h: TensorLike,
    input_c: TensorLike,
    params: TensorLike,
    is_training: BoolLike,
    sequence_lengths: Optional[TensorLike] = None,
    time_major: bool = True,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: Optional[int] = 0,
    num_proj: Optional[int] = None,
    name: Optional[str] = None,
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Runs an LSTM. Differentiable in the first four arguments if `is_training`.

    Args:
      inputs: `[time, batch, input_size]`, or a list of `time` tensors `[batch, input_size]`. The
        first four arguments have one dtype: float16, float32, float64 or (TensorFlow 2) bfloat16.
      input_h: `[num_layers * directions, batch, num_units]`, the initial hidden states h; with a
        projection, the last dimension is `num_proj`.
      input_c: `[num_layers * directions, batch, num_units]`, the initial cell states c.
      params: `[params_size]`, the opaque parameter buffer; any tensor, not only a variable. Another
        shape is read in row-major order. The RNN uses the first `params_size` elements of a longer
        buffer (a warning is issued if all sizes are known when the graph is built).
      is_training: bool or scalar bool tensor. Only training applies dropout and has a gradient;
        with a tensor, the computed outputs have a gradient for either value.
      sequence_lengths: integers `[batch]`, each from 0 to `time`: the number of valid steps of each
        sequence. Later outputs are 0; the returned states are those after the last valid step.
        None: all steps are valid.
      time_major: bool. If False, `inputs`, the output and all states have the batch as their first
        dimension, and time or layer as their second.
      input_mode, direction, dropout, seed, num_proj, name: see the module's docstring.

    Returns:
      `(output, output_h, output_c)`. `output` is `[time, batch, directions * num_units]`, or
      `[time, batch, directions * num_proj]` with a projection; the states have the shapes of
      `input_h` and `input_c`.

    Raises:
      TypeError: an argument has the wrong type or dtype.
      ValueError: an argument is out of range or has the wrong static shape. A wrong shape that is
        known only at run time raises `InvalidArgumentError` when the op runs.
    """
    attributes = _attributes(CUDNN_LSTM, input_mode, direction, dropout, seed, num_proj)
    tensors = (inputs, input_h, input_c, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)


def _cudnn_rnn_no_input_c(
    inputs,
    input_h,
    params,
    is_training,
    rnn_mode,
    sequence_lengths=None,
    time_major=True,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    name=None,
):
    """Runs an RNN without cell states, see `cudnn_gru`; returns `(output, output_h)`."""
    attributes = _attributes(rnn_mode, input_mode, direction, dropout, seed)
    tensors = (inputs, input_h, None, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)[:2]


def cudnn_gru(
    inputs: TensorLike,
    input_h: TensorLike,
    params: TensorLike,
    is_training: BoolLike,
    sequence_lengths: Optional[TensorLike] = None,
    time_major: bool = True,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: Optional[int] = 0,
    name: Optional[str] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Runs a GRU. Differentiable in the first three arguments if `is_training`.

    Arguments and errors are those of `cudnn_lstm`, without `input_c` and `num_proj`.

    Returns:
      `(output, output_h)`. `output` is `[time, batch, directions * num_units]`; `output_h` has the
      shape of `input_h`.
    """
    attributes = _attributes(CUDNN_GRU, input_mode, direction, dropout, seed)
    tensors = (inputs, input_h, None, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)[:2]


def cudnn_rnn_relu(
    inputs: TensorLike,
    input_h: TensorLike,
    params: TensorLike,
    is_training: BoolLike,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: Optional[int] = 0,
    sequence_lengths: Optional[TensorLike] = None,
    time_major: bool = True,
    name: Optional[str] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Runs a simple ReLU RNN; see `cudnn_gru`.

    The argument order differs from that of the other functions, as in TensorFlow.
    """
    attributes = _attributes(CUDNN_RNN_RELU, input_mode, direction, dropout, seed)
    tensors = (inputs, input_h, None, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)[:2]


def cudnn_rnn_tanh(
    inputs: TensorLike,
    input_h: TensorLike,
    params: TensorLike,
    is_training: BoolLike,
    sequence_lengths: Optional[TensorLike] = None,
    time_major: bool = True,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0.0,
    seed: Optional[int] = 0,
    name: Optional[str] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Runs a simple tanh RNN; see `cudnn_gru`."""
    attributes = _attributes(CUDNN_RNN_TANH, input_mode, direction, dropout, seed)
    tensors = (inputs, input_h, None, params)
    return _run(attributes, tensors, is_training, sequence_lengths, time_major, name)[:2]


def cudnn_rnn_opaque_params_to_canonical(
    rnn_mode: str,
    num_layers: SizeLike,
    num_units: SizeLike,
    input_size: SizeLike,
    params: TensorLike,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0,
    seed: Optional[int] = 0,
    num_proj: Optional[int] = None,
    name: Optional[str] = None,
) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
    """Splits the opaque buffer `params`, `[params_size]`, into canonical tensors. Differentiable.

    `params` may have another shape or more elements, as in `cudnn_lstm`. The module's docstring
    describes the other arguments and the errors.

    Returns:
      `(weights, biases)`, two lists of tensors; see `CudnnLSTM.params_to_canonical`.
    """
    sizes = (num_layers, num_units, input_size)
    others = (input_mode, direction, numpy_dtype(params), dropout, seed, num_proj)
    described = rnn_config(rnn_mode, *sizes, *others)
    return canonical.params_to_canonical(described, None, params, name)


def cudnn_rnn_canonical_to_opaque_params(
    rnn_mode: str,
    num_layers: SizeLike,
    num_units: SizeLike,
    input_size: SizeLike,
    weights: Sequence[TensorLike],
    biases: Sequence[TensorLike],
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dropout: float = 0,
    seed: Optional[int] = 0,
    num_proj: Optional[int] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Assembles the opaque parameter buffer from canonical tensors. Differentiable.

    The module's docstring describes the other arguments and the errors.

    Args:
      weights, biases: lists as returned by `cudnn_rnn_opaque_params_to_canonical`; a tensor may
        have any shape with the right number of elements, in row-major order.

    Returns:
      The opaque buffer, `[params_size]`.
    """
    sizes = (num_layers, num_units, input_size)
    others = (input_mode, direction, numpy_dtype(weights, biases), dropout, seed, num_proj)
    described = rnn_config(rnn_mode, *sizes, *others)
    return canonical.canonical_to_params(described, None, weights, biases, name)


def cudnn_rnn_opaque_params_size(
    rnn_mode: str,
    num_layers: SizeLike,
    num_units: SizeLike,
    input_size: SizeLike,
    input_mode: str = CUDNN_INPUT_LINEAR_MODE,
    direction: str = CUDNN_RNN_UNIDIRECTION,
    dtype: DTypeLike = tf.float32,
    dropout: float = 0,
    seed: Optional[int] = 0,
    num_proj: Optional[int] = None,
    name: Optional[str] = None,
) -> tf.Tensor:
    """Returns the number of elements of the opaque parameter buffer, a scalar int32 tensor.

    The value is known at graph construction and is the same for every `dtype`. The module's
    docstring describes the arguments and the errors.
    """
    sizes = (num_layers, num_units, input_size)
    others = (input_mode, direction, dtype, dropout, seed, num_proj)
    described = rnn_config(rnn_mode, *sizes, *others)
    return canonical.params_size(described, name)
