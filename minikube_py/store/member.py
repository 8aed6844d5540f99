"""A store member: the loop around Raft, the log on disk and the state machine.

All that is proposed within one turn of the event loop becomes one write and one sync; at most one sync is in flight,
and what arrives meanwhile is the next batch. Only what is durable is applied; then watchers are told, then writers.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minikube_py.env import Clock, Disk, Rng
from minikube_py.errors import MinikubeError, OutcomeUnknown, RequestError, RequestTooLarge, Unavailable
from minikube_py.fields.where import Where
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Command,
    Compact,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    RangeRequest,
    RangeResult,
    Result,
)
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, HardState, LogIndex, Message, MessageType, Term
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import ProposalDropped
from minikube_py.store.collector import Collector
from minikube_py.store.compaction import CompactionPolicy
from minikube_py.store.embedded import EmbeddedStorage
from minikube_py.store.fsync import FsyncMode, FsyncRunner, Histogram
from minikube_py.store.lessor import Lessor
from minikube_py.store.log_files import LogFiles
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.snapshotter import Snapshotter
from minikube_py.store.storage import WatchHandle, WatchSink
from minikube_py.wal.segment import SEGMENT_BYTES

Reply = Callable[[Result | None, MinikubeError | None], None]
"""Told how a proposal ended: its result, or why there is none. Called once, on the loop; must not raise."""
Fatal = Callable[[str], None]

REQUEST_BYTES_MAX = 3 << 19
"""1.5 MiB, etcd's default (`--max-request-bytes`)."""
TICK_S = 0.1
TRIM_PER_TICK = 1000
GATHER_MIN = 16
GATHER_S = 0.001
SLICE_PAUSE_S = 0.005
LEASE_COMMANDS = frozenset((LeaseGrant, LeaseRevoke))


def exit_now(message: str) -> None:
    """Ends the process without any of its leave-taking: what is not on disk must not be acknowledged by accident."""
    print(f"minikube-py store: {message}", file=sys.stderr, flush=True)
    os._exit(70)


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """`snapshot_log_bytes`: log written since the last snapshot before the next is taken (or as much as that snapshot
    was large, whichever is more). History is compacted when older than `retain_s` or, oldest first, when its writes
    sum up to more than `retain_bytes`; 0 keeps without that bound."""

    request_bytes_max: int = REQUEST_BYTES_MAX
    segment_bytes: int = SEGMENT_BYTES
    snapshot_log_bytes: int = 32 << 20
    retain_s: float = 300.0
    retain_bytes: int = 64 << 20
    fsync: FsyncMode = "auto"
    own_gc: bool = True


class StoreMember:
    """One member. `start` recovers and begins to serve; `storage` is its Storage within this process."""

    def __init__(
        self, disk: Disk, clock: Clock, rng: Rng, config: MemberConfig | None = None, fatal: Fatal = exit_now
    ) -> None:
        config = config or MemberConfig()
        self.config = config
        self.clock = clock
        self.rng = rng
        self._fatal = fatal
        self._failed = False
        self._stopping = False
        self._files = LogFiles(disk, rng, config.segment_bytes)
        self._fsync = FsyncRunner(clock, config.fsync)
        self._waiting: deque[tuple[LogIndex, Command, Reply]] = deque()
        self._turn_due = False
        self._in_turn = False
        self._syncing = False
        self._persisting = (Term(0), LogIndex(0))
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop
        self.state: StateMachine
        self.hub: WatchHub
        self.raft: Raft
        self.cluster_id = 0
        self.lessor = Lessor(clock)
        self.compaction = CompactionPolicy(config.retain_s, config.retain_bytes)
        self._snapshotter = Snapshotter(self._files, self._fsync.wait, config.snapshot_log_bytes)
        self._batches = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
        self._applied = 0
        self._collector = Collector()
        self._gathered = 0
        self._gather_until_s = 0.0
        self._progressed = 0
        self._catching_up = False
        self._queries = QueryMetrics()
        self.storage = EmbeddedStorage(self)

    async def start(self) -> None:
        """Recovers, elects itself, applies what the log holds. Raises: Corruption; OSError where the disk fails."""
        self._loop = asyncio.get_running_loop()
        loaded = self._files.load()
        head = self._files.begin(loaded)
        self.cluster_id = head.cluster_id
        snapshot, log = loaded.snapshot, loaded.log
        self.state = StateMachine.restore(loaded.chunks) if snapshot else StateMachine()
        self.hub = WatchHub(self.state)
        own = NodeId(head.member_id)
        offset, offset_term = (LogIndex(snapshot.index), Term(snapshot.term)) if snapshot else (LogIndex(0), Term(0))
        entries = [Entry(Term(entry.term), LogIndex(entry.index), entry.data) for entry in log.entries]
        hard_state = HardState(Term(log.state.term), NodeId(log.state.vote), LogIndex(log.state.commit))
        raft_log = RaftLog(offset, offset_term, entries)
        self.raft = Raft(RaftConfig(own), raft_log, hard_state, Configuration(frozenset((own,))), self.rng)
        self._snapshotter.begin(head, log.size_bytes)
        self.raft.step(Message(MessageType.HUP, own, own))
        await self._settle()
        if self._failed:
            raise Unavailable("the store could not write to its disk")
        self.lessor.restart(self.state.leases())
        if self.config.own_gc:
            self._collector.start()
        self._tasks = [self._loop.create_task(work) for work in (self._tick_forever(), self._keep_house())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def stop(self) -> None:
        """Finishes what was proposed, and ends. Later proposals are refused."""
        if self._stopping:
            return
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settle()
        self.hub.close(Unavailable("the store is stopping"))
        self._collector.stop()
        self._fsync.close()
        self._files.close()

    def propose(self, command: Command, data: bytes, reply: Reply) -> None:
        """Sends `command`, packed as `data`, into the log; `reply` is called once it is applied, or will not be.

        Raises: RequestTooLarge, Unavailable: nothing was done, and `reply` will not be called."""
        if len(data) > self.config.request_bytes_max:
            raise RequestTooLarge(len(data), self.config.request_bytes_max)
        self._check_running()
        try:
            index = self.raft.propose(data)
        except ProposalDropped as dropped:
            raise Unavailable(str(dropped)) from None
        self._waiting.append((index, command, reply))
        if not self._turn_due:
            self._turn_due = True
            self._gathered = 0
            self._gather_until_s = self.clock.monotonic_s() + GATHER_S
            self._loop.call_soon(self._gather)

    def read(self, request: RangeRequest) -> RangeResult:
        """Linearizable: on one voter, applied is all that was ever acknowledged. Raises: RequestError."""
        result = self.state.range(request)
        if result.stats is not None:
            self._queries.observe(result)
        return result

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        """See `Storage.watch`. Raises: Unavailable, InvalidRequest."""
        self._check_running()
        handle = self.hub.add(key, range_end, start_revision, sink, where)
        self._catch_up_soon()
        return handle

    def new_lease_id(self) -> int:
        """A positive int64 that no lease has."""
        while True:
            lease_id = self.rng.getrandbits(62) + 1
            if self.lessor.remaining_s(lease_id) is None:
                return lease_id

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name."""
        prefix = "minikube_py_store_"
        return {
            **self._fsync.histogram.samples(prefix + "wal_fsync_duration_seconds"),
            **self._batches.samples(prefix + "batch_entries"),
            prefix + "proposals_applied_total": self._applied,
            prefix + "proposals_pending": len(self._waiting),
            prefix + "wal_written_bytes_total": self._files.written_bytes,
            prefix + "leases": len(self.lessor),
            prefix + "raft_term": self.raft.term,
            prefix + "raft_applied_index": self.raft.log.applied,
            prefix + "revision": self.state.revision,
            prefix + "compact_revision": self.state.compact_revision,
            prefix + "size_bytes": self.state.size_bytes,
            prefix + "watchers": len(self.hub),
            **self._snapshotter.metrics(prefix),
            **self._queries.samples(prefix),
        }

    def _check_running(self) -> None:
        if self._failed:
            raise Unavailable("the store has failed")
        if self._stopping:
            raise Unavailable("the store is stopping")

    async def _settle(self) -> None:
        """Returns when all that was proposed is applied, or the member has failed."""
        self._turn()
        while (self._turn_due or self._syncing) and not self._failed:
            self._idle.clear()
            await self._idle.wait()

    def _gather(self) -> None:
        """Waits another turn of the loop while turns are short and proposals keep coming in: one sync for them all.
        A few do not wait, and nobody waits behind a long turn, which costs more than a sync."""
        waiting = len(self._waiting)
        growing = waiting >= max(GATHER_MIN, self._gathered * 2)
        if growing and self.clock.monotonic_s() < self._gather_until_s:
            self._gathered = waiting
            self._loop.call_soon(self._gather)
        else:
            self._turn()

    def _turn(self) -> None:
        """Runs once at the end of a turn of the loop in which something was proposed, and when a sync has ended."""
        self._turn_due = False
        self._in_turn = True
        try:
            while not self._syncing and self._work():
                pass
        except Exception as error:
            # A bug, here or in a watcher's sink. Writers that wait for ever would be worse than an end.
            self._fail(f"cannot go on: {describe(error)}")
        self._in_turn = False
        if not self._syncing:
            self._idle.set()

    def _work(self) -> bool:
        """One `Ready`: writes what is new and begins its sync, applies what is committed. False: nothing was there."""
        if self._failed:
            return False
        ready = self.raft.ready()
        if not (ready.entries or ready.hard_state or ready.committed):
            return False
        to_sync = bool(ready.entries or ready.hard_state)
        try:
            # Written before anyone is told, even if not synced: a record after it tells a broken one from a torn one.
            self._files.write(ready.entries, ready.hard_state if to_sync else self.raft.hard_state())
        except OSError as error:
            self._fail(f"cannot write the log: {error}")
            return False
        if to_sync:
            self._batches.observe(len(ready.entries))
            self._syncing = True
            self._persisting = (self.raft.term, ready.entries[-1].index if ready.entries else LogIndex(0))
            self._fsync.run(self._files.begin_sync(), self._synced)
        if ready.committed and not self._failed:
            self._apply(ready.committed)
        return True

    def _synced(self, error: OSError | None) -> None:
        self._syncing = False
        if error is not None:
            self._fail(f"cannot sync the log: {error}")
            return
        self.raft.persisted(*self._persisting)
        if not self._in_turn:
            self._turn()

    def _apply(self, entries: Sequence[Entry]) -> None:
        waiting = self._waiting
        apply = self.state.apply
        outcomes: list[tuple[Reply, Result | None, MinikubeError | None]] = []
        for entry in entries:
            reply: Reply | None = None
            if waiting and waiting[0][0] == entry.index:
                _, command, reply = waiting.popleft()
            elif entry.data:
                command = unpack(entry.data)
            else:
                continue
            result: Result | None = None
            refusal: MinikubeError | None = None
            try:
                result = apply(command)
            except RequestError as error:
                refusal = error
            except Exception as error:
                self._fail(f"cannot apply entry {entry.index}: {describe(error)}")
                return
            if type(command) in LEASE_COMMANDS and refusal is None:
                self._follow_lease(command, result)
            if reply is not None:
                outcomes.append((reply, result, refusal))
        self._applied += len(entries)
        self.raft.applied(entries[-1].index)
        self.raft.compact(entries[-1].index)
        self.hub.notify()
        for reply, result, refusal in outcomes:
            reply(result, refusal)

    def _catch_up_soon(self) -> None:
        if self.hub.behind and not self._catching_up:
            self._catching_up = True
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Watchers that start in the past read the log a budget at a time, a turn of the loop each."""
        self._catching_up = False
        try:
            if not self._failed and self.hub.catch_up():
                self._catch_up_soon()
        except Exception as error:
            # As in a turn: a watcher that missed something must not go on as if it had not.
            self._fail(f"cannot go on: {describe(error)}")

    def _follow_lease(self, command: Command, result: Result | None) -> None:
        if isinstance(result, LeaseResult):
            if type(command) is LeaseGrant:
                self.lessor.granted(result.id, result.ttl_s)
            else:
                self.lessor.revoked(result.id)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"cannot go on: {describe(error)}")

    def _fail(self, message: str) -> None:
        """Nothing is acknowledged from here on. What waits may or may not be on disk."""
        if self._failed:
            return
        self._failed = True
        self._fatal(message)
        self._idle.set()
        waiting, self._waiting = self._waiting, deque()
        for _, _, reply in waiting:
            reply(None, OutcomeUnknown(f"the store failed: {message}"))
        self.hub.close(Unavailable(f"the store failed: {message}"))

    async def _tick_forever(self) -> None:
        while True:
            await self.clock.sleep(TICK_S)
            self.raft.tick()
            self._collector.step()
            self.state.trim(TRIM_PER_TICK)
            if self.state.revision != self._progressed:
                self._progressed = self.state.revision
                self.hub.progress()
            for lease_id in self.lessor.expired():
                self._propose_own(LeaseRevoke(lease_id))
            revision = self.compaction.due(self.clock.monotonic_s(), self.state.revision, self._files.written_bytes)
            if revision > self.state.compact_revision:
                self._propose_own(Compact(revision))

    def _propose_own(self, command: Command) -> None:
        """Proposes what nobody waits for; what is refused now comes due again."""
        try:
            self.propose(command, pack(command), _ignore)
        except Unavailable:
            pass

    async def _keep_house(self) -> None:
        """Snapshots, the next segment, watchers that catch up: a slice at a time, between the loop's other work."""
        try:
            while True:
                await self.clock.sleep(TICK_S)
                for sync in self._files.spare_step() if self._files.wants_spare else ():
                    await self._fsync.wait(sync)
                    await self.clock.sleep(SLICE_PAUSE_S)
                if self._snapshotter.due():
                    await self._snapshotter.take(self.state, self.raft.log, self.clock)
        except OSError as error:
            self._fail(f"cannot write a snapshot or segment: {error}")


def describe(error: BaseException) -> str:
    """What went wrong and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _ignore(result: Result | None, error: MinikubeError | None) -> None:
    pass
