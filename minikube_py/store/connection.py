"""One client's connection: requests in, answers and events out, neither without bound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from minikube_py.errors import InvalidRequest, MinikubeError, Unavailable
from minikube_py.mvcc.codec import pack, to_plain, unpack, unpack_any, where_from_plain
from minikube_py.mvcc.types import LeaseGrant, RangeRequest, Result
from minikube_py.store.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX, PART_BYTES
from minikube_py.store.protocol import (
    VERSION,
    Answer,
    FrameReader,
    Op,
    ProtocolError,
    encode_error,
    event_bytes,
    event_frames,
    fragments,
    frame,
    range_frames,
)
from minikube_py.store.storage import WatchBatch, WatchHandle

if TYPE_CHECKING:
    from minikube_py.store.server import StoreServer


FLUSH_BYTES = 64 << 10
"""Events are gathered up to this for one write; answers to one turn's requests leave in one write anyway."""


class ServedWatch:
    """A watch whose events wait here while the connection takes no more."""

    __slots__ = ("frames", "handle", "pending", "pending_bytes")

    def __init__(self) -> None:
        self.handle: WatchHandle | None = None
        self.pending: deque[WatchBatch] = deque()
        self.pending_bytes = 0
        self.frames: Iterator[bytes] = iter(())


class Connection(asyncio.Protocol):
    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._member = server.member
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport
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
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        self._server.connections.add(self)
        if len(self._server.connections) > self._limits.connections_max:
            self._refuse(Unavailable(f"the store has its limit of {self._limits.connections_max} connections"))
            return
        self._timer = self._loop.call_later(self._limits.hello_s, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        for watch in self.watches.values():
            if watch.handle is not None:
                watch.handle.cancel()
        self.watches.clear()
        self._streams.clear()
        self._backlog.clear()
        self._server.connections.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        try:
            frames = self._reader.feed(data)
        except ProtocolError as error:
            self._refuse(MinikubeError(str(error)))
            return
        if self._backlog:
            self._backlog.extend(frames)
            return
        self._take(deque(frames))

    def eof_received(self) -> bool:
        """The client sends no more, but may still read: what it asked for is answered, then the connection ends."""
        self._finish_when_answered()
        return self._transport.get_extra_info("ssl_object") is None

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
        try:
            request_id, op, argument = request
        except (TypeError, ValueError):
            raise ProtocolError("a request is not [id, op, argument]") from None
        if type(request_id) is not int:
            raise ProtocolError("a request's id is not an integer")
        try:
            if op == Op.COMMAND:
                self._command(request_id, argument)
            elif op == Op.RANGE:
                self._range(request_id, argument)
            elif op == Op.WATCH:
                self._watch(request_id, *argument)
            elif op == Op.CANCEL:
                self._cancel(argument)
            elif op == Op.KEEP_ALIVE:
                self._send((request_id, Answer.OK, self._member.lessor.renew(argument)))
            elif op == Op.METRICS:
                self._send((request_id, Answer.OK, {**self._member.metrics(), **self._server.metrics()}))
            else:
                raise ProtocolError(f"unknown op {op!r}")
        except MinikubeError as error:
            self._send((request_id, Answer.ERROR, encode_error(error)))
        except (TypeError, ValueError, KeyError, IndexError) as error:
            self._send((request_id, Answer.ERROR, encode_error(InvalidRequest(f"malformed request: {error}"))))

    def _greet(self, hello: Any) -> None:
        refusal = self._server.welcome(hello)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._greeted = True
        self._reader.limit_bytes = FRAME_BYTES_MAX
        self._stop_timer()
        self._send((VERSION, self._member.cluster_id, self._member.state.revision))

    def _range(self, request_id: int, data: bytes) -> None:
        request = unpack_any(data)
        if not isinstance(request, RangeRequest):
            raise InvalidRequest(f"{type(request).__name__} is no range request")
        self._stream(range_frames(request_id, self._member.read(request)))

    def _command(self, request_id: int, data: bytes) -> None:
        command = unpack(data)
        if type(command) is LeaseGrant and command.id == 0:
            command = command._replace(id=self._member.new_lease_id())
            data = pack(command)
        self._member.propose(command, data, partial(self._answer, request_id))
        self.in_flight += 1

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
        if self._backlog and self.in_flight <= self._limits.in_flight_max // 2:
            backlog, self._backlog = self._backlog, deque()
            self._take(backlog)

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
        """Sends what may be large frame by frame, as the client takes it."""
        first = next(frames)
        following = next(frames, None)
        self.in_flight += 1
        if following is None and not self._write_paused:
            self.in_flight -= 1
            self._out.append(first)
            self._flush_soon()
            return
        self._streams.append(_chain(first, following, frames))
        self._pump()

    def _pump(self) -> None:
        """Writes parts of large answers and waiting events, each stream in its turn, until the connection is full."""
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

    def _watch(self, request_id: int, key: bytes, range_end: bytes, start_revision: int, where: Any) -> None:
        if (type(key), type(range_end), type(start_revision)) != (bytes, bytes, int):
            raise InvalidRequest("a watch is (key, range_end, start_revision, where)")
        if len(self.watches) >= self._limits.watches_max:
            raise Unavailable(f"a connection may hold {self._limits.watches_max} watches, no more")
        if request_id in self.watches:
            raise InvalidRequest(f"a watch {request_id} is there already")
        watch = ServedWatch()
        self.watches[request_id] = watch
        sink = partial(self._deliver, request_id, watch)
        try:
            handle = self._member.watch(key, range_end, start_revision, sink, where and where_from_plain(where))
        except MinikubeError:
            del self.watches[request_id]
            raise
        if self.watches.get(request_id) is watch:
            watch.handle = handle
        else:
            handle.cancel()

    def _cancel(self, request_id: int) -> None:
        watch = self.watches.pop(request_id, None)
        if watch is not None and watch.handle is not None:
            watch.handle.cancel()

    def _deliver(self, request_id: int, watch: ServedWatch, batch: WatchBatch) -> None:
        """The member's sink: what came is sent at once while the connection takes it, and waits here while not."""
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
        """This reader of this watch is too slow; others, and its other watches, are none the worse for it."""
        self._server.watches_cut_off += 1
        if watch.handle is not None:
            watch.handle.cancel()
        watch.pending.clear()
        watch.pending_bytes = 0
        limit = self._limits.watch_bytes_max
        error = Unavailable(f"the watch was cut off: over {limit} bytes of events waited for its reader")
        watch.frames = iter(())
        watch.pending.append(WatchBatch((), self._member.state.revision, error))

    # -- ends ---------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Takes no more requests; ends once what was asked is answered."""
        self._backlog.clear()
        self._finish_when_answered()

    def _finish_when_answered(self) -> None:
        self._ending = True
        if not self.in_flight and not self._backlog and not self._streams:
            self._end()

    def _refuse(self, error: MinikubeError) -> None:
        """The last word to a client whose words are not understood or not welcome."""
        self._out.append(frame((0, encode_error(error))))
        self._end()

    def _end(self) -> None:
        self._write_out()
        self._ending = True
        # Closing flushes what was written; a client that takes none of it is not waited for.
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


def _chain(first: bytes, following: bytes | None, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    if following is not None:
        yield following
        yield from rest
