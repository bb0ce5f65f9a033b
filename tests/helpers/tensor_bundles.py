"""Writes indices of TensorFlow's checkpoints with any entries and right checksums."""

import struct

from cudnn_rnn.exchange import crc32c, tensor_bundle

MAGIC = 0xDB4775248B80FB57


def varint(number):
    """Returns a number as TensorFlow's tables have it."""
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def block_of(entries):
    """Returns a block of a table; an entry is (shared bytes, rest of the key, value)."""
    block = b""
    for shared, rest, value in entries:
        block += varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
    return block + struct.pack("<II", 0, 1)


def table_of(block, compression=0):
    """Returns a table of one block, with right checksums."""
    content, handles = b"", []

    def add(part):
        nonlocal content
        handles.append(varint(len(content)) + varint(len(part)))
        part += bytes([compression])
        content += part + struct.pack("<I", crc32c.masked(part))

    add(block)
    add(block_of([]))
    add(block_of([(0, b"\xff", handles[0])]))
    return content + (handles[1] + handles[2]).ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def entries_of(prefix):
    """Returns the protobufs of a checkpoint's index by key; "" is the header's."""
    from tensorflow.core.protobuf import tensor_bundle_pb2

    with open(prefix + ".index", "rb") as file:
        items = tensor_bundle._entries_of(file.read())
    found = {key.decode(): tensor_bundle_pb2.BundleEntryProto.FromString(v) for key, v in items[1:]}
    return dict(found, **{"": tensor_bundle_pb2.BundleHeaderProto.FromString(items[0][1])})


def write_index(prefix, entries, **options):
    """Writes the index of a checkpoint; `entries` has protobufs or their bytes by key."""
    items = [
        (0, key.encode(), value if isinstance(value, bytes) else value.SerializeToString())
        for key, value in sorted(entries.items())
    ]
    with open(prefix + ".index", "wb") as file:
        file.write(table_of(block_of(items), **options))
