"""Plots the ratio of our time to each peer's, for each configuration."""

from pictures import draw_ratios
from summary import CUDNN_MARGIN, make_rows, ratio

# (title, function that returns a row's ratio)
SERIES = [
    ("bare cuDNN, best algorithm (device)", lambda row: ratio(row.core, row.cudnn)),
    ("torch.nn (wall clock)", lambda row: ratio(row.core_wall, row.torch_wall)),
    ("TensorFlow's own kernels (wall clock)", lambda row: ratio(row.ours, row.builtin)),
]


def draw(results, title, path):
    """Writes a PNG with one line for each configuration and one mark for each peer's ratio."""
    rows = make_rows(results)
    draw_ratios(
        ["%s, %s, %s" % (row.short, row.dtype, row.kind) for row in rows],
        [(name, [value_of(row) for row in rows]) for name, value_of in SERIES],
        title,
        "our time / peer's time   (left of 1: ours is faster)",
        path,
        CUDNN_MARGIN,
    )
