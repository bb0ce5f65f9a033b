"""What has to be reached, and whether it is. Standard library only."""

from collections import namedtuple

from quantities import geometric_mean

Verdict = namedtuple("Verdict", "what value goal is_met limit", defaults=[None])
"""A goal in words with the number found and the one to reach; ratios and shares, higher is better,
but of growth: there at most the goal. `limit`: of a ratio to a peer, what a run would reach that
takes no longer than the roofline's floor, or None; no program can meet a goal above it."""

# Their time over ours, at least, in every configuration.
RATIOS = {
    "inference": {"onnxruntime": 1.0, "keras": 2.0, "tf1-cell": 3.0, "tf1-fused": 3.0},
    "training": {"torch": 1.0, "keras": 2.0, "tf1-cell": 3.0, "tf1-fused": 3.0},
}
# In the geometric mean over the groups that have full lengths and many steps a call.
MEANS = {"inference": {"onnxruntime": 1.2, "torch": 1.5}, "training": {"torch": 1.4}}
MEAN_GROUPS = ("table", "original")
# Of the peak of a matrix product.
SHARES = {
    "lstm-4x1024-b64-t50": {"inference": 0.88, "training": 0.78},
    "lstm-2x650-b20-t35": {"inference": 0.72, "training": 0.68},
    "lstm-2x1500-b20-t35": {"inference": 0.72, "training": 0.68},
}
# Sequences half as long on average, against full ones.
LENGTHS_SHARE = 0.60
# Time for each step and sequence, the largest shape of a model against the smallest.
GROWTH = 1.05


def row_verdicts(row):
    """The goals of one configuration.

    Args:
      row: of summary.py.
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
    """The goals that need several configurations."""
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
    """Geometric mean of their time over ours, of the groups that count; None without any."""
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
    """Of models that are there with several shapes: the largest against the smallest."""
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
