"""Finding, checking and loading the op library once, or raising a readable ImportError.

Every case runs in its own process on a modified copy of the installed package.
"""

import functools
import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import _version
from cudnn_rnn._native import library
from helpers import processes

pytestmark = pytest.mark.ci

INFO, LIBRARY = library.BUILD_INFO_NAME, library.LIBRARY_NAME
REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps "

# Starts both programs.
FORGET = """
import sys
def forget_the_package():
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]
"""

# Imports the package from each given folder in one process: a failing import loads nothing, so it
# does not affect the next one. Other copies of the package are hidden.
IMPORT_ALL = """
import json, os
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
    forget_the_package()
print(json.dumps(outcomes))
"""

# Loads the library in several ways and prints how many kernels are registered after each, and the
# paths of the libraries that checkouts use. Arguments: a package that loads nothing by itself, a
# complete package, and pairs of a checkout and an installed package.
LOAD_REPEATEDLY = """
import importlib, json, threading
from concurrent.futures import ThreadPoolExecutor
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
    barrier = threading.Barrier(8)
    def load(_):
        barrier.wait()
        library.load_library()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(load, range(8)))

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
print(json.dumps([counts, paths]))
"""


# Programs run outside the checkout.
run_python = functools.partial(processes.run_python, folder=os.path.dirname(sys.executable))


def printed_by(program, *arguments):
    """Returns the JSON in the last line that the program prints."""
    process = run_python("-W", "ignore", "-c", FORGET + program, *arguments)
    assert process.returncode == 0, process.stdout + process.stderr
    return json.loads(process.stdout.splitlines()[-1])


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
    (package / INFO).write_text(json.dumps(info))


def replace_library(package, content):
    """Replaces the library by `content` and updates the checksum in the build info."""
    (package / LIBRARY).write_bytes(content)
    write_build_info(package, library_sha256=hashlib.sha256(content).hexdigest())


def change_library_bytes(position, value):
    """Returns a function that changes one byte of the library's ELF header."""

    def change(package):
        content = bytearray((package / LIBRARY).read_bytes())
        content[position] = value
        replace_library(package, bytes(content))

    return change


def forget_the_checksum(package):
    info = library.build_info()
    del info["library_sha256"]
    (package / INFO).write_text(json.dumps(info))


def make_a_symbol_undefined(package):
    source, output = package / "undefined.cc", package / "undefined.so"
    source.write_text('extern "C" int no_such_function();\nint value = no_such_function();\n')
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.check_call(compiler + ["-shared", "-fPIC", str(source), "-o", str(output)])
    replace_library(package, output.read_bytes())


def damaged_info(content):
    return lambda package: (package / INFO).write_bytes(content)


# Packages that must fail to load: what is done to the package's folder, and what the error names,
# such as the TensorFlow that the library was built for and the running one.
CASES = {
    "other_version": (
        functools.partial(write_build_info, tensorflow="2.99.1"),
        ["built for TensorFlow 2.99.1", "runs TensorFlow " + tf.version.VERSION],
    ),
    "other_commit": (
        functools.partial(write_build_info, tensorflow_git_version="v2.99.1-1-gabcdef"),
        ["v2.99.1-1-gabcdef", str(tf.version.GIT_VERSION)],
    ),
    "other_abi": (
        functools.partial(write_build_info, cxx11_abi=1 - tf.sysconfig.CXX11_ABI_FLAG),
        ["C++ ABI"],
    ),
    "other_package": (
        functools.partial(write_build_info, cudnn_rnn="77.0"),
        ["cudnn_rnn 77.0", "cudnn_rnn " + cudnn_rnn.__version__],
    ),
    "no_checksum": (functools.partial(write_build_info, library_sha256=None), ["SHA-256"]),
    "checksum_missing": (forget_the_checksum, ["SHA-256"]),
    "library_of_32_bits": (change_library_bytes(4, 1), [LIBRARY, "ELF"]),
    "library_for_aarch64": (change_library_bytes(18, 0xB7), [LIBRARY]),
    "no_build_info": (lambda package: (package / INFO).unlink(), [INFO]),
    "empty_build_info": (damaged_info(b""), [INFO]),
    "build_info_is_a_list": (damaged_info(b"[1]"), [INFO]),
    "build_info_is_binary": (damaged_info(b"\xff\x00\x80"), [INFO]),
    "cut_library": (lambda package: os.truncate(str(package / LIBRARY), 100000), [LIBRARY]),
    "empty_library": (lambda package: replace_library(package, b""), [LIBRARY]),
    "text_library": (lambda package: replace_library(package, b"not a library"), [LIBRARY]),
    "undefined_symbol": (make_a_symbol_undefined, ["no_such_function"]),
    # The error lists the folders that were searched.
    "no_library": (
        lambda package: (package / LIBRARY).unlink(),
        ["missing", LIBRARY, os.path.join("no_library0", "cudnn_rnn")],
    ),
}


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory):
    """Returns a dict from each case to [error type, message] of importing its package."""
    folders = {case: tmp_path_factory.mktemp(case) for case in CASES}
    for case, (damage, _) in CASES.items():
        damage(copy_package(folders[case]))
    outcomes = printed_by(IMPORT_ALL, *folders.values())
    return {case: outcomes[str(folder)] for case, folder in folders.items()}


@pytest.mark.parametrize("case", CASES)
def test_import_errors_say_what_is_wrong_and_how_to_rebuild(import_errors, case):
    error, message = import_errors[case]
    assert error == "ImportError", message
    for part in [REBUILD, sys.executable] + CASES[case][1]:
        assert part in message


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
            (package / LIBRARY).unlink()
        expected_paths.append(str(copy_package(installed) / LIBRARY))
        checkouts += [checkout, installed]
    counts, paths = printed_by(LOAD_REPEATEDLY, bare, complete, *checkouts)
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
    """Imports the package where the mock of TensorFlow is first on the path; returns the error."""
    copy_package(folder)
    (folder / "tensorflow").mkdir()
    if content is not None:
        (folder / "tensorflow" / "__init__.py").write_text(content)
    code = "import sys; sys.path.insert(0, sys.argv[1])\n" + code
    process = run_python("-W", "ignore", "-c", code, folder)
    assert process.returncode == 1
    return process.stderr


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


def test_the_oldest_tensorflow_is_not_refused():
    assert _version.tensorflow_problem("1.13.2") is not None
    for version in (_version.OLDEST_TENSORFLOW + ".0", "2.0.0", "a build from source"):
        assert _version.tensorflow_problem(version) is None


def test_build_info_is_for_this_tensorflow():
    info = library.build_info()
    assert info["tensorflow"] == tf.version.VERSION
    assert info["cudnn_rnn"] == cudnn_rnn.__version__
    assert info["cxx11_abi"] == tf.sysconfig.CXX11_ABI_FLAG


# Imports the package from the first argument where others hide; prints the error's type and text.
IMPORT_ONE = """
import os, sys
import tensorflow
sys.path[:] = [entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "cudnn_rnn"))]
sys.path.insert(0, sys.argv[1])
try:
    import cudnn_rnn
    print("imported")
except Exception as error:
    print("%s: %s" % (type(error).__name__, error))
"""


def packages_of_other_tensorflows():
    """Returns a list of (Python, package) of the test environments beside this one."""
    pattern = os.path.join(os.path.dirname(sys.prefix), "test-tf*")
    found = []
    for folder in sorted(glob.glob(pattern)):
        packages = glob.glob(os.path.join(folder, "lib", "python*", "site-packages", "cudnn_rnn"))
        if folder != sys.prefix and packages and os.path.exists(os.path.join(packages[0], INFO)):
            found.append((os.path.join(folder, "bin", "python"), packages[0]))
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_build_info_forged", [False, True])
def test_a_library_of_another_tensorflow_is_refused(tmp_path, is_build_info_forged):
    """Real libraries, each in the other TensorFlow; also if the build info names the wrong one."""
    others = packages_of_other_tensorflows()
    if not others:
        pytest.skip("no test environment of another TensorFlow has the package")
    own = os.path.dirname(library.library_path())
    for number, (python, package) in enumerate(others):
        for name, source, target, runner in [
            ("theirs", package, own, sys.executable),
            ("ours", own, package, python),
        ]:
            folder = tmp_path / ("%s%d" % (name, number))
            shutil.copytree(
                target, str(folder / "cudnn_rnn"), ignore=shutil.ignore_patterns("__pycache__")
            )
            shutil.copy(os.path.join(source, LIBRARY), str(folder / "cudnn_rnn"))
            built, running = (
                json.loads(Path(each, INFO).read_text())["tensorflow"] for each in (source, target)
            )
            info = json.loads(Path(source, INFO).read_text())
            if is_build_info_forged:
                info.update(json.loads(Path(target, INFO).read_text()))
                info["library_sha256"] = hashlib.sha256(
                    Path(source, LIBRARY).read_bytes()
                ).hexdigest()
            (folder / "cudnn_rnn" / INFO).write_text(json.dumps(info))
            process = subprocess.run(
                [runner, "-W", "ignore", "-c", IMPORT_ONE, str(folder)],
                cwd=str(tmp_path),
                env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=processes.SECONDS_FOR_A_PROCESS,
            )
            printed = process.stdout
            assert process.returncode == 0, (process.returncode, printed, process.stderr)
            assert "ImportError: " in printed and REBUILD in printed, printed
            expected = ["runs TensorFlow " + running, "built for TensorFlow " + built]
            if is_build_info_forged:
                expected = ["TensorFlow %s cannot load" % running]
            for part in expected:
                assert part in printed, printed
