"""Plots the ratios of times of a run, one line for each configuration."""

import math

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

STYLES = ["#1b6ca8 o", "#d1495b s", "#66a182 D", "#edae49 ^", "#8d6a9f v", "#5c5c5c P", "#2a9d8f X"]
STYLES += ["#e76f51 <", "#264653 >", "#b5838d h", "#7cb518 p", "#3a0ca3 *"]


def draw_ratios(labels, series, title, axis_label, path, margin=0.0):
    """Writes a PNG with one line for each label and one mark on it for each series.

    `labels` are of the lines, from top to bottom; `series` is a list of (name, ratios), with a list
    of ratios for each line, empty if unknown: the mark is at their median, on a bar of their range.
    `margin` is the half width of the band around 1 that counts as equal.
    """
    figure, axes = plt.subplots(figsize=(11, 1.8 + 0.32 * len(labels)))
    axes.axvline(1.0, color="black", linewidth=1)
    if margin:
        axes.axvspan(1 - margin, 1 + margin, color="black", alpha=0.08, linewidth=0)
    largest = 1.0
    for index, ((name, ratios), style) in enumerate(zip(series, STYLES)):
        if not any(ratios):
            continue
        known = [(line, one) for line, one in enumerate(ratios) if one]
        lines = np.array([line for line, _ in known])
        lowest, medians, highest = (
            np.array([function(one) for _, one in known]) for function in (min, np.median, max)
        )
        # A vertical offset for each series keeps equal ratios visible.
        heights = lines + (index - (len(series) - 1) / 2) * 0.5 / len(series)
        colour, marker = style.split()
        axes.scatter(medians, heights, c=colour, marker=marker, s=30, label=name, zorder=3)
        axes.hlines(heights, lowest, highest, colors=colour, linewidth=1)
        largest = max(largest, highest.max(), 1 / lowest.min())
    largest *= 1.15
    axes.set_xscale("log", base=2)
    # Fine ticks if all ratios are close to 1, otherwise powers of two.
    ticks = [0.5, 0.6, 0.7, 0.85, 1, 1.2, 1.4, 1.7, 2]
    if largest > 2.5:
        every = max(1, round(math.log2(largest) / 4))
        ticks = [2.0**power for power in range(-40 * every, 40 * every + 1, every)]
    axes.set_xticks(ticks)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda tick, _: "%.3g" % tick)
    axes.set_xlim(1 / largest, largest)
    axes.set_yticks(range(len(labels)))
    axes.set_yticklabels(labels, fontsize=8)
    axes.set_ylim(max(1, len(labels)) - 0.5, -0.5)
    axes.set_xlabel(axis_label)
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", color="black", alpha=0.08)
    if axes.get_legend_handles_labels()[0]:
        below = (0.5, -1.1 / (1 + 0.32 * len(labels)))
        axes.legend(loc="upper center", bbox_to_anchor=below, ncol=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)
