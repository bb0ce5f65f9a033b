"""Turns samples into tables. Standard library only.

A result, as run.py writes it to results.json, is a dict for one configuration:
  configuration: the fields of `Configuration`.
  peak_seconds: samples of a matrix product of `PRODUCT_SIZE`, measured in turn with the peers.
  peak_of: the peer whose matrix product that is, the fastest of those measured, or None.
  bytes_per_second: the rate at which the threads repeatedly read a block as large as
    `roofline.working_set`, or None.
  peers: a dict by name of {"seconds": samples, "difference": the largest from ours}, or of
    {"reason": text, "is_error": bool} if the peer has no time.
"""

from collections import namedtuple

from arguments import PRODUCT_SIZE
from configurations import Configuration
from goals import MEAN_GROUPS, mean_ratio, overall_verdicts, row_verdicts
from peers import OURS, PEERS
from quantities import make_cell, quantile
from roofline import floor_of
from tables import could_not_run, markdown_table

Row = namedtuple("Row", "configuration ours cells ratios limits peak share floor")
"""One configuration: our `Cell`, all cells by name, each peer's time over ours and over the higher
floor, the peak in operations per second, our share of it, and the `Floor`; None if unknown."""


def make_rows(results):
    """Returns a `Row` for each result."""
    rows = []
    for result in results:
        configuration = Configuration(**result["configuration"])
        cells = {
            name: make_cell(found["seconds"], name)
            for name, found in result["peers"].items()
            if found.get("seconds")
        }
        ours = cells.get(OURS)
        ratios = {
            name: cell.seconds / ours.seconds
            for name, cell in cells.items()
            if ours is not None and name != OURS
        }
        peak = share = floor = None
        if result.get("peak_seconds"):
            peak = 2 * PRODUCT_SIZE**3 / quantile(result["peak_seconds"], 0.5)
            floor = floor_of(configuration, peak, result.get("bytes_per_second"))
            share = configuration.operations / ours.seconds / peak if ours is not None else None
        limits = {name: cells[name].seconds / floor.seconds for name in ratios if floor}
        rows.append(Row(configuration, ours, cells, ratios, limits, peak, share, floor))
    return rows


def has_errors(results):
    """Returns whether a peer failed, or computed different results."""
    return any(found.get("is_error") for one in results for found in one["peers"].values())


def milliseconds(cell):
    """Returns the median in milliseconds with the spread in brackets."""
    if cell is None:
        return "-"
    return "%.3g (%.0f%%)" % (cell.seconds * 1000, 100 * cell.spread)


def _number(value, form="%.2f"):
    return "-" if value is None else form % value


def _percent(value):
    return "-" if value is None else "%.0f%%" % (100 * value)


def _ratio_column(name):
    def show(row):
        if row.ratios.get(name) is None:
            return "-"
        return "%.2f (%.3g)" % (row.ratios[name], row.cells[name].seconds * 1000)

    return PEERS[name].title, show


def _goals_text(row):
    missed = [verdict for verdict in row_verdicts(row) if not verdict.is_met]
    if not row_verdicts(row):
        return "-"
    if not missed:
        return "met"
    return "missed: " + ", ".join(verdict.what.split(",")[0] for verdict in missed)


def times_table(rows):
    """Returns the table of our times, and of each measured peer's time over ours."""
    names = [name for name in PEERS if name != OURS and any(name in row.ratios for row in rows)]
    columns = [
        ("configuration", lambda row: row.configuration.name),
        ("step", lambda row: row.configuration.kind),
        ("ours, ms", lambda row: milliseconds(row.ours)),
        ("share of the peak", lambda row: _percent(row.share)),
    ]
    columns += [_ratio_column(name) for name in names]
    columns.append(("goals", _goals_text))
    return markdown_table(columns, rows)


def means_table(rows):
    """Returns the table of geometric means of the peers' times over ours, or None if empty."""
    kinds = ["inference", "training"]
    names = [
        name for name in PEERS if any(mean_ratio(rows, kind, name) is not None for kind in kinds)
    ]
    if not names:
        return None
    columns = [("geometric mean", lambda kind: kind)]
    for name in names:
        columns.append(
            (
                PEERS[name].title,
                lambda kind, name=name: _number(mean_ratio(rows, kind, name)),
            )
        )
    return markdown_table(columns, kinds)


def roofline_table(rows):
    """Returns the table of floors, measured times, and their ratios."""
    columns = [
        ("configuration", lambda row: row.configuration.key),
        ("GFLOP", lambda row: "%.3g" % (row.configuration.operations * 1e-9)),
        ("peak, GFLOP/s", lambda row: "%.0f" % (row.peak * 1e-9)),
        ("floor by arithmetic, ms", lambda row: "%.3g" % (row.floor.by_arithmetic * 1000)),
        (
            "floor by bytes, ms",
            lambda row: _number(row.floor.by_bytes and row.floor.by_bytes * 1000, "%.3g"),
        ),
        ("measured, ms", lambda row: "%.3g" % (row.ours.seconds * 1000)),
        (
            "measured / higher floor",
            lambda row: "%.2f" % (row.ours.seconds / row.floor.seconds),
        ),
    ]
    return markdown_table(columns, [row for row in rows if row.floor and row.ours])


def _goals_part(rows):
    verdicts = [(row.configuration.key, one) for row in rows for one in row_verdicts(row)]
    overall = [("all", one) for one in overall_verdicts(rows)]
    missed = [pair for pair in verdicts if not pair[1].is_met]
    met = sum(verdict.is_met for _, verdict in verdicts + overall)
    beyond = sum(_is_out_of_reach(verdict) for _, verdict in verdicts + overall)
    lines = ["Goals met: %d of %d." % (met, len(verdicts + overall))]
    if beyond:
        lines.append(
            "%d of the missed goals are out of reach of any program on this machine, because the"
            " goal exceeds the limit: the peer's time divided by the roofline floor below." % beyond
        )
    listed = ["- " + _verdict_text("", one) for _, one in overall]
    listed += ["- " + _verdict_text(key + ": ", one) for key, one in missed]
    return "\n".join(lines + [""] + listed)


def _is_out_of_reach(verdict):
    return not verdict.is_met and verdict.limit is not None and verdict.limit < verdict.goal


def _verdict_text(whose, verdict):
    state = "met" if verdict.is_met else "missed"
    if _is_out_of_reach(verdict):
        state = "out of reach"
    limit = "" if verdict.is_met or verdict.limit is None else ", limit %.2f" % verdict.limit
    numbers = "%.3f, goal %.2f%s" % (verdict.value, verdict.goal, limit)
    return "%s: %s%s: %s" % (state, whose, verdict.what, numbers)


def _equal_results_part(results):
    """Returns a list of each peer's largest difference, or None if no results were compared."""
    largest = {}
    for result in results:
        key = Configuration(**result["configuration"]).key
        for name, found in result["peers"].items():
            if name != OURS and "difference" in found:
                _, value, count = largest.get(name, ("", -1.0, 0))
                here = (key, found["difference"]) if found["difference"] > value else largest[name]
                largest[name] = here[:2] + (count + 1,)
    if not largest:
        return None
    lines = [
        "- %s: %.1e (%s; of %d configurations)" % (name, value, key, count)
        for name, (key, value, count) in largest.items()
    ]
    return (
        "The largest difference from our results, relative to the largest value of the array:\n\n"
        + "\n".join(lines)
    )


def _reasons(results):
    flat = []
    for result in results:
        configuration = Configuration(**result["configuration"])
        for name, found in result["peers"].items():
            if "reason" not in found:
                continue
            if found["is_error"]:
                one = {"key": configuration.key, "reason": "ERROR: " + found["reason"]}
            else:
                one = {"key": configuration.name, "reason": found["reason"]}
            flat.append(dict(one, peer=name))
    return could_not_run(flat)


def _whose_product(results):
    names = {result.get("peak_of") for result in results} - {None}
    return "".join(" of " + PEERS[name].title for name in sorted(names))


def describe_check(results):
    """Returns Markdown that says whether all peers compute the same results."""
    parts = ["Nothing was measured.", _equal_results_part(results), _reasons(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def describe(results, is_dry_run=False):
    """Returns Markdown with all tables and the peers that could not run."""
    rows = make_rows(results)
    parts = []
    if is_dry_run:
        parts.append("This was a dry run on tiny models; its numbers are meaningless.")
    parts += [
        "The column of ours shows the median time and, in brackets, the interquartile range over"
        " the median. The column of a peer shows its median time divided by ours (above 1, ours is"
        " faster) and, in brackets, its median time in milliseconds. The peak is the rate of a"
        " %d x %d x %d float matrix product%s, measured in turn with the peers of each"
        " configuration. Training counts as three times the operations of inference."
        % ((PRODUCT_SIZE,) * 3 + (_whose_product(results),)),
        times_table(rows),
    ]
    means = means_table(rows)
    if means:
        groups = " and ".join(MEAN_GROUPS)
        parts += ["Times of the peers divided by ours, in the groups %s:" % groups, means]
    if not is_dry_run:
        parts.append("## Goals\n\n" + _goals_part(rows))
    parts += [
        "## Rooflines",
        "Floor by arithmetic: the operations of the matrix products divided by the peak. Floor by"
        " bytes: the size of the weights that a run must read (in each step the recurrent weights"
        " of the layer, twice in training; in a decode loop all weights) divided by the bandwidth"
        " at which the threads repeatedly read a block of that size.",
        roofline_table(rows),
    ]
    equal = _equal_results_part(results)
    if equal:
        parts.append("## Equal results\n\n" + equal)
    reasons = _reasons(results)
    if reasons:
        parts.append("## Not measured\n\n" + reasons)
    return "\n\n".join(parts) + "\n"
