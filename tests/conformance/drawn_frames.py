"""Unary calls as frames, drawn: messages good and bad, cut anywhere, with fields, padding and frames of other kinds
between them.

Left out is what the two are known to answer differently (`test_etcd_frames_vs_etcd`), and what makes both wait."""

from __future__ import annotations

import gzip
import random

from drawn_etcd import UNARY, Draws
from http2_peer import DATA, PING, PRIORITY, SETTINGS, WINDOW_UPDATE, frame, message, number, request

OTHER_PATHS = ("/etcdserverpb.KV/None", "/none.KV/Range", "/etcdserverpb.KV/", "//Range", "/etcdserverpb.KV/Range/")
CONTENT_TYPES = (
    "application/grpc+proto", "application/grpc;a=b", "application/grpc+json", "application/grpcx", "text/plain",
)  # fmt: skip
TIMEOUTS = ("1H", "99999999S", "7M", "00000060S", "1h", "-1S", "", "60", "S", "6 0S", "0x6S", "1e3S", "123456789S")
ENCODINGS = ("identity", "gzip", "deflate", "snappy", "", "GZIP", "gzip,identity")
FIELDS = (
    ("x-a", ""), ("x-bin", "AAAA"), ("x-bin", "====="), ("x-bin", ""), ("grpc-status", "3"), ("hasleader", "false"),
    ("hasleader", "true"), ("user-agent", "é"), ("grpc-accept-encoding", "gzip"), ("content-length", "5"),
    ("x_y", "z"), ("te", "trailers"), ("grpc-message-type", "a"), ("cookie", "a=b"), ("cookie", "c"),
    ("x-a", "v" * 5000), ("X-A", "b"), (":odd", "x"),
)  # fmt: skip
BETWEEN = (
    frame(PING, 0, 0, bytes(8)), frame(WINDOW_UPDATE, 0, 0, number(1)), frame(WINDOW_UPDATE, 0, 1, number(70_000)),
    frame(SETTINGS), frame(SETTINGS, 0, 0, b"\0\x63\0\0\0\x07"), frame(PRIORITY, 0, 1, bytes(4) + b"\x10"),
    frame(PRIORITY, 0, 9, bytes(4) + b"\x10"), frame(77, 3, 1, b"abc"), frame(77, 0, 0),
)  # fmt: skip


class DrawnFrames:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._requests = Draws(seed)

    def call(self) -> bytes:
        """A call on stream 1."""
        draw = self.random
        path, data = self._message()
        changed = {"path": path}
        more: list[tuple[str, str]] = []
        if draw.random() < 0.1:
            changed["path"] = draw.choice(OTHER_PATHS)
        if draw.random() < 0.1:
            changed["content_type"] = draw.choice(CONTENT_TYPES)
        if draw.random() < 0.2:
            more.append(("grpc-timeout", draw.choice(TIMEOUTS)))
        encoding = draw.choice(ENCODINGS) if draw.random() < 0.2 else None
        if encoding is not None:
            more.append(("grpc-encoding", encoding))
        more += [draw.choice(FIELDS) for _ in range(draw.choice((0, 0, 0, 1, 2)))]
        framed, whole = self._framed(data, encoding)
        return request(1, *more, **changed) + self._cut(framed, whole)

    def _message(self) -> tuple[str, bytes]:
        if self.random.random() < 0.3:
            return self._requests.garbage()
        while True:
            asked = self._requests.request()
            if (method := UNARY.get(asked.DESCRIPTOR.name)) is not None:
                return f"/etcdserverpb.{method}", asked.SerializeToString()

    def _framed(self, data: bytes, encoding: str | None) -> tuple[bytes, bool]:
        """The message with its prefix, and whether a server may take it as whole."""
        kind = self.random.random()
        if encoding == "gzip" and kind < 0.5:
            return b"\x01" + message(gzip.compress(data, mtime=0))[1:], True
        if kind < 0.75:
            return message(data), True
        if kind < 0.8:
            return bytes([self.random.choice((1, 2, 3, 0x80, 0xFF))]) + message(data)[1:], True
        if kind < 0.85:
            return message(data)[: self.random.randrange(5 + len(data))], False
        if kind < 0.9:
            declared = self.random.choice((len(data) + 1, 1 << 21, 1 << 31, (1 << 32) - 1))
            return declared.to_bytes(5, "big") + data, False
        return message(data) + self.random.choice((b"", b"\0", message(data), bytes(5))), False

    def _cut(self, data: bytes, whole: bool) -> bytes:
        draw, out = self.random, b""
        places = sorted(draw.randrange(len(data) + 1) for _ in range(draw.choice((0, 0, 1, 2, 7))))
        pieces = [data[low:high] for low, high in zip([0, *places], [*places, len(data)], strict=True)]
        ends_apart = draw.random() < 0.2
        for i, piece in enumerate(pieces):
            if draw.random() < 0.15:
                out += draw.choice(BETWEEN)
            ends = i == len(pieces) - 1 and not ends_apart and (not whole or draw.random() < 0.9)
            padding = draw.choice((0, 1, 200)) if draw.random() < 0.1 else None
            if padding is None:
                out += frame(DATA, ends, 1, piece)
            else:
                out += frame(DATA, 8 | ends, 1, bytes([padding]) + piece + bytes(padding))
        return out + (frame(DATA, 1, 1) if ends_apart else b"")
