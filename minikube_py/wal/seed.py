"""Computes the seed of a segment with an unreadable head from its records.

A record's checksum is CRC-32 from the start value `seed + offset`, and the start value that gives a checksum for given
bytes can be computed. Two records that give the same seed confirm it and each other; records of other segments, and
values that look like records, give other seeds (the same one in 2^32 cases)."""

from __future__ import annotations

from collections import Counter
from typing import Final
from zlib import crc32

from minikube_py.wal.checksums import Checksums, start_value
from minikube_py.wal.record import HEADER, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX
from minikube_py.wal.segment import HEAD_BYTES

WITNESSES_MAX: Final = 1000
"""How many records are examined."""


def seed_of(data: bytes) -> int | None:
    """The seed that at least two records of a segment's file agree on, and more than on any other."""
    found: Counter[int] = Counter()
    sums = Checksums(data)
    offset = data.find(MAGIC, HEAD_BYTES)
    for _ in range(WITNESSES_MAX):
        if offset < 0 or offset + HEADER_BYTES > len(data):
            break
        tag, length, synced, checksum = HEADER.unpack_from(data, offset)
        end = offset + HEADER_BYTES + length
        if tag[:3] == MAGIC and length <= PAYLOAD_BYTES_MAX and end <= len(data):
            sound = sums.part(offset + HEADER_BYTES, end, crc32(HEADER.pack(tag, length, synced, 0)))
            found[(start_value(sound, HEADER_BYTES + length, checksum) - offset) & 0xFFFFFFFF] += 1
            follows = end if data.startswith(MAGIC, end) else data.find(MAGIC, offset + 1)
        else:
            follows = data.find(MAGIC, offset + 1)
        offset = follows
    seed, agreeing = max(found.items(), key=lambda each: each[1], default=(0, 0))
    return seed if agreeing > 1 else None
