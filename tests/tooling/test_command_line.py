"""`python -m cudnn_rnn`: answers without TensorFlow, and when the package import stays light."""

import os
import re
import sys

import numpy as np
import pytest

import cudnn_rnn
from cudnn_rnn import exchange
from cudnn_rnn.cli import launch
from cudnn_rnn.cli.main import main
from helpers.exchange_models import random_rnn
from helpers.paths import GOLDEN
from helpers.processes import status_and_text
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(cudnn_rnn.__file__)))
CHECKPOINT = os.path.join(GOLDEN, "tf1.15.5", "gru_L1_H4_I3_un", "model.ckpt")
# (arguments, exit status, patterns in the output); argparse's status is 2 after wrong usage.
COMMANDS = [
    (["--help"], 0, ["doctor", "whether it works", "run", "--version"]),
    (["-h"], 0, ["doctor", "run"]),
    (["--version"], 0, ["cudnn_rnn " + cudnn_rnn.__version__]),
    ([], 2, ["doctor", "run"]),
    (["patient"], 2, ["doctor", "run"]),
    (["--no-such-option"], 2, ["--no-such-option"]),
    (["doctor", "--help"], 0, ["doctor", "whether it works", "exit status"]),
    (["doctor", "now"], 2, ["now"]),
    (["export", "--help"], 0, ["export saved_model plain_model", "--training", "--force", "XLA"]),
    (["export"], 2, ["required: IN, OUT"]),
    (["export", "IN"], 2, ["required: OUT"]),
    (["run", "--help"], 0, ["--tf-contrib-version", "--tf1", "-m", "tensorflow.compat.v1"]),
    (["inspect", "--help"], 0, ["--plot", "--json", "--rnn-mode", r"\.safetensors"]),
    (["inspect"], 2, ["the following arguments are required: FILE"]),
    (["convert", "--help"], 0, ["--to torch", "--dry-run", "--force", "cells", "1.15", "--scope"]),
    (["convert", "a", "b"], 2, ["the following arguments are required: --to"]),
    (["convert", "a", "b", "--to", "caffe"], 2, ["invalid choice: 'caffe'"]),
    (["run"], 2, ["the following arguments are required: SCRIPT or MODULE"]),
    (["run", "no_such_file.py"], 2, ["no_such_file.py does not exist"]),
    (["run", "--tf-contrib-version", "1.3", "no_such_file.py"], 2, ["py does not exist"]),
    (["run", "--verbose", "x.py"], 2, ["unrecognized arguments: --verbose|required"]),
    (["run", "--tf-contrib-version", "2.1", "x.py"], 2, ['TensorFlow from "1.0" to "1.15"']),
]


@pytest.fixture
def without_tensorflow(tmp_path):
    """Returns a folder with a `tensorflow` that cannot be imported."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('no TensorFlow today')")
    return tmp_path


def run(folder, *command):
    """Runs Python in `folder`; returns (exit status, output)."""
    path = os.pathsep.join([str(folder), PACKAGE_FOLDER])
    return status_and_text(*command, folder=folder, PYTHONPATH=path)


@pytest.mark.parametrize("arguments, expected, parts", COMMANDS)
def test_answers_without_tensorflow(without_tensorflow, arguments, expected, parts):
    status, printed = run(without_tensorflow, "-m", "cudnn_rnn", *arguments)
    assert status == expected, printed
    assert "Traceback" not in printed and "no TensorFlow today" not in printed
    for part in parts:
        assert re.search(part, printed), part
    if expected == 0:  # the help, which fits in a terminal of 100 columns
        assert max(map(len, printed.splitlines())) <= 100


def test_without_a_command_the_help_is_printed(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: python -m cudnn_rnn [--help | --version |")


def test_errors_begin_with_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["inspect"])
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("python -m cudnn_rnn inspect: error:")
    )


@pytest.mark.parametrize("arguments", [[], ["--"], ["--", "--tf1"], ["a", "--", "b"], ["-m", "x"]])
def test_a_program_gets_all_arguments_after_its_name(monkeypatch, arguments):
    """This includes a leading `--`, which argparse consumes; the status is the program's."""
    found = []

    def run_program(options, parser):
        found.append((options.program, options.tf1, options.arguments, parser.prog))
        return 5

    monkeypatch.setattr("cudnn_rnn.cli.run.run", run_program)
    assert main(["run", "--tf1", "program.py"] + arguments) == 5
    assert found == [("program.py", True, arguments, "python -m cudnn_rnn run")]


@pytest.mark.parametrize(
    "options", [["-mcudnn_rnn"], ["-W", "ignore", "-Bm", "cudnn_rnn"], ["-m", "cudnn_rnn.__main__"]]
)
def test_other_spellings_of_the_command(without_tensorflow, options):
    status, printed = run(without_tensorflow, *(options + ["--version"]))
    assert (status, printed) == (0, "cudnn_rnn %s\n" % cudnn_rnn.__version__)


def test_inspect_needs_no_tensorflow(without_tensorflow):
    rnn = random_rnn("gru", bidirectional=True, scope="encoder")
    exchange.write(without_tensorflow / "a.npz", [rnn], "npz")
    status, printed = run(without_tensorflow, "-m", "cudnn_rnn", "inspect", "a.npz")
    assert status == 0 and "bidirectional" in printed, printed


@needs_tensorflow_2  # the tests in TensorFlow 1 have neither safetensors nor onnx
def test_convert_needs_no_tensorflow(without_tensorflow):
    rnn = random_rnn("gru", bidirectional=True, scope="encoder")
    exchange.write(without_tensorflow / "a.npz", [rnn], "npz")
    for source, target, to in (
        ("a.npz", "b.safetensors", "torch"),
        ("b.safetensors", "c.onnx", "onnx"),
        ("c.onnx", "d.npz", "npz"),
    ):
        command = ["convert", source, target, "--to", to]
        status, printed = run(without_tensorflow, "-m", "cudnn_rnn", *command)
        assert status == 0 and "Wrote %s" % target in printed, printed
    (again,) = exchange.read(without_tensorflow / "d.npz").rnns
    np.testing.assert_array_equal(again.to_opaque(), rnn.to_opaque())


@pytest.mark.parametrize(
    "command",
    [["run", "program.py"], ["inspect", CHECKPOINT], ["convert", CHECKPOINT, "y", "--to", "npz"]],
)
def test_commands_report_an_import_error_of_the_package(without_tensorflow, command):
    (without_tensorflow / "program.py").write_text("print('it ran')")
    status, printed = run(without_tensorflow, "-m", "cudnn_rnn", *command)
    assert status == 1
    assert "no TensorFlow today" in printed and "cudnn_rnn doctor" in printed
    assert "Traceback" not in printed and "it ran" not in printed


@pytest.mark.parametrize(
    "command",
    [["-c", "import cudnn_rnn"], ["-m", "other", "cudnn_rnn"], ["-m", "other", "doctor"]],
)
def test_import_raises_the_cause(without_tensorflow, command):
    (without_tensorflow / "other").mkdir()
    (without_tensorflow / "other" / "__init__.py").write_text("import cudnn_rnn")
    (without_tensorflow / "other" / "__main__.py").write_text("print('it ran')")
    status, printed = run(without_tensorflow, *command)
    assert status == 1
    assert "ImportError" in printed and "no TensorFlow today" in printed and "it ran" not in printed


@pytest.mark.sampled(4)
def test_programs_can_use_the_whole_package(tmp_path):
    (tmp_path / "program.py").write_text(
        "import cudnn_rnn\n"
        "missing = [name for name in cudnn_rnn.__all__ if not hasattr(cudnn_rnn, name)]\n"
        "assert not missing and 'CudnnLSTM' in cudnn_rnn.__all__, missing\n"
        "from tensorflow.python.framework import kernels\n"
        "assert kernels.get_registered_kernels_for_op('CudnnRNNParamsSize').kernel\n"
        "print('it ran')\n"
    )
    status, printed = run(tmp_path, "-m", "cudnn_rnn", "run", "program.py")
    assert status == 0, printed
    assert "it ran" in printed


@pytest.mark.parametrize(
    "argv, arguments, expected",
    [
        (["-m"], ["python", "-m", "cudnn_rnn"], True),
        (["-m", "-m", "x"], ["python", "-W", "ignore", "-m", "cudnn_rnn", "-m", "x"], True),
        (["-m", "cudnn_rnn"], ["python", "-m", "other", "cudnn_rnn"], False),
        (["-m"], ["python", "-m", "other_cudnn_rnn"], False),
        (["-m"], ["python", "-m", "cudnn_rnn.layers"], False),
        (["/folder/__main__.py"], ["python", "-m", "cudnn_rnn"], False),
        (["-c"], ["python", "-c", "import cudnn_rnn"], False),
        (["-m"], [], False),
        ([], [], False),
    ],
)
def test_the_command_is_recognized_while_python_locates_it(monkeypatch, argv, arguments, expected):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(launch, "_arguments_of_process", lambda: arguments)
    assert launch.is_command_starting() is expected
