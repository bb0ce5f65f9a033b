"""Python programs that tests run in processes of their own."""

import os
import subprocess
import sys

from helpers.paths import ROOT

# Limits after which a process or a test counts as stuck. They are a last resort: no result depends
# on them, even on a busy machine. A test's limit is longer, so that it ends its processes first.
SECONDS_FOR_A_PROCESS = 3000
SECONDS_FOR_A_TEST = 3600


def run_python(*arguments, folder=None, **environment):
    """Runs this Python with the arguments, in `folder`; returns a subprocess.CompletedProcess.

    Its stdout and stderr are text. `environment`: variables to set, or to remove if None.
    """
    variables = dict(os.environ, **dict({"TF_CPP_MIN_LOG_LEVEL": "3"}, **environment))
    return subprocess.run(
        [sys.executable] + [str(argument) for argument in arguments],
        cwd=folder and str(folder),
        env={name: value for name, value in variables.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )


def output_of(*arguments, **options):
    """Like `run_python`, but fails unless the program succeeds; returns what it printed."""
    process = run_python(*arguments, **options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def status_and_text(*arguments, **options):
    """Like `run_python`; returns the exit status and the text of stderr and then stdout."""
    process = run_python(*arguments, **options)
    return process.returncode, process.stderr + process.stdout


def run_setup(*arguments, **environment):
    """Runs setup.py in the checkout; returns the exit status and its output."""
    command = ("-W", "ignore", "setup.py", "-q") + arguments
    return status_and_text(*command, folder=ROOT, **environment)


def importable(*folders):
    """Returns a PYTHONPATH with the folders and all that this process imports from.

    The package may be importable only from the working directory.
    """
    return os.pathsep.join(
        [str(folder) for folder in folders] + [path for path in sys.path if path]
    )
