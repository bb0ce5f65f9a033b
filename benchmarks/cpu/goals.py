"""Performance goals, and the check whether a run meets them. Standard library only."""

from collections import namedtuple

from quantities import geometric_mean

Verdict = namedtuple("Verdict", "what value goal is_met limit", defaults=[None])
"""A goal: its description, the value found and the value required. A peer's time over ours and a
share of the peak must be at least `goal`; time against full lengths and growth at most. `limit` is
the ratio to a peer that a run at the roofline's floor would reach, or None; no program can meet a
goal above it."""

# Minimum of the peer's time over ours, for every configuration.
RATIOS = {
    "inference": {"onnxruntime": 1.0, "keras": 2.0, "tf1-cell": 3.0, "tf1-fused": 3.0},
    "training": {"torch": 1.0, "keras": 2.0, "tf1-cell": 3.0, "tf1-fused": 3.0},
}
# Minimum of the geometric mean over the groups with full lengths and many steps per call.
MEANS = {"inference": {"onnxruntime": 1.2, "torch": 1.5}, "training": {"torch": 1.4}}
MEAN_GROUPS = ("table", "original")
# Minimum share of the peak of a matrix product.
SHARES = {
    "lstm-4x1024-b64-t50": {"inference": 0.88, "training": 0.78},
    "lstm-2x650-b20-t35": {"inference": 0.72, "training": 0.68},
    "lstm-2x1500-b20-t35": {"inference": 0.72, "training": 0.68},
}
# Maximum time for sequences of half the length on average, over that for full ones.
LENGTHS_SHARE = 0.60
# Maximum time per step and sequence for a model's largest shape, over that for its smallest.
GROWTH = 1.05


def row_verdicts(row):
    """Returns the verdicts on one configuration.

    Args:
      row: a `Row` of summary.py.
    """
    found = []
    for peer, goal in RATIOS[row.configuration.kind].items():
        value, limit = row.ratios.get(peer), row.limits.get(peer)
        if value is not None:
            what = "%s, speedup of ours" % peer
            found.append(Verdict(what, value, goal, value >= goal, limit))
    goal = SHARES.get(row.configuration.name, {}).get(row.configuration.kind)
    if goal is not None and row.share is not None:
        found.append(Verdict("share of the peak", row.share, goal, row.share >= goal))
    return found


def overall_verdicts(rows):
    """Returns the verdicts on goals that involve several configurations."""
    return _mean_verdicts(rows) + _lengths_verdicts(rows) + _growth_verdicts(rows)


def _mean_verdicts(rows):
    found = []
    for kind, peers in MEANS.items():
        for peer, goal in peers.items():
            mean = mean_ratio(rows, kind, peer)
            if mean is not None:
                what = "%s, %s, geometric mean of the speedups of ours" % (kind, peer)
                limit = _mean(rows, kind, lambda row, peer=peer: row.limits.get(peer))
                found.append(Verdict(what, mean, goal, mean >= goal, limit))
    return found


def mean_ratio(rows, kind, peer):
    """Returns the geometric mean of the peer's time over ours in MEAN_GROUPS, or None."""
    return _mean(rows, kind, lambda row: row.ratios.get(peer))


def _mean(rows, kind, number_of):
    return geometric_mean(
        number_of(row)
        for row in rows
        if row.configuration.kind == kind
        and row.configuration.group in MEAN_GROUPS
        and number_of(row) is not None
    )


def _lengths_verdicts(rows):
    times = {
        row.configuration._replace(group=""): row.ours.seconds
        for row in rows
        if row.ours is not None
    }
    found = []
    for configuration, seconds in times.items():
        full = times.get(configuration._replace(has_lengths=False))
        if configuration.has_lengths and full is not None:
            value = seconds / full
            found.append(
                Verdict(
                    "%s, time relative to full lengths" % configuration.key,
                    value,
                    LENGTHS_SHARE,
                    value <= LENGTHS_SHARE,
                )
            )
    return found


def _growth_verdicts(rows):
    """Compares the largest shape of each "scaling" model with its smallest."""
    models = {}
    for row in rows:
        if row.configuration.group == "scaling" and row.ours is not None:
            model = row.configuration._replace(batch=0, steps=0)
            models.setdefault(model, []).append(row)
    found = []
    for group in models.values():
        group.sort(key=lambda row: row.configuration.num_rows)
        smallest, largest = group[0], group[-1]
        if smallest is largest:
            continue
        per_row = [row.ours.seconds / row.configuration.num_rows for row in (smallest, largest)]
        value = per_row[1] / per_row[0]
        what = "%s to %s, growth of the time per step and sequence" % (
            smallest.configuration.key,
            largest.configuration.name,
        )
        found.append(Verdict(what, value, GROWTH, value <= GROWTH))
    return found
