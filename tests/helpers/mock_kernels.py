"""Registers the kernels that call cuDNN so that they run without a GPU.

The GPU kernels of the installed op library run over the mock of cuDNN and the driver
(tests/cudnn/mock), which uses host memory. They are registered for TensorFlow's CPU device under
two kernel labels: LABEL, whose buffers need TensorFlow's alignment of host memory, and
STRICT_LABEL, whose buffers need that of device memory, as with the real cuDNN.
"""

import ctypes
import functools
import os
import subprocess

from cudnn_rnn._native import library
from helpers.paths import ROOT

LABEL = "mock_cudnn"
STRICT_LABEL = "mock_cudnn_strict"
ALIGNMENTS = {LABEL: 64, STRICT_LABEL: 256}  # in bytes


def build_mock():
    """Builds the mock of cuDNN; returns the folder of its libraries."""
    command = ["bash", os.path.join(ROOT, "scripts", "cpp.sh"), "path", "release", "mock_cudnn"]
    return subprocess.check_output(command, universal_newlines=True).strip()


@functools.lru_cache(maxsize=None)
def load():
    """Registers the kernels once per process; returns the mock's library (mock_cudnn.h).

    $CUDNN_RNN_MOCK_CUDNN is its path; by default, it is built.
    """
    mock_file = os.environ.get("CUDNN_RNN_MOCK_CUDNN")
    mock_file = mock_file or os.path.join(build_mock(), "libmock_cudnn.so")
    mock = ctypes.CDLL(mock_file)
    mock.mock_violation_text.restype = mock.mock_log.restype = ctypes.c_char_p
    mock.mock_set_algorithm_time.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_double]
    for name in ("calls", "host_waits", "violations", "live", "fallible_calls"):
        getattr(mock, "mock_" + name).restype = ctypes.c_int64
    mock.mock_fail_call.argtypes = [ctypes.c_int64, ctypes.c_int]
    mock.mock_fail_calls_from.argtypes = [ctypes.c_int64, ctypes.c_int]
    # The mock must accept TensorFlow's memory, which it has not allocated itself.
    mock.mock_set_any_memory(1)
    library.load_library()
    ops = ctypes.CDLL(library.library_path())
    for label, alignment in ALIGNMENTS.items():
        status = ops.cudnn_rnn_register_mock_kernels(
            os.fsencode(mock_file), label.encode(), alignment
        )
        if status != 0:
            raise RuntimeError("registering the mock kernels failed with status code %d" % status)
    return mock
