"""Draws parameter_buffer.svg: the regions of an opaque buffer, to scale.

    python docs/pictures/draw_parameter_buffer.py

Needs this package, TensorFlow and matplotlib.
"""

import pathlib
from itertools import groupby

import matplotlib
import numpy as np
import tensorflow as tf

from cudnn_rnn._core.config import RnnConfig

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


def draw(axes, entries, start):
    """Draws regions from an offset on; returns the offset of their end."""
    first = start
    for (layer, direction), group in groupby(entries, lambda entry: entry.place.split(", ")[:2]):
        begin = start
        for entry in group:
            *_, gate, kind = entry.place.split(", ")
            count = int(np.prod(entry.shape))
            axes.barh(0, count, left=start, color=COLORS[kind.split()[0]], edgecolor="white")
            text = "$%s^{\\,%s}$" % (SYMBOLS[kind], GATES[gate])
            axes.text(start + count / 2, 0, text, ha="center", va="center")
            start += count
        axes.plot([begin, start], [0.46, 0.46], color="#555555", linewidth=1)
        axes.text((begin + start) / 2, 0.52, "%s, %s" % (layer, direction), ha="center")
    axes.set(xlim=(first, start), ylim=(-0.4, 0.5), yticks=[], xlabel="element")
    axes.spines[["left", "right", "top"]].set_visible(False)
    return start


def main():
    sizes = {"num_layers": 1, "num_units": 4, "input_size": 3}
    modes = {"input_mode": "linear_input", "direction": "bidirectional", "dtype": tf.float32}
    config = RnnConfig.checked("lstm", **sizes, **modes, dropout=0.0, seed=0)
    figure, (matrices, biases) = pyplot.subplots(2, 1, figsize=(10, 4))
    end = draw(biases, config.canonical_biases(), draw(matrices, config.canonical_weights(), 0))
    assert end == config.params_size()
    figure.suptitle(
        "Bidirectional LSTM, input_size 3, num_units 4: first all matrices, then all biases"
    )
    figure.tight_layout()
    matplotlib.rcParams["svg.hashsalt"] = "cudnn_rnn"  # the same file from each run
    figure.savefig(PATH, metadata={"Date": None})
    print("wrote", PATH)


if __name__ == "__main__":
    main()
