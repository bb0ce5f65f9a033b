"""Shared by trials: their options, and what builds their programs and runs them."""

import argparse
import collections
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
BUILD = ROOT / ".build" / "trials"
SECONDS_BETWEEN_LINES = 20


def make_parser(text, seed=0, short="take a few seconds"):
    """Returns a parser of the options that all trials have: `--short` and `--seed`.

    `text`: the trial's docstring, whose first paragraph describes it; `seed`: the default; `short`:
    the help of `--short`.
    """
    parser = argparse.ArgumentParser(description=text.split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument(
        "--seed", type=int, default=seed, help="of random choices (default: %(default)s)"
    )
    return parser


def above_zero(convert):
    """Returns a `type` for numbers above 0, which `convert` (int or float) reads."""

    def read(text):
        number = convert(text)
        if number <= 0:
            raise argparse.ArgumentTypeError("%s is not above 0" % text)
        return number

    read.__name__ = convert.__name__  # argparse names it if `convert` fails
    return read


def require(condition, text):
    """Ends the trial, which fails, unless the condition holds."""
    if not condition:
        sys.exit("FAILED: " + text)


def build_program(name, preset="release"):
    """Builds a program or library of this folder with a preset of CMake; returns its path."""
    command = ["bash", str(ROOT / "scripts" / "cpp.sh"), "path", preset, name]
    return subprocess.check_output(command, universal_newlines=True).strip()


def build_package(name, *flags):
    """Installs this package, compiled with the flags, into a folder; returns the folder.

    `name`: of the folder. A process uses this package if PYTHONPATH is the folder.
    """
    folder = BUILD / name
    shutil.rmtree(str(folder), ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(folder), str(ROOT)]
    flags = [os.environ.get("CXXFLAGS", ""), *map(shlex.quote, flags)]
    subprocess.check_call(command, env=dict(os.environ, CXXFLAGS=" ".join(flags)))
    return str(folder)


def pythons(is_short):
    """Returns the Pythons of the trials: TensorFlow 2, and, unless short, TensorFlow 1."""
    found = [os.environ.get("TRIALS_PYTHON", sys.executable)]
    if "TRIALS_PYTHON_TF1" in os.environ and not is_short:
        found.append(os.environ["TRIALS_PYTHON_TF1"])
    return found


def run(*command, **environment):
    """Runs a program; returns the numbers of the last line that it prints.

    Shows a line of its output now and then. If the program fails, shows the last lines and ends the
    trial.
    """
    command = [str(argument) for argument in command]
    name = " ".join(os.path.basename(part) for part in command)
    variables = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **environment)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"}
    with subprocess.Popen(command, env=variables, **options) as process:
        last_lines = _show_some(process.stdout, name)
    numbers = [line for line in last_lines if re.fullmatch(r"\d+( \d+)*", line)]
    if process.returncode != 0 or not numbers:
        print("\n".join(last_lines))
        sys.exit("FAILED, exit status %d: %s" % (process.returncode, " ".join(command)))
    print("%s: %s" % (name, numbers[-1]), flush=True)
    return [int(number) for number in numbers[-1].split()]


def _show_some(lines, name):
    """Prints one of the lines every SECONDS_BETWEEN_LINES; returns the last lines."""
    kept, shown = collections.deque(maxlen=40), time.monotonic()
    for line in lines:
        kept.append(line.rstrip("\n"))
        if time.monotonic() - shown > SECONDS_BETWEEN_LINES:
            print("%s: %s" % (name, kept[-1]), flush=True)
            shown = time.monotonic()
    return list(kept)
