"""CRC-32 as polynomials over two elements: what a checksum began with, and that of any part of a file after one pass.

CRC-32 is linear: n more bytes carry a start value on as a polynomial, multiplied by x^(8n)."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final
from zlib import crc32

POLYNOMIAL: Final = 0xEDB88320
ONE: Final = 1 << 31
"""The polynomial 1, with reflected bits as everywhere in CRC-32."""
ORDER: Final = (1 << 32) - 1
"""x to this power is 1."""
STEP_BYTES: Final = 4096
"""Between places whose checksum is kept: asking about a part sums at most two such pieces."""


class Checksums:
    """Of parts of `data`."""

    __slots__ = ("_data", "_until")

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._until = [0]
        for start in range(0, len(data), STEP_BYTES):
            self._until.append(crc32(self._data[start : start + STEP_BYTES], self._until[-1]))

    def part(self, start: int, end: int, before: int) -> int:
        """`crc32(data[start:end], before)`, whatever the size."""
        return self._to(end) ^ times(self._to(start) ^ before, _carried(end - start))

    def _to(self, end: int) -> int:
        step = end // STEP_BYTES
        return crc32(self._data[step * STEP_BYTES : end], self._until[step])


def start_value(sum: int, size_bytes: int, checksum: int) -> int:
    """The start value with which `size_bytes` bytes, whose `crc32` is `sum`, have `checksum`."""
    return times(sum ^ checksum, power(-8 * size_bytes % ORDER))


def times(left: int, right: int) -> int:
    product = 0
    while left:
        if left & ONE:
            product ^= right
        left = (left << 1) & 0xFFFFFFFF
        right = right >> 1 ^ POLYNOMIAL if right & 1 else right >> 1
    return product


def power(exponent: int) -> int:
    """x to the power of `exponent`."""
    result, square = ONE, ONE >> 1
    while exponent:
        if exponent & 1:
            result = times(result, square)
        square = times(square, square)
        exponent >>= 1
    return result


@lru_cache(1024)
def _carried(size_bytes: int) -> int:
    """x^(8 * size_bytes), from few kept factors."""
    result, level = ONE, 0
    while size_bytes:
        result = times(_factor(size_bytes & 0xFF, level), result)
        size_bytes >>= 8
        level += 8
    return result


@cache
def _factor(digit: int, level: int) -> int:
    return power(8 * digit << level)
