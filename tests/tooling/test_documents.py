"""The Python blocks of docs/ run as a reader sees them, and do what the pages say.

The blocks of a page run one after the other in one process; `<!-- new program -->`, which a page
does not show, starts another one. `<!-- setup ... -->`, which a page does not show either, makes
files that a reader has. The blocks do not see the names that it binds.
"""

import glob
import json
import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.processes import output_of, run_python
from helpers.saved_models import extract_saved_model
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.once, pytest.mark.ci]

# Each argument is a JSON list of the blocks of one program: pairs of (is a setup, text).
RUN = """
import json, sys
import tensorflow.compat.v1
for program in sys.argv[1:]:
    tensorflow.compat.v1.reset_default_graph()
    names = {"__name__": "__main__"}
    for is_setup, block in json.loads(program):
        exec(block, dict(names) if is_setup else names)
"""


def programs(page):
    """Returns a list of programs, each a list of (is a setup, text)."""
    text = Path(page).read_text(encoding="utf-8")
    found = [
        re.findall(r"<!-- setup\n(.*?)-->|```python\n(.*?)```", part, re.DOTALL)
        for part in text.split("<!-- new program -->")
    ]
    return [[(bool(a), a or b) for a, b in blocks] for blocks in found if blocks]


DOCS = os.path.join(ROOT, "docs")
PAGES = {
    os.path.basename(path)[: -len(".md")]: path
    for path in sorted(glob.glob(os.path.join(DOCS, "*.md")))
    if programs(path)
}


IN_GRAPHS = sorted(
    name
    for name, path in PAGES.items()
    if any("disable_v2" in text for _, text in programs(path)[0])
)


def run(*names, folder):
    """Runs the programs of pages in a folder; returns the lines that they print.

    The first programs of all pages share a process, and every other program has its own.
    """
    first, others = [], []
    for name in names:
        page = programs(PAGES[name])
        first.append(page[0])
        others += page[1:]
    output = ""
    for process in [first] + [[program] for program in others]:
        arguments = [json.dumps(program) for program in process]
        output += output_of("-W", "ignore", "-c", RUN, *arguments, folder=folder)
    return output.splitlines()


@pytest.mark.sampled(4)
def test_the_hidden_part_makes_only_files(tmp_path):
    """A block that uses a name of a setup fails."""
    page = tmp_path / "page.md"
    page.write_text("<!-- setup\nx = 1\n-->\n```python\nprint(x)\n```\n")
    process = run_python("-c", RUN, json.dumps(programs(page)[0]))
    assert process.returncode and "NameError: name 'x' is not defined" in process.stderr


def test_every_page_begins_with_what_it_imports():
    for name, path in PAGES.items():
        for program in programs(path):
            seen = [text for is_setup, text in program if not is_setup]
            assert not seen or re.search("^(import|from) ", seen[0], re.MULTILINE), name


@needs_tensorflow_2
@pytest.mark.sampled(2)
@pytest.mark.parametrize("in_graphs", [False, True])
def test_blocks_run(in_graphs, tmp_path):
    others = {"checkpoints", "distributed", "exchange", "migrating"}  # tested below
    names = sorted(set(PAGES) - others)
    model, _ = extract_saved_model("tf1.15.5_cudnn_lstm", tmp_path)
    os.rename(model, str(tmp_path / "compiled_model"))
    run(*[name for name in names if (name in IN_GRAPHS) == in_graphs], folder=tmp_path)


@pytest.mark.sampled(4)
def test_checkpoints(tmp_path):
    names, same_class, cells = run("checkpoints", folder=tmp_path)
    assert "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in names
    assert float(same_class) == 0.0
    assert float(cells) < 1e-5


@pytest.mark.sampled(2)
def test_migrating(tmp_path):
    """There is an example for every generation; each prints a key of its checkpoint."""
    assert run("migrating", folder=tmp_path) == [
        "CudnnRNNParamsToCanonical:0",
        "model/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/bias",
        "model/stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/cudnn_compatible_lstm_cell/bias",
        "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell"
        "/bias",
        "rnn/multi_rnn_cell/cell_0/lstm_cell/bias",
    ]


@needs_tensorflow_2
@pytest.mark.sampled(4)
def test_exchange(tmp_path):
    assert run("exchange", folder=tmp_path) == [
        "[<RnnWeights 'encoder': lstm, num_layers 2, num_units 16, input_size 8, unidirectional, "
        "num_proj 0, float32>]",
        "input gate",
        "(None, None, 16)",
        "['layer_0/forward/input_bias', 'layer_0/forward/input_weights']",
    ]


@pytest.mark.sampled(4)
def test_distributed(tmp_path):
    """The program prints the text that follows it."""
    (((_, program),),) = programs(PAGES["distributed"])
    text = Path(PAGES["distributed"]).read_text(encoding="utf-8")
    promised = text.partition(program + "```\n\n")[2].partition("\n\n")[0]
    found = run("distributed", folder=tmp_path)
    assert found == [line.strip() for line in promised.splitlines()]


# Each prints the message of an error. The first line of all that they print must be on the page.
ERRORS = {
    "module 'tensorflow' has no attribute 'contrib'": "tensorflow.contrib",
    "No module named 'tensorflow.contrib'": "import tensorflow.contrib",
    "is not available with Keras 3": "tf.layers.Dense(1)",
    "To use CudnnRNN in gradients, is_training must be set to True.": """
        with tf.Graph().as_default():
            x = tf.ones([3, 1, 2])
            tf.gradients(call(x), [x])""",
    "XLA cannot compile the op CudnnRNN": """
        tensorflow.function(call, jit_compile=True)(tf.ones([3, 1, 2]))""",
    "Detected unsupported operations when trying to compile graph": """
        traced = tensorflow.function(call).get_concrete_function(tf.ones([3, 1, 2]))
        tensorflow.function(traced, jit_compile=True)(tf.ones([3, 1, 2]))""",
    "'tf.CudnnRNN' op is neither a custom op nor a flex op": """
        traced = tensorflow.function(call).get_concrete_function(tf.ones([3, 1, 2]))
        tensorflow.lite.TFLiteConverter.from_concrete_functions([traced]).convert()""",
    "is not a Keras layer and cannot be part of a Keras model": """
        tensorflow.keras.Sequential([cudnn_rnn.layers.CudnnGRU(1, 2)])""",
}
RUN_ERRORS = """
import sys, textwrap
import tensorflow
import tensorflow.compat.v1 as tf
import cudnn_rnn

gru = cudnn_rnn.CudnnGRU(1, 2, 2)
call = lambda x: gru(x, tf.zeros([1, 1, 2]), params=tf.ones([36]), is_training=False)[0]
for program in sys.argv[1:]:
    try:
        exec(textwrap.dedent(program))
    except Exception as error:
        print(str(error).replace("\\n", " "))
    else:
        print("no error")
"""


@needs_tensorflow_2
@pytest.mark.sampled(4)
def test_errors_of_troubleshooting_are_real():
    page = Path(DOCS, "troubleshooting.md").read_text(encoding="utf-8")
    messages = output_of("-W", "ignore", "-c", RUN_ERRORS, *ERRORS.values()).splitlines()
    messages = [line for line in messages if line.strip()]
    assert len(messages) == len(ERRORS)
    for expected, message in zip(ERRORS, messages):
        assert expected in message
        assert '"%s"' % expected in page
