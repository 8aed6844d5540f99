"""Work beside many objects goes on in slices: what is done between two turns of the loop, counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from unittest import mock

import pytest
from step_clock import StepClock, settle

from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver import admission_rules
from minikube_py.apiserver.admission import Operation
from minikube_py.apiserver.admission_rules import HOOKS_AT_ONCE, Candidates
from minikube_py.apiserver.auth import ADMIN
from minikube_py.client.workqueue import HANDLED_AT_ONCE, HANDLED_STEPS, RateLimitingQueue, work
from minikube_py.controllers.cluster_roles import aggregated
from minikube_py.env import STEPS_AT_ONCE, Slices

Json = dict[str, Any]
WORKERS = 5
ITEMS = 500
RULE = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


class Counted:
    """`most`: what was counted between two turns of the loop."""

    def __init__(self) -> None:
        self.count = self.most = self.total = 0

    def __call__(self, *_: object) -> None:
        self.count += 1
        self.total += 1
        self.most = max(self.most, self.count)

    async def of(self, work: Awaitable[Any]) -> Any:
        async def beside() -> None:
            while True:
                self.count = 0
                await asyncio.sleep(0)

        beside_it = asyncio.ensure_future(beside())
        try:
            return await work
        finally:
            beside_it.cancel()


@pytest.mark.parametrize("fails", [False, True])
async def test_items_that_wait_for_nothing_leave_turns_to_others(fails: bool) -> None:
    queue: RateLimitingQueue[int] = RateLimitingQueue(StepClock())
    counted, failed = Counted(), []

    async def handle(item: int) -> None:
        counted()
        if fails:
            raise ValueError(item)

    for item in range(ITEMS):
        queue.add(item)
    workers = [asyncio.ensure_future(work(queue, handle, lambda item, error: failed.append(item))) for _ in range(5)]
    await counted.of(queue.shut_down_with_drain())
    await asyncio.gather(*workers)
    assert counted.total == ITEMS and sorted(failed) == ([*range(ITEMS)] if fails else [])
    assert counted.most <= max(HANDLED_AT_ONCE + WORKERS, STEPS_AT_ONCE // HANDLED_STEPS)


async def test_items_that_wait_are_not_held_up() -> None:
    """Their writes must arrive together, to be synced together."""
    queue: RateLimitingQueue[int] = RateLimitingQueue(StepClock())
    begun, gate = [], asyncio.Event()

    async def handle(item: int) -> None:
        begun.append(item)
        await gate.wait()

    workers = [asyncio.ensure_future(work(queue, handle, lambda *_: None)) for _ in range(50)]
    await asyncio.sleep(0)
    for item in range(100):
        queue.add(item)
    await asyncio.sleep(0)
    assert len(begun) == 50
    gate.set()
    await asyncio.sleep(0)
    assert len(begun) == 100
    queue.shut_down()
    await asyncio.gather(*workers)


async def test_what_is_thrown_into_a_handler_arrives_there() -> None:
    queue: RateLimitingQueue[str] = RateLimitingQueue(StepClock())
    told: list[str] = []

    async def handle(item: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            told.append(item)
            await asyncio.sleep(0)
            told.append("cleaned up")
            raise

    worker = asyncio.ensure_future(work(queue, handle, lambda *_: None))
    queue.add("a")
    await settle()
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
    assert told == ["a", "cleaned up"] and queue.stats().processing == 0


async def test_the_slices_of_all_share_a_turn() -> None:
    counted = Counted()

    async def some() -> None:
        slices = Slices()
        for _ in range(3 * STEPS_AT_ONCE):
            await slices.spend()
            counted()

    await counted.of(asyncio.gather(*(some() for _ in range(4))))
    # Each one's first slice begins at once.
    assert counted.total == 12 * STEPS_AT_ONCE and counted.most <= 3 * STEPS_AT_ONCE


async def test_more_steps_than_a_turn_has_are_granted_alone() -> None:
    slices = Slices()
    await slices.spend(10 * STEPS_AT_ONCE)
    await slices.spend(1)


def role(name: str, rules: int) -> Json:
    held = [{"verbs": ["get"], "apiGroups": [f"{name}-{at}"], "resources": ["pods"]} for at in range(rules)]
    return {"metadata": {"name": name, "labels": {"gather": "yes"}}, "rules": held}


async def test_the_rules_of_selected_roles_are_gathered_in_slices() -> None:
    rules, counted = 10_000, Counted()
    chosen = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gather": "yes"}}]}}
    given = [{"metadata": {"name": "all"}, **chosen}, role("one", rules), role("two", rules)]
    with mock.patch("minikube_py.controllers.cluster_roles.orjson.dumps", side_effect=repr) as encoded:
        encoded.side_effect = lambda rule, option: (counted(), repr(rule).encode())[1]
        found = await counted.of(aggregated(given[0], given, Slices()))
    assert len(found) == counted.total == 2 * rules
    assert counted.most <= STEPS_AT_ONCE


def writing(verb: str, plural: str, kind: str) -> Operation:
    of = next(each for each in REGISTRY.kinds if each.plural == plural)
    return Operation(of, "", verb, "default", "one", ADMIN, None, False, ("", "v1", kind))


async def test_the_rules_of_webhooks_are_looked_at_in_slices_and_once() -> None:
    many, counted = 7_000, Counted()
    hooks = [{**RULE, "resources": ["pods" if at % 7 == 0 else "secrets"]} for at in range(many)]
    candidates: Candidates[Json] = Candidates(lambda hook: [hook])
    matches = admission_rules.rule_matches
    pods, nodes = writing("CREATE", "pods", "Pod"), writing("CREATE", "nodes", "Node")

    def looked_at(*given: Any) -> bool:
        counted()
        return matches(*given)

    with mock.patch.object(admission_rules, "rule_matches", looked_at):
        assert candidates.may_exist(hooks, pods, REGISTRY), "nobody has looked yet"
        found = await counted.of(candidates.of(hooks, pods, REGISTRY))
        assert found == [(at, hooks[at]) for at in range(0, many, 7)]
        assert await counted.of(candidates.of(hooks, nodes, REGISTRY)) == []
        assert many <= counted.total and counted.most <= STEPS_AT_ONCE
        before = counted.total
        assert await candidates.of(hooks, pods, REGISTRY) == found
        assert candidates.may_exist(hooks, pods, REGISTRY) and not candidates.may_exist(hooks, nodes, REGISTRY)
        assert counted.total == before
        few = hooks[1:HOOKS_AT_ONCE]
        assert not candidates.may_exist(few, nodes, REGISTRY) and candidates.may_exist(few, pods, REGISTRY)
        assert await candidates.of(few, nodes, REGISTRY) == []


async def test_what_webhooks_match_is_looked_at_again_when_they_have_changed() -> None:
    candidates: Candidates[Json] = Candidates(lambda hook: [hook])
    pods = writing("CREATE", "pods", "Pod")
    assert not candidates.may_exist([], pods, REGISTRY)
    assert candidates.may_exist([RULE], pods, REGISTRY)
    assert not candidates.may_exist([{**RULE, "operations": ["DELETE"]}], pods, REGISTRY)
    assert candidates.may_exist([{**RULE, "operations": ["DELETE"]}], writing("DELETE", "pods", "Pod"), REGISTRY)
    assert not candidates.may_exist([{**RULE, "scope": "Cluster"}], pods, REGISTRY)
