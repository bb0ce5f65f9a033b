"""The character language model: a whole run as a user starts it, and its error messages."""

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys

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


def quick(folder, *arguments):
    return ["--quick", "--steps", "2", "--output", str(folder)] + list(arguments)


def test_a_restored_model_that_differs_is_an_error(demo, monkeypatch, tmp_path, capsys):
    restore = demo.restored

    def restore_damaged(session, recurrent_layers, paths):
        model, vocabulary = restore(session, recurrent_layers, paths)
        if recurrent_layers is demo.compatible_layers:
            (bias,) = [v for v in tf.global_variables() if v.op.name == "model/softmax/bias"]
            bias.load(session.run(bias) + np.linspace(0, 0.1, len(vocabulary)), session)
        return model, vocabulary

    monkeypatch.setattr(demo, "restored", restore_damaged)
    assert demo.main(quick(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out.count("NOT EQUAL") == 1
    assert "differs from the saved loss" in captured.err


def test_one_layer_and_a_custom_text(demo, tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Stra\u00dfe und \u6f22\u5b57, a\u0304 \U0001f600\n" * 300, encoding="utf-8")
    code = demo.main(quick(tmp_path / "out", "--corpus", str(corpus), "--layers", "1"))
    assert code == 0 and capsys.readouterr().out.count("  equal\n") == 2


def test_a_loss_that_is_not_a_number_is_an_error(demo, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "measure", lambda *_: 1.0)
    monkeypatch.setattr(demo, "run_segment", lambda *_: ((float("nan"), None), None))
    assert demo.main(quick(tmp_path, "--learning-rate", "5")) == 2
    assert "nan after 1 steps: try a smaller --learning-rate (it was 5)" in capsys.readouterr().err


def test_errors_of_the_corpus_and_the_folder(demo, tmp_path, capsys):
    (tmp_path / "short.txt").write_text("too short", encoding="utf-8")
    (tmp_path / "latin1.txt").write_bytes("Stra\u00dfe".encode("latin-1") * 1000)
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    cases = [
        (["--corpus", "missing.txt"], "cannot read missing.txt: No such file"),
        (["--corpus", str(tmp_path)], "cannot read %s: Is a directory" % tmp_path),
        (["--corpus", str(tmp_path / "latin1.txt")], "latin1.txt is not UTF-8 text (byte 4"),
        (["--corpus", str(tmp_path / "short.txt")], "has 9 characters, but must have at least"),
        (["--batch", "100000"], "for --batch 100000: use a longer text or a smaller --batch"),
        (["--output", str(tmp_path / "file")], "cannot create the folder --output"),
    ]
    for arguments, message in cases:
        assert demo.main(quick(tmp_path / "out") + arguments) == 2
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--steps", "0"], "argument --steps: must be a whole number, at least 1, but is 0"),
        (["--units", "-5"], "argument --units: must be a whole number, at least 1, but is -5"),
        (["--layers", "two"], "argument --layers: must be a whole number, but is 'two'"),
        (["--batch", "1.5"], "argument --batch: must be a whole number, but is '1.5'"),
        (["--seq-length", ""], "argument --seq-length: must be a whole number, but is ''"),
        (["--learning-rate", "0"], "must be a number, above 0 and at most 10, but is 0"),
        (["--learning-rate", "nan"], "must be a number, above 0 and at most 10, but is nan"),
        (["--temperature", "-1"], "must be a number, at least 0.01 and at most 100, but is -1"),
        (["--seed", "-1"], "must be a whole number, at least 0"),
    ],
)
def test_errors_of_the_command_line(demo, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        demo.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


OPTIONS = ("corpus", "steps", "units", "layers", "batch", "seq-length", "learning-rate")
HELP = ["--" + option for option in OPTIONS] + ["CudnnCompatibleLSTMCell"]


@pytest.mark.parametrize(
    "arguments, status, parts",
    [
        (["--help"], 0, HELP),
        (["-h"], 0, ["--quick"]),
        (["--stepz", "5"], 2, ["unrecognized arguments: --stepz"]),
    ],
)
def test_make_demo_installs_nothing_for_help_or_wrong_arguments(tmp_path, arguments, status, parts):
    """The script creates no environment; its Python does not exist."""
    for folder in ("scripts", "examples"):
        shutil.copytree(os.path.join(os.path.dirname(EXAMPLES), folder), str(tmp_path / folder))
    before = sorted(os.listdir(str(tmp_path)))
    process = subprocess.run(
        ["bash", "scripts/run_demo.sh"] + arguments,
        cwd=str(tmp_path),
        env=dict(os.environ, PYTHON=str(tmp_path / "no_python")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    assert process.returncode == status, process.stdout
    for part in parts:
        assert part in process.stdout, process.stdout
    assert "None" not in process.stdout
    assert sorted(os.listdir(str(tmp_path))) == before


@pytest.mark.parametrize("library", ["tqdm", "matplotlib"])
def test_a_missing_library(monkeypatch, library):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(PROGRAM, run_name="__main__")
    # Python prints a message and ends with status 1.
    assert exit_.value.code == "This example needs %s: pip install %s" % (library, library)


def test_segments_continue_where_the_previous_one_ended(demo):
    codes = np.arange(50, dtype=np.int32)
    parts = demo.segments(codes, num_streams=3, seq_length=7)
    assert [part.inputs.shape for part in parts] == [(7, 3), (7, 3), (2, 3)]
    assert [part.is_first for part in parts] == [True, False, False]
    inputs = np.concatenate([part.inputs for part in parts])
    targets = np.concatenate([part.targets for part in parts])
    np.testing.assert_array_equal(inputs.T, np.arange(48).reshape(3, 16))
    np.testing.assert_array_equal(targets, inputs + 1)


def test_vocabulary_and_held_out_text(demo):
    vocabulary = demo.Vocabulary.of_text("cabbage")
    unknown = sys.modules["character_text"].UNKNOWN
    assert vocabulary.characters == [unknown] + list("abceg") and len(vocabulary) == 6
    assert vocabulary.decode(vocabulary.encode("cab")) == "cab"
    assert list(vocabulary.encode("a?" + unknown)) == [1, 0, 0]
    training, held_out = demo.split_text("x" * 900 + "y" * 100, 5)
    assert training == "x" * 900 and held_out == "y" * 100
    with pytest.raises(demo.UserError, match="has 999 characters, but must have at least 1000"):
        demo.split_text("x" * 999, 5)


def test_the_default_text_is_reproducible(demo):
    corpus = demo.read_corpus()
    assert corpus == demo.read_corpus() and len(corpus) > 200000
