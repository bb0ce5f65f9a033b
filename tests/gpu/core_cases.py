"""The table of cases for test_core_against_torch.py.

A case follows from its row alone; its id can be pasted behind `pytest -k`.
"""

import itertools
import zlib
from collections import namedtuple

import torch
from torch_oracle import Network

RNN_MODES = ("lstm", "gru", "rnn_relu", "rnn_tanh")
DIRECTIONS = ("unidirectional", "bidirectional")
DTYPES = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
}

# Largest error allowed, relative to the largest magnitude in the float64 oracle's tensor.
# double: both sides round at 1e-16, and sums have up to some thousand terms.
# float: rounds at 6e-8; TF32, with 5e-4, is off, and would not pass.
# half: computed in float, but what goes from step to step and from layer to layer is rounded to
#   half (5e-4) each time, and the errors add up over some tens of steps.
# bfloat16: the same with three bits less: 8 times as much.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}

LENGTHS = ("full", "mixed", "zeros")

# num_units, input_size, batch, steps, projection: none but one a multiple of a vector's width.
ODD_SIZES = (
    (17, 19, 3, 7, 5),
    (5, 4, 7, 5, 3),
    (33, 13, 2, 12, 20),
    (64, 32, 9, 6, 16),
    (3, 1, 5, 9, 1),
    (50, 65, 4, 4, 31),
)


class Case(
    namedtuple(
        "Case",
        "rnn_mode direction num_layers dtype input_mode lengths time_major num_proj num_units"
        " input_size batch steps",
    )
):
    """One row; `dtype` is a key of DTYPES, `lengths` one of LENGTHS."""

    __slots__ = ()

    @property
    def network(self):
        """The model without its dtype."""
        return Network(
            self.rnn_mode,
            self.direction,
            self.num_layers,
            self.num_units,
            self.input_size,
            self.input_mode,
            self.num_proj,
        )

    @property
    def seed(self):
        """For the case's data."""
        return zlib.crc32(repr(tuple(self)).encode()) % 2**31

    def __str__(self):
        major = "time_major" if self.time_major else "batch_major"
        name = "-".join([self.rnn_mode, self.direction, f"{self.num_layers}layers", self.dtype])
        name += f"-{self.input_mode}-{self.lengths}_lengths-{major}-{self.num_units}units"
        name += f"-proj{self.num_proj}-input{self.input_size}-batch{self.batch}-steps{self.steps}"
        return name

    def sequence_lengths(self):
        """None or a list of ints, the longest not always all steps."""
        if self.lengths == "full":
            return None
        generator = torch.Generator().manual_seed(self.seed)
        smallest = 0 if self.lengths == "zeros" else 1
        lengths = torch.randint(
            smallest, self.steps + 1, [self.batch], generator=generator
        ).tolist()
        if self.lengths == "zeros":
            lengths[self.seed % self.batch] = 0
        return lengths


def all_cases():
    """Every combination of everything but sizes, over which it goes round; then real models."""
    cases = []
    product = itertools.product(
        RNN_MODES, DIRECTIONS, (1, 2, 3), DTYPES, (False, True), LENGTHS, (True, False), (0, 1)
    )
    for mode, direction, layers, dtype, skips, lengths, time_major, projects in product:
        if projects and mode != "lstm":
            continue
        units, input_size, batch, steps, num_proj = ODD_SIZES[len(cases) % len(ODD_SIZES)]
        input_mode = "skip_input" if skips else "linear_input"
        cases.append(
            Case(
                mode,
                direction,
                layers,
                dtype,
                input_mode,
                lengths,
                time_major,
                num_proj if projects else 0,
                units,
                units if skips else input_size,
                batch,
                steps,
            )
        )
    return cases + realistic_cases()


def realistic_cases():
    """2 x 650 over 35 steps of a batch of 20, and 1 x 512 on one sequence."""
    cases = []
    for mode, dtype in itertools.product(RNN_MODES, DTYPES):
        for layers, units, batch, steps in ((2, 650, 20, 35), (1, 512, 1, 100)):
            cases.append(
                Case(
                    mode,
                    "unidirectional",
                    layers,
                    dtype,
                    "linear_input",
                    "full",
                    True,
                    0,
                    units,
                    units,
                    batch,
                    steps,
                )
            )
    return cases


def some_cases(cases, count):
    """About `count` of them, spread evenly, at odd distances so that no column stays the same."""
    distance = max(1, len(cases) // count) | 1
    return cases[::distance]
