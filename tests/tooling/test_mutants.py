"""scripts/mutant_operators.py: the changes that scripts/run_mutants makes."""

import importlib
import os

import pytest

from helpers.paths import ROOT
from helpers.versions import needs_tensorflow_2

# Python 3.7, which TensorFlow 1 has, does not tell where a node of a syntax tree ends.
pytestmark = [pytest.mark.once, needs_tensorflow_2]

CPP = """// a < b
#define SIZE 3
int Count(const char* text, int end) {
  int sums[4];
  if (end <= 0 && text != nullptr) Fail("1 + 1", end);
  sums[0] = Add(end, text) - limit;
  done.store(end, std::memory_order_release);
  return end;
}
"""
PYTHON = '''"""One < 2."""


def count(text, end):
    if end <= 0 and text is not None:
        raise ValueError("%d" % end)
    found.append(text)
    return add(end, text) - limit
'''


@pytest.fixture
def changes(monkeypatch):
    """Returns a function that returns the mutants of a text as (operator, before, after)."""
    monkeypatch.syspath_prepend(os.path.join(ROOT, "scripts"))
    operators = importlib.import_module("mutant_operators")

    def of(path, text):
        mutants = operators.mutants_of(path, text)
        for mutant in mutants:
            assert text[mutant.start : mutant.end] == mutant.before
            assert text.count("\n", 0, mutant.start) + 1 == mutant.line
        return {mutant[2:3] + mutant[5:] for mutant in mutants}

    return of


def test_cpp(changes):
    add = "sums[0] = Add(end, text) - limit"
    store = "done.store(end, std::memory_order_release)"
    condition = "end <= 0 && text != nullptr"
    assert changes("file.cc", CPP) == {
        ("relation", "<=", "<"),
        ("relation", "!=", "=="),
        ("logic", "&&", "||"),
        ("negation", condition, "!(%s)" % condition),
        ("constant", "0", "1"),
        ("constant", "0", "-1"),
        ("arithmetic", "-", "+"),
        ("arguments", "end, text", "text, end"),
        ("memory order", "memory_order_release", "memory_order_relaxed"),
        ("statement", 'Fail("1 + 1", end)', ""),
        ("statement", add, ""),
        ("statement", store, ""),
    }


def test_python(changes):
    condition = "end <= 0 and text is not None"
    add = "return add(end, text) - limit"
    assert changes("file.py", PYTHON) == {
        ("relation", "<=", "<"),
        ("relation", "is not", "is"),
        ("logic", "and", "or"),
        ("negation", condition, "not (%s)" % condition),
        ("constant", "0", "1"),
        ("constant", "0", "-1"),
        ("arithmetic", "-", "+"),
        ("arguments", "end, text", "text, end"),
        ("statement", 'raise ValueError("%d" % end)', "pass"),
        ("statement", "found.append(text)", "pass"),
        ("statement", add, "return None"),
    }
