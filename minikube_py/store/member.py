"""A store member: the asyncio shell around its `Replica`. Time, the loop, syncs and links are here, decisions there.

All that is proposed within one turn of the event loop becomes one write, one sync and one message per peer; at most one
sync is in flight, and what arrives meanwhile is the next batch. With other members the sync runs in a thread, so that
heartbeats never wait for a slow one; alone it runs where it is fastest (docs/adr/0002-fsync-inline-or-thread.md).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minikube_py.env import Clock, Disk, Rng, ended
from minikube_py.errors import MinikubeError, NotLeader, Unavailable
from minikube_py.fields.where import Where
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, LeaseResult, RangeRequest, RangeResult, Result
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, Term
from minikube_py.raft.node import Raft
from minikube_py.store.caution import check_timely, heir
from minikube_py.store.embedded import EmbeddedStorage
from minikube_py.store.explaining import measured
from minikube_py.store.fsync import FsyncRunner, Histogram, SyncRunner
from minikube_py.store.lessor import Lessor
from minikube_py.store.links import PeerLinks
from minikube_py.store.log_files import LogFiles
from minikube_py.store.member_config import MemberConfig as MemberConfig
from minikube_py.store.member_status import PREFIX, metrics_of, status_of
from minikube_py.store.membership import Member, MemberChange, Membership
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.read_rounds import ReadDone
from minikube_py.store.replica import REQUEST_BYTES_MAX as REQUEST_BYTES_MAX
from minikube_py.store.replica import Bootstrap, Failed, Replica, Reply
from minikube_py.store.room import explained
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource
from minikube_py.store.snapshotter import Snapshotter, Wait, drive
from minikube_py.store.storage import WatchHandle, WatchSink
from minikube_py.store.telling import describe
from minikube_py.store.upkeep import Upkeep

Fatal = Callable[[str], None]

GATHER_MIN = 16
GATHER_S = 0.001
TURN_S = 0.02
"""After so long the loop has its turn before the next entries are applied: heartbeats must not wait for them."""
HAND_OVER_S = 2.0
"""How long a leader that stops waits for another one."""
TRANSFER_S = 2.0
CHANGE_S = 5.0


def exit_now(message: str) -> None:
    """Ends the process without any of its leave-taking: what is not on disk must not be acknowledged by accident."""
    print(f"minikube-py store: {message}", file=sys.stderr, flush=True)
    os._exit(70)


class NoLinks:
    """Alone there is nobody to speak to; what is said before the links are there is lost, as on any network."""

    def send(self, messages: Sequence[Message]) -> None:
        pass

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        pass


class StoreMember:
    """One member. `start` recovers and begins to serve; `storage` is its Storage within this process.

    `fatal` is told why the member cannot go on and, unless `removed` is given, that it was removed; it should end the
    process. After either, everything is refused. `syncs` runs the syncs in place of `config.fsync`."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        config: MemberConfig | None = None,
        fatal: Fatal = exit_now,
        removed: Fatal | None = None,
        syncs: SyncRunner | None = None,
    ) -> None:
        config = config or MemberConfig()
        self.config = config
        self.clock = clock
        self.rng = rng
        self.replica = Replica(LogFiles(disk, rng, config.segment_bytes), rng, config.replica())
        self.replica.lease_listener = self._follow_lease
        self._fatal = fatal
        self._removed = removed or fatal
        self.opened = False
        """The log was read: `raft` and `state` are there, and stay."""
        self._failed = False
        self._stopping = False
        self._deaf = False
        self._fsync: SyncRunner = syncs or FsyncRunner(clock, config.fsync)
        self._links: PeerLinks = NoLinks()
        self._turn_due = False
        self._in_turn = False
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop
        self.say: Fatal = _unheard
        """Told what people should know, and what goes on nevertheless."""
        self.lessor = Lessor(clock)
        self.snapshotter = Snapshotter(self._fsync.wait, clock)
        self._snapshot_lock = asyncio.Lock()
        self._batches = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
        self._gathered = 0
        self._gather_until_s = 0.0
        self._catching_up = False
        self._leading = Term(0)
        self._leader = NodeId(0)
        self._membership = Membership()
        self.leader_listeners: list[Callable[[], None]] = []
        """Told when another leads, as far as this member knows, or when the members are others; must not raise."""
        self._queries = QueryMetrics()
        self.storage = EmbeddedStorage(self)
        self._upkeep = Upkeep(self)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self, bootstrap: Bootstrap | None = None, links: PeerLinks | None = None) -> None:
        """Recovers, or begins as `bootstrap` says in an empty folder. A member alone leads when this returns, and has
        applied what its log holds; with others it takes part in their elections from now on.

        Raises: Corruption; LogLost; OSError where the disk fails; Unavailable where its writes fail."""
        self._loop = asyncio.get_running_loop()
        self.replica.open(bootstrap)
        for warning in self.replica.files.warnings:
            self.say(warning)
        self.opened = True
        self._links = links or self._links
        await self._settle()
        if self._failed:
            raise Unavailable("the store could not write to its disk")
        self._tasks = self._upkeep.start()
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def stop(self) -> None:
        """Finishes what was proposed, hands leadership over if there is someone to take it, and ends. Later proposals
        are refused."""
        if self._stopping:
            return
        self._stopping = True
        if not self.opened:
            return
        if not self._failed and not self.replica.alone:
            await self._hand_over()
        for task in self._tasks:
            task.cancel()
        await ended(*self._tasks)
        # The links end later: what they bring must neither keep this busy for ever nor be written to closed files.
        self._deaf = True
        await self._settle()
        self.replica.stop(Unavailable("the store is stopping"))
        self._upkeep.stop()
        self._fsync.close()
        self.replica.close()

    async def _hand_over(self) -> None:
        """Waits for what was proposed, then for another leader; not for long."""
        until_s = self.clock.monotonic_s() + HAND_OVER_S
        asked = False
        while self.replica.leading and not self._failed and self.clock.monotonic_s() < until_s:
            if not self.replica.waiting and not asked:
                asked = True
                successor = heir(self.raft.status())
                if successor is None:
                    return
                self.replica.transfer(successor)
                self._turn_soon()
            await self.clock.sleep(self.config.tick_s / 2)

    # -- requests -----------------------------------------------------------------------------------------------------

    def propose(self, command: Command, data: bytes, reply: Reply) -> None:
        """Sends `command`, packed as `data`, into the log; `reply` is called once it is applied, or its end cannot be
        known.

        Raises: RequestTooLarge, NotLeader, Unavailable: nothing was done, and `reply` will not be called."""
        if self._failed or self._stopping:
            raise self._not_running()
        self.replica.propose(command, data, reply)
        if not self._turn_due:
            self._turn_due = True
            self._gathered = 0
            self._gather_until_s = self.clock.monotonic_s() + GATHER_S
            self._loop.call_soon(self._gather)

    def propose_change(self, change: MemberChange, reply: Reply) -> None:
        """The same for a change of members. Raises: InvalidRequest where it does not fit; NotLeader, Unavailable."""
        self._check_running()
        self.replica.propose_change(change, reply)
        self._turn_soon()

    def read(self, request: RangeRequest) -> RangeResult:
        """What this member's state says. Linearizable after `when_readable`. Raises: RequestError."""
        if request.where is None and not request.fields:
            return self.replica.state.range(request)
        result = measured(self.replica.state, request, self.clock)
        self._queries.observe(result)
        return result

    @property
    def readable(self) -> bool:
        """Reads are linearizable without asking anyone, as those of a sole voter are."""
        return self.replica.reads_are_local()

    def when_readable(self, done: ReadDone, *, linearizable: bool = True) -> None:
        """Tells `done` when this member's state holds all that was acknowledged to anyone before this call, or why that
        cannot be; at once where it is so already. Its waiting is bounded by the absence of a leader, not by time: who
        has a deadline stops listening."""
        if self._failed or self._stopping:
            done(self._not_running())
            return
        self.replica.read(done, linearizable=linearizable)
        if not self.replica.reads_are_local():
            self._turn_soon()

    def keep_alive(self, lease_id: int, done: Callable[[int, MinikubeError | None], None]) -> None:
        """Renews a lease and tells `done` its TTL in seconds, 0 where it is unknown. Only a leader that is confirmed to
        be one after this call can promise it.

        Raises: NotLeader."""
        if not self.replica.leading:
            raise self.not_leader()
        self.when_readable(partial(self._renew, lease_id, done))

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        """See `Storage.watch`. Raises: Unavailable, InvalidRequest."""
        self._check_running()
        handle = self.hub.add(key, range_end, start_revision, sink, where)
        self._catch_up_soon()
        return handle

    def tables_changed(self) -> None:
        """Indexes or fields may be complete that were not before."""
        self.hub.refresh()
        self._catch_up_soon()

    def new_lease_id(self) -> int:
        """A positive int64 that no lease has. To be drawn by the leader."""
        known = self.state.lessor.by_id
        while (lease_id := self.rng.getrandbits(62) + 1) in known:
            pass
        return lease_id

    async def hash(self, revision: int = 0) -> int:
        """Equal on members that agree at `revision` (0: now); taken while serving.

        Raises: Compacted, FutureRevision."""
        return await drive(self.state.hash_steps(revision), self._fsync.wait, self.clock)

    async def change_members(self, change: MemberChange) -> None:
        """Returns when the change is applied here. One that is under way is waited for, CHANGE_S at most.

        Raises: InvalidRequest where it does not fit; NotLeader, Unavailable; OutcomeUnknown."""
        done: asyncio.Future[None] = self._loop.create_future()
        until_s = self.clock.monotonic_s() + CHANGE_S
        while True:
            self._check_running()
            try:
                if self.replica.leading:
                    check_timely(change, self.membership, self.raft.status())
                self.propose_change(change, partial(_settle_change, done))
                break
            except NotLeader:
                raise
            except Unavailable:
                if self.clock.monotonic_s() >= until_s:
                    raise
            await self.clock.sleep(self.config.tick_s)
        await done

    async def transfer(self, to: NodeId) -> None:
        """Returns when member `to` leads. Raises: Unavailable where it does not come to that within TRANSFER_S."""
        self._check_running()
        until_s = self.clock.monotonic_s() + TRANSFER_S
        self.replica.transfer(to)
        self._turn_soon()
        while self.raft.leader != to:
            if self.clock.monotonic_s() >= until_s:
                raise Unavailable(f"member {to:x} did not take over within {TRANSFER_S:g} s; the leader stays")
            await self.clock.sleep(self.config.tick_s / 2)
            self._check_running()

    # -- what the links bring -----------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message arrived; a SNAPSHOT only after `snapshot_arrived` for its snapshot has returned."""
        if self._failed or self._deaf:
            return
        self.replica.receive(message)
        self._turn_soon()

    def tick(self) -> None:
        """One unit of time."""
        if self._failed:
            return
        self.replica.tick()
        self._catch_up_soon()
        if not self.replica.alone:
            self._turn_soon()

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """A link was lost or came; `snapshot`: the sending of one ended, well or not."""
        if not self._failed and not self._deaf:
            self.replica.report(to, reachable, snapshot)
            self._turn_soon()

    def expelled(self, reason: str) -> None:
        """The others say that this member was removed."""
        self._end(reason, self._removed)

    def snapshot_source(self) -> SnapshotSource | None:
        """The newest snapshot, None where there is none yet. Raises: OSError."""
        return self.replica.snapshot_source()

    async def fresh_snapshot(self) -> SnapshotSource:
        """A snapshot that holds all that was applied here before this call. Raises: Unavailable; OSError."""
        self._check_running()
        await self.take_snapshot(self.raft.log.applied)
        source = self.replica.snapshot_source()
        if source is None:
            raise Unavailable("nothing was applied here yet; there is nothing to take a snapshot of")
        return source

    async def take_snapshot(self, index: int = 0) -> None:
        """Takes one; with `index`, only if the newest does not hold that entry by then. Raises: OSError."""
        async with self._snapshot_lock:
            newest = self.replica.files.snapshot
            if not self._failed and (not index or newest is None or newest.head.index < index):
                await self.snapshotter.take(self.replica)
        self._turn_soon()

    def incoming_snapshot(self, offer: SnapshotOffer) -> IncomingSnapshot:
        """Where the bytes of an offered snapshot go; the one in progress if it is of the same offer.

        Raises: TransferRefused; OSError."""
        return self.replica.incoming_snapshot(offer)

    async def snapshot_arrived(self, incoming: IncomingSnapshot) -> None:
        """Verifies and restores what came, while serving. Raises: TransferRefused; OSError."""
        await drive(incoming.finish(), self._fsync.wait, self.clock)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StateMachine:
        """The present one; a snapshot from the leader replaces it."""
        return self.replica.state

    @property
    def hub(self) -> WatchHub:
        return self.replica.hub

    @property
    def raft(self) -> Raft:
        return self.replica.raft

    @property
    def cluster_id(self) -> int:
        return self.replica.cluster_id

    @property
    def member_id(self) -> NodeId:
        return self.replica.member_id

    @property
    def membership(self) -> Membership:
        return self.replica.membership

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def _syncing(self) -> bool:
        return self.replica.syncing

    def leader(self) -> Member | None:
        """Who leads, as far as this member knows."""
        return self.replica.leader()

    def not_leader(self) -> NotLeader:
        """Where to go instead."""
        leader = self.leader()
        return NotLeader(leader.id, leader.client) if leader is not None else NotLeader(self.raft.leader)

    def status(self) -> dict[str, Any]:
        """For people: JSON-able."""
        return status_of(self)

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name."""
        return {
            **metrics_of(self),
            **self._fsync.histogram.samples(PREFIX + "wal_fsync_duration_seconds"),
            **self._batches.samples(PREFIX + "batch_entries"),
            **self._queries.samples(PREFIX),
        }

    @property
    def wait_for_sync(self) -> Wait:
        """For files other than the log."""
        return self._fsync.wait

    def fail(self, message: str) -> None:
        """This member cannot go on."""
        self._end(message, self._fatal)

    def _check_running(self) -> None:
        if self._failed or self._stopping:
            raise self._not_running()

    def _not_running(self) -> Unavailable:
        return Unavailable("the store is stopping" if not self._failed else "the store has failed")

    # -- turns --------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Returns when all that can be done here is done, or the member has failed."""
        self._turn()
        while (self._turn_due or self.replica.syncing) and not self._failed:
            self._idle.clear()
            await self._idle.wait()

    def _gather(self) -> None:
        """Waits another turn of the loop while turns are short and proposals keep coming in: one sync for them all.
        A few do not wait, and nobody waits behind a long turn, which costs more than a sync."""
        waiting = self.replica.waiting
        growing = waiting >= max(GATHER_MIN, self._gathered * 2)
        if growing and self.clock.monotonic_s() < self._gather_until_s:
            self._gathered = waiting
            self._loop.call_soon(self._gather)
        else:
            self._turn()

    def _turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Runs once at the end of a turn of the loop in which something came in, and when a sync has ended."""
        self._turn_due = False
        self._in_turn = True
        replica = self.replica
        until_s = 0.0 if replica.alone else self.clock.monotonic_s() + TURN_S
        try:
            while not self._failed and (turn := replica.turn()) is not None:
                messages, sync, entries = turn
                if messages:
                    self._links.send(messages)
                if sync is not None:
                    self._batches.observe(entries)
                    self._fsync.run(sync, self._synced)
                if until_s and self.clock.monotonic_s() > until_s:
                    self._turn_soon()
                    break
        except Failed as error:
            self.fail(str(error))
        self._in_turn = False
        if (
            replica.leading != self._leading
            or replica.membership is not self._membership
            or replica.raft.leader != self._leader
        ):
            self._changed()
        if not replica.syncing:
            self._idle.set()

    def _synced(self, error: OSError | None) -> None:
        if self._failed:
            return
        if error is not None:
            self.fail(f"cannot sync the log: {explained(error, self.replica.files.disk)}")
            return
        try:
            after = self.replica.synced()
        except Failed as failed:
            self.fail(str(failed))
            return
        if after:
            self._links.send(after)
        if not self._in_turn:
            self._turn()

    def _changed(self) -> None:
        """Another leads, or the members are others."""
        replica = self.replica
        if replica.leading != self._leading:
            self._leading = replica.leading
            if replica.leading:
                # Whoever led before may have renewed them: each gets its full TTL.
                self.lessor.restart(self.state.leases())
            else:
                self.lessor.clear()
        if replica.membership is not self._membership:
            self._membership = replica.membership
            if self.config.fsync == "auto":
                self._fsync.use("auto" if replica.alone else "thread")
            self._links.update(self._membership.members, self._membership.removed)
            self._catch_up_soon()
        self._leader = replica.raft.leader
        for listener in self.leader_listeners:
            listener()
        if replica.removed:
            self._end(f"member {self.member_id:x} was removed from the cluster", self._removed)

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
            self.fail(f"cannot go on: {describe(error)}")

    def _follow_lease(self, lease: LeaseResult) -> None:
        if not self._leading:
            return
        if lease.ttl_s:
            self.lessor.granted(lease.id, lease.ttl_s)
        else:
            self.lessor.revoked(lease.id)

    def _renew(
        self, lease_id: int, done: Callable[[int, MinikubeError | None], None], error: MinikubeError | None
    ) -> None:
        if error is None and not (self.replica.leading and self.replica.leading == self._leading):
            error = self.not_leader()
        done(0 if error is not None else self.lessor.renew(lease_id), error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"cannot go on: {describe(error)}")

    def _end(self, message: str, tell: Fatal) -> None:
        """Nothing is acknowledged from here on. What waits may or may not be on disk."""
        if self._failed:
            return
        self._failed = True
        tell(message)
        self._idle.set()
        self.replica.fail(message)


def _unheard(message: str) -> None:
    """Nobody listens."""


def _settle_change(done: asyncio.Future[None], result: Result | None, error: MinikubeError | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
