"""The two ends of a snapshot transfer over a link: chunks that never fill it, and their receipt."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minikube_py.env import Clock
from minikube_py.raft.message import Message
from minikube_py.store.framing import ProtocolError, frame
from minikube_py.store.peer_connection import IncomingConnection, PeerLimits
from minikube_py.store.peer_protocol import Reply, Say, offer_frame
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource, TransferRefused

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

RunSync = Callable[[Callable[[], None]], Awaitable[None]]
RECEIVED_BYTES_MAX = 4 << 20
"""Limit of queued chunks; a sender that exceeds it ignores its window."""


class SnapshotSender:
    """Sends `source` to one peer. `active`: offered on the current link. `heard_s`: when the peer last responded."""

    def __init__(self, source: SnapshotSource, message: Message, limits: PeerLimits, clock: Clock) -> None:
        self.source = source
        self.message = message
        self._limits = limits
        self._clock = clock
        self._sent = -1
        self._acknowledged = 0
        self._next_s = 0.0
        self.active = False
        self.heard_s = clock.monotonic_s()

    def offer(self, message: Message) -> bytes:
        """The frame that starts it on a new link; the receiver says where to continue."""
        self.message = message
        self.active = True
        self._sent = -1
        self.heard_s = self._clock.monotonic_s()
        return offer_frame(message, self.source.offer)

    def wanted(self, offset: int) -> None:
        """Everything before `offset` has arrived. Raises: ProtocolError."""
        begun = self._sent >= 0
        if offset > self.source.offer.size_bytes or (begun and not self._acknowledged <= offset <= self._sent):
            raise ProtocolError(f"bytes of a snapshot were requested from {offset}, which were not sent")
        if not begun:
            self._sent = offset
        self._acknowledged = offset
        self.heard_s = self._clock.monotonic_s()

    def next_chunk(self) -> bytes | None:
        """None: all is sent, or the next is not due; see `wait_s`. Raises: OSError."""
        if self.wait_s != 0.0:
            return None
        data = self.source.read(self._sent, self._limits.snapshot_chunk_bytes)
        chunk = frame((Say.CHUNK, self._sent, data))
        self._sent += len(data)
        now_s = self._clock.monotonic_s()
        self._next_s = max(now_s, self._next_s) + len(data) / self._limits.snapshot_bytes_per_s
        return chunk

    @property
    def wait_s(self) -> float | None:
        """Until the next chunk may be sent; None: wait for the receiver."""
        size_bytes = self.source.offer.size_bytes
        full = self._sent - self._acknowledged >= self._limits.snapshot_window_bytes
        if not self.active or self._sent < 0 or self._sent >= size_bytes or full:
            return None
        return max(0.0, self._next_s - self._clock.monotonic_s())

    @property
    def sent_bytes(self) -> int:
        return max(0, self._sent)


class SnapshotReceiver:
    """Receives one offer. If its connection is lost another one may continue the transfer; once all bytes have arrived
    it completes with or without a connection."""

    def __init__(self, message: Message, offer: SnapshotOffer, driver: StoreMember, run_sync: RunSync) -> None:
        self.message = message
        self.offer = offer
        self._driver = driver
        self._run_sync = run_sync
        self._connection: IncomingConnection | None = None
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._more = asyncio.Event()
        self._incoming: IncomingSnapshot | None = None
        self.taken = False
        """It has completed successfully, with or without a connection to report it on."""

    @property
    def offset(self) -> int:
        return self._incoming.offset if self._incoming is not None else 0

    def attach(self, connection: IncomingConnection, message: Message) -> None:
        """The offer arrived over `connection`, for the first time or again."""
        self.message = message
        self._connection = connection
        self._chunks.clear()
        self._waiting_bytes = 0
        if self._incoming is not None:
            self._want()

    def chunk(self, connection: IncomingConnection, arguments: list[Any]) -> None:
        """Raises: ProtocolError."""
        if connection is not self._connection:
            return
        if len(arguments) != 2 or type(arguments[0]) is not int or type(arguments[1]) is not bytes:
            raise ProtocolError("a chunk is an offset and bytes")
        offset, data = arguments
        self._waiting_bytes += len(data)
        if self._waiting_bytes > RECEIVED_BYTES_MAX:
            raise ProtocolError(f"over {RECEIVED_BYTES_MAX} bytes of a snapshot that were not requested")
        self._chunks.append((offset, data))
        self._more.set()

    def detach(self, connection: IncomingConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._chunks.clear()
            self._waiting_bytes = 0

    async def run(self, before: asyncio.Task[None] | None) -> None:
        """`before`: the receiver of an earlier offer; it has ended when this one begins."""
        if before is not None:
            before.cancel()
            await asyncio.wait((before,))
        try:
            incoming = self._incoming = self._driver.incoming_snapshot(self.offer)
            self._want()
            while incoming.offset < self.offer.size_bytes:
                if not self._chunks:
                    self._more.clear()
                    await self._more.wait()
                    continue
                offset, data = self._chunks.popleft()
                self._waiting_bytes -= len(data)
                sync = incoming.write(offset, data)
                if sync is not None:
                    await self._run_sync(sync)
                self._want()
            await self._driver.snapshot_arrived(incoming)
            self._driver.receive(self.message._replace(snapshot=self.offer.meta))
            self.taken = True
            self._end(True, "")
        except TransferRefused as error:
            self._end(False, str(error))
        except OSError as error:
            self._end(False, f"it could not be written: {error.strerror or error}")

    def _want(self) -> None:
        if self._connection is not None:
            self._connection.snapshot_offset = self._offset_wanted
            self._connection.write(frame((Reply.WANT, self.offset)))

    def _offset_wanted(self) -> int:
        return self.offset

    def _end(self, taken: bool, text: str) -> None:
        if self._connection is not None:
            self._connection.snapshot_offset = None
            self._connection.write(frame((Reply.DONE, taken, text)))
            self._connection = None
