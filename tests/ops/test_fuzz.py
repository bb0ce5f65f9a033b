"""A short run of fuzz_ops.py in a separate process, which must end by itself."""

import os
import re

import pytest

from helpers.paths import PROGRAMS
from helpers.processes import run_python

pytestmark = [pytest.mark.once, pytest.mark.ci]

ROUNDS = 75


def test_random_input_does_not_end_the_process():
    program = os.path.join(PROGRAMS, "fuzz_ops.py")
    process = run_python(program, "--rounds", ROUNDS, "--seed", 1)
    printed = process.stdout[-500:] + process.stderr[-3000:]
    repeat = "\nTo repeat the last round: tests/programs/fuzz_ops.py --seed 1 --rounds 1 --first N"
    assert process.returncode == 0, f"ended with {process.returncode}\n{printed}{repeat}"
    (accepted,) = re.findall(f"{ROUNDS} rounds, (.*) ops accepted", process.stdout)
    assert int(accepted) > ROUNDS // 4, "too little was tried: " + printed
