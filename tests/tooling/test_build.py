"""The build: descriptions of TensorFlow, flags, and the errors of a build that cannot succeed.

Nothing is compiled here: CMake only says what it would run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.processes import run_setup
from helpers.scripts import load_program

pytestmark = pytest.mark.once


def tensorflow_answer(version="2.21.0", flags=("--std=c++17",)):
    """Returns the build settings of a TensorFlow, in the form that `_TENSORFLOW_QUERY` writes."""
    folder = "/tensorflow-%s" % version
    return {
        "version": version,
        "git_version": "v" + version,
        "cxx11_abi": 1,
        "library_folder": folder,
        "compile_flags": ["-I%s/include" % folder, "-D_GLIBCXX_USE_CXX11_ABI=1", *flags],
        "link_flags": ["-L" + folder, "-l:libtensorflow_framework.so.2"],
    }


@pytest.fixture
def support(monkeypatch):
    """Returns the module build_support, without variables of this environment."""
    for name in ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "CUDNN_RNN_TENSORFLOWS"):
        monkeypatch.delenv(name, raising=False)
    return load_program(os.path.join(ROOT, "build_support.py"))


@pytest.fixture
def configure(support, tmp_path):
    """Returns a function that configures a build for a description.

    The function returns CMake's exit status and output, and the command of each object by name.
    """

    def run(description, *options):
        path = tmp_path / "tensorflow.json"
        path.write_text(json.dumps(description))
        build = tmp_path / "build"
        command = [support._find_program("cmake"), "-S", ROOT, "-B", str(build), "-G", "Ninja"]
        command += ["-DCMAKE_MAKE_PROGRAM=" + support._find_program("ninja")]
        command += ["-DCUDNN_RNN_TENSORFLOWS=%s" % path, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
        process = subprocess.run(
            command + list(options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        commands = {}
        if process.returncode == 0:
            for entry in json.loads((build / "compile_commands.json").read_text()):
                target = re.search(r" -o CMakeFiles/([^/]+)\.dir/", entry["command"]).group(1)
                name = "%s/%s" % (target, os.path.basename(entry["file"]))
                commands[name] = entry["command"]
        return process.returncode, process.stdout, commands

    return run


@pytest.mark.parametrize(
    "version, flags, expected",
    [
        ("1.14.0", [], 14),
        ("1.15.5", [], 14),
        ("2.9.3", [], 14),
        ("2.10.1", [], 17),
        ("2.21.0", ["--std=c++17"], 17),
        ("2.30.0", ["-std=c++20"], 20),
        ("local", [], 17),
    ],
)
def test_standard_is_the_one_of_tensorflow(support, version, flags, expected):
    description = support.describe_tensorflow(tensorflow_answer(version, flags))
    assert description["cxx_standard"] == expected


def test_description_of_a_tensorflow(support):
    flags = ["--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"]
    description = support.describe_tensorflow(tensorflow_answer(flags=flags))
    assert description["definitions"] == ["EIGEN_MAX_ALIGN_BYTES=64"]
    assert description["include_folders"] == ["/tensorflow-2.21.0/include"]
    assert description["library"] == "/tensorflow-2.21.0/libtensorflow_framework.so.2"


@pytest.mark.parametrize("version, adapter", [("1.15.5", "1.15"), ("2.3.0-dev", "2.3"), ("x", "x")])
def test_flags_of_the_adapter_and_the_engine(support, configure, monkeypatch, version, adapter):
    monkeypatch.setenv("CXXFLAGS", "-O1 -DFROM_USER='a b'")
    flags = ["--std=c++20", "-DEIGEN_MAX_ALIGN_BYTES=64"]
    description = support.describe_tensorflow(tensorflow_answer(version, flags))
    status, printed, commands = configure(description)
    assert status == 0, printed
    target = "ops_tf%s_abi1" % adapter
    assert support.adapter_name(description) == target + ".so"
    for source in ("adapter.cc", "rnn_plan.cc"):
        command = commands["%s/%s" % (target, source)]
        for flag in ("EIGEN_MAX_ALIGN_BYTES=64", "_GLIBCXX_USE_CXX11_ABI=1"):
            assert " -D%s " % flag in command
        assert " -std=c++20 " in command
        assert " -isystem /tensorflow-%s/include " % version in command
    engine = commands["cpu/gemm.cc"]
    assert " -std=c++14 " in engine and "tensorflow" not in engine
    for command in (engine, commands[target + "/adapter.cc"]):
        assert command.index(" -O3 ") < command.index(" -O1 -DFROM_USER='a b' ")
    assert not any("old_systems.h" in command for command in commands.values())


def test_wheels_are_compiled_for_old_systems(support, configure):
    description = support.describe_tensorflow(tensorflow_answer())
    status, printed, commands = configure(description, "-DCUDNN_RNN_OLD_SYSTEMS=ON")
    assert status == 0, printed
    for command in commands.values():
        assert " -include cudnn_rnn/cc/core/old_systems.h " in command


def test_a_description_of_another_machine_is_refused(support, configure):
    description = support.describe_tensorflow(tensorflow_answer())
    description["machine"] = "s390x"
    status, printed, _ = configure(description)
    text = " ".join(printed.split())
    assert status != 0
    assert re.search(r"tensorflow\.json describes a TensorFlow for s390x, but this build", text)


def test_a_file_that_describes_no_tensorflow_is_refused(configure):
    status, printed, _ = configure({"version": "2.21.0"})
    assert status != 0
    assert "does not describe a TensorFlow" in " ".join(printed.split())


def test_a_missing_description_is_refused(support, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDNN_RNN_TENSORFLOWS", "/no/such.json")
    with pytest.raises(SystemExit, match="CUDNN_RNN_TENSORFLOWS names /no/such.json, but there is"):
        support.build_libraries(str(tmp_path / "out"), str(tmp_path / "build"))


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_a_missing_program_is_named(support, monkeypatch, tmp_path, name):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SystemExit, match="(?s)program %s was found neither.*pip install cmake ninja" % name
    ):
        support._find_program(name)


def test_programs_of_the_environment_come_first(support, monkeypatch, tmp_path):
    program = tmp_path / "bin" / "cmake"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert support._find_program("cmake") == str(program)


@pytest.mark.parametrize("version", ["1.13.2", "1.4.0", "0.12.1"])
def test_old_tensorflow_is_refused_before_anything_is_compiled(tmp_path, version):
    (tmp_path / "tensorflow.py").write_text("__version__ = %r\n" % version)
    status, printed = run_setup("build_ext", PYTHONPATH=str(tmp_path), CUDNN_RNN_TENSORFLOWS=None)
    assert status != 0
    (line,) = printed.strip().splitlines()
    assert re.search(r"works with TensorFlow 1\.14 to \d\.\d+, but .* has TensorFlow", line)
    assert version in line


@pytest.mark.parametrize("version", ["1.14.0", "1.15.0", "2.0.0", "2.21.0", "2.22.0-dev", "local"])
def test_other_versions_are_not_refused(support, version):
    assert support._read_version_file()["tensorflow_problem"](version) is None


def test_other_platforms_are_refused(support, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match="works only on Linux, but this platform is darwin"):
        support.build_libraries(str(tmp_path / "out"), str(tmp_path / "build"))


def test_failing_commands_are_shown(support):
    with pytest.raises(SystemExit, match="(?s)compiling failed:\nsh -c .*Killed.*Set MAX_JOBS=1"):
        support._run(["sh", "-c", "echo c++: fatal error: Killed signal; exit 1"], "compiling")
    with pytest.raises(SystemExit) as raised:
        support._run(["sh", "-c", "echo a.cc:1: error; exit 1"], "compiling")
    assert "a.cc:1: error" in str(raised.value) and "MAX_JOBS" not in str(raised.value)


@pytest.mark.parametrize(
    "arguments, problem",
    [
        (["make", "release", "core_test"], "the command is 'make'; expected build, path or test"),
        (["build", "release"], "build needs a preset and a target"),
        (["test", "fast", "core_test"], "the preset is 'fast'; expected one of: release "),
    ],
)
def test_wrong_arguments_of_cpp_sh_are_named(arguments, problem):
    process = subprocess.run(
        ["bash", os.path.join(ROOT, "scripts", "cpp.sh"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    assert process.returncode != 0
    assert problem in process.stdout


def test_bazel_and_cmake_have_the_same_flags_and_sources():
    cmake, bazel = [
        Path(ROOT, *path).read_text(encoding="utf-8")
        for path in (("cmake", "compiler.cmake"), ("BUILD",))
    ]
    flags = re.search(r"set\(compile_flags\s+(.*?)\)", cmake, re.DOTALL).group(1).split()
    in_bazel = re.search(r"COMPILE_FLAGS = \[(.*?)\]", bazel, re.DOTALL).group(1)
    assert re.findall('"(.*?)"', in_bazel) == flags
    adapters = Path(ROOT, "cmake", "adapters.cmake").read_text(encoding="utf-8")
    shared = re.search(r"foreach\(name (.*?)\)", adapters).group(1).split()
    in_bazel = re.search(r"for name in \[(.*?)\]", bazel, re.DOTALL).group(1)
    assert re.findall('"(.*?)"', in_bazel) == shared
