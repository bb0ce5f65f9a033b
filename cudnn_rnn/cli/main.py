"""The commands of `python -m cudnn_rnn`. Nothing here imports TensorFlow."""

import argparse
import sys

from cudnn_rnn._version import __version__
from cudnn_rnn.cli import doctor, export, run

_DESCRIPTION = """\
Tools for cudnn_rnn, tf.contrib.cudnn_rnn for current versions of TensorFlow.

commands:
  doctor    reports what is installed, whether it works, and which GPU libraries are used
  run       runs a program for TensorFlow 1 that uses tf.contrib.cudnn_rnn
  export    writes a SavedModel that runs without this package

`python -m cudnn_rnn COMMAND --help` describes a command."""


def main(arguments=None):
    """Runs the command named by the arguments; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m cudnn_rnn",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m cudnn_rnn [--help | --version | COMMAND ...]",
    )
    parser.add_argument("--version", action="version", version="cudnn_rnn " + __version__)
    commands = parser.add_subparsers(dest="command", help=argparse.SUPPRESS)
    doctor.add_arguments(commands.add_parser("doctor", add_help=True))
    export.add_arguments(commands.add_parser("export", add_help=True))
    run_parser = commands.add_parser("run", add_help=True)
    run.add_arguments(run_parser)
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 2
    if chosen.command == "run":
        chosen.arguments = run.arguments_of_program(arguments, chosen.arguments)
        return run.run(chosen, run_parser)
    if chosen.command == "export":
        return export.export(chosen)
    return doctor.Doctor().examine()
