"""Makes the modules of benchmarks/ importable."""

import os
import sys

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "benchmarks")
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "workers")]


def cells_of(text, first):
    """Returns the rows of Markdown tables, as lists of cells, whose first cell is `first`."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [row for row in rows if row[:1] == [first]]
