"""Helpers of the demo: quiet imports, JSON files and the plot."""

import contextlib
import json
import os
import sys
import tempfile

INSTALL = {
    "numpy": "pip install numpy",
    "tensorflow": "pip install tensorflow",
    "cudnn_rnn": "pip install --no-build-isolation . in the project's folder",
    "tqdm": "pip install tqdm",
    "matplotlib": "pip install matplotlib",
}


@contextlib.contextmanager
def quiet_imports():
    """A context for import statements that exits with install instructions if a library is missing.

    TensorFlow's libraries write to standard error while they load, at any log level. That output is
    held back, and shown only if an import fails for another reason.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    kept = tempfile.TemporaryFile()
    os.dup2(kept.fileno(), 2)
    problem = None
    try:
        yield
        import matplotlib  # noqa: F401 - fails early, not after a long training
    except ImportError as error:
        problem = error
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)
    with kept:
        if problem is None:
            return
        if problem.name in INSTALL:
            sys.exit("This example needs %s: %s" % (problem.name, INSTALL[problem.name]))
        kept.seek(0)
        sys.stderr.write(kept.read().decode(errors="replace"))
        raise problem


def write_json(path, value):
    """Writes a human-readable JSON file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, sort_keys=True)
        file.write("\n")


def plot_curve(path, training, held_out, title):
    """Writes the loss curve as a PNG.

    Args:
      path: the file to write.
      training, held_out: lists of (step, bits per character).
      title: the title of the plot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(1, 1, 1)
    axes.plot(*zip(*training), color="tab:blue", linewidth=0.8, label="training, each segment")
    axes.plot(*zip(*held_out), color="tab:orange", marker="o", markersize=4, label="held-out text")
    last_step, last_value = held_out[-1]
    axes.annotate(
        "%.2f" % last_value,
        (last_step, last_value),
        textcoords="offset points",
        xytext=(0, 8),
        ha="center",
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("bits per character")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_title(title)
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
