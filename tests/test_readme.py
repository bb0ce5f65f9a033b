"""The README's examples, pasted one after the other, do what it says."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def examples():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
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
        timeout=300,
    )
    assert "Error" not in process.stderr, process.stderr
    lines = process.stdout.splitlines()
    losses, names, same_class, cells = lines[-4:]
    losses = [float(loss) for loss in losses.strip("[]").split(",")]
    assert losses[-1] < losses[0]
    assert "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in names
    assert float(same_class) == 0.0
    assert float(cells) < 1e-5
