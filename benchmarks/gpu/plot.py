"""The picture of a run: how ours compares with each peer, configuration by configuration."""

import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from summary import CUDNN_MARGIN, make_rows, ratio  # noqa: E402

# (title, colour, marker, ratio of a row)
SERIES = [
    ("bare cuDNN, best algorithm (device)", "#1b6ca8", "o", lambda r: ratio(r.core, r.cudnn)),
    ("torch.nn (clock)", "#d1495b", "s", lambda r: ratio(r.core_wall, r.torch_wall)),
    ("TensorFlow's own kernels (clock)", "#66a182", "D", lambda r: ratio(r.ours, r.builtin)),
]


def draw(results, title, path):
    """Writes a PNG: one line for each configuration, one mark for each peer's ratio."""
    rows = make_rows(results)
    figure, axes = plt.subplots(figsize=(11, 1.8 + 0.32 * len(rows)))
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvspan(1 - CUDNN_MARGIN, 1 + CUDNN_MARGIN, color="black", alpha=0.08, linewidth=0)
    largest = 1.0
    for index, (name, colour, marker, value_of) in enumerate(SERIES):
        places, values = [], []
        for line, row in enumerate(rows):
            value = value_of(row)
            if value is not None:
                # A little above one another, so that equal ones are seen.
                places.append(line + (index - 1) * 0.18)
                values.append(value)
        if values:
            axes.scatter(values, places, color=colour, marker=marker, s=30, label=name, zorder=3)
            largest = max([largest] + [max(value, 1 / value) for value in values])
    axes.set_xscale("log", base=2)
    largest *= 1.15
    axes.set_xlim(1 / largest, largest)
    # Close to 1 every fifth matters; where some are far away, powers of two have room.
    ticks = [0.5, 0.6, 0.7, 0.85, 1, 1.2, 1.4, 1.7, 2]
    if largest > 2.5:
        every = max(1, round(math.log2(largest) / 4))
        ticks = [2.0**power for power in range(-40 * every, 40 * every + 1, every)]
    ticks = [tick for tick in ticks if 1 / largest <= tick <= largest]
    axes.set_xticks(ticks, minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xticklabels(["%.3g" % tick for tick in ticks])
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels(
        ["%s, %s, %s" % (row.short, row.dtype, row.kind) for row in rows], fontsize=8
    )
    axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axes.set_xlabel("time of ours / time of the peer   (left of 1: ours is faster)")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", color="black", alpha=0.08)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -1.1 / (1 + 0.32 * len(rows))),
            ncol=3,
            fontsize=8,
            frameon=False,
        )
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)
