"""Watch: the watches of one stream, by per-stream ids.

Events to send are queued here, up to a limit. A watch whose events do not fit is removed from the store, and resumes
once the stream is read again: a slow reader delays only itself, and costs no more memory than that."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from minikube_py.errors import Compacted, MinikubeError
from minikube_py.etcd.answers import MESSAGES_MAX, kv_of
from minikube_py.etcd.errors import COMPACTED, Refused
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.etcd.pieces import Batch, Pieces, message_of
from minikube_py.mvcc.types import FROM_KEY, Event, WatchBatch
from minikube_py.mvcc.watch import Watcher
from minikube_py.store.protocol import event_bytes

WAITING_BYTES_MAX: Final = 4 << 20
"""Limit of a stream's queued events; a batch that starts below may end above."""
ALL_WAITING_BYTES_MAX: Final = 256 << 20
"""Limit of queued events of all streams: beyond it, a stream with a queue is suspended."""
ANSWER_COST_BYTES: Final = 1500
EVENT_COST_BYTES: Final = 320
"""Counted with each queued answer, and each event of it: what the objects take besides their bytes."""
ANSWER_BYTES: Final = 1 << 20
"""Events of several revisions are split into answers of about this size."""
SMALL_BYTES: Final = 64 << 10
"""Few events up to this size become a message at once; more are shared, and made in pieces when they are sent."""
FRAGMENT_BYTES: Final = (3 << 19) + (512 << 10)
"""etcd's: the largest request plus gRPC's overhead."""
WATCHES_MAX: Final = 20_000
"""Limit per stream."""
NO_WATCH: Final = -1
TYPES: Final = {"PUT": 0, "DELETE": 1}
FILTERED: Final = ("PUT", "DELETE")


class Watch:
    """`asked`: the request that created it. `handle` None: it is suspended, and resumes at `next_revision`."""

    __slots__ = ("asked", "filtered", "handle", "id", "idle", "keys", "next_revision")

    def __init__(self, watch_id: int, asked: Any, keys: tuple[bytes, bytes], next_revision: int) -> None:
        self.id = watch_id
        self.asked = asked
        self.keys = keys
        self.filtered = frozenset([FILTERED[each] for each in asked.filters if 0 <= each < len(FILTERED)])
        self.next_revision = next_revision
        self.handle: Watcher | None = None
        self.idle = True


class Queued(NamedTuple):
    """Events that are made when they are sent, to the watch of `head`."""

    head: Any
    batch: Batch
    fragment_bytes: int

    @property
    def watch_id(self) -> int:
        return int(self.head.watch_id)


class WatchStream:
    """`take` handles the client's requests; `next` is the next answer. `close` ends all its watches."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._watches: dict[int, Watch] = {}
        self._off: dict[Watch, None] = {}
        self._next_id = 0
        self._waiting: deque[tuple[Any, int]] = deque()
        self._cut: deque[Pieces] = deque()
        """The other fragments of an answer of which one was read."""
        self._progressing: set[int] = set()
        """Watches whose progress is queued: another would say the same, later."""
        self.waiting_bytes = 0
        self._wake = asyncio.Event()
        self._read = asyncio.Event()
        self._ended: MinikubeError | Refused | None = None

    def __len__(self) -> int:
        return len(self._watches)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def take(self, request: Any) -> None:
        """Raises: MinikubeError if the store accepts no watches."""
        chosen = request.WhichOneof("request_union")
        if chosen == "create_request":
            guard, asked = self._node.guard, request.create_request
            refused = guard.auth.enabled and await guard.watch_refusal(asked.key or FROM_KEY, asked.range_end)
            self._create(asked, refused or "")
        elif chosen == "cancel_request":
            watch = self._watches.pop(request.cancel_request.watch_id, None)
            if watch is not None:
                self._leave(watch)
                self._say(watch.id, canceled=True)
        elif chosen == "progress_request" and self._watches and all(map(self._in_step, self._watches.values())):
            self._say(NO_WATCH, self._node.member.replica.hub.revision)

    def _create(self, asked: Any, refused: str) -> None:
        if asked.start_revision < 0 or refused:
            self._refuse(COMPACTED[1] if asked.start_revision < 0 else refused)
            return
        key, range_end = watched = asked.key or FROM_KEY, asked.range_end
        if range_end and range_end != FROM_KEY and key >= range_end:
            self._refuse("mvcc: watcher range is empty")
            return
        watch_id = asked.watch_id
        if watch_id in self._watches and watch_id:
            self._refuse("mvcc: duplicate watch ID provided on the WatchStream")
            return
        if len(self._watches) >= WATCHES_MAX:
            self._refuse(f"etcdserver: a stream has at most {WATCHES_MAX} watches")
            return
        next_id = self._next_id
        if not watch_id:
            while next_id in self._watches:
                next_id += 1
            watch_id, next_id = next_id, next_id + 1
        watch = Watch(watch_id, asked, watched, asked.start_revision or self._node.member.state.revision + 1)
        self._join(watch)
        self._next_id = next_id
        self._watches[watch_id] = watch
        self._say(watch_id, created=True)

    def _refuse(self, reason: str) -> None:
        self._say(NO_WATCH, created=True, canceled=True, cancel_reason=reason)

    def _join(self, watch: Watch) -> None:
        sink = partial(self._arrived, watch)
        watch.handle = cast(Watcher, self._node.member.watch(*watch.keys, watch.next_revision, sink))

    def _leave(self, watch: Watch) -> None:
        self._off.pop(watch, None)
        if watch.handle is not None:
            watch.handle.cancel()
            watch.handle = None

    def _in_step(self, watch: Watch) -> bool:
        handle, hub = watch.handle, self._node.member.replica.hub
        return handle is not None and handle.synced and watch.asked.start_revision <= hub.revision

    # -- events of the store -------------------------------------------------------------------------------------------

    def _arrived(self, watch: Watch, batch: WatchBatch) -> None:
        if batch.error is not None:
            watch.handle = None
            if not isinstance(batch.error, Compacted):
                self.end(batch.error)
            else:
                # As in etcd the id stays in use until the client also cancels it.
                compacted = batch.error.compact_revision
                self._say(watch.id, 0, canceled=True, compact_revision=compacted)
            return
        waiting_bytes = self.waiting_bytes
        full = waiting_bytes >= WAITING_BYTES_MAX or self._node.watch_bytes >= ALL_WAITING_BYTES_MAX
        if batch.events and waiting_bytes and full:
            self._leave(watch)
            self._off[watch] = None
            return
        watch.next_revision = max(watch.next_revision, batch.revision + 1)
        node, asked, events = self._node, watch.asked, batch.events
        compacted = node.member.state.compact_revision
        if len(events) > MESSAGES_MAX or sum(map(event_bytes, events)) > SMALL_BYTES:
            for each in self._shared(watch, batch, compacted):
                watch.idle = False
                head = pb.WatchResponse(header=node.header(each.revision), watch_id=watch.id)
                self._queue(Queued(head, each, FRAGMENT_BYTES if asked.fragment else 0), each.cost_bytes)
            return
        told = [
            event_of(each, prev_kv=asked.prev_kv, compacted=compacted)
            for each in events
            if each.type not in watch.filtered
        ]
        if told:
            watch.idle = False
            answer = pb.WatchResponse(header=node.header(batch.revision), watch_id=watch.id, events=told)
            self._queue(answer, answer.ByteSize() + len(told) * EVENT_COST_BYTES)

    def _shared(self, watch: Watch, batch: WatchBatch, compacted: int) -> list[Batch]:
        """The same for all watches that ask alike: the store gives those on one range one batch, in one step."""
        node, prev_kv = self._node, bool(watch.asked.prev_kv)
        alike = prev_kv, watch.filtered
        if node.last_batch is not batch:
            node.last_batch = batch
            node.last_shared.clear()
            asyncio.get_running_loop().call_soon(node.forget_batch)
        found = node.last_shared.get(alike)
        if found is None:
            events = [event for event in batch.events if event.type not in watch.filtered]
            found = node.last_shared[alike] = [
                Batch(node.kept, part, revision, cost_bytes, prev_kv=prev_kv, compacted=compacted)
                for part, revision, cost_bytes in in_answers(events, batch.revision)
            ]
        return found

    def _queue(self, answer: Any, size_bytes: int) -> None:
        size_bytes += ANSWER_COST_BYTES
        self.waiting_bytes += size_bytes
        self._node.watch_bytes += size_bytes
        self._waiting.append((answer, size_bytes))
        self._wake.set()

    def _say(self, watch_id: int, revision: int | None = None, **fields: Any) -> None:
        node = self._node
        header = node.header_now() if revision is None else node.header(revision)
        answer = pb.WatchResponse(header=header, watch_id=watch_id, **fields)
        self._queue(answer, answer.ByteSize())

    def progress(self) -> None:
        """Sends progress to watches that requested it and got nothing since the last call."""
        for watch in self._watches.values():
            if watch.asked.progress_notify:
                if watch.idle and watch.id not in self._progressing and self._in_step(watch):
                    self._progressing.add(watch.id)
                    self._say(watch.id, self._node.member.replica.hub.revision)
                watch.idle = True

    # -- answers -------------------------------------------------------------------------------------------------------

    async def next(self) -> Any:
        """A message, or one in pieces. Raises: MinikubeError, Refused once the stream was ended."""
        if self._cut:
            return self._cut.popleft()
        while not self._waiting:
            if self._off:
                self._rejoin()
                continue
            if self._ended is not None:
                raise self._ended
            self._wake.clear()
            await self._wake.wait()
        answer, size_bytes = self._waiting.popleft()
        self.waiting_bytes -= size_bytes
        self._node.watch_bytes -= size_bytes
        self._progressing.discard(answer.watch_id)
        self._read.set()
        if type(answer) is Queued:
            self._cut.extend(await answer.batch.answers(answer.head, answer.fragment_bytes))
            return self._cut.popleft()
        return answer

    async def next_message(self) -> Any:
        return await message_of("WatchResponse", await self.next())

    async def read_on(self) -> None:
        """Returns when an answer was read."""
        self._read.clear()
        await self._read.wait()

    def _rejoin(self) -> None:
        off, self._off = self._off, {}
        for watch in off:
            try:
                self._join(watch)
            except MinikubeError as error:
                self.end(error)

    @property
    def behind(self) -> int:
        """Watches suspended until their stream is read."""
        return len(self._off)

    @property
    def waiting(self) -> int:
        """Answers not read yet."""
        return len(self._waiting)

    def end(self, error: MinikubeError | Refused) -> None:
        self.close()
        self._ended = self._ended or error
        self._wake.set()

    def close(self) -> None:
        for watch in self._watches.values():
            self._leave(watch)
        self._watches.clear()


@contextlib.contextmanager
def opened(node: Node) -> Iterator[WatchStream]:
    stream = WatchStream(node)
    try:
        yield stream
    finally:
        stream.close()
        node.watch_bytes -= stream.waiting_bytes


def event_of(event: Event, *, prev_kv: bool, compacted: int) -> Any:
    """`prev_kv` as in etcd: the value at the previous revision, which may be compacted."""
    kind, kv, previous = event
    told = pb.Event(type=TYPES[kind], kv=kv_of(kv))
    if prev_kv and previous is not None and kv.mod_revision - 1 >= compacted:
        told.prev_kv.CopyFrom(kv_of(previous))
    return told


def in_answers(events: Sequence[Event], revision: int) -> Iterator[tuple[Sequence[Event], int, int]]:
    """Splits between revisions, never within one. All but the last have the revision of their own last event. With
    what each costs while it waits, in bytes."""
    start = size_bytes = 0
    for position, event in enumerate(events):
        if size_bytes >= ANSWER_BYTES and event.kv.mod_revision != events[position - 1].kv.mod_revision:
            waiting_bytes = size_bytes + (position - start) * EVENT_COST_BYTES
            yield events[start:position], events[position - 1].kv.mod_revision, waiting_bytes
            start, size_bytes = position, 0
        size_bytes += event_bytes(event)
    if events:
        yield events[start:], revision, size_bytes + (len(events) - start) * EVENT_COST_BYTES
