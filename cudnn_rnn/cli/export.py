"""`python -m cudnn_rnn export`: a SavedModel that runs without this package."""

import argparse
import importlib
import sys

from cudnn_rnn.cli.run import load_package

DESCRIPTION = """\
Writes a copy of a SavedModel in which TensorFlow's standard ops replace all CudnnRNN* nodes.

    python -m cudnn_rnn export saved_model plain_model

The copy has the same signatures, variables and results, for any batch size and number of time
steps. Any TensorFlow 2 loads it without this package; XLA and the TFLite
converter accept it. It is slower than with this package: docs/plain_graphs.md has numbers.

IN is a SavedModel written by TensorFlow 1 or 2. OUT is complete or not written at all."""


def add_arguments(parser):
    """Adds the command's arguments to its `argparse.ArgumentParser`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = DESCRIPTION
    parser.usage = "python -m cudnn_rnn export IN OUT [--training] [--force]"
    parser.add_argument("saved_model", metavar="IN", help="the folder of a SavedModel")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    parser.add_argument(
        "--training",
        action="store_true",
        help="also rewrite gradient nodes (CudnnRNNBackprop*), which a model saved by a training "
        "program may have",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")


def run(options):
    """Runs the command; returns the exit status."""
    try:
        load_package()
        plain = importlib.import_module("cudnn_rnn.plain")
        count = plain.export_plain(
            options.saved_model, options.output, options.training, options.force
        )
    except (ImportError, OSError, ValueError) as error:
        print("python -m cudnn_rnn export: %s" % error, file=sys.stderr)
        return 1
    print("Replaced %d CudnnRNN* nodes; wrote %s." % (count, options.output))
    return 0
