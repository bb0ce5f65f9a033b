"""`python -m cudnn_rnn run --tf1` and what programs use beside `tf.contrib.cudnn_rnn`."""

import importlib.util
import os
import re

import pytest

from cudnn_rnn._compat import native_rnn_cell_module
from helpers.paths import TESTS
from helpers.processes import output_of, run_python
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, pytest.mark.sampled(4)]

MODEL = os.path.join(TESTS, "programs", "language_model.py")
RUN = "-m", "cudnn_rnn", "run", "--tf1"
ENVIRONMENT = {"PYTHONPATH": None, "CUDA_VISIBLE_DEVICES": "", "TF_USE_LEGACY_KERAS": None}
HAS_TF_KERAS = importlib.util.find_spec("tf_keras") is not None
# TensorFlow's cells without this command, or with the package tf_keras.
HAS_KERAS_2 = native_rnn_cell_module() is not None or HAS_TF_KERAS
needs_keras_2 = pytest.mark.skipif(not HAS_KERAS_2, reason="requires Keras 2")
needs_keras_3 = pytest.mark.skipif(HAS_KERAS_2, reason="requires Keras 3")

CELLS = "Model/RNN/multi_rnn_cell/cell_%d/%s/%s"


@pytest.mark.parametrize(
    "mode, cell",
    [
        ("block", "lstm_cell"),
        ("cudnn", None),
        pytest.param("basic", "basic_lstm_cell", marks=needs_keras_2),
    ],
)
def test_a_language_model(tmp_path, mode, cell):
    """It learns, and its checkpoint has the keys of TensorFlow 1."""
    program = (MODEL, mode, tmp_path)
    output = output_of("-W", "ignore", *RUN, "--tf-contrib-version", "1.3", *program, **ENVIRONMENT)
    before, after = re.search(r"^losses (\S+) (\S+)$", output, re.MULTILINE).groups()
    assert float(after) < 0.3 * float(before)
    (keys,) = re.findall(r"^keys \[(.*)\]$", output, re.MULTILINE)
    keys = set(keys.replace("'", "").split(", "))
    common = {"Model/embedding", "Model/softmax", "global_step"}
    assert common < keys
    if cell:
        parts = [CELLS % (n, cell, part) for n in range(2) for part in ("kernel", "bias")]
        assert keys == common | set(parts)
    else:
        assert [key for key in keys if key.startswith("Model/RNN/")]


def test_a_program_of_1_3_as_one_of_1_15(tmp_path):
    process = run_python("-W", "ignore", *RUN, MODEL, "cudnn", tmp_path, **ENVIRONMENT)
    assert process.returncode == 1
    assert re.search(
        "TypeError: CudnnLSTM got the input size, 6.* this call is of TensorFlow 1.3 or 1.4, .*"
        "python -m cudnn_rnn run --tf-contrib-version 1.3",
        process.stderr,
    )


LAYERS = """
import tensorflow as tf
outputs = tf.layers.dense(tf.ones([2, 3]), 4)
cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.LSTMCell(3), tf.contrib.rnn.LSTMBlockCell(5)])
states, _ = tf.nn.dynamic_rnn(cell, tf.ones([2, 6, 3]), dtype=tf.float32)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    print("shapes", session.run(outputs).shape, session.run(states).shape)
"""


def run_text(folder, text, *options, **environment):
    """Runs a program with this text; returns its process."""
    path = folder / "program.py"
    path.write_text(text)
    return run_python("-W", "ignore", *RUN, *options, path, **dict(ENVIRONMENT, **environment))


@needs_keras_2
def test_layers_and_cells_of_tensorflow_1(tmp_path):
    process = run_text(tmp_path, LAYERS)
    assert "shapes (2, 4) (2, 6, 5)" in process.stdout, process.stderr


@needs_keras_3
@needs_tensorflow_2
@pytest.mark.parametrize("name", ["tf.layers.dense", "tf.nn.rnn_cell.LSTMCell"])
def test_advice_where_keras_2_is_missing(tmp_path, name):
    process = run_text(tmp_path, "import tensorflow as tf\n%s\n" % name)
    assert process.returncode == 1
    assert "is not available with Keras 3" in process.stderr
    advice = process.stderr.splitlines()[-1]
    assert re.search(
        r"need Keras 2. Install the package tf_keras.*`pip install tf_keras~=2", advice
    )
    assert advice.endswith("Then run the program with --tf1.")


@pytest.fixture
def tf_keras(tmp_path):
    """A folder with an empty package tf_keras."""
    package = tmp_path / "packages" / "tf_keras"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return str(package.parent)


SHOW = "import os, sys; print('set to', os.environ.get('TF_USE_LEGACY_KERAS'))"


@needs_keras_3
@pytest.mark.parametrize("before, after", [(None, "1"), ("0", "0")])
def test_tf_keras_is_used_if_it_is_installed(tmp_path, tf_keras, before, after):
    named = {"PYTHONPATH": tf_keras, "TF_USE_LEGACY_KERAS": before}
    process = run_text(tmp_path, SHOW, **named)
    assert "set to %s\n" % after in process.stdout, process.stderr


@needs_keras_3
def test_without_tf_keras_the_variable_stays_unset(tmp_path):
    assert "set to None\n" in run_text(tmp_path, SHOW).stdout


@needs_keras_3
@needs_tensorflow_2
def test_advice_where_the_variable_turns_keras_2_off(tmp_path, tf_keras):
    named = {"PYTHONPATH": tf_keras, "TF_USE_LEGACY_KERAS": "0"}
    process = run_text(tmp_path, "import tensorflow as tf\ntf.layers.dense\n", **named)
    assert process.stderr.splitlines()[-1].endswith(
        "The package tf_keras provides Keras 2, but TF_USE_LEGACY_KERAS is '0': set it to 1."
    )
