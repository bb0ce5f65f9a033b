"""Reads a whole HDF5 file; runs in a child process."""

import os

import h5py
import numpy as np

# Chunks of a small dataset may be larger than the dataset, but not than this.
_SMALL_CHUNK = 2**20
_FILTERS = {
    h5py.h5z.FILTER_DEFLATE: "deflate",
    h5py.h5z.FILTER_SHUFFLE: "shuffle",
    h5py.h5z.FILTER_FLETCHER32: "fletcher32",
}


class Refused(Exception):
    """The file is damaged, or takes data from elsewhere."""


def read(path, largest_ratio):
    """Returns the attributes and the arrays of a file.

    Args:
      path: the file.
      largest_ratio: the largest factor by which deflate makes data smaller.

    Returns:
      A dict: "attributes" is a dict by path ("" for the root) of dicts by name; a value is a str, a
      number, or a list of them. "arrays" is a dict by path of arrays; None for a dataset that does
      not hold numbers.
    """
    attributes, arrays = {}, {}
    with h5py.File(path, "r") as file:
        limits = _Limits(os.path.getsize(path), largest_ratio)

        def visit(name, item):
            attributes[name] = _attributes(name, item, limits)
            if isinstance(item, h5py.Group):
                _refuse_links(name, item)
            elif isinstance(item, h5py.Dataset):
                limits.check(name, item)
                is_number = item.dtype.kind in "biufcV" and item.dtype.names is None
                arrays[name] = (
                    np.asarray(item[()]) if is_number and item.shape is not None else None
                )

        visit("", file)
        file.visititems(visit)
    return {"attributes": attributes, "arrays": arrays}


def root_attributes(path):
    """Returns the attributes of the root of a file, as `read` does."""
    with h5py.File(path, "r") as file:
        return _attributes("", file, _Limits(os.path.getsize(path), 1))


def _refuse_links(name, group):
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
            raise _in_other_files("%s/%s" % (name, key))


def _in_other_files(name):
    return Refused(
        "it is not self-contained, as the data of %s are in another file; save the model again, "
        "into one file" % name.strip("/")
    )


class _Limits:
    """Compares declared sizes with the bytes of the file, before anything is allocated."""

    def __init__(self, file_size, largest_ratio):
        self._size = self._left = file_size
        self._largest_ratio = largest_ratio

    def attribute(self, name, size):
        self._require(size <= self._size, name, size, self._size)

    def check(self, name, item):
        if item.external or getattr(item, "is_virtual", False):
            raise _in_other_files(name)
        if item.shape is None:
            return
        stored = item.id.get_storage_size()
        self._require(stored <= self._left, name, stored, self._left)
        self._left -= stored
        declared = item.dtype.itemsize
        for length in item.shape:
            declared *= int(length)
        ratio = 1
        if item.chunks:
            _check_filters(name, item)
            ratio = self._largest_ratio
            chunk = item.dtype.itemsize
            for length in item.chunks:
                chunk *= int(length)
            self._require(
                chunk <= max(declared, _SMALL_CHUNK), "a chunk of " + name, chunk, declared
            )
        self._require(declared <= stored * ratio, name, declared, stored * ratio, item)

    @staticmethod
    def _require(condition, name, size, available, item=None):
        if not condition:
            of_array = "" if item is None else " with shape %s" % list(item.shape)
            raise Refused(
                "it declares %s%s, %d bytes, but has at most %d bytes for it"
                % (name, of_array, size, available)
            )


def _check_filters(name, item):
    plist = item.id.get_create_plist()
    codes = [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]
    for code in codes:
        if code not in _FILTERS or codes.count(code) > 1:
            raise Refused(
                "%s has the filters %s; expected each of deflate, shuffle and fletcher32 at most "
                "once" % (name, ", ".join(_FILTERS.get(code, "number %d" % code) for code in codes))
            )


def _attributes(name, item, limits):
    found = {}
    for key in item.attrs:
        stored = h5py.h5a.open(item.id, key.encode())
        size = stored.dtype.itemsize
        for length in stored.shape:
            size *= int(length)
        limits.attribute("the attribute %s of %s" % (key, name or "the root"), size)
        found[key] = _plain(item.attrs[key])
    return found


def _plain(value):
    """Returns an attribute as str, numbers and lists; None for any other type."""
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value] if value.ndim else _plain(value[()])
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value if isinstance(value, (str, bool, int, float)) else None
