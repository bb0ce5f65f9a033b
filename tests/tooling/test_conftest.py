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

    def __init__(self, fspath, name, case=None):
        self.fspath, self.originalname = fspath, name
        self.name = name if case is None else "%s[%s]" % (name, case)
        self.nodeid = "%s::%s" % (fspath, self.name)
        if case is not None:
            self.callspec = mock.Mock()

    def get_closest_marker(self, name):
        return pytest.mark.sampled(2).mark if name == "sampled" and self.name != "always" else None


@pytest.mark.once
def test_tests_without_cases_take_turns_among_all_files(monkeypatch):
    conftest = load_program(os.path.join(ROOT, "tests", "conftest.py"))
    cases = [Item(file, "test", i) for file in ("test_a.py", "test_b.py") for i in range(4)]
    alone = [Item("test_a.py", "first"), Item("test_b.py", "second")]
    found = []
    for turn in ("5", "6"):
        monkeypatch.setenv("CUDNN_RNN_TEST_TURN", turn)
        kept = [*cases, *alone, Item("test_a.py", "always")]
        conftest._keep_samples(mock.Mock(), kept)
        found.append(set(kept[:-1]))
        assert kept[-1].name == "always" and len(found[-1] & set(alone)) == 1
        assert [len(found[-1] & set(one)) for one in (cases[:4], cases[4:])] == [2, 2]
    assert found[0] | found[1] == {*cases, *alone}
