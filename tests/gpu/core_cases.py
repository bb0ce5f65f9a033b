"""The table of cases for test_core_against_torch.py.

A case is fully determined by its row; its id can be passed to `pytest -k`.
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

# Largest allowed error, relative to the largest magnitude in the float64 oracle's tensor.
# double: both sides round at 1e-16, and sums have up to a few thousand terms.
# float: rounds at 6e-8; TF32, which rounds at 5e-4, is off and would fail.
# half: computed in float, but values passed between steps and layers are rounded to half (5e-4),
#   and these errors add up over a few dozen steps.
# bfloat16: as half, with three bits less: 8 times the error.
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}

# The persistent algorithms of cuDNN 9.19 are less accurate in float: on an H200, errors up to
# 1.3e-5 in models of two layers, the same in bare cuDNN.
PERSISTENT_TOLERANCES = {**TOLERANCES, torch.float32: 3e-5}

LENGTHS = ("full", "mixed", "zeros")

# num_units, input_size, batch, steps, num_proj: all but one row avoid multiples of a vector width.
ODD_SIZES = (
    (17, 19, 3, 7, 5),
    (5, 4, 7, 5, 3),
    (33, 13, 2, 12, 20),
    (64, 32, 9, 6, 16),
    (3, 1, 5, 9, 1),
    (50, 65, 4, 4, 31),
)
REALISTIC_UNITS = (650, 512)

# The cases for compute-sanitizer's memcheck: together every value of every column, but no
# realistic sizes. The columns are those up to time_major, and whether there is a projection.
_MEMCHECK = (
    ("lstm", "bidirectional", 2, "bfloat16", "skip_input", "mixed", False, True),
    ("gru", "bidirectional", 3, "half", "linear_input", "zeros", True, False),
    ("rnn_relu", "unidirectional", 1, "double", "linear_input", "zeros", False, False),
    ("rnn_tanh", "unidirectional", 2, "float", "skip_input", "full", True, False),
)


class Case(
    namedtuple(
        "Case",
        "rnn_mode direction num_layers dtype input_mode lengths time_major num_proj num_units"
        " input_size batch steps",
    )
):
    """A row of the table; `dtype` is a key of DTYPES, `lengths` one of LENGTHS."""

    __slots__ = ()

    @property
    def network(self):
        """The `Network` of the case, which has no dtype."""
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
    def features(self):
        """What changes the computation, as a dict; of the sizes, only their kind."""
        found = {name: getattr(self, name) for name in self._fields[:7]}
        found["projects"] = self.num_proj > 0
        found["is_realistic"] = self.num_units in REALISTIC_UNITS
        return found

    @property
    def seed(self):
        """The seed for the data of the case."""
        return zlib.crc32(repr(tuple(self)).encode()) % 2**31

    def __str__(self):
        major = "time_major" if self.time_major else "batch_major"
        name = "-".join([self.rnn_mode, self.direction, f"{self.num_layers}layers", self.dtype])
        name += f"-{self.input_mode}-{self.lengths}_lengths-{major}-{self.num_units}units"
        name += f"-proj{self.num_proj}-input{self.input_size}-batch{self.batch}-steps{self.steps}"
        return name

    def sequence_lengths(self):
        """Returns None or a list of ints, whose maximum may be less than `steps`."""
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


def make_case(rnn_mode="lstm", dtype="float", lengths="full", **changes):
    """Returns a case of a bidirectional model with two layers, modified by `changes`."""
    case = Case(
        rnn_mode, "bidirectional", 2, dtype, "linear_input", lengths, True, 0, 64, 32, 9, 12
    )
    return case._replace(**changes)


def all_cases():
    """Returns every combination of all columns but the sizes, which cycle, and realistic cases."""
    cases = []
    product = itertools.product(
        RNN_MODES, DIRECTIONS, (1, 2, 3), DTYPES, (False, True), LENGTHS, (True, False), (0, 1)
    )
    for mode, direction, layers, dtype, skips, lengths, time_major, projects in product:
        if projects and mode != "lstm":
            continue
        units, input_size, batch, steps, num_proj = ODD_SIZES[len(cases) % len(ODD_SIZES)]
        sizes = [num_proj if projects else 0, units, units if skips else input_size, batch, steps]
        input_mode = "skip_input" if skips else "linear_input"
        cases.append(Case(mode, direction, layers, dtype, input_mode, lengths, time_major, *sizes))
    return cases + realistic_cases()


def memcheck_cases(cases):
    """Returns the cases of the table that compute-sanitizer's memcheck runs."""
    rows = {tuple(case.features.values()): case for case in cases}
    return [rows[row + (False,)] for row in _MEMCHECK]


def realistic_cases():
    """Returns large models, first those of one direction.

    One direction: 2 layers of 650 units, batch 20, 35 steps; 1 layer of 512, batch 1, 100 steps.
    Both: 1 layer of 650 units, batch 17, 4 steps.
    """
    kind = "linear_input", "full", True, 0
    large, small = REALISTIC_UNITS
    rows = list(itertools.product(RNN_MODES, DTYPES))
    return [
        Case(mode, "unidirectional", layers, dtype, *kind, units, units, batch, steps)
        for mode, dtype in rows
        for layers, units, batch, steps in ((2, large, 20, 35), (1, small, 1, 100))
    ] + [Case(mode, "bidirectional", 1, dtype, *kind, large, 40, 17, 4) for mode, dtype in rows]
