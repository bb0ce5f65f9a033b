"""The examples of the README, pasted one after the other, and of the guides do what they say."""

import os
import re
import subprocess
import sys

import pytest

from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS


def examples(name="README.md"):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)


def type_in(programs, folder):
    """Returns the lines printed by a Python that reads the programs one after the other."""
    # As if typed: -i reads statements one by one, so a block must end where a terminal ends it.
    process = subprocess.run(
        [sys.executable, "-i", "-c", "import sys; sys.ps1 = sys.ps2 = ''"],
        input="\n".join(programs),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(folder),
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert "Error" not in process.stderr, process.stderr
    return process.stdout.splitlines()


def test_the_program_of_the_readme_prints_its_documented_output(tmp_path):
    (program,) = examples()
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        promised = re.search(r"```\n\n    (\[.*\])\n", file.read()).group(1)
    assert type_in([program], tmp_path)[-1] == promised


def test_saving_and_restoring(tmp_path):
    saving, same_class, cells = examples(os.path.join("docs", "checkpoints.md"))[:3]
    names, same_class, cells = type_in([saving, same_class, cells], tmp_path)[-3:]
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


def pages():
    """Returns the paths of all pages, relative to the project."""
    found = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        for name in sorted(names):
            if name.endswith(".md"):
                found.append(os.path.relpath(os.path.join(folder, name), ROOT))
    return found


def anchors(path):
    """Returns the anchors of a page's headings, as web sites make them from Markdown."""
    with open(path, encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)$", file.read(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_links_resolve(page):
    folder = os.path.dirname(os.path.join(ROOT, page))
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", file.read())
    for link in filter(None, sum(links, ())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (
            os.path.normpath(os.path.join(folder, target)) if target else os.path.join(ROOT, page)
        )
        assert os.path.exists(path), link
        assert not anchor or anchor in anchors(path), link
