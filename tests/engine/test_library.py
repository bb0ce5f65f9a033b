"""Choosing, checking and loading the library once, or raising a readable ImportError.

Every case that imports runs in its own process on a modified copy of the installed package.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels

import cudnn_rnn
from cudnn_rnn import _version
from cudnn_rnn._native import library
from helpers import processes

pytestmark = pytest.mark.ci

ENGINE = library.ENGINE_NAME
COMPILE = "pip install --no-build-isolation --force-reinstall --no-deps "
REINSTALL = "Install it again:\n    %s -m pip install --force-reinstall --no-deps " % sys.executable


def adapter():
    """Returns the name of the adapter for this TensorFlow."""
    return os.path.basename(library.library_path())


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


def copy_package(folder):
    """Copies the package to `folder`, with the engine and the adapter for this TensorFlow."""
    package = folder / "cudnn_rnn"
    ignored = shutil.ignore_patterns("cc", "__pycache__", library.LIBRARIES_FOLDER)
    shutil.copytree(os.path.dirname(cudnn_rnn.__file__), str(package), ignore=ignored)
    source = os.path.dirname(library.library_path())
    (package / library.LIBRARIES_FOLDER).mkdir()
    for name in (library.BUILD_INFO_NAME, ENGINE, adapter()):
        shutil.copy(os.path.join(source, name), str(package / library.LIBRARIES_FOLDER))
    return package


def info_path(package):
    return package / library.LIBRARIES_FOLDER / library.BUILD_INFO_NAME


def change_info(change):
    """Returns a function that passes a package's build info and its adapter's entry to `change`."""

    def change_package(package):
        info = json.loads(info_path(package).read_text())
        change(info, info["libraries"][adapter()])
        info_path(package).write_text(json.dumps(info))

    return change_package


def update_adapter(**changes):
    return change_info(lambda info, entry: entry.update(changes))


def rename_adapter(name):
    """Returns a function that makes this TensorFlow's adapter the one for another TensorFlow."""

    def rename(info, entry):
        info["libraries"] = {ENGINE: info["libraries"][ENGINE], name: entry}

    return change_info(rename)


def replace_library(package, content, name=None):
    """Replaces a library, by default the adapter, and updates the checksum in the build info."""
    name = name or adapter()
    (package / library.LIBRARIES_FOLDER / name).write_bytes(content)
    entry = {"sha256": hashlib.sha256(content).hexdigest()}
    change_info(lambda info, _: info["libraries"][name].update(entry))(package)


def change_library_bytes(position, value):
    """Returns a function that changes one byte of the adapter's ELF header."""

    def change(package):
        content = bytearray((package / library.LIBRARIES_FOLDER / adapter()).read_bytes())
        content[position] = value
        replace_library(package, bytes(content))

    return change


def make_a_symbol_undefined(package):
    source, output = package / "undefined.cc", package / "undefined.so"
    source.write_text('extern "C" int no_such_function();\nint value = no_such_function();\n')
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.check_call(compiler + ["-shared", "-fPIC", str(source), "-o", str(output)])
    replace_library(package, output.read_bytes())


def damaged_info(content):
    return lambda package: info_path(package).write_bytes(content)


def cut_library(name=None):
    return lambda package: os.truncate(
        str(package / library.LIBRARIES_FOLDER / (name or adapter())), 100000
    )


RUNNING = "TensorFlow %s with C++ ABI %d" % (tf.version.VERSION, tf.sysconfig.CXX11_ABI_FLAG)
INFO = library.BUILD_INFO_NAME

# Packages that must fail to load: what is done to the package's folder, the advice, and what the
# error names, such as the TensorFlow that the adapter is for and the running one.
CASES = {
    "other_minor_version": (
        rename_adapter("ops_tf2.99_abi1.so"),
        COMPILE,
        ["has no library for %s, but only for TensorFlow 2.99 (C++ ABI 1).\n" % RUNNING],
    ),
    "no_adapter": (
        change_info(lambda info, _: info["libraries"].pop(adapter())),
        COMPILE,
        ["has no library for " + RUNNING],
    ),
    "other_version": (
        update_adapter(tensorflow="2.99.1", tensorflow_git_version="v2.99.1"),
        COMPILE,
        ["built for TensorFlow 2.99.1", "runs TensorFlow " + tf.version.VERSION],
    ),
    "other_commit": (
        update_adapter(tensorflow=tf.version.VERSION, tensorflow_git_version="v2.99.1-1-gabcdef"),
        COMPILE,
        ["v2.99.1-1-gabcdef", str(tf.version.GIT_VERSION)],
    ),
    "other_package": (
        change_info(lambda info, _: info.update(cudnn_rnn="77.0")),
        REINSTALL,
        ["cudnn_rnn 77.0", "cudnn_rnn " + cudnn_rnn.__version__],
    ),
    "no_checksum": (update_adapter(sha256=None), REINSTALL, ["SHA-256"]),
    "checksum_missing": (
        change_info(lambda _, entry: entry.pop("sha256")),
        REINSTALL,
        ["SHA-256"],
    ),
    "engine_not_described": (
        change_info(lambda info, _: info["libraries"].pop(ENGINE)),
        REINSTALL,
        [ENGINE, "SHA-256"],
    ),
    "library_of_32_bits": (change_library_bytes(4, 1), COMPILE, ["ops_tf", "ELF"]),
    "library_for_another_processor": (change_library_bytes(18, 0x2B), COMPILE, ["ops_tf"]),
    "no_build_info": (lambda package: info_path(package).unlink(), REINSTALL, [INFO]),
    "empty_build_info": (damaged_info(b""), REINSTALL, [INFO]),
    "build_info_is_a_list": (damaged_info(b"[1]"), REINSTALL, [INFO]),
    "build_info_is_binary": (damaged_info(b"\xff\x00\x80"), REINSTALL, [INFO]),
    "build_info_without_libraries": (damaged_info(b"{}"), REINSTALL, [INFO, "libraries"]),
    "build_info_with_numbers": (
        damaged_info(b'{"libraries": {"a": 1}}'),
        REINSTALL,
        [INFO, "an entry of `libraries` is no object"],
    ),
    "cut_library": (cut_library(), REINSTALL, ["ops_tf", "damaged"]),
    "cut_engine": (cut_library(ENGINE), REINSTALL, [ENGINE, "damaged"]),
    "no_engine": (
        lambda package: (package / library.LIBRARIES_FOLDER / ENGINE).unlink(),
        REINSTALL,
        [ENGINE, "damaged"],
    ),
    "empty_library": (lambda package: replace_library(package, b""), COMPILE, ["ops_tf"]),
    "text_library": (
        lambda package: replace_library(package, b"not a library"),
        COMPILE,
        ["ops_tf"],
    ),
    "text_engine": (
        lambda package: replace_library(package, b"not a library", ENGINE),
        COMPILE,
        ["ops_tf", ENGINE],
    ),
    "undefined_symbol": (make_a_symbol_undefined, COMPILE, ["no_such_function"]),
    # The error lists the folders that were searched.
    "no_libraries": (
        lambda package: shutil.rmtree(str(package / library.LIBRARIES_FOLDER)),
        COMPILE,
        ["missing", os.path.join("no_libraries0", "cudnn_rnn", library.LIBRARIES_FOLDER)],
    ),
}


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory):
    """Returns a dict from each case to [error type, message] of importing its package."""
    folders = {case: tmp_path_factory.mktemp(case) for case in CASES}
    for case, (damage, _, _) in CASES.items():
        damage(copy_package(folders[case]))
    outcomes = printed_by(IMPORT_ALL, *folders.values())
    return {case: outcomes[str(folder)] for case, folder in folders.items()}


@pytest.mark.parametrize("case", CASES)
def test_import_errors_say_what_is_wrong_and_what_to_do(import_errors, case):
    error, message = import_errors[case]
    _, advice, parts = CASES[case]
    assert error == "ImportError", message
    for part in [advice, sys.executable] + parts:
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
        package = copy_package(checkout)
        for name in ("setup.py", "CMakeLists.txt"):
            (checkout / name).write_text("")
        if has_library_of_another_tensorflow:
            rename_adapter("ops_tf2.99_abi1.so")(package)
        else:
            shutil.rmtree(str(package / library.LIBRARIES_FOLDER))
        expected_paths.append(str(copy_package(installed) / library.LIBRARIES_FOLDER / adapter()))
        checkouts += [checkout, installed]
    counts, paths = printed_by(LOAD_REPEATEDLY, bare, complete, *checkouts)
    return counts, expected_paths, paths


@pytest.mark.sampled(4)
def test_python_in_a_checkout_uses_the_installed_library(loaded):
    """The checkout has no library, or one for another TensorFlow."""
    _, expected_paths, paths = loaded
    assert paths == expected_paths


def test_kernels_are_registered_once(loaded):
    """Eight threads at the same moment, reimports, reloads and a copy register them once."""
    counts = loaded[0]
    assert len(counts) == 4 and len(set(counts.values())) == 1, counts


@pytest.mark.parametrize("op", library._OPS)
def test_kernels_of_another_library(monkeypatch, op):
    registered = kernels.get_registered_kernels_for_op

    def with_one_op(name):
        return registered(name if name == op else "CudnnRNNOfNoRelease")

    monkeypatch.setattr(kernels, "get_registered_kernels_for_op", with_one_op)
    with pytest.raises(ImportError, match="Another library .* has CPU kernels for %s, so" % op):
        library.load_library()
    monkeypatch.setattr(library, "_OPS", [op])
    library.load_library()


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


def test_the_oldest_tensorflow_is_not_refused():
    assert _version.tensorflow_problem("1.13.2") is not None
    for version in (_version.OLDEST_TENSORFLOW + ".0", "2.0.0", "a build from source"):
        assert _version.tensorflow_problem(version) is None


def test_build_info_is_for_this_tensorflow():
    info = library.build_info()
    minor = ".".join(tf.version.VERSION.split(".")[:2])
    assert info["tensorflow"].startswith(minor + ".")
    assert info["cudnn_rnn"] == cudnn_rnn.__version__
    assert info["cxx11_abi"] == tf.sysconfig.CXX11_ABI_FLAG
    content = Path(library.library_path()).read_bytes()
    assert info["library_sha256"] == hashlib.sha256(content).hexdigest()
    assert library.describe_contents().startswith("TensorFlow ") and minor in (
        library.describe_contents()
    )


@pytest.fixture
def wheel(tmp_path):
    """Makes the libraries of a wheel for several versions; returns their folder."""
    libraries = {ENGINE: {}}
    for version, abi in (("1.14", 1), ("1.15", 0), ("2.9", 1), ("2.20", 1), ("2.21", 1)):
        entry = {"tensorflow": version + ".3", "tensorflow_git_version": None, "cxx11_abi": abi}
        libraries["ops_tf%s_abi%d.so" % (version, abi)] = entry
    for name, entry in libraries.items():
        (tmp_path / name).write_text(name)
        entry["sha256"] = hashlib.sha256(name.encode()).hexdigest()
    info = {"cudnn_rnn": cudnn_rnn.__version__, "libraries": libraries}
    (tmp_path / INFO).write_text(json.dumps(info))
    return tmp_path


def running(version, abi, git_version="v1"):
    """Returns a stand-in for the module of a TensorFlow."""
    return types.SimpleNamespace(
        version=types.SimpleNamespace(VERSION=version, GIT_VERSION=git_version),
        sysconfig=types.SimpleNamespace(CXX11_ABI_FLAG=abi),
    )


@pytest.mark.once
@pytest.mark.parametrize(
    "version, abi, expected",
    [
        ("1.14.0", 1, "ops_tf1.14_abi1.so"),
        ("1.15.5", 0, "ops_tf1.15_abi0.so"),
        ("2.21.0", 1, "ops_tf2.21_abi1.so"),
        ("2.21.7", 1, "ops_tf2.21_abi1.so"),  # one library serves all patch releases
    ],
)
def test_the_library_is_the_one_for_the_running_tensorflow(wheel, version, abi, expected):
    assert library._find_adapter(str(wheel), running(version, abi)) == expected


@pytest.mark.once
@pytest.mark.parametrize(
    "version, abi",
    [
        ("2.2.0", 1),
        ("2.22.0", 1),
        ("2.22.0-dev20270101", 1),
        ("2.21.0", 0),
        ("1.14.0", 0),
        ("2.21.0-rc1", 1),
        ("1.15.5+nv23.03", 0),
        ("from source", 1),
    ],
)
def test_a_tensorflow_that_no_library_is_for(wheel, version, abi):
    """Also not release candidates and vendors' builds of a version that is there."""
    with pytest.raises(ImportError) as caught:
        library._find_adapter(str(wheel), running(version, abi))
    assert str(caught.value).endswith(
        "has no library for TensorFlow %s with C++ ABI %d, but only for TensorFlow "
        "1.14 (C++ ABI 1), 1.15 (C++ ABI 0), 2.9, 2.20, 2.21 (C++ ABI 1)." % (version, abi)
    )


@pytest.mark.once
def test_a_library_that_names_a_commit_is_for_that_tensorflow(wheel):
    """A build from source is also for a TensorFlow that no wheel is for."""
    info = json.loads((wheel / INFO).read_text())
    entry = {"tensorflow": "2.21.0-rc1", "tensorflow_git_version": "v2.21.0-rc1-5-g1"}
    info["libraries"]["ops_tf2.21_abi1.so"].update(entry)
    (wheel / INFO).write_text(json.dumps(info))
    found = library._find_adapter(str(wheel), running("2.21.0-rc1", 1, "v2.21.0-rc1-5-g1"))
    assert found == "ops_tf2.21_abi1.so"
    for other in (running("2.21.0-rc1", 1, "v2"), running("2.21.0", 1, "v2.21.0-rc1-5-g1")):
        with pytest.raises(ImportError, match="was built for TensorFlow"):
            library._find_adapter(str(wheel), other)


@pytest.mark.once
def test_advice_names_what_the_package_was_installed_from(tmp_path, monkeypatch):
    package = tmp_path / "site" / "cudnn_rnn"
    metadata = tmp_path / "site" / "cudnn_rnn-0.3.0.dist-info"
    metadata.mkdir(parents=True)
    monkeypatch.setattr(library, "_PACKAGE_FOLDER", str(package))
    name = "cudnn_rnn==" + cudnn_rnn.__version__
    from_index = COMPILE + "--no-binary cudnn_rnn --no-cache-dir " + name
    from_elsewhere = "\nIf pip finds no " + name.replace("==", " ")
    assert from_index + from_elsewhere in library._compile_advice()
    assert REINSTALL + name + from_elsewhere in library._reinstall_advice()

    origin = tmp_path / "a folder"
    (metadata / "direct_url.json").write_text(json.dumps({"url": origin.as_uri()}))
    origin.write_text("a wheel")
    assert from_index + from_elsewhere in library._compile_advice()
    assert library._reinstall_advice().endswith(REINSTALL + "'%s'" % origin)

    origin.unlink()
    origin.mkdir()
    (origin / "setup.py").write_text("")
    for advice in (library._compile_advice(), library._reinstall_advice()):
        assert advice.endswith(COMPILE + "'%s'" % origin)
        assert "pip install setuptools wheel cmake ninja\n" in advice


def adapters_of_another_major_version():
    """Returns the paths of the installed adapters that link to another library of TensorFlow."""
    own = "ops_tf%s." % tf.version.VERSION.split(".")[0]
    folder = os.path.dirname(library.library_path())
    names = sorted(name for name in os.listdir(folder) if name.startswith("ops_tf"))
    return [os.path.join(folder, name) for name in names if not name.startswith(own)]


@pytest.mark.sampled(4)
def test_an_adapter_for_another_tensorflow_is_refused(tmp_path):
    """A real one, which the build info takes for this TensorFlow's."""
    others = adapters_of_another_major_version()
    if not others:
        pytest.skip("the package has no library for TensorFlow of another major version")
    replace_library(copy_package(tmp_path), Path(others[0]).read_bytes())
    error, message = printed_by(IMPORT_ALL, tmp_path)[str(tmp_path)]
    assert error == "ImportError"
    assert "TensorFlow %s cannot load" % tf.version.VERSION in message and COMPILE in message
