"""Draws parameter_buffer.svg: the regions of an opaque buffer, to scale.

    python docs/pictures/draw_parameter_buffer.py

Needs this package and matplotlib.
"""

import pathlib
from itertools import groupby

import matplotlib

from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import RnnConfig

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

PATH = pathlib.Path(__file__).parent / "parameter_buffer.svg"
COLORS = {"input": "#7fa8d9", "recurrent": "#f2b277"}
SYMBOLS = {
    "input weights": "W",
    "recurrent weights": "R",
    "input bias": "b_W",
    "recurrent bias": "b_R",
}
GATES = {"input gate": "i", "forget gate": "f", "new memory gate": "g", "output gate": "o"}


def draw(axes, config, regions, start):
    """Draws regions from an offset on; returns the offset of their end."""
    first = start
    places = groupby(regions, lambda region: (region.layer, region.direction))
    for (layer, direction), group in places:
        begin = start
        for region in group:
            *_, gate, kind = layout.describe(config, region).split(", ")
            count = region.size
            axes.barh(0, count, left=start, color=COLORS[kind.split()[0]], edgecolor="white")
            text = "$%s^{\\,%s}$" % (SYMBOLS[kind], GATES[gate])
            axes.text(start + count / 2, 0, text, ha="center", va="center")
            start += count
        axes.plot([begin, start], [0.46, 0.46], color="#555555", linewidth=1)
        axes.text(
            (begin + start) / 2,
            0.52,
            "layer %d, %s" % (layer, layout.DIRECTIONS[direction]),
            ha="center",
        )
    axes.set(xlim=(first, start), ylim=(-0.4, 0.5), yticks=[], xlabel="element")
    axes.spines[["left", "right", "top"]].set_visible(False)
    return start


def main():
    sizes = {"num_layers": 1, "num_units": 4, "input_size": 3}
    modes = {"input_mode": "linear_input", "direction": "bidirectional"}
    config = RnnConfig.checked("lstm", **sizes, **modes)
    figure, (matrices, biases) = pyplot.subplots(2, 1, figsize=(10, 4))
    first_bias = draw(matrices, config, layout.canonical_weights(config), 0)
    end = draw(biases, config, layout.canonical_biases(config), first_bias)
    assert end == layout.params_size(config)
    figure.suptitle(
        "Bidirectional LSTM, input_size 3, num_units 4: first all matrices, then all biases"
    )
    figure.tight_layout()
    matplotlib.rcParams["svg.hashsalt"] = "cudnn_rnn"  # the same file from each run
    figure.savefig(PATH, metadata={"Date": None})
    print("wrote", PATH)


if __name__ == "__main__":
    main()
