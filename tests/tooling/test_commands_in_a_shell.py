"""The commands as a person uses them: with wrong files and flags, into a pipe, quietly."""

import os
import signal
import subprocess
import sys

import pytest

import cudnn_rnn
from cudnn_rnn.cli.file_commands import for_the_command_line
from cudnn_rnn.cli.main import main
from helpers.paths import GOLDEN
from helpers.processes import run_python
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(cudnn_rnn.__file__)))
CHECKPOINT = os.path.join(GOLDEN, "tf1.15.5", "gru_L1_H4_I3_un", "model.ckpt")
SAVED_MODEL = os.path.join(GOLDEN, "graphs", "layer_v3_gru", "saved_model")
COMMANDS = ("doctor", "run", "inspect", "convert", "export")
# Names of files with text in them, and of a folder and of nothing.
WRONG = ["a.pt", "a.safetensors", "a.h5", "a.keras", "a.onnx", "a.npz", "a.pb", "a", "empty.npz"]
WRONG += ["folder", "missing", "missing.keras", "missing.index", "folder.keras"]


@pytest.fixture
def wrong_files(tmp_path, monkeypatch):
    """Makes the files of `WRONG` in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name in WRONG:
        if name.startswith("folder"):
            (tmp_path / name).mkdir()
        elif not name.startswith("missing"):
            (tmp_path / name).write_text("" if name.startswith("empty") else "hello\n")
    return tmp_path


def check_error(capfd, command, name):
    """Checks that there is one line, about this file, without advice of other libraries."""
    printed, text = capfd.readouterr()
    assert printed == ""
    assert text.startswith("python -m cudnn_rnn %s: " % command), text
    assert name in text or "This needs the package" in text, text
    assert text.count("\n") == 1 and text.endswith(".\n"), text
    for part in ("Traceback", "sstable", "weights_only", "\x1b", "force=True"):
        assert part not in text, text


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(wrong_files, capfd, name):
    before = sorted(os.listdir(str(wrong_files)))
    assert main(["inspect", name]) == 1
    check_error(capfd, "inspect", name)
    assert main(["convert", name, "new.npz", "--to", "npz"]) == 1
    check_error(capfd, "convert", name)
    assert sorted(os.listdir(str(wrong_files))) == before


@needs_tensorflow_2
@pytest.mark.sampled(8)
@pytest.mark.parametrize("out", ["new", "new.onnx"])
@pytest.mark.parametrize("name", ["a.pb", "a.keras", "folder", "missing"])
def test_wrong_files_for_export(wrong_files, capfd, name, out):
    before = sorted(os.listdir(str(wrong_files)))
    assert main(["export", name, out]) == 1
    check_error(capfd, "export", name)
    assert sorted(os.listdir(str(wrong_files))) == before


def test_a_name_of_another_format(tmp_path, capfd):
    out = str(tmp_path / "a.onnx")
    for target in ("torch", "npz", "keras", "1.15"):
        assert main(["convert", CHECKPOINT, out, "--to", target]) == 1
        text = capfd.readouterr().err
        assert "a.onnx has the name of an ONNX model. Choose another name for --to " in text
    assert os.listdir(str(tmp_path)) == []


def test_a_new_folder_is_told(tmp_path, capfd):
    out = str(tmp_path / "new" / "a.npz")
    assert main(["convert", CHECKPOINT, out, "--to", "npz"]) == 0
    assert "Note: The folder %s is new." % (tmp_path / "new") in capfd.readouterr().err
    assert main(["convert", CHECKPOINT, out, "--to", "npz"]) == 1
    assert "overwrite it with --force." in capfd.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_flags(capsys, command):
    """The usage is that of the command, not of all."""
    given = {"inspect": ["a"], "convert": ["a", "b", "--to", "npz"], "export": ["a", "b"]}
    with pytest.raises(SystemExit) as caught:
        main([command, *given.get(command, []), "--jsn"])
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("usage: python -m cudnn_rnn %s " % command)
    assert "python -m cudnn_rnn %s: error: " % command in text
    assert "--jsn" in text or command == "run"  # which lacks the program


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["convert", "--help"],
        ["inspect", CHECKPOINT, "--json"],
        ["convert", CHECKPOINT, "a.npz", "--to", "npz", "--dry-run"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_seen_enough(tmp_path, arguments):
    """As with `| head -0`: no error; the status is that of a program that SIGPIPE ends.

    In newer versions of Python, argparse ignores that nobody reads the help.
    """
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "cudnn_rnn"] + arguments,
        cwd=str(tmp_path),
        env=dict(os.environ, PYTHONPATH=PACKAGE_FOLDER),
        stdout=writing,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    os.close(writing)
    assert process.stderr == ""
    expected = (0, 128 + signal.SIGPIPE) if "--help" in arguments else (128 + signal.SIGPIPE,)
    assert process.returncode in expected


@pytest.mark.sampled(4)
@needs_tensorflow_2
def test_commands_are_quiet(tmp_path):
    """TensorFlow's messages are shown only with -v."""
    named = dict(folder=tmp_path, PYTHONPATH=PACKAGE_FOLDER, TF_CPP_MIN_LOG_LEVEL=None)
    for number, arguments in enumerate(
        [
            ["inspect", CHECKPOINT],
            ["convert", CHECKPOINT, "a.npz", "--to", "npz", "--force"],
            ["export", "--training", "--force", SAVED_MODEL, "plain"],
        ]
    ):
        process = run_python("-m", "cudnn_rnn", *arguments, **named)
        assert process.returncode == 0, process.stderr
        others = [line for line in process.stderr.splitlines() if not line.startswith("Note: ")]
        assert others == [], number
        process = run_python("-m", "cudnn_rnn", *arguments, "-v", **named)
        assert process.returncode == 0
        assert number < 2 or len(process.stderr) > 100


def test_options_in_the_place_of_arguments():
    for text, expected in [
        ("pass overwrite=True (--force) to", "pass --force to"),
        ("needs rnn_mode= (--rnn-mode).", "needs --rnn-mode."),
        ("sample={name: array, ...} (--sample FILE.npz), or", "--sample FILE.npz, or"),
        ("forget_bias (--forget-bias) is 1", "--forget-bias is 1"),
        ("Pick another one of it (--scope).", "Pick another one of it (--scope)."),
    ]:
        assert for_the_command_line(text) == expected
