"""Three to five replicas on disks that lose what was not synced: crashes at any operation, lost and reordered messages,
snapshots and changes of members at any time. Whatever the schedule: what was acknowledged is there afterwards, one
leader a term, the members agree, and a healed cluster goes on."""

from __future__ import annotations

import random

import pytest
from replica_net import CLUSTER, Outcome, ReplicaNet

from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import Put
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.replica_config import Bootstrap, ReplicaConfig

CONFIG = ReplicaConfig(tail_entries_max=5, snapshot_log_bytes=3000, election_ticks=5, heartbeat_ticks=1)


class Schedule:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.net = ReplicaNet(seed, config=CONFIG, segment_bytes=16 << 10)
        self.net.drop = lambda message: self.rng.random() < self.loss
        self.loss = 0.05
        self.writes: list[tuple[bytes, bytes, Outcome]] = []
        self.reads: list[tuple[Outcome, int, int]] = []
        self.leaders: dict[int, int] = {}
        self.acknowledged = 0
        self.names = 0
        self.crashes = self.changes = self.snapshots = 0

    def run(self, steps: int) -> None:
        actions = [
            (60, self.deliver), (60, self.work), (15, self.tick), (20, self.write), (5, self.read), (2, self.crash),
            (3, self.snapshot), (1, self.partition), (2, self.change), (4, self.heal), (1, self.slow),
        ]  # fmt: skip
        weights, choices = zip(*actions)
        for _ in range(steps):
            self.rng.choices(choices, weights)[0]()
            self.watch()

    def running(self) -> list[int]:
        return [id for id, node in self.net.nodes.items() if node.replica is not None and not node.failed]

    def deliver(self) -> None:
        queue = self.net.queue
        for _ in range(self.rng.randrange(8)):
            if queue:
                queue.rotate(-self.rng.randrange(min(3, len(queue))))
                message = queue.popleft()
                self.net.deliver(message)
                if self.rng.random() < 0.03:
                    queue.append(message)

    def work(self) -> None:
        for id in self.running():
            if self.rng.random() < 0.5:
                self.net.nodes[id].work()

    def tick(self) -> None:
        for id in self.running():
            if self.rng.random() < 0.9:
                self.net[id].tick()

    def write(self) -> None:
        for id in self.running():
            replica = self.net[id]
            if replica.leading:
                key = b"/%d" % self.rng.randrange(30)
                value = b"%d" % len(self.writes) + bytes(self.rng.choice((0, 100, 900)))
                try:
                    self.writes.append((key, value, self.net.propose(replica, Put(key, value))))
                except MinikubeError:
                    pass

    def read(self) -> None:
        for id in self.running():
            outcome = Outcome()
            self.reads.append((outcome, id, self.highest()))
            replica = self.net[id]
            floor = self.reads[-1][2]

            def check(error: object, replica=replica, floor=floor, outcome=outcome) -> None:
                outcome.ended = True
                if error is None:
                    assert replica.state.revision >= floor, "a read missed what was acknowledged before it began"

            replica.read(check)

    def highest(self) -> int:
        """The newest revision that any client has seen."""
        return max((outcome.result.revision for _, _, outcome in self.writes if outcome.done), default=1)

    def crash(self) -> None:
        id = self.rng.choice(list(self.net.nodes))
        node = self.net.nodes[id]
        if node.replica is not None:
            if self.rng.random() < 0.5 and not node.failed:
                node.disk.cut_after(self.rng.randrange(1, 30))
            else:
                self.crashes += 1
                node.crash(power=self.rng.random() < 0.7)

    def restart(self) -> None:
        for node in self.net.nodes.values():
            if node.replica is not None and (node.failed or not node.disk.powered):
                self.crashes += 1
                node.crash()
            if node.replica is None:
                node.start()

    def snapshot(self) -> None:
        for id in self.running():
            if self.net[id].snapshot_due:
                try:
                    self.net.snapshot_of(id)
                    self.snapshots += 1
                except OSError as error:
                    self.net.nodes[id].failed = str(error)

    def partition(self) -> None:
        self.net.isolate(*self.rng.sample(list(self.net.nodes), 1))

    def slow(self) -> None:
        for node in self.net.nodes.values():
            node.slow = self.rng.random() < 0.2

    def heal(self) -> None:
        self.net.heal()
        for node in self.net.nodes.values():
            node.slow = False
        self.restart()

    def change(self) -> None:
        for id in self.running():
            replica = self.net[id]
            if replica.leading:
                try:
                    replica.propose_change(self.some_change(replica), Outcome())
                    self.changes += 1
                except MinikubeError:
                    pass

    def some_change(self, replica) -> MemberChange:
        members = replica.membership
        learner = next((member for member in members.members if member.learner), None)
        expected = next(iter(members.expected), None)
        if learner is not None:
            return MemberChange(ChangeKind.PROMOTE, learner.id)
        if expected is not None:
            id = 10 + len(self.net.nodes)
            self.net.add(id, Bootstrap(CLUSTER, id)).start()
            return MemberChange(ChangeKind.JOIN, id, expected.name)
        if len(members.members) > 3 and self.rng.random() < 0.5:
            return MemberChange(ChangeKind.REMOVE, self.rng.choice(members.members).id)
        self.names += 1
        return MemberChange(ChangeKind.EXPECT, name=f"extra-{self.names}")

    def watch(self) -> None:
        for id in self.running():
            term = self.net[id].leading
            if term:
                assert self.leaders.setdefault(term, id) == id, f"two leaders of term {term}"

    def settle(self) -> None:
        """Heals all, and asks for agreement and progress."""
        self.loss = 0.0
        net = self.net
        for node in net.nodes.values():
            node.disk.cut_after(1 << 60)
        self.heal()
        net.settle()
        leader = net.leader()
        net.until(lambda: bool(net.leader().raft.configuration.outgoing) is False)
        net.until(lambda: net.put(b"/last").done)
        leader = net.leader()
        members = [member.id for member in leader.membership.members]
        net.until(lambda: all(net[id].raft.log.applied == leader.raft.log.applied for id in members))
        assert len({net[id].state.hash() for id in members}) == 1
        assert {net[id].membership for id in members} == {leader.membership}
        self.check(net.contents(leader.member_id), leader)

    def check(self, found: dict[bytes, bytes], leader) -> None:
        """A key holds the last acknowledged value, or one that was proposed and whose end is not known, or a later
        one: values are unique, so the revision at which a value was written says what came after."""
        at = {outcome.result.revision: (key, value) for key, value, outcome in self.writes if outcome.done}
        for revision, (key, value) in at.items():
            event = [event for event in leader.state.log.at(revision) if event.kv.key == key]
            assert event and event[0].kv.value == value, f"acknowledged at {revision}, and not there"
        possible = {value for _, value, outcome in self.writes if not outcome.ended or outcome.done or outcome.error}
        assert all(value in possible or key == b"/last" for key, value in found.items())
        assert all(outcome.ended for _, _, outcome in self.writes if self.is_told(outcome)), "a writer waits forever"

    def is_told(self, outcome: Outcome) -> bool:
        """Crashed members tell nobody."""
        return outcome.ended or any(
            reply is outcome for id in self.running() for *_, reply in self.net[id]._waiting
        )


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_schedule_nothing_acknowledged_is_lost(seed):
    schedule = Schedule(seed)
    schedule.run(1500)
    schedule.settle()
    assert sum(outcome.done for _, _, outcome in schedule.writes) > 5
