"""The command line of the character language model.

Run as a program, it only checks the arguments and answers --help; it needs only Python.
"""

import argparse
import ast
import collections
import math
import os
import sys

# Default values of the options, without and with --quick.
DEFAULTS = dict(steps=750, units=192, layers=2, batch=32, seq_length=64, learning_rate=0.004)
QUICK = dict(steps=300, units=48, layers=2, batch=8, seq_length=32, learning_rate=0.01)


class UserError(Exception):
    """An error that the user must fix; the message says what is wrong and what to do."""


Paths = collections.namedtuple("Paths", ["checkpoint", "model", "curve", "sample", "results"])


def make_output_folder(folder):
    """Creates the folder if necessary; returns the paths of the files that will be in it.

    Raises:
      UserError: the folder cannot be created or written to.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UserError("cannot create the folder --output %s: %s" % (folder, error.strerror))
    if not os.access(folder, os.W_OK):
        raise UserError("cannot write to the folder --output %s" % folder)
    names = ("model.ckpt", "model.json", "loss_curve.png", "sample.txt", "results.json")
    return Paths(*(os.path.join(folder, name) for name in names))


def number(convert, smallest, largest=math.inf, excluding=None):
    """Returns an argparse type that parses a number within a range."""
    kind = {int: "a whole number", float: "a number"}[convert]

    def read(text):
        try:
            value = convert(text)
        except ValueError:
            raise argparse.ArgumentTypeError("must be %s, but is %r" % (kind, text))
        if not smallest <= value <= largest or value == excluding:
            at_least = "above" if smallest == excluding else "at least"
            limit = "" if largest == math.inf else " and at most %g" % largest
            raise argparse.ArgumentTypeError(
                "must be %s, %s %g%s, but is %s" % (kind, at_least, smallest, limit, text)
            )
        return value

    return read


PROGRAM = "character_language_model.py"


def description():
    """Returns the program's docstring without importing the program, which needs TensorFlow."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), PROGRAM)
    with open(path, encoding="utf-8") as file:
        return ast.get_docstring(ast.parse(file.read()))


def parse_options(arguments):
    """Returns the parsed options; `arguments` is the command line without the program's name."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=description(),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example, a smaller model on a text of your own:\n"
        "  python examples/character_language_model.py --corpus novel.txt --units 96 --steps 300",
    )
    whole = number(int, 1)
    model = parser.add_argument_group("the text and the model")
    model.add_argument(
        "--corpus",
        metavar="FILE",
        help="UTF-8 text to train on (default: the language reference that is part of Python)",
    )
    model.add_argument("--units", type=whole, help="units per layer (%(default)s)")
    model.add_argument("--layers", type=whole, help="number of layers (%(default)s)")
    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=whole, help="training steps (%(default)s)")
    training.add_argument("--batch", type=whole, help="batch size (%(default)s)")
    training.add_argument(
        "--seq-length", type=whole, help="characters per training step (%(default)s)"
    )
    training.add_argument(
        "--learning-rate",
        type=number(float, 0, 10, excluding=0),
        help="initial learning rate of Adam; decays to a tenth (%(default)s)",
    )
    training.add_argument(
        "--seed", type=number(int, 0, 2**31 - 1), default=1, help="random seed (%(default)s)"
    )
    training.add_argument(
        "--quick",
        action="store_true",
        help="run the whole program with a tiny model, in about half a minute",
    )
    after = parser.add_argument_group("afterwards")
    after.add_argument(
        "--temperature",
        type=number(float, 0.01, 100),
        default=0.7,
        help="sampling temperature: lower values give more probable text (%(default)s)",
    )
    after.add_argument(
        "--output",
        metavar="DIR",
        default="demo_output",
        help="folder for checkpoint, loss curve, sample and results (%(default)s)",
    )
    parser.set_defaults(**(QUICK if "--quick" in arguments else DEFAULTS))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    parse_options(sys.argv[1:])
