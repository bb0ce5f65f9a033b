"""Formats Markdown tables and computes statistics of samples."""

from collections import namedtuple

import numpy as np
from tabulate import tabulate

Cell = namedtuple("Cell", "seconds variant spread")
"""The median in seconds, the variant's name, and (third quartile - first quartile) / median."""


def make_cell(values, variant=""):
    """Returns the `Cell` of the values, or None if there are none."""
    if not values:
        return None
    first, median, third = np.percentile(values, [25, 50, 75])
    return Cell(median, variant, (third - first) / median)


def geometric_mean(values):
    """Returns the geometric mean of positive numbers, or None if there are none."""
    values = list(values)
    return float(np.exp(np.mean(np.log(values)))) if values else None


def show(value, form="%.2f"):
    """Returns the formatted number, or "-" for None."""
    return "-" if value is None else form % value


def markdown_table(columns, rows):
    """Returns a Markdown table.

    Args:
      columns: a list of (heading, function); the function returns the cell's text for a row.
      rows: any objects.
    """
    cells = [[text_of(row) for _, text_of in columns] for row in rows]
    headings = [heading for heading, _ in columns]
    return tabulate(cells, headings, tablefmt="github", disable_numparse=True)


def could_not_run(results, name_of):
    """Returns a Markdown list of the reasons why peers could not run, or None if all ran.

    Each reason is listed once, with the configurations that it affects.

    Args:
      results: pairs of a configuration and its dict of peers' entries.
      name_of: returns the text of a configuration for reasons that are not errors.
    """
    reasons = {}
    for configuration, peers in results:
        for name, found in peers.items():
            if "reason" not in found:
                continue
            if found["is_error"]:
                line, text = "%s: ERROR: %s" % (name, found["reason"]), configuration.key
            else:
                line, text = "%s: %s" % (name, found["reason"]), name_of(configuration)
            texts = reasons.setdefault(line, [])
            if text not in texts:
                texts.append(text)
    lines = ["- %s (%s)" % (line, "; ".join(texts)) for line, texts in reasons.items()]
    return "\n".join(["Could not run:", ""] + lines) if lines else None
