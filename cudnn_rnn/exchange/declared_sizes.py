"""Compares the sizes that a file declares with the bytes that it has, before anything is allocated.

A few bytes of a file can declare an array of terabytes. These functions refuse such files.
"""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError

# The largest factor by which deflate, the compression of ZIP archives, makes data smaller.
LARGEST_RATIO = 1032


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
    """Checks the members of a ZIP archive, and the arrays of those that are NumPy's `.npy`.

    Raises:
      ExchangeError: a member is compressed by something other than deflate, is encrypted, overlaps
        another one, has the name of another one, or declares more data than it can have.
    """
    with zipfile.ZipFile(path) as archive:
        _check_places(path, archive)
        for member in archive.infolist():
            stored = member.compress_size
            if member.compress_type != zipfile.ZIP_STORED:
                stored *= LARGEST_RATIO
            check_array(path, member.filename, [member.file_size], np.dtype("u1"), stored)
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    shape, dtype = _npy_header(file)
                check_array(path, member.filename, shape, dtype, member.file_size)


def _check_places(path, archive):
    """Checks that each member has its own name and its own part of the archive."""
    names = set()
    end_of_last = 0
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        problem = None
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            problem = "is compressed by method %d" % member.compress_type
        elif member.flag_bits & 1:
            problem = "is encrypted"
        elif member.filename in names:
            problem = "is there twice"
        elif member.header_offset < end_of_last:
            problem = "overlaps another member"
        if problem:
            raise ExchangeError(
                "%s is damaged: its member %s %s; expected members that are stored or deflated, "
                "each in its own place." % (path, member.filename, problem)
            )
        names.add(member.filename)
        # The local header has at least 30 bytes and the name.
        content = member.compress_size + 30 + len(member.orig_filename.encode("utf-8", "replace"))
        end_of_last = member.header_offset + content
    if end_of_last > archive.start_dir:
        raise ExchangeError("%s is damaged: its members are longer than the archive." % path)


def _npy_header(file):
    """Returns (shape, dtype); raises `ValueError` if the header is damaged."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    return shape, dtype
