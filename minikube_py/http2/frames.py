"""Frames and their numbers (RFC 9113, sections 4, 6 and 7)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
FRAME_BYTES: Final = 16_384
"""The default maximum payload; we announce no other."""
WINDOW_BYTES: Final = 65_535
"""The initial window of a stream and of a connection."""
WINDOW_MAX: Final = (1 << 31) - 1
STREAM_MASK: Final = (1 << 31) - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, PRIORITIZED = 0x4, 0x8, 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)
MAX_HEADER_LIST_SIZE: Final = 6
FRAME_SIZE_MAX: Final = (1 << 24) - 1

(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR,
 REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM) = range(12)  # fmt: skip

HEAD: Final = struct.Struct(">HBBBL")
"""A length of 24 bits in two parts, kind, flags, stream."""
LONG: Final = struct.Struct(">L")
SETTING: Final = struct.Struct(">HL")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([SETTING.pack(*each) for each in values.items()]))


def window_update(stream_id: int, size_bytes: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, LONG.pack(size_bytes))


def reset(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, LONG.pack(code))


def goaway(last_stream_id: int, code: int, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, LONG.pack(last_stream_id) + LONG.pack(code) + text)


def header_frames(stream_id: int, block: bytes, flags: int) -> Iterator[bytes]:
    """One, with continuations if it is long."""
    kind = HEADERS
    while len(block) > FRAME_BYTES:
        yield frame(kind, flags, stream_id, block[:FRAME_BYTES])
        kind, flags, block = CONTINUATION, 0, block[FRAME_BYTES:]
    yield frame(kind, flags | END_HEADERS, stream_id, block)
