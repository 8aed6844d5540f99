"""The server's end of a client's connection, with a member controlled by the test and a wire that may be full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Event, KeyValue, RangeRequest, RangeResult, Result, WatchBatch
from minikube_py.store.connection import Connection
from minikube_py.store.framing import FrameReader, frame
from minikube_py.store.limits import FRAME_BYTES_MAX, ServerLimits
from minikube_py.store.protocol import GREETING, Answer, Leadership, Op, Welcome

TOKEN = "a token"
CLUSTER = 7


class Wire:
    """A transport that records each write separately. With `room_bytes` it is full beyond that, and reports it as
    asyncio's do; `drain` empties it."""

    def __init__(self, tls: bool = False) -> None:
        self.tls = tls
        self.writes: list[bytes] = []
        self.said: list[Any] = []
        self.room_bytes: int | None = None
        self.waiting_bytes = 0
        self.paused = False
        self.reading: list[bool] = []
        self.closed_by: list[str] = []
        self.high = 0
        self.connection: Connection
        self._reader = FrameReader(FRAME_BYTES_MAX)

    def write(self, data: bytes) -> None:
        assert not self.closed_by, "nothing is written to what was closed"
        self.writes.append(data)
        self.said += self._reader.feed(data)
        self.waiting_bytes += len(data)
        if self.room_bytes is not None and self.waiting_bytes > self.room_bytes and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def drain(self) -> None:
        self.waiting_bytes = 0
        if self.paused:
            self.paused = False
            self.connection.resume_writing()

    def is_closing(self) -> bool:
        return bool(self.closed_by)

    def close(self) -> None:
        if not self.closed_by:
            self.closed_by.append("close")

    def abort(self) -> None:
        self.closed_by.append("abort")

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_extra_info(self, name: str) -> object:
        return object() if self.tls and name == "ssl_object" else None

    def pause_reading(self) -> None:
        self.reading.append(False)

    def resume_reading(self) -> None:
        self.reading.append(True)

    def answers(self, number: int) -> list[tuple[Any, ...]]:
        return [tuple(rest) for said, *rest in self.said[1:] if said == number]  # behind the welcome


@dataclass
class Handle:
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Member:
    """A connection's requests to a member, recorded until the test answers them."""

    state: StateMachine = field(default_factory=StateMachine)
    member_id: int = 1
    readable: bool = True
    proposals: list[tuple[Any, Callable[..., None]]] = field(default_factory=list)
    readers: list[Callable[[MinikubeError | None], None]] = field(default_factory=list)
    renewals: list[tuple[int, Callable[..., None]]] = field(default_factory=list)
    watches: list[tuple[tuple[Any, ...], Callable[[WatchBatch], None], Handle]] = field(default_factory=list)
    refuses: MinikubeError | None = None
    snapshot: Any = None

    def propose(self, command: Any, data: bytes, told: Callable[[Result | None, MinikubeError | None], None]) -> None:
        self.proposals.append((command, told))

    def keep_alive(self, lease_id: int, told: Callable[[int, MinikubeError | None], None]) -> None:
        self._check()
        self.renewals.append((lease_id, told))

    def read(self, request: RangeRequest) -> RangeResult:
        self._check()
        return self.state.range(request)

    def when_readable(self, told: Callable[[MinikubeError | None], None]) -> None:
        self.readers.append(told)

    def watch(self, key: bytes, range_end: bytes, start: int, sink: Callable[[WatchBatch], None], where: Any) -> Handle:
        self._check()
        self.watches.append(((key, range_end, start, where), sink, handle := Handle()))
        return handle

    async def fresh_snapshot(self) -> Any:
        if isinstance(self.snapshot, Exception):
            raise self.snapshot
        return self.snapshot

    def new_lease_id(self) -> int:
        return 4711

    def _check(self) -> None:
        if self.refuses is not None:
            raise self.refuses


class Served:
    def __init__(self, limits: ServerLimits | None = None, tls: bool = False, authenticated: bool = True) -> None:
        self.member = Member()
        self.gone = 0
        self.server: Any = SimpleNamespace(
            member=self.member, limits=limits or ServerLimits(), connections={}, watches_cut_off=0, work=set(),
            welcome=self._welcome, greeting=lambda: Welcome(CLUSTER, 1, 1, Leadership()),
            port=SimpleNamespace(limits=SimpleNamespace(connections_max=9)),
        )  # fmt: skip
        incoming: Any = SimpleNamespace(authenticated=lambda: authenticated, left=self._left)
        self.wire = Wire(tls)
        self.connection = Connection(self.server, incoming)
        self.wire.connection = self.connection
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]
        self._next = 0

    def _left(self) -> None:
        self.gone += 1

    def _welcome(self, hello: tuple[Any, ...]) -> MinikubeError | None:
        refusal = GREETING.refuses(hello, TOKEN)
        return Unavailable(refusal[1]) if refusal else None

    def greet(self) -> Served:
        self.connection.data_received(GREETING.hello(TOKEN, 0))
        self.connection._flush()
        return self

    def ask(self, op: Op, argument: Any, *flags: int) -> int:
        self._next += 1
        self.connection.data_received(frame((self._next, op, argument, *flags)))
        return self._next

    def watch(self, start_revision: int = 1) -> tuple[int, Callable[[WatchBatch], None], Handle]:
        number = self.ask(Op.WATCH, (b"a", b"b", start_revision, None, 0))
        _, sink, handle = self.member.watches[-1]
        return number, sink, handle


def event(revision: int, size_bytes: int = 0) -> Event:
    return Event("PUT", KeyValue(b"a", bytes(size_bytes), 1, revision, 1, 0), None)


def batch(revision: int, *sizes_bytes: int) -> WatchBatch:
    return WatchBatch([event(revision, size) for size in sizes_bytes], revision)


def shown(answers: Iterator[tuple[Any, ...]] | list[tuple[Any, ...]]) -> list[tuple[int, int, bool]]:
    """Of EVENTS answers: revision, how many events, whether more of the same batch follow."""
    return [(rest[0], len(rest[1]), rest[2]) for kind, *rest in answers if kind == Answer.EVENTS]
