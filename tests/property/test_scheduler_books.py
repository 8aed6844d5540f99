"""What the scheduler counts on each node is what runs there, whatever happens to its binds, its watches and its nodes.

Binds are refused, or their answers lost; watches break and expire; nodes and pods come and go. No node is ever given
more than it has; at rest nothing is charged that does not run, and no pod waits that a node has room for.
"""

from __future__ import annotations

import random
from typing import Any

from fake_api import FakeApi, Json
from hypothesis import given, settings
from hypothesis import strategies as st
from step_clock import StepClock, settle
from virtual_time import run_virtually

from minikube_py.api.errors import StatusError
from minikube_py.scheduler.scheduler import Scheduler

CPUS = {"n0": 1, "n1": 2, "n2": 3}
REFUSALS = [
    StatusError(409, "Conflict", "the object has been modified"),
    StatusError(500, "InternalError", "a bad day"),
    StatusError(403, "Forbidden", "the namespace is being terminated"),
]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from(["300m", "700m", "1", "1500m", "2"])),
        st.tuples(st.just("pod"), st.sampled_from(["300m", "700m", "1", "1500m", "2"])),
        st.tuples(st.just("delete pod"), st.integers(0, 20)),
        st.tuples(st.sampled_from(["node", "drop node"]), st.sampled_from(sorted(CPUS))),
        st.tuples(st.just("refuse"), st.integers(0, 2)),
        st.tuples(st.just("lose"), st.integers(1, 2)),
        st.tuples(st.sampled_from(["accept", "drop watches", "compact", "settle", "settle"]), st.none()),
        st.tuples(st.just("advance"), st.sampled_from([0.4, 3.0, 20.0])),
    ),
    max_size=30,
)


def milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def asked(pod: Json) -> int:
    return milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


class CountingApi(FakeApi):
    """Refuses nothing by itself, but watches that no bind puts more on a node than it has."""

    def used(self, node: str) -> int:
        return sum(asked(pod) for pod in self.kind("pods").values() if pod["spec"].get("nodeName") == node)

    def _bind(self, namespace: str, name: str, body: Json) -> Json:
        pod = self.kind("pods").get(f"{namespace}/{name}")
        if pod is not None and pod["spec"].get("nodeName"):
            raise StatusError(409, "Conflict", f"pod {name} is already assigned to node")
        answer = super()._bind(namespace, name, body)
        node = body["target"]["name"]
        assert self.used(node) <= CPUS[node] * 1000, f"{node} is given more than it has"
        return answer


class World:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.api = CountingApi(self.clock)
        self.made = 0

    def node(self, name: str) -> None:
        if name not in self.api.kind("nodes"):
            allocatable = {"cpu": str(CPUS[name]), "memory": "8Gi", "pods": "110"}
            self.api.make("nodes", name, spec={}, status={"allocatable": allocatable})

    def pod(self, cpu: str) -> None:
        self.made += 1
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        spec = {"containers": [container], "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 0}
        self.api.make("pods", f"default/p{self.made}", spec=spec)

    async def step(self, what: str, argument: Any) -> None:
        api = self.api
        if what in ("node", "pod"):
            getattr(self, what)(argument)
        elif what == "delete pod":
            keys = sorted(api.kind("pods"))
            if keys:
                api.remove("pods", keys[argument % len(keys)])
        elif what == "drop node" and argument in api.kind("nodes"):
            api.remove("nodes", argument)
        elif what == "refuse":
            api.refuse["POST", "/binding$"] = REFUSALS[argument]
        elif what == "accept":
            api.refuse.clear()
        elif what == "lose":
            api.lose_answers = argument
        elif what in ("drop watches", "compact"):
            if what == "compact":
                api.compact()
            api.drop_watches()
        elif what == "settle":
            await settle()
        elif what == "advance":
            await self.clock.advance(argument)

    def check(self, scheduler: Scheduler) -> None:
        assert scheduler.failure is None
        assert scheduler.cache.assumed == 0
        for name in self.api.kind("nodes"):
            info = scheduler.columns.by_name[name]
            used = self.api.used(name)
            assert info.requested.get("cpu", 0) == used
            assert int(scheduler.columns.requested_row("cpu")[info.slot]) == used
        room = {name: CPUS[name] * 1000 - self.api.used(name) for name in self.api.kind("nodes")}
        for key, pod in self.api.kind("pods").items():
            if not pod["spec"].get("nodeName"):
                assert asked(pod) > max(room.values(), default=0), f"{key} waits, and {room} is free"


async def run(steps: list[tuple[str, Any]], seed: int) -> None:
    world = World()
    world.node("n1")
    scheduler = Scheduler(world.api, world.clock, random.Random(seed))
    await scheduler.start()
    try:
        for what, argument in steps:
            await world.step(what, argument)
        world.api.refuse.clear()
        world.api.lose_answers = 0
        await world.clock.advance(400)
        world.check(scheduler)
    finally:
        await scheduler.stop()


@settings(max_examples=100)
@given(STEPS, st.integers(0, 9))
def test_the_books_are_right_whatever_happens(steps: list[tuple[str, Any]], seed: int) -> None:
    run_virtually(lambda: run(steps, seed))
