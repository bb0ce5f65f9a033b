"""Shared by the commands that read weights: `inspect` and `convert`."""

import argparse
import importlib
import os
import sys

from cudnn_rnn.cli.run import ADVICE, load_package

INPUTS = """\
a checkpoint of any TensorFlow (its prefix, one of its files, or its folder; also a SavedModel); \
PyTorch's .pt or .safetensors (a state_dict); Keras's .keras or .h5; .onnx; or .npz. The format is \
recognized from the file"""

_FACTS = (
    ("--rnn-mode", dict(choices=("lstm", "gru", "rnn_relu", "rnn_tanh"))),
    ("--num-layers", dict(type=int, metavar="N")),
    ("--num-units", dict(type=int, metavar="N")),
    ("--direction", dict(choices=("unidirectional", "bidirectional"))),
    ("--num-proj", dict(type=int, metavar="N")),
)


def add_facts(parser):
    """Adds the options that say what a file may not tell."""
    group = parser.add_argument_group(
        "facts that a file may not tell",
        "Weights of simple RNNs are the same with tanh and ReLU: --rnn-mode rnn_tanh or rnn_relu, "
        "if nothing tells. An opaque vector alone needs --rnn-mode and --num-units, that of an "
        "LSTM without a layer also --num-proj (0 without a projection).",
    )
    for name, options in _FACTS:
        group.add_argument(name, **options)


def facts_of(options):
    """Returns these options as keyword arguments of `cudnn_rnn.exchange.read`."""
    return {
        name: getattr(options, name)
        for name in ("rnn_mode", "num_layers", "num_units", "direction", "num_proj")
    }


def describe_command(parser, usage, description):
    """Sets the texts of a command's parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = usage
    parser.description = description


def reporting_errors(command, function, options):
    """Runs `function(exchange, options)`; returns its exit status, 1 after an expected error.

    `exchange` is the module `cudnn_rnn.exchange`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        load_package()
        exchange = importlib.import_module("cudnn_rnn.exchange")
    except ImportError as error:
        print("python -m cudnn_rnn %s: %s\n%s" % (command, error, ADVICE), file=sys.stderr)
        return 1
    try:
        return function(exchange, options)
    except (OSError, ValueError) as error:  # ExchangeError is a ValueError
        print("python -m cudnn_rnn %s: %s" % (command, error), file=sys.stderr)
        return 1


def print_notes(notes):
    """Prints notes on stderr, so that stdout has only what was asked for."""
    for note in notes:
        print("Note: %s" % note, file=sys.stderr)
