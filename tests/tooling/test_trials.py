"""The command of the trials, and the short form of each trial."""

import importlib.util
import os
import re
import sys

import pytest

from helpers.paths import ROOT
from helpers.processes import status_and_text

pytestmark = pytest.mark.once

PROGRAM = os.path.join(ROOT, "tests", "trials", "run.py")


def _load():
    specification = importlib.util.spec_from_file_location("trials_run", PROGRAM)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


run = _load()


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
    assert "== 2 of 2, bad: what fails" in capsys.readouterr().out


def test_chosen_trials_only(trials):
    assert run.main(["good"]) == 0
    assert "bad" not in (trials / ".build" / "trials" / "table.md").read_text()


def test_a_trial_without_a_result_fails(trials):
    (trials / "good").write_text("#!/bin/sh\necho done\n")
    assert run.main(["good"]) == 1
    assert "**FAILED**: no result" in (trials / ".build" / "trials" / "table.md").read_text()


def test_record_replaces_only_the_table(trials, monkeypatch):
    document = trials / "reliability.md"
    document.write_text("before\n\n%soutdated\n%s\nafter\n" % (run.BEGIN, run.END))
    run.main(["--record"])
    text = document.read_text()
    assert text.startswith("before\n\n" + run.BEGIN) and text.endswith(run.END + "\nafter\n")
    assert "outdated" not in text and "| `good` | what holds | 7 rounds | " in text


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["unknown"], "no trial is named unknown; expected "),
        (["--record", "--short"], "--record is only for a run of all trials in full"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    status, text = status_and_text(PROGRAM, "--check", *arguments)
    assert status == 2 and message in text


def test_the_document_has_the_place_of_the_table():
    text = run.DOCUMENT.read_text(encoding="utf-8")
    assert text.count(run.BEGIN) == text.count(run.END) == 1


@pytest.mark.parametrize("name", run.TRIALS)
def test_trial_in_short(name):
    status, text = status_and_text(PROGRAM, name, "--short", TRIALS_PYTHON=sys.executable)
    assert status == 0, text
