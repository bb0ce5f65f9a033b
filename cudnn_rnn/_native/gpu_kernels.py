"""Registers this package's GPU kernels, for the ops that `gpu_choice` chooses.

The library's GPU kernels call cuDNN 8 or 9. They are registered if the process can open an NVIDIA
driver. The first of them opens cuDNN, not the import: TensorFlow looks for cuDNN by name when it
creates its GPU devices, and would get the one that this package had opened.

Environment variables, read at import:
  CUDNN_RNN_GPU_KERNELS: `cudnn_rnn` or `tensorflow`. The default depends on TensorFlow; see
    docs/gpu/README.md.
  CUDNN_RNN_CUDNN_LIBRARY: path of the cuDNN library. By default: the cuDNN that the process has
    loaded, which is TensorFlow's; then one in LD_LIBRARY_PATH, in an nvidia-cudnn wheel in
    `sys.path`, or where the loader finds it.

Nodes with the attribute `_kernel="cudnn_rnn"`, the kernel label, run this package's kernels on any
device. A graph with such nodes runs only in a process that has loaded this package's library.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import NamedTuple

from cudnn_rnn._native import gpu_choice
from cudnn_rnn._native.gpu_choice import KERNELS_VARIABLE

CUDNN_VARIABLE = "CUDNN_RNN_CUDNN_LIBRARY"
KERNEL_LABEL = "cudnn_rnn"
# Assumed if TensorFlow does not report its cuDNN. The choice is then this package's kernels, which
# call older versions as well.
_UNKNOWN_CUDNN = 9


class KernelsInCharge(NamedTuple):
    """The provider of the kernels that run this package's models on a GPU, and the reason.

    Nodes that other code created may run other kernels; `python -m cudnn_rnn doctor` lists both.

    Attributes:
      provider: "cudnn_rnn", "tensorflow" or "none" (the ops cannot run on a GPU).
      reason: str, one or more lines: the libraries in use, or what is missing.
    """

    provider: str
    reason: str

    def __str__(self) -> str:
        return "GPU kernels: %s\n%s" % self


_NOT_LOADED = gpu_choice.Facts(False, None, "", registered=False, has_bfloat16=False)
_choice = gpu_choice.choose(_NOT_LOADED)
_reason = "The library is not loaded."
_library = None  # the op library as a `ctypes.CDLL`, if its GPU kernels are registered


def kernels_in_charge() -> KernelsInCharge:
    """Returns the `KernelsInCharge` of this process.

    The reason names the cuDNN in use once an RNN has run on a GPU.
    """
    reason = _report(_library) if _choice.provider == gpu_choice.OURS else _reason
    return KernelsInCharge(_choice.provider, reason)


def open_cudnn(library_path):
    """Opens cuDNN now, instead of when the first RNN runs on a GPU.

    Args:
      library_path: the library that this process has loaded.

    Returns:
      (whether the driver and cuDNN are open, report on found and missing libraries).
    """
    library = _loaded_library(library_path)
    code = library.cudnn_rnn_open_gpu(_places_to_search())
    return code == 0, _report(library)


def choice():
    """Returns the `gpu_choice.Choice` of this process."""
    return _choice


def register_kernels(library_path):
    """Registers this package's GPU kernels, if they are chosen and can work here.

    Must be called after the library is loaded; repeated calls are harmless.

    Args:
      library_path: the library that this process should have loaded, None if the file no longer
        exists.

    Raises:
      ImportError: the environment variable CUDNN_RNN_GPU_KERNELS has an invalid value.
    """
    global _choice, _reason
    # Not at the top: a TensorFlow that does not fit is refused before `_compat` is imported.
    from cudnn_rnn._compat import IS_TENSORFLOW_1, allowed_dtypes, tf

    wanted = os.environ.get(KERNELS_VARIABLE, "")
    if wanted not in ("cudnn_rnn", "tensorflow", ""):
        raise ImportError(
            "The environment variable %s must be cudnn_rnn or tensorflow, or unset, but is %r."
            % (KERNELS_VARIABLE, wanted)
        )
    has_bfloat16 = tf.bfloat16 in allowed_dtypes("CudnnRNN", "T")
    cudnn = _cudnn_of_tensorflow()
    facts = gpu_choice.Facts(IS_TENSORFLOW_1, cudnn, wanted, True, has_bfloat16)
    chosen = gpu_choice.choose(facts)
    is_ours = chosen.provider == gpu_choice.OURS
    reason = "" if is_ours else gpu_choice.reason_for_tensorflows(facts)
    if chosen.needs_registration:
        registered, report = _register(library_path, chosen.takes_over)
        chosen = gpu_choice.choose(facts._replace(registered=registered))
        reason = reason or report
    _choice, _reason = chosen, reason


def _cudnn_of_tensorflow():
    """Returns the major version of the cuDNN that TensorFlow was built with; None without CUDA."""
    import tensorflow

    if not tensorflow.test.is_built_with_cuda():
        return None
    if not hasattr(tensorflow.sysconfig, "get_build_info"):
        return 7  # before TensorFlow 2.3
    number = re.match(r"\d+", str(tensorflow.sysconfig.get_build_info().get("cudnn_version", "")))
    return int(number.group()) if number else _UNKNOWN_CUDNN


def _register(library_path, unlabelled_ops):
    """Returns whether the kernels are registered, and a report on found and missing libraries.

    All kernels are registered with the kernel label; those of `unlabelled_ops` also without.
    """
    library = _loaded_library(library_path)
    if library is None:
        return False, (
            "The op library that this process loaded is no longer installed. Restart the process."
        )
    code = library.cudnn_rnn_register_gpu_kernels(
        _places_to_search(), _c_strings(unlabelled_ops), ctypes.c_int64(len(unlabelled_ops))
    )
    if code == 0:
        global _library
        _library = library
    return code == 0, _report(library)


def _report(library):
    library.cudnn_rnn_gpu_report.restype = ctypes.c_char_p
    return library.cudnn_rnn_gpu_report().decode("utf-8", "replace")


class _LibrarySearch(ctypes.Structure):
    """cudnn_rnn_library_search of cc/engine/engine.h."""

    _fields_ = [
        ("driver_name", ctypes.c_char_p),
        ("cudnn_file", ctypes.c_char_p),
        ("wheel_folders", ctypes.POINTER(ctypes.c_char_p)),
        ("num_wheel_folders", ctypes.c_int64),
    ]


def _places_to_search():
    """Returns a pointer to a `_LibrarySearch`, the argument of functions that open cuDNN."""
    cudnn = os.environ.get(CUDNN_VARIABLE, "")
    folders = _wheel_folders()
    search = _LibrarySearch(None, os.fsencode(cudnn), _c_strings(folders), len(folders))
    return ctypes.byref(search)


def _c_strings(texts):
    """Returns an array of C strings."""
    return (ctypes.c_char_p * len(texts))(*map(os.fsencode, texts))


def _loaded_library(path):
    """Returns the library at `path` if this process has loaded it, else None.

    Opening a library that is not loaded yet would register the CPU kernels a second time.
    """
    if path is None:
        return None
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


def _wheel_folders():
    """Returns the library folders of nvidia-cudnn wheels in `sys.path`, without importing them."""
    folders = [os.path.join(os.path.abspath(entry), "nvidia", "cudnn", "lib") for entry in sys.path]
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]
