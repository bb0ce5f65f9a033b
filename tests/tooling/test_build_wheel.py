"""scripts/build_wheel and the checks of a wheel: versions, headers, contents, needs, run paths."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.scripts import load_script

pytestmark = pytest.mark.once

PATH = os.path.join(ROOT, "scripts", "build_wheel")


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Loads the program as a module with a temporary folder for its work."""
    module = load_script("build_wheel", monkeypatch)
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "work"))
    os.mkdir(module.FOLDER)
    return module


@pytest.fixture
def checks(monkeypatch):
    return load_script("wheel_checks.py", monkeypatch)


def test_help_and_list_need_nothing():
    assert "usage: " in output_of(PATH, "--help")
    listed = output_of(PATH, "--list")
    assert "1.15  compiled for 1.15.5\n" in listed  # not 1.15.0
    assert len(listed.splitlines()) == 24


def test_unknown_version_is_refused(program):
    with pytest.raises(SystemExit, match=r"TensorFlow 2.99 is not in the list .* 1.14, "):
        program.main(["2.99"])
    with pytest.raises(SystemExit, match="TensorFlow 2.9 is not in the list for aarch64"):
        program.main(["2.9", "--machine", "aarch64"])


def test_two_builds_wait_for_each_other(program, capsys):
    """The second one waits as long as the first one has the lock."""
    order = []

    def build_second():
        with program.lock():
            order.append("second")

    with program.lock():
        second = threading.Thread(target=build_second)
        second.start()
        while "Waiting for another build" not in capsys.readouterr().out:
            time.sleep(0.01)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    with open(os.path.join(program.FOLDER, "lock")) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again


def make_sdist(folder, files):
    project = folder / "cudnn_rnn-0.3.0"
    for name, content in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content)
    subprocess.check_call(["tar", "-C", str(folder), "-czf", str(folder / "a.gz"), project.name])
    return str(folder / "a.gz")


def test_only_changed_sources_are_newer_than_their_objects(program, tmp_path):
    sources = tmp_path / "sources"
    first, second = tmp_path / "first", tmp_path / "second"
    files = {"same.cc": "1", "changed.cc": "2", "a/removed.cc": "3"}
    program.update_sources(make_sdist(first, files), str(sources))
    assert program.files_below(str(sources)) == set(files)
    for name in files:
        os.utime(str(sources / name), (1, 1))
    files = {"same.cc": "1", "changed.cc": "4", "a/new.cc": "5"}
    program.update_sources(make_sdist(second, files), str(sources))
    assert program.files_below(str(sources)) == set(files)
    assert {name: (sources / name).read_text() for name in files} == files
    assert [name for name in files if (sources / name).stat().st_mtime > 1] == [
        "changed.cc",
        "a/new.cc",
    ]


def test_other_flags_compile_everything_again(program, monkeypatch):
    for name in ("CXX", "CXXFLAGS"):
        monkeypatch.delenv(name, raising=False)

    def is_kept():
        with open(os.path.join(program.objects_folder("x86_64"), "object.o"), "a+") as file:
            file.write("x")
            file.seek(0)
            return file.read() != "x"

    assert [is_kept(), is_kept()] == [False, True]
    monkeypatch.setenv("CXXFLAGS", "-O1")
    assert [is_kept(), is_kept()] == [False, True]
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SystemExit, match="The compiler no-such-compiler does not run"):
        is_kept()


DESCRIPTION = {"version": "2.21.0", "cxx11_abi": 1, "library": "theirs"}
ADAPTER = "ops_tf2.21_abi1.so"
FILES = {
    "cudnn_rnn/keras/_fused_layer.py": b"",
    "cudnn_rnn/tf1_layers/layer_base.py": b"",
    "cudnn_rnn/py.typed": b"",
    "cudnn_rnn-0.3.0.dist-info/RECORD": b"",
    "cudnn_rnn/_libraries/libcudnn_rnn_engine.so": b"engine",
    "cudnn_rnn/_libraries/ops_tf2.21_abi1.so": b"adapter",
}


def make_wheel(folder, changes, name="cudnn_rnn-0.3.0-py3-none-manylinux_2_24_x86_64.whl"):
    """Writes a wheel of FILES with changes; None removes a file. Returns its path."""
    libraries = {
        os.path.basename(name): {"sha256": hashlib.sha256(content).hexdigest()}
        for name, content in FILES.items()
        if name.endswith(".so")
    }
    info = json.dumps({"libraries": libraries}).encode()
    files = dict(FILES, **{"cudnn_rnn/_libraries/build_info.json": info}, **changes)
    with zipfile.ZipFile(str(folder / name), "w") as archive:
        for name_of_file, content in files.items():
            if content is not None:
                archive.writestr(name_of_file, content)
    return str(folder / name)


@pytest.fixture
def check(checks, tmp_path, monkeypatch):
    """Returns a function that checks a wheel for one TensorFlow, with given output of readelf."""
    path = tmp_path / "description.json"
    path.write_text(json.dumps(DESCRIPTION))

    def check_wheel(wheel, ours="2.14", theirs="2.17", dynamic=None):
        def readelf(option, library):
            if option == "--dynamic":
                return DYNAMIC if dynamic is None else dynamic
            version = theirs if library == "theirs" else ours
            return "Version needs section\n Name: GLIBC_2.2.5  Name: GLIBC_%s\n" % version

        monkeypatch.setattr(checks, "readelf", readelf)
        checks.check(wheel, [str(path)], ["/home/me"])

    return check_wheel


DYNAMIC = """
 0x1 (NEEDED)  Shared library: [libcudnn_rnn_engine.so]
 0xf (RPATH)   Library rpath: [$ORIGIN]
"""


def test_a_wheel_that_is_right(check, tmp_path):
    check(make_wheel(tmp_path, {}))


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"cudnn_rnn/_other.so": b""}, "do not belong into it: cudnn_rnn/_other.so"),
        ({"cudnn_rnn.libs/libdl.so.2": b""}, "do not belong into it"),
        ({"tests/test_ops.py": b""}, "do not belong into it"),
        (
            {"cudnn_rnn/layers.py": b"/home/me/x.h"},
            "layers.py names a path of this machine, /home/me",
        ),
        ({"cudnn_rnn/_libraries/ops_tf2.20_abi1.so": b""}, "it has the libraries .*ops_tf2.20"),
        ({"cudnn_rnn/_libraries/ops_tf2.21_abi1.so": None}, "it has the libraries libcudnn_rnn_"),
        (
            {"cudnn_rnn/_libraries/ops_tf2.21_abi1.so": b"x"},
            "SHA-256 of ops_tf2.21_abi1.so differs",
        ),
        ({"cudnn_rnn/py.typed": os.urandom(26000000)}, "it has 26.* bytes; expected at most"),
    ],
)
def test_wrong_contents(check, tmp_path, changes, problem):
    with pytest.raises(SystemExit, match=problem):
        check(make_wheel(tmp_path, changes))


@pytest.mark.parametrize(
    "ours, theirs, tag, problem",
    [
        ("2.14", "2.14", "manylinux_2_14_x86_64", None),
        ("2.28", "2.34", "manylinux_2_28_x86_64", None),
        ("2.14", "2.17", "linux_x86_64", "no platform as old as manylinux_2_28"),
        ("2.14", "2.17", "manylinux_2_34_x86_64", "no platform as old as manylinux_2_28"),
        ("2.18", "2.17", "manylinux_2_24_x86_64", "needs glibc 2.18, but TensorFlow 2.21.0 only"),
        ("2.14", "2.17", "manylinux_2_12_x86_64.manylinux2010_x86_64", "needs glibc 2.14"),
    ],
)
def test_a_wheel_needs_no_newer_system_than_its_name_says(
    check, tmp_path, ours, theirs, tag, problem
):
    wheel = make_wheel(tmp_path, {}, "cudnn_rnn-0.3.0-py3-none-%s.whl" % tag)
    if problem is None:
        check(wheel, ours, theirs)
    else:
        with pytest.raises(SystemExit, match=problem):
            check(wheel, ours, theirs)


@pytest.mark.parametrize(
    "dynamic",
    [
        "",
        DYNAMIC.replace("RPATH", "RUNPATH"),
        DYNAMIC.replace("$ORIGIN", "$ORIGIN:/usr/lib"),
        DYNAMIC.replace("engine", "other"),
    ],
)
def test_an_adapter_must_find_the_engine_in_its_own_folder(check, tmp_path, dynamic):
    with pytest.raises(SystemExit, match=r"expected RPATH \$ORIGIN"):
        check(make_wheel(tmp_path, {}), dynamic=dynamic)


def test_libraries_are_read_by_readelf(checks):
    assert checks.glibc_of(os.path.realpath(sys.executable)) >= (2, 2)


PROGRAM_WITH_A_STREAM = """
#include <iostream>
#include <sstream>
int main() {
  std::ostringstream stream;
  stream << 42;
  std::cout << stream.str();
}
"""


@pytest.mark.parametrize("cxx11_abi", [0, 1])
def test_streams_of_the_wheel_run_on_old_systems(tmp_path, cxx11_abi):
    (tmp_path / "program.cc").write_text(PROGRAM_WITH_A_STREAM)
    header = os.path.join(ROOT, "cudnn_rnn", "cc", "core", "old_systems.h")
    # Without optimization every constructor is a call.
    flags = ["-std=c++14", "-O0", "-D_GLIBCXX_USE_CXX11_ABI=%d" % cxx11_abi, "-include", header]
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.run([*compiler, *flags, "program.cc", "-o", "program"], cwd=tmp_path, check=True)
    assert subprocess.check_output([str(tmp_path / "program")]) == b"42"
    assert b"GLIBCXX_3.4.26" not in (tmp_path / "program").read_bytes()  # of g++ 9
