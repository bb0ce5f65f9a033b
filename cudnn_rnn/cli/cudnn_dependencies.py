"""The libraries that cuDNN loads when it computes RNNs: which they are, and whether they open.

cuDNN loads them at the first call that needs them. If a part of cuDNN itself is missing, it then
ends the process, so only a subprocess may find out by calling cuDNN. This module calls nothing; it
opens the libraries as the loader would for cuDNN.
"""

from __future__ import annotations

import ctypes
import glob
import mmap
import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional

_DEFAULT_CUDA = 12  # if cuDNN's libraries do not name a version
# Folders of other libraries' wheels, beside the folder of cuDNN's wheel. The run-time path of
# cuDNN's libraries lists these folders.
_WHEEL_FOLDERS = ("cublas/lib", "cuda_nvrtc/lib", "cu13/lib")
# What the op library reports about the cuDNN in use, and about one that it refuses.
_USED = re.compile(r"cuDNN (?P<major>\d+)\.\S+: (?P<path>/.*)")
_REFUSED = re.compile(
    r"^  [^:]+: (?P<path>/.*): libcudnn_adv\w*\.so\.(?P<major>\d+), which computes RNNs", re.M
)
# What the loader says about the library that it could not open: the one that was to be opened, or
# one that it is linked against.
_LOADER_ERROR = re.compile(r"(?:.*/)?(lib[^/:\s]+\.so[.\d]*): ")
# The wheels of libraries by the beginning of their names, for a version of CUDA.
_WHEELS = {
    "libcudnn": "nvidia-cudnn-cu{cuda}",
    "libcublas": "nvidia-cublas{suffix}",
    "libnvrtc": "nvidia-cuda-nvrtc{suffix}",
}


class Cudnn(NamedTuple):
    """The path of a cuDNN library and its major version."""

    path: str
    major: int


class Library(NamedTuple):
    """A library that cuDNN loads: the name that it loads it by, and what it needs it for."""

    name: str
    purpose: str


def cudnns_in(report: str) -> List[Cudnn]:
    """Returns the `Cudnn` that the op library's report names; if there is none, those refused.

    A cuDNN is refused if a library that it needs for RNNs cannot be opened.
    """
    used = _USED.match(report)
    matches = [used] if used else _REFUSED.finditer(report)
    found = [Cudnn(match.group("path"), int(match.group("major"))) for match in matches]
    return list(dict.fromkeys(found))


def needed_libraries(cudnn: Cudnn) -> List[Library]:
    """Returns the `Library`s that `cudnn` loads for RNNs."""
    cuda = _cuda_of(cudnn)
    nvrtc = "libnvrtc.so.11.2" if cuda == 11 else "libnvrtc.so.%d" % cuda
    return [Library(part, "computes RNNs") for part in _parts_of(cudnn)] + [
        Library("libcublasLt.so.%d" % cuda, "multiplies matrices"),
        Library(nvrtc, "compiles kernels at run time"),
    ]


def problems(cudnn: Cudnn, open_library: Optional[Callable] = None) -> Dict[str, str]:
    """Opens all libraries that `cudnn` loads for RNNs.

    Args:
      cudnn: a `Cudnn`.
      open_library: function of a name or path that raises an `OSError` if it cannot be opened;
        `ctypes.CDLL` by default.

    Returns:
      Dict of each library that cannot be opened and what to do about it.
    """
    open_library = open_library or ctypes.CDLL
    wheels = os.path.join(_site_packages(cudnn), "nvidia")
    folders = [os.path.dirname(cudnn.path)] + [
        os.path.join(wheels, name) for name in _WHEEL_FOLDERS
    ]
    found = {}
    for library in needed_libraries(cudnn):
        paths = [os.path.join(place, library.name) for place in folders]
        candidates = [path for path in paths if os.path.exists(path)] + [library.name]
        errors = [_error_of(open_library, candidate) for candidate in candidates]
        if None in errors:
            continue
        to_blame = _LOADER_ERROR.match(errors[0])
        name = to_blame.group(1) if to_blame else library.name
        found[name] = "cuDNN %s with it, but it cannot be opened: %s.\n%s" % (
            library.purpose,
            errors[0],
            _advice(name, cudnn),
        )
    return found


def _error_of(open_library, name):
    try:
        open_library(name)
    except OSError as error:
        return str(error)
    return None


def _parts_of(cudnn):
    if cudnn.major >= 9:
        return ["libcudnn_adv.so.9"]
    return ["libcudnn_adv_infer.so.8", "libcudnn_adv_train.so.8"]


def _cuda_of(cudnn):
    """Returns the major version of CUDA that `cudnn` was built for."""
    folder = os.path.dirname(cudnn.path)
    linked = "libcudnn_adv.so.9" if cudnn.major >= 9 else "libcudnn_ops_infer.so.8"
    name = _search_in(os.path.join(folder, linked), rb"libcublasLt\.so\.(\d+)")
    if name is not None:
        return int(name)
    for wheel in _installed_wheels(cudnn, "nvidia_cudnn_cu*"):
        return int(re.findall(r"\d+", wheel)[0])
    return _DEFAULT_CUDA


def _site_packages(cudnn):
    """Returns the folder that wheels are installed in, if `cudnn` is that of a wheel."""
    return os.path.abspath(os.path.join(os.path.dirname(cudnn.path), *[os.pardir] * 3))


def _installed_wheels(cudnn, name):
    """Returns "name-version" of the wheels beside that of `cudnn`; `name` is a pattern."""
    suffix = ".dist-info"
    paths = glob.glob(os.path.join(glob.escape(_site_packages(cudnn)), name + "-*" + suffix))
    return [os.path.basename(path)[: -len(suffix)] for path in paths]


def _search_in(path, pattern):
    """Returns the first group of `pattern` in the file's bytes; None without a match or a file."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = re.search(pattern, data)
            return match and match.group(1)
    except (OSError, ValueError):  # no such file, or an empty one
        return None


def _advice(name, cudnn):
    """Says how to get the library `name`, without which `cudnn` does not work."""
    wheel = next((wheel for start, wheel in _WHEELS.items() if name.startswith(start)), None)
    if wheel is None:
        return (
            "Install %s with your system's packages, or add its folder to LD_LIBRARY_PATH." % name
        )
    cuda = _cuda_of(cudnn)
    wheel = wheel.format(cuda=cuda, suffix="-cu%d" % cuda if cuda < 13 else "")
    for installed in _installed_wheels(cudnn, wheel.replace("-", "_")):
        # The wheel's file is missing or damaged, but pip takes the wheel for installed.
        version = installed.partition("-")[2]
        text = "Install it again (pip install --force-reinstall --no-deps %s==%s)."
        return text % (wheel, version)
    return "Install it (pip install %s), or add its folder to LD_LIBRARY_PATH." % wheel
