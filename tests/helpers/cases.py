"""The table of cases that compare the ops with the reference; a case determines its data."""

import collections
import itertools
import zlib

import numpy as np

from helpers import reference

# Values of each column of the table. An `input_size` is a number or "num_units" (the same size).
COLUMNS = collections.OrderedDict(
    rnn_mode=("lstm", "gru", "rnn_relu", "rnn_tanh"),
    input_mode=("linear_input", "skip_input", "auto_select"),
    direction=("unidirectional", "bidirectional"),
    num_layers=(1, 2, 3),
    # No value is a multiple of 4, so vectors of 4 or more elements always leave a remainder.
    num_units=(1, 3, 5, 17, 33, 50, 65, 129),
    input_size=("num_units", 1, 4, 19, 64),
    batch=(1, 2, 7, 9, 33),
    steps=(1, 2, 5, 13, 40),
    dtype=("float32", "float64", "float16"),
)

# Buffer sizes reported by cuDNN: (fields of a reference.Configuration, number of elements).
PUBLISHED_SIZES = [
    (("lstm", "linear_input", "unidirectional", 1, 100, 20), 48800),
    (("lstm", "linear_input", "bidirectional", 1, 100, 20), 97600),
    (("lstm", "linear_input", "bidirectional", 3, 143, 143), 1315600),
    (("gru", "linear_input", "unidirectional", 1, 76, 300), 86184),
]


class Case(
    collections.namedtuple(
        "Case",
        "rnn_mode input_mode direction num_layers num_units input_size batch steps dtype",
    )
):
    """One row of the table."""

    __slots__ = ()

    @property
    def configuration(self):
        """The model without batch, steps and dtype."""
        return reference.Configuration(*self[:6])

    def __str__(self):
        return "-".join(str(value) for value in self)


# Each line has a case of float16, one of float32 and one of float64, with the same mode and units;
# each case has its input mode and direction (both shortened), num_layers, input_size, batch, steps.
# The table has every combination of mode, input mode, direction and number of layers, every triple
# of mode, units and dtype, and every pair of values of any two columns; see `missing_combinations`.
_TABLE = """\
lstm       1 | skip   uni 3   1  1 13 | linear bi  3   4  1 13 | skip   bi  1   1  9  5
lstm       3 | auto   uni 1   1  7  2 | auto   bi  3  64 33 13 | auto   uni 2  19  7  2
lstm       5 | linear uni 3   5  7  1 | auto   uni 1  64  1 40 | auto   bi  2  64  2  5
lstm      17 | linear uni 2   4  7  5 | skip   bi  3  17  2 40 | auto   bi  1  64  7 13
lstm      33 | skip   bi  2  33  1 13 | auto   uni 2  19 33  1 | linear bi  1  33 33  2
lstm      50 | linear bi  1   4  1  5 | linear uni 1  64  9 40 | auto   uni 3  19  7 13
lstm      65 | linear bi  2   1  2 13 | auto   uni 2  65  9  2 | skip   uni 2  65  2  1
lstm     129 | skip   uni 1 129  1 13 | skip   bi  3 129  1  2 | linear uni 2  19 33 13
gru        1 | auto   uni 3   4  2 40 | auto   bi  2   4  7  5 | linear uni 2  64  1  2
gru        3 | linear bi  3  19  1 40 | auto   uni 2  19 33 40 | skip   uni 2   3  9 40
gru        5 | linear uni 3  19  7 40 | auto   bi  3   1  9  2 | skip   bi  2   5 33 40
gru       17 | auto   uni 1  64  1  5 | skip   bi  1  17  7  2 | linear bi  1   1 33  1
gru       33 | linear bi  2   1  9 13 | linear bi  3  33  1  5 | skip   uni 1  33  7 40
gru       50 | auto   bi  3  19  7 40 | skip   uni 3  50  1  2 | linear uni 3   1 33  2
gru       65 | auto   bi  1  64 33 13 | auto   uni 2   1  1  5 | skip   bi  3  65 33  1
gru      129 | auto   bi  1  19  2  2 | linear uni 1  64  2 40 | skip   bi  3 129  7  5
rnn_relu   1 | auto   bi  3  64  1  1 | auto   bi  3   4  7  5 | linear bi  3  19  9  5
rnn_relu   3 | auto   uni 2   3  2  1 | auto   bi  1   4  7  5 | auto   uni 1   1  1 13
rnn_relu   5 | auto   uni 1   5  1 40 | auto   uni 2   4  2 40 | linear bi  2   4  2  1
rnn_relu  17 | skip   uni 2  17  2 13 | auto   uni 3   4 33  2 | linear bi  1  64  7 13
rnn_relu  33 | skip   uni 1  33  7  1 | skip   bi  3  33  2 40 | linear uni 2   1 33  5
rnn_relu  50 | skip   bi  3  50 33  1 | linear uni 1   1 33  2 | linear uni 3  19  1  5
rnn_relu  65 | skip   uni 3  65  7 40 | skip   bi  1  65  9  1 | linear bi  1   1  1 40
rnn_relu 129 | skip   bi  2 129  1  1 | auto   bi  2   1  9  2 | linear bi  1   1  7  5
rnn_tanh   1 | skip   uni 1   1 33  5 | auto   uni 1   1  7 13 | skip   bi  1   1  1  2
rnn_tanh   3 | linear uni 3  64  9  1 | auto   bi  3   1  2 40 | skip   bi  3   3  7 13
rnn_tanh   5 | linear bi  1  19  1 13 | linear uni 1   4  1 13 | linear uni 1   5  9 40
rnn_tanh  17 | linear bi  2  64  9  5 | skip   uni 1  17  9 13 | auto   bi  2  19  7 40
rnn_tanh  33 | auto   bi  1  64  7  2 | linear bi  3   4  1  5 | auto   uni 2   1  1 13
rnn_tanh  50 | skip   bi  2  50  2  1 | auto   bi  1  19  9  5 | auto   uni 3   1  1 13
rnn_tanh  65 | linear bi  1  19  2  2 | linear uni 3   4  9  1 | skip   uni 3  65 33  1
rnn_tanh 129 | skip   uni 2 129  2  1 | linear uni 2   4  7  1 | auto   uni 2   4  9  1
"""


def _parsed_cases():
    for line in _TABLE.splitlines():
        model, *cells = line.split("|")
        rnn_mode, num_units = model.split()
        for dtype, cell in zip(("float16", "float32", "float64"), cells):
            input_mode, direction, num_layers, *sizes = cell.split()
            (input_mode,) = [m for m in COLUMNS["input_mode"] if m.startswith(input_mode)]
            sizes = map(int, [num_layers, num_units] + sizes)
            yield Case(rnn_mode, input_mode, direction + "directional", *sizes, dtype)


CASES = tuple(_parsed_cases())


def column_value(case, column):
    """Returns the case's value in a column, as COLUMNS lists it."""
    if column == "input_size" and case.input_size == case.num_units:
        return "num_units"
    return getattr(case, column)


def is_possible(values):
    """Returns whether one case can have all these values (a dict by column)."""
    input_size = values.get("input_size", "num_units")
    if values.get("input_mode") == "skip_input" and input_size != "num_units":
        return False
    return input_size != values.get("num_units")


def missing_combinations(cases, columns):
    """Returns the combinations of values of `columns` (names) that no case has: list of tuples."""
    found = {tuple(column_value(case, column) for column in columns) for case in cases}
    wanted = itertools.product(*(COLUMNS[column] for column in columns))
    possible = [values for values in wanted if is_possible(dict(zip(columns, values)))]
    return [values for values in possible if values not in found]


def output_shapes(configuration, batch, steps):
    """Returns a dict of the shapes of output, output_h (as input_h) and output_c (as input_c)."""
    width, directions = configuration.output_size, configuration.directions
    stacked = configuration.num_layers * directions
    return {
        "output": (steps, batch, directions * width),
        "output_h": (stacked, batch, width),
        "output_c": (stacked, batch, configuration.num_units),
    }


def random_arrays(configuration, batch, steps, dtype, random, scale=1.0):
    """Returns a dict of all inputs: input, input_h, input_c, params and the output gradients.

    Matrices are uniform within +-scale / sqrt(units), biases within +-scale / 2; everything else is
    standard normal.
    """
    shapes = output_shapes(configuration, batch, steps)
    arrays = {
        "input": random.standard_normal((steps, batch, configuration.input_size)),
        "input_h": random.standard_normal(shapes["output_h"]),
        "params": random.uniform(-scale, scale, reference.params_size(configuration)),
    }
    if configuration.rnn_mode == "lstm":
        arrays["input_c"] = random.standard_normal(shapes["output_c"])
    weights, biases = reference.params_to_canonical(configuration, arrays["params"])
    for matrix in weights:
        matrix /= np.sqrt(configuration.num_units)
    for bias in biases:
        bias /= 2.0
    for name in ("output", "output_h", "output_c"):
        if name != "output_c" or configuration.rnn_mode == "lstm":
            arrays[name + "_backprop"] = random.standard_normal(shapes[name])
    return {name: array.astype(dtype) for name, array in arrays.items()}


def push_away_from_relu_kink(configuration, arrays):
    """Changes inputs and params (in place) so that every relu argument is below -0.5 or above 0.5.

    Half-precision rounding can move an argument across the kink and so change the gradient, even in
    a correct implementation. Each unit therefore gets a large bias of either sign; the first unit's
    is positive.
    """
    units = configuration.num_units
    for name in ("input", "input_h"):
        np.clip(arrays[name], -1.0, 1.0, out=arrays[name])
    weights, biases = reference.params_to_canonical(configuration, arrays["params"])
    for matrix in weights:
        # |W x + R h| stays below 0.1 * 4 + 0.1 * 4, as the biases below keep |h| below 4.
        matrix *= 0.1 * np.sqrt(units) / max(1, matrix.shape[1])
    if configuration.skips_input:
        arrays["input"] *= 0.5
    for index, bias in enumerate(biases):
        bias[...] = 0.7 + 0.2 * np.abs(bias)
        # A relu cell's bW and bR are adjacent in the list, so they get the same signs.
        bias[1 + (index // 2) % 2 :: 2] *= -1.0


def make_arrays(case):
    """Returns the arrays of a case (see `random_arrays`), the same in every call."""
    configuration = case.configuration
    smallest_distance = {"float64": 1e-10, "float32": 3e-6, "float16": 0.05}[case.dtype]
    for attempt in range(20):
        seed = zlib.crc32(("Case%r" % (tuple(case),)).encode()) + attempt
        random = np.random.RandomState(seed % 2**32)
        arrays = random_arrays(configuration, case.batch, case.steps, case.dtype, random)
        if case.rnn_mode != "rnn_relu":
            return arrays
        if case.dtype == "float16":
            push_away_from_relu_kink(configuration, arrays)
        if relu_distance(configuration, arrays) > smallest_distance:
            return arrays
    raise AssertionError("no data found that stay away from the kink of relu: %s" % case)


def relu_distance(configuration, arrays):
    """Returns the smallest distance of any relu argument from the kink, for these arrays."""
    values = [arrays.get(name) for name in ("input", "input_h", "input_c", "params")]
    return reference.smallest_relu_argument(reference.forward(configuration, *values)[3])
