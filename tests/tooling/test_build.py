"""The build of the op library: flags, refused TensorFlow versions, the cache of objects, progress.

The builds here run on a copy of the sources, with a mock compiler that logs its command lines.
"""

import concurrent.futures
import os
import re
import shutil
import sys

import pytest

from helpers.paths import ROOT
from helpers.processes import run_setup
from helpers.scripts import load_program

pytestmark = pytest.mark.once

COMPILER = """#!/bin/sh
case "$*" in --version) echo "stand-in ${COMPILER_VERSION:-1.2.3}"; exit ;; esac
echo "$*" >> "$COMPILER_LOG"
case "$*" in *"$COMPILER_WARNS_OF -o"*) echo "a warning" ;; esac
while [ "$1" != -o ]; do shift; done
echo "object $$" > "$2"
"""


def tensorflow_answer(version="2.21.0", flags=("-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17")):
    """Returns the build settings of a TensorFlow, in the form that `_TENSORFLOW_QUERY` writes."""
    folder = "/tensorflow-%s/include" % version
    return {
        "version": version,
        "git_version": "v" + version,
        "cxx11_abi": 1,
        "include_folder": folder,
        "library_folder": "/tensorflow-%s" % version,
        "compile_flags": ["-I" + folder, *flags],
        "link_flags": ["-l:libtensorflow_framework.so.2"],
    }


class Project:
    """A copy of the sources and of the modules that build them."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._runs = 0
        self._log = folder.parent / "compiler.log"
        shutil.copytree(os.path.join(ROOT, "cudnn_rnn", "cc"), str(folder / "cudnn_rnn" / "cc"))
        shutil.copy(os.path.join(ROOT, "cudnn_rnn", "_version.py"), str(folder / "cudnn_rnn"))
        for name in ("build_cache", "build_support"):
            path = shutil.copy(os.path.join(ROOT, name + ".py"), str(folder))
            monkeypatch.setitem(sys.modules, name, load_program(path))
        self.support = sys.modules["build_support"]
        self.cache = sys.modules["build_cache"]
        self._choose_sources()
        self.all_sources = set(self.support.library_sources())
        self.tensorflow_sources = set(self.support.library_sources(["TF_SOURCES"]))
        self._set_up_compiler()

    def _choose_sources(self):
        """Keeps a few sources per list, because each call of the mock compiler is a process."""
        lists = {name: paths[-3:] for name, paths in self.support.read_build_lists().items()}
        lists["CORE_SOURCES"] = ["core/param_layout.cc", "core/team.cc"]
        lists["CPU_SOURCES"] = ["cpu/forward_pass.cc", "cpu/gemm.cc"]
        text = "".join("%s = %r\n" % (name, value) for name, value in lists.items())
        (self.folder / "cudnn_rnn" / "cc" / "sources.bzl").write_text(text)

    def _set_up_compiler(self):
        self.write_compiler(COMPILER)
        variables = {
            "CXX": self.folder.parent / "stand-in",
            "COMPILER_LOG": self._log,
            "COMPILER_WARNS_OF": "nothing",
            "XDG_CACHE_HOME": self.folder.parent / "user-cache",
        }
        for name, value in variables.items():
            self._monkeypatch.setenv(name, str(value))
        for name in ("CXXFLAGS", "LDFLAGS", self.cache.FOLDER_VARIABLE):
            self._monkeypatch.delenv(name, raising=False)

    def write_compiler(self, text):
        path = self.folder.parent / "stand-in"
        path.write_text(text)
        path.chmod(0o755)

    @property
    def cache_folder(self):
        return self.folder.parent / "user-cache" / "cudnn_rnn" / "objects"

    def build(self, **answer):
        """Builds the library; returns the set of sources that the compiler compiled."""
        tensorflow = self.support.TensorFlow(tensorflow_answer(**answer))
        self._monkeypatch.setattr(self.support, "find_tensorflow", lambda: tensorflow)
        self._runs += 1
        folder = self.folder.parent / ("build%d" % self._runs)
        self._log.write_text("")
        self.support.build_library(str(folder / "out" / "ops.so"), str(folder / "objects"))
        assert {path.name for path in (folder / "out").iterdir()} == {"ops.so", "_build_info.json"}
        return set(re.findall(r"-c (\S+)", self._log.read_text()))

    def change(self, path):
        path = self.folder / "cudnn_rnn" / "cc" / path
        path.write_text(path.read_text() + "// changed\n")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "project" / "cudnn_rnn").mkdir(parents=True)
    return Project(tmp_path / "project", monkeypatch)


@pytest.mark.parametrize(
    "version, flags, expected",
    [
        ("1.14.0", [], "-std=c++14"),
        ("1.15.5", [], "-std=c++14"),
        ("2.9.3", [], "-std=c++14"),
        ("2.10.1", [], "-std=c++17"),
        ("2.21.0", ["--std=c++17"], "--std=c++17"),
        ("2.30.0", ["-std=c++20"], "-std=c++20"),
    ],
)
def test_standard_is_the_one_of_tensorflow(project, version, flags, expected):
    tensorflow = project.support.TensorFlow(tensorflow_answer(version, flags))
    for flags_of in (project.support.compile_flags, project.support.core_compile_flags):
        standards = [flag.lstrip("-") for flag in flags_of(tensorflow) if "std=" in flag]
        assert standards == [expected.lstrip("-")]


def test_flags_of_the_user_come_last(project, monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1 -DFROM_USER='a b'")
    tensorflow = project.support.TensorFlow(tensorflow_answer())
    assert project.support.compile_flags(tensorflow)[-2:] == ["-O1", "-DFROM_USER=a b"]
    assert project.support.core_compile_flags(tensorflow)[-2:] == ["-O1", "-DFROM_USER=a b"]


@pytest.mark.parametrize("version", ["1.13.2", "1.4.0", "0.12.1"])
def test_old_tensorflow_is_refused_before_anything_is_compiled(project, tmp_path, version):
    (tmp_path / "tensorflow.py").write_text("__version__ = %r\n" % version)
    status, printed = run_setup("build_ext", PYTHONPATH=str(tmp_path))
    assert status != 0
    (line,) = printed.strip().splitlines()
    assert re.search(r"works with TensorFlow 1\.14 to \d\.\d+, but .* has TensorFlow", line)
    assert version in line
    assert not os.path.exists(os.environ["COMPILER_LOG"])


@pytest.mark.parametrize("version", ["1.14.0", "1.15.0", "2.0.0", "2.21.0", "2.22.0-dev", "local"])
def test_other_versions_are_not_refused(project, version):
    assert project.support._read_version_file()["tensorflow_problem"](version) is None


def test_second_build_compiles_only_sources_with_tensorflow_headers(project, capsys):
    assert project.build() == project.all_sources
    first = capsys.readouterr().out
    again = project.build(version="2.16.2")
    assert again == project.tensorflow_sources
    second = capsys.readouterr().out
    count = len(project.all_sources)
    width = len(str(count))
    assert "[%*d/%d] cudnn_rnn/cc/" % (width, 1, count) in first
    assert "[%d/%d] cudnn_rnn/cc/" % (count, count) in first
    assert "cached by an earlier build" not in first
    from_cache = count - len(project.tensorflow_sources)
    assert second.count(" (cached by an earlier build)\n") == from_cache


@pytest.mark.parametrize(
    "flags, share_objects",
    [
        (["-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64", "-std=c++17"], True),
        (["-D_GLIBCXX_USE_CXX11_ABI=0", "--std=c++17"], False),
        (["-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++14"], False),
        (["-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DSOMETHING"], False),
    ],
)
def test_other_flags_of_tensorflow_compile_everything(project, flags, share_objects):
    """Spellings of the same standard share the cached objects."""
    project.build()
    if not share_objects:
        assert project.build(flags=flags) == project.all_sources
    assert project.build(flags=flags) == project.tensorflow_sources


PORTABLE_FLAGS = ["-O2", "-march=x86-64-v3", "-O2 -pipe", "-fno-plt -g", "-Wno-unused"]


@pytest.mark.parametrize(
    "name, value",
    [("COMPILER_VERSION", "2.0"), ("CPATH", "/elsewhere")]
    + [("CXXFLAGS", flag) for flag in PORTABLE_FLAGS],
)
def test_another_compiler_or_flag_compiles_everything_once(project, monkeypatch, name, value):
    project.build()
    monkeypatch.setenv(name, value)
    assert project.build() == project.all_sources
    assert project.build() == project.tensorflow_sources


UNPORTABLE_FLAGS = "-march=native", "-include /some/file", "-fprofile-use", "@file", "-Wp,-MD,file"


@pytest.mark.parametrize(
    "name, value",
    [("CXXFLAGS", flags) for flags in UNPORTABLE_FLAGS]
    + [("CUDNN_RNN_BUILD_CACHE", folder) for folder in ("off", "file/cache", "link/cache")],
)
def test_the_cache_is_not_used(project, monkeypatch, tmp_path, name, value):
    """Flags that depend on the machine, and folders that cannot be made, disable the cache."""
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "link").symlink_to(str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    for _ in range(2):
        assert project.build() == project.all_sources
    assert not project.cache_folder.exists()


def test_the_cpp_tests_take_objects_of_the_package(project, tmp_path):
    definitions = ["-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"]
    project.build(flags=definitions)
    flags = project.support.core_compile_flags()
    for compiler_flags, is_cached in ((flags, True), ([*flags, "-fsanitize=address"], False)):
        core = project.support.CoreCompiler(project.support.find_compiler(), compiler_flags)
        line = core.compile("cudnn_rnn/cc/core/team.cc", str(tmp_path / "team.o"))
        assert (tmp_path / "team.o").exists()
        assert line.endswith("(cached by an earlier build)") == is_cached


def test_changed_files_are_compiled_again(project):
    project.build()
    project.change("cpu/forward_pass.cc")
    changed = {"cudnn_rnn/cc/cpu/forward_pass.cc"}
    assert project.build() == project.tensorflow_sources | changed
    for header in ("core/status.h", "cpu/cells.inc", "cudnn/cudnn_types.h"):
        project.change(header)
        assert project.build() == project.all_sources
    project.change("tf/compat.h")
    assert project.build() == project.tensorflow_sources


def test_a_source_with_warnings_is_compiled_and_shown_every_time(project, monkeypatch, capsys):
    monkeypatch.setenv("COMPILER_WARNS_OF", "cpu/gemm.cc")
    expected = project.tensorflow_sources | {"cudnn_rnn/cc/cpu/gemm.cc"}
    project.build()
    capsys.readouterr()
    assert project.build() == expected
    assert "cudnn_rnn/cc/cpu/gemm.cc\na warning\n" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 1000])
def test_damaged_objects_are_compiled_again(project, content):
    project.build()
    for path in project.cache_folder.iterdir():
        path.write_bytes(content)
    assert project.build() == project.all_sources
    assert project.build() == project.tensorflow_sources


def test_environment_variable_moves_the_cache(project, monkeypatch, tmp_path):
    monkeypatch.setenv(project.cache.FOLDER_VARIABLE, str(tmp_path / "elsewhere"))
    project.build()
    assert project.build() == project.tensorflow_sources
    assert not project.cache_folder.exists()
    objects = list((tmp_path / "elsewhere").iterdir())
    assert len(objects) == len(project.all_sources - project.tensorflow_sources)


def test_cache_keeps_recently_used_objects(project, tmp_path):
    cache = project.cache.ObjectCache(str(tmp_path / "objects"), max_bytes=3500)
    for number in range(5):
        (tmp_path / "object").write_bytes(b"%d" % number * 1000)
        cache.store("key%d" % number, str(tmp_path / "object"))
        os.utime(str(tmp_path / "objects" / ("key%d" % number)), (number, number))
    assert cache.load("key0", str(tmp_path / "loaded"))  # used now
    cache.remove_least_recently_used()
    assert {path.name for path in (tmp_path / "objects").iterdir()} == {"key0", "key3", "key4"}
    assert cache.load("key3", str(tmp_path / "loaded"))
    assert (tmp_path / "loaded").read_bytes() == b"3" * 1000
    assert not cache.load("key1", str(tmp_path / "loaded"))


def test_cache_is_shared_by_builds_at_the_same_time(project, tmp_path):
    """A loaded object is always complete, while other builds store and remove the same keys."""
    cache = project.cache.ObjectCache(str(tmp_path / "objects"), max_bytes=100000)

    def store_and_load(name):
        for number in range(100):
            key = "key%d" % (number % 5)
            (tmp_path / name).write_bytes(key.encode() * 9000)
            cache.store(key, str(tmp_path / name))
            cache.remove_least_recently_used()
            if cache.load(key, str(tmp_path / name)):
                assert (tmp_path / name).read_bytes() == key.encode() * 9000

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(store_and_load, ["file%d" % i for i in range(4)]))
    assert all(path.name.startswith("key") for path in (tmp_path / "objects").iterdir())


def test_a_file_that_changes_while_it_is_compiled_is_not_kept(project, monkeypatch):
    header = "cudnn_rnn/cc/core/status.h"
    changes = 'case "$*" in *core/team.cc*) echo "// changed" >> %s ;; esac\n' % header
    monkeypatch.setenv("MAX_JOBS", "1")
    project.write_compiler(COMPILER.replace("while", changes + "while"))
    project.build()
    shutil.copy(os.path.join(ROOT, header), str(project.folder / header))
    project.write_compiler(COMPILER)
    compiled = project.build()
    assert "cudnn_rnn/cc/core/team.cc" in compiled
    assert "cudnn_rnn/cc/core/param_layout.cc" not in compiled


def test_other_platforms_are_refused(project, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit, match="works only on Linux, but this platform is darwin"):
        project.build()


@pytest.mark.parametrize(
    "message, advice", [("", ""), ("c++: fatal error: Killed signal", "memory ran out. Set MAX_")]
)
def test_a_source_that_does_not_compile_ends_the_build(project, monkeypatch, message, advice):
    monkeypatch.setenv("MAX_JOBS", "1")
    fails = 'case "$*" in *rnn_model*) echo "%s"; exit 1 ;; esac\n' % message
    project.write_compiler(COMPILER.replace("while", fails + "while"))
    with pytest.raises(SystemExit, match="(?s)compiling .*/rnn_model.cc failed.*" + advice):
        project.build()
