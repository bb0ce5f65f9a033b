"""The tests' own setup."""

import os

import pytest
import tensorflow

from helpers.paths import ROOT
from helpers.samples import sample_of
from helpers.scripts import load_program


@pytest.mark.once
def test_the_tests_start_in_a_tensorflow_without_spec(monkeypatch):
    """The module of TensorFlow 1.14 has none."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.setattr(tensorflow, "__spec__", None)
    conftest = load_program(os.path.join(ROOT, "tests", "conftest.py"))
    assert conftest._compat().__name__ == "cudnn_rnn._compat"


@pytest.mark.once
@pytest.mark.parametrize("num_cases, n", [(1, 4), (3, 4), (4, 4), (10, 4), (52, 3), (7, 1)])
def test_successive_turns_run_every_case(num_cases, n):
    cases = ["case[%d]" % i for i in range(num_cases)]
    samples = [sample_of(cases, n, turn) for turn in range(7, 7 + n)]
    assert set().union(*samples) == set(cases)
    assert all(num_cases // n <= len(one) <= -(-num_cases // n) for one in samples)
    assert all(samples) and sample_of(cases, n, 7) == samples[0]
