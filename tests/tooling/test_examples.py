"""The programs in examples/ run and do what docs/examples.md says; test_demo.py tests the demo."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from helpers import reference
from helpers.golden import GoldenCheckpoint
from helpers.paths import GOLDEN, ROOT
from helpers.processes import importable, output_of
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

EXAMPLES = os.path.join(ROOT, "examples")
PROGRAMS = [
    "word_language_model",
    "sequence_tagger",
    "encoder_decoder",
    "speech_ctc",
    "serve_on_cpu",
    "faster_keras",
    "export_elsewhere",
]
HELP = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as exit:
        assert not exit.code, path
"""


def path_of(program):
    return os.path.join(EXAMPLES, program + ".py")


def run(program, folder, *arguments):
    """Runs an example with --quick; returns what it printed."""
    return output_of(path_of(program), "--quick", *arguments, folder=folder)


def number(pattern, output):
    """Returns the number that follows the last match of `pattern` in a program's output."""
    return float(re.findall(pattern + r" ?([-+.\de]+)", output)[-1])


@pytest.mark.sampled(4)
@pytest.mark.once
def test_each_has_help_and_can_be_read(tmp_path):
    paths = [path_of(program) for program in PROGRAMS]
    output = output_of("-c", HELP, *paths, folder=tmp_path, PYTHONPATH=importable(EXAMPLES))
    assert re.findall(r"usage: (\w+)\.py", output) == PROGRAMS
    assert output.count("--quick ") == len(PROGRAMS)
    for path in paths:
        with open(path, encoding="utf-8") as file:
            assert len(file.readlines()) < 150, path


@pytest.mark.sampled(4)
@pytest.mark.once
def test_word_language_model(tmp_path):
    output = run("word_language_model", tmp_path)
    held_out = number("held out", output)
    assert held_out < 0.9 * number("perplexity of word frequencies:", output)
    assert number("restored:", output) == held_out
    # Trains on a given text, whose words follow from the word before.
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six seven eight nine ten\n" * 500)
    output = run("word_language_model", tmp_path, "--text", text)
    assert number("perplexity of word frequencies:", output) > 10
    assert number("restored:", output) < 1.1


@pytest.mark.sampled(4)
@pytest.mark.once
def test_sequence_tagger(tmp_path):
    output = run("sequence_tagger", tmp_path)
    assert number("accuracy of the more frequent tag:", output) < 0.8
    assert number("held-out accuracy:", output) > 0.95
    assert number("difference with more padding:", output) < 1e-5


@pytest.mark.sampled(4)
@pytest.mark.once
def test_encoder_decoder(tmp_path):
    output = run("encoder_decoder", tmp_path)
    for network in ("encoder", "decoder"):
        assert network + "/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel" in output
    assert number("right answers:", output) > 0.95
    pairs = re.findall(r"(\d+) -> (\d+)", output)
    assert len(pairs) == 5 and sum(digits == answer[::-1] for digits, answer in pairs) >= 4


@pytest.mark.sampled(4)
@pytest.mark.once
def test_speech_ctc(tmp_path):
    output = run("speech_ctc", tmp_path)
    assert number("label error rate:", output) < 0.1
    assert output.count("said ") == output.count("heard ") == 3


@pytest.mark.sampled(3)
def test_serve_on_cpu(tmp_path):
    output = run("serve_on_cpu", tmp_path)
    assert number("from the recorded outputs:", output) < 1e-6


@pytest.mark.sampled(3)
def test_serve_a_checkpoint_of_tensorflow_1(tmp_path):
    folder = os.path.join(GOLDEN, "tf1.15.5", "lstm_L3_H16_I8_bi")
    files = "--checkpoint", os.path.join(folder, "model.ckpt")
    output = run(
        "serve_on_cpu", tmp_path, *files, "--expected", os.path.join(folder, "expected.npz")
    )
    assert number("from the recorded outputs:", output) < 1e-6
    # What the page promises, which is the answer of TensorFlow 1.15.5.
    page = Path(ROOT, "docs", "examples.md").read_text(encoding="utf-8")
    assert output.splitlines()[0].partition("for example")[0] in page


def test_every_example_needs_no_file_of_the_tests():
    for path in Path(ROOT, "examples").glob("*.py"):
        assert "tests" not in re.findall(r"[\"'](\w+)[\"']", path.read_text(encoding="utf-8")), path


@pytest.mark.sampled(4)
@pytest.mark.once
def test_serve_another_checkpoint(tmp_path):
    golden = GoldenCheckpoint(os.path.join("tf1.4.1", "gru_L2_H5_I3_un"))
    model = ("gru", "linear_input", "unidirectional", 2, 5, 3)
    inputs = np.random.RandomState(1).randn(7, 4, 3).astype(np.float32)
    zeros = np.zeros([2, 4, 5])
    outputs = reference.forward(
        reference.Configuration(*model), inputs, zeros, None, golden.opaque
    )[0]
    np.savez(str(tmp_path / "expected.npz"), inputs=inputs, outputs=outputs)
    sizes = "--cell gru --layers 2 --units 5 --input-size 3 --direction unidirectional".split()
    files = ["--expected", "expected.npz", "--output", "exported", "--checkpoint", golden.path]
    output = run("serve_on_cpu", tmp_path, "--scope", "model/rnn", *(sizes + files))
    assert number("from the recorded outputs:", output) < 1e-6
    assert (tmp_path / "exported" / "saved_model.pb").exists()


@pytest.mark.sampled(4)
def test_faster_keras(tmp_path):
    output = run("faster_keras", tmp_path)
    assert number("difference of predictions:", output) < 1e-6
    assert number("difference after training:", output) < 1e-4
    assert output.count(" times as fast") == 2


@pytest.mark.once
@needs_tensorflow_2
@pytest.mark.sampled(3)
def test_export_elsewhere(tmp_path):
    output = run("export_elsewhere", tmp_path)
    assert number("TFLite: largest difference", output) < 1e-5
    assert number("ONNX Runtime: largest difference", output) < 1e-5
