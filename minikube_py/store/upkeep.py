"""A member's periodic work: ticks, lease expiry, compaction, promotion of learners; and housekeeping: snapshots, the
next segment and indexes, in slices between the loop's other work."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import msgpack

from minikube_py.errors import InvalidRequest, MinikubeError, Unavailable
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.tables import NOT_JSON, Degraded
from minikube_py.mvcc.types import Command, Compact, Result
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId
from minikube_py.store.alarming import Alarming, wanted_by
from minikube_py.store.collector import Collector
from minikube_py.store.compaction import CompactionPolicy
from minikube_py.store.folder import FolderLost
from minikube_py.store.hash_check import HashCheck
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.membership_checks import caught_up
from minikube_py.store.retry import Retry
from minikube_py.store.room import FULL, explained
from minikube_py.store.snapshotter import drive

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

UPKEEP_TICKS = 2
PROPOSE = 0
"""First word of one kind of message between members; for the others see `hash_check`."""
TRIM_PER_UPKEEP = 1000
EXPIRED_PER_UPKEEP = 100
"""With etcd's rate, 1,000 a second: all leases that a restart renewed may expire in one moment."""
EXPIRED_KEYS_PER_UPKEEP = 2000
"""Leases whose keys come to so many are the last of a turn."""
PROGRESS_PER_UPKEEP = 5000
"""Watchers that are notified in one turn that they have seen everything."""
SLICE_PAUSE_S = 0.005
BUILD_SLICE_S = 0.004
"""Target duration of one slice of building an index."""
BUILD_ROWS = 48
BUILD_STEPS_MAX = 64


class Upkeep:
    """One member's. Only a leader proposes; what is refused now becomes due again."""

    def __init__(self, member: StoreMember) -> None:
        config = member.config
        self._member = member
        self._clock = member.clock
        self._collector = Collector() if config.own_gc else None
        self._progressed = 0
        self._telling = False
        self._degraded: dict[str, Degraded] = {}
        self._in_vain: dict[str, int] = {}
        self._unreadable: dict[str, int] = {}
        self._unbuilt = asyncio.Event()
        self._spare = Retry(self._clock)
        member.room.trials = self._spare, member.snapshotter.retry
        self.alarming = Alarming(member, self._ask)
        self.hash_check = HashCheck(member, self._propose)
        self.compaction = CompactionPolicy(config.retain_s, config.retain_bytes)

    def start(self) -> list[asyncio.Task[None]]:
        """Starts the work as tasks; cancel them to stop."""
        if self._collector is not None:
            self._collector.start()
        loop = self._member.loop
        work = (self._tick_forever(), self._keep_house(), self._build_indexes(), self.hash_check.run())
        return [loop.create_task(each) for each in work]

    def stop(self) -> None:
        self.hash_check.stop()
        if self._collector is not None:
            self._collector.stop()

    async def _tick_forever(self) -> None:
        ticks = 0
        due_s = self._clock.monotonic_s()
        while True:
            now_s, due_s = self._clock.monotonic_s(), due_s + self._member.config.tick_s
            if due_s <= now_s:
                # Missed ticks are not made up for: the leader would seem silent, though its messages wait to be read. A
                # late tick does not delay the next one.
                due_s = now_s + self._member.config.tick_s
            await self._clock.sleep(due_s - now_s)
            ticks += 1
            self._member.tick()
            if ticks % UPKEEP_TICKS == 0:
                self._upkeep()

    def _upkeep(self) -> None:
        member, state = self._member, self._member.state
        if self._collector is not None:
            self._collector.step()
        state.trim(TRIM_PER_UPKEEP)
        if not self._telling and state.revision != self._progressed:
            self._progressed, self._telling = state.revision, True
        if self._telling:
            self._telling = member.replica.hub.progress_some(PROGRESS_PER_UPKEEP)
        if state.tables.specs:
            state.tables.check_memory()
        if state.tables.unbuilt:
            self._unbuilt.set()
        self.alarming.look()
        self._say_what_failed()
        if not member.replica.leading:
            return
        keys = 0
        for lease_id in islice(member.lessor.expired(), EXPIRED_PER_UPKEEP):
            self._propose(state.lessor.revoke_of(lease_id))
            lease = state.lessor.by_id.get(lease_id)
            keys += 0 if lease is None else len(lease.keys)
            if keys >= EXPIRED_KEYS_PER_UPKEEP:
                break
        written_bytes = member.replica.files.written_bytes
        revision = self.compaction.due(self._clock.monotonic_s(), state.revision, written_bytes)
        if revision > max(state.compact_revision, 0):
            self._propose(Compact(revision))
        if not member.replica.alone:
            self._promote()

    def heard(self, sender: NodeId, words: bytes) -> None:
        """A message from another member. What no member of this release says is refused, and counted."""
        member = self._member
        try:
            kind, *arguments = msgpack.unpackb(words)
            if kind != PROPOSE:
                self.hash_check.heard(sender, kind, arguments)
                return
            [packed] = arguments
            command = wanted_by(sender, unpack(packed))
            if member.replica.leading and member.membership.get(sender) is not None:
                self._propose(command)
        except (ValueError, TypeError, InvalidRequest, msgpack.UnpackException) as error:
            member.replica.refusals.refuse(sender, f"it told what no member says: {error}", member.raft.configuration)

    def _ask(self, command: Command) -> None:
        """Has the current leader propose it."""
        leader = self._member.raft.leader
        if self._member.state.version < ALARMS:
            return
        if self._member.replica.leading:
            self._propose(command)
        elif leader:
            self._member.tell(leader, msgpack.packb((PROPOSE, pack(command))))

    def _say_what_failed(self) -> None:
        """Logs, once each, failures that do not stop the member but need attention."""
        member = self._member
        degraded = member.state.tables.degraded
        if degraded != self._degraded:
            for name, why in degraded.items():
                if self._degraded.get(name) != why:
                    member.say(f"the fields of {name} are {why}")
            self._degraded = dict(degraded)
        for name, count in member.state.tables.unreadable().items():
            # Said again once it has doubled: objects may come by the thousand.
            if count == 0 or count >= 2 * self._unreadable.get(name, 0):
                self._unreadable[name] = count
                if count:
                    member.say(f"of the objects of {name}, {count:,} {NOT_JSON}; their fields are missing")
        for source, failed, last in (
            ("a watcher", member.replica.hub.in_vain, member.replica.hub.last_in_vain),
            ("a caller", member.replica.tell.in_vain, member.replica.tell.last),
        ):
            if failed != self._in_vain.get(source, 0):
                self._in_vain[source] = failed
                member.say(f"{source} failed on its input; others are not affected: {last}")

    def _propose(self, command: Command) -> None:
        try:
            self._member.propose(command, pack(command), _ignore, own=True)
        except Unavailable:
            pass

    def _promote(self) -> None:
        """Promotes learners marked for it once they have caught up, one at a time."""
        member = self._member
        due = [each.id for each in member.membership.members if each.learner and each.auto_promote]
        ready = caught_up(member.raft.status()) if due else set()
        for node in due:
            if node in ready:
                try:
                    member.propose_change(MemberChange(ChangeKind.PROMOTE, node), _ignore)
                except MinikubeError:
                    # The previous change is still in progress, or a leadership transfer is.
                    pass
                return

    async def _keep_house(self) -> None:
        """What failed for lack of space is tried again even if it is not due any more: its success clears the alarm."""
        member, spare = self._member, self._spare
        files, taking = member.replica.files, member.snapshotter.retry
        while True:
            await self._clock.sleep(member.config.tick_s * UPKEEP_TICKS)
            try:
                if (files.wants_upkeep or spare.full) and spare.due:
                    await drive(files.upkeep(spare.full), member.wait_for_sync, self._clock, SLICE_PAUSE_S)
                    spare.succeeded()
            except FolderLost as error:
                member.fail(f"cannot sync its folder: {explained(error, files.disk)}")
            except OSError as error:
                why = explained(error, files.disk, member.config.segment_bytes)
                again_s = spare.failed(why, error.errno in FULL)
                member.say(f"cannot prepare the next segment of the log: {why}; trying again in {again_s:g} s")
            try:
                if (member.replica.snapshot_due or taking.full) and taking.due:
                    await member.take_snapshot()
            except FolderLost as error:
                member.fail(f"cannot sync its folder: {explained(error, files.disk)}")
            except OSError:
                again_s = taking.pause_s
                member.say(f"cannot take a snapshot: {taking.failure}; trying again in {again_s:g} s; the log is kept")

    async def _build_indexes(self) -> None:
        """A few rows at a time until the slice is over: costs differ a hundredfold, and from row to row."""
        member, clock = self._member, self._clock
        while True:
            await self._unbuilt.wait()
            state = member.state
            until_s = clock.monotonic_s() + BUILD_SLICE_S
            for _ in range(BUILD_STEPS_MAX):
                if not state.build_indexes(BUILD_ROWS):
                    self._unbuilt.clear()
                    break
                if clock.monotonic_s() >= until_s:
                    break
            if self._collector is not None:
                self._collector.keep()
            member.tables_changed()
            await clock.sleep(SLICE_PAUSE_S)


def _ignore(result: Result | None, error: MinikubeError | None) -> None:
    """The result is not needed."""
