"""What the trials record is what they found, and the short form of each trial."""

import os
import re
import sys

import pytest

from helpers.paths import ROOT
from helpers.processes import status_and_text
from helpers.scripts import load_program
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.once

PROGRAM = os.path.join(ROOT, "tests", "trials", "run.py")
run = load_program(PROGRAM)


@pytest.fixture
def trials(tmp_path, monkeypatch):
    """Two trials in a folder of their own: one holds, one fails."""
    for name, lines in [("good", "result: 7 rounds"), ("bad", "broken\nresult: 1 failure")]:
        text = "#!/bin/sh\ncat <<END\n%s $*\nEND\n[ %s = good ]\n" % (lines, name)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "DOCUMENT", tmp_path / "reliability.md")
    monkeypatch.setattr(run, "TRIALS", {"good": "what holds", "bad": "what fails"})
    return tmp_path


def test_rows_have_the_result_or_the_failure(trials, capsys):
    assert run.main(["--short", "--seed", "3"]) == 1
    table = (trials / ".build" / "trials" / "table.md").read_text()
    assert re.search(r"\| `good` \| what holds \| 7 rounds --short --seed 3 \| \d+ s \|", table)
    assert "| `bad` | what fails | **FAILED**: 1 failure --short --seed 3 |" in table
    assert "broken" in (trials / ".build" / "trials" / "bad.log").read_text()
    text = capsys.readouterr().out
    assert "== bad: what fails\n" in text and "bad: broken\n" in text


def test_a_trial_without_a_result_fails(trials):
    (trials / "good").write_text("#!/bin/sh\necho done\n")
    assert run.main(["good"]) == 1
    assert "**FAILED**: no result" in (trials / ".build" / "trials" / "table.md").read_text()


def test_record_replaces_only_the_rows_of_the_trials(trials, monkeypatch):
    kept, old = "| `other` | kept |\n", "| `good` | outdated |\n"
    monkeypatch.setitem(run.TRIALS, "other", "what was recorded before")
    document = trials / "reliability.md"
    document.write_text("before\n\n%s%s%s%s\nafter\n" % (run.BEGIN, old, kept, run.END))
    run.main(["good", "--record"])
    text = document.read_text()
    assert text.startswith("before\n\n" + run.BEGIN) and text.endswith(run.END + "\nafter\n")
    assert "outdated" not in text and "| `good` | what holds | 7 rounds | " in text
    assert kept in text and run.HEADING in text


@pytest.mark.parametrize(
    "error, change, num_failures",
    [(1e-6, None, 0), (5e-5, 1e-5, 0), (5e-5, 1e-6, 1), (float("inf"), 1e-5, 1)],
)
def test_errors_above_the_bound_need_an_ill_conditioned_model(
    monkeypatch, capsys, error, change, num_failures
):
    monkeypatch.setattr(sys, "path", [str(run.FOLDER), *sys.path])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the trial sets it
    summary = load_program(os.path.join(run.FOLDER, "errors.py")).Summary("float32", 2e-5)
    errors, mean_squares = {"output": 1e-7, "d_input": error}, {"output": 4e-16, "d_input": 1e-14}
    summary.add("model 0", errors, mean_squares, {"output": 0.0, "d_input": change})
    summary.show()
    assert capsys.readouterr().out.count("FAILED: expected at most 2e-05; d_input") == num_failures
    assert len(summary.failures) == num_failures
    if error > 2e-5:
        expected = "float32 0.0e+00 and 0.0e+00 (RMS 0.0e+00 and 0.0e+00) of 0 models"
        assert summary.text() == expected + ", up to %.1e of 1 ill-conditioned" % error
    else:
        assert summary.text() == "float32 1.0e-07 and 1.0e-06 (RMS 2.0e-08 and 1.0e-07) of 1 models"


def test_the_document_has_the_place_of_the_table():
    text = run.DOCUMENT.read_text(encoding="utf-8")
    assert text.count(run.BEGIN) == text.count(run.END) == 1


def trial_parameter(name):
    # Others use TensorFlow 1 next to 2, or none.
    needs_2 = name in ("errors", "soak")
    return pytest.param(name, marks=[needs_tensorflow_2] if needs_2 else [])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", [trial_parameter(name) for name in run.TRIALS])
def test_trial_in_short(name):
    status, text = status_and_text(PROGRAM, name, "--short", TRIALS_PYTHON=sys.executable)
    assert status == 0, text
