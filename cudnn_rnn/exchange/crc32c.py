"""The checksum of TensorFlow's checkpoints, CRC-32C, with NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_ALL_ONES = 0xFFFFFFFF
# Added to the rotated checksum that is stored: the checksum of data with checksums is weak.
_MASK_DELTA = 0xA282EAD8


def masked(content: Any) -> int:
    """Returns the checksum of bytes as it is stored."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL_ONES


def crc32c(content: Any) -> int:
    """Returns the checksum of bytes.

    The checksum is linear: lanes, consecutive parts of equal length, are computed side by side and
    then joined in pairs.
    """
    octets = np.frombuffer(content, np.uint8)
    num_lanes = 1
    while num_lanes * num_lanes * 16 < octets.size:
        num_lanes *= 2
    words = octets.size // (4 * num_lanes)  # of each lane
    end = 4 * words * num_lanes
    lanes = octets[:end].view("<u4").reshape(num_lanes, words)
    state = np.zeros(num_lanes, np.uint32)
    state[0] = _ALL_ONES
    low, high = _tables_after(4)
    for word in lanes.T:
        state = state ^ word
        state = low[state & 0xFFFF] ^ high[state >> 16]
    length = 4 * words
    while len(state) > 1:
        low, high = _tables_after(length)
        first = state[0::2]
        state = low[first & 0xFFFF] ^ high[first >> 16] ^ state[1::2]
        length *= 2
    crc = int(state[0])
    for octet in octets[end:].tolist():
        crc = crc >> 8 ^ int(_table_of_octets()[(crc ^ octet) & 0xFF])
    return crc ^ _ALL_ONES


@functools.lru_cache()
def _table_of_octets():
    """Returns what each octet changes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


@functools.lru_cache(maxsize=64)
def _tables_after(length):
    """Returns what the lower and the higher half of a state are after `length` bytes of 0."""
    columns = [1 << bit for bit in range(32)]
    result, power = columns, _after_one_octet()
    while length:
        if length & 1:
            result = [_times(power, column) for column in result]
        power = [_times(power, column) for column in power]
        length >>= 1
    return [_table_of(result[:16]), _table_of(result[16:])]


def _after_one_octet():
    """Returns the states after an octet of 0, of the 32 states with a single bit."""
    table = _table_of_octets().tolist()
    return [(1 << bit) >> 8 ^ table[(1 << bit) & 0xFF] for bit in range(32)]


def _times(columns, state):
    """Multiplies a matrix of bits by a state."""
    result = 0
    for bit, column in enumerate(columns):
        if state >> bit & 1:
            result ^= column
    return result


def _table_of(columns):
    """Returns the products of a matrix of 16 columns with all states of 16 bits."""
    table = np.zeros(1, np.uint32)
    for column in columns:
        table = np.concatenate([table, table ^ np.uint32(column)])
    return table
