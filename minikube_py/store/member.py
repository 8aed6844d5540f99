"""A store member: the asyncio shell around its `Replica`. It handles time, the loop, syncs and links; the replica
decides.

All that is proposed within one turn of the event loop becomes one write, one sync and one message per peer; at most one
sync is in flight, and what arrives meanwhile is the next batch. A leader of others syncs in a thread, so that
heartbeats never wait for a slow sync; otherwise it runs where it is fastest (docs/adr/0002-fsync-inline-or-thread.md).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial

from minikube_py.env import Clock, Disk, Rng, ended, say
from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.fields.where import Where
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, LeaseResult, RangeRequest, RangeResult
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import Message, MessageType, Term
from minikube_py.raft.node import Raft
from minikube_py.store.alarming import aside_text, stands_aside
from minikube_py.store.applying import Reply, describe
from minikube_py.store.embedded import EmbeddedStorage, settle
from minikube_py.store.explaining import measured
from minikube_py.store.fsync import FsyncRunner, SyncRunner
from minikube_py.store.leadership import change_members, hand_over, transfer
from minikube_py.store.lessor import Lessor
from minikube_py.store.links import PeerLinks
from minikube_py.store.log_files import LogFiles
from minikube_py.store.member_config import MemberConfig as MemberConfig
from minikube_py.store.member_status import PREFIX, metrics_of, status_of
from minikube_py.store.membership import Member, MemberChange, Membership
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.read_rounds import ReadDone
from minikube_py.store.replica import Replica
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.room import Room
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource
from minikube_py.store.snapshotter import Snapshotter, Wait, drive
from minikube_py.store.storage import WatchHandle, WatchSink
from minikube_py.store.turns import Turns
from minikube_py.store.upkeep import Upkeep

Fatal = Callable[[str], None]

def exit_now(message: str) -> None:
    """Ends the process without cleanup: what is not on disk must not be acknowledged by accident."""
    say(f"minikube-py store: {message}")
    os._exit(70)


class StoreMember:
    """One member. `start` recovers and begins to serve; `storage` is its Storage within this process.

    `fatal` is called when the member cannot continue, and, without a `removed` callback, when it was removed; it should
    end the process. After either, every request is refused. `syncs` runs the syncs in place of `config.fsync`."""

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
        self.replica = Replica(LogFiles(disk, rng, config.segment_bytes), rng, config)
        self.room = Room(disk, config.quota_bytes, config.reserved_bytes)
        self.replica.lease_listener = self._follow_lease
        self._fatal = fatal
        self._removed = removed or fatal
        self.client_urls: tuple[str, ...] = ()
        """The address of its etcd API; published in its status."""
        self.opened = False
        """The log was read: `raft` and `state` exist from now on."""
        self.failed = False
        self._stopping = False
        self._deaf = False
        self._fsync: SyncRunner = syncs or FsyncRunner(clock, config.fsync)
        self._turns = Turns(self.replica, self._fsync, clock, self._turned, self.fail)
        self._tasks: list[asyncio.Task[None]] = []
        self.loop: asyncio.AbstractEventLoop
        self.say: Fatal = _unheard
        """Called with warnings that do not stop the member."""
        self.lessor = Lessor(clock)
        self.snapshotter = Snapshotter(self._fsync.wait, clock)
        self._snapshot_lock = asyncio.Lock()
        self._catching_up = False
        self._leading = Term(0)
        self._leader = NodeId(0)
        self._membership = Membership()
        self._configuration = Configuration(frozenset())
        self._reached: tuple[Member, ...] = ()
        self.strangers: Mapping[NodeId, str] = {}
        """`Peers.strangers`, for the status."""
        self.leader_listeners: list[Callable[[], None]] = []
        """Called when the known leader or the members change; must not raise."""
        self._queries = QueryMetrics()
        self.storage = EmbeddedStorage(self)
        self.upkeep = Upkeep(self)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(
        self,
        bootstrap: Bootstrap | None = None,
        links: PeerLinks | None = None,
        recovered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Recovers, or starts from `bootstrap` in an empty folder. A single member leads and has applied its log when
        this returns; with others it takes part in elections from now on. `recovered` is called in between, and its
        error ends the start.

        Raises: Corruption; LogLost; OSError if the disk fails; Unavailable if it failed since, with the reason."""
        self.loop = asyncio.get_running_loop()
        self.replica.refusals.listener = lambda text: self.say(text)
        self.replica.open(bootstrap)
        for warning in self.replica.files.warnings:
            self.say(warning)
        if recovered is not None:
            try:
                await recovered()
            except BaseException:
                self.replica.close()
                raise
        self.opened = True
        self._turns.begin(links)
        await self._turns.settle()
        if self.failed:
            raise Unavailable(self.replica.failure)
        if stands_aside(self):
            self.fail(aside_text(self))
            raise Unavailable(aside_text(self))
        self._tasks = self.upkeep.start()
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def stop(self) -> None:
        """Finishes pending proposals, hands leadership over if possible, and stops. Later proposals are refused."""
        if self._stopping:
            return
        self._stopping = True
        if not self.opened:
            return
        if not self.failed and not self.replica.alone:
            await hand_over(self)
        for task in self._tasks:
            task.cancel()
        await ended(*self._tasks)
        # The links end later: what they deliver must neither keep this busy forever nor be written to closed files.
        self._deaf = True
        await self._turns.settle()
        self.replica.stop(Unavailable("the store is stopping"))
        self.upkeep.stop()
        self._fsync.close()
        self.replica.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    def propose(self, command: Command, data: bytes, reply: Reply, *, own: bool = False) -> None:
        """Sends `command`, packed as `data`, into the log; `reply` is called once it is applied or its outcome cannot
        be known. `own`: sent by a member, not a client. Raises: as `Replica.propose`, before anything is done."""
        if self.failed or self._stopping:
            raise self._not_running()
        self.replica.propose(command, data, reply, own=own)
        if not self._turns.due:
            self._turns.gather()

    def propose_change(self, change: MemberChange, reply: Reply) -> None:
        """Proposes a change of members. Raises: InvalidRequest if it does not fit; NotLeader, Unavailable."""
        self.check_running()
        self.replica.propose_change(change, reply)
        self._turns.soon()

    def read(self, request: RangeRequest) -> RangeResult:
        """Reads this member's state. Linearizable after `when_readable`. Raises: RequestError."""
        if request.where is None and not request.fields:
            return self.replica.state.range(request)
        result = measured(self.replica.state, request, self.clock)
        self._queries.observe(result)
        return result

    @property
    def readable(self) -> bool:
        """Local reads are linearizable, as those of a sole voter are."""
        return self.replica.reads_are_local()

    def when_readable(self, done: ReadDone, *, linearizable: bool = True) -> None:
        """Calls `done` when this member's state holds everything acknowledged before this call, or with an error; at
        once if it already does. The wait is bounded by the absence of a leader, not by time: callers with a deadline
        stop waiting."""
        if self.failed or self._stopping:
            done(self._not_running())
            return
        self.replica.read(done, linearizable=linearizable)
        if not self.replica.reads_are_local():
            self._turns.soon()

    async def confirmed(self) -> None:
        """Returns once `when_readable` succeeds. Raises: its error."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.when_readable(partial(settle, future, None))
        await future

    def keep_alive(self, lease_id: int, done: Callable[[int, MinikubeError | None], None]) -> None:
        """Renews a lease and calls `done` with its TTL in seconds, 0 if it is unknown. The leader must confirm its
        leadership after this call.

        Raises: NotLeader."""
        if not self.replica.leading:
            raise self.replica.not_leader()
        self.when_readable(partial(self._renew, lease_id, done))

    async def lease_remaining_s(self, lease_id: int) -> float | None:
        """Time until the lease ends unless it is renewed, None if it is unknown. Raises: NotLeader, Unavailable."""
        if not self.replica.leading:
            raise self.replica.not_leader()
        await self.confirmed()
        return self.lessor.remaining_s(lease_id)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None = None
    ) -> WatchHandle:
        """See `Storage.watch`. Raises: Unavailable, InvalidRequest."""
        self.check_running()
        handle = self.replica.hub.add(key, range_end, start_revision, sink, where)
        self._catch_up_soon()
        return handle

    def tables_changed(self) -> None:
        """Indexes or fields may have become complete."""
        self.replica.hub.refresh()
        self._catch_up_soon()

    def new_lease_id(self) -> int:
        """A positive int64 that no lease has. Only the leader may draw it."""
        known = self.state.lessor.by_id
        while (lease_id := self.rng.getrandbits(62) + 1) in known:
            pass
        return lease_id

    async def hash(self, revision: int = 0, *, rows: bool = True) -> int:
        """Equal on members that agree at `revision` (0: now); taken while serving. `rows`: includes the rows of the
        tables.

        Raises: Compacted, FutureRevision."""
        return await self.hash_by(self.state.hash_steps(revision, rows=rows))

    async def hash_by(self, steps: Generator[None, None, int]) -> int:
        """The result of the steps, between other work."""
        return await drive(steps, self.wait_for_sync, self.clock)

    change_members = change_members
    transfer = transfer

    # -- what the links bring -----------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message arrived; a SNAPSHOT only after `snapshot_arrived` for its snapshot has returned."""
        if self.failed or self._deaf:
            return
        if message.type == MessageType.TELL:
            if self.opened:
                self.upkeep.heard(message.sender, message.context)
            return
        self.replica.receive(message)
        self._turns.soon()

    def tell(self, to: NodeId, words: bytes) -> None:
        """A message outside Raft; it may be lost."""
        self._turns.links.send([Message(MessageType.TELL, self.member_id, to, context=words)])

    def tick(self) -> None:
        """One unit of time."""
        if self.failed:
            return
        self.replica.tick()
        self._catch_up_soon()
        if not (self.replica.alone and self.replica.leading):
            self._turns.soon()

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """A link was lost or came up; `snapshot`: the sending of one ended, successfully or not."""
        if not self.failed and not self._deaf:
            self.replica.report(to, reachable, snapshot)
            self._turns.soon()

    def gone(self, peer: NodeId) -> None:
        """Its machine refuses connections to it: the process has ended."""
        if not self.failed and not self._deaf:
            self.replica.raft.gone(peer)

    def expelled(self, reason: str) -> None:
        """The others report that this member was removed."""
        self._end(reason, self._removed)

    def snapshot_source(self) -> SnapshotSource | None:
        """The newest snapshot, None if there is none yet. Raises: OSError."""
        return self.replica.snapshot_source()

    async def fresh_snapshot(self) -> SnapshotSource:
        """A snapshot that includes everything applied here before this call. Raises: Unavailable; OSError."""
        self.check_running()
        await self.take_snapshot(self.raft.log.applied)
        source = self.replica.snapshot_source()
        if source is None:
            raise Unavailable("nothing has been applied here yet; there is nothing to snapshot")
        return source

    async def take_snapshot(self, index: int = 0) -> None:
        """Takes one; with `index`, only if the newest does not include that entry by then. Raises: OSError."""
        async with self._snapshot_lock:
            newest = self.replica.files.snapshot
            if not self.failed and (not index or newest is None or newest.head.index < index):
                await self.snapshotter.take(self.replica)
        self._turns.soon()

    def incoming_snapshot(self, offer: SnapshotOffer) -> IncomingSnapshot:
        """The receiver of an offered snapshot; the one in progress if the offer is the same.

        Raises: TransferRefused; OSError."""
        return self.replica.incoming_snapshot(offer)

    async def snapshot_arrived(self, incoming: IncomingSnapshot) -> None:
        """Verifies and restores the received snapshot while serving. Raises: TransferRefused; OSError."""
        await drive(incoming.finish(), self._fsync.wait, self.clock)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StateMachine:
        """The current state; a snapshot from the leader replaces it."""
        return self.replica.state

    @property
    def raft(self) -> Raft:
        return self.replica.raft

    @property
    def member_id(self) -> NodeId:
        return self.replica.member_id

    @property
    def membership(self) -> Membership:
        return self.replica.membership

    status = status_of

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name."""
        return {
            **metrics_of(self),
            **self._fsync.histogram.samples(PREFIX + "wal_fsync_duration_seconds"),
            **self._turns.batches.samples(PREFIX + "batch_entries"),
            **self._queries.samples(PREFIX),
        }

    @property
    def wait_for_sync(self) -> Wait:
        """For files other than the log."""
        return self._fsync.wait

    def fail(self, message: str) -> None:
        """Stops this member: it cannot continue."""
        self._end(message, self._fatal)

    def check_running(self) -> None:
        if self.failed or self._stopping:
            raise self._not_running()

    def _not_running(self) -> Unavailable:
        return Unavailable("the store is stopping" if not self.failed else "the store has failed")

    # -- turns --------------------------------------------------------------------------------------------------------

    def turn_soon(self) -> None:
        """Schedules a turn."""
        self._turns.soon()

    def _turned(self) -> None:
        self._catch_up_soon()
        replica = self.replica
        if (
            replica.leading != self._leading
            or replica.membership is not self._membership
            or replica.raft.configuration is not self._configuration
            or replica.raft.leader != self._leader
        ):
            self._changed()

    def _changed(self) -> None:
        """The leader or the members changed."""
        replica = self.replica
        if replica.leading != self._leading or replica.membership is not self._membership:
            self._choose_syncs()
        if replica.leading != self._leading:
            self._leading = replica.leading
            if replica.leading:
                # The previous leader may have renewed them: each gets its full TTL.
                self.lessor.restart(self.state.leases())
            else:
                self.lessor.clear()
        if replica.membership is not self._membership or replica.raft.configuration is not self._configuration:
            self._membership, self._configuration = replica.membership, replica.raft.configuration
            self._reached, removed = self._membership.reached(self._configuration, self._reached)
            self._turns.links.update(self._reached, removed)
            self._catch_up_soon()
        self._leader = replica.raft.leader
        for listener in self.leader_listeners:
            listener()
        if replica.removed:
            self._end(f"member {self.member_id:x} was removed from the cluster", self._removed)

    def _choose_syncs(self) -> None:
        """A leader must take answers while it syncs, and must not delay heartbeats."""
        if self.config.fsync == "auto":
            self._fsync.use("thread" if self.replica.leading and not self.replica.alone else "auto")

    def _catch_up_soon(self) -> None:
        if self.replica.hub.behind and not self._catching_up:
            self._catching_up = True
            self.loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        """Watchers that start in the past read the history with a budget, one turn of the loop each."""
        self._catching_up = False
        try:
            if not self.failed and self.replica.hub.catch_up():
                self._catch_up_soon()
        except Exception as error:
            # As in a turn: a watcher that missed an event must not continue.
            self.fail(f"cannot continue: {describe(error)}")

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
            error = self.replica.not_leader()
        done(0 if error is not None else self.lessor.renew(lease_id), error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"cannot continue: {describe(error)}")

    def _end(self, message: str, tell: Fatal) -> None:
        """Nothing is acknowledged from here on. Pending writes may or may not be on disk."""
        if self.failed:
            return
        self.failed = True
        self._turns.stop()
        tell(message)
        self.replica.fail(message)


def _unheard(message: str) -> None:
    """No listener."""
