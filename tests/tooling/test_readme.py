"""The examples of the README, pasted one after the other, and of the guides do what they say."""

import glob
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS, output_of
from helpers.versions import needs_tensorflow_2


def read(page):
    return Path(ROOT, page).read_text(encoding="utf-8")


def examples(page="README.md"):
    return re.findall(r"```python\n(.*?)```", read(page), re.DOTALL)


def test_the_programs_of_the_readme_and_of_checkpoints_print_their_documented_output(tmp_path):
    (program,) = examples()
    promised = re.search(r"```\n\n    (\[.*\])\n", read("README.md")).group(1)
    saving, same_class, cells = examples("docs/checkpoints.md")[:3]
    programs = [program, "tf.reset_default_graph()", saving, same_class, cells]
    # As if typed: -i reads statements one by one, so a block must end where a terminal ends it.
    process = subprocess.run(
        [sys.executable, "-i", "-c", "import sys; sys.ps1 = sys.ps2 = ''"],
        input="\n".join(programs),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(tmp_path),
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert "Error" not in process.stderr, process.stderr
    printed, names, same_class, cells = process.stdout.splitlines()[-4:]
    assert printed == promised
    assert "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in names
    assert float(same_class) == 0.0
    assert float(cells) < 1e-5


RUN_EACH = """
import sys
import tensorflow.compat.v1 as tf
for program in sys.argv[1:]:
    tf.reset_default_graph()
    exec(program, {"__name__": "__main__"})
"""


def test_examples_of_migrating(tmp_path):
    """There is an example for every generation; each prints a key of its checkpoint."""
    programs = examples("docs/migrating.md")
    assert output_of("-c", RUN_EACH, *programs, folder=tmp_path).splitlines() == [
        "CudnnRNNParamsToCanonical:0",
        "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias",
        "model/stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias",
        "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell"
        "/bias",
    ]


@needs_tensorflow_2
def test_examples_of_exchange(tmp_path):
    program = "\n".join(examples("docs/exchange.md"))
    assert output_of("-c", program, folder=tmp_path).splitlines() == [
        "[<RnnWeights 'encoder': lstm, num_layers 2, num_units 16, input_size 8, unidirectional, "
        "num_proj 0, float32>]",
        "input gate",
        "(None, None, 16)",
        "['layer_0/forward/input_bias', 'layer_0/forward/input_weights']",
    ]


def pages():
    """Returns the paths of all pages, relative to the project."""
    paths = glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    found = sorted(os.path.relpath(path, ROOT) for path in paths)
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] + found


def anchors(page):
    """Returns the anchors of a page's headings, as web sites make them from Markdown."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_links_resolve(page):
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", read(page))
    for link in filter(None, sum(links, ())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        assert os.path.exists(os.path.join(ROOT, target)), link
        assert not anchor or anchor in anchors(target), link
