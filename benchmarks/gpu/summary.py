"""Turns samples into a table and verdicts. Standard library only.

A result, as run.py writes it to results.json, is a dict:
  configuration: the fields of `Configuration`; key: its text.
  peer, variant: what was measured, such as "cuDNN" and "persist_static".
  device_seconds, wall_seconds: lists with one number for each sample; device_seconds may be empty.
If a peer could not run, the dict has configuration, key, peer and reason.
"""

import collections

from configurations import SMALL_BATCH
from quantities import Cell, make_cell
from tables import could_not_run, markdown_table

# The goal: ours takes at most this share longer than bare cuDNN.
CUDNN_MARGIN = 0.02

Row = collections.namedtuple(
    "Row", "key short dtype kind batch core cudnn core_wall torch_wall torch ours builtin"
)


def best(results, peer, field, variants=None):
    """Returns the `Cell` of a peer's fastest variant by median of `field`, or None."""
    cells = [
        make_cell(result[field], result["variant"])
        for result in results
        if result["peer"] == peer
        and "reason" not in result
        and (variants is None or variants(result["variant"]))
    ]
    return min([cell for cell in cells if cell], default=None, key=lambda cell: cell.seconds)


def make_rows(results):
    """Returns a `Row` for each configuration, in the order of the results."""
    by_key = collections.OrderedDict()
    for result in results:
        by_key.setdefault(result["key"], []).append(result)
    rows = []
    for key, found in by_key.items():
        configuration = found[0]["configuration"]
        kind = "training" if configuration["is_training"] else "inference"
        rows.append(
            Row(
                key=key,
                short=key.rsplit(", ", 2)[0],
                dtype=configuration["dtype"],
                kind=kind,
                batch=configuration["batch"],
                core=best(found, "core", "device_seconds"),
                cudnn=best(found, "cuDNN", "device_seconds"),
                torch=best(found, "torch.nn", "device_seconds"),
                core_wall=best(found, "core", "wall_seconds"),
                torch_wall=best(found, "torch.nn", "wall_seconds"),
                ours=best(found, "TensorFlow", "wall_seconds", lambda name: name == "ours"),
                builtin=best(found, "TensorFlow", "wall_seconds", lambda name: name != "ours"),
            )
        )
    return rows


def ratio(ours, theirs):
    """Returns our time over theirs, or None if one of them is not known."""
    return ours.seconds / theirs.seconds if ours and theirs else None


def verdicts(row):
    """Returns the goals of one row, a list of (goal, ratio, whether it is met).

    The goals: device time within 2% of bare cuDNN; wall-clock time not above that of torch.nn and
    of TensorFlow's own kernels, and below both up to SMALL_BATCH. Goals without a measured ratio
    are omitted.
    """
    found = []
    of_cudnn = ratio(row.core, row.cudnn)
    if of_cudnn is not None:
        found.append(("within 2% of bare cuDNN", of_cudnn, of_cudnn <= 1 + CUDNN_MARGIN))
    for name, of_peer in [
        ("torch.nn", ratio(row.core_wall, row.torch_wall)),
        ("TensorFlow's kernels", ratio(row.ours, row.builtin)),
    ]:
        if of_peer is None:
            continue
        if row.batch <= SMALL_BATCH:
            found.append(("faster than " + name, of_peer, of_peer < 1.0))
        else:
            found.append(("not slower than " + name, of_peer, of_peer <= 1.0))
    return found


def _time(cell):
    if cell is None:
        return "-"
    variant = " (%s)" % cell.variant if cell.variant not in ("", "cpu", "ours") else ""
    return "%.3f%s" % (cell.seconds * 1000, variant)


def _ratio(value):
    return "-" if value is None else "%.3f" % value


COLUMNS = [
    ("configuration", lambda row: row.short),
    ("dtype", lambda row: row.dtype),
    ("step", lambda row: row.kind),
    ("ours, device", lambda row: _time(row.core)),
    ("bare cuDNN, device", lambda row: _time(row.cudnn)),
    ("ratio", lambda row: _ratio(ratio(row.core, row.cudnn))),
    ("ours, wall clock", lambda row: _time(row.core_wall)),
    ("torch.nn, wall clock", lambda row: _time(row.torch_wall)),
    ("ratio", lambda row: _ratio(ratio(row.core_wall, row.torch_wall))),
    ("ours in TF, wall clock", lambda row: _time(row.ours)),
    ("TF's own, wall clock", lambda row: _time(row.builtin)),
    ("ratio", lambda row: _ratio(ratio(row.ours, row.builtin))),
]


def describe(results, is_dry_run=False):
    """Returns Markdown: the table, missed goals (not for a dry run), and peers that did not run."""
    rows = make_rows(results)
    parts = [
        "Median times of one step in milliseconds; in brackets the algorithm or the kernel. Device:"
        " between two events on the stream. Wall clock: end to end. Ratio: our time divided by the"
        " peer's.",
        markdown_table(COLUMNS, rows),
    ]
    if is_dry_run:
        parts.insert(0, "This was a dry run on a CPU; its numbers are meaningless.")
    else:
        goals = [(row.key,) + verdict for row in rows for verdict in verdicts(row)]
        missed = [goal for goal in goals if not goal[3]]
        parts.append("Goals met: %d of %d." % (len(goals) - len(missed), len(goals)))
        if missed:
            parts.append(
                "\n".join(
                    "- missed, %s: %.3f, %s" % (key, value, goal) for key, goal, value, _ in missed
                )
            )
    widest = max([(cell.spread, row.key) for row in rows for cell in _cells(row)], default=None)
    if widest:
        parts.append(
            "Widest spread (interquartile range over the median): %.1f%%, %s."
            % (100 * widest[0], widest[1])
        )
    reasons = could_not_run(results)
    if reasons:
        parts.append(reasons)
    return "\n\n".join(parts) + "\n"


def _cells(row):
    return [value for value in row if isinstance(value, Cell)]
