"""`RnnConfig`, the validated description of an RNN."""

from __future__ import annotations

import numbers
import operator
from typing import Any, NamedTuple, Optional, Sequence

# The public names, those of TensorFlow 1.4 to 1.15.
__all__ = [
    "CUDNN_GRU",
    "CUDNN_GRU_PARAMS_PER_LAYER",
    "CUDNN_INPUT_AUTO_MODE",
    "CUDNN_INPUT_LINEAR_MODE",
    "CUDNN_INPUT_SKIP_MODE",
    "CUDNN_LSTM",
    "CUDNN_LSTM_PARAMS_PER_LAYER",
    "CUDNN_RNN_BIDIRECTION",
    "CUDNN_RNN_RELU",
    "CUDNN_RNN_RELU_PARAMS_PER_LAYER",
    "CUDNN_RNN_TANH",
    "CUDNN_RNN_TANH_PARAMS_PER_LAYER",
    "CUDNN_RNN_UNIDIRECTION",
]

CUDNN_LSTM = "lstm"
CUDNN_GRU = "gru"
CUDNN_RNN_RELU = "rnn_relu"
CUDNN_RNN_TANH = "rnn_tanh"

CUDNN_RNN_UNIDIRECTION = "unidirectional"
CUDNN_RNN_BIDIRECTION = "bidirectional"

CUDNN_INPUT_LINEAR_MODE = "linear_input"
CUDNN_INPUT_SKIP_MODE = "skip_input"
CUDNN_INPUT_AUTO_MODE = "auto_select"

# Gates in cuDNN's order.
GATES = {
    CUDNN_LSTM: ("input gate", "forget gate", "new memory gate", "output gate"),
    CUDNN_GRU: ("reset gate", "update gate", "new memory gate"),
    CUDNN_RNN_RELU: ("only gate",),
    CUDNN_RNN_TANH: ("only gate",),
}
DIRECTIONS = (CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION)
INPUT_MODES = (CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE)

# PyTorch's names of what the matrix products of float32 models keep of their factors.
PRECISIONS = ("highest", "high", "medium")

# Matrices per layer and direction (W and R of every gate); the number of biases is the same.
CUDNN_LSTM_PARAMS_PER_LAYER = 2 * len(GATES[CUDNN_LSTM])
CUDNN_GRU_PARAMS_PER_LAYER = 2 * len(GATES[CUDNN_GRU])
CUDNN_RNN_TANH_PARAMS_PER_LAYER = 2 * len(GATES[CUDNN_RNN_TANH])
CUDNN_RNN_RELU_PARAMS_PER_LAYER = 2 * len(GATES[CUDNN_RNN_RELU])

# TensorFlow's ops that compute an RNN.
FORWARD_OPS = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")

INT32_MAX = 2**31 - 1


class RnnConfig(NamedTuple):
    """The description of one RNN. `RnnConfig.checked` makes it; a size may be None if unknown."""

    rnn_mode: str
    num_layers: int
    num_units: int
    input_size: int
    input_mode: str = CUDNN_INPUT_LINEAR_MODE
    direction: str = CUDNN_RNN_UNIDIRECTION
    dtype: str = "float32"
    dropout: float = 0.0
    seed: int = 0
    seed2: int = 0
    num_proj: int = 0  # 0 for no projection
    float32_matmul_precision: Optional[str] = None  # None for that of the process

    @classmethod
    def checked(cls, *values: Any, **named: Any) -> RnnConfig:
        """Returns a config of these fields; raises `ValueError` or `TypeError` for invalid ones.

        Sizes are integers. `num_proj` may be None for no projection. The dtype and the seeds are
        not checked: whoever runs the model knows which it takes.
        """
        given = cls(*values, **named)
        config = given._replace(
            rnn_mode=checked_choice("rnn_mode", given.rnn_mode, tuple(GATES)),
            num_layers=checked_size("num_layers", given.num_layers),
            num_units=checked_size("num_units", given.num_units),
            input_size=checked_size("input_size", given.input_size),
            input_mode=checked_choice("input_mode", given.input_mode, INPUT_MODES),
            direction=checked_choice("direction", given.direction, DIRECTIONS),
            dropout=checked_dropout(given.dropout),
            num_proj=checked_projection(given.rnn_mode, given.num_units, given.num_proj),
        )
        checked_precision(config.float32_matmul_precision)
        if config.input_mode == CUDNN_INPUT_SKIP_MODE and config.input_size != config.num_units:
            raise ValueError(
                "input_mode='skip_input' needs input_size equal to num_units, because the first "
                "layer adds its input to every gate unchanged, but input_size is %d and num_units "
                "is %d. Use input_mode='linear_input'." % (config.input_size, config.num_units)
            )
        return config

    @property
    def num_directions(self) -> int:
        """1 or 2."""
        return 2 if self.direction == CUDNN_RNN_BIDIRECTION else 1

    @property
    def gates(self) -> Sequence[str]:
        """The names of the gates, in cuDNN's order."""
        return GATES[self.rnn_mode]

    @property
    def skips_input_projection(self) -> bool:
        """Whether the first layer has no input weights W."""
        return self.input_mode == CUDNN_INPUT_SKIP_MODE or (
            self.input_mode == CUDNN_INPUT_AUTO_MODE and self.input_size == self.num_units
        )

    @property
    def output_units(self) -> int:
        """The width of the output h of one direction."""
        return self.num_proj or self.num_units

    def input_weights_width(self, layer: int) -> int:
        """Returns the width of the input weights W of `layer`, 0 if it has none."""
        if layer > 0:
            return self.num_directions * self.output_units
        return 0 if self.skips_input_projection else self.input_size


def checked_projection(rnn_mode: str, num_units: Any, num_proj: Any) -> int:
    """Returns `num_proj` as an int, 0 for None; raises `ValueError` if it is not possible.

    `num_units` may be None if it is unknown.
    """
    if num_proj is None or (is_integer(num_proj) and num_proj == 0):
        return 0
    num_proj = checked_size("num_proj", num_proj)
    if rnn_mode != CUDNN_LSTM:
        raise ValueError(
            "num_proj must be None or 0 with rnn_mode %r, but is %d: only an LSTM has a projection."
            % (rnn_mode, num_proj)
        )
    if num_units is not None and num_proj >= num_units:
        raise ValueError("num_proj must be below num_units, %d, but is %d." % (num_units, num_proj))
    return num_proj


def checked_precision(value: Any) -> Optional[str]:
    """Returns a precision or None; raises `ValueError` for anything else."""
    if value is None:
        return None
    return checked_choice("float32_matmul_precision", value, PRECISIONS)


def checked_size(name: str, value: Any) -> int:
    """Returns an integer from 1 to 2**31 - 1 as an int; raises errors about the argument `name`."""
    if isinstance(value, bool):
        raise TypeError("%s must be a positive integer, but is the bool %r." % (name, value))
    try:
        size = operator.index(value)
    except TypeError:
        raise TypeError(
            "%s must be a positive integer, but is %r of type %s."
            % (name, value, type(value).__name__)
        ) from None
    if not 1 <= size <= INT32_MAX:
        raise ValueError("%s must be between 1 and %d, but is %d." % (name, INT32_MAX, size))
    return size


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def checked_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns `value`; raises `ValueError` unless it is one of the strings `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            "%s must be one of %s, but is %r." % (name, ", ".join(map(repr, choices)), value)
        )
    return value


def checked_dropout(dropout: Any) -> float:
    """Returns the dropout as a float; raises if it is not a number from 0 to 1."""
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Real):
        raise TypeError(
            "dropout must be a number between 0 and 1, the fraction of inputs to drop, but is %r "
            "of type %s." % (dropout, type(dropout).__name__)
        )
    if not 0.0 <= dropout <= 1.0:  # also catches NaN
        raise ValueError(
            "dropout must be between 0 and 1, the fraction of inputs to drop (not to keep), but is "
            "%r." % (dropout,)
        )
    return float(dropout)
