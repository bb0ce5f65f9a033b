"""`RnnConfig`: what an RNN is, checked in one place, and the shapes of its canonical tensors.

The opaque parameter buffer is one vector. For every layer and direction (forward, then backward)
come the input weights W of every gate, then the recurrent weights R of every gate; after all
matrices, for every layer and direction, the input biases bW and then the recurrent biases bR of
every gate. The canonical tensors are the same numbers in the same order, one tensor each: matrices
`[num_units, width]` in row-major order, where `width` is `input_size` in the first layer and
`num_directions * num_units` above (and `num_units` for R), and biases `[num_units]`. With
skip_input the first layer's W have a width of 0.
"""

import collections
import numbers
import operator

from cudnn_rnn._tf import tf

CUDNN_LSTM = "lstm"
CUDNN_GRU = "gru"
CUDNN_RNN_RELU = "rnn_relu"
CUDNN_RNN_TANH = "rnn_tanh"

CUDNN_RNN_UNIDIRECTION = "unidirectional"
CUDNN_RNN_BIDIRECTION = "bidirectional"

CUDNN_INPUT_LINEAR_MODE = "linear_input"
CUDNN_INPUT_SKIP_MODE = "skip_input"
CUDNN_INPUT_AUTO_MODE = "auto_select"

# Tensors per layer and direction, as many matrices as biases: W and R of every gate.
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
DTYPES = (tf.float16, tf.float32, tf.float64)

INT32_MAX = 2**31 - 1

_FIELDS = [
    "rnn_mode",
    "num_layers",
    "num_units",
    "input_size",
    "input_mode",
    "direction",
    "dtype",
    "dropout",
    "seed",
    "seed2",
]

# One tensor of the canonical form: the place in words, and the shape as a list of int.
CanonicalEntry = collections.namedtuple("CanonicalEntry", ["place", "shape"])


class RnnConfig(collections.namedtuple("RnnConfig", _FIELDS)):
    """The description of one RNN. Make it with `RnnConfig.checked`."""

    __slots__ = ()

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
    ):
        """Returns a config of valid values; raises `ValueError` or `TypeError` for others.

        `seed` is an int or None. As for TensorFlow's own random ops, the pair (seed, seed2) derives
        from it and from `tf.set_random_seed`; (0, 0), which lets the op choose, comes out if
        neither is set.
        """
        config = cls(
            rnn_mode=_checked_choice("rnn_mode", rnn_mode, tuple(GATES)),
            num_layers=_checked_size("num_layers", num_layers),
            num_units=_checked_size("num_units", num_units),
            input_size=_checked_size("input_size", input_size),
            input_mode=_checked_choice("input_mode", input_mode, INPUT_MODES),
            direction=_checked_choice("direction", direction, DIRECTIONS),
            dtype=checked_dtype(dtype),
            dropout=_checked_dropout(dropout),
            seed=0,
            seed2=0,
        )
        if config.input_mode == CUDNN_INPUT_SKIP_MODE and config.input_size != config.num_units:
            raise ValueError(
                "input_mode='skip_input' needs input_size equal to num_units, because the first "
                "layer adds its input to every gate as it is, but input_size is %d and num_units "
                "is %d. Use input_mode='linear_input'." % (config.input_size, config.num_units)
            )
        seed, seed2 = tf.random.get_seed(_checked_seed(seed))
        return config._replace(seed=seed or 0, seed2=seed2 or 0)

    @property
    def num_directions(self):
        return 2 if self.direction == CUDNN_RNN_BIDIRECTION else 1

    @property
    def gates(self):
        return GATES[self.rnn_mode]

    @property
    def has_cell_state(self):
        return self.rnn_mode == CUDNN_LSTM

    @property
    def skips_input_projection(self):
        """Whether the first layer has no input weights W."""
        return self.input_mode == CUDNN_INPUT_SKIP_MODE or (
            self.input_mode == CUDNN_INPUT_AUTO_MODE and self.input_size == self.num_units
        )

    @property
    def num_canonical_weights(self):
        """How many weights (and as many biases) the canonical form has."""
        return self.num_layers * self.num_directions * 2 * len(self.gates)

    def input_weights_width(self, layer):
        """The width of the input weights W of `layer`; 0 where it has none."""
        if layer > 0:
            return self.num_directions * self.num_units
        return 0 if self.skips_input_projection else self.input_size

    def canonical_weights(self):
        """Returns a `CanonicalEntry` for every weight, in order."""
        return self._canonical_entries(
            "weights", lambda layer: (self.input_weights_width(layer), self.num_units)
        )

    def canonical_biases(self):
        """Returns a `CanonicalEntry` for every bias, in order."""
        return self._canonical_entries("bias", lambda layer: (None, None))

    def params_size(self):
        """Returns the number of elements of the dense opaque buffer, an int of any size."""
        widths_of_input_weights = self.input_weights_width(0) + (
            (self.num_layers - 1) * self.input_weights_width(1)
        )
        columns = widths_of_input_weights + self.num_layers * (self.num_units + 2)  # R, bW, bR
        return self.num_directions * len(self.gates) * self.num_units * columns

    def _canonical_entries(self, kind, widths_of_layer):
        entries = []
        for layer in range(self.num_layers):
            for direction in ("forward", "backward")[: self.num_directions]:
                for width, source in zip(widths_of_layer(layer), ("input", "recurrent")):
                    for gate in self.gates:
                        place = "layer %d, %s, %s, %s %s" % (layer, direction, gate, source, kind)
                        shape = [self.num_units] if width is None else [self.num_units, width]
                        entries.append(CanonicalEntry(place, shape))
        return entries


def checked_dtype(dtype):
    """Returns `dtype` as one of `DTYPES`; raises `ValueError` if it is none of them."""
    try:
        checked = tf.as_dtype(dtype).base_dtype
    except TypeError:
        checked = None
    if checked not in DTYPES:
        raise ValueError("dtype must be float16, float32 or float64, but is %r." % (dtype,))
    return checked


def _checked_size(name, value):
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


def _checked_choice(name, value, choices):
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            "%s must be one of %s, but is %r." % (name, ", ".join(map(repr, choices)), value)
        )
    return value


def _checked_dropout(dropout):
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Real):
        raise TypeError(
            "dropout must be a number between 0 and 1, the share of inputs to drop, but is %r of "
            "type %s." % (dropout, type(dropout).__name__)
        )
    if not 0.0 <= dropout <= 1.0:  # also catches NaN
        raise ValueError(
            "dropout must be between 0 and 1 (the share of inputs to drop, not to keep), but is %r."
            % (dropout,)
        )
    return float(dropout)


def _checked_seed(seed):
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise TypeError(
            "seed must be an integer or None, but is %r of type %s." % (seed, type(seed).__name__)
        )
    return int(seed)
