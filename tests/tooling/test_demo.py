"""The character language model: a whole run as a user starts it, and that it compares losses."""

import importlib
import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.paths import ROOT
from helpers.processes import run_python

pytestmark = [pytest.mark.once, pytest.mark.ci]

EXAMPLES = os.path.join(ROOT, "examples")
PROGRAM = os.path.join(EXAMPLES, "character_language_model.py")


@pytest.fixture
def demo(monkeypatch):
    """Returns the example as a module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("character_language_model")


@pytest.mark.sampled(4)
def test_a_whole_quick_run(tmp_path):
    # A user's environment: the tests' setting silences TensorFlow.
    process = run_python(PROGRAM, "--quick", folder=tmp_path, TF_CPP_MIN_LOG_LEVEL=None)
    assert process.returncode == 0, process.stdout + process.stderr
    folder = tmp_path / "demo_output"
    results = json.loads((folder / "results.json").read_text())

    saved = results["held_out_bits_per_character"]
    assert abs(results["restored_into_cudnn_lstm"] - saved) <= 1e-4
    assert abs(results["restored_into_compatible_cells"] - saved) <= 1e-4
    first_step, first_loss = results["held_out_curve"][0]
    assert first_step == 0 and 6 < first_loss < 8
    assert results["held_out_curve"][-1] == [results["options"]["steps"], saved]
    assert saved < first_loss - 2
    assert results["tensorflow"] == tf.__version__
    assert results["num_parameters"] > 10000

    check_checkpoint(str(folder / "model.ckpt"), results["options"])
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert len(model["characters"]) > 60 and model["held_out_bits_per_character"] == saved
    check_picture(str(folder / "loss_curve.png"))

    sample = (folder / "sample.txt").read_text(encoding="utf-8")
    assert len(sample) == 500 and set(sample) <= set(model["characters"][1:])
    assert sample.splitlines()[0] in process.stdout
    assert process.stdout.count("  equal\n") == 2
    assert os.path.join("demo_output", "loss_curve.png") in process.stdout
    # Standard error has only the progress bar.
    for line in process.stderr.replace("\r", "\n").splitlines():
        assert not line or line.startswith("Training: "), process.stderr
    all_steps = "{0}/{0}".format(results["options"]["steps"])
    assert all_steps in process.stderr and "held out" in process.stderr


def check_checkpoint(path, options):
    shapes = dict(tf.train.list_variables(path))
    cell = "model/rnn/multi_rnn_cell/cell_%d/cudnn_compatible_lstm_cell/"
    units = options["units"]
    for layer, width in enumerate([64, units]):
        assert shapes.pop(cell % layer + "kernel") == [width + units, 4 * units]
        for bias in ("bias", "bias_cudnn_0", "bias_cudnn_1"):
            assert shapes.pop(cell % layer + bias) == [4 * units]
    # The checkpoint has no opaque buffer, only the weights in the cells' format.
    assert sorted(shapes) == ["model/embedding", "model/softmax/bias", "model/softmax/kernel"]


def check_picture(path):
    from matplotlib import image

    picture = image.imread(path)
    assert picture.shape[0] >= 400 and picture.shape[1] >= 600
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20


def test_a_restored_model_that_differs_is_an_error(demo, monkeypatch, tmp_path, capsys):
    restore = demo.restored

    def restore_damaged(session, recurrent_layers, paths):
        model, vocabulary = restore(session, recurrent_layers, paths)
        if recurrent_layers is demo.compatible_layers:
            (bias,) = [v for v in tf.global_variables() if v.op.name == "model/softmax/bias"]
            bias.load(session.run(bias) + np.linspace(0, 0.1, len(vocabulary)), session)
        return model, vocabulary

    monkeypatch.setattr(demo, "restored", restore_damaged)
    assert demo.main(["--quick", "--steps", "2", "--output", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out.count("NOT EQUAL") == 1
    assert "differs from the saved loss" in captured.err
