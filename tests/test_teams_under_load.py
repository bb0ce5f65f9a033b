"""No call waits for itself, however busy the thread pool: a short form of a scenario that hung."""

import os
import subprocess
import sys


def test_decode_loops_finish_beside_training():
    """More calls than the pool's queue has entries (1,024), while training has its threads."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "training_beside_decoding.py")
    sizes = ["--layers=2", "--units=512", "--decoder-units=256", "--steps=3000", "--rounds=2"]
    process = subprocess.run(
        [sys.executable, program] + sizes,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    assert process.returncode == 0, process.stdout
    assert "\n4 loops of 3000 steps" in process.stdout, process.stdout
