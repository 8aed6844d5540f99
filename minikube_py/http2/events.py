"""What happens on a connection, and the streams it happens to."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from minikube_py.http2.frames import WINDOW_BYTES
from minikube_py.http2.hpack import Block


class Stream:
    """`owner`: whatever whoever reads the events keeps with it. `waiting`: what is to be sent once there is room.
    `moved`: data came or went; with `looks`, for whoever looks at it from time to time."""

    __slots__ = ("ended_by_peer", "ended_by_us", "given_bytes", "id", "looks", "moved", "open", "owner",
                 "receive_window", "send_window", "waiting")  # fmt: skip

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.id = stream_id
        self.owner: Any = None
        self.open = self.moved = True
        self.looks = 0
        self.ended_by_peer = self.ended_by_us = False
        self.send_window = send_window
        self.receive_window = WINDOW_BYTES
        self.given_bytes = 0
        """Taken by us, and not yet told the peer."""
        self.waiting: deque[tuple[bytes | memoryview, bool, bool]] = deque()
        """Bytes, whether they are a header block, whether they end the stream."""


class Opened(NamedTuple):
    stream: Stream
    block: Block
    ended: bool


class Received(NamedTuple):
    """`data` counts until `Connection.took` says that it was taken."""

    stream: Stream
    data: bytes
    ended: bool


class Aborted(NamedTuple):
    """By the peer, or by us for what it did."""

    stream: Stream


class Drained(NamedTuple):
    """All that waited for room was sent."""

    stream: Stream


class Ended(NamedTuple):
    """Nothing more is read. What is to be sent still is, and then the connection is to be closed."""

    code: int
    why: str


Event = Opened | Received | Aborted | Drained | Ended
