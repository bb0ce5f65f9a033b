"""Turns the samples of the CPU benchmark into tables.

A result, as run.py writes it to results.json, is a dict for one configuration:
  configuration: the `Configuration`.
  peak_seconds: samples of a matrix product of `PRODUCT_SIZE`, measured in turn with the peers.
  peak_of: the peer whose matrix product that is, the fastest of those measured, or None.
  bytes_per_second: the rate at which the threads repeatedly read a block as large as
    `roofline.working_set`, or None.
  peers: a dict by name of {"seconds": samples, "difference": the largest from ours}, or of
    {"reason": text, "is_error": bool} if the peer has no time.
"""

from collections import namedtuple

import numpy as np
from arguments import PRODUCT_SIZE
from configurations import KINDS
from peers import CPU_PEERS, OURS
from pictures import draw_ratios
from roofline import floor_of
from tables import could_not_run, make_cell, markdown_table, peer_columns, show

# The groups whose ratios have a mean: those with full lengths and many steps per call.
MEAN_GROUPS = ("table", "original")

Row = namedtuple("Row", "configuration ours cells ratios peak share floor")
"""One configuration: our `Cell`, all cells by name, by name a list of the peer's time over ours in
each pass, the peak in operations per second, our share of it, and the `Floor`; None if unknown.

A cell has the samples of all passes; peak, share and floor are medians of the passes.
"""


def make_rows(results):
    """Returns a `Row` for each configuration; each pass has a result of it."""
    passes = {}
    for result in results:
        passes.setdefault(result["configuration"], []).append(result)
    return [_make_row(*pair) for pair in passes.items()]


def _make_row(configuration, results):
    """Returns the `Row` of one configuration's results, one for each pass."""
    samples, ratios, peaks, shares = {}, {}, [], []
    for result in results:
        peers = {name: found.get("seconds") for name, found in result["peers"].items()}
        medians = {name: np.median(some) for name, some in peers.items() if some}
        for name in medians:
            samples.setdefault(name, []).extend(peers[name])
        ours = medians.pop(OURS, None)
        for name in medians if ours else ():
            ratios.setdefault(name, []).append(medians[name] / ours)
        if result["peak_seconds"]:
            peaks.append(2 * PRODUCT_SIZE**3 / np.median(result["peak_seconds"]))
            shares += [configuration.operations / ours / peaks[-1]] if ours else []
    cells = {name: make_cell(some) for name, some in samples.items()}
    peak, floor = _median(peaks), None
    if peak:
        bandwidth = _median([one["bytes_per_second"] for one in results])
        floor = floor_of(configuration, peak, bandwidth)
    return Row(configuration, cells.get(OURS), cells, ratios, peak, _median(shares), floor)


def _median(values):
    """Returns the median of the values that are not None, or None if there is none."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def show_passes(values):
    """Returns the median as text, followed by the range if there are several values."""
    text = show(_median(values))
    return text + " [%.2f to %.2f]" % (min(values), max(values)) if len(values) > 1 else text


def _milliseconds(cell):
    """Returns the median in milliseconds with the spread in brackets."""
    return "%.3g (%.0f%%)" % (cell.seconds * 1000, 100 * cell.spread) if cell else "-"


def times_table(rows):
    """Returns the table of our times, and of each measured peer's time over ours."""
    columns = [
        ("configuration", lambda row: row.configuration.key),
        ("ours, ms", lambda row: _milliseconds(row.ours)),
        ("share of the peak", lambda row: show(row.share, "%.0f%%", 100)),
    ]

    def ratio(row, name):
        if name not in row.ratios:
            return "-"
        return "%s (%.3g)" % (show_passes(row.ratios[name]), 1000 * row.cells[name].seconds)

    return markdown_table(columns + peer_columns(rows, ratio), rows)


def mean_ratios(rows, kind, name):
    """Returns, for each pass, the geometric mean of the peer's time over ours in MEAN_GROUPS."""
    counted = [
        row.ratios[name]
        for row in rows
        if row.configuration.kind == kind
        and row.configuration.group in MEAN_GROUPS
        and name in row.ratios
    ]
    return [float(np.exp(np.mean(np.log(ratios)))) for ratios in zip(*counted)]


def means_table(rows):
    """Returns the table of geometric means of the peers' times over ours, or None if empty."""
    columns = peer_columns(KINDS, lambda kind, name: show_passes(mean_ratios(rows, kind, name)))
    return markdown_table([("geometric mean", str)] + columns, KINDS) if columns else None


def roofline_table(rows):
    """Returns the table of floors, measured times, and their ratios."""
    columns = [
        ("configuration", lambda row: row.configuration.key),
        ("GFLOP", lambda row: "%.3g" % (row.configuration.operations * 1e-9)),
        ("GFLOP/s", lambda row: "%.0f" % (row.peak * 1e-9)),
        ("arithmetic", lambda row: show(row.floor.by_arithmetic, "%.3g", 1000)),
        ("bytes", lambda row: show(row.floor.by_bytes, "%.3g", 1000)),
        ("measured", lambda row: show(row.ours.seconds, "%.3g", 1000)),
        ("ratio", lambda row: show(row.ours.seconds / row.floor.seconds)),
    ]
    return markdown_table(columns, [row for row in rows if row.floor and row.ours])


def _equal_results(results):
    """Returns a list of each peer's largest difference, or None if no results were compared."""
    differences = {}  # the largest of all passes, by name and key
    for result in results:
        key = result["configuration"].key
        for name, found in result["peers"].items():
            if name != OURS and "difference" in found:
                by_key = differences.setdefault(name, {})
                by_key[key] = max(found["difference"], by_key.get(key, 0))
    if not differences:
        return None
    heading = "The largest difference from our results, relative to the largest value of the array:"
    lines = [heading, ""]
    for name, by_key in differences.items():
        key = max(by_key, key=by_key.get)
        facts = (name, by_key[key], key, len(by_key))
        lines.append("- %s: %.1e (%s; of %d configurations)" % facts)
    return "\n".join(lines)


def describe_check(results, *_):
    """Returns Markdown that says whether all peers compute the same results."""
    parts = ["Nothing was measured.", _equal_results(results), could_not_run(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


_COLUMNS = (
    "The column of ours shows the median time and, in brackets, the interquartile range over the"
    " median. The column of a peer shows its median time divided by ours (above 1, ours is faster)"
    " and, in brackets, its median time in milliseconds. The peak is the rate of a %d x %d x %d"
    " %s matrix product%s, measured in turn with the peers of each configuration. Training"
    " counts as three times the operations of inference."
)
_FLOORS = (
    "No run can be faster than either floor: the operations of its matrix products over the peak,"
    " and the bytes of the weights that it must read over the bandwidth at which the threads read"
    " them. Times are in milliseconds, GFLOP/s is the peak, and the ratio is the measured time over"
    " the higher floor. docs/benchmarks/README.md has the details."
)
_ROUNDING = (
    "A peer whose column names a number format rounds the factors of its products to it; the others"
    " compute in float32."
)
_PASSES = (
    "All configurations were measured in %d passes, one after the other. A ratio is the median of"
    " the passes, followed by their range."
)


def describe(results, _=(), is_dry_run=False):
    """Returns Markdown with all tables and the peers that could not run."""
    rows = make_rows(results)
    num_passes = max((len(one) for row in rows for one in row.ratios.values()), default=1)
    products = sorted({result["peak_of"] for result in results if result.get("peak_of")})
    whose = "".join(" of " + CPU_PEERS[name].title for name in products)
    means = means_table(rows)
    parts = ["This was a dry run on tiny models; its numbers are meaningless."] * is_dry_run
    dtypes = " and ".join(sorted({row.configuration.dtype for row in rows}))
    parts += [_COLUMNS % ((PRODUCT_SIZE,) * 3 + (dtypes, whose))]
    measured = {name for row in rows for name in row.cells}
    parts += [_ROUNDING] if any(CPU_PEERS[name].rounds for name in measured) else []
    parts += [_PASSES % num_passes] if num_passes > 1 else []
    parts += [times_table(rows)]
    if means:
        groups = " and ".join(MEAN_GROUPS)
        parts += ["Times of the peers divided by ours, in the groups %s:" % groups, means]
    parts += ["## Rooflines", _FLOORS, roofline_table(rows)]
    equal, reasons = _equal_results(results), could_not_run(results)
    parts += ["## Equal results", equal] if equal else []
    parts += ["## Not measured", reasons] if reasons else []
    return "\n\n".join(parts) + "\n"


def draw(results, title, path):
    """Writes a PNG of the peers' times over ours."""
    rows = [row for row in make_rows(results) if row.ours is not None]
    labels = [row.configuration.key for row in rows]
    others = [(name, peer.label) for name, peer in CPU_PEERS.items() if name != OURS]
    series = [(title, [row.ratios.get(name, []) for row in rows]) for name, title in others]
    axis_label = "peer's time / our time   (right of 1: ours is faster)"
    draw_ratios(labels, series, title, axis_label, path)
