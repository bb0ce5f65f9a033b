"""The examples of the README, pasted one after the other, and of the guides do what they say."""

import os
import re
import subprocess
import sys

import pytest
from time_limits import SECONDS_FOR_A_PROCESS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def examples(name="README.md"):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)


def test_examples_run_in_order(tmp_path):
    assert len(examples()) == 4
    # As if typed: -i reads statements one by one, so a block must end where a terminal ends it.
    process = subprocess.run(
        [sys.executable, "-i", "-c", "import sys; sys.ps1 = sys.ps2 = ''"],
        input="\n".join(examples()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(tmp_path),
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert "Error" not in process.stderr, process.stderr
    lines = process.stdout.splitlines()
    losses, names, same_class, cells = lines[-4:]
    losses = [float(loss) for loss in losses.strip("[]").split(",")]
    assert losses[-1] < losses[0]
    assert "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in names
    assert float(same_class) == 0.0
    assert float(cells) < 1e-5


MIGRATING = examples(os.path.join("docs", "migrating.md"))
# The line that each example ends with: a key of its checkpoint.
KEYS_OF_MIGRATING = [
    "CudnnRNNParamsToCanonical:0",
    "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias",
    "model/stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias",
    "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell/bias",
]


def test_every_generation_has_an_example():
    assert len(MIGRATING) == len(KEYS_OF_MIGRATING)


@pytest.mark.parametrize("index", range(len(KEYS_OF_MIGRATING)))
def test_examples_of_migrating(tmp_path, index):
    process = subprocess.run(
        [sys.executable, "-c", MIGRATING[index]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(tmp_path),
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == KEYS_OF_MIGRATING[index]
