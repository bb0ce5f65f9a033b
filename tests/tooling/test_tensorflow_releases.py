"""scripts/tensorflow_releases.py: the list, and unpacking the headers of a wheel."""

import json
import os
import zipfile

import pytest

import cudnn_rnn._version
from helpers.scripts import load_script

pytestmark = pytest.mark.once


@pytest.fixture
def releases(tmp_path, monkeypatch):
    module = load_script("tensorflow_releases.py", monkeypatch)
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "unpacked"))
    monkeypatch.setenv(module.WHEELS_VARIABLE, str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return module


def minor_versions(first, last):
    return ["2.%d" % number for number in range(first, last + 1)]


def test_all_minor_versions_are_in_the_list(releases):
    newest = releases.newest_of_each_minor()
    assert list(newest) == ["1.14", "1.15"] + minor_versions(0, 21)
    assert list(newest)[0] == cudnn_rnn._version.OLDEST_TENSORFLOW
    assert list(newest)[-1] == cudnn_rnn._version.NEWEST_TENSORFLOW_TRIED
    assert newest["1.15"].tensorflow == "1.15.5" and newest["2.21"].python == "3.11"
    assert list(releases.newest_of_each_minor("aarch64")) == minor_versions(10, 21)
    assert len({release[:2] for release in releases.RELEASES}) == len(releases.RELEASES)


def test_each_release_is_what_its_requirements_install(releases):
    for release in releases.RELEASES:
        package, version = release.requirements[0].split("==")
        assert package in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")
        assert version == release.tensorflow


def test_releases_are_chosen_by_minor_or_patch_version(releases):
    def chosen(*names, **options):
        return [release.tensorflow for release in releases.chosen(names, **options)]

    assert chosen("2.21", "1.15") == chosen("1.15.0", "2.21.0") == ["1.15.5", "2.21.0"]
    assert len(chosen()) == 24 and len(chosen(machine="aarch64")) == 12
    for name in ("2.99", "2", "2.21.0rc1", "../2.21"):
        with pytest.raises(SystemExit, match="is not in the list for x86_64; expected one or more"):
            chosen(name)


@pytest.mark.parametrize(
    "minor, machine, expected",
    [
        ("1.15", "x86_64", ("tensorflow", "1.15.5")),
        ("2.0", "x86_64", ("tensorflow", "2.0.4")),
        ("2.1", "x86_64", ("tensorflow-cpu", "2.1.4")),
        ("2.21", "x86_64", ("tensorflow-cpu", "2.21.0")),
        ("2.10", "aarch64", ("tensorflow-cpu-aws", "2.10.1")),
        ("2.11", "aarch64", ("tensorflow-cpu-aws", "2.11.0")),
        ("2.16", "aarch64", ("tensorflow", "2.16.2")),
    ],
)
def test_package_that_has_the_headers(releases, minor, machine, expected):
    (release,) = releases.chosen([minor], machine)
    assert releases._package_for(release, machine) == expected


LIBRARY = b"..StatusToStringB5cxx11Ev.."
FILES = {
    "tensorflow/include/a/op.h": b"op",
    "tensorflow/libtensorflow_framework.so.2": LIBRARY,
    "tensorflow/python/ops.py": b"",
    "tensorflow/libtensorflow_cc.so.2": b"",
}


def make_wheel(tmp_path, name, files):
    with zipfile.ZipFile(str(tmp_path / "wheels" / name), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def unpack(releases, minor, machine="x86_64"):
    (release,) = releases.chosen([minor], machine)
    path = releases.unpack(release, "/no/python", machine)
    with open(path) as file:
        return json.load(file)


def test_headers_and_library_of_a_new_wheel(releases, tmp_path):
    make_wheel(tmp_path, "tensorflow_cpu-2.21.0-cp39-cp39-manylinux_2_27_x86_64.whl", FILES)
    folder = tmp_path / "unpacked" / "2.21.0-x86_64"
    assert unpack(releases, "2.21") == {
        "version": "2.21.0",
        "git_version": None,
        "cxx11_abi": 1,
        "cxx_standard": 17,
        "include_folders": [str(folder / "include")],
        "definitions": ["EIGEN_MAX_ALIGN_BYTES=64"],
        "library": str(folder / "libtensorflow_framework.so.2"),
        "machine": "x86_64",
    }
    assert (folder / "include" / "a" / "op.h").read_bytes() == b"op"
    assert sorted(os.listdir(str(folder))) == ["include", "libtensorflow_framework.so.2"]
    assert sorted(os.listdir(str(tmp_path / "unpacked"))) == ["2.21.0-x86_64", "2.21.0-x86_64.json"]


def test_headers_of_an_old_wheel_are_in_two_places(releases, tmp_path):
    files = {
        "tensorflow_core/include/a/op.h": b"op",
        "tensorflow-1.15.5.data/purelib/tensorflow_core/include/b/kernel.h": b"kernel",
        "tensorflow_core/libtensorflow_framework.so.1": b"",
    }
    make_wheel(tmp_path, "tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl", files)
    found = unpack(releases, "1.15")
    assert (found["cxx11_abi"], found["cxx_standard"], found["definitions"]) == (0, 14, [])
    (include,) = found["include_folders"]
    assert os.path.exists(include + "/a/op.h") and os.path.exists(include + "/b/kernel.h")


def test_a_wheel_is_unpacked_once_and_whole(releases, tmp_path):
    name = "tensorflow_cpu_aws-2.11.0-cp310-cp310-manylinux2014_aarch64.whl"
    make_wheel(tmp_path, name, {"tensorflow/python/ops.py": b""})
    with pytest.raises(SystemExit, match="has no folder include; expected a wheel of TensorFlow"):
        unpack(releases, "2.11", "aarch64")
    assert os.listdir(str(tmp_path / "unpacked")) == []
    make_wheel(tmp_path, name, FILES)
    assert unpack(releases, "2.11", "aarch64")["machine"] == "aarch64"
    (tmp_path / "wheels" / name).unlink()
    assert unpack(releases, "2.11", "aarch64")["version"] == "2.11.0"


def test_a_missing_wheel_is_downloaded(releases, tmp_path, monkeypatch):
    commands = []

    def call(command):
        commands.append(command)
        make_wheel(tmp_path, "tensorflow-1.14.0-cp37-cp37m-manylinux1_x86_64.whl", FILES)
        return 0

    monkeypatch.setattr(releases.subprocess, "call", call)
    assert unpack(releases, "1.14")["version"] == "1.14.0"
    (command,) = commands
    assert command[:2] == ["/no/python", "-m"] and command[-1] == "tensorflow==1.14.0"
    for option, value in [
        ("--dest", str(tmp_path / "wheels")),
        ("--python-version", "3.7"),
        ("--abi", "cp37m"),
        ("--platform", "manylinux1_x86_64"),
    ]:
        assert command[command.index(option) + 1] == value


def test_a_failing_download_names_the_variable(releases, monkeypatch):
    monkeypatch.setattr(releases.subprocess, "call", lambda command: 1)
    with pytest.raises(SystemExit, match="cannot download tensorflow-cpu 2.20.0 .*TENSORFLOW_WHEE"):
        unpack(releases, "2.20")
