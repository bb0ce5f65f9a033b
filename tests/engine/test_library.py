"""Finding, checking and loading the op library once, or raising a readable ImportError.

Every case runs in its own process on a modified copy of the installed package.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import library
from helpers import processes

REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps "

# Imports the package from each given folder in one process: a failing import loads nothing, so it
# does not affect the next one. Other copies of the package are hidden.
IMPORT_ALL = """
import json, os, sys
import tensorflow
sys.path[:] = [entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "cudnn_rnn"))]
outcomes = {}
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    try:
        import cudnn_rnn
        outcomes[folder] = ["imported", ""]
    except Exception as error:
        outcomes[folder] = [type(error).__name__, str(error)]
    sys.path.remove(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]
print("OUTCOMES" + json.dumps(outcomes))
"""

# Loads the library in several ways and prints how many kernels are registered after each, and the
# paths of the libraries that checkouts use. Arguments: a package that loads nothing by itself, a
# complete package, and pairs of a checkout and an installed package.
LOAD_REPEATEDLY = """
import importlib, json, sys, threading
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels
from tensorflow.python.ops import gen_cudnn_rnn_ops

def count_cpu_kernels():
    found = kernels.get_registered_kernels_for_op("CudnnRNNParamsSize").kernel
    types = [(kernel.label, tuple(kernel.constraint[0].allowed_values.list.type))
             for kernel in found if kernel.device_type == "CPU"]
    assert types, "no CPU kernel"
    assert len(types) == len(set(types)), "registered twice: %s" % types
    return len(types)

def run_an_op():
    with tf.Graph().as_default(), tf.Session() as session:
        size = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
            num_layers=1, num_units=100, input_size=20, T=tf.float32, S=tf.int32, rnn_mode="lstm")
        assert session.run(size).tolist() == [48800]

def load_in_threads(library):
    barrier, problems = threading.Barrier(8), []
    def load():
        barrier.wait()
        try:
            library.load_library()
        except BaseException as error:
            problems.append(error)
    threads = [threading.Thread(target=load) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not problems, problems

def forget_the_package():
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]

counts, (bare, complete, *checkouts) = {}, sys.argv[1:]
sys.path.insert(0, bare)
from cudnn_rnn._native import library
load_in_threads(library)
counts["first load, in threads"] = count_cpu_kernels()
run_an_op()
sys.path.remove(bare)
forget_the_package()
import cudnn_rnn
from cudnn_rnn._native import library
counts["import"] = count_cpu_kernels()
importlib.reload(library)
importlib.reload(cudnn_rnn)
load_in_threads(library)
counts["reload and threads"] = count_cpu_kernels()
forget_the_package()
sys.path.insert(0, complete)
import cudnn_rnn
assert cudnn_rnn.__file__.startswith(complete)
counts["copy of the package"] = count_cpu_kernels()
run_an_op()
paths = []
for folders in zip(checkouts[::2], checkouts[1::2]):
    forget_the_package()
    sys.path[:0] = folders
    from cudnn_rnn._native import library
    paths.append(library.library_path())
    del sys.path[:2]
print("LOADED" + json.dumps([counts, paths]))
"""


def run_python(code, *arguments):
    """Runs a program outside the checkout; returns (exit status, output)."""
    folder = os.path.dirname(sys.executable)
    process = processes.run_python("-W", "ignore", "-c", code, *arguments, folder=folder)
    return process.returncode, process.stdout + process.stderr


def copy_package(folder, **changes):
    """Copies the package and its library into `folder`, with `changes` in the build info."""
    package = folder / "cudnn_rnn"
    shutil.copytree(
        os.path.dirname(cudnn_rnn.__file__),
        str(package),
        ignore=shutil.ignore_patterns("cc", "__pycache__", "_build_info.json", "*.so"),
    )
    shutil.copy(library.library_path(), str(package))
    write_build_info(package, **changes)
    return package


def write_build_info(package, **changes):
    info = dict(library.build_info(), **changes)
    (package / library.BUILD_INFO_NAME).write_text(json.dumps(info))


def replace_library(package, content):
    """Replaces the library by `content` and updates the checksum in the build info."""
    (package / library.LIBRARY_NAME).write_bytes(content)
    write_build_info(package, library_sha256=hashlib.sha256(content).hexdigest())


def library_with_undefined_symbol(folder):
    source, output = folder / "undefined.cc", folder / "undefined.so"
    source.write_text('extern "C" int no_such_function();\nint value = no_such_function();\n')
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.check_call(compiler + ["-shared", "-fPIC", str(source), "-o", str(output)])
    return output.read_bytes()


# Packages that must fail to load: changes in the build info, or a function of the package's folder.
CHANGED_INFO = {
    "other_version": {"tensorflow": "2.99.1"},
    "other_commit": {"tensorflow_git_version": "v2.99.1-1-gabcdef"},
    "other_abi": {"cxx11_abi": 1 - tf.sysconfig.CXX11_ABI_FLAG},
    "other_package": {"cudnn_rnn": "77.0"},
    "no_checksum": {"library_sha256": None},
}
DAMAGES = {
    "no_build_info": lambda package: (package / library.BUILD_INFO_NAME).unlink(),
    "empty_build_info": lambda package: (package / library.BUILD_INFO_NAME).write_bytes(b""),
    "build_info_is_a_list": lambda package: (package / library.BUILD_INFO_NAME).write_bytes(b"[1]"),
    "build_info_is_binary": lambda package: (package / library.BUILD_INFO_NAME).write_bytes(
        b"\xff\x00\x80"
    ),
    "cut_library": lambda package: os.truncate(str(package / library.LIBRARY_NAME), 100000),
    "empty_library": lambda package: replace_library(package, b""),
    "text_library": lambda package: replace_library(package, b"not a library"),
    "undefined_symbol": lambda package: replace_library(
        package, library_with_undefined_symbol(package)
    ),
    "no_library": lambda package: (package / library.LIBRARY_NAME).unlink(),
}
CASES = list(CHANGED_INFO) + list(DAMAGES)


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory):
    """Returns a dict from each case to the ImportError message of importing its package."""
    folders = {}
    for case in CASES:
        folders[case] = str(tmp_path_factory.mktemp(case))
        package = copy_package(Path(folders[case]), **CHANGED_INFO.get(case, {}))
        if case in DAMAGES:
            DAMAGES[case](package)
    status, printed = run_python(IMPORT_ALL, *folders.values())
    assert status == 0, printed
    outcomes = json.loads(printed.split("OUTCOMES")[1].splitlines()[0])
    for case, folder in folders.items():
        assert outcomes[folder][0] == "ImportError", (case, outcomes[folder])
    return {case: outcomes[folder][1] for case, folder in folders.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_import_error_says_how_to_rebuild(import_errors, case):
    message = import_errors[case]
    assert REBUILD in message
    assert sys.executable in message


def test_the_error_names_the_built_and_the_running_tensorflow(import_errors):
    message = import_errors["other_version"]
    assert "built for TensorFlow 2.99.1" in message
    assert "runs TensorFlow " + tf.version.VERSION in message


def test_the_error_names_the_built_and_the_running_commit_abi_and_package(import_errors):
    assert "v2.99.1-1-gabcdef" in import_errors["other_commit"]
    assert str(tf.version.GIT_VERSION) in import_errors["other_commit"]
    assert "C++ ABI" in import_errors["other_abi"]
    assert "cudnn_rnn 77.0" in import_errors["other_package"]
    assert "cudnn_rnn " + cudnn_rnn.__version__ in import_errors["other_package"]


def test_damaged_files_are_named(import_errors):
    for case in CASES:
        if "build_info" in case:
            assert library.BUILD_INFO_NAME in import_errors[case]
        elif case.endswith("library"):
            assert library.LIBRARY_NAME in import_errors[case]
    assert "no_such_function" in import_errors["undefined_symbol"]


def test_the_error_of_a_missing_library_lists_the_searched_folders(import_errors):
    message = import_errors["no_library"]
    assert "missing" in message
    assert os.path.join("no_library0", "cudnn_rnn") in message


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Runs LOAD_REPEATEDLY; returns the numbers of kernels, and paths expected and found."""
    bare, complete = (tmp_path_factory.mktemp(name) for name in ("bare", "complete"))
    (copy_package(bare) / "__init__.py").write_text("")
    copy_package(complete)
    checkouts, expected_paths = [], []
    for has_library_of_another_tensorflow in (False, True):
        checkout, installed = (tmp_path_factory.mktemp(name) for name in ("checkout", "installed"))
        package = copy_package(checkout, tensorflow="2.99.1")
        (checkout / "setup.py").write_text("")
        (package / "cc").mkdir()
        (package / "cc" / "sources.bzl").write_text("")
        if not has_library_of_another_tensorflow:
            (package / library.LIBRARY_NAME).unlink()
        expected_paths.append(str(copy_package(installed) / library.LIBRARY_NAME))
        checkouts += [checkout, installed]
    status, printed = run_python(LOAD_REPEATEDLY, bare, complete, *checkouts)
    assert status == 0, printed
    counts, paths = json.loads(printed.split("LOADED")[1].splitlines()[0])
    return counts, expected_paths, paths


def test_python_in_a_checkout_uses_the_installed_library(loaded):
    """The checkout has no library, or one for another TensorFlow."""
    _, expected_paths, paths = loaded
    assert paths == expected_paths


def test_kernels_are_registered_once(loaded):
    """Eight threads at the same moment, reimports, reloads and a copy register them once."""
    counts = loaded[0]
    assert len(counts) == 4 and len(set(counts.values())) == 1, counts


def import_with_mock_of_tensorflow(folder, content, code="import cudnn_rnn"):
    """Imports the package where the mock of TensorFlow is first on the path; returns the output."""
    copy_package(folder)
    (folder / "tensorflow").mkdir()
    if content is not None:
        (folder / "tensorflow" / "__init__.py").write_text(content)
    status, printed = run_python("import sys; sys.path.insert(0, sys.argv[1])\n" + code, folder)
    assert status == 1
    return printed


@pytest.mark.parametrize(
    "content, expected",
    [
        (
            "raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')",
            "pip install tensorflow==",
        ),
        ("raise ImportError('libcudart.so.10.0: cannot open')", "libcudart.so.10.0: cannot open"),
        (None, "but `import tensorflow` returns"),
    ],
    ids=["none", "broken", "leftover_folder"],
)
def test_without_tensorflow(tmp_path, content, expected):
    code = "import cudnn_rnn._native.library"
    if content is None:  # without __init__.py, a folder counts only if no real package is found
        code = "sys.path[:] = [e for e in sys.path if 'site-packages' not in e]\n" + code
    printed = import_with_mock_of_tensorflow(tmp_path, content, code)
    assert "ImportError: cudnn_rnn needs TensorFlow" in printed
    assert expected in printed


@pytest.mark.parametrize("version", ["1.13.2", "0.12.1"])
def test_old_tensorflow_is_refused_in_one_sentence(tmp_path, version):
    printed = import_with_mock_of_tensorflow(tmp_path, "__version__ = %r" % version)
    expected = "ImportError: cudnn_rnn works with TensorFlow 1.14 to "
    (line,) = [line for line in printed.splitlines() if line.startswith(expected)]
    assert "has TensorFlow %s. Install" % version in line
    assert REBUILD in printed


def test_build_info_is_for_this_tensorflow():
    info = library.build_info()
    assert info["tensorflow"] == tf.version.VERSION
    assert info["cudnn_rnn"] == cudnn_rnn.__version__
    assert info["cxx11_abi"] == tf.sysconfig.CXX11_ABI_FLAG


def test_load_library_again_from_threads_of_this_process():
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(library.load_library) for _ in range(4)]:
            future.result()
