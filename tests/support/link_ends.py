"""The environment of a `PeerSender`: a port that makes no link by itself, and a link that is up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from peer_world import append, entries_from, heartbeat
from virtual_time import LoopClock

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message
from minikube_py.store.framing import FrameReader, frame
from minikube_py.store.membership import Member
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peer_protocol import (
    FRAME_BYTES_MAX,
    EntryPacker,
    message_frame,
)
from minikube_py.store.peer_sender import PeerSender

PLAIN = PeerLimits()
TO = Member(NodeId(2), "store-2", "h2:1")
HEARTBEAT_BYTES = len(message_frame(heartbeat(1, 2), EntryPacker()))


def entry(number: int, size_bytes: int = 100) -> Message:
    return append(1, 2, entries_from(number, 1, size_bytes))


def size_of(message: Message) -> int:
    return len(message_frame(message, EntryPacker()))


class Link:
    """An `OutgoingLink` that is up, for the sender."""

    def __init__(self) -> None:
        self.paused = self.ending = False
        self.writes: list[bytes] = []
        self.pause_after: int | None = None
        self.reader = FrameReader(FRAME_BYTES_MAX)

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.pause_after is not None and len(self.writes) >= self.pause_after:
            self.paused = True

    def abort(self, why: str) -> None:
        self.ending = True

    def frames(self) -> list[Any]:
        writes, self.writes = self.writes, []
        return [each for data in writes for each in self.reader.feed(data)]


class Port:
    """`Peers` for the sender, without automatic links."""

    def __init__(self, limits: PeerLimits) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock()
        self.limits = limits
        self.packer = EntryPacker()
        self.rng = SimpleNamespace(uniform=lambda low, high: high)
        self.tls_client = None
        self.cluster_id = 7
        self.reports: list[tuple[int, bool, bool | None]] = []
        self.words: list[str] = []
        self.ended: list[NodeId] = []
        self.expulsions: list[str] = []
        self.source: Any = None
        self.failures: list[BaseException] = []

    def report(self, id: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        self.reports.append((id, reachable, snapshot))

    def gone(self, id: NodeId) -> None:
        self.ended.append(id)

    def say(self, text: str) -> None:
        self.words.append(text)

    def strange(self, id: int, why: str = "") -> None:
        pass

    def expelled(self, reason: str) -> None:
        self.expulsions.append(reason)

    def snapshot_source(self) -> Any:
        if isinstance(self.source, Exception):
            raise self.source
        return self.source

    def hello_to(self, id: NodeId) -> bytes:
        return frame(("hello", id))

    def task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)


async def sending(limits: PeerLimits = PLAIN, link: Link | None = None) -> tuple[Port, PeerSender, Link]:
    """A sender with a link that is up, unless links are made automatically."""
    port, link = Port(limits), link or Link()
    sender = PeerSender(port, TO)  # type: ignore[arg-type]
    sender._task.cancel()
    await asyncio.sleep(0)
    sender._up(link)  # type: ignore[arg-type]
    assert port.reports == [(2, True, None)] and port.words == []
    port.reports.clear()
    return port, sender, link
