"""A store of several members with faults on demand: one state machine, real sockets, the native protocol.

`fate`, which a test replaces, decides the outcome of each command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from minikube_py.errors import (
    MinikubeError,
    NoSpace,
    NotLeader,
    OutcomeUnknown,
    RequestError,
    SessionExpired,
    Unavailable,
)
from minikube_py.mvcc.codec import pack, to_plain, unpack, unpack_any, where_from_plain
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import LeaseGrant, RangeRequest, WatchBatch
from minikube_py.mvcc.watch import WatchHub
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.framing import FrameReader, encode_error, frame
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.membership import MemberChange, decode_member_change
from minikube_py.store.protocol import (
    Answer,
    Leadership,
    Op,
    WatchRequest,
    Welcome,
    event_frames,
    range_frames,
    welcome_to_plain,
)

TOKEN = "fake"
Fate = Literal[
    "done", "lost before", "lost after", "unknown before", "unknown after", "refused", "no room", "never answered"
]
"""Whether a command is executed, and what its sender gets: its answer, the end of the connection, an unknown outcome, a
temporary refusal, a permanent one that does not come from the log, or nothing."""


class FakeStore:
    """`leader` is a member's number from 1 on, 0 for none."""

    def __init__(self, count: int) -> None:
        self.state = StateMachine()
        self.hub = WatchHub(self.state)
        self.leader = 1
        self.term = 1
        self.members = [FakeMember(self, number) for number in range(1, count + 1)]
        self.fate: Callable[[], Fate] = lambda: "done"
        self.commands = 0
        self.changes: list[MemberChange] = []

    def endpoints(self) -> list[Endpoint]:
        return [member.endpoint for member in self.members]

    def leadership(self) -> Leadership:
        addresses = tuple([(member.number, member.advertised) for member in self.members])
        leads = self.members[self.leader - 1].advertised if self.leader else ""
        return Leadership(self.leader, leads, self.term, addresses)

    def elect(self, number: int, *, tell: bool = True) -> None:
        self.leader = number
        self.term += 1
        if tell:
            told = frame((0, Answer.LEADER, *self.leadership()))
            for member in self.members:
                member.tell(told)

    def execute(self, data: bytes) -> Any:
        """The plain result. Raises: RequestError, SessionExpired."""
        try:
            return to_plain(self.state.apply(unpack(data)))
        finally:
            self.hub.notify()


class FakeMember:
    """`silent`: accepts connections without answering, as a stopped process does. `lag`: how many revisions its welcome
    and serializable reads are behind. `advertised` may be unreachable."""

    def __init__(self, store: FakeStore, number: int) -> None:
        self.store = store
        self.number = number
        self.advertised = ""
        self._silent = False
        self.lag = 0
        self.deaf_to_watches = False
        self.connections: list[FakeConnection] = []
        self.greeted = 0
        self.commands = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def silent(self) -> bool:
        return self._silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._silent = silent
        for connection in list(self.connections):
            connection.take_held()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port, TOKEN)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: FakeConnection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.advertised = self.advertised or self.endpoint.address

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        for connection in list(self.connections):
            connection.transport.abort()

    def tell(self, told: bytes) -> None:
        for connection in self.connections:
            if connection.greeted and not self.silent:
                connection.transport.write(told)


class FakeConnection(asyncio.Protocol):
    def __init__(self, member: FakeMember) -> None:
        self.member = member
        self.store = member.store
        self.greeted = False
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._held: list[Any] = []
        self._watches: dict[int, Any] = {}
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.member.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.member.connections.remove(self)
        for watch in self._watches.values():
            watch.cancel()

    def data_received(self, data: bytes) -> None:
        self._held += self._reader.feed(data)
        self.take_held()

    def take_held(self) -> None:
        while self._held and not self.member.silent and not self.transport.is_closing():
            self._take(self._held.pop(0))

    def _take(self, request: Any) -> None:
        if not self.greeted:
            self.greeted = True
            self.member.greeted += 1
            revision = max(1, self.store.state.revision - self.member.lag)
            self._say(welcome_to_plain(Welcome(77, revision, self.member.number, self.store.leadership())))
            return
        request_id, op, argument, *flags = request
        try:
            if op == Op.COMMAND:
                self._command(request_id, argument)
            elif op == Op.RANGE:
                self._range(request_id, argument, bool(flags))
            elif op == Op.WATCH:
                if not self.member.deaf_to_watches:
                    self._watch(request_id, WatchRequest.of(argument))
            elif op == Op.CANCEL:
                self._watches.pop(argument).cancel()
            elif op == Op.PING:
                self._say((request_id, Answer.OK, self.store.state.revision))
            elif op == Op.KEEP_ALIVE:
                self._check_leads()
                lease = self.store.state.lessor.by_id.get(argument)
                self._say((request_id, Answer.OK, lease.ttl_s if lease else 0))
            elif op == Op.MEMBER_CHANGE:
                self._check_leads()
                change = decode_member_change(argument)
                self._end(self.store.fate(), request_id, lambda: self.store.changes.append(change))
            elif op == Op.TRANSFER:
                self._check_leads()
                self._end(self.store.fate(), request_id, lambda: self.store.elect(argument, tell=False))
        except MinikubeError as error:
            self._say((request_id, Answer.ERROR, encode_error(error), True))

    def _check_leads(self) -> None:
        store = self.store
        if store.leader != self.member.number:
            raise NotLeader(store.leader, store.leadership().leader_address)

    def _command(self, request_id: int, data: bytes) -> None:
        self.member.commands += 1
        self._check_leads()
        command = unpack(data)
        inner = getattr(command, "command", command)
        if isinstance(inner, LeaseGrant) and not inner.id:
            inner = inner._replace(id=self.store.state.revision * 1000 + self.store.commands)
            data = pack(command._replace(command=inner) if inner is not command else inner)  # type: ignore[union-attr]
        self.store.commands += 1
        self._end(self.store.fate(), request_id, lambda: self.store.execute(data))

    def _end(self, fate: Fate, request_id: int, act: Callable[[], Any]) -> None:
        if fate in ("lost before", "lost after"):
            if fate == "lost after":
                with contextlib.suppress(RequestError, SessionExpired):
                    act()
            self.transport.abort()
        elif fate in ("unknown before", "unknown after"):
            if fate == "unknown after":
                with contextlib.suppress(RequestError, SessionExpired):
                    act()
            raise OutcomeUnknown("the leader stepped down")
        elif fate == "refused":
            raise Unavailable("too much waits")
        elif fate == "no room":
            raise NoSpace("the disk is full")
        elif fate == "done":
            try:
                self._say((request_id, Answer.OK, act()))
            except (RequestError, SessionExpired) as error:
                self._say((request_id, Answer.ERROR, encode_error(error)))

    def _range(self, request_id: int, data: bytes, serializable: bool) -> None:
        request = unpack_any(data)
        assert isinstance(request, RangeRequest)
        if not serializable and not self.store.leader:
            raise Unavailable("there is no leader")
        result = self.store.state.range(request)
        if serializable and self.member.lag:
            result = result._replace(revision=result.revision - self.member.lag, kvs=[])
        for part in range_frames(request_id, result):
            self.transport.write(part)

    def _watch(self, request_id: int, request: WatchRequest) -> None:
        key, range_end, start, where, after = request

        def sink(batch: WatchBatch) -> None:
            if self.member.silent or self.transport.is_closing():
                return
            if batch.error is not None:
                self._say((request_id, Answer.END, encode_error(batch.error)))
                return
            for part in event_frames(request_id, batch.revision, batch.events):
                self.transport.write(part)

        if not start:
            after = max(after, self.store.state.revision)
            self._say((request_id, Answer.EVENTS, after, (), False))
        begin = start or after + 1
        hub = self.store.hub
        self._watches[request_id] = hub.add(key, range_end, begin, sink, where and where_from_plain(where))
        while hub.catch_up():
            pass

    def _say(self, value: object) -> None:
        self.transport.write(frame(value))


@contextlib.asynccontextmanager
async def fake_store(count: int = 3) -> AsyncIterator[FakeStore]:
    store = FakeStore(count)
    for member in store.members:
        await member.start()
    try:
        yield store
    finally:
        for member in store.members:
            await member.stop()
