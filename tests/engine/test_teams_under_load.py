"""Calls must not deadlock, however busy the thread pool: a short form of a scenario that hung."""

import os
import subprocess
import sys

from helpers.paths import PROGRAMS
from helpers.processes import SECONDS_FOR_A_PROCESS


def test_decode_loops_finish_beside_training_and_products():
    """Makes more calls than the pool's queue holds (1,024) while other work uses its threads."""
    program = os.path.join(PROGRAMS, "training_beside_decoding.py")
    sizes = ["--trainers=1", "--multipliers=1", "--layers=1", "--units=512"]
    sizes += ["--decoder-units=256", "--steps=3000", "--rounds=2"]
    process = subprocess.run(
        [sys.executable, program] + sizes,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert process.returncode == 0, process.stdout
    assert "\n4 loops of 3000 steps" in process.stdout, process.stdout
