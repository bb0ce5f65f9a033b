"""Turns the samples of the GPU benchmark into a table and a plot.

A result, as run.py writes it to results.json, is a dict for one configuration:
  configuration: the `Configuration`.
  peers: a dict by name of {"seconds": wall-clock samples, "device_seconds": samples on the device
    (may be empty), "launch": seconds until a step behind other work was launched and until it was
    done, or None, "variant": the algorithm, "kernels": of SAME_KERNELS, a dict from the names of a
    step's kernels to [count, microseconds], or None}, or of {"reason": text, "is_error": bool}.
"""

import functools
from collections import namedtuple
from fnmatch import fnmatch

from pictures import draw_ratios
from tables import could_not_run, make_cell, markdown_table, show

# Half width of the band around the time of bare cuDNN that counts as equal.
CUDNN_MARGIN = 0.02

# These two should run the same kernels, apart from what clears memory.
SAME_KERNELS = ("core standard", "cuDNN standard")
# Times of a kernel that differ by more than this part of a step are listed.
KERNEL_MARGIN = 0.03

Series = namedtuple("Series", "field where ours peer title goal")
"""The field of the samples, its name, patterns of the two peers' names, the second one's title, and
the largest ratio that is wanted, or None."""

_EQUAL = 1 + CUDNN_MARGIN
SERIES = [
    Series("device_seconds", "device", "core standard", "cuDNN standard", "cuDNN standard", _EQUAL),
    Series("device_seconds", "device", "core auto", "cuDNN *", "fastest of cuDNN", None),
    # `auto` chooses by the wall clock.
    Series("seconds", "wall clock", "core auto", "core standard", "core standard", _EQUAL),
    Series("seconds", "wall clock", "core standard", "torch.nn", "torch.nn", 1),
    Series("seconds", "wall clock", "ours in TF", "CudnnRNNV3 of TF", "CudnnRNNV3 of TF", 1),
]
# Our peers, all of which have to run; that others cannot is only in the table.
OURS = ("core *", "ours in TF")


def best(result, field, pattern):
    """Returns the `Cell` of the fastest peer whose name matches the pattern, or None."""
    cells = [
        make_cell(found[field], found["variant"])
        for name, found in result["peers"].items()
        if fnmatch(name, pattern) and found.get(field)
    ]
    return min(cells, default=None, key=lambda cell: cell.seconds)


def ratio(result, series):
    """Returns our time over the peer's, or None if one of them is not known."""
    cells = [best(result, series.field, name) for name in (series.ours, series.peer)]
    return cells[0].seconds / cells[1].seconds if all(cells) else None


def _time(result, field, pattern):
    cell = best(result, field, pattern)
    if cell is None:
        return "-"
    variant = "" if cell.variant in ("", "cpu", "standard") else " (%s)" % cell.variant
    return "%.3f%s" % (cell.seconds * 1000, variant)


def _launch(result, name):
    launch = result["peers"].get(name, {}).get("launch")
    return "%.2f of %.1f" % tuple(1000 * one for one in launch) if launch else "-"


def _columns():
    columns = [
        ("configuration", lambda result: result["configuration"].name),
        ("dtype", lambda result: result["configuration"].dtype),
        ("step", lambda result: result["configuration"].kind),
    ]
    for one in SERIES:
        for name, title in [(one.ours, one.ours), (one.peer, one.title)]:
            text_of = functools.partial(_time, field=one.field, pattern=name)
            columns.append(("%s, %s" % (title, one.where), text_of))
        columns.append(("ratio", lambda result, one=one: show(ratio(result, one), "%.3f")))
    for name in ("core standard", "cuDNN standard"):
        columns.append(("launch, " + name, functools.partial(_launch, name=name)))
    return columns


def _largest_ratios(results):
    """Returns a list of the largest ratio of each series, with its configuration."""
    lines = []
    for one in SERIES:
        ratios = [(ratio(result, one) or 0, result["configuration"].key) for result in results]
        if any(value for value, _ in ratios):
            lines.append("- %s / %s: %.3f, %s" % ((one.ours, one.title) + max(ratios)))
            if one.goal is not None:
                missed = ", missed" if max(ratios)[0] > one.goal else ""
                lines[-1] += " (goal: at most %g%s)" % (one.goal, missed)
    return "\n".join(["Largest ratios:", ""] + lines) if lines else None


def _other_kernels(results):
    """Returns a list of kernels whose numbers or times differ from bare cuDNN, or None."""
    lines = []
    for result in results:
        ours, theirs = (result["peers"].get(name, {}).get("kernels") for name in SAME_KERNELS)
        if not ours or not theirs:
            continue
        total = sum(microseconds for _, microseconds in theirs.values())
        for name in sorted(set(ours) | set(theirs)):
            (count, time), (count_2, time_2) = (one.get(name, [0, 0]) for one in (ours, theirs))
            if count != count_2 or abs(time - time_2) > KERNEL_MARGIN * total:
                text = "- %s: %d and %d times, %.0f and %.0f us: `%s`"
                numbers = (result["configuration"].key, count, count_2, time, time_2)
                lines.append(text % (numbers + (name[:100],)))
    title = (
        "Kernels of a step that %s and %s do not run equally often, or whose times differ by more"
        " than %g%% of a step:" % (SAME_KERNELS + (100 * KERNEL_MARGIN,))
    )
    return "\n".join([title, ""] + lines) if lines else None


def describe(results, left_out=(), is_dry_run=False):
    """Returns Markdown: the table, the widest spread, and what could not run or was left out."""
    parts = ["This was a dry run on a CPU; its numbers are meaningless."] * is_dry_run
    parts += [
        "Median times of one step in milliseconds; in brackets the algorithm if it is not standard."
        " Device: of a step that is queued behind other work, between two events on the stream; the"
        " device then waits for no launch. Wall clock: end to end. Ratio: our time divided by the"
        " peer's. Launch: until the calls of a step return that is queued behind other work, of the"
        " time until the step is done. A step that waits for the device, or whose kernels fill the"
        " queue (about a thousand), returns late, and its device time includes waits for launches.",
        markdown_table(_columns(), results),
        _largest_ratios(results),
    ]
    spreads = [
        (100 * make_cell(found[field]).spread, result["configuration"].key)
        for result in results
        for found in result["peers"].values()
        for field in ("seconds", "device_seconds")
        if found.get(field)
    ]
    if spreads:
        text = "Widest spread (interquartile range over the median): %.1f%%, %s."
        parts.append(text % max(spreads))
    parts.append(_other_kernels(results))
    parts.append(could_not_run(results))
    if left_out:
        parts.append("Not measured within the time budget:")
        parts.append("\n".join("- " + key for key in left_out))
    return "\n\n".join(filter(None, parts)) + "\n"


def draw(results, title, path):
    """Writes a PNG with one line for each configuration and one mark for each peer's ratio."""
    labels = [result["configuration"].key for result in results]
    names = ["%s / %s" % (one.ours, one.title) for one in SERIES]
    ratios = [[list(filter(None, [ratio(result, one)])) for result in results] for one in SERIES]
    axis_label = "our time / peer's time   (left of 1: ours is faster)"
    draw_ratios(labels, list(zip(names, ratios)), title, axis_label, path, CUDNN_MARGIN)
