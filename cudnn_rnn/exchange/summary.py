"""Statistics of weights by gate, as a table and as a picture."""

from __future__ import annotations

import inspect
import os
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError, library, name_of, replacing, sentence
from cudnn_rnn.model.layout import DIRECTIONS
from cudnn_rnn.model.weights import RnnWeights

_KINDS = ("input_weights", "recurrent_weights", "input_bias", "recurrent_bias")
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


def statistics(rnn: RnnWeights) -> List[Dict[str, Any]]:
    """Returns the statistics of every array of every gate.

    Returns:
      a list of dicts with `layer` (int), `direction` ("forward" or "backward"), `gate` (str, empty
      for a projection), `array` (a field of `LayerWeights`), `count`, `nan` (NaN or infinite
      elements), and of the finite elements `mean`, `std`, `min`, `max` (float; None without any).
    """
    rows = []
    for layer, direction, gate, name, values in _parts(rnn):
        finite = values[np.isfinite(values)].astype(np.float64)
        numbers = [finite.mean(), finite.std(), finite.min(), finite.max()] if finite.size else []
        measured = dict(zip(("mean", "std", "min", "max"), map(float, numbers)))
        rows.append(
            dict(
                layer=layer,
                direction=DIRECTIONS[direction],
                gate=gate,
                array=name,
                count=int(values.size),
                nan=int(values.size - finite.size),
                **{key: measured.get(key) for key in ("mean", "std", "min", "max")},
            )
        )
    return rows


def _parts(rnn: RnnWeights) -> List[Tuple[int, int, str, str, np.ndarray]]:
    """Returns a list of (layer, direction, gate, name, values)."""
    parts = []
    for layer, direction, weights in rnn.places():
        for number, gate in enumerate(rnn.gates):
            for name in _KINDS:
                values = np.split(getattr(weights, name), rnn.num_gates)[number]
                parts.append((layer, direction, gate, name, values.reshape(-1)))
        if weights.projection is not None:
            parts.append((layer, direction, "", "projection", weights.projection.reshape(-1)))
    return parts


def check_image(path: str) -> None:
    """Raises `ExchangeError` unless `plot` can write this file."""
    suffix = os.path.splitext(path)[1][1:].lower()
    canvas = library("matplotlib.backend_bases", "plot").FigureCanvasBase
    if suffix not in canvas.get_supported_filetypes():
        raise ExchangeError(
            "The name of the image must end with .png, .svg or .pdf, or another format of "
            "Matplotlib, but is %s." % path
        )


def plot(rnns: Sequence[RnnWeights], path: str) -> None:
    """Draws the distributions: a row for each layer and direction, a column for each kind of array.

    The box of a gate has the quartiles and the median, the whiskers reach from the 1st to the 99th
    percentile, and dots are the extremes. A red title has the number of NaN or infinite values.

    Args:
      rnns: list of `RnnWeights`.
      path: an image, in a format of Matplotlib by its suffix.

    Raises:
      ExchangeError: the package matplotlib is missing, or has no such format.
    """
    check_image(path)
    places = [(rnn, layer, way) for rnn in rnns for layer, way, _ in rnn.places()]
    heights = [0.8 + 0.4 * rnn.num_gates for rnn, _, _ in places]
    # Not of pyplot, which may need a display.
    figure = library("matplotlib.figure", "plot").Figure(
        figsize=(14, 1.2 + 0.25 * len(rnns) + sum(heights)), layout="constrained"
    )
    grid = figure.subplots(
        len(places),
        len(_KINDS),
        squeeze=False,
        sharex="col",
        gridspec_kw={"height_ratios": heights},
    )
    for axes, (rnn, layer, way) in zip(grid, places):
        for axis, kind in zip(axes, _KINDS):
            _draw(axis, rnn, layer, way, kind)
            if kind != _KINDS[0]:
                axis.set_yticklabels([])
        place = "layer %d, %s" % (layer, DIRECTIONS[way])
        axes[0].set_ylabel("%s\n%s" % (rnn.scope, place) if rnn.scope else place)
    for axis, kind in zip(grid[0], _KINDS):
        title = "%s\n%s" % (kind.replace("_", " "), axis.get_title())
        axis.set_title(title.rstrip())
    figure.suptitle("\n".join(describe(rnn) for rnn in rnns), fontsize="medium")
    figure.supxlabel(
        "box: quartiles and median; whiskers: 1st to 99th percentile; dots: extremes",
        fontsize="small",
    )
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)


def _draw(axis, rnn, layer, way, kind):
    """Draws the gates of one kind of array."""
    boxes, num_bad = [], 0
    for number, gate in enumerate(rnn.gates):
        array = getattr(rnn.layers[layer][way], kind)
        values = np.split(array, rnn.num_gates)[number].astype(np.float64).reshape(-1)
        finite = values[np.isfinite(values)]
        num_bad += values.size - finite.size
        points = np.percentile(finite, [0, 1, 25, 50, 75, 99, 100]) if finite.size else [np.nan] * 7
        names = ("whislo", "q1", "med", "q3", "whishi")
        fliers = [points[0], points[-1]]
        boxes.append(dict(zip(names, points[1:-1]), label=gate, fliers=fliers))
    # Matplotlib before 3.10 has another name for it.
    has_orientation = "orientation" in inspect.signature(axis.bxp).parameters
    horizontal: Dict[str, Any] = {"orientation": "horizontal"} if has_orientation else {"vert": 0}
    drawn = axis.bxp(
        boxes,
        **horizontal,
        patch_artist=True,
        widths=0.6,
        medianprops={"color": "black"},
        flierprops={"marker": ".", "markeredgecolor": "gray"},
    )
    for box, color in zip(drawn["boxes"], _COLORS):
        box.set(facecolor=color, alpha=0.6)
    axis.invert_yaxis()
    axis.axvline(0.0, color="gray", linewidth=0.5)
    axis.tick_params(labelbottom=True)
    if num_bad:
        axis.set_title("%d NaN or infinite" % num_bad, color="red")


def describe(rnn: RnnWeights) -> str:
    """Returns one line on an RNN."""
    return "%s: %s, %d %s of %d units, %s, input size %d%s, %s" % (
        sentence(name_of(rnn.scope)),
        rnn.rnn_mode,
        rnn.num_layers,
        "layer" if rnn.num_layers == 1 else "layers",
        rnn.num_units,
        "bidirectional" if rnn.bidirectional else "unidirectional",
        rnn.input_size,
        ", projection to %d" % rnn.num_proj if rnn.num_proj else "",
        rnn.dtype,
    )
