"""The tests' own setup."""

import os

import pytest
import tensorflow

from helpers.paths import ROOT
from helpers.scripts import load_program


@pytest.mark.once
def test_the_tests_start_in_a_tensorflow_without_spec(monkeypatch):
    """The module of TensorFlow 1.14 has none."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setattr(tensorflow, "__spec__", None)
    conftest = load_program(os.path.join(ROOT, "tests", "conftest.py"))
    assert conftest._compat().__name__ == "cudnn_rnn._compat"
