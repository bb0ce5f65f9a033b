"""The tests' own setup."""

import os
from unittest import mock

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


class Item:
    """What `_keep_samples` reads of a test."""

    fspath = "test_file.py"

    def __init__(self, name, case=None):
        self.originalname, self.name = name, name if case is None else "%s[%s]" % (name, case)
        if case is not None:
            self.callspec = mock.Mock()

    def get_closest_marker(self, name):
        return pytest.mark.sampled(2).mark if name == "sampled" and self.name != "always" else None


@pytest.mark.once
def test_tests_without_cases_are_the_cases_of_their_file(monkeypatch):
    conftest = load_program(os.path.join(ROOT, "tests", "conftest.py"))
    cases, alone = [Item("test", i) for i in range(4)], [Item("first"), Item("second")]
    found = []
    for turn in ("5", "6"):
        monkeypatch.setenv("CUDNN_RNN_TEST_TURN", turn)
        kept = [*cases, *alone, Item("always")]
        conftest._keep_samples(mock.Mock(), kept)
        found.append({item.name for item in kept} - {"always"})
        assert len(kept) == 4 and len(found[-1] & {"first", "second"}) == 1
    assert found[0] | found[1] == {item.name for item in cases + alone}
