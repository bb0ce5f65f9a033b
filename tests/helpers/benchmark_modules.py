"""Makes the modules of benchmarks/ importable."""

import os
import subprocess
import sys

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "benchmarks")
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "workers")]


def run_arguments(*arguments):
    """Runs arguments.py without installed packages; returns the exit status and the output."""
    command = [sys.executable, "-S", os.path.join(FOLDER, "arguments.py")]
    process = subprocess.Popen(
        command + list(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return process.wait(), process.stdout.read()
