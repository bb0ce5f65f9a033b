"""Selects the kernels that compute the RNN ops on a GPU: this package's, TensorFlow's, or none.

The library's GPU kernels call cuDNN 8 or 9. They are registered if the process can open an NVIDIA
driver. The first of them opens cuDNN, not the import: TensorFlow looks for cuDNN by name when it
creates its GPU devices, and would get the one that this package had opened.

Environment variables, read at import:
  CUDNN_RNN_GPU_KERNELS: `cudnn_rnn` or `tensorflow`. With TensorFlow 2 the default is `cudnn_rnn`:
    this package's kernels compute every RNN op in the process, no matter which library created it.
    TensorFlow 1 cannot choose between two kernels for one op, so the default there is `tensorflow`.
    With `cudnn_rnn`, the nodes that this package creates, and their gradients, get the attribute
    `_kernel="cudnn_rnn"`, which selects this package's kernels, on a CPU too. A graph with such
    nodes runs only in a process that imports this package.
  CUDNN_RNN_CUDNN_LIBRARY: path of the cuDNN library. By default: the cuDNN that the process has
    loaded, which is TensorFlow's; then one in LD_LIBRARY_PATH, in an nvidia-cudnn wheel in
    `sys.path`, or where the loader finds it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NamedTuple

KERNELS_VARIABLE = "CUDNN_RNN_GPU_KERNELS"
CUDNN_VARIABLE = "CUDNN_RNN_CUDNN_LIBRARY"
KERNEL_LABEL = "cudnn_rnn"

# Higher than the priority 0 of TensorFlow's own kernels.
_PRIORITY = 1


class KernelsInCharge(NamedTuple):
    """The provider of the kernels that run RNN ops on a GPU, and the reason.

    Attributes:
      provider: "cudnn_rnn", "tensorflow" or "none" (the ops cannot run on a GPU).
      reason: str, one or more lines: the libraries in use, or what is missing.
    """

    provider: str
    reason: str

    def __str__(self) -> str:
        return "GPU kernels: %s\n%s" % self


_in_charge = KernelsInCharge("none", "The library is not loaded.")
_library = None  # the op library as a `ctypes.CDLL`, if its GPU kernels are registered
_labels_nodes = False


def kernels_in_charge() -> KernelsInCharge:
    """Returns the `KernelsInCharge` of this process.

    The reason names the cuDNN in use once an RNN has run on a GPU.
    """
    return _in_charge if _library is None else _in_charge._replace(reason=_report(_library))


def open_cudnn(library_path):
    """Opens cuDNN now, instead of when the first RNN runs on a GPU.

    Args:
      library_path: the library that this process has loaded.

    Returns:
      (whether the driver and cuDNN are open, report on found and missing libraries).
    """
    library = _loaded_library(library_path)
    code = library.cudnn_rnn_open_gpu_libraries(*_places_to_search())
    return code == 0, _report(library)


def labels_nodes():
    """Returns whether nodes that this package creates get the kernel label."""
    return _labels_nodes


def register_kernels(library_path):
    """Registers this package's GPU kernels, if they are requested and can work here.

    Must be called after the library is loaded; repeated calls are harmless.

    Args:
      library_path: the library that this process should have loaded, None if the file no longer
        exists.

    Raises:
      ImportError: the environment variable CUDNN_RNN_GPU_KERNELS has an invalid value.
    """
    global _in_charge, _labels_nodes
    # Not at the top: a TensorFlow that does not fit is refused before `_compat` is imported.
    from cudnn_rnn._compat import IS_TENSORFLOW_1

    wanted = os.environ.get(KERNELS_VARIABLE) or ("tensorflow" if IS_TENSORFLOW_1 else "cudnn_rnn")
    if wanted not in ("cudnn_rnn", "tensorflow"):
        raise ImportError(
            "The environment variable %s must be cudnn_rnn or tensorflow, or unset, but is %r."
            % (KERNELS_VARIABLE, wanted)
        )
    _labels_nodes = IS_TENSORFLOW_1 and wanted == "cudnn_rnn"
    if wanted == "tensorflow":
        reason = "This is the default with TensorFlow 1. Set %s=cudnn_rnn to change it."
        if os.environ.get(KERNELS_VARIABLE):
            reason = "%s=tensorflow."
        _in_charge = KernelsInCharge(_provider_without_us(), reason % KERNELS_VARIABLE)
        return
    succeeded, reason = _register(library_path, 0 if IS_TENSORFLOW_1 else _PRIORITY)
    without_us = "none" if IS_TENSORFLOW_1 else _provider_without_us()
    _in_charge = KernelsInCharge("cudnn_rnn" if succeeded else without_us, reason)


def _register(library_path, unlabelled_priority):
    """Returns whether the kernels are registered, and a report on found and missing libraries."""
    library = _loaded_library(library_path)
    if library is None:
        return False, (
            "The op library that this process loaded is no longer installed. Restart the process."
        )
    code = library.cudnn_rnn_register_gpu_kernels(
        *_places_to_search(), ctypes.c_int(unlabelled_priority)
    )
    if code == 0:
        global _library
        _library = library
    return code == 0, _report(library)


def _report(library):
    library.cudnn_rnn_gpu_report.restype = ctypes.c_char_p
    return library.cudnn_rnn_gpu_report().decode("utf-8", "replace")


def _places_to_search():
    """Returns the first arguments of the library's functions that open cuDNN."""
    path = os.environ.get(CUDNN_VARIABLE, "")
    return os.fsencode(path), os.fsencode(":".join(_wheel_folders()))


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


def _provider_without_us():
    from tensorflow.python.framework import kernels

    registered = kernels.get_registered_kernels_for_op("CudnnRNN").kernel
    has_own = any(kernel.device_type == "GPU" and not kernel.label for kernel in registered)
    return "tensorflow" if has_own else "none"
