"""`exchange/guarded.py`: whatever happens in the child process becomes a result or an error."""

import os
import sys
import textwrap
from multiprocessing import spawn

import numpy as np
import pytest

from cudnn_rnn.exchange import ExchangeError, guarded

pytestmark = [pytest.mark.ci, pytest.mark.once]

READER = """
    import ctypes, json, os, struct, sys, time
    import numpy as np

    class Refused(Exception):
        pass

    def plain():
        print("libraries may print")
        return {"none": None, "list": [True, 1, 2.5, "\\u00e9\\udc80", []], "array": "no array",
                "dict": {"dict": {"x": np.arange(6, dtype=">i2").reshape(2, 3)}},
                "arrays": [np.zeros([0, 5], np.float16), np.float64(7), np.array(True)]}

    def echo(*arguments):
        return list(arguments)

    def refuse():
        raise Refused("it is not good.")

    def fail():
        return {}["key"]

    def end_with_signal():
        ctypes.string_at(0)

    def exit():
        os._exit(0)

    def loop():
        while True:
            time.sleep(1)

    def allocate():
        return [np.ones(2**27) for _ in range(100)]

    def answer_too_much():
        return np.zeros(2**26)

    def modules():
        return sorted(set(sys.modules) & {"tensorflow", "cudnn_rnn", "site"})

    def open_descriptors():
        return len(os.listdir("/proc/self/fd"))

    def write(content):
        for place in range(3, 20):
            try:
                os.write(place, content)
            except OSError:
                pass
        os._exit(0)

    def forge(described, content=0):
        text = json.dumps(described).encode()
        write(struct.pack("<Q", len(text)) + text + b"x" * content)

    def forge_length():
        write(struct.pack("<Q", 2**63) + b"{}")

    def forge_text():
        write(struct.pack("<Q", 2) + b"{]")
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Returns a function that calls a function of READER."""
    (tmp_path / "reader.py").write_text(textwrap.dedent(READER), encoding="utf-8")
    monkeypatch.setattr(guarded, "_READERS", str(tmp_path))
    path = str(tmp_path / "reader.py")

    def call_reader(function, *arguments, **named):
        return guarded.call(path, "a file of tests", "reader." + function, *arguments, **named)

    return call_reader


def test_plain_data(call):
    found = call("plain")
    assert found["none"] is None and found["list"] == [True, 1, 2.5, "\u00e9\udc80", []]
    assert found["array"] == "no array"
    array = found["dict"]["dict"]["x"]
    assert array.dtype == ">i2" and array.tolist() == [[0, 1, 2], [3, 4, 5]]
    empty, scalar, boolean = found["arrays"]
    assert empty.shape == (0, 5) and empty.dtype == np.float16
    assert scalar.shape == () and scalar == 7 and boolean.dtype == bool
    assert call("echo", None, 1, "a", [2.5]) == [None, 1, "a", [2.5]]


def test_surroundings_of_the_reader(call, monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert call("modules") == ["site"]
    with open(__file__):
        assert call("open_descriptors") <= 6


@pytest.mark.parametrize("executable", ["false", "echo", "no/such/file", "", None, "frozen"])
def test_an_embedded_python(call, monkeypatch, executable):
    """The program that embeds Python is no Python, or must not be started again."""
    if executable == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setattr(spawn, "get_executable", lambda: executable)
    message = "needs another process that runs Python, but .* with multiprocessing.set_executable"
    with pytest.raises(ExchangeError, match=message) as caught:
        call("plain")
    assert "from its source again" not in str(caught.value)


def test_the_python_that_multiprocessing_was_told_of(call, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(spawn, "get_executable", lambda: os.fsencode(str(python)))
    assert call("echo", 1) == [1]


REASONS = {
    "refuse": "cannot be read as a file of tests: it is not good.",
    "fail": "'key' (KeyError).",
    "end_with_signal": "the file makes the reader end with SIGSEGV",
    "exit": "ended early",
    "loop": "the reader did not end within 2 seconds",
    "allocate": "more memory than is allowed",
    "forge_length": "longer than its limit of memory",
    "forge_text": "the reader's answer is damaged",
    "missing": "(AttributeError).",
}


@pytest.mark.parametrize("function", sorted(REASONS))
def test_failures(call, tmp_path, function):
    limits = dict(seconds=2) if function == "loop" else {}
    with pytest.raises(ExchangeError) as caught:
        call(function, **limits)
    assert str(caught.value).startswith("%s cannot be read as" % (tmp_path / "reader.py"))
    assert REASONS[function] in str(caught.value), str(caught.value)


def test_an_answer_beyond_the_limit_of_memory(call, monkeypatch):
    monkeypatch.setattr(guarded, "_PARENT_MEMORY", 2**20)
    with pytest.raises(ExchangeError, match="longer than its limit of memory"):
        call("answer_too_much")


@pytest.mark.parametrize(
    "answer",
    [
        {"value": {"array": 0}, "arrays": [["|O", [1]]]},
        {"value": {"array": 0}, "arrays": [["<f4", [2**62, 2**62]]]},
        {"value": {"array": 0}, "arrays": [["<f4", [-1]]]},
        {"value": {"array": 0}, "arrays": [["<f4", [1.5]]]},
        {"value": {"array": 1}, "arrays": [["<f4", [1]]]},
        {"value": {"array": "x"}, "arrays": [["<f4", [1]]]},
        {"value": {"array": 0, "dict": {}}, "arrays": [["<f4", [1]]]},
        {"value": {"dict": 7}, "arrays": []},
        {"value": {"pickle": "cos"}, "arrays": []},
        {"arrays": []},
        {"value": 1},
        [1],
    ],
)
def test_forged_answers(call, answer):
    with pytest.raises(ExchangeError, match="answer is (damaged|longer)|ended early"):
        call("forge", answer, 4)


def test_a_valid_answer_is_not_taken_for_a_forged_one(call):
    found = call("forge", {"value": {"array": 0}, "arrays": [["<f4", [1]]]}, 4)
    assert found.shape == (1,) and found.dtype == np.float32
