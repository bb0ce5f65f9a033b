"""scripts/build_wheels: its list of versions, its checks of a wheel, and failing versions."""

import os
import zipfile

import pytest

from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.scripts import load_script

pytestmark = [pytest.mark.once, pytest.mark.ci]

PATH = os.path.join(ROOT, "scripts", "build_wheels")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Loads the program as a module with a temporary folder for its work."""
    module = load_script("build_wheels", monkeypatch)
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "wheels"))
    return module


def test_help_and_list_need_nothing():
    assert "usage: " in output_of(PATH, "--help")
    listed = output_of(PATH, "--list")
    assert "1.15  TensorFlow 1.15.5  Python 3.7" in listed  # not 1.15.0
    assert "2.21  TensorFlow 2.21.0  Python 3.11, 3.13" in listed


def test_unknown_version_is_refused(program):
    with pytest.raises(SystemExit, match=r"TensorFlow 2.21.0 is not in the list; .* 1.14, "):
        program.main(["2.21.0"])


def test_label_and_tag_of_the_file_name(program):
    name = "cudnn_rnn-0.2.0+tf%s-%s-linux_x86_64.whl"
    program.check_label(name % ("2.21", "py3-none"), "2.21.0")
    for label, tag in [("2.2", "py3-none"), ("2.21", "cp311-cp311")]:
        with pytest.raises(program.trials.Failure, match=r"expected a name with \+tf2.21-py3-none"):
            program.check_label(name % (label, tag), "2.21.0")


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("cudnn_rnn/keras/_layer.py", "", None),
        ("cudnn_rnn/_cudnn_rnn_ops.so", "", None),
        ("cudnn_rnn-0.2.0+tf2.21.dist-info/RECORD", "", None),
        ("cudnn_rnn/_other.so", "", "do not belong into a wheel: cudnn_rnn/_other.so"),
        ("cudnn_rnn.libs/libdl.so.2", "", "do not belong into a wheel"),
        ("tests/test_ops.py", "", "do not belong into a wheel"),
        ("cudnn_rnn/layers.py", "/home/me/x.h", "layers.py names a path of this machine, /home/me"),
    ],
)
def test_contents_of_a_wheel(program, tmp_path, name, content, problem):
    with zipfile.ZipFile(str(tmp_path / "a.whl"), "w") as archive:
        archive.writestr(name, content)

    def check():
        program.check_contents(str(tmp_path / "a.whl"), str(tmp_path / "out"), ["/home/me"])

    if problem is None:
        check()
    else:
        with pytest.raises(program.trials.Failure, match=problem):
            check()


OURS = {"GLIBC": (2, 14), "GLIBCXX": (3, 4, 21), "CXXABI": (1, 3, 7)}
THEIRS = {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 22), "CXXABI": (1, 3, 7)}


@pytest.mark.parametrize(
    "ours, tag, problem",
    [
        (OURS, "manylinux_2_24_x86_64", None),
        (OURS, "manylinux_2_14_x86_64", None),
        (OURS, "manylinux_2_12_x86_64.manylinux2010_x86_64", "GLIBC 2.14"),
        (OURS, "linux_x86_64", "GLIBC 2.14"),
        (dict(OURS, GLIBC=(2, 34)), "manylinux_2_34_x86_64", r"needs GLIBC 2.34 \(2.17\)"),
        (dict(OURS, GLIBCXX=(3, 4, 29)), "manylinux_2_34_x86_64", r"3.4.29 \(3.4.22\)"),
        (dict(OURS, CXXABI=(1, 3, 13)), "manylinux_2_34_x86_64", r"CXXABI 1.3.13 \(1.3.7\)"),
    ],
)
def test_a_wheel_needs_no_newer_system_than_tensorflow_or_its_tag(program, ours, tag, problem):
    wheel = "cudnn_rnn-0.2.0+tf2.21-py3-none-%s.whl" % tag
    if problem is None:
        program.check_needs(ours, THEIRS, wheel)
    else:
        with pytest.raises(program.trials.Failure, match=problem):
            program.check_needs(ours, THEIRS, wheel)


def test_a_failure_is_recorded_and_the_next_version_is_built(
    program, tmp_path, monkeypatch, capsys
):
    def install(builder):
        with open(builder.log, "a") as file:
            file.write("the reason\n")
        if builder.name.startswith("1.15"):
            raise program.trials.Failure("installation")

    wheel = tmp_path / "cudnn_rnn-0.2.0+tf2.21.whl"
    wheel.write_text("")
    monkeypatch.setattr(program.Builder, "install_tensorflow", install)
    monkeypatch.setattr(program.Builder, "build_sdist", lambda builder, dist: "sdist")
    monkeypatch.setattr(program.Builder, "build_wheel", lambda builder, sdist: "built")
    monkeypatch.setattr(program.Builder, "audit", lambda builder, built: (str(wheel), "GLIBC 2.14"))
    monkeypatch.setattr(program.Builder, "test", lambda builder, wheel: None)
    dist = tmp_path / "dist"
    assert program.main(["1.15", "2.21", "--dist", str(dist)]) == 1
    rows = program.trials.read_rows(str(dist / "wheels.md"))
    assert {key: row[2:5] for key, row in rows.items()} == {
        ("1.15.5", "3.7"): ["", "", "FAILED: installation"],
        ("2.21.0", "3.11"): [wheel.name, "GLIBC 2.14", "passed"],
        ("2.21.0", "3.13"): [wheel.name, "GLIBC 2.14", "passed"],
    }
    printed = capsys.readouterr().out
    assert "the reason" in printed and "1 of 2 versions failed" in printed
    assert sorted(os.listdir(str(dist))) == [wheel.name, "wheels.md"]
    assert not [name for name in os.listdir(program.FOLDER) if not name.endswith(".log")]
