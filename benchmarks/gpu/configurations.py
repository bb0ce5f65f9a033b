"""Defines the measured configurations."""

import itertools
from collections import namedtuple


class Configuration(
    namedtuple(
        "Configuration",
        "rnn_mode direction num_layers num_units input_size batch steps dtype is_training",
    )
):
    """One model with one shape of data; `dtype` is "float" or "half"."""

    __slots__ = ()

    def __str__(self):
        direction = ", bidirectional" if self.direction == "bidirectional" else ""
        return "%s %d x %d%s, batch %d, %d steps" % (
            self.rnn_mode,
            self.num_layers,
            self.num_units,
            direction,
            self.batch,
            self.steps,
        )

    @property
    def key(self):
        """The text of the configuration with its dtype and the kind of step."""
        kind = "training" if self.is_training else "inference"
        return "%s, %s, %s" % (self, self.dtype, kind)


# num_layers, num_units, batch, steps, direction; input_size is num_units.
SIZES = [
    # The benchmark that the original came with.
    (4, 128, 64, 50, "unidirectional"),
    (4, 512, 64, 50, "unidirectional"),
    (4, 1024, 64, 50, "unidirectional"),
    # A word language model, one sequence at a time, small models on long sequences, speech.
    (2, 650, 20, 35, "unidirectional"),
    (1, 512, 1, 100, "unidirectional"),
    (1, 64, 64, 200, "unidirectional"),
    (1, 128, 64, 200, "unidirectional"),
    (5, 1024, 32, 200, "bidirectional"),
]

# For a smoke test, which takes seconds on a CPU.
QUICK_SIZES = [(2, 32, 4, 10, "unidirectional"), (1, 64, 1, 20, "bidirectional")]

# Up to this batch size, a call's overhead exceeds the time of its arithmetic.
SMALL_BATCH = 1


def configurations(quick=False, rnn_modes=("lstm",), dtypes=("float", "half")):
    """Returns every size, mode and dtype, for training and inference; cheapest sizes first."""
    sizes = QUICK_SIZES if quick else SIZES
    ordered = sorted(sizes, key=lambda size: size[0] * size[1] ** 2 * size[2] * size[3])
    found = []
    for size, mode, dtype, is_training in itertools.product(
        ordered, rnn_modes, dtypes, (True, False)
    ):
        layers, units, batch, steps, direction = size
        found.append(
            Configuration(mode, direction, layers, units, units, batch, steps, dtype, is_training)
        )
    return found
