"""Computes the seed of a segment with an unreadable head from its records.

A record's checksum is CRC-32 from the start value `seed + offset`, and CRC-32 is linear: the start value that gives a
checksum for given bytes can be computed. Two records that give the same seed confirm it and each other; records of
other segments, and values that look like records, give other seeds (the same one in 2^32 cases)."""

from __future__ import annotations

from collections import Counter
from typing import Final
from zlib import crc32

from minikube_py.wal.record import HEADER, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX
from minikube_py.wal.segment import HEAD_BYTES

POLYNOMIAL: Final = 0xEDB88320
ONE: Final = 1 << 31
"""The polynomial 1, with reflected bits as everywhere in CRC-32."""
ORDER: Final = (1 << 32) - 1
"""x to this power is 1."""
WITNESSES_MAX: Final = 1000
"""How many records are examined."""


def seed_of(data: bytes) -> int | None:
    """The seed that at least two records of a segment's file agree on, and more than on any other."""
    found: Counter[int] = Counter()
    offset = data.find(MAGIC, HEAD_BYTES)
    for _ in range(WITNESSES_MAX):
        if offset < 0 or offset + HEADER_BYTES > len(data):
            break
        tag, length, synced, checksum = HEADER.unpack_from(data, offset)
        end = offset + HEADER_BYTES + length
        if tag[:3] == MAGIC and length <= PAYLOAD_BYTES_MAX and end <= len(data):
            sound = HEADER.pack(tag, length, synced, 0) + data[offset + HEADER_BYTES : end]
            found[(start_value(sound, checksum) - offset) & 0xFFFFFFFF] += 1
            follows = end if data.startswith(MAGIC, end) else data.find(MAGIC, offset + 1)
        else:
            follows = data.find(MAGIC, offset + 1)
        offset = follows
    seed, agreeing = max(found.items(), key=lambda each: each[1], default=(0, 0))
    return seed if agreeing > 1 else None


def start_value(data: bytes, checksum: int) -> int:
    """The start value with which `crc32(data, start)` is `checksum`."""
    # A start value is carried through n bytes as a polynomial times x^(8n).
    return _times(crc32(data) ^ checksum, _power(-8 * len(data) % ORDER))


def _times(left: int, right: int) -> int:
    product = 0
    while left:
        if left & ONE:
            product ^= right
        left = (left << 1) & 0xFFFFFFFF
        right = right >> 1 ^ POLYNOMIAL if right & 1 else right >> 1
    return product


def _power(exponent: int) -> int:
    """x to the power of `exponent`."""
    result, square = ONE, ONE >> 1
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result
