"""Schedules are data that follow from their seed; what befalls messages is what was said."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import LogIndex, Message, MessageType
from minikube_py.sim.fault_schedule import APART, KINDS, REGISTRY, Apart, drawn_plan, named_schedule
from minikube_py.sim.faults import LEADER, Fault, Plan, aim
from minikube_py.sim.loop import Scheduler, SimLoop
from minikube_py.sim.message_links import MessageTroubles, TroubledLinks
from minikube_py.sim.run import SPAN_US, drawn_options


def drawn(seed: int, **plan) -> list[Fault]:
    return list(named_schedule(seed, Plan(**{"kinds": KINDS} | plan)).values())


def test_the_same_seed_gives_the_same_schedule():
    assert drawn(7, count=40) == drawn(7, count=40) != drawn(8, count=40)
    assert drawn_options(7) == drawn_options(7) != drawn_options(8)


def test_every_kind_is_drawn():
    kinds = Counter(fault.kind for seed in range(40) for fault in drawn(seed, count=30))
    assert kinds.keys() == set(KINDS)
    assert min(kinds.values()) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_faults_are_within_their_plan(kind):
    for seed in range(30):
        faults = drawn(seed, members=5, span_us=1000, count=5, kinds=(kind,), spare=2)
        assert [fault.at_us for fault in faults] == sorted(fault.at_us for fault in faults)
        for fault in faults:
            assert fault.kind == kind and fault.duration_us >= 0 and fault.amount >= 0
            places = range(5, 7) if kind == "grow" else range(5)
            assert fault.places and set(fault.places) <= set(places) and set(fault.others) <= set(range(5))


def test_a_plan_without_kinds_is_quiet():
    assert drawn(1, count=10, kinds=()) == []
    plans = [drawn_plan(seed, SPAN_US) for seed in range(200)]
    assert {plan.members for plan in plans} == {1, 3, 5}
    assert any(plan.count == 0 for plan in plans) and {plan.aimed > 0 for plan in plans} == {False, True}


@pytest.mark.parametrize(
    "fault, leader, aimed",
    [
        (Fault(1, "kill", (2,)), None, Fault(1, "kill", (2,))),
        (Fault(1, "kill", (LEADER,)), 2, Fault(1, "kill", (2,))),
        (Fault(1, "kill", (LEADER,)), None, None),
        (Fault(1, "cut", (LEADER,), (0, 1, 2)), 1, Fault(1, "cut", (1,), (0, 2))),
        (Fault(1, "cut", (0, 1, 2), (LEADER,)), 1, Fault(1, "cut", (0, 2), (1,))),
    ],
)
def test_faults_are_aimed_at_whoever_leads(fault, leader, aimed):
    assert aim(fault, leader, 3) == aimed


@pytest.mark.parametrize("apart", APART, ids=lambda apart: apart.name)
def test_some_histories_are_drawn_apart(apart: Apart):
    kinds = apart.changes["kinds"]
    drawn = [drawn_options(seed).plan for seed in range(400)]
    meant = [plan for plan in drawn if plan.kinds == kinds]
    assert 0.5 * apart.share < len(meant) / 400 < 1.5 * apart.share and all(plan.members > 1 for plan in meant)
    faults = [fault for seed in range(5) for fault in named_schedule(seed, meant[0]).values()]
    assert set(kinds) <= {fault.kind for fault in faults} | {"supersede"}


def test_every_row_of_the_registry_says_what_it_means():
    assert all(row.kind == kind and len(row.about) > 10 for kind, row in REGISTRY.items())


# -- messages ----------------------------------------------------------------------------------------------------------


class Wire:
    """Links that note when each message comes to them."""

    def __init__(self, loop) -> None:
        self.loop, self.sent = loop, []

    def send(self, messages) -> None:
        self.sent += [(message.commit, self.loop.scheduler.now_s) for message in messages]

    def update(self, members, removed) -> None:
        self.updated = (members, removed)


def carried(kind: str, amount: float, *, type=MessageType.HEARTBEAT, heal=False) -> list[tuple[int, float]]:
    """A hundred numbered messages over a troubled link: which came, and when."""
    loop = SimLoop(Scheduler(1))
    troubles, wire, told = MessageTroubles(), Wire(loop), []
    links = TroubledLinks(wire, loop, random.Random(1), "a", troubles, lambda node: "bc"[node], told.append)
    end = troubles.begin(kind, ["a"], ["a", "b"], amount)
    if heal:
        end()
    for number in range(100):
        links.send([Message(type, NodeId(9), NodeId(0), commit=LogIndex(number))])
    loop.scheduler.run_to(10_000_000_000)
    assert [message.commit for message in told] == list(range(100)), "all that was sent is reported, lost or not"
    links.send([Message(type, NodeId(9), NodeId(1), commit=LogIndex(100))])
    assert wire.sent[-1][0] == 100, "the link to another is sound"
    return wire.sent[:-1]


def test_messages_are_lost():
    assert 20 < len(carried("loss", 0.5)) < 80
    assert len(carried("loss", 0.5, heal=True)) == 100
    assert len(carried("loss", 1.0, type=MessageType.SNAPSHOT)) == 100, "its sender has to hear of its end"


def test_messages_come_twice():
    sent = carried("double", 0.5)
    assert 120 < len(sent) < 180 and {number for number, _ in sent} == set(range(100))


def test_messages_overtake_each_other():
    sent = carried("delay", 1_000_000)
    numbers = [number for number, _ in sent]
    assert sorted(numbers) == list(range(100)) != numbers and max(at_s for _, at_s in sent) <= 1.0
