"""What pip built and installed, and the errors of a build that cannot succeed."""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import library
from helpers.paths import ROOT
from helpers.processes import importable, output_of, run_setup

pytestmark = [pytest.mark.once, pytest.mark.ci]


@pytest.fixture(scope="module")
def metadata_folder():
    """Returns the .dist-info folder of the installed package."""
    package = os.path.dirname(os.path.dirname(library.library_path()))
    folders = glob.glob(package + "-*.dist-info")
    if not folders:
        pytest.skip("cudnn_rnn is not installed by a plain `pip install --no-build-isolation .`")
    return folders[0]


def read(folder, name):
    return Path(folder, name).read_text(encoding="utf-8")


def test_wheel_is_for_this_platform_and_any_python(metadata_folder):
    wheel = read(metadata_folder, "WHEEL")
    assert "Root-Is-Purelib: false" in wheel
    (tag,) = re.findall("^Tag: (.+)$", wheel, re.MULTILINE)
    assert re.match(r"py3-none-(many)?linux_\w+$", tag)


def test_wheel_holds_the_package_and_nothing_else(metadata_folder):
    names = [line.split(",")[0] for line in read(metadata_folder, "RECORD").splitlines()]
    names = [name for name in names if "__pycache__" not in name and ".dist-info/" not in name]
    assert "cudnn_rnn/_libraries/libcudnn_rnn_engine.so" in names
    assert "cudnn_rnn/_libraries/build_info.json" in names
    assert "cudnn_rnn/py.typed" in names
    expected = re.compile(
        r"cudnn_rnn/(_libraries/(ops_tf[\w.]+\.so|libcudnn_rnn_engine\.so|build_info\.json)"
        r"|(\w+/)*\w+\.py|py\.typed)$"
    )
    wrong = [name for name in names if not expected.match(name)]
    assert wrong == []


def test_runtime_dependencies_are_numpy_and_the_tensorflow_of_the_environment(metadata_folder):
    lines = re.findall("^Requires-Dist: (.+)$", read(metadata_folder, "METADATA"), re.MULTILINE)
    assert [line for line in lines if "extra" not in line] == ["numpy"]


def test_no_extra_replaces_tensorflow(metadata_folder):
    """Each tf_keras requires its own TensorFlow, so pip would install that one."""
    lines = re.findall("^Requires-Dist: (.+)$", read(metadata_folder, "METADATA"), re.MULTILINE)
    found = {re.split(r"[ ;]", line)[0].replace("-", "_") for line in lines}
    assert "tf_slim" in found
    assert not {name for name in found if "tensorflow" in name or "keras" in name}


def test_library_and_build_info_hold_no_path_of_the_machine_that_built_them():
    libraries = Path(library.library_path()).parent
    content = b"".join(path.read_bytes() for path in libraries.glob("*.so"))
    for folder in {
        ROOT,
        sys.prefix,
        sys.base_prefix,
        os.path.expanduser("~"),
        tf.sysconfig.get_include(),
        sysconfig.get_paths()["purelib"],
        "/tmp/",
        "/home/",
        "site-packages",
        "cudnn_rnn_build",
    }:
        if folder != "/":
            assert os.fsencode(folder) not in content, folder
    text = read(str(libraries), "build_info.json")
    assert "/" not in text and "\\" not in text


def test_adapters_find_the_engine_only_beside_them():
    """DT_RPATH comes before LD_LIBRARY_PATH, unlike DT_RUNPATH."""
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    folder = os.path.dirname(library.library_path())
    for name in os.listdir(folder):
        if name.endswith(".so"):
            dynamic = subprocess.check_output(
                ["readelf", "-d", os.path.join(folder, name)]
            ).decode()
            needs_engine = "[libcudnn_rnn_engine.so]" in re.sub(r".*SONAME.*", "", dynamic)
            assert needs_engine == name.startswith("ops_tf")
            assert re.findall(r"(R\w*PATH).*\[(.*)\]", dynamic) == [
                ("RPATH", "$ORIGIN")
            ] * name.startswith("ops_tf")


def make_source_distribution(folder):
    (folder / "egg").mkdir()
    status, printed = run_setup(
        *["egg_info", "--egg-base", str(folder / "egg")],
        *["sdist", "--formats=gztar", "--dist-dir", str(folder)],
    )
    assert status == 0, printed
    (archive,) = folder.glob("*.tar.gz")
    return str(archive)


def test_source_distribution_has_what_the_build_reads(tmp_path):
    """It has every such file, and no build output."""
    with tarfile.open(make_source_distribution(tmp_path)) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    root = Path(ROOT)
    needed = {
        str(path.relative_to(root))
        for folder in ("cmake", "cudnn_rnn/cc")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    needed |= {"CMakeLists.txt", "cudnn_rnn/__init__.py", "cudnn_rnn/_native/library.py"}
    needed |= {"setup.py", "build_support.py", "pyproject.toml"}
    needed |= {"README.md", "LICENSE", "SECURITY.md", "cudnn_rnn/py.typed"}
    assert needed - names == set()
    built = [name for name in names if re.search(r"\.(so|o|pyc)$|/build_info|^build/", name)]
    assert built == []


def assert_build_fails(*parts, **environment):
    status, printed = run_setup("build_ext", CUDNN_RNN_TENSORFLOWS=None, **environment)
    assert status != 0
    for part in parts:
        assert part in printed, printed
    assert "Traceback" not in printed


def test_build_without_tensorflow_says_what_to_install(tmp_path):
    missing = "No module named 'tensorflow'"
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError(%r)" % missing)
    parts = (
        "pip install setuptools wheel cmake ninja tensorflow==",
        "install --no-build-isolation .",
    )
    assert_build_fails(missing, *parts, PYTHONPATH=str(tmp_path))


@pytest.mark.release
def test_build_without_compiler_says_what_to_install(tmp_path):
    parts = "CXX is 'no-such-compiler -x'", "apt-get install g++"
    assert_build_fails(*parts, CXX="no-such-compiler -x")
    assert_build_fails("neither c++ nor g++ is on PATH", CXX="", PATH=str(tmp_path))


@pytest.mark.sampled(4)
def test_build_with_a_broken_compiler_shows_its_output(tmp_path):
    compiler = tmp_path / "broken-compiler"
    compiler.write_text("#!/bin/sh\necho 'cannot execute cc1plus' >&2\nexit 1\n")
    compiler.chmod(0o755)
    assert_build_fails("cannot execute cc1plus", "apt-get install g++", CXX=str(compiler))


def test_version_is_plain(metadata_folder):
    """A public index accepts no version with a label such as +tf2.21."""
    (version,) = re.findall("^Version: (.+)$", read(metadata_folder, "METADATA"), re.MULTILINE)
    assert version == cudnn_rnn.__version__ == library.build_info()["cudnn_rnn"]


def clone_repository(folder):
    subprocess.check_call(["git", "clone", "--quiet", ROOT, str(folder / "clone")])
    return "git+file://%s" % (folder / "clone")


@pytest.mark.release
@pytest.mark.parametrize("make_source", [clone_repository, make_source_distribution])
def test_pip_installs_from(tmp_path, make_source):
    target = tmp_path / "target"
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--target", target]
    output_of("-m", "pip", "install", *options, make_source(tmp_path))
    (metadata,) = target.glob("cudnn_rnn-*.dist-info")
    assert metadata.name == "cudnn_rnn-%s.dist-info" % cudnn_rnn.__version__
    code = "import cudnn_rnn; print(cudnn_rnn.library_path())"
    printed = output_of("-c", code, folder=tmp_path, PYTHONPATH=importable(target))
    assert printed.strip().startswith(str(target))
