"""scripts/mutant_operators.py: the changes that scripts/run_mutants makes."""

import glob
import importlib
import json
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
def operators(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(ROOT, "scripts"))
    return importlib.import_module("mutant_operators")


@pytest.fixture
def changes(operators):
    """Returns a function that returns the mutants of a text as (operator, before, after)."""

    def of(path, text):
        mutants = operators.mutants_of(path, text)
        for mutant in mutants:
            assert text[mutant.start : mutant.end] == mutant.before
            assert text.count("\n", 0, mutant.start) + 1 == mutant.line
        return {mutant[2:3] + mutant[5:] for mutant in mutants}

    return of


def test_changes(changes):
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


def test_each_equivalent_is_one_of_the_present_code(operators):
    entry_of = operators.equivalents()
    with open(os.path.join(ROOT, "scripts", "equivalent_mutants.json")) as file:
        unused = {entry["line"] for entry in json.load(file)}
    assert unused
    paths = glob.glob(os.path.join(ROOT, "cudnn_rnn", "**", "*.*"), recursive=True)
    for path in sorted(paths):
        if not path.endswith((".py", ".h", ".cc", ".inc")):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for mutant in operators.mutants_of(os.path.relpath(path, ROOT), text):
            entry = entry_of(mutant)
            if entry is not None:
                unused.discard(entry["line"])
    assert not unused, "Delete these entries of scripts/equivalent_mutants.json, or change them."
