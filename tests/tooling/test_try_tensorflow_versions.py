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

    def status_of(trial, command, folder=None, **variables):
        commands.append(command)
        with open(trial.log, "a") as file:
            file.write("a line\n")
        for argument in command:
            if argument.startswith("--junitxml="):
                write_results(argument.partition("=")[2])
        return int(trial.name.startswith("2.4.4-"))

    monkeypatch.setattr("release_environment.find_python", lambda version: "/python" + version)
    monkeypatch.setattr(program.Trial, "status_of", status_of)
    monkeypatch.setattr(program, "build_wheel", lambda versions: "/a.whl")
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
    versions = [version.tensorflow for version in program.RELEASES]
    for name in ("OLDEST_TENSORFLOW", "NEWEST_TENSORFLOW_TRIED"):
        expected = getattr(cudnn_rnn._version, name)
        assert any(version.startswith(expected + ".") for version in versions)
    assert len({version[:2] for version in program.RELEASES}) == len(versions)


def test_files_of_the_selections_exist(program):
    assert program.TESTS[0] == program.QUICK_TESTS[0] == "tooling/test_readme"
    for name in program.TESTS + program.QUICK_TESTS:
        assert os.path.exists(os.path.join(ROOT, "tests", name + ".py"))


def test_the_next_version_is_tried_after_a_failure(program, commands, capsys):
    assert program.main(["2.15.1", "2.4.4", "1.14.0"]) == 1
    rows = program.read_rows(program.TABLE)
    results = {key: row[2:4] for key, row in rows.items()}
    assert results == {
        ("1.14.0", "3.7"): ["long", "2 passed, 1 skipped"],
        ("2.4.4", "3.8"): ["long", "FAILED: installation"],
        ("2.15.1", "3.11"): ["long", "2 passed, 1 skipped"],
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


def test_rows_name_the_commit_and_whether_files_were_changed(program, commands, tmp_path):
    assert program.HEADINGS[5] == "Commit"
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    program.ROOT, program.TABLE = str(checkout), "docs/table.md"
    assert rows_of(program, "2.15.1") == ["unknown"]  # not a checkout

    def git(*arguments):
        command = [
            "git",
            "-C",
            str(checkout),
            "-c",
            "user.name=a",
            "-c",
            "user.email=b",
            *arguments,
        ]
        return subprocess.check_output(command, universal_newlines=True).strip()

    git("init", "-q")
    (checkout / "setup.py").write_text("first")
    git("add", "setup.py")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "--short=10", "HEAD")
    # The table itself changes with each row.
    assert rows_of(program, "2.15.1", "2.16.2") == [commit] * 2
    (checkout / "new.py").write_text("not added")
    assert rows_of(program, "2.15.1") == [commit + "+", commit]
    git("add", "new.py")
    git("commit", "-q", "-m", "second")
    (checkout / "setup.py").write_text("changed")
    assert rows_of(program, "2.16.2")[1] == git("rev-parse", "--short=10", "HEAD") + "+"


def rows_of(program, *versions):
    """Tries the versions; returns the commits in all rows of the table."""
    os.makedirs(program.FOLDER, exist_ok=True)
    assert program.main([*versions, "--table", program.TABLE]) == 0
    return [row[5] for row in program.read_rows(os.path.join(program.ROOT, program.TABLE)).values()]


def test_the_commit_is_that_of_the_build(program, commands, monkeypatch):
    """A commit during the tests does not change what was tested."""
    commits = ["of the build", "during the tests"]
    monkeypatch.setattr(program, "commit_of_checkout", lambda: commits[bool(commands)])
    assert program.main(["2.15.1"]) == 0
    (row,) = program.read_rows(program.TABLE).values()
    assert row[5] == "of the build"


def test_the_wheel_is_the_same_for_all_versions(program, commands, monkeypatch, tmp_path):
    built, wheels = [], []
    monkeypatch.setattr(program, "build_wheel", lambda versions: built.append(versions) or "/a.whl")
    make = program.Trial.make

    def make_and_note(trial, *arguments, **variables):
        wheels.append(variables["WHEEL"])
        make(trial, *arguments, **variables)

    monkeypatch.setattr(program.Trial, "make", make_and_note)
    assert program.main(["2.15.1", "2.16.2"]) == 0
    assert [release.tensorflow for releases in built for release in releases] == [
        "2.15.1",
        "2.16.2",
    ]
    assert program.main(["2.15.1", "--wheel", str(tmp_path / "b.whl")]) == 0
    assert wheels == ["/a.whl", "/a.whl", str(tmp_path / "b.whl")] and len(built) == 1


def test_the_wheel_is_built_for_each_minor_version_once(program, monkeypatch):
    """2.21.0 is tried in two Pythons."""
    commands = []

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="a message\na/b.whl\n")

    monkeypatch.setattr(program.subprocess, "run", run)
    assert program.build_wheel(program.RELEASES) == os.path.join(ROOT, "a/b.whl")
    minors = commands[0][commands[0].index("bash", 1) + 1 :]
    assert minors[0] == "1.14" and minors[-1] == "2.21" and len(minors) == len(set(minors)) == 24


def test_documents_agree_with_the_table(program):
    """The committed table is of these releases, and README.md names those that passed."""
    path = os.path.join(ROOT, "docs", "tensorflow_versions.md")
    with open(path) as file:
        assert file.read().startswith(program.TITLE + "| %s |\n" % " | ".join(program.HEADINGS))
    rows = program.read_rows(path)
    assert set(rows) <= {release[:2] for release in program.RELEASES}
    assert {len(row) for row in rows.values()} == {len(program.HEADINGS)}
    passed = [row for row in rows.values() if "FAILED" not in row[3]]
    with open(os.path.join(ROOT, "README.md")) as file:
        text = file.read().replace("\n", " ")
    (claim,) = re.findall(r"Tested with TensorFlow (.*?); \[docs/tens", text)
    tensorflows, pythons = claim.split(", on Python ")
    assert expanded(tensorflows) == {row[0].rpartition(".")[0] for row in passed}
    assert expanded(pythons) == {row[1] for row in passed}


def expanded(text):
    """Returns {"2.4", "2.8", "2.9", "2.10"} for "2.4, and 2.8 to 2.10"."""
    found = set()
    for part in re.split(r",? and |, ", text):
        first, _, last = part.partition(" to ")
        major, minor = first.split(".")
        minors = range(int(minor), int((last or first).split(".")[1]) + 1)
        found.update("%s.%d" % (major, number) for number in minors)
    return found


def test_every_version_has_its_turn(program, commands):
    others = [version for version in program.RELEASES if version[:2] not in program.IN_EVERY_RUN]
    assert len(others) == len(program.RELEASES) - 2
    turns = [program.chosen_versions([], turn) for turn in range(1000, 1000 + len(others))]
    assert sorted(version for (version,) in turns) == sorted(others)
    assert program.main(["2.4.4", "2.15.1", "--turn", "7"]) == 0
    assert list(program.read_rows(program.TABLE)) == [("2.15.1", "3.11")]


def test_missing_python_is_a_failure(program, commands, monkeypatch):
    monkeypatch.setattr("release_environment.find_python", lambda version: None)
    assert program.main(["2.15.1"]) == 1
    (row,) = program.read_rows(program.TABLE).values()
    assert row[3] == "FAILED: no Python 3.11 was found"


@pytest.mark.parametrize("options, kept", [([], False), (["--keep"], True)])
def test_environments_are_deleted_or_kept(program, commands, tmp_path, options, kept):
    assert program.main(["2.15.1"] + options) == 0
    assert (tmp_path / "trials" / "2.15.1-python3.11").exists() is kept


def test_quick_runs_fewer_tests(program, commands):
    program.main(["2.15.1", "--quick"])
    (row,) = program.read_rows(program.TABLE).values()
    assert row[2] == "short"
    assert "--all" not in commands[-1]
    files = [word for word in commands[-1] if re.match(r"tests/\w+/\w+\.py$", word)]
    assert files == ["tests/%s.py" % name for name in program.QUICK_TESTS]


def test_failed_tests_are_counted(program, tmp_path):
    path = tmp_path / "tests.xml"
    path.write_text(
        "<r><testcase><failure/></testcase><testcase><error/></testcase><testcase/></r>"
    )
    assert program.describe_tests(str(path)) == "2 FAILED, 1 passed"
