"""Turns the samples of the GPU benchmark into a table and a plot.

A result, as run.py writes it to results.json, is a dict for one configuration:
  configuration: the `Configuration`.
  peers: a dict by name of {"seconds": wall-clock samples, "device_seconds": samples on the device
    (may be empty), "variant": the algorithm or kernel}, or of {"reason": text, "is_error": bool}.
"""

from collections import namedtuple

from pictures import draw_ratios
from tables import could_not_run, make_cell, markdown_table, show

# Half width of the band around the time of bare cuDNN that counts as equal.
CUDNN_MARGIN = 0.02

Series = namedtuple("Series", "field ours peer our_title title where")
"""The field of the samples, the starts of the names of ours and of the peer, and texts."""

SERIES = [
    Series("device_seconds", "core", "cuDNN ", "ours", "bare cuDNN", "device"),
    Series("seconds", "core", "torch.nn", "ours", "torch.nn", "wall clock"),
    Series(
        "seconds", "TensorFlow ours", "TensorFlow built-in", "ours in TF", "TF's own", "wall clock"
    ),
]


def best(result, field, peer):
    """Returns the `Cell` of the fastest peer whose name starts with `peer`, or None."""
    cells = [
        make_cell(found[field], found["variant"])
        for name, found in result["peers"].items()
        if name.startswith(peer) and found.get(field)
    ]
    return min(cells, default=None, key=lambda cell: cell.seconds)


def ratio(result, series):
    """Returns our time over the peer's, or None if one of them is not known."""
    cells = [best(result, series.field, name) for name in (series.ours, series.peer)]
    return cells[0].seconds / cells[1].seconds if all(cells) else None


def _time(cell):
    if cell is None:
        return "-"
    variant = " (%s)" % cell.variant if cell.variant not in ("", "cpu", "ours") else ""
    return "%.3f%s" % (cell.seconds * 1000, variant)


def _columns():
    columns = [
        ("configuration", lambda result: result["configuration"].name),
        ("dtype", lambda result: result["configuration"].dtype),
        ("step", lambda result: result["configuration"].kind),
    ]

    def time_column(one, name, title):
        return "%s, %s" % (title, one.where), lambda result: _time(best(result, one.field, name))

    for one in SERIES:
        columns.append(time_column(one, one.ours, one.our_title))
        columns.append(time_column(one, one.peer, one.title))
        columns.append(("ratio", lambda result, one=one: show(ratio(result, one), "%.3f")))
    return columns


def _without_refused_variants(result):
    """Returns the result without the variants that were refused, unless all of a peer's were."""
    ran = {name.split()[0] for name, found in result["peers"].items() if "seconds" in found}
    peers = {
        name: found
        for name, found in result["peers"].items()
        if found.get("is_error") or name.split()[0] not in ran
    }
    return dict(result, peers=peers)


def describe(results, left_out=(), is_dry_run=False):
    """Returns Markdown: the table, the widest spread, and what could not run or was left out."""
    parts = ["This was a dry run on a CPU; its numbers are meaningless."] * is_dry_run
    parts += [
        "Median times of one step in milliseconds; in brackets the algorithm or the kernel. Device:"
        " between two events on the stream. Wall clock: end to end. Ratio: our time divided by the"
        " peer's.",
        markdown_table(_columns(), results),
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
    parts.append(could_not_run(map(_without_refused_variants, results)))
    if left_out:
        parts.append("Not measured within the time budget:")
        parts.append("\n".join("- " + key for key in left_out))
    return "\n\n".join(filter(None, parts)) + "\n"


def draw(results, title, path):
    """Writes a PNG with one line for each configuration and one mark for each peer's ratio."""
    draw_ratios(
        [result["configuration"].key for result in results],
        [
            ("%s (%s)" % (one.title, one.where), [ratio(result, one) for result in results])
            for one in SERIES
        ],
        title,
        "our time / peer's time   (left of 1: ours is faster)",
        path,
        CUDNN_MARGIN,
    )
