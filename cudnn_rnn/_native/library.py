"""Finds the library for this TensorFlow, checks it, and loads it once.

The package's folder `_libraries` contains the engine, an adapter for each TensorFlow minor version
and C++ ABI that the package was compiled for, and the build info, which describes them. An adapter
links to the engine beside it and registers the kernels.

An adapter for another TensorFlow would crash the process. So before loading, this module compares
the build info with the running TensorFlow and the files. Every problem raises an `ImportError` that
describes the problem and the remedy.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shlex
import sys
import threading
from typing import Any, Dict, List
from urllib.parse import unquote, urlparse

from cudnn_rnn._native import gpu_kernels
from cudnn_rnn._version import OLDEST_TENSORFLOW, __version__, tensorflow_problem

LIBRARIES_FOLDER = "_libraries"
BUILD_INFO_NAME = "build_info.json"
ENGINE_NAME = "libcudnn_rnn_engine.so"

# Some ops that the library has kernels for, in every TensorFlow.
_OPS = (
    "CudnnRNN",
    "CudnnRNNBackprop",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
)

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_lock = threading.Lock()


def load_library() -> None:
    """Loads the adapter, which registers its kernels for TensorFlow's own op names.

    GPU kernels are registered if cuDNN and a GPU are found; see `_native/gpu_kernels.py`. This
    function may be called any number of times, from any thread, and after a re-import of the
    package: the kernels are registered once per process.

    Raises:
      ImportError: TensorFlow cannot be imported or is not supported; no library is found (the
        message lists where it was looked for), or none for this TensorFlow (the message lists the
        versions that there are, and has the command that compiles for this one); a file is damaged
        or of another version of this package; another library has kernels for some of the ops; or
        the environment variable CUDNN_RNN_GPU_KERNELS has an invalid value.
    """
    with _lock:
        tensorflow = _import_tensorflow()
        if _kernels_are_registered():
            path = _path_or_none()
        else:
            path = library_path()
            try:
                tensorflow.load_op_library(path)
            except (tensorflow.errors.OpError, OSError, RuntimeError) as error:
                text = "TensorFlow %s cannot load %s: %s" % (tensorflow.__version__, path, error)
                raise ImportError(text + _compile_advice()) from error
        gpu_kernels.register_kernels(path)


def library_path() -> str:
    """Returns the path of the adapter that `load_library` loads; raises its `ImportError`s."""
    tensorflow = _import_tensorflow()
    folders = _folders_to_search()
    problems, advice = [], _compile_advice
    for folder in folders:
        if not os.path.isdir(folder):
            continue
        try:
            return os.path.join(folder, _find_adapter(folder, tensorflow))
        except _Damage as damage:
            problems.append(str(damage))
            advice = _reinstall_advice
        except ImportError as error:
            problems.append(str(error))
    if not problems:
        problems = [
            "The compiled libraries of cudnn_rnn are missing. Looked in:\n%s"
            % "\n".join("    " + folder for folder in folders)
        ]
    raise ImportError("\n".join(problems) + advice())


def _path_or_none():
    """Returns `library_path()`, or None if the library is no longer there or no longer fits."""
    try:
        return library_path()
    except ImportError:
        return None


def build_info() -> Dict[str, Any]:
    """Returns the build info of the adapter in use.

    Keys: cudnn_rnn, compiler, machine, tensorflow, tensorflow_git_version (None if it is for all
    final releases of a minor version), cxx11_abi, cxx_standard, library_sha256.
    Raises the `ImportError`s of `load_library`.
    """
    folder, name = os.path.split(library_path())
    info = _read_build_info(folder)
    adapter = info.pop("libraries")[name]
    return dict(info, library_sha256=adapter.pop("sha256"), **adapter)


def describe_contents() -> str:
    """Returns the TensorFlow versions that the package in use has adapters for, for people.

    Raises the `ImportError`s of `load_library`.
    """
    return _describe_contents(_read_build_info(os.path.dirname(library_path())))


class _Damage(ImportError):
    """The files do not belong together, so that the package has to be installed again."""


def _import_tensorflow():
    try:
        import tensorflow
    except ImportError as error:
        if getattr(error, "name", None) != "tensorflow":
            raise ImportError(
                "cudnn_rnn needs TensorFlow, but the installed TensorFlow cannot be imported: %s"
                % error
            ) from error
        raise ImportError(
            "cudnn_rnn needs TensorFlow, which is not installed for %s. Install it, for example:\n"
            "    %s -m pip install tensorflow==2.21.0" % (sys.executable, _python())
        ) from error
    if not hasattr(tensorflow, "__version__"):  # a folder that an uninstall left behind
        raise ImportError(
            "cudnn_rnn needs TensorFlow %s or newer, but `import tensorflow` returns %r, which has "
            "no __version__. Install TensorFlow again." % (OLDEST_TENSORFLOW, tensorflow)
        )
    problem = tensorflow_problem(tensorflow.__version__)
    if problem:
        raise ImportError(problem)
    return tensorflow


def _kernels_are_registered():
    """Returns whether this process has already loaded the library, from any file.

    TensorFlow has no CPU kernels of its own for these ops, so registered ones are the library's. A
    second registration, e.g. from another copy of the file, would make every later use of the ops
    fail. Kernels of another library conflict in the same way: this function raises `ImportError` if
    only some of the ops have CPU kernels.
    """
    from tensorflow.python.framework import kernels

    registered = [
        op
        for op in _OPS
        if any(
            kernel.device_type == "CPU"
            for kernel in kernels.get_registered_kernels_for_op(op).kernel
        )
    ]
    if registered and len(registered) < len(_OPS):
        raise ImportError(
            "Another library in this process has CPU kernels for %s, so TensorFlow cannot use "
            "those of cudnn_rnn. Import cudnn_rnn in a process that does not load that library "
            "(with tf.load_op_library, or by importing its package)." % ", ".join(registered)
        )
    return bool(registered)


def _folders_to_search():
    """Returns the folders that may hold the libraries, in order of preference."""
    packages = [_PACKAGE_FOLDER]
    own_libraries = os.path.join(_PACKAGE_FOLDER, LIBRARIES_FOLDER)
    if not os.path.isdir(own_libraries) or _checkout_folder():
        # Python started in the source checkout imports this package from the checkout, which has
        # no library, or (pip install -e) perhaps one for another environment. The installed
        # package may have the right one.
        packages += [os.path.join(os.path.abspath(entry), "cudnn_rnn") for entry in sys.path]
    unique: List[str] = []
    for folder in packages:
        if os.path.isdir(folder) and os.path.realpath(folder) not in map(os.path.realpath, unique):
            unique.append(folder)
    return [os.path.join(folder, LIBRARIES_FOLDER) for folder in unique]


def _find_adapter(folder, tensorflow):
    """Returns the name of the adapter for this TensorFlow; raises `ImportError` if none may be."""
    info = _read_build_info(folder)
    libraries = info["libraries"]
    if info.get("cudnn_rnn") != __version__:
        raise _Damage(
            "The libraries in %s are of cudnn_rnn %s, but this is cudnn_rnn %s."
            % (folder, info.get("cudnn_rnn"), __version__)
        )
    version, abi = str(tensorflow.version.VERSION), int(tensorflow.sysconfig.CXX11_ABI_FLAG)
    minor = re.match(r"\d+\.\d+", version)
    name = "ops_tf%s_abi%d.so" % (minor.group() if minor else version, abi)
    adapter = libraries.get(name)
    # An adapter is for one TensorFlow, if it names its commit, or for all final releases.
    if adapter is None or not (
        adapter.get("tensorflow_git_version") or re.match(r"\d+\.\d+\.\d+$", version)
    ):
        raise ImportError(
            "cudnn_rnn in %s has no library for TensorFlow %s with C++ ABI %d, but only for %s."
            % (os.path.dirname(folder), version, abi, _describe_contents(info))
        )
    _check_commit(os.path.join(folder, name), adapter, tensorflow.version)
    for file_name, entry in ((name, adapter), (ENGINE_NAME, libraries.get(ENGINE_NAME, {}))):
        path = os.path.join(folder, file_name)
        if entry.get("sha256") != _sha256(path):
            raise _Damage(
                "The library %s is damaged or only partly updated: its SHA-256 differs from the "
                "one in %s." % (path, BUILD_INFO_NAME)
            )
    return name


def _check_commit(path, adapter, running):
    """Raises `ImportError` if the adapter is for exactly one TensorFlow and another one runs."""
    if not adapter.get("tensorflow_git_version"):
        return
    for name, found, expected in [
        ("TensorFlow", running.VERSION, adapter.get("tensorflow")),
        ("TensorFlow commit", running.GIT_VERSION, adapter["tensorflow_git_version"]),
    ]:
        if str(found) != str(expected):
            raise ImportError(
                "The library %s was built for %s %s, but this process runs %s %s."
                % (path, name, expected, name, found)
            )


def _describe_contents(info):
    """Returns, for example, "TensorFlow 1.15 (C++ ABI 0), 2.20, 2.21 (C++ ABI 1)"."""
    adapters = [
        (tuple(map(int, match.group(1).split("."))), match.group(2))
        for match in (re.match(r"ops_tf([\d.]+)_abi(\d)\.so$", name) for name in info["libraries"])
        if match
    ]
    adapters.sort()
    texts = []
    for number, (version, abi) in enumerate(adapters):
        following = adapters[number + 1 : number + 2]
        is_last_of_abi = not following or following[0][1] != abi
        texts.append("%d.%d" % version + (" (C++ ABI %s)" % abi if is_last_of_abi else ""))
    return "TensorFlow " + (", ".join(texts) or "none")


def _read_build_info(folder):
    path = os.path.join(folder, BUILD_INFO_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            info = json.load(file)
        if all(isinstance(entry, dict) for entry in info["libraries"].values()):
            return info
        problem = "an entry of `libraries` is no object"
    except (OSError, ValueError) as error:
        problem = str(error)
    except (AttributeError, KeyError, TypeError):
        problem = "it is no object with the key `libraries`"
    raise _Damage("Cannot read %s, which describes the libraries beside it: %s." % (path, problem))


def _sha256(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        return str(error)


def _compile_advice():
    """Returns the last lines of an error: the commands that compile for this TensorFlow."""
    folder = _source_folder()
    if folder is None:
        # From pip's cache, it would install a wheel that it compiled for another TensorFlow.
        what = "--no-binary cudnn_rnn --no-cache-dir cudnn_rnn==" + __version__
    else:
        what = shlex.quote(folder)
    text = (
        "\nCompile it for this TensorFlow, in this environment:\n"
        "    %s -m pip install setuptools wheel cmake ninja\n"
        "    %s -m pip install --no-build-isolation --force-reinstall --no-deps %s"
    ) % (_python(), _python(), what)
    if folder is None:
        text += (
            "\nIf pip finds no cudnn_rnn %s, replace the last word with the path of its source "
            "folder\nor of cudnn_rnn-%s.tar.gz."
        ) % (__version__, __version__)
    return text


def _reinstall_advice():
    """Returns the last lines of an error: the command that installs the package again."""
    if _source_folder() is not None:
        return _compile_advice()
    wheels = [path for path in _installed_from() if os.path.isfile(path)]
    what = shlex.quote(wheels[0]) if wheels else "cudnn_rnn==" + __version__
    text = "\nInstall it again:\n    %s -m pip install --force-reinstall --no-deps %s"
    text %= (_python(), what)
    if not wheels:
        text += "\nIf pip finds no cudnn_rnn %s, name the path of its wheel." % __version__
    return text


def _python():
    return shlex.quote(sys.executable or "python")


def _source_folder():
    """Returns the source folder that this package was installed from, or None if it is gone."""
    for path in _installed_from():
        if os.path.exists(os.path.join(path, "setup.py")):
            return path
    return _checkout_folder()


def _installed_from():
    """Returns the paths of the folders or wheels that pip installed this package from."""
    paths = []
    for metadata in glob.glob(
        os.path.join(glob.escape(_PACKAGE_FOLDER) + "-*.dist-info", "direct_url.json")
    ):
        try:
            with open(metadata, encoding="utf-8") as file:
                paths.append(unquote(urlparse(json.load(file)["url"]).path))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return paths


def _checkout_folder():
    """Returns the source checkout that contains this file, or None for an installed copy."""
    folder = os.path.dirname(_PACKAGE_FOLDER)
    is_checkout = all(
        os.path.exists(os.path.join(folder, name)) for name in ("setup.py", "CMakeLists.txt")
    )
    return folder if is_checkout else None
