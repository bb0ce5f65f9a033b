"""Compares the sizes that a file declares with the bytes that it has, before anything is allocated.

A few bytes of a file can declare an array of terabytes. These functions refuse such files.
"""

from __future__ import annotations

import os
import zipfile
from typing import Any, Mapping, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError

# The largest factor by which deflate, the compression of ZIP and HDF5, makes data smaller.
_LARGEST_RATIO = 1032


def check_array(path: str, name: str, shape: Any, dtype: np.dtype, stored: int) -> int:
    """Returns the bytes of an array; raises `ExchangeError` if they are more than `stored`."""
    declared = max(dtype.itemsize, 1)
    for length in shape:
        declared *= int(length)
    if declared > stored:
        raise ExchangeError(
            "%s is damaged: it declares %s with shape %s, dtype %s, %d bytes, but has at most %d "
            "bytes for it. Get the file from its source again."
            % (path, name, list(shape), dtype, declared, stored)
        )
    return declared


def check_zip(path: str) -> None:
    """Checks the members of a ZIP archive, and the arrays of those that are NumPy's `.npy`."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            stored = min(member.compress_size, os.path.getsize(path))
            if member.compress_type != zipfile.ZIP_STORED:
                stored *= _LARGEST_RATIO
            check_array(path, member.filename, [member.file_size], np.dtype("u1"), stored)
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    shape, dtype = _npy_header(file)
                check_array(path, member.filename, shape, dtype, member.file_size)


def _npy_header(file):
    """Returns (shape, dtype); raises `ValueError` if the header is damaged."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype


def check_checkpoint(
    prefix: str, shapes: Mapping[str, Tuple[int, ...]], dtypes: Mapping[str, np.dtype]
) -> None:
    """Checks the tensors of a checkpoint together; a string takes one byte or more."""
    folder, name = os.path.split(os.path.abspath(prefix))
    parts = [each for each in os.listdir(folder) if each == name or each.startswith(name + ".")]
    stored = sum(os.path.getsize(os.path.join(folder, each)) for each in parts)
    for key, shape in shapes.items():
        dtype = dtypes[key] if dtypes[key].kind != "O" else np.dtype("u1")
        stored -= check_array(prefix, key, shape, dtype, stored)


def check_hdf5(path: str, file: Any) -> None:
    """Checks the datasets of an HDF5 file, and that none of them are in other files.

    Args:
      path: the file that the error names.
      file: an `h5py.File`.
    """
    import h5py

    size = file.id.get_filesize()

    def check(name, item):
        if isinstance(item, h5py.Group):
            for key in item:
                if isinstance(item.get(key, getlink=True), h5py.ExternalLink):
                    raise _in_other_files(path, "%s/%s" % (name, key))
            return
        if item.external or getattr(item, "is_virtual", False):
            raise _in_other_files(path, name)
        stored = min(item.id.get_storage_size(), size) * (_LARGEST_RATIO if item.chunks else 1)
        if item.shape is not None:
            check_array(path, name, item.shape, item.dtype, stored)

    check("", file)
    file.visititems(check)


def _in_other_files(path, name):
    return ExchangeError(
        "%s is not self-contained: the data of %s are in another file. Save the model again, into "
        "one file." % (path, name)
    )
