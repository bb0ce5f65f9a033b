"""Formats Markdown tables and computes statistics of samples."""

import functools
from collections import namedtuple
from fnmatch import fnmatch

import numpy as np
from peers import CPU_PEERS
from tabulate import tabulate

WIDTH = 100  # of a terminal, in characters

Cell = namedtuple("Cell", "seconds variant spread")
"""The median in seconds, the variant's name, and (third quartile - first quartile) / median."""


def make_cell(values, variant=""):
    """Returns the `Cell` of the values, or None if there are none."""
    if not values:
        return None
    first, median, third = np.percentile(values, [25, 50, 75])
    return Cell(median, variant, (third - first) / median)


def show(value, form="%.2f", factor=1):
    """Returns the formatted number times a factor, or "-" for None."""
    return "-" if value is None else form % (value * factor)


def markdown_table(columns, rows):
    """Returns a Markdown table; a column is a heading and a function from a row to a text.

    A table that is wider than a terminal of WIDTH characters becomes several, each of which begins
    with the first column.
    """
    rows = list(rows)
    cells = [[heading] + [text_of(row) for row in rows] for heading, text_of in columns]
    first, *rest = cells
    tables, width = [], WIDTH + 1
    for column in rest:
        width += _width_of(column)
        if width > WIDTH:
            tables.append([first])
            width = 1 + _width_of(first) + _width_of(column)
        tables[-1].append(column)
    return "\n\n".join(
        tabulate(zip(*table), "firstrow", tablefmt="github", disable_numparse=True)
        for table in tables or [[first]]
    )


def _width_of(column):
    heading, *texts = map(str, column)
    padding = 2  # by which tabulate widens a heading
    return max([len(heading) + padding, *map(len, texts)]) + len("|  ")


def peer_columns(rows, text_of, heading="%s"):
    """Returns a column for each peer of the CPU benchmark that has a value in some row.

    `text_of(row, name=name)` returns a peer's text, or "-" if it has no value.
    """
    columns = {
        heading % peer.label: functools.partial(text_of, name=name)
        for name, peer in CPU_PEERS.items()
    }
    return [pair for pair in columns.items() if any(pair[1](row) != "-" for row in rows)]


def has_errors(results, peers=("*",)):
    """Returns whether a peer failed, or computed different results.

    `peers`: patterns of the names of those that count.
    """
    return any(
        found.get("is_error")
        for result in results
        for name, found in result["peers"].items()
        if any(fnmatch(name, pattern) for pattern in peers)
    )


def could_not_run(results):
    """Returns a Markdown list of the reasons why peers could not run, or None if all ran.

    Each reason is listed once, with the configurations that it affects: errors with their keys,
    others with their names.
    """
    reasons = {}  # dicts whose keys are the texts, in order
    for result in results:
        for name, found in result["peers"].items():
            if "reason" not in found:
                continue
            error, text = ("ERROR: ", "key") if found["is_error"] else ("", "name")
            line = "%s: %s%s" % (name, error, found["reason"])
            reasons.setdefault(line, {})[getattr(result["configuration"], text)] = None
    lines = ["- %s (%s)" % (line, "; ".join(texts)) for line, texts in reasons.items()]
    return "\n".join(["Could not run:", ""] + lines) if lines else None
