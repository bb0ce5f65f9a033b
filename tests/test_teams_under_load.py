"""No call waits for itself, however busy the thread pool: a short form of a scenario that hung."""

import os
import subprocess
import sys

# Of a run that takes less than a minute; a hang is one for good.
SECONDS_BEFORE_IT_COUNTS_AS_STUCK = 1000


def test_decode_loops_finish_beside_training_and_products():
    """More calls than the pool's queue has entries (1,024) while others have its threads."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_beside_decoding.py")
    sizes = ["--trainers=1", "--multipliers=1", "--layers=1", "--units=512"]
    sizes += ["--decoder-units=256", "--steps=3000", "--rounds=2"]
    process = subprocess.run(
        [sys.executable, program] + sizes,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=SECONDS_BEFORE_IT_COUNTS_AS_STUCK,
    )
    assert process.returncode == 0, process.stdout
    assert "\n4 loops of 3000 steps" in process.stdout, process.stdout
