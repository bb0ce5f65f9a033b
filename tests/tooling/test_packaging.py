"""What pip built and installed, and the errors of a build that cannot succeed."""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from cudnn_rnn._native import library
from helpers.paths import ROOT


def run_setup(*arguments, **environment):
    """Runs setup.py in the checkout; returns (exit status, output)."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "setup.py"] + list(arguments),
        cwd=ROOT,
        env=dict(os.environ, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return process.returncode, process.stdout


def library_content():
    with open(library.library_path(), "rb") as file:
        return file.read()


@pytest.fixture(scope="module")
def metadata_folder():
    """Returns the .dist-info folder of the installed package."""
    folders = glob.glob(os.path.dirname(library.library_path()) + "-*.dist-info")
    if not folders:
        pytest.skip("cudnn_rnn is not installed by a plain `pip install --no-build-isolation .`")
    return folders[0]


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def test_wheel_is_for_this_platform_and_interpreter(metadata_folder):
    wheel = read(metadata_folder, "WHEEL")
    assert "Root-Is-Purelib: false" in wheel
    (tag,) = re.findall("^Tag: (.+)$", wheel, re.MULTILINE)
    assert tag.startswith("cp%d%d-" % sys.version_info[:2])
    assert not tag.endswith("-any")


def test_wheel_holds_the_package_and_nothing_else(metadata_folder):
    names = [line.split(",")[0] for line in read(metadata_folder, "RECORD").splitlines()]
    names = [name for name in names if "__pycache__" not in name and ".dist-info/" not in name]
    assert "cudnn_rnn/_cudnn_rnn_ops.so" in names
    assert "cudnn_rnn/_build_info.json" in names
    assert "cudnn_rnn/py.typed" in names
    expected = re.compile(r"cudnn_rnn/(\w+/)*\w+\.(py|so|json|typed)$")
    wrong = [name for name in names if not expected.match(name)]
    assert wrong == []


def test_runtime_dependencies_are_numpy_and_the_tensorflow_of_the_environment(metadata_folder):
    lines = re.findall("^Requires-Dist: (.+)$", read(metadata_folder, "METADATA"), re.MULTILINE)
    assert [line for line in lines if "extra" not in line] == ["numpy"]


def test_library_and_build_info_hold_no_path_of_the_machine_that_built_them():
    content = library_content()
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
    with open(os.path.join(os.path.dirname(library.library_path()), "_build_info.json")) as file:
        text = file.read()
    assert "/" not in text and "\\" not in text


def test_library_has_no_run_path():
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    dynamic = subprocess.check_output(["readelf", "-d", library.library_path()]).decode()
    assert "NEEDED" in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_kernels_of_the_installed_library_run():
    """A library compiled with hidden symbols still registers every kernel."""
    ops = gen_cudnn_rnn_ops
    attributes = {"rnn_mode": "gru", "input_mode": "linear_input", "direction": "bidirectional"}
    with tf.Graph().as_default(), tf.Session() as session:
        size = ops.cudnn_rnn_params_size(
            num_layers=2, num_units=5, input_size=3, T=tf.float32, S=tf.int32, **attributes
        )
        params = tf.random_uniform([tf.reshape(size, [])], seed=1)
        result = ops.cudnn_rnn(
            tf.ones([4, 2, 3]), tf.ones([4, 2, 5]), [], params, is_training=False, **attributes
        )
        output, output_h = session.run([result.output, result.output_h])
    assert output.shape == (4, 2, 10) and output_h.shape == (4, 2, 5)
    np.testing.assert_array_equal(output[-1, :, :5], output_h[2])


def test_source_distribution_builds_elsewhere(tmp_path):
    """The source distribution has every file that the build reads, and no build output."""
    (tmp_path / "egg").mkdir()
    status, printed = run_setup(
        *["-q", "egg_info", "--egg-base", str(tmp_path / "egg")],
        *["sdist", "--formats=gztar", "--dist-dir", str(tmp_path)],
    )
    assert status == 0, printed
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(str(archive)) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    lists = {}
    with open(os.path.join(ROOT, "cudnn_rnn", "cc", "sources.bzl")) as file:
        exec(file.read(), {}, lists)
    needed = {
        "cudnn_rnn/cc/" + path
        for name in lists
        if name.endswith(("_SOURCES", "HEADERS"))
        for path in lists[name]
    }
    needed |= {"cudnn_rnn/cc/sources.bzl", "cudnn_rnn/__init__.py", "cudnn_rnn/_native/library.py"}
    needed |= {"cudnn_rnn/py.typed"}
    needed |= {"setup.py", "build_cache.py", "build_support.py", "pyproject.toml"}
    needed |= {"README.md", "LICENSE"}
    assert needed - names == set()
    built = [name for name in names if re.search(r"\.(so|o|pyc)$|_build_info|^build/", name)]
    assert built == []


def test_build_without_tensorflow_says_what_to_install(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'tensorflow'\")"
    )
    status, printed = run_setup("-q", "build_ext", PYTHONPATH=str(tmp_path))
    assert status != 0
    assert "pip install setuptools wheel tensorflow==" in printed
    assert "pip install --no-build-isolation ." in printed
    assert "No module named 'tensorflow'" in printed
    assert "Traceback" not in printed


def test_build_without_compiler_says_what_to_install(tmp_path):
    status, printed = run_setup("-q", "build_ext", CXX="no-such-compiler -x")
    assert status != 0
    assert "CXX is 'no-such-compiler -x'" in printed and "apt-get install g++" in printed
    assert "Traceback" not in printed
    status, printed = run_setup("-q", "build_ext", CXX="", PATH=str(tmp_path))
    assert status != 0
    assert "neither c++ nor g++ is on PATH" in printed
    assert "Traceback" not in printed


def test_build_with_a_broken_compiler_shows_its_output(tmp_path):
    compiler = tmp_path / "broken-compiler"
    compiler.write_text("#!/bin/sh\necho 'cannot execute cc1plus' >&2\nexit 1\n")
    compiler.chmod(0o755)
    status, printed = run_setup("-q", "build_ext", CXX=str(compiler))
    assert status != 0
    assert "cannot execute cc1plus" in printed and "apt-get install g++" in printed
    assert "Traceback" not in printed


def test_one_version_everywhere(metadata_folder):
    assert "\nVersion: %s\n" % cudnn_rnn.__version__ in read(metadata_folder, "METADATA")
    assert library.build_info()["cudnn_rnn"] == cudnn_rnn.__version__
