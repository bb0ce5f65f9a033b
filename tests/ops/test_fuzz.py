"""A short run of fuzz_ops.py in a separate process, which must end by itself."""

import os
import re
import subprocess
import sys

import pytest

from helpers.paths import PROGRAMS
from helpers.processes import SECONDS_FOR_A_PROCESS

SCRIPT = os.path.join(PROGRAMS, "fuzz_ops.py")
ROUNDS = 75


@pytest.mark.parametrize("seed", [1, 2])
def test_random_input_does_not_end_the_process(seed, tmp_path):
    progress = tmp_path / "round"
    command = [sys.executable, SCRIPT, "--rounds", str(ROUNDS), "--seed", str(seed)]
    process = subprocess.Popen(
        command + ["--progress", str(progress)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output = process.communicate(timeout=SECONDS_FOR_A_PROCESS)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        process.kill()
        output = "it hung"
    repeat = "python tests/programs/fuzz_ops.py --seed %d --rounds 1 --first %s" % (
        seed,
        progress.read_text().strip() if progress.exists() else "0",
    )
    assert process.returncode == 0, f"ended with {process.returncode}\n{output[-3000:]}\n{repeat}"
    rounds, accepted = map(int, re.search(r"(\d+) rounds, (\d+) ops accepted", output).groups())
    assert rounds == ROUNDS and accepted > ROUNDS // 4, "too little was tried: " + output[-500:]
