"""Makes the modules of benchmarks/ importable."""

import os
import subprocess
import sys

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "benchmarks")
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "workers")]


def run_program(command):
    """Runs a program in this Python; returns the exit status and the output."""
    process = subprocess.run(
        [sys.executable] + command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return process.returncode, process.stdout


def run_arguments(*arguments):
    """Runs arguments.py without installed packages; returns the exit status and the output."""
    return run_program(["-S", os.path.join(FOLDER, "arguments.py")] + list(arguments))
