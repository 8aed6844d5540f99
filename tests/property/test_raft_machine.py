"""A cluster of three to five Raft members under all that may go wrong, with Raft's laws checked after every step.

Messages are lost, doubled, delayed and reordered, links cut, disks slow; a crash loses what was not synced, or keeps a
first part of it. In the end all is healed: then there must be a leader, a new entry on all members, and equal states.

An ordinary run takes about 15 s and draws the same examples each time. For long runs:

    RAFT_MACHINE_EXAMPLES=3000 RAFT_MACHINE_STEPS=120 pytest tests/property/test_raft_machine.py --hypothesis-seed=7

(any of the two; the examples then depend on the seed, and the time limit of a test is off).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from raft_rules import Broken, is_quorum
from raft_world import NOTHING, Listener, Member, World

from minikube_py.raft.codec import encode_change
from minikube_py.raft.configuration import Change, ChangeRefused, ChangeType, ConfChange, Configuration
from minikube_py.raft.message import Entry, EntryKind, HardState, Message, MessageType
from minikube_py.raft.ready import ProposalDropped

LONG = "RAFT_MACHINE_EXAMPLES" in os.environ or "RAFT_MACHINE_STEPS" in os.environ
EXAMPLES = int(os.environ.get("RAFT_MACHINE_EXAMPLES", 300))
STEPS = int(os.environ.get("RAFT_MACHINE_STEPS", 60))
PLANTED = settings.get_current_profile_name() == "planted"

MEMBERS = 5
ELECTION_TICKS = 5
ROUNDS_TO_CONVERGE = 60 * ELECTION_TICKS

MEMBER = st.integers(1, MEMBERS)
WHO = st.integers(0, MEMBERS)
"""0: whoever leads."""
PLACE = st.integers(0, 40)
SIDE = st.integers(0, 2**MEMBERS - 1)
"""A set of members, a bit for each."""
COUNT = st.integers(1, 3)
THEN = st.sampled_from(("arrives", "arrives again", "is lost", "is late"))
CHANGES = st.lists(st.builds(Change, st.sampled_from(ChangeType), MEMBER), min_size=1, max_size=3).map(tuple)

TOTALS: Counter[str] = Counter()
"""Over all examples of this process; printed after a long run."""


def members(side: int) -> list[int]:
    return [id for id in range(1, MEMBERS + 1) if side >> id - 1 & 1]


def bootstrap(world: World, voters: frozenset[int], by_entry: bool, knobs: dict) -> None:
    """All voters begin alike: with a snapshot at entry 1, or with a committed entry that names them. The others have
    nothing and are in no configuration."""
    adds = ConfChange(tuple(Change(ChangeType.ADD_VOTER, id) for id in sorted(voters)))
    first = Entry(1, 1, encode_change(adds), EntryKind.CHANGE)
    for id in range(1, MEMBERS + 1):
        if id not in voters:
            world.add(id, NOTHING, **knobs)
        elif by_entry:
            world.add(id, NOTHING, entries=[first], hard_state=HardState(1, 0, 1), **knobs)
        else:
            world.add(id, Configuration(voters), index=1, term=1, **knobs)
        world.work(id)


class RaftMachine(RuleBasedStateMachine):
    @initialize(
        size=st.sampled_from((3, 5, 3, 4, 5, 2, 1)),
        seed=st.integers(0, 9999),
        by_entry=st.booleans(),
        pre_vote=st.booleans(),
        check_quorum=st.booleans(),
        small=st.booleans(),
        leads=st.integers(0, 3),
    )
    def start(
        self, size: int, seed: int, by_entry: bool, pre_vote: bool, check_quorum: bool, small: bool, leads: int
    ) -> None:
        limits = {"append_bytes_max": 40, "inflight_messages_max": 2, "committed_bytes_max": 60} if small else {}
        knobs = {"election_ticks": ELECTION_TICKS, "pre_vote": pre_vote, "check_quorum": check_quorum, **limits}
        self.world = World(seed=seed)
        self.proposed = self.asked = 0
        bootstrap(self.world, frozenset(range(1, size + 1)), by_entry, knobs)
        if 0 < leads <= size:
            self.world.elect(leads)

    # Time and messages. `acts`: whoever was asked does at once what follows; else it waits for its turn.

    @rule(id=MEMBER, count=st.integers(1, 2 * ELECTION_TICKS), acts=st.booleans())
    def tick(self, id: int, count: int, acts: bool) -> None:
        """The most: it stands for election."""
        if self.up(id):
            if count == 2 * ELECTION_TICKS:
                self.world.campaign(id)
            else:
                self.world.tick(id, count)
            self.act(id, acts)

    @rule(count=COUNT, acts=st.booleans())
    def tick_all(self, count: int, acts: bool) -> None:
        for member in self.world.up():
            self.world.tick(member.id, count)
            self.act(member.id, acts)

    @rule(places=st.lists(PLACE, min_size=1, max_size=8), acts=st.booleans(), keep=st.integers(0, 7))
    def deliver(self, places: list[int], acts: bool, keep: int) -> None:
        """Some messages arrive, in any order; one may stay under way and arrive again."""
        for number, place in enumerate(places):
            if self.world.links:
                to = self.world.deliver(place % len(self.world.links), keep=number == keep).to
                self.act(to, acts)

    @rule(places=st.lists(PLACE, min_size=4, max_size=12))
    def deliver_many(self, places: list[int]) -> None:
        self.deliver(places, acts=True, keep=len(places))

    @precondition(lambda self: self.world.links)
    @rule(place=PLACE, count=COUNT)
    def drop(self, place: int, count: int) -> None:
        for _ in range(min(count, len(self.world.links))):
            self.world.drop(place % len(self.world.links))

    @rule(count=st.integers(1, 12))
    def flow(self, count: int) -> None:
        """All work; what is under way arrives, oldest first."""
        for _ in range(count):
            for member in self.world.up():
                self.world.work(member.id)
            for _ in range(len(self.world.links)):
                self.world.deliver()

    @rule(rounds=st.integers(1, 6), healed=st.booleans())
    def live(self, rounds: int, healed: bool) -> None:
        """All goes well for a while, as far as the links allow it."""
        if healed:
            self.world.heal()
            self.world.slow = set()
            self.restart()
        for _ in range(rounds):
            for member in self.world.up():
                self.world.tick(member.id)
            self.world.settle()
        self.world.give_wanted_snapshots()

    @rule(rounds=st.integers(2, 2 * ELECTION_TICKS))
    def live_longer(self, rounds: int) -> None:
        self.live(rounds, healed=False)

    @rule(count=COUNT)
    def flow_twice(self, count: int) -> None:
        """All arrives, and later, when more has happened, all arrives once more, latest first."""
        for _ in range(count):
            for member in self.world.up():
                self.world.work(member.id)
            batch = len(self.world.links)
            for place in range(batch):
                self.world.deliver(place, keep=True)
            for member in self.world.up():
                self.world.work(member.id)
            for place in reversed(range(batch)):
                self.world.deliver(place)

    # Disks

    @rule(id=MEMBER, steps=st.lists(st.sampled_from(("turn", "turn", "no-write", "sync")), min_size=1, max_size=6))
    def drive(self, id: int, steps: list[str]) -> None:
        """One member's driver goes some steps; several writes may be under way at once."""
        if self.up(id):
            for step in steps:
                if step == "sync":
                    if self.world.members[id].disk.pending:
                        self.world.sync(id)
                else:
                    self.world.turn(id, can_write=step == "turn")

    @rule(side=SIDE)
    def slow_down(self, side: int) -> None:
        """These disks sync nothing, until further notice; the others catch up."""
        self.world.slow = set(members(side))
        for member in self.world.up():
            self.act(member.id, member.id not in self.world.slow)

    @precondition(lambda self: len(self.world.up()) > MEMBERS - 2)
    @rule(id=WHO, kept=st.integers(0, 6), stays=st.booleans())
    def crash(self, id: int, kept: int, stays: bool) -> None:
        if (member := self.who(id)) is not None:
            self.world.crash(member.id, kept)
            if not stays:
                self.world.restart(member.id)

    @precondition(lambda self: len(self.world.up()) < MEMBERS)
    @rule()
    def restart(self) -> None:
        for member in self.world.members.values():
            if member.raft is None:
                self.world.restart(member.id)

    @rule(id=WHO, back=st.sampled_from((0, 0, 1, 3)), tail=st.sampled_from((0, 0, 1, 4)))
    def compact(self, id: int, back: int, tail: int) -> None:
        """A snapshot of what is applied or a little less; `tail` entries stay for those who are slow."""
        if (member := self.who(id)) is not None:
            log = member.up.log
            index = max(member.applied - back, log.offset, member.disk.snapshot.meta.index)
            # A snapshot that is still on its way to the disk is none to be followed by another.
            if index and member.disk.holds(index, log.term(index)):
                self.world.take_snapshot(member.id, index, compact=max(index - tail, log.offset))

    # Links

    @rule(side=SIDE)
    def partition(self, side: int) -> None:
        """Two sides; the links that are cut are cut again."""
        self.world.partition(members(side), members(~side))

    @rule(id=WHO, to=MEMBER, noticed=st.booleans())
    def cut_one_way(self, id: int, to: int, noticed: bool) -> None:
        if (member := self.who(id)) is not None and member.id != to:
            self.world.cut_off(member.id, to)
            if noticed:
                self.world.call(member.id, lambda raft: raft.report(to, False))

    # Deep states. Each of these begins with a leader, and with a cluster that is well if it has none.

    def leading(self) -> Member | None:
        if self.world.leader() is None:
            self.live(1, healed=True)
            for _ in range(4 * ELECTION_TICKS):
                if self.world.leader() is not None:
                    break
                self.live(1, healed=False)
        return self.world.leader()

    @rule(side=SIDE, ahead=st.booleans(), tail=st.integers(0, 4), asks=st.booleans(), returns=st.booleans())
    def depose(self, side: int, ahead: bool, tail: int, asks: bool, returns: bool) -> None:
        """The leader is cut off with some others, and the rest elect another while it does not know. `ahead`: it alone
        knows that its last entry is committed. `tail`: it takes so many more, which reach nobody else. `asks`: both
        are asked for a read, and take an entry. `returns`: it is back, and stands for election."""
        leader = self.leading()
        if leader is None:
            return
        if ahead:
            self.propose(leader.id, 1, 0, acts=True)
            for _ in range(2):
                for _ in range(len(self.world.links)):
                    self.world.deliver()
                for id in members(~(1 << leader.id - 1)):
                    self.act(id, True)
        rest = set(members(-1)) - {leader.id}
        for id in members(side):
            if is_quorum(leader.up.configuration, rest - {id}):
                rest.discard(id)
        self.world.partition(set(members(-1)) - rest, rest)
        self.world.slow -= rest
        if tail:
            self.propose(leader.id, tail, 0, acts=True)
        self.elect_among(sorted(rest), leader)
        if asks:
            self.read_index(0, acts=True)
            self.flow(3)
            self.propose(leader.id, 1, 0, acts=True)
            self.propose(0, 1, 0, acts=True)
            self.flow(2)
            self.read_index(leader.id, acts=True)
        if returns and leader.raft is not None:
            self.world.heal()
            self.world.campaign(leader.id)
            self.act(leader.id, True)
            self.flow(1)

    @rule(id=MEMBER, count=st.sampled_from((5, 4, 2)), stands=st.booleans())
    def depose_beside_a_slow_disk(self, id: int, count: int, stands: bool) -> None:
        """One member alone hears the leader's last entries, and its disk syncs none of them. The others elect another
        leader; both leaders are heard by the slow one before its disk is done. `stands`: it stood for election, too."""
        leader = self.leading()
        if leader is None or leader.id == id or not self.up(id):
            return
        self.world.slow = {id}
        for _ in range(count):
            self.propose(leader.id, 1, 0, acts=True)
            for _ in range(len(self.world.links)):
                if self.world.links[0].message.to == id:
                    self.world.deliver()
                else:
                    self.world.drop()
            self.act(id, True)
        rest = set(members(-1)) - {leader.id, id}
        self.world.partition([leader.id, id], rest)
        if stands:
            self.world.campaign(id)
            self.act(id, True)
        self.elect_among(sorted(rest), leader)
        self.world.heal()
        self.tick_all(1, acts=True)
        self.flow(2)
        self.slow_down(0)

    def elect_among(self, rest: list[int], old: Member) -> None:
        for _ in range(4 * ELECTION_TICKS):
            for id in rest:
                if self.up(id):
                    self.world.tick(id)
                    self.act(id, True)
            for _ in range(len(self.world.links)):
                self.world.deliver()
            if self.world.leader() not in (None, old):
                return

    @rule(voters=st.integers(1, 2**MEMBERS - 1), side=SIDE)
    def part_while_joint(self, voters: int, side: int) -> None:
        """Several change at once, and the links break while both halves decide."""
        leader = self.leading()
        if leader is None:
            return
        now, target = leader.up.configuration.voters, set(members(voters))
        adds = [Change(ChangeType.ADD_VOTER, id) for id in sorted(target - now)]
        removes = [Change(ChangeType.REMOVE, id) for id in sorted(now - target)]
        if len(adds) + len(removes) > 1:
            self.change(leader.id, (*adds, *removes), acts=True)
            for _ in range(6):
                if leader.raft is None or leader.raft.configuration.joint:
                    break
                self.flow(1)
            self.partition(side)
            self.propose(leader.id, 1, 0, acts=True)
            self.flow(2)

    @rule(id=MEMBER, count=COUNT, unheard=st.booleans(), keeps=st.sampled_from((0, 0, 1, 2)), then=THEN)
    def fall_behind(self, id: int, count: int, unheard: bool, keeps: int, then: str) -> None:
        """One is cut off; the others go on, and forget what it needs; then it is back, and may be sent a snapshot.
        `unheard`: it has what it needs, but its acknowledgements were lost. `then`: what becomes of the snapshot."""
        leader = self.leading()
        if leader is None or leader.id == id:
            return
        if unheard:
            self.propose(leader.id, count + keeps, 3, acts=True)
            for _ in range(len(self.world.links)):
                self.world.deliver()
            self.world.partition([id], members(~(1 << id - 1)))
        else:
            self.world.partition([id], members(~(1 << id - 1)))
            self.propose(leader.id, count, 3, acts=True)
        self.flow(3)
        if not self.up(leader.id):
            return
        self.compact(leader.id, keeps, 0)
        self.world.heal()
        self.world.call(leader.id, lambda raft: raft.report(id, False))
        self.world.tick(leader.id)
        for _ in range(2):
            self.act(leader.id, True)
            if not self.snapshots_under_way():
                self.flow(1)
        late = [self.world.links[place] for place in self.snapshots_under_way()]
        if then == "is lost":
            for place in reversed(self.snapshots_under_way()):
                self.world.drop(place)
        elif then != "is late":
            self.flow(2)
        if then == "arrives again":
            self.propose(leader.id, count, 0, acts=True)
            self.flow(2)
            self.world.links.extend(late)

    def snapshots_under_way(self) -> list[int]:
        return [n for n, one in enumerate(self.world.links) if one.message.type == MessageType.SNAPSHOT]

    @rule(count=COUNT, size=st.integers(0, 30), back=st.booleans())
    def leave_uncommitted(self, count: int, size: int, back: bool) -> None:
        """What the leader takes last reaches nobody; `back`: it is elected again, and has entries of an older term."""
        leader = self.leading()
        if leader is None:
            return
        self.world.partition([leader.id], members(~(1 << leader.id - 1)))
        self.propose(leader.id, count, size, acts=True)
        self.world.heal()
        if back:
            self.world.crash(leader.id, kept=20)
            self.world.restart(leader.id)
            self.world.campaign(leader.id)
            self.act(leader.id, True)

    @precondition(lambda self: self.world.cut)
    @rule()
    def heal(self) -> None:
        self.world.heal()

    # What is asked

    @rule(id=WHO, count=st.sampled_from((1, 2, 8)), size=st.integers(0, 30), acts=st.booleans())
    def propose(self, id: int, count: int, size: int, acts: bool) -> None:
        if (member := self.who(id)) is not None:
            for _ in range(count):
                self.proposed += 1
                self.world.propose(member.id, b"%d " % self.proposed + b"x" * size)
            self.act(member.id, acts)

    @rule(id=WHO, changes=CHANGES, acts=st.booleans())
    def change(self, id: int, changes: tuple[Change, ...], acts: bool) -> None:
        self.ask(id, lambda world, id: world.call(id, lambda raft: raft.propose_change(ConfChange(changes))), acts)

    @rule(id=WHO, acts=st.booleans())
    def read_index(self, id: int, acts: bool) -> None:
        self.asked += 1
        self.ask(id, lambda world, id: world.read_index(id, b"read%d" % self.asked), acts)

    @rule(id=WHO, to=MEMBER, acts=st.booleans())
    def transfer(self, id: int, to: int, acts: bool) -> None:
        self.ask(id, lambda world, id: world.call(id, lambda raft: raft.transfer(to)), acts)

    def ask(self, id: int, what: Callable[[World, int], object], acts: bool) -> None:
        if (member := self.who(id)) is not None:
            with suppress(ProposalDropped, ChangeRefused):
                what(self.world, member.id)
            self.world.laws.observe(member)
            self.act(member.id, acts)

    def act(self, id: int, acts: bool) -> None:
        if acts and self.up(id):
            self.world.work(id)

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "world") or sys.exc_info()[0] is not None:
            return  # it has failed already, and that is what is to be told
        converge(self.world)
        for name, count in self.world.laws.counts.items():
            TOTALS[name] += count
            event(f"{name}: {min(count, 5)}{'+' if count > 5 else ''}")
        TOTALS["examples"] += 1
        TOTALS["committed"] += self.world.laws.commit

    def up(self, id: int) -> bool:
        return self.world.members[id].raft is not None

    def who(self, id: int) -> Member | None:
        """Who is meant, if it is up; 0 is whoever leads, or else anybody."""
        if id:
            return self.world.members[id] if self.up(id) else None
        return self.world.leader() or next(iter(self.world.up()), None)


def converge(world: World) -> None:
    """Heals all. Raises: AssertionError where no leader is there, or a member lags, after a bounded time."""
    world.heal()
    world.slow = set()
    for member in world.members.values():
        if member.raft is None:
            world.restart(member.id)
    marked: tuple[int, int] | None = None
    why = "nothing happened"
    for number in range(ROUNDS_TO_CONVERGE):
        for member in world.up():
            world.tick(member.id)
        world.settle()
        leader = world.leader()
        if leader is None:
            why = "no leader"
            continue
        world.give_wanted_snapshots()
        if marked is None or marked[0] != leader.up.term or number % (4 * ELECTION_TICKS) == 0:
            index = world.propose(leader.id, b"marker %d" % number)
            marked = None if index is None else (leader.up.term, index)
            world.settle()
        why = not_converged(world, leader, marked[1] if marked else None)
        if not why:
            return
    states = [(m.id, m.up.role, m.up.term, m.up.log.committed, m.applied, m.up.configuration) for m in world.up()]
    raise AssertionError(f"not converged after {ROUNDS_TO_CONVERGE} rounds: {why}; {states}")


def not_converged(world: World, leader: Member, index: int | None) -> str:
    """Why not, or nothing."""
    if index is None:
        return "no entry was taken"
    configuration = leader.up.configuration
    if configuration.joint:
        return "the configuration is still joint"
    for id in configuration.members():
        member = world.members[id]
        if member.applied < index or member.applied != leader.applied:
            return f"node {id} has applied {member.applied} of {index}"
        if member.state != leader.state or member.up.configuration != configuration:
            return f"node {id} is in another state"
        if member.up.leader != leader.id:
            return f"node {id} follows {member.up.leader}"
    return ""


TestRaft = RaftMachine.TestCase
TestRaft.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize=not (LONG or PLANTED),
    suppress_health_check=list(HealthCheck),
)
TestRaft = pytest.mark.timeout(0 if LONG else 600)(TestRaft)


class Late(Listener):
    """Keeps the appends of former leaders that go beyond what those have handed out since a newer one cut their log."""

    def __init__(self) -> None:
        self.appends: list[Message] = []

    def sent(self, member: Member, message: Message, *, after: bool) -> None:
        late = message.type == MessageType.APPEND and message.term < member.up.term
        if late and message.index > member.up.log.handed:
            self.appends.append(message)


def deposed_with_an_append_queued() -> tuple[RaftMachine, Late]:
    """A drawn example: member 4 queues an append without entries when a heartbeat is answered, and member 5, elected
    meanwhile, cuts its log before that append leaves."""
    machine = RaftMachine()
    machine.start(size=5, seed=0, by_entry=False, pre_vote=False, check_quorum=False, small=False, leads=0)
    machine.flow(2)
    machine.depose(side=0, ahead=False, tail=0, asks=False, returns=False)
    machine.heal()
    machine.flow(4)
    machine.tick_all(1, acts=False)
    machine.depose(side=2, ahead=False, tail=2, asks=False, returns=False)
    late = machine.world.listener = Late()
    return machine, late


def test_what_a_deposed_leader_had_queued_leaves_late_and_harms_nothing() -> None:
    machine, late = deposed_with_an_append_queued()
    converge(machine.world)
    assert late.appends and not any(message.entries for message in late.appends)


def test_an_append_beyond_what_was_handed_out_breaks_a_law() -> None:
    machine, late = deposed_with_an_append_queued()
    converge(machine.world)
    [append, *_] = late.appends
    for message in (append._replace(index=append.index + 1), append._replace(term=append.term - 1)):
        machine.world[append.sender].messages.append(message)
        with pytest.raises(Broken, match="handed out"):
            machine.world.work(append.sender)


def test_what_the_examples_contained() -> None:
    """The machine reaches what it is meant to reach; else its laws were checked on idle clusters."""
    if not TOTALS:
        pytest.skip("no examples were run in this process")
    print(dict(TOTALS))
    for name in ("elections", "changes", "restarts", "snapshots", "reads", "committed"):
        assert TOTALS[name] >= TOTALS["examples"] / 4, (name, TOTALS)
