"""Removes GPU code from libraries except the machine code for one architecture.

    python keep_gpu_code.py ARCHITECTURE LIBRARY...

ARCHITECTURE is the compute capability without the dot, such as 90. A library made by nvcc contains
fat binaries: a header with a magic number and the size of the rest, then entries, each with code
for one architecture. The entries to keep move to the start of their fat binary, whose size
shrinks; zeros, which compress well, replace the rest. A fat binary without code for ARCHITECTURE
stays as it is.
"""

import mmap
import re
import struct
import sys

_START = re.escape(struct.pack("<IHH", 0xBA55ED50, 1, 16))  # magic number, version, header's size
_ENTRY = struct.Struct("<H2xIQ12xI32x")  # kind, header's size, code's size, architecture
_MACHINE_CODE = 2  # an entry of kind 1 is PTX


def keep_architecture(path, wanted):
    """Changes the library in place; returns how many fat binaries have code for `wanted`."""
    found = 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for match in re.finditer(_START, data):
            begin = at = match.end() + 8
            old_size = int.from_bytes(data[begin - 8 : begin], "little")
            end, kept = begin + old_size, b""
            while at + _ENTRY.size <= end <= len(data):
                kind, header, size, architecture = _ENTRY.unpack_from(data, at)
                if (kind, architecture) == (_MACHINE_CODE, wanted):
                    kept += data[at : at + header + size]
                at += max(header + size, _ENTRY.size)
            if kept and at == end:
                found += 1
                data[begin - 8 : end] = struct.pack("<Q", len(kept)) + kept.ljust(old_size, b"\0")
            del match  # it refers to the map, which would not close
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    for name in sys.argv[2:]:
        if not keep_architecture(name, int(sys.argv[1])):
            raise SystemExit("%s has no code for architecture %s" % (name, sys.argv[1]))
