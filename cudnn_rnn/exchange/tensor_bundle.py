"""Reads the files of a TensorFlow checkpoint, a "tensor bundle", with NumPy.

TensorFlow's own reader ends the process if an entry of the index is damaged. Here every length is
compared with the bytes that are there, before it is used.

The index, `<prefix>.index`, is a sorted table: blocks of keys and values, and a footer that says
where the block of blocks is. The value of the key "" is a `BundleHeaderProto`; the other values are
`BundleEntryProto`s, which say where the data files `<prefix>.data-<shard>-of-<shards>` have the
tensor. All blocks and tensors have checksums.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, List, Set, Tuple

import numpy as np

from cudnn_rnn.exchange import crc32c
from cudnn_rnn.exchange.contents import ExchangeError

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48  # two handles of blocks, in 40 bytes, and the magic number
_TRAILER = struct.Struct("<BI")  # after each block: its compression and its checksum
# One key of 16 is whole; the others have the number of bytes that they share with the key before.
_MOST_KEYS_PER_WHOLE_KEY = 16
_MOST_DIMENSIONS = 32  # NumPy's limit
_BIG_ENDIAN = 1


class Unsupported(Exception):
    """A part of the format that only TensorFlow reads."""


class _Damaged(Exception):
    """The message says what is wrong."""


class TensorBundle:
    """A checkpoint.

    Attributes:
      shapes: dict of tuples by key.
      dtypes: dict of NumPy dtypes by key; object for strings.
      partitioned: set of the keys whose tensors are stored in slices, which are not read here.
    """

    def __init__(self, prefix: str) -> None:
        """Reads the index.

        Raises:
          ExchangeError: it is missing or damaged, or declares more than the data files have.
          Unsupported: there is no index of this format, or it is compressed.
        """
        self._prefix = prefix
        self.shapes: Dict[str, Tuple[int, ...]] = {}
        self.dtypes: Dict[str, np.dtype] = {}
        self.partitioned: Set[str] = set()
        self._entries: Dict[str, Any] = {}
        try:
            with open(prefix + ".index", "rb") as file:
                content = file.read()
        except FileNotFoundError:
            raise Unsupported("there is no file %s.index" % prefix) from None
        except OSError as error:
            raise _unreadable(prefix, error) from error
        try:
            self._read_entries(_entries_of(content))
            self._check_data()
        except _Damaged as error:
            raise _unreadable(prefix, error) from None

    def tensor(self, key: str) -> Any:
        """Returns the array of a key; strings are `bytes` in an array of objects.

        Raises:
          ExchangeError: the data are damaged.
        """
        try:
            return self._array(key)
        except (_Damaged, OSError) as error:
            raise _unreadable(self._prefix, "%s: %s" % (key, error)) from error

    def _read_entries(self, items):
        # Imported here: TensorFlow has many protobufs.
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import tensor_bundle_pb2

        if not items or items[0][0] != b"":
            raise _Damaged("its index has no header")
        try:
            header = tensor_bundle_pb2.BundleHeaderProto.FromString(items[0][1])
            entries = [tensor_bundle_pb2.BundleEntryProto.FromString(value) for _, value in items]
        except DecodeError as error:
            raise _Damaged("an entry of its index is damaged (%s)" % error) from error
        self._order = ">" if header.endianness == _BIG_ENDIAN else "<"
        self._num_shards = header.num_shards
        for (encoded, _), entry in zip(items[1:], entries[1:]):
            if encoded[:1] == b"\0":  # a slice, which belongs to another entry
                continue
            try:
                key = encoded.decode("utf-8")
            except UnicodeDecodeError:
                raise _Damaged("the key %r is no text" % encoded[:100]) from None
            self.shapes[key] = _shape_of(key, entry)
            self.dtypes[key] = _dtype_of(key, entry)
            self._entries[key] = entry
            if entry.slices:
                self.partitioned.add(key)

    def _check_data(self):
        """Compares the sizes of all tensors with the bytes that are there."""
        left = sum(
            os.path.getsize(path)
            for path in {self._data_path(entry) for entry in self._entries.values()}
            if os.path.exists(path)
        )
        for key, entry in self._entries.items():
            if key in self.partitioned:
                continue
            dtype = self.dtypes[key]
            # A string takes a byte or more.
            declared = 1 if dtype.kind == "O" else dtype.itemsize
            for length in self.shapes[key]:
                declared *= length
            if declared > left:
                raise _Damaged(
                    "it declares %s with shape %s, dtype %s, %d bytes, but has at most %d bytes "
                    "for it" % (key, list(self.shapes[key]), dtype, declared, left)
                )
            if entry.size != declared if dtype.kind != "O" else entry.size < declared:
                raise _Damaged(
                    "%s has %d bytes; expected %d for shape %s, dtype %s"
                    % (key, entry.size, declared, list(self.shapes[key]), dtype)
                )
            left -= entry.size

    def _data_path(self, entry):
        return "%s.data-%05d-of-%05d" % (self._prefix, entry.shard_id, self._num_shards)

    def _array(self, key):
        entry, shape, dtype = self._entries[key], self.shapes[key], self.dtypes[key]
        path = self._data_path(entry)
        if entry.offset < 0 or entry.offset + entry.size > os.path.getsize(path):
            raise _Damaged("its %d bytes at %d are not in %s" % (entry.size, entry.offset, path))
        with open(path, "rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if dtype.kind == "O":
            return _strings(content, shape, entry.crc32c)
        if len(content) != entry.size or crc32c.masked(content) != entry.crc32c:
            raise _Damaged("the checksum of its data in %s is wrong" % path)
        # dtypes of TensorFlow, such as bfloat16, have no byte order.
        if self._order == "<" or dtype.itemsize == 1:
            return np.frombuffer(content, dtype).reshape(shape)
        return np.frombuffer(content, dtype.newbyteorder(">")).astype(dtype).reshape(shape)


def _unreadable(prefix, reason):
    return ExchangeError(
        "%s cannot be read as a checkpoint: %s. Get the files from their source again."
        % (prefix, str(reason).rstrip("."))
    )


def _shape_of(key, entry):
    shape = tuple(dimension.size for dimension in entry.shape.dim)
    if entry.shape.unknown_rank or len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise _Damaged("%s has the shape %s" % (key, list(shape[:40])))
    return shape


def _dtype_of(key, entry):
    from cudnn_rnn._compat import tf

    try:
        dtype = tf.as_dtype(entry.dtype)
        return np.dtype(dtype.as_numpy_dtype if dtype not in (tf.variant, tf.resource) else "V0")
    except (TypeError, KeyError):
        raise _Damaged("%s has the dtype number %d" % (key, entry.dtype)) from None


# Tables


def _entries_of(content):
    """Returns the (key, value) of a table, in its order."""
    if len(content) < _FOOTER:
        raise _Damaged("its index is truncated")
    (magic,) = struct.unpack("<Q", content[-8:])
    if magic != _MAGIC:
        raise _Damaged("its index does not end as a table of TensorFlow does; it may be truncated")
    _, place = _handle(content[-_FOOTER:], 0)
    handle, _ = _handle(content[-_FOOTER:], place)
    longest = (_MOST_KEYS_PER_WHOLE_KEY + 1) * len(content)
    items: List[Tuple[bytes, bytes]] = []
    end = 0
    for _, value in _items_of(_block(content, handle), longest):
        handle, _ = _handle(value, 0)
        if handle[0] < end:
            raise _Damaged("blocks of its index overlap")
        end = sum(handle)
        of_block = _items_of(_block(content, handle), longest)
        longest -= sum(len(key) for key, _ in of_block)
        items += of_block
    for (key, _), (following, _) in zip(items, items[1:]):
        if key >= following:
            raise _Damaged("the keys of its index are not in order")
    return items


def _handle(content, place):
    """Returns ((offset, size), place after it)."""
    offset, place = _number(content, place)
    size, place = _number(content, place)
    return (offset, size), place


def _number(content, place):
    """Returns (number of variable length, place after it)."""
    number = shift = 0
    while place < len(content) and shift < 64:
        octet = content[place]
        place += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number, place
        shift += 7
    raise _Damaged("a number in its index is damaged")


def _block(content, handle):
    offset, size = handle
    end = offset + size
    if end + _TRAILER.size > len(content):
        raise _Damaged("its index is truncated")
    compression, checksum = _TRAILER.unpack_from(content, end)
    if crc32c.masked(content[offset : end + 1]) != checksum:
        raise _Damaged("a checksum of its index is wrong")
    if compression:
        raise Unsupported("its index is compressed")
    return content[offset:end]


def _items_of(block, longest):
    """Returns the (key, value) of a block, whose keys have at most `longest` bytes together."""
    if len(block) < 4:
        raise _Damaged("a block of its index is truncated")
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise _Damaged("a block of its index is damaged")
    items, key, place = [], b"", 0
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        length, place = _number(block, place)
        longest -= shared + own
        if shared > len(key) or place + own + length > end or longest < 0:
            raise _Damaged("a block of its index is damaged")
        key = key[:shared] + block[place : place + own]
        place += own
        items.append((key, block[place : place + length]))
        place += length
    return items


def _strings(content, shape, checksum):
    """Returns the strings of a tensor: their lengths, a checksum of these, and the bytes."""
    count = 1
    for length in shape:
        count *= length
    lengths, place, fixed = [], 0, []
    for _ in range(count):
        length, place = _number(content, place)
        lengths.append(length)
        fixed.append(struct.pack("<I" if length < 2**32 else "<Q", length))
    start = place + 4
    if start + sum(lengths) != len(content):
        raise _Damaged("the lengths of its strings are wrong")
    of_lengths = content[place:start]
    (stored,) = struct.unpack("<I", of_lengths)
    if stored != crc32c.masked(b"".join(fixed)):
        raise _Damaged("the checksum of the lengths of its strings is wrong")
    if checksum != crc32c.masked(b"".join(fixed) + of_lengths + content[start:]):
        raise _Damaged("the checksum of its strings is wrong")
    found = np.empty(count, object)
    for index, length in enumerate(lengths):
        found[index] = content[start : start + length]
        start += length
    return found.reshape(shape)
