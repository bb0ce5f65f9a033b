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

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import library

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

COUNT_KERNELS = """
def count_cpu_kernels():
    from tensorflow.python.framework import kernels
    found = kernels.get_registered_kernels_for_op("CudnnRNNParamsSize").kernel
    types = [(kernel.label, tuple(kernel.constraint[0].allowed_values.list.type))
             for kernel in found if kernel.device_type == "CPU"]
    assert types, "no CPU kernel"
    assert len(types) == len(set(types)), "registered twice: %s" % types
    return len(types)
"""

RUN_AN_OP = """
def run_an_op():
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import gen_cudnn_rnn_ops
    with tf.Graph().as_default(), tf.Session() as session:
        size = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
            num_layers=1, num_units=100, input_size=20, T=tf.float32, S=tf.int32, rnn_mode="lstm")
        assert session.run(size).tolist() == [48800]
"""


def run_python(code, *arguments, **environment):
    """Runs a program outside the checkout; returns (exit status, output)."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code] + [str(argument) for argument in arguments],
        cwd=os.path.dirname(sys.executable),
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return process.returncode, process.stdout


def copy_package(folder, **changes):
    """Copies the package and its library into `folder`, with `changes` in the build info."""
    package = os.path.join(str(folder), "cudnn_rnn")
    shutil.copytree(
        os.path.dirname(cudnn_rnn.__file__),
        package,
        ignore=shutil.ignore_patterns("cc", "__pycache__", "_build_info.json", "*.so"),
    )
    built = os.path.dirname(library.library_path())
    shutil.copy(os.path.join(built, library.LIBRARY_NAME), package)
    write_build_info(package, **dict(library.build_info(), **changes))
    return package


def write_build_info(package, **info):
    with open(os.path.join(package, library.BUILD_INFO_NAME), "w") as file:
        json.dump(info, file)


def replace_library(package, content):
    """Replaces the library by `content` and updates the checksum in the build info."""
    with open(os.path.join(package, library.LIBRARY_NAME), "wb") as file:
        file.write(content)
    checksum = hashlib.sha256(content).hexdigest()
    write_build_info(package, **dict(library.build_info(), library_sha256=checksum))


def library_with_undefined_symbol(folder):
    source = os.path.join(str(folder), "undefined.cc")
    with open(source, "w") as file:
        file.write('extern "C" int no_such_function();\nint value = no_such_function();\n')
    output = os.path.join(str(folder), "undefined.so")
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.check_call(compiler + ["-shared", "-fPIC", source, "-o", output])
    with open(output, "rb") as file:
        return file.read()


CASES = [
    "other_version",
    "other_commit",
    "other_abi",
    "other_package",
    "no_build_info",
    "empty_build_info",
    "build_info_is_a_list",
    "build_info_is_binary",
    "cut_library",
    "empty_library",
    "text_library",
    "no_checksum",
    "undefined_symbol",
    "no_library",
]


def make_case(case, folder):
    """Creates a package in `folder` that must fail to load."""
    changes = {
        "other_version": {"tensorflow": "2.99.1"},
        "other_commit": {"tensorflow_git_version": "v2.99.1-1-gabcdef"},
        "other_abi": {"cxx11_abi": 1 - tf.sysconfig.CXX11_ABI_FLAG},
        "other_package": {"cudnn_rnn": "77.0"},
        "no_checksum": {"library_sha256": None},
    }
    package = copy_package(folder, **changes.get(case, {}))
    path = os.path.join(package, library.LIBRARY_NAME)
    info_path = os.path.join(package, library.BUILD_INFO_NAME)
    with open(path, "rb") as file:
        content = file.read()
    if case in ("no_build_info", "no_library"):
        os.remove(info_path if case == "no_build_info" else path)
    elif "build_info" in case:
        bad = {"empty_build_info": b"", "build_info_is_a_list": b"[1]"}.get(case, b"\xff\x00\x80")
        with open(info_path, "wb") as file:
            file.write(bad)
    elif case == "cut_library":
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
    elif case == "undefined_symbol":
        replace_library(package, library_with_undefined_symbol(folder))
    elif case in ("empty_library", "text_library"):
        replace_library(package, b"" if case == "empty_library" else b"not a library")


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory):
    """Returns a dict from each case to the ImportError message of importing its package."""
    folders = {}
    for case in CASES:
        folders[case] = str(tmp_path_factory.mktemp(case))
        make_case(case, folders[case])
    status, printed = run_python(IMPORT_ALL, *folders.values())
    assert status == 0, printed
    outcomes = json.loads(printed.split("OUTCOMES")[1])
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


@pytest.mark.parametrize("checkout_has_library_of_another_tensorflow", [False, True])
def test_python_in_a_checkout_uses_the_installed_library(
    tmp_path, checkout_has_library_of_another_tensorflow
):
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    checkout.mkdir()
    installed.mkdir()
    package = copy_package(checkout, tensorflow="2.99.1")
    (checkout / "setup.py").write_text("")
    os.mkdir(os.path.join(package, "cc"))
    (checkout / "cudnn_rnn" / "cc" / "sources.bzl").write_text("")
    if not checkout_has_library_of_another_tensorflow:
        os.remove(os.path.join(package, library.LIBRARY_NAME))
    copy_package(installed)
    code = (
        "import cudnn_rnn._native.library; print('FOUND', cudnn_rnn._native.library.library_path())"
    )
    status, printed = run_python(code, PYTHONPATH=os.pathsep.join([str(checkout), str(installed)]))
    assert status == 0, printed
    assert "FOUND " + os.path.join(str(installed), "cudnn_rnn", library.LIBRARY_NAME) in printed


def test_kernels_are_registered_once(tmp_path):
    """Reimports, reloads, threads and a second library copy register the kernels only once."""
    copy_package(tmp_path)
    code = (
        COUNT_KERNELS
        + RUN_AN_OP
        + """
import importlib, sys, threading
import cudnn_rnn
from cudnn_rnn._native import library
number = count_cpu_kernels()
importlib.reload(library)
importlib.reload(cudnn_rnn)
threads = [threading.Thread(target=cudnn_rnn._native.library.load_library) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
    del sys.modules[name]
sys.path.insert(0, sys.argv[1])
import cudnn_rnn
assert cudnn_rnn.__file__.startswith(sys.argv[1])
assert count_cpu_kernels() == number
run_an_op()
print("ONCE")
"""
    )
    status, printed = run_python(code, tmp_path)
    assert status == 0 and "ONCE" in printed, printed


def test_first_load_from_many_threads(tmp_path):
    """If eight threads load the library at the same moment, the kernels are registered once."""
    package = copy_package(tmp_path)
    with open(os.path.join(package, "__init__.py"), "w") as file:
        file.write('"""Loads nothing by itself."""\n')
    code = (
        COUNT_KERNELS
        + RUN_AN_OP
        + """
import sys, threading
import tensorflow
sys.path.insert(0, sys.argv[1])
from cudnn_rnn._native import library
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
count_cpu_kernels()
run_an_op()
print("ONCE")
"""
    )
    status, printed = run_python(code, tmp_path)
    assert status == 0 and "ONCE" in printed, printed


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
    """The mock of TensorFlow is first on the path, so `import tensorflow` finds it."""
    copy_package(tmp_path)
    (tmp_path / "tensorflow").mkdir()
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    if content is None:  # without __init__.py, a folder counts only if no real package is found
        code += "sys.path[:] = [e for e in sys.path if 'site-packages' not in e]\n"
    else:
        (tmp_path / "tensorflow" / "__init__.py").write_text(content)
    code += "import cudnn_rnn._native.library"
    status, printed = run_python(code, tmp_path)
    assert status == 1
    assert "ImportError: cudnn_rnn needs TensorFlow" in printed
    assert expected in printed


@pytest.mark.parametrize("version", ["1.13.2", "0.12.1"])
def test_old_tensorflow_is_refused_in_one_sentence(tmp_path, version):
    copy_package(tmp_path)
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("__version__ = %r" % version)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import cudnn_rnn"
    status, printed = run_python(code, tmp_path)
    assert status == 1
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
