"""Makes the modules of benchmarks/ importable."""

import os
import sys

from helpers.paths import ROOT
from helpers.processes import status_and_text

FOLDER = os.path.join(ROOT, "benchmarks")
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "workers")]


def run_arguments(*arguments):
    """Runs arguments.py without installed packages; returns the exit status and the output."""
    return status_and_text("-S", os.path.join(FOLDER, "arguments.py"), *arguments)


def cells_of(text, first):
    """Returns the rows of Markdown tables, as lists of cells, whose first cell is `first`."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [row for row in rows if row[:1] == [first]]
