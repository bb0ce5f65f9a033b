"""Defines the measured configurations. Standard library only."""

import fnmatch
from collections import namedtuple

# Gates per mode: each needs one product with an input matrix and one with a recurrent matrix.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

# Backward computes the gradients of both factors of every product, twice the work of forward.
TRAINING_FACTOR = 3


class Configuration(
    namedtuple(
        "Configuration",
        "group rnn_mode num_layers num_units input_size direction batch steps has_lengths"
        " is_training",
    )
):
    """One model with one shape of data, for inference or training.

    With `has_lengths`, the sequences have lengths from 1 to `steps` whose mean is half of `steps`.
    In the group "decode", a run is `steps` calls of one step, and the caller carries the state.
    """

    __slots__ = ()

    @property
    def kind(self):
        """The kind of run, "inference" or "training"."""
        return "training" if self.is_training else "inference"

    @property
    def name(self):
        """The name of the model and the shape, such as lstm-2x650-b20-t35."""
        parts = [self.rnn_mode, "%dx%d" % (self.num_layers, self.num_units)]
        if self.input_size != self.num_units:
            parts.append("i%d" % self.input_size)
        if self.num_directions == 2:
            parts.append("bi")
        parts += ["b%d" % self.batch, "t%d" % self.steps]
        if self.has_lengths:
            parts.append("half")
        if self.is_decode:
            parts.append("decode")
        return "-".join(parts)

    @property
    def key(self):
        """The name and the kind of run."""
        return "%s, %s" % (self.name, self.kind)

    @property
    def is_decode(self):
        """Whether each step is a separate call."""
        return self.group == "decode"

    @property
    def num_directions(self):
        """1 or 2."""
        return 2 if self.direction == "bidirectional" else 1

    @property
    def has_cell_state(self):
        """Whether the model has a cell state (input_c)."""
        return self.rnn_mode == "lstm"

    def layer_input_size(self, layer):
        """Returns the width of the layer's input."""
        return self.input_size if layer == 0 else self.num_directions * self.num_units

    @property
    def lengths(self):
        """The lengths of the sequences as a list, or None if all are full."""
        if not self.has_lengths:
            return None
        # Unsorted, like real data.
        order = sorted(range(self.batch), key=lambda b: (b * 7919 + 31) % 101)
        shares = [(b + 0.5) / self.batch for b in order]
        return [max(1, int(share * self.steps + 0.5)) for share in shares]

    @property
    def num_rows(self):
        """The total number of steps of all sequences, without padding."""
        lengths = self.lengths
        return self.batch * self.steps if lengths is None else sum(lengths)

    @property
    def operations(self):
        """Floating-point operations of a run's matrix products; all others are negligible."""
        width = GATES[self.rnn_mode] * self.num_units * self.num_directions
        depths = [self.layer_input_size(layer) + self.num_units for layer in range(self.num_layers)]
        forward = 2 * width * sum(depths) * self.num_rows
        return forward * (TRAINING_FACTOR if self.is_training else 1)

    @property
    def recurrent_bytes(self):
        """Bytes of one layer's float recurrent weights, all directions."""
        return 4 * GATES[self.rnn_mode] * self.num_units**2 * self.num_directions


def _make(group, rnn_mode, layers, units, batch, steps, **changes):
    return Configuration(
        group=group,
        rnn_mode=rnn_mode,
        num_layers=layers,
        num_units=units,
        input_size=changes.get("input_size", units),
        direction="bidirectional" if changes.get("is_bidirectional") else "unidirectional",
        batch=batch,
        steps=steps,
        has_lengths=changes.get("has_lengths", False),
        is_training=False,
    )


# Common models, and two of the benchmark that the original came with.
_TABLE = [
    _make("table", "lstm", 2, 200, 20, 20),
    _make("table", "lstm", 2, 650, 20, 35),
    _make("table", "lstm", 2, 1500, 20, 35),
    _make("table", "lstm", 4, 512, 64, 50),
    _make("table", "lstm", 4, 128, 64, 50),
    _make("table", "lstm", 2, 256, 32, 100, is_bidirectional=True),
    _make("table", "lstm", 1, 512, 1, 50),
    _make("table", "lstm", 3, 320, 12, 150, input_size=80),
    _make("table", "gru", 2, 650, 20, 35),
    _make("table", "gru", 1, 128, 1, 100),
    _make("table", "gru", 2, 76, 32, 60, input_size=300, is_bidirectional=True),
    _make("table", "rnn_tanh", 2, 400, 32, 50),
]
# The original's benchmark has three models; 4 x 128 and 4 x 512 are in the table above.
_ORIGINAL = [_make("original", "lstm", 4, 1024, 64, 50)]
_DECODE = [
    _make("decode", "lstm", 1, 512, 1, 100),
    _make("decode", "lstm", 2, 650, 20, 100),
    _make("decode", "gru", 1, 128, 1, 100),
]
_LENGTHS = [
    _make("lengths", "lstm", 2, 650, 20, 35, has_lengths=True),
    _make("lengths", "lstm", 4, 512, 64, 50, has_lengths=True),
    _make("lengths", "lstm", 2, 256, 32, 100, has_lengths=True, is_bidirectional=True),
    _make("lengths", "gru", 2, 650, 20, 35, has_lengths=True),
]
# Show how time grows with the number of steps and with the batch size.
_SCALING = [
    _make("scaling", "lstm", 1, 256, 16, 100),
    _make("scaling", "lstm", 1, 256, 16, 1000),
    _make("scaling", "lstm", 1, 256, 16, 10000),
    _make("scaling", "lstm", 1, 512, 64, 20),
    _make("scaling", "lstm", 1, 512, 256, 20),
    _make("scaling", "lstm", 1, 512, 512, 20),
]
GROUPS = {
    "table": "common models",
    "original": "further models from the benchmark of tf.contrib.cudnn_rnn",
    "decode": "one time step per call, with the state carried by the caller; inference only",
    "lengths": "variable-length sequences, on average half as long",
    "scaling": "longer sequences and larger batches; only against torch and onnxruntime",
}

# A smoke test that covers most groups and cells and takes seconds.
_QUICK = [
    _make("table", "lstm", 2, 24, 4, 8, input_size=10),
    _make("table", "lstm", 2, 24, 4, 8, is_bidirectional=True),
    _make("table", "gru", 2, 24, 3, 6, is_bidirectional=True, input_size=10),
    _make("table", "gru", 2, 16, 3, 6),
    _make("table", "rnn_tanh", 2, 16, 3, 6),
    _make("table", "rnn_tanh", 1, 16, 3, 6, is_bidirectional=True),
    _make("decode", "lstm", 2, 16, 2, 5),
    _make("decode", "gru", 1, 16, 1, 5),
    _make("lengths", "lstm", 2, 24, 4, 8, has_lengths=True, input_size=10),
    _make("lengths", "gru", 1, 24, 4, 8, has_lengths=True, is_bidirectional=True),
]


def configurations(quick=False, patterns=None, kinds=("inference", "training")):
    """Returns the chosen configurations.

    Args:
      quick: selects from the tiny configurations of the smoke test.
      patterns: names of groups, or patterns of configuration names such as "gru-*"; None for all.
      kinds: the kinds of runs, "inference" and "training".

    Raises:
      ValueError: a pattern matches no configuration.
    """
    everything = _QUICK if quick else _TABLE + _ORIGINAL + _DECODE + _LENGTHS + _SCALING
    chosen = everything
    if patterns is not None:
        for pattern in patterns:
            if not any(_matches(one, pattern) for one in everything):
                raise ValueError(
                    "%r is neither a group (%s) nor a pattern that matches a name (%s)"
                    % (pattern, ", ".join(GROUPS), ", ".join(one.name for one in everything))
                )
        chosen = [one for one in everything if any(_matches(one, each) for each in patterns)]
    return [
        one._replace(is_training=kind == "training")
        for one in chosen
        for kind in kinds
        if kind == "inference" or not one.is_decode
    ]


def _matches(configuration, pattern):
    return pattern == configuration.group or fnmatch.fnmatch(configuration.name, pattern)
