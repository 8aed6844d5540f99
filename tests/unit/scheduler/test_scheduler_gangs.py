"""Gangs in virtual time: bound whole or not at all, and nothing stays reserved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from gang_world import GROUPS, PODS, World, group, pod

Make = Callable[..., World]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[World] = []

    def world(*cpus: int, **more: object) -> World:
        made.append(World(*cpus, **more))  # type: ignore[arg-type]
        return made[-1]

    yield world
    for each in made:
        each.close()


def test_a_gang_waits_until_enough_of_its_pods_are_there(make: Make) -> None:
    world = make(4)
    world.make(group("g", 3), pod("a", "g"), pod("b", "g"))
    world.cluster.advance(30)
    assert world.bound() == set()
    assert world.scheduler.queue.pending()["gated"] == 2
    assert world.condition("g") is None
    world.make(pod("c", "g"))
    world.cluster.advance(30)
    assert world.bound() == {"a", "b", "c"}
    assert world.condition("g") == ("True", "Scheduled", "")


def test_pods_that_come_before_their_group_wait_for_it(make: Make) -> None:
    world = make(4)
    world.make(pod("a", "g"), pod("b", "g"))
    world.cluster.advance(30)
    assert world.bound() == set()
    world.make(group("g", 2))
    world.cluster.advance(30)
    assert world.bound() == {"a", "b"}


def test_a_gang_that_does_not_fit_as_a_whole_is_not_bound_at_all(make: Make) -> None:
    world = make(1, 1)
    world.make(group("g", 3), pod("a", "g"), pod("b", "g"), pod("c", "g"))
    world.cluster.advance(60)
    assert world.bound() == set()
    messages = sorted(world.message(name) for name in "abc")
    waits = (
        "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked "
        "to wait and no plugin rejected pod"
    )
    assert messages[0].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert messages[1:] == [waits, waits]
    assert world.condition("g") == ("False", "Unschedulable", "pod group is unschedulable")
    world.require_law({"g": 3})
    world.make(pod("other"))
    world.cluster.advance(30)
    assert "other" in world.bound(), "the gang holds no room while it waits"


def test_of_a_gang_as_many_as_fit_are_bound_once_there_are_enough(make: Make) -> None:
    world = make(2)
    world.make(group("g", 2), pod("a", "g"), pod("b", "g"), pod("c", "g"))
    world.cluster.advance(30)
    assert len(world.bound()) == 2
    (left,) = set("abc") - world.bound()
    assert world.message(left).startswith("0/1 nodes are available: 1 Insufficient cpu.")
    world.delete(*sorted(world.bound())[:1])
    world.cluster.advance(60)
    assert left in world.bound()
    assert world.condition("g") == ("True", "Scheduled", "")


def test_a_basic_group_is_scheduled_pod_by_pod(make: Make) -> None:
    world = make(1)
    world.make(group("g", None), pod("a", "g"), pod("b", "g"))
    world.cluster.advance(30)
    assert len(world.bound()) == 1


def test_two_gangs_that_fit_alone_but_not_together_do_not_hold_each_other_up(make: Make) -> None:
    world = make(3)
    world.make(group("g", 2), group("h", 2))
    world.make(pod("g0", "g"), pod("h0", "h"), pod("g1", "g"), pod("h1", "h"))
    world.cluster.advance(60)
    assert world.bound() in ({"g0", "g1"}, {"h0", "h1"})
    world.require_law({"g": 2, "h": 2})


def test_a_gang_preempts_and_is_bound_once_its_victims_are_gone(make: Make) -> None:
    world = make(2)
    world.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10})
    world.make(pod("low0", terminationGracePeriodSeconds=0), pod("low1", terminationGracePeriodSeconds=0))
    world.cluster.advance(10)
    assert len(world.bound()) == 2
    world.make(group("g", 2), *(pod(name, "g", priorityClassName="high") for name in "ab"))
    world.cluster.advance(60)
    assert world.bound() == {"a", "b"}


def test_without_the_gates_a_group_is_not_served_and_not_looked_at(make: Make) -> None:
    world = make(1, gates=frozenset())
    assert world.cluster.request("GET", GROUPS).status == 404
    world.make(pod("a", "g"))
    world.cluster.advance(10)
    assert world.bound() == {"a"}
    assert "schedulingGroup" not in world.pods()["a"]["spec"]
    assert not any(ref.plural == "podgroups" for ref in (each.resource for each in world.scheduler.kinds.all()))


def test_with_the_gates_and_no_pod_in_a_group_no_group_is_watched(make: Make) -> None:
    world = make(1)
    world.make(pod("a"))
    world.cluster.advance(10)
    assert list(world.scheduler.kinds.all()) == []


def test_a_group_stays_while_a_pod_names_it(make: Make) -> None:
    world = make(2)
    world.make(group("g", 1), pod("a", "g"))
    world.cluster.advance(10)
    world.ask("DELETE", f"{GROUPS}/g")
    world.cluster.advance(10)
    assert world.ask("GET", f"{GROUPS}/g")["metadata"]["deletionTimestamp"]
    world.delete("a")
    world.cluster.advance(10)
    assert world.cluster.request("GET", f"{GROUPS}/g").status == 404


def test_what_if_knows_the_pods_group(make: Make) -> None:
    world = make(4)
    world.make(group("g", 2))

    def asked(name: str) -> tuple[int, str]:
        body = json.dumps(pod("x", name)).encode()
        admitted = world.cluster.request("POST", PODS, body, {"dryRun": "All"}).body
        answer = world.cluster.request("POST", "/minikube-py/v1/what-if", admitted)
        return answer.status, str(json.loads(answer.body).get("heldBack"))

    assert asked("g")[0] == 503
    world.cluster.advance(5)
    for _ in range(2):
        assert "waiting for minCount pods from a gang to appear" in asked("g")[1]
    world.make(pod("a", "g"))
    world.cluster.advance(5)
    assert asked("g") == (200, "None")
    assert 'pod group "none" to appear' in asked("none")[1]
    world.make(pod("b", "g"))
    world.cluster.advance(5)
    assert world.bound() == {"a", "b"}
