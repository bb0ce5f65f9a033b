"""Computes statistics of samples. Standard library only."""

import collections
import math

Cell = collections.namedtuple("Cell", "seconds variant spread")
"""The median in seconds, the variant's name, and (third quartile - first quartile) / median."""


def quantile(values, share):
    """Returns the quantile at `share` (0 to 1), interpolating linearly between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def make_cell(values, variant=""):
    """Returns the `Cell` of the values, or None if there are none."""
    if not values:
        return None
    median = quantile(values, 0.5)
    spread = (quantile(values, 0.75) - quantile(values, 0.25)) / median
    return Cell(median, variant, spread)


def geometric_mean(values):
    """Returns the geometric mean of positive numbers, or None if there are none."""
    values = list(values)
    if not values:
        return None
    return math.exp(sum(math.log(value) for value in values) / len(values))
