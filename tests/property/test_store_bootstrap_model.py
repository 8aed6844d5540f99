"""Whatever starts, crashes, is wiped, in any order and with any answer late: one cluster, and no id twice.

The model runs the real decision and the real identities; each question is answered at one moment and heard at another.
Two weaker rules, that a sound mind might think of, must be caught by the same invariants.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikube_py.errors import InvalidRequest
from minikube_py.raft.configuration import NodeId
from minikube_py.sim.disk import SimDisk
from minikube_py.store.bootstrap import (
    Answer,
    Decision,
    Enter,
    Form,
    Initial,
    Intent,
    Join,
    Refuse,
    cluster_id_of,
    decide,
    view_of,
)
from minikube_py.store.identity import confirm_identity, own_identity
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership

NAMES = ("a", "b", "c")
INITIAL: Initial = tuple((name, f"{name}:1") for name in NAMES)
Rule = Callable[[Intent, dict[str, Answer]], Decision]


class Process:
    """One member's present life. `heard`: this round's answers; `asked`: those that are still under way."""

    def __init__(self, me: Member, rejoin: bool) -> None:
        self.intent = Intent(me, INITIAL, rejoin)
        self.heard: dict[str, Answer] = {}
        self.asked: dict[str, Answer | None] = {}
        self.to_ask = [address for name, address in INITIAL if name != me.name]
        self.knows_cluster = False
        self.settled: Form | Enter | None = None
        self.refused = False


class World:
    def __init__(self, seed: int, rule: Rule = decide) -> None:
        self.rng = random.Random(seed)
        self.rule = rule
        self.disks = {name: SimDisk() for name in NAMES}
        self.logs: dict[str, tuple[NodeId, int, tuple[Member, ...]] | None] = dict.fromkeys(NAMES)
        self.processes: dict[str, Process] = {}
        self.clusters: dict[int, Membership] = {}
        self.first_entries: dict[int, tuple[Member, ...]] = {}
        self.begun_ids: set[NodeId] = set()

    # -- what may happen ----------------------------------------------------------------------------------------------

    def start(self, name: str, rejoin: bool, client: int) -> None:
        if name in self.processes:
            return
        if self.logs[name] is not None:
            id = self.logs[name][0]
        else:
            id = own_identity(self.disks[name], self.rng, rejoin=rejoin).id
        self.processes[name] = Process(Member(id, name, f"{name}:1", f"{name}:{client}"), rejoin)

    def crash(self, name: str) -> None:
        self.processes.pop(name, None)

    def wipe(self, name: str) -> None:
        self.crash(name)
        self.disks[name] = SimDisk()
        self.logs[name] = None

    def ask(self, name: str) -> None:
        process = self.discovering(name)
        if process is None or process.settled or not process.to_ask:
            return
        address = process.to_ask.pop(self.rng.randrange(len(process.to_ask)))
        process.asked[address] = self.who(address[0])

    def hear(self, name: str) -> None:
        process = self.discovering(name)
        if process is None or not process.asked:
            return
        address = self.rng.choice(list(process.asked))
        answer = process.asked.pop(address)
        if answer is None:
            process.heard.pop(address, None)
        else:
            process.heard[address] = answer
            process.knows_cluster = process.knows_cluster or bool(answer.cluster_id)
        if not process.asked and not process.to_ask:
            self.decide(process)

    def make_durable(self, name: str) -> None:
        """What was decided is on disk; from here on it speaks as a member of its cluster."""
        process = self.discovering(name)
        if process is None or process.settled is None:
            return
        decision, me = process.settled, process.intent.me
        first = decision.members if isinstance(decision, Form) else ()
        self.logs[name] = (me.id, decision.cluster_id, first)
        confirm_identity(self.disks[name], me.id, decision.cluster_id)
        assert me.id not in self.begun_ids, "an id begins twice"
        self.begun_ids.add(me.id)
        if isinstance(decision, Form):
            assert me.id in {member.id for member in decision.members}
            assert self.first_entries.setdefault(decision.cluster_id, first) == first
            self.clusters.setdefault(decision.cluster_id, Membership.of(first))

    def promote(self, name: str) -> None:
        """Who came back as a learner has caught up."""
        log = self.logs[name]
        if log is not None and name in self.processes and self.leader(log[1]):
            membership = self.clusters[log[1]]
            member = membership.get(log[0])
            if member is not None and member.auto_promote:
                self.clusters[log[1]] = membership.apply(MemberChange(ChangeKind.PROMOTE, member.id))

    # -- how it goes --------------------------------------------------------------------------------------------------

    def discovering(self, name: str) -> Process | None:
        process = self.processes.get(name)
        return process if self.logs[name] is None else None

    def who(self, name: str) -> Answer | None:
        process, log = self.processes.get(name), self.logs[name]
        if process is None:
            return None
        if log is not None:
            membership = self.clusters[log[1]]
            return Answer(process.intent.me, log[1], membership, self.leader(log[1]), len(membership.removed))
        seen = () if process.knows_cluster else view_of(process.intent, process.heard)
        return Answer(process.intent.me, initial=INITIAL, seen=seen)

    def leader(self, cluster_id: int) -> NodeId:
        """The lowest voter that runs, where a majority does."""
        voters = {member.id for member in self.clusters[cluster_id].members if not member.learner}
        running = {log[0] for name in self.processes if (log := self.logs[name]) is not None and log[1] == cluster_id}
        alive = voters & running
        return NodeId(min(alive)) if len(alive) > len(voters) // 2 else NodeId(0)

    def decide(self, process: Process) -> None:
        process.to_ask = [address for name, address in INITIAL if name != process.intent.me.name]
        decision = self.rule(process.intent, process.heard)
        if isinstance(decision, Form | Enter):
            process.settled = decision
        elif isinstance(decision, Refuse):
            process.refused = True
        elif isinstance(decision, Join) and self.leader(decision.cluster_id):
            try:
                self.clusters[decision.cluster_id] = self.clusters[decision.cluster_id].apply(decision.change)
            except InvalidRequest:
                process.refused = True

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        alive = {log[1] for log in self.logs.values() if log is not None}
        assert len(alive) <= 1, f"two clusters: {self.logs}"

    def step(self, rng: random.Random, crashes: int, wipes: int) -> None:
        name = rng.choice(NAMES)
        kinds = ("ask", "hear", "durable", "promote", "start", "crash", "wipe", "wipe all")
        kind = rng.choices(kinds, (120, 120, 45, 20, 45, crashes, wipes, min(wipes, 1)))[0]
        if kind == "ask":
            self.ask(name)
        elif kind == "hear":
            self.hear(name)
        elif kind == "durable":
            self.make_durable(name)
        elif kind == "start":
            self.start(name, rng.random() < 0.5, rng.randrange(2))
        elif kind == "promote":
            self.promote(name)
        elif kind == "crash":
            self.crash(name)
        else:
            for each in (name,) if kind == "wipe" else NAMES:
                self.wipe(each)
        self.check()

    def settle(self) -> None:
        """No more faults: all run, each asks and hears in turn."""
        for _ in range(30):
            for name in NAMES:
                self.start(name, True, 0)
                for _ in range(2):
                    self.ask(name)
                for _ in range(2):
                    self.hear(name)
                self.make_durable(name)
                self.promote(name)
                self.check()


class Machine(RuleBasedStateMachine):
    @rule(seed=st.integers(0, 2**32))
    def _seeded(self, seed: int) -> None:
        self.world.rng.seed(seed)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)

    @rule(name=st.sampled_from(NAMES), rejoin=st.booleans(), client=st.integers(0, 1))
    def start(self, name: str, rejoin: bool, client: int) -> None:
        self.world.start(name, rejoin, client)

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        self.world.crash(name)

    @rule(name=st.sampled_from(NAMES))
    def wipe(self, name: str) -> None:
        self.world.wipe(name)

    @rule(name=st.sampled_from(NAMES), times=st.integers(1, 3))
    def ask(self, name: str, times: int) -> None:
        for _ in range(times):
            self.world.ask(name)

    @rule(name=st.sampled_from(NAMES), times=st.integers(1, 3))
    def hear(self, name: str, times: int) -> None:
        for _ in range(times):
            self.world.hear(name)

    @rule(name=st.sampled_from(NAMES))
    def make_durable(self, name: str) -> None:
        self.world.make_durable(name)

    @rule(name=st.sampled_from(NAMES))
    def promote(self, name: str) -> None:
        self.world.promote(name)

    @invariant()
    def one_cluster(self) -> None:
        self.world.check()


TestBootstrap = Machine.TestCase
TestBootstrap.settings = settings(max_examples=100, stateful_step_count=60)


def run(seed: int, rule: Rule = decide, steps: int = 500) -> World:
    rng = random.Random(seed)
    world = World(seed, rule)
    crashes, wipes = rng.choice((0, 2, 4, 12)), rng.choice((0, 2, 4, 8))
    for _ in range(steps):
        world.step(rng, crashes, wipes)
    return world


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 1000, 100)], ids=str)
def test_any_schedule_leads_to_one_cluster_at_most(seeds):
    for seed in seeds:
        run(seed)


def test_the_schedules_are_worth_something():
    worlds = [run(seed) for seed in range(300)]
    begun = [sum(log is not None for log in world.logs.values()) for world in worlds]
    assert begun.count(3) > 30 and begun.count(0) > 30
    assert sum(any(membership.removed for membership in world.clusters.values()) for world in worlds) > 10
    assert sum(len(world.clusters) > 1 for world in worlds) > 10, "one after the other, all of the first wiped"


@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, 100, 25)], ids=str)
def test_once_the_faults_end_all_begin_or_say_why_not(seeds):
    """With a majority of a cluster's voters left it takes all back; without one, nobody makes another out of it."""
    for seed in seeds:
        world = run(seed, steps=80)
        world.settle()
        logs = [log for log in world.logs.values() if log is not None]
        if len(logs) < len(NAMES):
            [cluster_id] = {log[1] for log in logs}
            lost = world.leader(cluster_id) == 0
            assert lost or any(process.refused for process in world.processes.values()), f"seed {seed}: {world.logs}"
        else:
            assert len({log[1] for log in logs}) == 1


def weak_no_agreement(intent: Intent, answers: dict[str, Answer]) -> Decision:
    """All have answered and none has begun: that is not enough, for one of them may have been wiped meanwhile."""
    decision = decide(intent, answers)
    others = [address for name, address in INITIAL if name != intent.me.name]
    if not any(answer.cluster_id for answer in answers.values()) and all(address in answers for address in others):
        members = tuple(sorted([intent.me, *(answers[each].member for each in others)], key=lambda one: one.id))
        return Form(cluster_id_of(members), members)
    return decision


def weak_majority(intent: Intent, answers: dict[str, Answer]) -> Decision:
    """A majority forms the cluster without the third: who was only late is left out, or forms one of his own."""
    decision = decide(intent, answers)
    known = [answers[address].member for _, address in INITIAL if address in answers]
    if known and not any(answer.cluster_id for answer in answers.values()):
        members = tuple(sorted([intent.me, *known], key=lambda one: one.id))
        return Form(cluster_id_of(members), members)
    return decision


@pytest.mark.parametrize("weak", [weak_no_agreement, weak_majority])
def test_weaker_rules_are_caught(weak):
    def caught(seed: int) -> bool:
        try:
            run(seed, weak)
        except AssertionError:
            return True
        return False

    assert any(map(caught, range(2000)))
