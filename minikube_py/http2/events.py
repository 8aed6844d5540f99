"""The events of a connection, and its streams."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from minikube_py.http2.frames import WINDOW_BYTES
from minikube_py.http2.hpack import Block


class Stream:
    """`owner`: set by the reader of the events. `waiting`: data to send once there is window space. `moved_bytes`:
    progress since the last of the periodic checks, which count `looks`."""

    __slots__ = ("ended_by_peer", "ended_by_us", "given_bytes", "id", "looks", "moved_bytes", "open", "owner",
                 "receive_window", "send_window", "waiting")  # fmt: skip

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.id = stream_id
        self.owner: Any = None
        self.open = True
        self.looks, self.moved_bytes = 0, 1
        self.ended_by_peer = self.ended_by_us = False
        self.send_window = send_window
        self.receive_window = WINDOW_BYTES
        self.given_bytes = 0
        """Consumed by us, and not yet acknowledged to the peer."""
        self.waiting: deque[tuple[bytes | memoryview, bool, bool]] = deque()
        """Bytes, whether they are a header block, whether they end the stream."""


class Opened(NamedTuple):
    stream: Stream
    block: Block
    ended: bool


class Received(NamedTuple):
    """`data` counts until `Connection.took` reports it as consumed."""

    stream: Stream
    data: bytes
    ended: bool


class Aborted(NamedTuple):
    """By the peer, or by us for an error of the peer."""

    stream: Stream


class Drained(NamedTuple):
    """All waiting data was sent."""

    stream: Stream


class Ended(NamedTuple):
    """Nothing more is read. Pending data is still sent, and then the connection is closed."""

    code: int
    why: str


Event = Opened | Received | Aborted | Drained | Ended
