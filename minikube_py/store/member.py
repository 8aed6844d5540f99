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
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikube_py import __version__
from minikube_py.env import Clock, Disk, Rng
from minikube_py.errors import MinikubeError, NotLeader, Unavailable
from minikube_py.fields.where import Where
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, Compact, LeaseResult, LeaseRevoke, RangeRequest, RangeResult, Result
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, Term
from minikube_py.raft.node import Raft
from minikube_py.store.collector import Collector
from minikube_py.store.compaction import CompactionPolicy
from minikube_py.store.embedded import EmbeddedStorage
from minikube_py.store.fsync import FsyncMode, FsyncRunner, Histogram, SyncRunner
from minikube_py.store.lessor import Lessor
from minikube_py.store.links import PeerLinks
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership
from minikube_py.store.query_metrics import QueryMetrics
from minikube_py.store.read_rounds import ReadDone
from minikube_py.store.replica import REQUEST_BYTES_MAX as REQUEST_BYTES_MAX
from minikube_py.store.replica import Bootstrap, Failed, Replica, ReplicaConfig, Reply, describe
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource
from minikube_py.store.snapshotter import Snapshotter, drive
from minikube_py.store.storage import WatchHandle, WatchSink
from minikube_py.wal.segment import SEGMENT_BYTES

Fatal = Callable[[str], None]

TICK_S = 0.05
"""Elections begin after 10 to 20 of them without a leader, so that one that was killed costs less than a second."""
UPKEEP_TICKS = 2
TRIM_PER_UPKEEP = 1000
GATHER_MIN = 16
GATHER_S = 0.001
SLICE_PAUSE_S = 0.005
TURN_S = 0.02
"""After so long the loop has its turn before the next entries are applied: heartbeats must not wait for them."""
COMMITTED_BYTES_MAX = 4 << 20
PROMOTE_LAG_ENTRIES = 1000
"""A learner that is so close to the leader's last entry becomes a voter, if it is to be one."""
HAND_OVER_S = 2.0
"""How long a leader that stops waits for another one."""
TRANSFER_S = 2.0
CHANGE_S = 5.0


def exit_now(message: str) -> None:
    """Ends the process without any of its leave-taking: what is not on disk must not be acknowledged by accident."""
    print(f"minikube-py store: {message}", file=sys.stderr, flush=True)
    os._exit(70)


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """`snapshot_log_bytes`: log written since the last snapshot before the next is taken (or as much as that snapshot
    was large, whichever is more). History is compacted when older than `retain_s` or, oldest first, when its writes
    sum up to more than `retain_bytes`; 0 keeps without that bound. `fsync` "auto": in a thread with other members,
    alone as the disk is fast. `lease_reads`: see RaftConfig."""

    request_bytes_max: int = REQUEST_BYTES_MAX
    segment_bytes: int = SEGMENT_BYTES
    snapshot_log_bytes: int = 32 << 20
    retain_s: float = 300.0
    retain_bytes: int = 64 << 20
    fsync: FsyncMode = "auto"
    own_gc: bool = True
    election_ticks: int = 10
    heartbeat_ticks: int = 2
    lease_reads: bool = False

    def replica(self) -> ReplicaConfig:
        return ReplicaConfig(
            request_bytes_max=self.request_bytes_max,
            snapshot_log_bytes=self.snapshot_log_bytes,
            election_ticks=self.election_ticks,
            heartbeat_ticks=self.heartbeat_ticks,
            lease_reads=self.lease_reads,
            committed_bytes_max=COMMITTED_BYTES_MAX,
        )


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
        self._opened = False
        self._failed = False
        self._stopping = False
        self._fsync: SyncRunner = syncs or FsyncRunner(clock, config.fsync)
        self._links: PeerLinks = NoLinks()
        self._turn_due = False
        self._in_turn = False
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop
        self.lessor = Lessor(clock)
        self.compaction = CompactionPolicy(config.retain_s, config.retain_bytes)
        self._snapshotter = Snapshotter(self._fsync.wait, clock)
        self._snapshot_lock = asyncio.Lock()
        self._batches = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
        self._collector = Collector()
        self._gathered = 0
        self._gather_until_s = 0.0
        self._progressed = 0
        self._catching_up = False
        self._leading = Term(0)
        self._leader = NodeId(0)
        self._membership = Membership()
        self.leader_listeners: list[Callable[[], None]] = []
        """Told when another leads, as far as this member knows, or when the members are others; must not raise."""
        self._queries = QueryMetrics()
        self.storage = EmbeddedStorage(self)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self, bootstrap: Bootstrap | None = None, links: PeerLinks | None = None) -> None:
        """Recovers, or begins as `bootstrap` says in an empty folder. A member alone leads when this returns, and has
        applied what its log holds; with others it takes part in their elections from now on.

        Raises: Corruption; LogLost; OSError where the disk fails; Unavailable where its writes fail."""
        self._loop = asyncio.get_running_loop()
        self.replica.open(bootstrap)
        self._opened = True
        self._links = links or self._links
        await self._settle()
        if self._failed:
            raise Unavailable("the store could not write to its disk")
        if self.config.own_gc:
            self._collector.start()
        self._tasks = [self._loop.create_task(work) for work in (self._tick_forever(), self._keep_house())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def stop(self) -> None:
        """Finishes what was proposed, hands leadership over if there is someone to take it, and ends. Later proposals
        are refused."""
        if self._stopping:
            return
        self._stopping = True
        if not self._opened:
            return
        if not self._failed and not self.replica.alone:
            await self._hand_over()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._settle()
        self.replica.stop(Unavailable("the store is stopping"))
        self._collector.stop()
        self._fsync.close()
        self.replica.close()

    async def _hand_over(self) -> None:
        """Waits for what was proposed, then for another leader; not for long."""
        until_s = self.clock.monotonic_s() + HAND_OVER_S
        asked = False
        while self.replica.leading and not self._failed and self.clock.monotonic_s() < until_s:
            if not self.replica.waiting and not asked:
                asked = True
                heir = self._heir()
                if heir is None:
                    return
                self.replica.transfer(heir)
                self._turn_soon()
            await self.clock.sleep(TICK_S / 2)

    def _heir(self) -> NodeId | None:
        """The voter that has the most of the log."""
        peers = [peer for peer in self.raft.status().peers if peer.active and not peer.learner]
        voters = [peer for peer in peers if peer.id in self.raft.configuration.voters]
        return max(voters, key=lambda peer: peer.match).id if voters else None

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

    def read(self, request: RangeRequest) -> RangeResult:
        """What this member's state says. Linearizable after `when_readable`. Raises: RequestError."""
        result = self.replica.state.range(request)
        if result.stats is not None:
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
                if change.kind == ChangeKind.PROMOTE:
                    self._check_caught_up(change.id)
                elif change.kind == ChangeKind.REMOVE:
                    self._check_majority_without(change)
                self.replica.propose_change(change, partial(_settle_change, done))
                break
            except NotLeader:
                raise
            except Unavailable:
                if self.clock.monotonic_s() >= until_s:
                    raise
            await self.clock.sleep(TICK_S)
        self._turn_soon()
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
            await self.clock.sleep(TICK_S / 2)
            self._check_running()

    # -- what the links bring -----------------------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message arrived; a SNAPSHOT only after `snapshot_arrived` for its snapshot has returned."""
        if self._failed:
            return
        self.replica.receive(message)
        self._turn_soon()

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """A link was lost or came; `snapshot`: the sending of one ended, well or not."""
        if not self._failed:
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
        index = self.raft.log.applied
        async with self._snapshot_lock:
            newest = self.replica.files.snapshot
            if newest is None or newest.head.index < index:
                await self._snapshotter.take(self.replica)
        source = self.replica.snapshot_source()
        if source is None:
            raise Unavailable("nothing was applied here yet; there is nothing to take a snapshot of")
        return source

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
        replica, status = self.replica, self.raft.status()
        own = replica.membership.get(replica.member_id) or Member(replica.member_id, "")
        snapshot = replica.files.snapshot
        return {
            "member": _member_status(own),
            "cluster": replica.cluster_id,
            "role": status.role,
            "term": status.term,
            "leader": status.leader,
            "commit": status.commit,
            "applied": status.applied,
            "last_index": status.last_index,
            "revision": replica.state.revision,
            "compact_revision": replica.state.compact_revision,
            "size_bytes": replica.state.size_bytes,
            "snapshot_index": snapshot.head.index if snapshot else 0,
            "snapshot_size_bytes": snapshot.size_bytes if snapshot else 0,
            "snapshot_age_s": self._snapshotter.age_s,
            "members": [_member_status(member) for member in replica.membership.members],
            "expected": [_member_status(member) for member in replica.membership.expected],
            "peers": [
                {
                    "id": peer.id,
                    "match": peer.match,
                    "next": peer.next,
                    "state": peer.state,
                    "active": peer.active,
                    "learner": peer.learner,
                    "inflight_messages": peer.inflight_messages,
                }
                for peer in status.peers
            ],
            "version": __version__,
        }

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name."""
        prefix = "minikube_py_store_"
        replica = self.replica
        return {
            **self._fsync.histogram.samples(prefix + "wal_fsync_duration_seconds"),
            **self._batches.samples(prefix + "batch_entries"),
            prefix + "proposals_applied_total": replica.applied_entries,
            prefix + "proposals_pending": replica.waiting,
            prefix + "reads_pending": replica.waiting_reads,
            prefix + "wal_written_bytes_total": replica.files.written_bytes,
            prefix + "leases": len(self.state.lessor.by_id),
            prefix + "raft_term": self.raft.term,
            prefix + "raft_leading": int(bool(replica.leading)),
            prefix + "raft_commit_index": self.raft.log.committed,
            prefix + "raft_applied_index": self.raft.log.applied,
            prefix + "revision": self.state.revision,
            prefix + "compact_revision": self.state.compact_revision,
            prefix + "size_bytes": self.state.size_bytes,
            prefix + "watchers": len(self.hub),
            prefix + "snapshot_size_bytes": replica.files.snapshot.size_bytes if replica.files.snapshot else 0,
            **self._snapshotter.metrics(prefix),
            **self._queries.samples(prefix),
        }

    def _check_running(self) -> None:
        if self._failed or self._stopping:
            raise self._not_running()

    def _not_running(self) -> Unavailable:
        return Unavailable("the store is stopping" if not self._failed else "the store has failed")

    def _check_caught_up(self, node: NodeId) -> None:
        """A voter that lags behind counts for the quorum and cannot help it. Raises: Unavailable."""
        if not self.replica.leading or self.replica.membership.get(node) is None:
            return
        if node not in self._caught_up():
            raise Unavailable(f"member {node:x} has not caught up yet; it would vote without the log to vote for")

    def _check_majority_without(self, change: MemberChange) -> None:
        """Those who stay must be able to agree on anything afterwards. Raises: Unavailable."""
        member = self.membership.get(change.id) if change.id else self.membership.named(change.name)
        voters = self.raft.configuration.voters
        if not self.replica.leading or member is None or member.id not in voters:
            return
        left = voters - {member.id}
        active = {peer.id for peer in self.raft.status().peers if peer.active} | {self.member_id}
        if len(left & active) <= len(left) // 2:
            raise Unavailable(
                f"without {member.name} only {len(left & active)} of {len(left)} voters are in touch, no majority: "
                "bring another back first"
            )

    def _caught_up(self) -> set[NodeId]:
        status = self.raft.status()
        # Also one that is probed: after its link fell there may be nothing to send by which it would be more.
        return {
            peer.id
            for peer in status.peers
            if peer.active
            and peer.state != "snapshot"
            and peer.match > 0
            and peer.match + PROMOTE_LAG_ENTRIES >= status.last_index
        }

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
            self._fail(str(error))
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
            self._fail(f"cannot sync the log: {error}")
            return
        try:
            after = self.replica.synced()
        except Failed as failed:
            self._fail(str(failed))
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
            self._fail(f"cannot go on: {describe(error)}")

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
            self._fail(f"cannot go on: {describe(error)}")

    def _fail(self, message: str) -> None:
        self._end(message, self._fatal)

    def _end(self, message: str, tell: Fatal) -> None:
        """Nothing is acknowledged from here on. What waits may or may not be on disk."""
        if self._failed:
            return
        self._failed = True
        tell(message)
        self._idle.set()
        self.replica.fail(message)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        ticks = 0
        while True:
            await self.clock.sleep(TICK_S)
            ticks += 1
            if not self._failed:
                self.replica.tick()
                if not self.replica.alone:
                    self._turn_soon()
            if ticks % UPKEEP_TICKS == 0:
                self._upkeep()

    def _upkeep(self) -> None:
        self._collector.step()
        self.state.trim(TRIM_PER_UPKEEP)
        self._catch_up_soon()
        if self.state.revision != self._progressed:
            self._progressed = self.state.revision
            self.hub.progress()
        if not self._leading:
            return
        for lease_id in self.lessor.expired():
            self._propose_own(LeaseRevoke(lease_id))
        written = self.replica.files.written_bytes
        revision = self.compaction.due(self.clock.monotonic_s(), self.state.revision, written)
        if revision > self.state.compact_revision:
            self._propose_own(Compact(revision))
        if not self.replica.alone:
            self._promote()

    def _promote(self) -> None:
        """Learners that are to vote do so once they have caught up, one at a time."""
        due = [member.id for member in self.membership.members if member.learner and member.auto_promote]
        caught_up = self._caught_up() if due else set()
        for node in due:
            if node in caught_up:
                try:
                    self.replica.propose_change(MemberChange(ChangeKind.PROMOTE, node), _ignore)
                except MinikubeError:
                    # The change before is still under way, or leadership is: it comes due again.
                    return
                self._turn_soon()
                return

    def _propose_own(self, command: Command) -> None:
        """Proposes what nobody waits for; what is refused now comes due again."""
        try:
            self.propose(command, pack(command), _ignore)
        except Unavailable:
            pass

    async def _keep_house(self) -> None:
        """Snapshots and the next segment: a slice at a time, between the loop's other work."""
        files = self.replica.files
        try:
            while True:
                await self.clock.sleep(TICK_S * UPKEEP_TICKS)
                for sync in files.spare_step() if files.wants_spare else ():
                    await self._fsync.wait(sync)
                    await self.clock.sleep(SLICE_PAUSE_S)
                if self.replica.snapshot_due and not self._failed:
                    async with self._snapshot_lock:
                        await self._snapshotter.take(self.replica)
                    self._turn_soon()
        except OSError as error:
            self._fail(f"cannot write a snapshot or segment: {error}")


def _member_status(member: Member) -> dict[str, Any]:
    return {
        "id": member.id,
        "name": member.name,
        "peer": member.peer,
        "client": member.client,
        "learner": member.learner,
    }


def _settle_change(done: asyncio.Future[None], result: Result | None, error: MinikubeError | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)


def _ignore(result: Result | None, error: MinikubeError | None) -> None:
    pass
