"""Faults are aimed at what a program does, and count only where they had an effect."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from minikube_py.cluster.aimed_faults import FITS, LATER_US, Aimed, FaultlessRun, drawn
from minikube_py.cluster.explore import Explored, Outcome, explore, run_once
from minikube_py.cluster.program import EVENTS, Step
from minikube_py.sim.faults import Fault
from minikube_py.sim.inject_api import KINDS

MAPS = "/api/v1/namespaces/default/configmaps"
AIMS = {
    "conflict": Step("update", "configmaps", 1),
    "fail": Step("get", "configmaps", 2),
    "throttle": Step("create", "configmaps", 1),
    "lost_answer": Step("update", "configmaps", 1),
    "no_leader": Step("create", "configmaps", 1),
    "slow": Step("list", "configmaps", 1),
    "expire": Step("ADDED", "configmaps", 1),
    "cut_watch": Step("MODIFIED", "configmaps", 1),
    "slow_events": Step("ADDED", "configmaps", 1),
    "unseen": Step("MODIFIED", "configmaps", 1),
    "repeat": Step("ADDED", "configmaps", 1),
    "stale": Step("MODIFIED", "configmaps", 1),
    "crash_client": Step("create", "configmaps", 1),
    "node_down": Step("watch", "configmaps", 1),
}


async def follows(clients: Any) -> None:
    """Creates a config map, changes it, and watches meanwhile; all again after any failure."""

    async def watches() -> None:
        while True:
            listed = (await http.get(MAPS)).json()
            since = {"watch": "true", "resourceVersion": listed.get("metadata", {}).get("resourceVersion", "0")}
            async with http.stream("GET", MAPS, params=since) as response:
                async for line in response.aiter_lines():
                    if json.loads(line)["type"] == "ERROR":
                        break
            await asyncio.sleep(0.2)

    async with clients.httpx_asyncio() as http:
        beside = asyncio.ensure_future(watches())
        await asyncio.sleep(1)
        while True:
            await http.post(MAPS, json={"metadata": {"name": "m"}})
            await asyncio.sleep(0.1)
            found = (await http.get(f"{MAPS}/m")).json()
            if "metadata" in found and found.get("data") != {"a": "b"}:
                await http.put(f"{MAPS}/m", json={**found, "data": {"a": "b"}})
            found = (await http.get(f"{MAPS}/m")).json()
            if found.get("data") == {"a": "b"}:
                break
            await asyncio.sleep(0.1)
        await beside


def followed(*faults: Aimed, nodes: int = 0) -> Outcome:
    def test(minikube: Any) -> None:
        minikube.program(follows)
        minikube.wait("cm/m", until=lambda each: each.get("data") == {"a": "b"}, timeout_s=60)
        minikube.advance(20)

    return run_once(test, 3, faults, nodes)


def of_kind(kind: str) -> Fault:
    subject = "node-0" if kind == "node_down" else "" if kind in ("crash_client", "no_leader") else "configmaps"
    lasts = 1_000_000 if kind in ("no_leader", "slow", "slow_events", "unseen", "node_down") else 0
    return Fault(0, kind, (), (), lasts, 0.0 if kind == "crash_client" else 1.0, subject)


def test_every_kind_that_is_drawn_has_an_aim_here() -> None:
    assert {*AIMS} == {*KINDS} - {"node_up"} and {*FITS} <= {*AIMS}
    assert all(AIMS[kind].verb in verbs for kind, verbs in FITS.items())


@pytest.mark.parametrize("kind", AIMS)
def test_a_fault_meets_the_step_that_it_is_aimed_at(kind: str) -> None:
    step = AIMS[kind]
    outcome = followed(Aimed(of_kind(kind), step), nodes=int(kind == "node_down"))
    assert outcome.passed, outcome.error
    assert outcome.met == (kind,) and [each.step for _, each in outcome.begun] == [step]
    lines = outcome.timeline.lines()
    fault = next(place for place, line in enumerate(lines) if "fault: " in line)
    after = "\n".join(lines[fault : fault + 4])
    said = {
        "conflict": f"PUT {MAPS}/m: 409 ", "fail": f"GET {MAPS}/m: 500 ", "throttle": f"POST {MAPS}: 429 ",
        "lost_answer": f"PUT {MAPS}/m: 504 ", "no_leader": f"POST {MAPS}: 503 ",
        "crash_client": f"was about to POST {MAPS}",
    }  # fmt: skip
    assert said.get(kind, "") in after


@pytest.mark.parametrize("kind", ["expire", "cut_watch", "unseen"])
def test_an_event_that_a_fault_is_aimed_at_is_not_seen(kind: str) -> None:
    def seen(outcome: Outcome) -> int:
        return "\n".join(outcome.timeline.lines()).count("sees MODIFIED")

    assert seen(followed()) == 1
    fault = of_kind(kind)._replace(duration_us=100_000)
    assert seen(followed(Aimed(fault, Step("MODIFIED", "configmaps", 1)))) == 0


@pytest.mark.parametrize("kind", [each for each in AIMS if each != "node_down"])
def test_a_fault_that_met_nothing_does_not_count(kind: str) -> None:
    """The first runs in vain, after the program's last request; the other's step never comes."""
    late = of_kind(kind)._replace(at_us=15_000_000, subject="pods" if kind != "crash_client" else "")
    if kind == "no_leader":
        late = late._replace(duration_us=10_000)
    outcome = followed(Aimed(late), Aimed(of_kind(kind), Step("delete", "configmaps", 1)))
    assert outcome.passed, outcome.error
    assert [each.kind for _, each in outcome.begun] == [kind] and outcome.met == ()


def test_of_nothing_nothing_is_met() -> None:
    explored = explore(lambda minikube: minikube.advance(5), range(1, 9), nodes=0)
    assert explored.text() == "8 seeds, 0 faults of 0 kinds"


@pytest.mark.parametrize(
    ("explored", "text"),
    [
        (Explored(1, 1, Counter(a=1)), "1 seed, 1 fault of 1 kind"),
        (Explored(3, 1, Counter(a=1, b=1)), "1 of 3 seeds, 2 faults of 2 kinds"),
    ],
)
def test_what_was_explored_is_told_in_numbers(explored: Explored, text: str) -> None:
    assert explored.text() == text


def test_what_a_program_does_not_do_no_fault_is_aimed_at() -> None:
    calm = FaultlessRun(5_000_000, {("get", "pods"): 3, ("create", "pods"): 1})
    faults = [each for seed in range(300) for each in drawn(seed, calm, nodes=0)]
    assert {each.kind for each in faults} == {"fail", "throttle", "slow", "no_leader", "lost_answer", "crash_client"}
    for fault, step in faults:
        assert step is not None and step.nth <= calm.steps[step.verb, step.plural]
        assert fault.at_us == 0 and step.verb in FITS[fault.kind]


def test_without_a_program_the_test_itself_may_be_the_client() -> None:
    faults = [each for seed in range(99) for each in drawn(seed, FaultlessRun(5_000_000), nodes=0)]
    assert {each.kind for each in faults} == {*AIMS} - {"node_down"} and {each.step for each in faults} == {None}
    assert {each.fault.subject for each in faults} == {""} and max(each.fault.at_us for each in faults) < 5_000_000


def test_one_seed_tries_every_step_before_it_repeats_one() -> None:
    steps = {(verb, "pods"): 1 for verb in ("create", "update", "delete", "watch", *EVENTS)}
    for seed in range(300):
        faults = drawn(seed, FaultlessRun(5_000_000, steps), nodes=0)
        for kind in {each.kind for each in faults}:
            aims = [each.step for each in faults if each.kind == kind]
            fitting = len(FaultlessRun(1, steps).fitting(kind))
            assert len({*aims[:fitting]}) == len(aims[:fitting])
        assert all(0 <= each.fault.at_us <= LATER_US[1] for each in faults)


def test_the_schedule_says_when_each_fault_begins() -> None:
    fault = Fault(0, "cut_watch", subject="pods")
    cut = "cut_watch (as by cut_watches()): watches of pods end; they can be resumed"
    assert str(Aimed(fault, Step("DELETED", "pods", 2))) == f"at the 2nd DELETED event of pods: {cut}"
    later = fault._replace(at_us=1_500_000)
    assert str(Aimed(later, Step("create", "pods", 1))) == f"1.500 s after the 1st create of pods: {cut}"
    assert str(Aimed(later)) == f"1.500 s after the start: {cut}"


def test_a_stale_list_is_as_before_a_change_since_the_start() -> None:
    def back(subject: str, draw: int) -> tuple[int, int]:
        """How many revisions, and how many more config maps the next list has than the first."""
        fault = Fault(0, "stale", amount=float(draw), subject=subject)
        outcome = followed(Aimed(fault, Step("MODIFIED", "configmaps", 1)))
        [(_, begun)] = outcome.begun
        lists = [line for line in outcome.timeline.lines() if f"GET {MAPS}: 200 with " in line]
        at = [int(line.split(" with ")[1].split()[0]) for line in lists]
        return int(begun.fault.amount), at[1] - at[0] if subject == "configmaps" else 0

    came, more = back("configmaps", 1)
    # The change before the last of all is its creation.
    assert more == 0 and back("configmaps", 2) == (came, more)
    changed, more = min(back("configmaps", draw) for draw in range(4, 18, 2))
    assert 1 <= changed < came and more == 1
    # They were there before the program, and were never otherwise.
    assert back("namespaces", 1)[0] == back("namespaces", 2)[0] == 1
