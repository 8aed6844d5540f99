"""Numbers and fields as protobuf's wire format has them, to be written."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Of 64 bits; a number below 0 as its two's complement."""
    if 0 <= number < 0x4000:
        return bytes((number,) if number < 0x80 else (number & 0x7F | 0x80, number >> 7))
    number, parts = number & ((1 << 64) - 1), bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def sized(number: int, data: bytes) -> bytes:
    """The field of that number: bytes, a text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data
