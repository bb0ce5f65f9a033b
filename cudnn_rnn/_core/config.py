"""`RnnConfig`, the validated description of an RNN, and the shapes of its canonical tensors.

The opaque parameter buffer is one vector. All matrices come first: for every layer and direction
(forward, then backward), the input weights W of every gate, then the recurrent weights R of every
gate. The biases follow: for every layer and direction, the input biases bW of every gate, then the
recurrent biases bR of every gate.

The canonical tensors hold the same numbers in the same order, one tensor per matrix or bias.
Matrices are `[num_units, width]` in row-major order, and biases are `[num_units]`. The width of R
is `num_units`; the width of W is `input_size` in the first layer and `num_directions * num_units`
in the other layers. With skip_input, W of the first layer has width 0.

With a projection (LSTM only), the output h of one direction has width `num_proj` instead of
`num_units`, and so does R. The next layer's input has width `num_directions * num_proj`. Every
layer and direction has one more matrix after its R, `[num_proj, num_units]`.
"""

from __future__ import annotations

import numbers
import operator
import warnings
from typing import List, NamedTuple, Optional, Tuple

from cudnn_rnn._compat import allowed_dtypes, has_projection, tf
from cudnn_rnn._core.static_sizes import static_size

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

# Matrices per layer and direction (W and R of every gate); the number of biases is the same.
CUDNN_LSTM_PARAMS_PER_LAYER = 8
CUDNN_GRU_PARAMS_PER_LAYER = 6
CUDNN_RNN_TANH_PARAMS_PER_LAYER = 2
CUDNN_RNN_RELU_PARAMS_PER_LAYER = 2

# Gates in cuDNN's order.
GATES = {
    CUDNN_LSTM: ("input gate", "forget gate", "new memory gate", "output gate"),
    CUDNN_GRU: ("reset gate", "update gate", "new memory gate"),
    CUDNN_RNN_RELU: ("only gate",),
    CUDNN_RNN_TANH: ("only gate",),
}
DIRECTIONS = (CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION)
INPUT_MODES = (CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE)
# Dtypes of tensors and variables; bfloat16 only if the ops of this TensorFlow allow it.
DTYPES = tuple(
    dtype
    for dtype in (tf.float16, tf.float32, tf.float64, tf.bfloat16)
    if dtype in allowed_dtypes("CudnnRNN", "T")
)
DTYPE_NAMES = "%s or %s" % (", ".join(dtype.name for dtype in DTYPES[:-1]), DTYPES[-1].name)

INT32_MAX = 2**31 - 1


class CanonicalEntry(NamedTuple):
    """One canonical tensor; `place` is a description for errors."""

    place: str
    shape: List[int]


class RnnConfig(NamedTuple):
    """The description of one RNN. Create it with `RnnConfig.checked`."""

    rnn_mode: str
    num_layers: int
    num_units: int
    input_size: int
    input_mode: str
    direction: str
    dtype: tf.DType
    dropout: float
    seed: int
    seed2: int
    num_proj: int  # 0 for no projection

    @classmethod
    def checked(
        cls,
        rnn_mode,
        num_layers,
        num_units,
        input_size,
        input_mode,
        direction,
        dtype,
        dropout,
        seed,
        num_proj=None,
        seed2=None,
    ):
        """Returns a config of these values; raises `ValueError` or `TypeError` for invalid ones.

        `seed` is an int or None. As in TensorFlow's own random ops, the pair (seed, seed2) derives
        from `seed` and `tf.set_random_seed`; if neither is set, it is (0, 0), which lets the op
        choose. If `seed2` is an int, both are passed to the op unchanged. `num_proj` is an int;
        None or 0 means no projection.
        """
        config = cls(
            rnn_mode=checked_choice("rnn_mode", rnn_mode, tuple(GATES)),
            num_layers=checked_size("num_layers", num_layers),
            num_units=checked_size("num_units", num_units),
            input_size=checked_size("input_size", input_size),
            input_mode=checked_choice("input_mode", input_mode, INPUT_MODES),
            direction=checked_choice("direction", direction, DIRECTIONS),
            dtype=checked_dtype(dtype),
            dropout=checked_dropout(dropout),
            seed=0,
            seed2=0,
            num_proj=checked_projection(rnn_mode, num_units, num_proj),
        )
        if config.input_mode == CUDNN_INPUT_SKIP_MODE and config.input_size != config.num_units:
            raise ValueError(
                "input_mode='skip_input' needs input_size equal to num_units, because the first "
                "layer adds its input to every gate unchanged, but input_size is %d and num_units "
                "is %d. Use input_mode='linear_input'." % (config.input_size, config.num_units)
            )
        seed, seed2 = op_seeds(seed, seed2)
        return config._replace(seed=seed, seed2=seed2)

    @property
    def num_directions(self):
        return 2 if self.direction == CUDNN_RNN_BIDIRECTION else 1

    @property
    def gates(self):
        return GATES[self.rnn_mode]

    @property
    def skips_input_projection(self):
        """Whether the first layer has no input weights W."""
        return self.input_mode == CUDNN_INPUT_SKIP_MODE or (
            self.input_mode == CUDNN_INPUT_AUTO_MODE and self.input_size == self.num_units
        )

    @property
    def output_units(self):
        """The width of the output h of one direction."""
        return self.num_proj or self.num_units

    @property
    def num_canonical_biases(self):
        """The number of biases in the canonical form."""
        return self.num_layers * self.num_directions * 2 * len(self.gates)

    @property
    def num_canonical_weights(self):
        """The number of weights in the canonical form: one per bias, plus the projections."""
        num_projections = self.num_layers * self.num_directions if self.num_proj else 0
        return self.num_canonical_biases + num_projections

    def input_weights_width(self, layer):
        """Returns the width of the input weights W of `layer`, 0 if it has none."""
        if layer > 0:
            return self.num_directions * self.output_units
        return 0 if self.skips_input_projection else self.input_size

    def canonical_weights(self):
        """Returns a `CanonicalEntry` for every weight, in order."""
        entries = []
        for layer, place in self._layers_and_directions():
            widths = (("input", self.input_weights_width(layer)), ("recurrent", self.output_units))
            for source, width in widths:
                for gate in self.gates:
                    name = "%s, %s, %s weights" % (place, gate, source)
                    entries.append(CanonicalEntry(name, [self.num_units, width]))
            if self.num_proj:
                shape = [self.num_proj, self.num_units]
                entries.append(CanonicalEntry("%s, projection" % place, shape))
        return entries

    def canonical_biases(self):
        """Returns a `CanonicalEntry` for every bias, in order."""
        return [
            CanonicalEntry("%s, %s, %s bias" % (place, gate, source), [self.num_units])
            for _, place in self._layers_and_directions()
            for source in ("input", "recurrent")
            for gate in self.gates
        ]

    def params_size(self):
        """Returns the number of elements of the dense opaque buffer; may exceed `INT32_MAX`."""
        inputs = self.input_weights_width(0) + (self.num_layers - 1) * self.input_weights_width(1)
        columns = inputs + self.num_layers * (self.output_units + 2)  # W, and R, bW, bR
        projections = self.num_layers * self.num_units * self.num_proj
        return self.num_directions * (len(self.gates) * self.num_units * columns + projections)

    def _layers_and_directions(self):
        """Returns a list of (layer, description), one for each layer and direction."""
        return [
            (layer, "layer %d, %s" % (layer, direction))
            for layer in range(self.num_layers)
            for direction in ("forward", "backward")[: self.num_directions]
        ]


def op_seeds(seed: Optional[int], seed2: Optional[int] = None) -> Tuple[int, int]:
    """Returns the attributes (seed, seed2) of an op; see `RnnConfig.checked`."""
    seed = _checked_seed("seed", seed)
    seed2 = _checked_seed("seed2", seed2)
    if seed2 is None:
        seed, seed2 = tf.random.get_seed(seed)
    return seed or 0, seed2 or 0


def checked_projection(rnn_mode, num_units, num_proj):
    """Returns `num_proj` as an int, 0 for None; raises `ValueError` if it is not possible."""
    if num_proj is None or (_is_integer(num_proj) and num_proj == 0):
        return 0
    num_proj = checked_size("num_proj", num_proj)
    if rnn_mode != CUDNN_LSTM:
        raise ValueError(
            "num_proj must be None or 0 with rnn_mode %r, but is %d: only an LSTM has a projection."
            % (rnn_mode, num_proj)
        )
    if not has_projection():
        raise ValueError(
            "num_proj is %d, but the ops of TensorFlow %s have no projection: use num_proj=None, "
            "or TensorFlow 1.15 or newer." % (num_proj, tf.__version__)
        )
    if num_units is not None and num_proj >= num_units:
        raise ValueError("num_proj must be below num_units, %d, but is %d." % (num_units, num_proj))
    return num_proj


def checked_dtype(dtype, name="dtype"):
    """Returns `dtype` as one of `DTYPES`; raises `ValueError`, about the argument `name`."""
    try:
        checked = tf.as_dtype(dtype).base_dtype
    except TypeError:
        checked = None
    if checked not in DTYPES:
        raise ValueError(
            "%s must be %s, but is %r.%s" % (name, DTYPE_NAMES, dtype, dtype_hint(checked))
        )
    return checked


def dtype_hint(dtype):
    """Returns the last sentence of an error about this dtype, or an empty string."""
    if dtype == tf.bfloat16:
        return (
            " The RNN ops of TensorFlow %s do not support bfloat16; use TensorFlow 2.15 or newer."
            % tf.__version__
        )
    return ""


def checked_size(name, value):
    """Returns a size, such as `num_units`, as an int; raises errors about the argument `name`.

    `value` is an integer from 1 to 2**31 - 1, or a scalar integer tensor whose value follows from
    static shapes.
    """
    if isinstance(value, bool):
        raise TypeError("%s must be a positive integer, but is the bool %r." % (name, value))
    if tf.is_tensor(value):
        value = _value_of_tensor(name, value)
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


def _value_of_tensor(name, tensor):
    """Returns the int value of a scalar tensor, which must follow from static shapes."""
    if tensor.shape.rank not in (0, None):
        # Ends with TensorFlow's wording, because programs search the message for it.
        raise ValueError(
            "%s must be a positive integer, but is %s: Shape must be rank 0 but is rank %d."
            % (name, tensor, tensor.shape.rank)
        )
    value = static_size(tensor) if tensor.dtype.is_integer else None
    if value is None:
        raise TypeError(
            "%s must be a positive integer that is known when the graph is built, but is %s. Pass "
            "an int, or set the static shape of the tensor it was computed from with set_shape."
            % (name, tensor)
        )
    return value


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def checked_choice(name, value, choices):
    """Returns `value`; raises `ValueError` unless it is one of the strings `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            "%s must be one of %s, but is %r." % (name, ", ".join(map(repr, choices)), value)
        )
    return value


def checked_dropout(dropout):
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


def warn_about_dropout(rnn, dropout):
    """Warns, from the constructor of a layer or an op-level object, of dropout without effect."""
    if dropout > 0 and rnn.num_layers == 1:
        warnings.warn(
            "dropout=%r has no effect in a %s of one layer: it applies to the input of every "
            "layer except the first. Use tf.nn.dropout on the input or the output."
            % (dropout, type(rnn).__name__),
            stacklevel=3,
        )


def _checked_seed(name, seed):
    if seed is None:
        return None
    if not _is_integer(seed):
        raise TypeError(
            "%s must be an integer or None, but is %r of type %s."
            % (name, seed, type(seed).__name__)
        )
    return int(seed)
