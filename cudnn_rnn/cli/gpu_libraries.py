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
    folder = os.path.dirname(cudnn.path)
    wheels = os.path.dirname(os.path.dirname(folder))
    folders = [folder] + [os.path.join(wheels, name) for name in _WHEEL_FOLDERS]
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
            _advice(name, _cuda_of(cudnn), os.path.dirname(wheels)),
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
    part = os.path.join(os.path.dirname(cudnn.path), _parts_of(cudnn)[0])
    try:
        with open(part, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            name = re.search(rb"libcublasLt\.so\.(\d+)", data)
            return int(name.group(1)) if name else _DEFAULT_CUDA
    except (OSError, ValueError):  # no such file, or an empty one
        return _DEFAULT_CUDA


def _advice(name, cuda, site_packages):
    """Says how to get the library `name`, given the folder of the wheels."""
    wheel = _WHEELS.get(re.match("[a-z]+", name).group())
    if wheel is None:
        return "Install %s with your system's packages, or add its folder to LD_LIBRARY_PATH." % name
    wheel = wheel.format(cuda=cuda, suffix="-cu%d" % cuda if cuda < 13 else "")
    pattern = os.path.join(site_packages, wheel.replace("-", "_") + "-*.dist-info")
    for path in glob.glob(pattern):
        # It is installed, but its file is missing or damaged: pip would not install it again.
        version = os.path.basename(path)[len(wheel) + 1 : -len(".dist-info")]
        wheel = "--force-reinstall --no-deps %s==%s" % (wheel, version)
        break
    return "Install it (pip install %s), or add its folder to LD_LIBRARY_PATH." % wheel
