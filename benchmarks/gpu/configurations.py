"""What is measured."""

import itertools
from collections import namedtuple


class Configuration(
    namedtuple(
        "Configuration",
        "rnn_mode direction num_layers num_units input_size batch steps dtype is_training",
    )
):
    """One model on one shape of data; `dtype` is "float" or "half"."""

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
        """The same with dtype and kind of step."""
        kind = "training" if self.is_training else "inference"
        return "%s, %s, %s" % (self, self.dtype, kind)


# num_layers, num_units, batch, steps, direction; the input is as wide as the layers.
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

# For trying the program: seconds on a CPU.
QUICK_SIZES = [(2, 32, 4, 10, "unidirectional"), (1, 64, 1, 20, "bidirectional")]

# Here a call costs more than its arithmetic.
SMALL_BATCH = 1


def configurations(quick=False, rnn_modes=("lstm",), dtypes=("float", "half")):
    """Every size in every dtype, training and inference; the quickest sizes first."""
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
