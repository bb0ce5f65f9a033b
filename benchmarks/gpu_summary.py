"""Turns the samples of the GPU benchmark into a table and a plot.

A result, as run.py writes it to results.json, is a dict for one configuration:
  configuration: the fields of `Configuration`.
  peers: a dict by name of {"seconds": wall-clock samples, "device_seconds": samples on the device
    (may be empty), "variant": the algorithm or kernel}, or of {"reason": text, "is_error": bool}.
"""

from configurations import Configuration
from pictures import draw_ratios
from tables import could_not_run, make_cell, markdown_table, show

# Half width of the band around the time of bare cuDNN that counts as equal.
CUDNN_MARGIN = 0.02

# The field of the samples, and the starts of the names of ours and of the peer.
SERIES = [
    ("device_seconds", "core", "cuDNN "),
    ("seconds", "core", "torch.nn"),
    ("seconds", "TensorFlow ours", "TensorFlow built-in"),
]
_HEADINGS = [
    ("ours, device", "bare cuDNN, device"),
    ("ours, wall clock", "torch.nn, wall clock"),
    ("ours in TF, wall clock", "TF's own, wall clock"),
]
_TITLES = [
    "bare cuDNN, best algorithm (device)",
    "torch.nn (wall clock)",
    "TensorFlow's own kernels (wall clock)",
]


def best(result, field, peer):
    """Returns the `Cell` of the fastest peer whose name starts with `peer`, or None."""
    cells = [
        make_cell(found[field], found["variant"])
        for name, found in result["peers"].items()
        if name.startswith(peer) and found.get(field)
    ]
    return min(cells, default=None, key=lambda cell: cell.seconds)


def ratio(result, field, ours, peer):
    """Returns our time over the peer's, or None if one of them is not known."""
    cells = [best(result, field, name) for name in (ours, peer)]
    return cells[0].seconds / cells[1].seconds if all(cells) else None


def _time(cell):
    if cell is None:
        return "-"
    variant = " (%s)" % cell.variant if cell.variant not in ("", "cpu", "ours") else ""
    return "%.3f%s" % (cell.seconds * 1000, variant)


def _columns():
    columns = [
        ("configuration", lambda result: Configuration(**result["configuration"]).name),
        ("dtype", lambda result: result["configuration"]["dtype"]),
        ("step", lambda result: Configuration(**result["configuration"]).kind),
    ]

    def time_column(heading, *which):
        return heading, lambda result: _time(best(result, *which))

    def ratio_column(*which):
        return "ratio", lambda result: show(ratio(result, *which), "%.3f")

    for (field, ours, peer), (our_heading, heading) in zip(SERIES, _HEADINGS):
        columns += [time_column(our_heading, field, ours), time_column(heading, field, peer)]
        columns.append(ratio_column(field, ours, peer))
    return columns


def _reasons(results):
    """Returns why peers could not run; a refused variant counts only if all variants are."""
    pairs = []
    for result in results:
        ran = {name.split()[0] for name, found in result["peers"].items() if "seconds" in found}
        peers = {
            name: found
            for name, found in result["peers"].items()
            if found.get("is_error") or name.split()[0] not in ran
        }
        pairs.append((Configuration(**result["configuration"]), peers))
    return could_not_run(pairs, lambda configuration: configuration.key)


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
        (make_cell(found[field]).spread, Configuration(**result["configuration"]).key)
        for result in results
        for found in result["peers"].values()
        for field in ("seconds", "device_seconds")
        if found.get(field)
    ]
    if spreads:
        text = "Widest spread (interquartile range over the median): %.1f%%, %s."
        parts.append(text % (100 * max(spreads)[0], max(spreads)[1]))
    parts.append(_reasons(results))
    if left_out:
        parts.append("Not measured within the time budget:")
        parts.append("\n".join("- " + key for key in left_out))
    return "\n\n".join(filter(None, parts)) + "\n"


def draw(results, title, path):
    """Writes a PNG with one line for each configuration and one mark for each peer's ratio."""
    draw_ratios(
        [Configuration(**result["configuration"]).key for result in results],
        [(text, [ratio(result, *one) for result in results]) for text, one in zip(_TITLES, SERIES)],
        title,
        "our time / peer's time   (left of 1: ours is faster)",
        path,
        CUDNN_MARGIN,
    )
