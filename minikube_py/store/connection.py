"""One client's connection on the server: requests in, answers and events out, both bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

from minikube_py.errors import InvalidRequest, MinikubeError, NotLeader, OutcomeUnknown, Unavailable, shown
from minikube_py.fields.where import Where
from minikube_py.index.reports import explanation_to_plain, report_to_plain
from minikube_py.index.running import check_buildable
from minikube_py.mvcc.codec import pack, to_plain, unpack, unpack_any, where_from_plain
from minikube_py.mvcc.types import Command, DeclareIndex, InSession, LeaseGrant, RangeRequest, Result
from minikube_py.ports.port import Incoming
from minikube_py.raft.configuration import NodeId
from minikube_py.store import paging
from minikube_py.store.framing import FrameReader, ProtocolError, encode_error, frame
from minikube_py.store.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX, PART_BYTES
from minikube_py.store.membership import decode_member_change
from minikube_py.store.protocol import (
    SERIALIZABLE,
    Answer,
    Op,
    WatchRequest,
    event_bytes,
    event_frames,
    fragments,
    range_frames,
    welcome_to_plain,
)
from minikube_py.store.snapshot_transfer import SnapshotSource
from minikube_py.store.storage import WatchBatch, WatchHandle

if TYPE_CHECKING:
    from minikube_py.store.server import StoreServer


FLUSH_BYTES = 64 << 10
"""Events are batched up to this size per write; answers of one turn leave in one write anyway."""


class ServedWatch:
    """A watch whose events queue here while the connection is full."""

    __slots__ = ("frames", "handle", "pending", "pending_bytes")

    def __init__(self) -> None:
        self.handle: WatchHandle | None = None
        self.pending: deque[WatchBatch] = deque()
        self.pending_bytes = 0
        self.frames: Iterator[bytes] = iter(())


class Connection(asyncio.Protocol):
    def __init__(self, server: StoreServer, incoming: Incoming) -> None:
        self._server = server
        self._incoming = incoming
        self._member = server.member
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport
        self._half_closes = False
        self._greeted = False
        self._backlog: deque[Any] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_due = False
        self._write_paused = False
        self._reading = True
        self._ending = False
        self._streams: deque[Iterator[bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0
        self.watches: dict[int, ServedWatch] = {}
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # A closed TLS transport cannot be queried any more.
        self._half_closes = transport.get_extra_info("ssl_object") is None
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        self._server.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._incoming.left()
        self._stop_timer()
        for watch in self.watches.values():
            if watch.handle is not None:
                watch.handle.cancel()
        self.watches.clear()
        self._streams.clear()
        self._backlog.clear()
        self._server.connections.pop(self, None)
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        try:
            frames = deque(self._reader.feed(data))
        except ProtocolError as error:
            self._refuse(MinikubeError(str(error)))
            return
        if self._backlog:
            self._backlog.extend(frames)
            return
        self._take(frames)

    def eof_received(self) -> bool:
        """The client sends no more but may still read: answer its requests, then end the connection."""
        self._finish_when_answered()
        return self._half_closes

    def pause_writing(self) -> None:
        self._write_paused = True
        self._adjust_reading()
        self._stop_timer()
        self._timer = self._loop.call_later(self._limits.stall_s, self._transport.abort)

    def resume_writing(self) -> None:
        self._write_paused = False
        self._stop_timer()
        self._pump()
        self._adjust_reading()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _take(self, frames: deque[Any]) -> None:
        limit = self._limits.in_flight_max
        while frames:
            if self.in_flight >= limit or self._write_paused:
                self._backlog = frames
                break
            try:
                self._dispatch(frames.popleft())
            except ProtocolError as error:
                self._refuse(MinikubeError(str(error)))
                return
        self._adjust_reading()

    def _dispatch(self, request: Any) -> None:
        if not self._greeted:
            self._greet(request)
            return
        if not 3 <= len(request) <= 4:
            raise ProtocolError("a request is not [id, op, argument] or [id, op, argument, flags]")
        request_id, op, argument, *flags = request
        if type(request_id) is not int or request_id < 1:
            raise ProtocolError("a request's id is not a positive integer")
        try:
            if op == Op.COMMAND:
                self._command(request_id, argument)
            elif op == Op.RANGE:
                self._range(request_id, argument, bool(flags and flags[0] & SERIALIZABLE))
            elif op == Op.WATCH:
                self._watch(request_id, WatchRequest.of(argument))
            elif op == Op.CANCEL:
                self._cancel(argument)
            elif op == Op.PING:
                self._send((request_id, Answer.OK, self._member.state.revision))
            elif op == Op.KEEP_ALIVE:
                self._keep_alive(request_id, argument)
            else:
                self._ask_member(request_id, op, argument)
        except MinikubeError as error:
            self._send((request_id, Answer.ERROR, encode_error(error), True))
        except (TypeError, ValueError, KeyError, IndexError) as error:
            malformed = InvalidRequest(f"malformed request: {error}")
            self._send((request_id, Answer.ERROR, encode_error(malformed), True))

    def _ask_member(self, request_id: int, op: int, argument: Any) -> None:
        """Administrative requests, which are rare."""
        member = self._member
        if op == Op.STATUS:
            self._send((request_id, Answer.OK, member.status()))
        elif op == Op.MEMBERS:
            status = member.status()
            self._send((request_id, Answer.OK, {key: status[key] for key in ("members", "expected")}))
        elif op == Op.INDEXES:
            self._work(request_id, self._indexes())
        elif op == Op.REMAINING:
            self._work(request_id, self._member.lease_remaining_s(_integer(argument)))
        elif op == Op.EXPLAIN:
            self._work(request_id, self._explanation(_range_request(argument)))
        elif op == Op.HASH:
            self._work(request_id, self._hash(_integer(argument)))
        elif op == Op.SNAPSHOT:
            self._work(request_id, self._snapshot(request_id))
        elif op == Op.MEMBER_CHANGE:
            self._work(request_id, member.change_members(decode_member_change(argument)))
        elif op == Op.TRANSFER:
            self._work(request_id, member.transfer(NodeId(_integer(argument))))
        else:
            raise ProtocolError(f"unknown op {shown(op)}")

    def _greet(self, hello: Any) -> None:
        refusal = self._server.welcome(hello)
        if refusal is not None:
            self._refuse(refusal)
            return
        if not self._incoming.authenticated():
            most = self._server.port.limits.connections_max
            self._refuse(Unavailable(f"the store has reached its limit of {most} connections"))
            return
        self._greeted = True
        self._reader.limit_bytes = FRAME_BYTES_MAX
        self._send(welcome_to_plain(self._server.greeting()))

    def _range(self, request_id: int, data: bytes, serializable: bool) -> None:
        request = _range_request(data)
        member = self._member
        if not paging.is_small(member.state, request):
            self._work(request_id, self._paged(request_id, request, serializable))
            return
        if member.readable or serializable:
            self._stream(range_frames(request_id, member.read(request)))
            return
        self.in_flight += 1
        member.when_readable(partial(self._read, request_id, request))

    async def _paged(self, request_id: int, request: RangeRequest, serializable: bool) -> Iterator[bytes]:
        if not (self._member.readable or serializable):
            await self._member.confirmed()
        async with self._server.reading:
            return range_frames(request_id, await paging.read(self._member, request))

    def _read(self, request_id: int, request: RangeRequest, error: MinikubeError | None) -> None:
        self.in_flight -= 1
        try:
            if error is not None:
                raise error
            self._stream(range_frames(request_id, self._member.read(request)))
        except MinikubeError as refusal:
            self._send((request_id, Answer.ERROR, encode_error(refusal)))
        self._go_on()

    def _command(self, request_id: int, data: bytes) -> None:
        command = unpack(data)
        inner = command.command if type(command) is InSession else command
        if type(inner) is DeclareIndex:
            # Not decided by the log: other members may support other structures.
            check_buildable(inner.spec)
        if type(inner) is LeaseGrant and inner.id == 0:
            command, data = self._with_lease_id(command, inner)
        self._member.propose(command, data, partial(self._answer, request_id))
        self.in_flight += 1

    def _with_lease_id(self, command: Command, grant: LeaseGrant) -> tuple[Command, bytes]:
        grant = grant._replace(id=self._member.new_lease_id())
        command = command._replace(command=grant) if type(command) is InSession else grant
        return command, pack(command)

    def _keep_alive(self, request_id: int, lease_id: Any) -> None:
        self.in_flight += 1
        try:
            self._member.keep_alive(_integer(lease_id), partial(self._renewed, request_id))
        except BaseException:
            self.in_flight -= 1
            raise

    def _renewed(self, request_id: int, ttl_s: int, error: MinikubeError | None) -> None:
        self.in_flight -= 1
        if error is not None:
            self._send((request_id, Answer.ERROR, encode_error(error)))
        else:
            self._send((request_id, Answer.OK, ttl_s))
        self._go_on()

    def _work(self, request_id: int, work: Coroutine[Any, Any, object]) -> None:
        """Answers with the result of `work`; an iterator yields frames."""
        self.in_flight += 1
        task = self._loop.create_task(self._worked(request_id, work))
        self._server.work.add(task)
        task.add_done_callback(self._server.work.discard)

    async def _worked(self, request_id: int, work: Coroutine[Any, Any, object]) -> None:
        try:
            answer = await work
            if isinstance(answer, Iterator):
                self._stream(answer)
            else:
                self._send((request_id, Answer.OK, answer))
        except MinikubeError as error:
            self._send((request_id, Answer.ERROR, encode_error(error)))
        except asyncio.CancelledError:
            stopping = OutcomeUnknown("the store is stopping; whether the change took effect is unknown")
            self._send((request_id, Answer.ERROR, encode_error(stopping)))
        finally:
            self.in_flight -= 1
        self._go_on()

    async def _hash(self, revision: int) -> tuple[int, int]:
        at = revision or self._member.state.revision
        return await self._member.hash(revision), at

    async def _indexes(self) -> list[Any]:
        return [report_to_plain(each) for each in await self._member.storage.indexes()]

    async def _explanation(self, request: RangeRequest) -> Any:
        return explanation_to_plain(await self._member.storage.explain(request))

    async def _snapshot(self, request_id: int) -> Iterator[bytes]:
        try:
            source = await self._member.fresh_snapshot()
        except OSError as error:
            raise Unavailable(f"the snapshot cannot be taken: {error}") from None
        return _snapshot_frames(request_id, source)

    def _answer(self, request_id: int, result: Result | None, error: MinikubeError | None) -> None:
        self.in_flight -= 1
        if error is not None:
            self._send((request_id, Answer.ERROR, encode_error(error)))
        else:
            assert result is not None
            answer = frame((request_id, Answer.OK, to_plain(result)))
            if len(answer) > PART_BYTES:
                self._stream(fragments(request_id, answer))
            else:
                self._out.append(answer)
                self._flush_soon()
        if self._backlog:
            self._go_on()

    def _go_on(self) -> None:
        """Resumes reading and queued work once enough was answered."""
        if self._backlog and self.in_flight <= self._limits.in_flight_max // 2:
            backlog, self._backlog = self._backlog, deque()
            self._take(backlog)
        if self._ending:
            self._finish_when_answered()

    def tell(self, told: bytes) -> None:
        """Sends a frame that answers no request."""
        if self._greeted and not self._ending:
            self._out.append(told)
            self._flush_soon()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _send(self, value: object) -> None:
        self._out.append(frame(value))
        self._flush_soon()

    def _flush(self) -> None:
        self._flush_due = False
        self._write_out()
        if self._ending:
            self._finish_when_answered()

    def _write_out(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _stream(self, frames: Iterator[bytes]) -> None:
        """Sends a possibly large answer frame by frame, as the client takes it."""
        begun = list(islice(frames, 2))
        if len(begun) == 1 and not self._write_paused:
            self._out += begun
            self._flush_soon()
            return
        self.in_flight += 1
        self._streams.append(chain(begun, frames))
        self._pump()

    def _pump(self) -> None:
        """Writes parts of large answers and queued events, round robin over streams, until the connection is full."""
        if self._out:
            self._flush()
        progress = True
        while progress and not self._write_paused and not self._transport.is_closing():
            progress = False
            if self._streams:
                stream = self._streams.popleft()
                part = next(stream, None)
                if part is None:
                    self.in_flight -= 1
                else:
                    self._transport.write(part)
                    self._streams.append(stream)
                progress = True
            for request_id, watch in list(self.watches.items()):
                if self._write_paused:
                    break
                progress = self._pump_watch(request_id, watch) or progress
        if self._backlog and not self._write_paused:
            backlog, self._backlog = self._backlog, deque()
            self._take(backlog)
        if self._ending:
            self._finish_when_answered()

    # -- watches ------------------------------------------------------------------------------------------------------

    def _watch(self, request_id: int, request: WatchRequest) -> None:
        if len(self.watches) >= self._limits.watches_max:
            raise Unavailable(f"a connection may hold at most {self._limits.watches_max} watches")
        if request_id in self.watches:
            raise InvalidRequest(f"watch {request_id} exists already")
        watch = self.watches[request_id] = ServedWatch()
        try:
            if request.where is None:
                self._begin_watch(request_id, watch, request, None)
                return
            where = where_from_plain(request.where)
            # Another member may have confirmed the declaration of the fields before it was applied here.
            self._member.when_readable(partial(self._begin_where, request_id, watch, request, where))
        except BaseException:
            self.watches.pop(request_id, None)
            raise

    def _begin_where(
        self, request_id: int, watch: ServedWatch, request: WatchRequest, where: Where, error: MinikubeError | None
    ) -> None:
        if self.watches.get(request_id) is not watch:
            return
        try:
            if error is not None:
                raise NotLeader()
            self._begin_watch(request_id, watch, request, where)
        except MinikubeError as refusal:
            self.watches.pop(request_id, None)
            self._send((request_id, Answer.END, encode_error(refusal)))

    def _begin_watch(self, request_id: int, watch: ServedWatch, request: WatchRequest, where: Where | None) -> None:
        key, range_end, start_revision, _, after = request
        sink = partial(self._deliver, request_id, watch)
        if not start_revision:
            after = max(after, self._member.state.revision)
            start_revision = after + 1
        handle = self._member.watch(key, range_end, start_revision, sink, where)
        if not request.start_revision:
            watch.pending.appendleft(WatchBatch((), after))
            self._pump_watch(request_id, watch)
        if self.watches.get(request_id) is watch:
            watch.handle = handle
        else:
            handle.cancel()

    def _cancel(self, request_id: int) -> None:
        watch = self.watches.pop(request_id, None)
        if watch is not None and watch.handle is not None:
            watch.handle.cancel()

    def _deliver(self, request_id: int, watch: ServedWatch, batch: WatchBatch) -> None:
        """The member's sink: events are sent at once while the connection accepts them, and queued otherwise."""
        watch.pending.append(batch)
        watch.pending_bytes += sum(map(event_bytes, batch.events))
        if not self._write_paused:
            while self._pump_watch(request_id, watch):
                if self._write_paused:
                    break
            return
        if watch.pending_bytes > self._limits.watch_bytes_max:
            self._cut_off(request_id, watch)

    def _pump_watch(self, request_id: int, watch: ServedWatch) -> bool:
        """Sends one frame of the watch. False: nothing waits."""
        part = next(watch.frames, None)
        if part is None:
            if not watch.pending:
                return False
            batch = watch.pending.popleft()
            watch.pending_bytes -= sum(map(event_bytes, batch.events))
            if batch.error is not None:
                self.watches.pop(request_id, None)
                self._send((request_id, Answer.END, encode_error(batch.error)))
                return False
            watch.frames = event_frames(request_id, batch.revision, batch.events)
            part = next(watch.frames)
        self._out.append(part)
        self._out_bytes += len(part)
        if self._out_bytes > FLUSH_BYTES:
            self._flush()
        else:
            self._flush_soon()
        return True

    def _cut_off(self, request_id: int, watch: ServedWatch) -> None:
        """This watch's reader is too slow; other clients and its other watches are not affected."""
        self._server.watches_cut_off += 1
        if watch.handle is not None:
            watch.handle.cancel()
        watch.pending.clear()
        watch.pending_bytes = 0
        limit = self._limits.watch_bytes_max
        error = Unavailable(f"the watch was cut off: over {limit} bytes of events were waiting for its reader")
        watch.frames = iter(())
        watch.pending.append(WatchBatch((), self._member.state.revision, error))

    # -- ends ---------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Takes no more requests; ends once the pending ones are answered."""
        self._backlog.clear()
        self._finish_when_answered()

    def _finish_when_answered(self) -> None:
        self._ending = True
        if not self.in_flight and not self._backlog and not self._streams:
            self._end()

    def _refuse(self, error: MinikubeError) -> None:
        """The final error to a client that is not understood or not admitted."""
        self._out.append(frame((0, encode_error(error))))
        self._end()

    def _end(self) -> None:
        self._write_out()
        self._ending = True
        # Closing flushes what was written; do not wait for a client that reads none of it.
        self._transport.close()
        self._stop_timer()
        self._timer = self._loop.call_later(self._limits.drain_s, self._transport.abort)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _adjust_reading(self) -> None:
        wanted = not self._backlog and not self._write_paused and not self._ending
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _range_request(data: bytes) -> RangeRequest:
    request = unpack_any(data)
    if not isinstance(request, RangeRequest):
        raise InvalidRequest(f"{type(request).__name__} is not a range request")
    return request


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise InvalidRequest(f"a {type(value).__name__} where a number is required")
    return value


def _snapshot_frames(request_id: int, source: SnapshotSource) -> Iterator[bytes]:
    """The bytes of a snapshot's file as on disk; the file ends with a hash of everything before it."""
    try:
        offset, offer = 0, source.offer
        while offset < offer.size_bytes:
            data = source.read(offset)
            if not data:
                short = Unavailable(f"the snapshot ends at {offset} of its {offer.size_bytes} bytes")
                yield frame((request_id, Answer.ERROR, encode_error(short)))
                return
            yield frame((request_id, Answer.PART, data, None))
            offset += len(data)
        yield frame((request_id, Answer.OK, (offer.size_bytes, offer.sha256, offer.meta.index, offer.meta.term)))
    except OSError as error:
        failed = Unavailable(f"the snapshot cannot be read: {error}")
        yield frame((request_id, Answer.ERROR, encode_error(failed)))
    finally:
        source.close()
