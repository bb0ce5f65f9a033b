"""Which kernels compute the RNN ops on a GPU: this package's, TensorFlow's own, or none.

The library's GPU kernels call cuDNN 8 or 9, which is opened when the package is imported. Where
there is no NVIDIA driver, nothing else is looked for.

Environment variables, read at import:
  CUDNN_RNN_GPU_KERNELS: `cudnn_rnn` or `tensorflow`. With TensorFlow 2 this package's kernels are
    the default, and in charge of every RNN op in the process, whoever made it. TensorFlow 1 cannot
    choose between two kernels for one op, so there TensorFlow's own are the default; with
    `cudnn_rnn` the nodes that this package makes, and their gradients, get the attribute
    `_kernel="cudnn_rnn"`, which names this package's kernels, on a CPU too. A graph with such
    nodes runs only where this package is imported.
  CUDNN_RNN_CUDNN_LIBRARY: the file that is cuDNN. Otherwise: what the process has loaded already,
    then the nvidia-cudnn wheel beside the installed packages, then where the loader looks.
"""

import collections
import ctypes
import os
import sys

KERNELS_VARIABLE = "CUDNN_RNN_GPU_KERNELS"
CUDNN_VARIABLE = "CUDNN_RNN_CUDNN_LIBRARY"
KERNEL_LABEL = "cudnn_rnn"

# TensorFlow's own kernels have 0.
_PRIORITY = 1


class KernelsInCharge(collections.namedtuple("KernelsInCharge", "provider reason")):
    """What a node of an RNN op gets if it is on a GPU, and why.

    Attributes:
      provider: "cudnn_rnn", "tensorflow" or "none" (the op cannot run on a GPU).
      reason: str, lines of text: the libraries in use, or what is missing.
    """

    __slots__ = ()

    def __str__(self):
        return "GPU kernels: %s\n%s" % self


_in_charge = KernelsInCharge("none", "The library is not loaded.")
_labels_nodes = False


def kernels_in_charge():
    """Returns the `KernelsInCharge` of this process."""
    return _in_charge


def labels_nodes():
    """Tells whether the nodes that this package makes get the kernel label."""
    return _labels_nodes


def register_kernels(library_path, tensorflow):
    """Registers this package's GPU kernels, if they are wanted and can work here.

    Called once the library is loaded; more calls do no harm.

    Args:
      library_path: the library that this process should have loaded, None if there is no such
        file any more.
      tensorflow: the module.

    Raises:
      ImportError: the environment variable CUDNN_RNN_GPU_KERNELS has a value that it cannot have.
    """
    global _in_charge, _labels_nodes
    is_tensorflow_1 = tensorflow.version.VERSION.startswith("1.")
    wanted = os.environ.get(KERNELS_VARIABLE) or ("tensorflow" if is_tensorflow_1 else "cudnn_rnn")
    if wanted not in ("cudnn_rnn", "tensorflow"):
        raise ImportError(
            "The environment variable %s must be cudnn_rnn or tensorflow, or not be set, but is %r."
            % (KERNELS_VARIABLE, wanted)
        )
    _labels_nodes = is_tensorflow_1 and wanted == "cudnn_rnn"
    if wanted == "tensorflow":
        default = "The default with TensorFlow 1; %s=cudnn_rnn changes it." % KERNELS_VARIABLE
        chosen = "%s=tensorflow." % KERNELS_VARIABLE
        reason = chosen if os.environ.get(KERNELS_VARIABLE) else default
        _in_charge = KernelsInCharge(_provider_without_us(), reason)
        return
    succeeded, reason = _register(library_path, 0 if is_tensorflow_1 else _PRIORITY)
    without_us = "none" if is_tensorflow_1 else _provider_without_us()
    _in_charge = KernelsInCharge("cudnn_rnn" if succeeded else without_us, reason)


def _register(library_path, unlabelled_priority):
    """Returns whether the kernels are registered, and a text about the libraries or their lack."""
    library = _loaded_library(library_path)
    if library is None:
        return False, "The op library of this process is none that is installed here any more."
    library.cudnn_rnn_gpu_report.restype = ctypes.c_char_p
    code = library.cudnn_rnn_register_gpu_kernels(
        os.fsencode(os.environ.get(CUDNN_VARIABLE, "")),
        os.fsencode(":".join(_wheel_folders())),
        ctypes.c_int(unlabelled_priority),
    )
    return code == 0, library.cudnn_rnn_gpu_report().decode("utf-8", "replace")


def _loaded_library(path):
    """Returns the library at `path` if this process has loaded it, else None.

    Loading another file would register the CPU kernels a second time.
    """
    if path is None:
        return None
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


def _wheel_folders():
    """Returns the folders with the libraries of the nvidia-cudnn wheels, importing nothing."""
    folders = [os.path.join(os.path.abspath(entry), "nvidia", "cudnn", "lib") for entry in sys.path]
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def _provider_without_us():
    from tensorflow.python.framework import kernels

    registered = kernels.get_registered_kernels_for_op("CudnnRNN").kernel
    has_own = any(kernel.device_type == "GPU" and not kernel.label for kernel in registered)
    return "tensorflow" if has_own else "none"
