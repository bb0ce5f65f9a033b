"""The libraries that cuDNN loads when it computes RNNs: which they are, and whether they open.

cuDNN loads them at the first call that needs them. If a part of cuDNN itself is missing, it then
ends the process, so only a subprocess may find out by calling cuDNN. This module calls nothing; it
opens the libraries as the loader would for cuDNN.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional

_DEFAULT_CUDA = 12  # if cuDNN's libraries do not name a version
# Folders of other libraries' wheels, beside the folder of cuDNN's wheel. The run-time path of
# cuDNN's libraries lists these folders.
_WHEEL_FOLDERS = ("cublas/lib", "cuda_nvrtc/lib", "cu13/lib")


class Library(NamedTuple):
    """A library that cuDNN loads.

    Attributes:
      name: the name that cuDNN loads it by.
      purpose: what cuDNN needs it for.
      wheel: the name of the wheel that contains it.
    """

    name: str
    purpose: str
    wheel: str


def needed_libraries(cudnn_path: str, cudnn_major: int) -> List[Library]:
    """Returns the `Library`s that the cuDNN in the file `cudnn_path` loads for RNNs."""
    folder = os.path.dirname(cudnn_path)
    if cudnn_major >= 9:
        parts = ["libcudnn_adv.so.9"]
    else:
        parts = ["libcudnn_adv_infer.so.8", "libcudnn_adv_train.so.8"]
    cuda = _cuda_of(os.path.join(folder, parts[0]))
    suffix = "-cu%d" % cuda if cuda < 13 else ""
    nvrtc = "libnvrtc.so.11.2" if cuda == 11 else "libnvrtc.so.%d" % cuda
    libraries = [Library(part, "computes RNNs", "nvidia-cudnn-cu%d" % cuda) for part in parts]
    return libraries + [
        Library("libcublasLt.so.%d" % cuda, "multiplies matrices", "nvidia-cublas" + suffix),
        Library(nvrtc, "compiles kernels at run time", "nvidia-cuda-nvrtc" + suffix),
    ]


def problems(
    cudnn_path: str, cudnn_major: int, open_library: Optional[Callable] = None
) -> Dict[str, str]:
    """Opens all libraries that the cuDNN in the file `cudnn_path` loads for RNNs.

    Args:
      cudnn_path: path of the cuDNN library.
      cudnn_major: its major version, 8 or 9.
      open_library: function of a name or path that raises an `OSError` if it cannot be opened;
        `ctypes.CDLL` by default.

    Returns:
      Dict of each library that cannot be opened and what to do about it.
    """
    open_library = open_library or ctypes.CDLL
    folder = os.path.dirname(cudnn_path)
    wheels = os.path.dirname(os.path.dirname(folder))
    folders = [folder] + [os.path.join(wheels, name) for name in _WHEEL_FOLDERS]
    found = {}
    for library in needed_libraries(cudnn_path, cudnn_major):
        paths = [os.path.join(place, library.name) for place in folders]
        candidates = [path for path in paths if os.path.exists(path)] + [library.name]
        errors = [_error_of(open_library, candidate) for candidate in candidates]
        if None in errors:
            continue
        found[library.name] = (
            "cuDNN %s with it, but it cannot be opened: %s.\n"
            "Install it (pip install %s), or add its folder to LD_LIBRARY_PATH."
            % (library.purpose, errors[0], library.wheel)
        )
    return found


def _error_of(open_library, name):
    try:
        open_library(name)
    except OSError as error:
        return str(error)
    return None


def _cuda_of(part):
    """Returns the major version of CUDA that this part of cuDNN was built for."""
    try:
        with open(part, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            name = re.search(rb"libcublasLt\.so\.(\d+)", data)
            return int(name.group(1)) if name else _DEFAULT_CUDA
    except (OSError, ValueError):  # no such file, or an empty one
        return _DEFAULT_CUDA
