"""Keeps a `Mirror` in sync with an etcd: reads its keys, follows one watch, and starts again if that is lost.

One stream carries two watches: of all our keys, and of the key by which Kubernetes' API servers coordinate compaction.
If a caller has seen a later revision than the watch, it requests progress from etcd: other keys may have changed, which
this watch does not see (upstream does the same, every 100 ms)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final

import grpc.aio

from minikube_py.env import Clock, ended
from minikube_py.errors import Compacted, InvalidRequest, MinikubeError, Unavailable
from minikube_py.etcd.client import EtcdClient, quietly
from minikube_py.etcd.errors import COMPACTED
from minikube_py.etcd.messages import pb
from minikube_py.etcd.mirror import Change, Mirror
from minikube_py.etcd.pages import PAGE_BYTES, Pages
from minikube_py.etcd.steps import in_steps
from minikube_py.etcd.wording import Wording
from minikube_py.fields.digits import BEYOND, whole_number
from minikube_py.fields.spec import FieldSet
from minikube_py.mvcc.types import KeyValue
from minikube_py.mvcc.watch import WatchHub
from minikube_py.store.collector import Collector

log = logging.getLogger(__name__)
COMPACT_KEY: Final = b"compact_rev_key"
"""Kubernetes' own key, outside any prefix: its value is the last compacted revision."""
REPLAYED: Final = 4096
"""Revisions before the newest that are loaded at a start, for watches that resume."""
LOADS_MAX: Final = 10
RETRY_S: Final = 0.2
"""Before a next try; twice as long after each bug in a row, up to RETRY_MOST_S."""
RETRY_MOST_S: Final = 10.0
ASK_FIRST_S: Final = 0.01
ASK_MOST_S: Final = 0.1
UNANSWERED_MAX: Final = 30
UNANSWERED_MOST: Final = 960
"""Progress requests before it switches to another member, twice as many each time until all is followed: a message may
be on its way for that long (a fragment of 2 MB at 22 KB/s), and gRPC does not tell that a part of it came."""
BEHIND_MAX: Final = 256
SINGLE_MAX: Final = 16
"""A synced watch gets a message per revision, and a busy loop reads one in two turns. Once this many arrive while it is
this many revisions behind, it is restarted: a watch that starts behind gets a thousand per message."""
GAP_MAX: Final = 1_000_000
"""Revisions without a change of ours that are recorded one by one."""
TRIMMED: Final = 1000
BUILD_ROWS: Final = 256
UPKEEP_S: Final = 0.5
OBJECTS, COMPACTIONS = 0, 1
"""The ids of the watches, which etcd numbers per stream."""
FOREIGN: Final = (b"k8s\0", b"k8s:enc:", b"\xd9\xd9\xf7", b'{"kind":', b'{"apiVersion":')
"""How kube-apiserver's objects begin: protobuf, encrypted, CBOR, JSON. Ours have no kind and apiVersion."""
LOOKED_AT: Final = 500


class Behind(Exception):
    """The watch has to be restarted at its position."""


class Lost(Exception):
    """The watch cannot continue from its position."""


class Feed:
    """`mirror` and its `hub` are replaced by each load; watches on the former then end with Compacted."""

    def __init__(self, client: EtcdClient, wording: Wording, clock: Clock) -> None:
        self._client, self._wording, self._clock = client, wording, clock
        self.pages = Pages(client, clock)
        self.mirror: Mirror
        self.hub: WatchHub
        self.field_sets: dict[str, FieldSet] = {}
        self.cluster_id = 0
        self.loads = self.streams = self.asked = 0
        self.following = self._catching_up = False
        """Whether the watch is running."""
        self._wanted = 0
        self._count = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._behind = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stream: Any = None
        self._place = ""
        """The member that was asked for the stream; requests may use another by now."""
        self._expected: Change | None = None
        """The first change of a watch that starts again."""
        self._fragments: list[Any] = []
        """Events of an answer that is not complete yet."""
        self.questions_max = UNANSWERED_MAX
        self._unanswered = 0
        self._said: set[tuple[str, str]] = set()
        self._doubted = False
        """What was followed so far is not reliable: everything is read again."""
        self._troubles: dict[str, str] = {}
        self._former: list[Generator[None, None, None]] = []
        self._collector = Collector()

    async def start(self) -> None:
        """Raises: Unavailable, InvalidRequest if the keys belong to another program."""
        await self._check_first()
        self._collector.start()
        await self._load(REPLAYED)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._forever(step)) for step in (self._watch, self._ask, self._keep_house)]

    async def stop(self, error: MinikubeError) -> None:
        for task in self._tasks:
            task.cancel()
        await ended(*self._tasks)
        self._collector.stop()
        if self._tasks:
            self.hub.close(error)

    # -- loading -------------------------------------------------------------------------------------------------------

    async def _load(self, behind: int) -> None:
        """Loads all our keys at one revision, `behind` the newest if that is retained."""
        newest, compacted = await self._ends()
        revision = max(newest - behind, compacted, 1)
        for _ in range(LOADS_MAX):
            try:
                kvs = await self._read(revision)
                break
            except Compacted:
                revision, _ = await self._ends()
        else:
            raise Unavailable(f"etcd was compacted {LOADS_MAX} times while its keys were read")
        former = (self.mirror, self.hub) if self.loads else None
        mirror = await in_steps(Mirror.loading(kvs, revision, list(self.field_sets.values())), self._collector.keep)
        for each in self.field_sets.values():
            if each.name not in mirror.state.tables.declared:
                # It was declared meanwhile.
                mirror.declare(each)
        self.mirror = mirror
        self.hub = WatchHub(self.mirror.state)
        self.loads += 1
        self._collector.keep(most=True)
        if former is not None:
            self._former.append(former[0].disposing())
            former[1].close(Compacted(former[1].revision, revision))
        self._wake()

    async def _check_first(self) -> None:
        """As `_check_ours`, of the first keys as they are now: others are read from an earlier revision on."""
        request = pb.RangeRequest(key=self._wording.keys.low, range_end=self._wording.keys.high)
        looked_at = size_bytes = 0
        while True:
            try:
                async for answer in self.pages.read(request):
                    self._check_ours(self._wording.kvs(answer.kvs))
                    looked_at, size_bytes = looked_at + len(answer.kvs), size_bytes + answer.ByteSize()
                    if not answer.more or looked_at >= LOOKED_AT or size_bytes >= PAGE_BYTES:
                        return
                    request.key = answer.kvs[-1].key + b"\0"
            except InvalidRequest as error:
                if str(error) != COMPACTED[1]:
                    raise  # else the rest is looked at as it is by then

    def _check_ours(self, kvs: Sequence[KeyValue]) -> None:
        """Raises: InvalidRequest if kube-apiserver keeps its objects there."""
        for kv in kvs:
            if kv.value.startswith(FOREIGN):
                key = self._wording.keys.out(kv.key).decode("utf-8", "replace")
                raise InvalidRequest(
                    f"{key} in etcd is an object in the format of another Kubernetes, which is not served from here; "
                    "use an --etcd-prefix of its own"
                )

    async def _ends(self) -> tuple[int, int]:
        """The newest revision, and the last compacted one known to the API servers."""
        answer = await self._client.read("KV/Range", pb.RangeRequest(key=COMPACT_KEY))
        newest = answer.header.revision
        return newest, _compacted(answer.kvs[0].value, newest) if answer.kvs else 0

    async def _read(self, revision: int) -> list[KeyValue]:
        """Raises: Compacted; InvalidRequest, at the start, if the keys belong to another program."""
        keys, kvs = self._wording.keys, list[KeyValue]()
        request = pb.RangeRequest(key=keys.low, range_end=keys.high, revision=revision)
        try:
            async for answer in self.pages.read(request):
                page = self._wording.kvs(answer.kvs)
                if not self.loads:
                    self._check_ours(page)
                kvs += page
                self._collector.keep()
        except InvalidRequest as error:
            if str(error) != COMPACTED[1]:
                raise
            raise Compacted(revision, revision + 1) from None
        return kvs

    # -- following -----------------------------------------------------------------------------------------------------

    async def _forever(self, step: Callable[[], Awaitable[None]]) -> None:
        """Whatever is stored in etcd, the task does not end."""
        name, pause_s = step.__name__.strip("_"), RETRY_S
        while True:
            try:
                await step()
                self._troubles.pop(name, None)
            except MinikubeError as error:
                self._troubles[name] = f"etcd cannot be read: {error}"
                log.warning("%s", self._troubles[name])
                await self._clock.sleep(RETRY_S)
            except Exception as error:
                self._troubles[name] = f"a bug ends what follows etcd ({name}): {type(error).__name__}"
                log.exception("%s; it is read again in %g s", self._troubles[name], pause_s)
                self._doubted |= step == self._watch
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)

    @property
    def trouble(self) -> str:
        """Why the mirror does not follow etcd although that answers; "" if it does."""
        return "; ".join(self._troubles.values())

    async def _watch(self) -> None:
        """Follows one watch until it ends. Raises: MinikubeError if everything is to be read and cannot be."""
        if self._doubted:
            await self._load(0)
            self._doubted = False
        self._place = self._client.place
        try:
            await self._follow()
        except Behind:
            return
        except Lost as why:
            log.warning("etcd is read again: %s", why)
            self._doubted = True
            return
        except (grpc.aio.AioRpcError, MinikubeError) as error:
            self._say(self._place, str(error.details() if isinstance(error, grpc.aio.AioRpcError) else error))
        except (TimeoutError, asyncio.InvalidStateError):
            # grpc raises the second if a stream ended before it was written to.
            self._leave()
        self._client.pass_over(self._place)
        await self._clock.sleep(RETRY_S)

    def _say(self, place: str, why: str) -> None:
        """Logs each reason once, until the watch is running again."""
        if (place, why) not in self._said:
            self._said.add((place, why))
            log.warning("the watch on etcd at %s ended: %s", place, why)

    async def _follow(self) -> None:
        """Begins with the last known change, by which it recognises that it continues the same history. Raises: Lost,
        Behind; AioRpcError, Unavailable, InvalidStateError if the stream ends; TimeoutError."""
        keys, start = self._wording.keys, self.mirror.revision + 1
        self._expected = last = self.mirror.last
        watches = (keys.low, keys.high, last.revision if last else start), (COMPACT_KEY, b"", start)
        stream, single, self._fragments = self._client.stream("Watch/Watch"), 0, []
        try:
            async with asyncio.timeout(self.questions_max * ASK_MOST_S):
                for key, end, at in watches:
                    asked = pb.WatchCreateRequest(
                        key=key, range_end=end, start_revision=at, progress_notify=not end, fragment=True
                    )
                    await stream.write(pb.WatchRequest(create_request=asked))
                answer = await stream.read()
            while answer is not grpc.aio.EOF:
                if answer.created and answer.watch_id == OBJECTS:
                    await self._check_same(answer.header)
                    self.streams += 1
                    self._stream, self.following = stream, True
                    self._said.clear()
                    self._troubles.pop("watch", None)
                    self._behind.set()
                self._unanswered = 0
                await self._take(answer)
                if answer.events and answer.events[0].kv.mod_revision == self.mirror.revision:
                    single += 1
                    if single >= SINGLE_MAX and self._wanted - self.mirror.revision > BEHIND_MAX:
                        raise Behind
                answer = await stream.read()
            raise Unavailable("its stream was closed")
        finally:
            self._stream, self.following = None, False
            stream.cancel()

    async def _check_same(self, header: Any) -> None:
        """A member may be behind what was seen; etcd as a whole may not. Raises: Lost."""
        if header.cluster_id != self.cluster_id or header.revision < self.mirror.revision:
            await self._ends()

    async def _take(self, answer: Any) -> None:
        """Raises: Lost; Unavailable if etcd ends a watch for another reason."""
        if answer.canceled:
            if answer.compact_revision:
                raise Lost(f"it was compacted up to {answer.compact_revision}, beyond the last change seen")
            raise Unavailable(answer.cancel_reason or "a watch was cancelled")
        if answer.watch_id == COMPACTIONS:
            for event in answer.events:
                self.mirror.compact(_compacted(event.kv.value, answer.header.revision))
            return
        if answer.fragment or self._fragments:
            self._fragments += answer.events
            if answer.fragment:
                return
            del answer.events[:]
            answer.events.extend(self._fragments)
            self._fragments = []
        told = answer.events[0].kv.mod_revision if answer.events else answer.header.revision
        if told - self.mirror.revision > GAP_MAX:
            raise Lost(f"others have made {told - self.mirror.revision} revisions meanwhile")
        if answer.events:
            await self._apply(answer.events)
        elif not answer.created:
            self._continue([])
            if await in_steps(self.mirror.advancing(answer.header.revision)):
                self._notify(True)

    async def _apply(self, events: Any) -> None:
        """Applies a complete answer: etcd never splits a revision. Raises: Lost."""
        back, changes = self._wording.keys.back, []
        for event in events:
            kv = event.kv
            changes.append(Change(back(kv.key), kv.mod_revision, None if event.type else kv.value, kv.lease))
        await in_steps(self.mirror.applying(self._continue([change for change in changes if change.key])))
        self._notify(alone=await in_steps(self.mirror.advancing(changes[-1].revision)))

    def _continue(self, changes: list[Change]) -> list[Change]:
        """Those after the mirror's. An etcd that was restored may have its identity, and have passed its revision.
        Raises: Lost if known revisions have other changes than before."""
        known = [change for change in changes if change.revision <= self.mirror.revision]
        last, self._expected = self._expected, None
        if known[-1:] != ([last] if last else []) or (last and known[0].revision != last.revision):
            raise Lost("its history is not the one seen before, as after a restore")
        return changes[len(known) :]

    def _notify(self, alone: bool) -> None:
        self.hub.notify()
        if alone:
            self.hub.progress()
        self.catch_up_soon()
        self._wake()

    def answered(self, header: Any, seen: int) -> None:
        """Called for each answer. Raises: Unavailable if etcd was replaced, or went back."""
        if not self.cluster_id:
            self.cluster_id = header.cluster_id
        if header.cluster_id == self.cluster_id and header.revision >= seen:
            self.want(header.revision)
            return
        what = "is at an earlier revision" if header.cluster_id == self.cluster_id else "has another identity"
        self.cluster_id = header.cluster_id
        self._client.forget()
        self._wanted = 0
        if self._tasks:
            self._doubted = True
            self._restart()
        raise Unavailable(f"etcd {what}, as after a restore: it is read again")

    def _restart(self) -> None:
        self._tasks[0].cancel()
        self._tasks[0] = asyncio.get_running_loop().create_task(self._forever(self._watch))

    # -- progress ------------------------------------------------------------------------------------------------------

    def want(self, revision: int) -> None:
        if revision > self._wanted:
            self._wanted = revision
            self._behind.set()

    async def reached(self, revision: int, timeout_s: float) -> None:
        """Raises: Unavailable."""
        self.want(revision)
        try:
            async with asyncio.timeout(timeout_s):
                while self.mirror.revision < revision:
                    told = asyncio.get_running_loop().create_future()
                    heapq.heappush(self._waiting, (revision, next(self._count), told))
                    await told
        except TimeoutError:
            why = f"the watch on etcd is at revision {self.mirror.revision}, and {revision} was seen"
            raise Unavailable(why) from None

    def _wake(self) -> None:
        """Wakes exactly those whose revision has been reached."""
        while self._waiting and self._waiting[0][0] <= self.mirror.revision:
            _, _, told = heapq.heappop(self._waiting)
            if not told.done():
                told.set_result(None)

    async def _ask(self) -> None:
        """Requests progress from etcd while a caller has seen a later revision than the watch, or it has not begun."""
        await self._behind.wait()
        self._behind.clear()
        pause_s = ASK_FIRST_S
        while self._asks():
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, ASK_MOST_S)
            if self._asks() and self._stream is not None:
                self.asked += 1
                self._unanswered += 1
                if self._unanswered > self.questions_max:
                    self._leave()
                    self._restart()
                    break
                await quietly(self._stream, pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
        else:
            self.questions_max = UNANSWERED_MAX

    def _leave(self) -> None:
        """For another member, of which silence is accepted for longer."""
        self._unanswered = 0
        self.questions_max = min(2 * self.questions_max, UNANSWERED_MOST)
        self._say(self._place, "it does not answer")
        self._client.pass_over(self._place)

    def _asks(self) -> bool:
        return self.loads > 0 and (self.mirror.revision < self._wanted or self._expected is not None)

    # -- watches and upkeep --------------------------------------------------------------------------------------------

    def catch_up_soon(self) -> None:
        if self.hub.behind and not self._catching_up:
            self._catching_up = True
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        if self.hub.catch_up():
            self.catch_up_soon()

    async def _keep_house(self) -> None:
        """Builds declared indexes a few rows at a time, and frees compacted and replaced state."""
        self._collector.step()
        while self._former:
            await in_steps(self._former.pop())
        state = self.mirror.state
        state.trim(TRIMMED)
        if not state.tables.unbuilt:
            await self._clock.sleep(UPKEEP_S)
            return
        state.build_indexes(BUILD_ROWS)
        self.hub.refresh()
        self.catch_up_soon()
        await self._clock.sleep(0)


def _compacted(value: bytes, newest: int) -> int:
    """0 if no API server can have compacted that: the key may be copied from another etcd, as `etcdctl make-mirror`
    does."""
    revision = whole_number(value.decode()) if value.isdigit() else BEYOND
    if revision <= newest:
        return revision
    if value:
        log.warning("%s is %.40r at revision %d, which is ignored", COMPACT_KEY.decode(), value, newest)
    return 0
