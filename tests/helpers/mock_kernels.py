"""Builds and loads the kernels that call cuDNN so that they run without a GPU.

The op library's GPU kernels run over the mock of cuDNN and the driver (tests/cudnn/mock), which
uses host memory. They are registered for TensorFlow's CPU device under the kernel label LABEL.
"""

import ctypes
import functools
import hashlib
import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from helpers.paths import ROOT

LABEL = "mock_cudnn"
ADAPTER = "tests/cudnn/mock_kernels.cc"
# The op library has the CPU kernels; the search for GPU libraries is not wanted here.
LEFT_OUT = ("cpu_backend.cc", "cpu_report.cc", "gpu_registration.cc", "keras_params_kernels.cc")


def _build_support():
    # Appended, and only for this import, because ROOT also holds the package's sources.
    sys.path.append(ROOT)
    try:
        return importlib.import_module("build_support")
    finally:
        sys.path.remove(ROOT)


def _fingerprint(command):
    checksum = hashlib.sha256(repr(command).encode())
    for folder in (os.path.join(ROOT, "cudnn_rnn", "cc"), os.path.join(ROOT, "tests", "cudnn")):
        for parent, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                with open(os.path.join(parent, name), "rb") as file:
                    checksum.update(file.read())
    return checksum.hexdigest()


def _build_kernels():
    """Returns the path of the kernels' library; builds it if any source has changed."""
    support = _build_support()
    compiler = support.find_compiler()
    tensorflow = support.find_tensorflow()
    command = compiler + support.compile_flags(tensorflow) + ["-O1"]
    folder = os.path.join(ROOT, ".build", "mock_kernels-" + tensorflow.version)
    library, stamp = os.path.join(folder, "kernels.so"), os.path.join(folder, "stamp")
    fingerprint = _fingerprint(command)
    if os.path.exists(stamp):
        with open(stamp) as file:
            if file.read() == fingerprint:
                return library
    os.makedirs(folder, exist_ok=True)
    sources = support.library_sources(("CORE_SOURCES", "CUDNN_SOURCES", "TF_SOURCES"))
    sources = [path for path in sources if os.path.basename(path) not in LEFT_OUT] + [ADAPTER]

    def compile_one(source):
        path = os.path.join(folder, source.replace("/", "_") + ".o")
        subprocess.run(command + ["-c", source, "-o", path], cwd=ROOT, check=True)
        return path

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_one, sources))
    link = ["-shared", "-pthread", "-Wl,-z,defs", "-o", library]
    subprocess.run(
        compiler + link + objects + tensorflow.link_flags + ["-ldl"], cwd=ROOT, check=True
    )
    with open(stamp, "w") as file:
        file.write(fingerprint)
    return library


def build_mock():
    """Builds the mock of cuDNN; returns the folder of its libraries."""
    script = os.path.join(ROOT, "scripts", "build_mock_cudnn.sh")
    output = subprocess.run(["bash", script], stdout=subprocess.PIPE, check=True).stdout
    return output.decode().splitlines()[-1]


@functools.lru_cache(maxsize=None)
def load():
    """Registers the kernels once per process; returns the mock's library (mock_cudnn.h)."""
    mock_file = os.path.join(build_mock(), "libmock_cudnn.so")
    mock = ctypes.CDLL(mock_file)
    mock.mock_violation_text.restype = mock.mock_log.restype = ctypes.c_char_p
    mock.mock_set_algorithm_time.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_double]
    for name in ("calls", "host_waits", "violations", "live", "fallible_calls"):
        getattr(mock, "mock_" + name).restype = ctypes.c_int64
    mock.mock_fail_call.argtypes = [ctypes.c_int64, ctypes.c_int]
    mock.mock_fail_calls_from.argtypes = [ctypes.c_int64, ctypes.c_int]
    # The mock must accept TensorFlow's memory, which it has not allocated itself.
    mock.mock_set_any_memory(1)
    kernels = ctypes.CDLL(_build_kernels())
    kernels.register_mock_kernels.restype = ctypes.c_char_p
    problem = kernels.register_mock_kernels(os.fsencode(mock_file), LABEL.encode())
    if problem is not None:
        raise RuntimeError(problem.decode())
    return mock
