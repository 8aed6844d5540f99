"""Schedules are data that follow from their seed; links and steps do what schedules say."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from minikube_py.sim.faults import KINDS, LEADER, Fault, Plan, aim, drawn_plan, schedule
from minikube_py.sim.links import HELD, Links
from minikube_py.sim.run import SPAN_US, drawn_options
from minikube_py.sim.steps import Steps


def drawn(seed: int, **plan) -> list[Fault]:
    return schedule(random.Random(seed), Plan(**plan))


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
    plans = [drawn_plan(random.Random(seed), SPAN_US) for seed in range(200)]
    assert {plan.members for plan in plans} == {1, 3, 5}
    assert any(plan.count == 0 for plan in plans) and all(plan.aimed == 0.0 for plan in plans)
    assert any(drawn_plan(random.Random(seed), SPAN_US, aimed=True).aimed for seed in range(20))


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


# -- links -------------------------------------------------------------------------------------------------------------


def test_a_sound_link_keeps_order():
    links = Links(random.Random(1))
    arrivals = [links.arrivals(now, 0, 1)[0] for now in range(100)]
    assert arrivals == sorted(set(arrivals)) and arrivals[0] >= 200
    assert links.arrivals(0, 3, 3) == (20,), "who is in the same place is near"


def test_what_faults_do_to_messages():
    links = Links(random.Random(1))
    link = links.link(0, 1)
    link.cuts += 1
    assert links.arrivals(5, 0, 1) == () and links.lost == 1
    assert links.arrivals(5, 1, 0), "the other way is another link"
    link.cuts -= 1
    link.clogs += 1
    assert links.arrivals(5, 0, 1) == (HELD,)
    link.clogs -= 1
    link.loss += [0.1, 1.0]
    assert links.arrivals(5, 0, 1) == ()
    link.loss.remove(1.0)
    assert any(links.arrivals(5, 0, 1) for _ in range(50))
    link.loss.clear()
    link.double.append(1.0)
    assert len(links.arrivals(5, 0, 1)) == 2 and links.doubled == 1
    link.double.clear()
    link.delays.append(1_000_000)
    arrivals = [links.arrivals(now, 0, 1)[0] for now in range(50)]
    assert arrivals != sorted(arrivals), "they overtake each other"
    assert not link.sound
    links.heal()
    assert links.link(0, 1).sound


# -- steps -------------------------------------------------------------------------------------------------------------


def test_steps_are_taken_in_order_and_at_times_of_their_own():
    steps = Steps()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, steps.now_us))

    steps.at(10, note, "b")
    steps.at(10, note, "c")
    steps.at(3, note, "a")
    steps.at(10, lambda: steps.after(0, note, "e"))
    steps.at(12, note, "d")
    assert not steps.run(100)
    assert [name for name, _ in seen] == ["a", "b", "c", "d", "e"]
    times = [at_us for _, at_us in seen]
    assert times == sorted(set(times)) and steps.now_us == 100 and steps.taken == 6


def test_steps_end_where_they_are_done():
    steps = Steps()
    seen: list[int] = []
    for number in range(10):
        steps.at(number * 10_000, seen.append, number)
    assert steps.run(1_000_000, lambda: len(seen) == 4)
    assert seen == [0, 1, 2, 3] and steps.now_us == 30_000
    assert steps.run(1_000_000, lambda: len(seen) == 10) and steps.now_us == 90_000
    assert not steps.run(1_000_000, lambda: False) and steps.now_us == 1_000_000


def test_a_stop_is_the_end():
    steps = Steps()
    seen: list[int] = []
    steps.at(1, seen.append, 1)
    steps.at(2, steps.stop)
    steps.at(3, seen.append, 3)
    assert not steps.run(100) and not steps.run(200)
    assert seen == [1] and steps.now_us == 2
