"""Storage over the native protocol: follows the leader, pipelines requests, and retries what can be retried.

Every write belongs to a session (see `client_session`), reads and renewals are idempotent, and watches resume after the
last event delivered (see `client_watch`). So losing a connection or a leader only costs time, up to `request_timeout_s`
per request. Then it fails with Unavailable if it cannot have been executed, with OutcomeUnknown otherwise."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from minikube_py.env import Clock, Rng
from minikube_py.errors import (
    Leaderless,
    MinikubeError,
    NotLeader,
    OutcomeUnknown,
    RequestTooLarge,
    SessionExpired,
    Unavailable,
)
from minikube_py.fields.where import Where
from minikube_py.index.reports import Explanation, IndexReport, explanation_from_plain, report_from_plain
from minikube_py.mvcc.codec import from_plain, pack, where_to_plain
from minikube_py.mvcc.types import (
    Alarm,
    DeclareFields,
    KeyValue,
    RangeRequest,
    RangeResult,
    Result,
    SessionCommand,
    SetAlarm,
)
from minikube_py.raft.configuration import NodeId
from minikube_py.store.client_connection import Call, ClientConnection, Endpoint
from minikube_py.store.client_route import Route
from minikube_py.store.client_session import Opening, SessionWrites, Write, session_of
from minikube_py.store.client_watch import Watches
from minikube_py.store.membership import MemberChange, encode_member_change
from minikube_py.store.protocol import SERIALIZABLE, Op, WatchRequest, decode_range
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.storage import CommandStorage, WatchHandle, WatchSink

REQUEST_TIMEOUT_S: Final = 10.0
LONG_TIMEOUT_S: Final = 120.0
"""For operations that go through all data, such as declaring fields."""
PENDING_MAX: Final = 50_000
"""The most requests that may wait for an answer; further ones are refused."""
SWEEP_S: Final = 0.1
RETRY_S: Final = 0.05
SILENT_S: Final = 1.0
"""When a member owes answers and is silent this long, the client asks the others who leads."""
DEAD_S: Final = 10.0
"""When it owes answers this long, the connection is given up."""
PING_S: Final = 2.0
"""A connection that was silent this long is pinged."""


class StoreClient(CommandStorage):
    """`await start()` connects, and raises if no member can be reached; later it reconnects whenever a connection is
    lost. With `fail_fast` a request without a connection or a leader is refused at once."""

    def __init__(
        self,
        endpoints: Endpoint | Sequence[Endpoint],
        clock: Clock,
        rng: Rng,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        fail_fast: bool = False,
    ) -> None:
        given = [endpoints] if isinstance(endpoints, Endpoint) else list(endpoints)
        self._clock = clock
        self._rng = rng
        self._timeout_s = request_timeout_s
        self._fail_fast = fail_fast
        self._route = Route(given, clock, rng, self._moved)
        self._connection: ClientConnection | None = None
        self._session = SessionWrites(rng, self._submit_opening)
        self._watches = Watches(self._again_later)
        self._pending: dict[Call, None] = {}
        self._waiting: list[Call] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._retry: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None
        self._ping: Call
        self._why_not = "not started"
        self._queries = QueryMetrics()
        self._revision = 0
        self._connects = 0
        self._stale_reads = 0

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises: Unavailable; MinikubeError if the store refuses (token, cluster, version)."""
        self._why_not = ""
        try:
            await self._route.start()
        except MinikubeError as error:
            self._why_not = str(error)
            # Requests made meanwhile have their own deadlines; watches would wait forever.
            self._watches.close(Unavailable(self._why_not))
            raise
        self._ping = _new_ping()
        self._pinger = asyncio.get_running_loop().create_task(self._ping_forever())

    async def close(self) -> None:
        """Ends the session; requests still unanswered then end as Unavailable or unknown."""
        for task in (self._pinger, self._retry):
            if task is not None:
                task.cancel()
        await self._route.stop()
        self._why_not = "the client was closed"
        connection, self._connection = self._connection, None
        if connection is not None:
            ending = self._session.closing()
            if ending is not None and connection.leads:
                call = Call(Op.COMMAND, ending, asyncio.get_running_loop().create_future())
                call.future.add_done_callback(_retrieved)
                connection.send(call)
            connection.close()
        self._watches.close(Unavailable(self._why_not))
        self._session.close(self._why_not)
        for call in list(self._pending):
            self._settle(call, Unavailable(self._why_not))
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if connection is not None:
            await connection.wait_closed()

    # -- Storage ------------------------------------------------------------------------------------------------------

    async def get(self, key: bytes, revision: int = 0) -> tuple[KeyValue | None, int]:
        result = await self.range(RangeRequest(key, revision=revision))
        return (result.kvs[0] if result.kvs else None), result.revision

    async def range(self, request: RangeRequest, *, serializable: bool = False) -> RangeResult:
        """Linearizable. `serializable`: the connected member's state, without asking the others; possibly stale, but
        never older than what this client has seen."""
        data = pack(request)
        flags = SERIALIZABLE if serializable else 0
        attempts = 0
        while True:
            seen = self._revision
            parts, answer = await self._call(Op.RANGE, data, flags)
            result = decode_range(parts, answer)
            if result.revision >= seen:
                break
            self._stale_reads += 1
            if not flags:
                attempts += 1
                if attempts * RETRY_S >= self._timeout_s:
                    raise Unavailable(f"the store answers at revision {result.revision}, but {seen} was seen earlier")
                await self._clock.sleep(RETRY_S)
            flags = 0
        self._saw(result.revision)
        self._queries.observe(result)
        return result

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        """See `Storage.watch`. When a connection is lost it resumes by itself at the next member reached."""
        plain = None if where is None else where_to_plain(where)
        request = WatchRequest(key, range_end, start_revision, plain, self._revision)
        if self._why_not or (self._connection is None and self._fail_fast):
            watch = self._watches.add(request, sink, None)
            asyncio.get_running_loop().call_soon(watch.end, self._no_connection())
            return watch
        return self._watches.add(request, sink, self._connection)

    async def lease_keep_alive(self, lease_id: int) -> int:
        _, ttl_s = await self._call(Op.KEEP_ALIVE, lease_id)
        return int(ttl_s)

    async def lease_remaining_s(self, lease_id: int) -> float | None:
        """Time until the lease ends unless it is renewed; None if it is unknown."""
        _, remaining_s = await self._call(Op.REMAINING, lease_id)
        return None if remaining_s is None else float(remaining_s)

    async def indexes(self) -> list[IndexReport]:
        _, answer = await self._call(Op.INDEXES, None)
        return [report_from_plain(each) for each in answer]

    async def alarms(self) -> list[Alarm]:
        _, status = await self._call(Op.STATUS, None)
        return [Alarm(each["member"], each["kind"]) for each in status["alarms"]]

    async def explain(self, request: RangeRequest) -> Explanation:
        _, answer = await self._call(Op.EXPLAIN, pack(request))
        return explanation_from_plain(answer)

    async def command(self, command: SessionCommand) -> Result:
        """Sends any command through the log, once. Raises: RequestError, Unavailable, OutcomeUnknown."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        write = Write(command, future)
        long = type(command) is DeclareFields
        self._admit(write, max(self._timeout_s, LONG_TIMEOUT_S) if long else self._timeout_s)
        self._session.add(write, self._leading())
        result = cast(Result, from_plain(await future))
        self._saw(result.revision)
        return result

    @property
    def revision(self) -> int:
        """The latest revision this client has seen in any answer."""
        return self._revision

    @property
    def cluster_id(self) -> int:
        return self._route.cluster_id

    def metrics(self) -> dict[str, float]:
        prefix = "minikube_py_store_client_"
        return {
            prefix + "connected": float(self._connection is not None),
            prefix + "leader_connected": float(self._leading() is not None),
            prefix + "connects_total": self._connects,
            prefix + "revision": self._revision,
            prefix + "requests_pending": len(self._pending),
            prefix + "writes_resent_total": self._session.resent,
            prefix + "sessions_renewed_total": self._session.renewed,
            prefix + "watches": len(self._watches),
            prefix + "watches_resumed_total": self._watches.resumed,
            prefix + "stale_reads_total": self._stale_reads,
            **self._queries.samples(prefix),
        }

    # -- the store's own affairs --------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The status of the connected member; `ask` asks a given one."""
        _, answer = await self._call(Op.STATUS, None)
        return cast(dict[str, Any], answer)

    async def members(self) -> dict[str, Any]:
        """The members, and those expected to join."""
        _, answer = await self._call(Op.MEMBERS, None)
        return cast(dict[str, Any], answer)

    async def change_members(self, change: MemberChange) -> None:
        """Returns when it is applied. Never sent twice. Raises: InvalidRequest, Unavailable, OutcomeUnknown."""
        await self._call(Op.MEMBER_CHANGE, encode_member_change(change))

    async def clear_alarm(self, command: SetAlarm) -> None:
        """Raises: Unavailable, OutcomeUnknown."""
        await self._call(Op.COMMAND, pack(command))

    async def transfer(self, to: NodeId) -> None:
        """Returns when member `to` leads. Raises: Unavailable."""
        await self._call(Op.TRANSFER, to)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _call(self, op: Op, argument: object, flags: int = 0) -> asyncio.Future[Any]:
        call = Call(op, argument, asyncio.get_running_loop().create_future(), flags)
        self._admit(call, self._timeout_s)
        self._dispatch(call)
        return call.future

    def _admit(self, call: Call, timeout_s: float) -> None:
        """Raises: Unavailable if there are too many, or for any request with `fail_fast` and no leader."""
        if self._why_not or (self._fail_fast and (self._leading() if call.for_leader else self._connection) is None):
            raise self._no_connection()
        if len(self._pending) >= PENDING_MAX:
            raise Unavailable(f"{PENDING_MAX} requests to the store are waiting for answers, which is the limit")
        call.since_s = self._clock.monotonic_s()
        call.deadline_s = call.since_s + timeout_s
        self._await(call)

    def _await(self, call: Call) -> None:
        self._pending[call] = None
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _dispatch(self, call: Call) -> None:
        connection = self._leading() if call.for_leader else self._connection
        if connection is None:
            self._waiting.append(call)
            return
        try:
            connection.send(call)
        except RequestTooLarge as error:
            self._settle(call, error)

    def _submit_opening(self, opening: Opening) -> None:
        """It may wait without limit: the writes that need the session have their own deadlines."""
        opening.since_s, opening.deadline_s = self._clock.monotonic_s(), math.inf
        self._await(opening)
        self._dispatch(opening)

    def _leading(self) -> ClientConnection | None:
        connection = self._connection
        return connection if connection is not None and connection.leads else None

    def _no_connection(self) -> Unavailable:
        if self._why_not:
            return Unavailable(f"no connection to the store: {self._why_not}")
        return Unavailable(f"no connection to the leader of the store: {self._route.reasons()}")

    def _saw(self, revision: int) -> None:
        if revision > self._revision:
            self._revision = revision

    # -- what connections report
    # ----------------------------------------------------------------------------------------

    def answered(self, call: Call, value: Any) -> None:
        self._pending.pop(call, None)
        future = call.future
        if type(call) is Write:
            if not future.done():
                future.set_result(value)
            self._session.ended(call)
        elif type(call) is Opening:
            self._session.opened(session_of(value), self._leading())
        elif not future.done():
            future.set_result((call.parts, value))

    def refused(self, call: Call, error: MinikubeError, connection: ClientConnection) -> None:
        """Some refusals are final; others mean "not here" or "not now"."""
        again = isinstance(error, NotLeader) or (
            isinstance(error, Unavailable) and not self._fail_fast and not call.deliberate
        )
        call.refusal, call.sent = error, False
        if isinstance(error, NotLeader):
            connection.leads_no_more(error.leader_id, error.address)
            self._route.news()
        if type(call) is Write:
            if isinstance(error, SessionExpired):
                self._session.expired(call, error)
                self._flush()
            elif again or isinstance(error, OutcomeUnknown):
                self._session.undelivered(call, may_be_done=isinstance(error, OutcomeUnknown))
                self._again_later()
            else:
                self._settle(call, error)
        elif again or (isinstance(error, OutcomeUnknown) and not call.writes):
            self._waiting.append(call)
            self._again_later()
        else:
            self._settle(call, error)

    def leader_told(self, connection: ClientConnection) -> None:
        self._route.learn(connection)
        if connection is not self._connection:
            return
        if connection.leads:
            self._flush()
        else:
            self._route.news()

    def fell(self, connection: ClientConnection, calls: list[Call], reason: str) -> None:
        if connection is self._connection:
            self._connection = None
        self._take_back(calls, reason, self._fail_fast)
        self._route.news()

    def _moved(self, connection: ClientConnection, old: ClientConnection | None) -> None:
        """Moves everything to the new connection. The old one may have received a write, but its answers are ignored
        from now on, so the write must not count as delivered."""
        self._connects += 1
        self._connection = connection
        connection.owner = self
        self._saw(connection.welcome.revision)
        if old is not None:
            old.owner = None
            self._take_back(old.take_over(), "another member leads now")
        if connection.why_lost:
            self.fell(connection, [], connection.why_lost)
            return
        self._watches.begin(connection, again=True)
        self._flush()

    def _take_back(self, calls: list[Call], reason: str, fail: bool = False) -> None:
        for call in calls:
            if type(call) is Write:
                if fail and not call.sent and not call.doubtful:
                    self._settle(call, Unavailable(reason))
                self._session.undelivered(call, may_be_done=call.sent)
            elif call.writes and call.sent:
                self._settle(call, OutcomeUnknown(f"{reason}; it may or may not have taken effect"))
            elif (fail and type(call) is not Opening) or call.op == Op.PING:
                self._settle(call, Unavailable(reason))
            else:
                self._waiting.append(call)

    def _flush(self) -> None:
        """Sends pending requests if there is a connection."""
        connection = self._connection
        if connection is None:
            return
        self._watches.begin(connection, again=False)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if call.future.done():
                self._pending.pop(call, None)
            else:
                self._dispatch(call)
        if connection.leads:
            self._session.flush(connection)

    def _again_later(self) -> None:
        if self._retry is None and not self._why_not:
            self._retry = asyncio.get_running_loop().create_task(self._flush_later())

    async def _flush_later(self) -> None:
        await self._clock.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
        self._retry = None
        self._flush()

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _settle(self, call: Call, error: MinikubeError) -> None:
        self._pending.pop(call, None)
        before = isinstance(error, Unavailable | RequestTooLarge) or call.unlogged
        if type(call) is Write and call.doubtful and before:
            # This sending was refused before it reached the session, which alone knows the earlier ones.
            error = OutcomeUnknown(f"{error}; an earlier attempt of the write may or may not have taken effect")
        if not call.future.done():
            call.future.set_exception(error)
        if type(call) is Write:
            self._session.ended(call)
        elif type(call) is Opening:
            _retrieved(call.future)
            self._session.not_opened(error)

    def _sweep(self) -> None:
        """Fails requests past their deadline, and suspects a member that owes answers and is silent."""
        self._sweeper = None
        now_s = self._clock.monotonic_s()
        for call in list(self._pending):
            if call.future.done():
                self._pending.pop(call, None)
                if type(call) is Write:
                    self._session.ended(call)
            elif call.deadline_s <= now_s:
                self._settle(call, self._too_late(call))
        if not self._pending:
            return
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        connection = self._connection
        if connection is not None:
            silent_s = connection.silent_s(now_s)
            if silent_s > DEAD_S:
                connection.abort(f"it sent nothing for {DEAD_S:g} s")
            elif silent_s > SILENT_S:
                self._route.suspect()

    def _too_late(self, call: Call) -> MinikubeError:
        after = f"within {call.deadline_s - call.since_s:g} s"
        if type(call) is Write:
            if call.maybe_done:
                return OutcomeUnknown(f"the store gave no answer {after}; the write may or may not have taken effect")
        elif call.sent and call.writes:
            return OutcomeUnknown(f"the store gave no answer {after}; it may or may not have taken effect")
        elif call.sent:
            return Unavailable(f"the store gave no answer {after}")
        what = "leader" if call.for_leader else "member"
        last = f"; the last answer was: {call.refusal}" if call.refusal is not None else ""
        error = Leaderless if call.for_leader else Unavailable
        return error(f"no {what} of the store was reached {after}: {self._route.reasons()}{last}")

    async def _ping_forever(self) -> None:
        """A connection that only receives may have died long ago."""
        self._ping.future.set_result(None)
        while True:
            await self._clock.sleep(PING_S)
            connection, ping = self._connection, self._ping
            idle = connection is not None and self._clock.monotonic_s() - connection.heard_s >= PING_S
            if connection is not None and idle and ping.future.done():
                self._ping = ping = _new_ping()
                self._await(ping)
                connection.send(ping)


def _new_ping() -> Call:
    """It has no deadline: it ends with its connection."""
    ping = Call(Op.PING, None, asyncio.get_running_loop().create_future())
    ping.deadline_s = math.inf
    ping.future.add_done_callback(_retrieved)
    return ping


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved: nothing else awaits this future."""
    if not future.cancelled():
        future.exception()
