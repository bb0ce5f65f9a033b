"""Options and error reports of the commands that read files: `inspect`, `convert` and `export`."""

import argparse
import contextlib
import importlib
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings

from cudnn_rnn.cli.run import ADVICE, load_package

INPUTS = """\
a checkpoint of any TensorFlow (its prefix, one of its files, or its folder; also a SavedModel); \
PyTorch's .pt or .safetensors (a state_dict); Keras's .keras or .h5; .onnx; .npz; or a frozen \
graph (.pb, .pbtxt). The format is recognized from the file"""

# Each error about a missing fact names the option that states it.
_DESCRIPTION_OF_FACTS = """\
A simple RNN has the same weights with tanh and ReLU: --rnn-mode rnn_tanh or rnn_relu.
Weights alone of Keras up to 2.2 do not tell hard_sigmoid from sigmoid: with --rnn-mode lstm or
gru you state that the program has tanh and sigmoid.
An opaque vector alone needs --rnn-mode and --num-units, that of an LSTM without a layer also
--num-proj (0 without a projection).
LSTM cells of TensorFlow 1 (BasicLSTMCell, LSTMCell, LSTMBlockCell, LSTMBlockFusedCell) add a
forget bias that only their graph has: without the .meta file, --forget-bias 1.0, or what your
program gives the cell."""

_FACTS = (
    ("--rnn-mode", dict(choices=("lstm", "gru", "rnn_relu", "rnn_tanh"))),
    ("--num-layers", dict(type=int, metavar="N")),
    ("--num-units", dict(type=int, metavar="N")),
    ("--direction", dict(choices=("unidirectional", "bidirectional"))),
    ("--num-proj", dict(type=int, metavar="N")),
    ("--forget-bias", dict(type=float, metavar="X")),
)


def add_facts(parser):
    """Adds the options that say what a file may not tell."""
    group = parser.add_argument_group("facts that a file may not tell", _DESCRIPTION_OF_FACTS)
    for name, options in _FACTS:
        group.add_argument(name, **options)
    add_messages(parser)


def facts_of(options):
    """Returns these options as keyword arguments of `cudnn_rnn.exchange.read`."""
    return {
        name: getattr(options, name)
        for name in (argument[2:].replace("-", "_") for argument, _ in _FACTS)
    }


def describe_command(parser, usage, description):
    """Sets the texts of a command's parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = usage
    parser.description = description


def add_messages(parser):
    """Adds the options that choose which messages are shown."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show the messages of TensorFlow"
    )
    parser.add_argument(
        "--traceback", action="store_true", help="also show where in the program an error occurs"
    )


def reporting_errors(command, function, options, module="cudnn_rnn.exchange"):
    """Runs `function(imported module, options)`; returns its exit status, 1 after an error.

    Errors of the files and of the libraries that read them are one line, without a traceback.
    """
    try:
        with contextlib.nullcontext() if options.verbose else _quiet():
            if module != "cudnn_rnn.exchange":  # which needs TensorFlow for checkpoints only
                load_package()
            return function(importlib.import_module(module), options)
    except BrokenPipeError:  # nobody reads stdout any more; `main` ends
        raise
    except ImportError as error:
        print("python -m cudnn_rnn %s: %s\n%s" % (command, error, ADVICE), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("python -m cudnn_rnn %s: interrupted." % command, file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if options.traceback:
            traceback.print_exc()
        print("python -m cudnn_rnn %s: %s" % (command, _text_of(error)), file=sys.stderr)
        return 1


@contextlib.contextmanager
def _quiet():
    """Keeps the messages of libraries from stderr: what is written to it is this command's own.

    TensorFlow's C++ part writes to the file descriptor, before any setting is read.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept, stderr = os.dup(2), sys.stderr
    has_descriptor = _descriptor_of(stderr) == 2
    disabled = logging.root.manager.disable
    with tempfile.TemporaryFile() as messages, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        os.dup2(messages.fileno(), 2)
        if has_descriptor:
            sys.stderr = os.fdopen(os.dup(kept), "w")
        try:
            yield
        finally:
            if has_descriptor:
                sys.stderr.close()
                sys.stderr = stderr
            os.dup2(kept, 2)
            os.close(kept)
            logging.disable(disabled)


def _descriptor_of(stream):
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _text_of(error):
    """Returns the message; of an unexpected error also its class."""
    if isinstance(error, MemoryError):
        return "the memory does not suffice. %s" % error
    if isinstance(error, (OSError, ValueError)):  # ExchangeError is a ValueError
        return for_the_command_line(str(error))
    return "%s (%s). --traceback shows where." % (error, type(error).__name__)


# An argument in Python and then its option: overwrite=True (--force).
_ARGUMENT_AND_OPTION = re.compile(r"\b\w+=(?:\{[^}]*\}|\[[^\]]*\]|[^\s,;()]*) \((--[^)]+)\)")
_NAME_AND_OPTION = re.compile(r"\b(\w+) \((--([\w-]+))\)")


def for_the_command_line(text):
    """Returns a message with options in place of the arguments of functions."""

    def option(found):
        is_same = found.group(1).replace("_", "-") == found.group(3)
        return found.group(2) if is_same else found.group(0)

    return _NAME_AND_OPTION.sub(option, _ARGUMENT_AND_OPTION.sub(r"\1", text))


def print_notes(notes):
    """Prints notes on stderr, so that stdout has only what was asked for."""
    for note in notes:
        print("Note: %s" % for_the_command_line(note), file=sys.stderr)
