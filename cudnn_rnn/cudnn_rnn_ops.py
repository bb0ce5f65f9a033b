"""The functional API of `tf.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops`, as of TensorFlow 1.15.

Functions of tensors: `cudnn_lstm`, `cudnn_gru`, `cudnn_rnn_relu` and `cudnn_rnn_tanh` run an RNN on
an opaque parameter buffer, `cudnn_rnn_opaque_params_to_canonical` and
`cudnn_rnn_canonical_to_opaque_params` take the buffer apart and put it together, and
`cudnn_rnn_opaque_params_size` says how large it is. `op_level.py` has the arithmetic.

The arguments that these functions share:

- `rnn_mode`: "lstm", "gru", "rnn_relu" or "rnn_tanh";
- `input_mode`: "linear_input", "skip_input" or "auto_select", as `CudnnLSTM` explains;
- `direction`: "unidirectional" or "bidirectional";
- `dropout`: number from 0 to 1, the share of its inputs that every layer but the first drops in
  training;
- `seed`: int or None, of the dropout, together with `tf.set_random_seed`;
- `num_proj`: None or 0, or the width to which an LSTM projects its output h;
- `name`: of the node.

Tensors must have one dtype, float16, float32 or float64 (in TensorFlow 2 also bfloat16), to which
NumPy's arrays are converted; where there are only arrays, the first one's dtype counts.

The conversions take dropout and seed because the ops do; they change nothing there.
"""

import collections

from cudnn_rnn._compat import tf
from cudnn_rnn._core import canonical, config
from cudnn_rnn._core.arguments import numpy_dtype
from cudnn_rnn._core.calls import Call
from cudnn_rnn._core.config import (
    CUDNN_GRU,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_LSTM,
    CUDNN_RNN_RELU,
    CUDNN_RNN_TANH,
    CUDNN_RNN_UNIDIRECTION,
    RnnConfig,
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

# What a call without known sizes is.
_Attributes = collections.namedtuple(
    "_Attributes", "rnn_mode input_mode direction dropout seed seed2 num_proj"
)


def check_direction(direction):
    """Raises `ValueError` unless `direction` is "unidirectional" or "bidirectional"."""
    config.checked_choice("direction", direction, config.DIRECTIONS)


def check_input_mode(input_mode):
    """Raises `ValueError` unless `input_mode` is one of the three."""
    config.checked_choice("input_mode", input_mode, config.INPUT_MODES)


def _check_rnn_mode(rnn_mode):
    config.checked_choice("rnn_mode", rnn_mode, tuple(config.GATES))


def _get_seed(seed):
    """Returns the attributes (seed, seed2) of an op for an int or None."""
    return config.op_seeds(seed)


def _get_num_params(rnn_mode, num_layers, direction):
    """Returns how many biases, and without a projection as many weights, the canonical form has."""
    _check_rnn_mode(rnn_mode)
    num_directions = 1 if direction == CUDNN_RNN_UNIDIRECTION else 2
    return num_layers * num_directions * 2 * len(config.GATES[rnn_mode])


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
    """Runs an RNN of any mode, as `cudnn_lstm` says.

    Returns:
      `(output, output_h, output_c)`; without an LSTM `input_c` is ignored and `output_c` means
      nothing.
    """
    _check_rnn_mode(rnn_mode)
    check_direction(direction)
    check_input_mode(input_mode)
    dropout = config.checked_dropout(dropout)
    num_proj = config.checked_projection(rnn_mode, None, num_proj)
    seeds = config.op_seeds(seed)
    attributes = _Attributes(rnn_mode, input_mode, direction, dropout, *seeds, num_proj=num_proj)
    return Call(
        attributes,
        inputs,
        input_h,
        input_c,
        params,
        is_training,
        sequence_lengths,
        time_major,
        default_dtype=numpy_dtype(inputs, input_h, input_c, params),
        input_name="inputs",
        name=name,
    ).outputs


def cudnn_lstm(
    inputs,
    input_h,
    input_c,
    params,
    is_training,
    sequence_lengths=None,
    time_major=True,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    num_proj=None,
    name=None,
):
    """Runs an LSTM. Differentiable in the first four arguments if `is_training`.

    Args:
      inputs: `[time, batch, input_size]`, or a list of `time` tensors `[batch, input_size]`; of
        float16, float32, float64 or (TensorFlow 2) bfloat16, like all of the first four.
      input_h: `[num_layers * directions, batch, num_units]`, the initial outputs h; with a
        projection `num_proj` wide.
      input_c: `[num_layers * directions, batch, num_units]`, the initial cell states c.
      params: `[params_size]`, the opaque parameter buffer; any tensor, not only a variable.
      is_training: bool or scalar bool tensor. Only training applies dropout and has a gradient.
        With a tensor there is a gradient in both cases, of what was computed.
      sequence_lengths: integers `[batch]`, each from 0 to `time`: how many steps of a sequence
        count. Beyond, the output is 0; the returned states are those after the last step that
        counts. None: all steps of all sequences count.
      time_major: False if the batch is the first dimension of `inputs` and of the states, given and
        returned, and time or layer the second.
      input_mode, direction, dropout, seed, num_proj, name: see above.

    Returns:
      `(output, output_h, output_c)`: `[time, batch, directions * num_units]` (`num_proj` with a
      projection), and the shapes of `input_h` and `input_c`.

    Raises:
      TypeError: an argument of the wrong type or dtype.
      ValueError: an argument outside of its range, or whose static shape does not fit. A shape that
        only a run tells is an `InvalidArgumentError` then.
    """
    return _cudnn_rnn(
        inputs,
        input_h,
        input_c,
        params,
        is_training,
        CUDNN_LSTM,
        sequence_lengths=sequence_lengths,
        time_major=time_major,
        input_mode=input_mode,
        direction=direction,
        dropout=dropout,
        seed=seed,
        num_proj=num_proj,
        name=name,
    )


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
    """Runs an RNN without cell states, as `cudnn_gru` says; returns `(output, output_h)`."""
    return _cudnn_rnn(
        inputs,
        input_h,
        None,
        params,
        is_training,
        rnn_mode,
        sequence_lengths=sequence_lengths,
        time_major=time_major,
        input_mode=input_mode,
        direction=direction,
        dropout=dropout,
        seed=seed,
        name=name,
    )[:2]


def cudnn_gru(
    inputs,
    input_h,
    params,
    is_training,
    sequence_lengths=None,
    time_major=True,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    name=None,
):
    """Runs a GRU. Differentiable in the first three arguments if `is_training`.

    Arguments and errors are those of `cudnn_lstm`, without `input_c` and `num_proj`.

    Returns:
      `(output, output_h)`: `[time, batch, directions * num_units]` and the shape of `input_h`.
    """
    return _cudnn_rnn_no_input_c(
        inputs,
        input_h,
        params,
        is_training,
        CUDNN_GRU,
        sequence_lengths,
        time_major,
        input_mode,
        direction,
        dropout,
        seed,
        name,
    )


def cudnn_rnn_relu(
    inputs,
    input_h,
    params,
    is_training,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    sequence_lengths=None,
    time_major=True,
    name=None,
):
    """Runs a simple RNN with ReLU, as `cudnn_gru` does.

    The order of the arguments, not that of the other functions, is TensorFlow's.
    """
    return _cudnn_rnn_no_input_c(
        inputs,
        input_h,
        params,
        is_training,
        CUDNN_RNN_RELU,
        sequence_lengths,
        time_major,
        input_mode,
        direction,
        dropout,
        seed,
        name,
    )


def cudnn_rnn_tanh(
    inputs,
    input_h,
    params,
    is_training,
    sequence_lengths=None,
    time_major=True,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0.0,
    seed=0,
    name=None,
):
    """Runs a simple RNN with tanh, as `cudnn_gru` does."""
    return _cudnn_rnn_no_input_c(
        inputs,
        input_h,
        params,
        is_training,
        CUDNN_RNN_TANH,
        sequence_lengths,
        time_major,
        input_mode,
        direction,
        dropout,
        seed,
        name,
    )


def cudnn_rnn_opaque_params_to_canonical(
    rnn_mode,
    num_layers,
    num_units,
    input_size,
    params,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0,
    seed=0,
    num_proj=None,
    name=None,
):
    """Takes the opaque parameter buffer `params`, `[params_size]`, apart. Differentiable.

    Returns:
      `(weights, biases)`, two lists of tensors, as `CudnnLSTM.params_to_canonical` explains.

    Raises:
      TypeError: an argument of the wrong type or dtype.
      ValueError: an argument outside of its range, or `params` of the wrong shape.
    """
    described = RnnConfig.checked(
        rnn_mode,
        num_layers,
        num_units,
        input_size,
        input_mode,
        direction,
        numpy_dtype(params),
        dropout,
        seed,
        num_proj,
    )
    return canonical.params_to_canonical(described, None, params, name)


def cudnn_rnn_canonical_to_opaque_params(
    rnn_mode,
    num_layers,
    num_units,
    input_size,
    weights,
    biases,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dropout=0,
    seed=0,
    num_proj=None,
    name=None,
):
    """Puts the opaque parameter buffer together from canonical tensors. Differentiable.

    Args:
      weights, biases: lists as `cudnn_rnn_opaque_params_to_canonical` returns them; a tensor may
        have any shape with the right number of elements, in row-major order.

    Returns:
      The opaque buffer, `[params_size]`.

    Raises:
      TypeError: an argument of the wrong type or dtype.
      ValueError: an argument outside of its range, a list of the wrong length, or a tensor with the
        wrong number of elements.
    """
    described = RnnConfig.checked(
        rnn_mode,
        num_layers,
        num_units,
        input_size,
        input_mode,
        direction,
        numpy_dtype(weights, biases),
        dropout,
        seed,
        num_proj,
    )
    return canonical.canonical_to_params(described, None, weights, biases, name)


def cudnn_rnn_opaque_params_size(
    rnn_mode,
    num_layers,
    num_units,
    input_size,
    input_mode=CUDNN_INPUT_LINEAR_MODE,
    direction=CUDNN_RNN_UNIDIRECTION,
    dtype=tf.float32,
    dropout=0,
    seed=0,
    num_proj=None,
    name=None,
):
    """Returns the number of elements of the opaque parameter buffer, a scalar int32 tensor.

    Its value is known when the graph is made, and is the same for every `dtype`.

    Raises:
      TypeError: an argument of the wrong type.
      ValueError: an argument outside of its range, or more than 2**31 - 1 elements.
    """
    described = RnnConfig.checked(
        rnn_mode,
        num_layers,
        num_units,
        input_size,
        input_mode,
        direction,
        dtype,
        dropout,
        seed,
        num_proj,
    )
    return canonical.params_size(described, name)
