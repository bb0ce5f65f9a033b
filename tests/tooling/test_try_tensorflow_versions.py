"""scripts/try_tensorflow_versions: its arguments, its table, and failing versions."""

import os
import re
import subprocess

import pytest

import cudnn_rnn._version
from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.scripts import load_script

pytestmark = pytest.mark.once

PATH = os.path.join(ROOT, "scripts", "try_tensorflow_versions")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Loads the program as a module with temporary output paths."""
    module = load_script("try_tensorflow_versions", monkeypatch)
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "trials"))
    monkeypatch.setattr(module, "TABLE", str(tmp_path / "docs" / "table.md"))
    return module


@pytest.fixture
def commands(program, monkeypatch):
    """Mocks trials that end at once, failing for TensorFlow 2.4.4; returns their commands."""
    commands = []

    def status_of(trial, command, folder=None):
        commands.append(command)
        with open(trial.log, "a") as file:
            file.write("a line\n")
        for argument in command:
            if argument.startswith("--junitxml="):
                write_results(argument.partition("=")[2])
        return int(trial.name.startswith("2.4.4-"))

    monkeypatch.setattr(program, "find_python", lambda version: "/python" + version)
    monkeypatch.setattr(program.Trial, "_status_of", status_of)
    monkeypatch.setattr(program.Trial, "_cpp_standard", lambda trial: "c++17")
    return commands


def write_results(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("<r><testcase/><testcase/><testcase><skipped/></testcase></r>")


def test_help_and_list_need_nothing():
    for option, expected in (
        ("--help", "usage: "),
        ("--list", "2.10.1  Python 3.10  tensorflow=="),
    ):
        printed = output_of(PATH, option)
        assert expected in printed


def test_unknown_version_is_refused(program):
    with pytest.raises(SystemExit, match="TensorFlow 2.99.0 is not in the list; .* 1.14.0, "):
        program.main(["2.15.1", "2.99.0"])


def test_list_holds_the_oldest_and_the_newest_version(program):
    versions = [version.tensorflow for version in program.VERSIONS]
    for name in ("OLDEST_TENSORFLOW", "NEWEST_TENSORFLOW_TRIED"):
        expected = getattr(cudnn_rnn._version, name)
        assert any(version.startswith(expected + ".") for version in versions)
    assert len({version[:2] for version in program.VERSIONS}) == len(versions)


def test_files_of_the_selections_exist(program):
    assert program.TESTS[0] == program.QUICK_TESTS[0] == "tooling/test_readme"
    for name in program.TESTS + program.QUICK_TESTS:
        assert os.path.exists(os.path.join(ROOT, "tests", name + ".py"))


def test_the_next_version_is_tried_after_a_failure(program, commands, capsys):
    assert program.main(["2.15.1", "2.4.4", "1.14.0"]) == 1
    rows = program.read_rows(program.TABLE)
    results = {key: row[2:5] for key, row in rows.items()}
    assert results == {
        ("1.14.0", "3.7"): ["c++17", "long", "2 passed, 1 skipped"],
        ("2.4.4", "3.8"): ["", "long", "FAILED: installation"],
        ("2.15.1", "3.11"): ["c++17", "long", "2 passed, 1 skipped"],
    }
    assert "1 of 3 versions failed" in capsys.readouterr().out
    assert "--all" in commands[-1]


def test_rows_of_other_versions_are_kept(program, commands):
    assert program.main(["2.15.1"]) == 0
    assert program.main(["2.8.4", "2.10.1"]) == 0
    assert list(program.read_rows(program.TABLE)) == [
        ("2.8.4", "3.8"),
        ("2.10.1", "3.10"),
        ("2.15.1", "3.11"),
    ]


def test_rows_name_the_commit_and_whether_files_were_changed(program, commands, monkeypatch):
    monkeypatch.setattr(program.subprocess, "run", git_that_prints("", " M setup.py\n"))
    assert program.main(["2.15.1", "2.16.2"]) == 0
    rows = program.read_rows(program.TABLE)
    assert [row[6] for row in rows.values()] == ["0123456789", "0123456789+"]
    assert program.HEADINGS[6] == "Commit"


def git_that_prints(*changes):
    """Returns a mock of `subprocess.run` for git; `changes` are the outputs of its `status`."""
    remaining = list(changes)

    def run(command, **named):
        is_status = "status" in command
        printed = remaining.pop(0) if is_status else "0123456789\n"
        return subprocess.CompletedProcess(command, 0, printed)

    return run


def test_every_version_has_its_turn(program, commands):
    others = [version for version in program.VERSIONS if version[:2] not in program.IN_EVERY_RUN]
    assert len(others) == len(program.VERSIONS) - 2
    turns = [program.chosen_versions([], turn) for turn in range(1000, 1000 + len(others))]
    assert sorted(version for (version,) in turns) == sorted(others)
    assert program.main(["2.4.4", "2.15.1", "--turn", "7"]) == 0
    assert list(program.read_rows(program.TABLE)) == [("2.15.1", "3.11")]


def test_missing_python_is_a_failure(program, commands, monkeypatch):
    monkeypatch.setattr(program, "find_python", lambda version: None)
    assert program.main(["2.15.1"]) == 1
    (row,) = program.read_rows(program.TABLE).values()
    assert row[4] == "FAILED: no Python 3.11 was found"


@pytest.mark.parametrize("options, kept", [([], False), (["--keep"], True)])
def test_environments_are_deleted_or_kept(program, commands, tmp_path, options, kept):
    assert program.main(["2.15.1"] + options) == 0
    assert (tmp_path / "trials" / "2.15.1-python3.11").exists() is kept


def test_quick_runs_fewer_tests(program, commands):
    program.main(["2.15.1", "--quick"])
    (row,) = program.read_rows(program.TABLE).values()
    assert row[3] == "short"
    assert "--all" not in commands[-1]
    files = [word for word in commands[-1] if re.match(r"tests/\w+/\w+\.py$", word)]
    assert files == ["tests/%s.py" % name for name in program.QUICK_TESTS]


def test_failed_tests_are_counted(program, tmp_path):
    path = tmp_path / "tests.xml"
    path.write_text(
        "<r><testcase><failure/></testcase><testcase><error/></testcase><testcase/></r>"
    )
    assert program.describe_tests(str(path)) == "2 FAILED, 1 passed"
