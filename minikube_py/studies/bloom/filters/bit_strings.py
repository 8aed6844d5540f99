"""Strings of bits in a bytearray, least significant bit first: reading, shifting, counting and finding."""

from __future__ import annotations

import numpy as np

from minikube_py.index.filters.hashing import Words

WINDOW = 256
"""Bits counted at once."""
_WINDOW_BYTES = WINDOW // 8


def get(string: bytes | bytearray, start: int, width: int) -> int:
    """The `width` bits from `start`."""
    end = start + width
    return int.from_bytes(string[start >> 3 : (end + 7) >> 3], "little") >> (start & 7) & ((1 << width) - 1)


def insert(string: bytearray, start: int, end: int, width: int, value: int) -> None:
    """Moves the bits of [start, end) up by `width`, over those behind, and writes `value` at `start`."""
    first, last = start >> 3, (end + width + 7) >> 3
    whole = int.from_bytes(string[first:last], "little")
    skip, reach = start & 7, end + width - 8 * first
    below = whole & ((1 << skip) - 1)
    moved = whole >> skip & ((1 << (end - start)) - 1)
    above = whole >> reach
    whole = below | value << skip | moved << (skip + width) | above << reach
    string[first:last] = whole.to_bytes(last - first, "little")


def take(string: bytearray, start: int, end: int, width: int) -> None:
    """Moves the bits of [start + width, end) down by `width` and fills with zeros before `end`."""
    first, last = start >> 3, (end + 7) >> 3
    whole = int.from_bytes(string[first:last], "little")
    skip, reach = start & 7, end - 8 * first
    below = whole & ((1 << skip) - 1)
    moved = whole >> (skip + width) & ((1 << (end - start - width)) - 1)
    above = whole >> reach
    string[first:last] = (below | moved << skip | above << reach).to_bytes(last - first, "little")


def select(word: int, rank: int, width: int = 64) -> int:
    """The position of the one in `word`, below 2^width, preceded by `rank` ones; `width` is a power of two."""
    place = 0
    while width := width >> 1:
        ones = (word & ((1 << width) - 1)).bit_count()
        if ones <= rank:
            rank -= ones
            word >>= width
            place += width
    return place


def select_from(string: bytes | bytearray, start: int, rank: int) -> int:
    """The position of the one at or after `start` preceded by `rank` ones from there. It must exist."""
    while True:
        byte, skip = start >> 3, start & 7
        word = int.from_bytes(string[byte : byte + _WINDOW_BYTES], "little") >> skip
        ones = word.bit_count()
        if rank < ones:
            return start + select(word, rank, WINDOW)
        rank -= ones
        start += WINDOW - skip


def pack(numbers: Words, bits: int) -> bytes:
    """Packs the lowest `bits` of each number."""
    if not bits or not len(numbers):
        return b""
    flags = np.empty((len(numbers), bits), dtype=np.uint8)
    for bit in range(bits):
        flags[:, bit] = (numbers >> np.uint64(bit)) & np.uint64(1)
    return np.packbits(flags.ravel(), bitorder="little").tobytes()


def unpack(packed: bytes | bytearray, bits: int, count: int) -> Words:
    numbers: Words = np.zeros(count, dtype=np.uint64)
    if bits and count:
        flags = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")[: count * bits]
        for bit, column in enumerate(flags.reshape(count, bits).T):
            numbers |= column.astype(np.uint64) << np.uint64(bit)
    return numbers
