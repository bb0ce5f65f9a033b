"""Shared by trials: builds their programs, and runs these with each TensorFlow."""

import argparse
import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
BUILD = ROOT / ".build" / "trials"


def parse_arguments(description, arguments=None):
    """Returns the options that all trials have: `short` and `seed`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="take a few seconds")
    parser.add_argument("--seed", type=int, default=0, help="of random choices (default: 0)")
    return parser.parse_args(arguments)


def build_program(name, *options):
    """Builds `tests/trials/<name>.cc` with the core; returns the program's path."""
    command = ["bash", str(ROOT / "scripts" / "build_trial.sh"), name] + list(options)
    return subprocess.check_output(command, universal_newlines=True).split()[-1]


def build_preloaded(source):
    """Builds a library for LD_PRELOAD of a source of this folder; returns its path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    library = BUILD / (os.path.splitext(source)[0] + ".so")
    compiler = ["c++", "-std=c++14"] if source.endswith(".cc") else ["cc"]
    flags = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]
    subprocess.check_call(compiler + flags + [str(FOLDER / source), "-o", str(library), "-ldl"])
    return str(library)


def pythons(is_short):
    """Returns the Pythons of the trials: TensorFlow 2, and, unless short, TensorFlow 1."""
    found = [os.environ.get("TRIALS_PYTHON", sys.executable)]
    if "TRIALS_PYTHON_TF1" in os.environ and not is_short:
        found.append(os.environ["TRIALS_PYTHON_TF1"])
    return found


def run(*command, **environment):
    """Runs a program; returns the numbers of the last line that it prints.

    Shows the last lines of its stderr, and ends the trial, if the program fails.
    """
    variables = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **environment)
    process = subprocess.run(
        [str(argument) for argument in command],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    lines = process.stdout.splitlines() or [""]
    if process.returncode != 0 or not re.fullmatch(r"[\d ]+", lines[-1]):
        print("\n".join(process.stderr.splitlines()[-20:] + lines[-20:]))
        sys.exit("FAILED, exit status %d: %s" % (process.returncode, " ".join(map(str, command))))
    text = " ".join(os.path.basename(str(part)) for part in command)
    print("%s: %s" % (text, lines[-1]), file=sys.stderr)
    return [int(number) for number in lines[-1].split()]
