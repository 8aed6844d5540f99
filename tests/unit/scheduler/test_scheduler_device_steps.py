"""Selectors of devices that take long: the pod is held with the reason, the loop is not, and others go on."""

from __future__ import annotations

from typing import Any

import pytest
from device_world import DRIVER, DeviceWorld, claim, device, device_class, device_slice, pod, request

from minikube_py.api.device_selectors import EXPRESSION_BYTES_MAX, compiled, validate_expression
from minikube_py.cel.allowance import OutOfSteps, counted, spend, within
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.scheduler.devices.allocator import NODE_LOOKS_MAX, Search, SelectorError, TooCostly, TooLong
from minikube_py.scheduler.devices.selecting import CYCLE_STEPS_MAX, STEPS_MAX, Selecting
from minikube_py.scheduler.devices.views import Device
from tests.support.hostile_answers import long_selector

MANY = {f"a{at:02d}": {"string": "x"} for at in range(32)}


def a_device(name: str) -> Device:
    return Device({"name": name, "attributes": MANY}, DRIVER, "pool")


def test_the_steps_of_a_part_are_steps_of_the_whole() -> None:
    def part() -> None:
        within(1_000, spend, 600)
        assert counted(spend, 300) == (None, 300)

    assert counted(part) == (None, 900)
    with pytest.raises(OutOfSteps):
        within(800, lambda: (part(), spend(1)))


def test_an_expression_that_takes_too_long_is_no_answer_and_is_not_asked_again() -> None:
    expression = long_selector(DRIVER, 3)
    assert validate_expression(expression, "e") == []
    selecting, found = Selecting(), a_device("d")
    for steps_max in (STEPS_MAX + 5_000, 0):
        with pytest.raises(TooCostly, match="takes more than 100,000 steps, the limit of this scheduler"):
            within(steps_max, selecting.selects, expression, found)


def test_what_is_wrong_with_an_expression_is_found_once() -> None:
    selecting, found = Selecting(), a_device("d")
    for steps_max in (STEPS_MAX, 0):
        with pytest.raises(SelectorError, match="no such key"):
            within(steps_max, selecting.selects, 'device.attributes["gpu.example"].none == "x"', found)


def test_a_cycle_has_its_steps_and_the_next_one_goes_on() -> None:
    """However many devices, and whatever an expression costs: the steps of a cycle are bounded, and it ends."""
    expression, selecting = long_selector(DRIVER, 2), Selecting()
    for _ in range(2):
        # The first one compiles it.
        _, each = counted(Selecting().selects, expression, a_device("d"))
    assert STEPS_MAX > each > 1_000
    devices = [a_device(f"d{at}") for at in range(3 * CYCLE_STEPS_MAX // each)]

    def cycle() -> int:
        selecting.begin()
        done = 0
        try:
            for found in devices:
                assert selecting.selects(expression, found)
                done += 1
        except TooLong:
            pass
        return done

    cycles = [counted(cycle) for _ in range(4)]
    assert all(steps <= CYCLE_STEPS_MAX + each for _, steps in cycles)
    done = [count for count, _ in cycles]
    assert done == sorted(done) and done[0] < done[1] < done[2] and done[3] == len(devices)


def test_a_cycle_compiles_one_long_expression_and_the_next_one_knows_it() -> None:
    compiled.cache_clear()
    texts = [f'device.driver == "{at}"' + ' || device.driver == "x"' * (EXPRESSION_BYTES_MAX // 30) for at in range(4)]
    selecting, cycles = Selecting(), []

    def cycle() -> int:
        selecting.begin()
        try:
            return sum(not selecting.selects(text, a_device("d")) for text in texts)
        except TooLong:
            return 0

    while not cycles or not cycles[-1][0]:
        cycles.append(counted(cycle))
    assert 2 <= len(cycles) <= len(texts) and cycles[-1][0] == len(texts)
    assert all(steps < CYCLE_STEPS_MAX + 40 * EXPRESSION_BYTES_MAX * 2 for _, steps in cycles)


def test_a_pod_whose_selector_takes_too_long_is_held_and_others_are_placed() -> None:
    with VirtualCluster(seed=3, nodes=1) as cluster:
        world = DeviceWorld(cluster)
        (node,) = (each["metadata"]["name"] for each in world.ask("GET", "/api/v1/nodes")["items"])
        selector = {"cel": {"expression": long_selector(DRIVER, 3)}}
        world.make(device_class("gpu"), device_slice("s", device("d0", attributes=MANY), device("d1"), nodeName=node))
        world.make(claim("long", request("r", selectors=[selector])), pod("held", "long"))
        world.make(claim("short"), pod("placed", "short"))
        world.later()
        assert world.pod("placed")[0] == node
        name, why = world.pod("held")
        assert name == "" and why.startswith(
            "0/1 nodes are available: 1 claim default/long: selector #0: CEL runtime error: it takes more than "
            "100,000 steps, the limit of this scheduler"
        )
        # A claim without that selector is served by what is left.
        world.make(claim("another"), pod("later", "another"))
        world.later()
        assert world.pod("later")[0] == node


def test_a_search_without_end_on_a_node_is_given_up_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    run = Search.run

    def noted(search: Search, *given: Any) -> Any:
        try:
            return run(search, *given)
        finally:
            searched.append(search.looks)

    monkeypatch.setattr(Search, "run", noted)
    impossible = {"cel": {"expression": f"device.attributes['{DRIVER}'].i == 1000"}}
    with VirtualCluster(seed=3, nodes=1) as cluster:
        world = DeviceWorld(cluster)
        (node,) = (each["metadata"]["name"] for each in world.ask("GET", "/api/v1/nodes")["items"])
        many = [device(f"d{n}", attributes={"s": {"string": "a"}, "i": {"int": n}}) for n in range(60)]
        world.make(device_class("gpu"), device_slice("s", *many, nodeName=node))
        alike = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/s"}]
        asked = request("r", count=6), request("q", selectors=[impossible])
        world.make(claim("hard", *asked, constraints=alike), pod("held", "hard"))
        world.later(60)
        name, why = world.pod("held")
        assert name == "" and f"node {node}: timed out trying to allocate devices" in why
        assert searched == [NODE_LOOKS_MAX + 1]
        world.make(claim("short"), pod("placed", "short"))
        world.later()
        assert world.pod("placed")[0] == node
