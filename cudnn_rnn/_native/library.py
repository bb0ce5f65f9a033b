"""Finds the compiled op library, checks that it was built for this TensorFlow, and loads it once.

A library built for another TensorFlow would crash the process. So before loading, this module
compares the build info (`_build_info.json`, which the build writes beside the library) with the
running TensorFlow. Every problem raises an `ImportError` that describes the problem and the remedy.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shlex
import sys
import threading
from typing import Dict, List
from urllib.parse import unquote, urlparse

from cudnn_rnn._native import gpu_kernels
from cudnn_rnn._version import OLDEST_TENSORFLOW, __version__, tensorflow_problem

LIBRARY_NAME = "_cudnn_rnn_ops.so"
BUILD_INFO_NAME = "_build_info.json"

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_lock = threading.Lock()


def load_library() -> None:
    """Loads the op library, which registers its kernels for TensorFlow's own op names.

    GPU kernels are registered if cuDNN and a GPU are found; see `_native/gpu_kernels.py`. This
    function may be called any number of times, from any thread, and after a re-import of the
    package: the kernels are registered once per process.

    Raises:
      ImportError: TensorFlow cannot be imported or is not supported; no library is found (the
        message lists where it was looked for); the library was built for another TensorFlow or
        another version of this package (the message names both and the command that rebuilds it);
        a file is damaged; or the environment variable CUDNN_RNN_GPU_KERNELS has an invalid value.
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
                raise ImportError(text + _rebuild_advice()) from error
        gpu_kernels.register_kernels(path)


def library_path() -> str:
    """Returns the path of the library that `load_library` loads; raises its `ImportError`s."""
    tensorflow = _import_tensorflow()
    folders = _folders_to_search()
    problems = []
    for folder in folders:
        if not os.path.exists(os.path.join(folder, LIBRARY_NAME)):
            continue
        problem = _find_problem(folder, tensorflow)
        if problem is None:
            return os.path.join(folder, LIBRARY_NAME)
        problems.append(problem)
    if not problems:
        problems = [
            "The compiled library %s of cudnn_rnn is missing. Looked in:\n%s"
            % (LIBRARY_NAME, "\n".join("    " + folder for folder in folders))
        ]
    raise ImportError("\n".join(problems) + _rebuild_advice())


def _path_or_none():
    """Returns `library_path()`, or None if the library is no longer there or no longer fits."""
    try:
        return library_path()
    except ImportError:
        return None


def build_info() -> Dict[str, str]:
    """Returns the build info of the library in use, a dict of str.

    Keys: cudnn_rnn, tensorflow, tensorflow_git_version, cxx11_abi, compiler, cxx_standard,
    library_sha256.
    Raises the `ImportError`s of `load_library`.
    """
    return _read_build_info(os.path.dirname(library_path()))


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
            "    pip install tensorflow==2.21.0\n"
            "Then install cudnn_rnn, which is compiled for this TensorFlow.%s"
            % (sys.executable, _rebuild_advice())
        ) from error
    if not hasattr(tensorflow, "__version__"):  # a folder that an uninstall left behind
        raise ImportError(
            "cudnn_rnn needs TensorFlow %s or newer, but `import tensorflow` returns %r, which has "
            "no __version__. Install TensorFlow again." % (OLDEST_TENSORFLOW, tensorflow)
        )
    problem = tensorflow_problem(tensorflow.__version__)
    if problem:
        raise ImportError(problem + _rebuild_advice())
    return tensorflow


def _kernels_are_registered():
    """Returns whether this process has already loaded the library, from any file.

    TensorFlow has no CPU kernels of its own for these ops, so registered ones are the library's. A
    second registration, e.g. from another copy of the file, would make every later use of the ops
    fail.
    """
    from tensorflow.python.framework import kernels

    registered = kernels.get_registered_kernels_for_op("CudnnRNNParamsSize").kernel
    return any(kernel.device_type == "CPU" for kernel in registered)


def _folders_to_search():
    """Returns the package folders that may hold the library, in order of preference."""
    folders = [_PACKAGE_FOLDER]
    own_library = os.path.join(_PACKAGE_FOLDER, LIBRARY_NAME)
    if not os.path.exists(own_library) or _checkout_folder():
        # Python started in the source checkout imports this package from the checkout, which has
        # no library, or (pip install -e) perhaps one for another environment. The installed
        # package may have the right one.
        folders += [os.path.join(os.path.abspath(entry), "cudnn_rnn") for entry in sys.path]
    unique: List[str] = []
    for folder in folders:
        if os.path.isdir(folder) and os.path.realpath(folder) not in map(os.path.realpath, unique):
            unique.append(folder)
    return unique


def _find_problem(folder, tensorflow):
    """Returns the reason why the library in `folder` must not be loaded, or None if it may be."""
    path = os.path.join(folder, LIBRARY_NAME)
    try:
        info = _read_build_info(folder)
    except ImportError as error:
        return str(error)
    for name, built, running in [
        ("cudnn_rnn", info.get("cudnn_rnn"), __version__),
        ("TensorFlow", info.get("tensorflow"), tensorflow.version.VERSION),
        ("TensorFlow commit", info.get("tensorflow_git_version"), tensorflow.version.GIT_VERSION),
        ("the C++ ABI flag", info.get("cxx11_abi"), tensorflow.sysconfig.CXX11_ABI_FLAG),
    ]:
        if str(built) != str(running):
            text = "The library %s was built for %s %s, but this process runs %s %s."
            return text % (path, name, built, name, running)
    if info.get("library_sha256") != _sha256(path):
        return (
            "The library %s is damaged or only partly updated: its SHA-256 differs from the one in "
            "%s." % (path, BUILD_INFO_NAME)
        )
    return None


def _read_build_info(folder):
    path = os.path.join(folder, BUILD_INFO_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            info = json.load(file)
    except (OSError, ValueError) as error:
        raise ImportError(
            "Cannot read %s, which names the TensorFlow that the library beside it was built for: "
            "%s" % (path, error)
        ) from error
    if not isinstance(info, dict):
        raise ImportError("%s must hold a JSON object, but holds %r." % (path, info))
    return info


def _sha256(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        return str(error)


def _rebuild_advice():
    """Returns the last lines of an error message: the exact command that rebuilds the library."""
    return (
        "\nBuild and install it for this TensorFlow, in this environment:\n"
        "    %s -m pip install --no-build-isolation --force-reinstall --no-deps %s"
    ) % (
        shlex.quote(sys.executable or "python"),
        shlex.quote(_source_folder() or "FOLDER_OF_THE_CUDNN_RNN_SOURCES"),
    )


def _source_folder():
    """Returns the source folder that this package was installed from, or None if it is gone."""
    for metadata in glob.glob(
        os.path.join(glob.escape(_PACKAGE_FOLDER) + "-*.dist-info", "direct_url.json")
    ):
        try:
            with open(metadata, encoding="utf-8") as file:
                folder = unquote(urlparse(json.load(file)["url"]).path)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if os.path.exists(os.path.join(folder, "setup.py")):
            return folder
    return _checkout_folder()


def _checkout_folder():
    """Returns the source checkout that contains this file, or None for an installed copy."""
    folder = os.path.dirname(_PACKAGE_FOLDER)
    is_checkout = os.path.exists(os.path.join(folder, "setup.py")) and os.path.exists(
        os.path.join(_PACKAGE_FOLDER, "cc", "sources.bzl")
    )
    return folder if is_checkout else None
