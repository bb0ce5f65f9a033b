"""The commands of `python -m cudnn_rnn`. Nothing here imports TensorFlow."""

import argparse
import os
import signal
import sys

from cudnn_rnn._version import __version__
from cudnn_rnn.cli import convert, doctor, export, inspect, run

_COMMANDS = {
    "doctor": doctor,
    "run": run,
    "inspect": inspect,
    "convert": convert,
    "export": export,
}

_DESCRIPTION = """\
Tools for cudnn_rnn, tf.contrib.cudnn_rnn for current versions of TensorFlow.

commands:
  doctor    reports what is installed, whether it works, and which GPU libraries are used
  run       runs a program for TensorFlow 1 that uses tf.contrib.cudnn_rnn
  inspect   shows the RNNs in a checkpoint or another file, and statistics of their weights
  convert   converts weights between checkpoints, PyTorch, Keras, ONNX and NumPy
  export    writes a SavedModel that runs without this package, or an ONNX model

`python -m cudnn_rnn COMMAND --help` describes a command."""


def main(arguments=None):
    """Runs the command named by the arguments; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:  # whose program may print and fail as it likes
        return _run(arguments)
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough, such as `head`. Python flushes stdout once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(arguments):
    """Parses the arguments and runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m cudnn_rnn",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m cudnn_rnn [--help | --version | COMMAND ...]",
    )
    parser.add_argument("--version", action="version", version="cudnn_rnn " + __version__)
    commands = parser.add_subparsers(
        dest="command", prog="python -m cudnn_rnn", help=argparse.SUPPRESS
    )
    parsers = {name: commands.add_parser(name, add_help=True) for name in _COMMANDS}
    for name, command in _COMMANDS.items():
        command.add_arguments(parsers[name])
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        parsers.get(chosen.command, parser).error("unrecognized arguments: %s" % " ".join(unknown))
    if chosen.command is None:
        parser.print_help()
        return 2
    if chosen.command == "run":
        chosen.arguments = run.arguments_of_program(arguments, chosen.arguments)
        return run.run(chosen, parsers["run"])
    return _COMMANDS[chosen.command].run(chosen)
