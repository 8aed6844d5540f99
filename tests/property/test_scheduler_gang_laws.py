"""The laws of gangs in drawn histories: pods and groups come, go and change, nodes are cordoned, and a plugin fails.

A gang is bound up to its minimum or not at all, what is counted of groups is what a recount finds, and once time has
passed nothing is reserved any more: no reservation outlives the timeout of Permit.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from gang_world import GROUPS, PODS, World, group, pod

from minikube_py.scheduler.config import ProfileConfig
from minikube_py.scheduler.configuration.merging import PluginSet
from minikube_py.scheduler.framework import Code, Status
from minikube_py.scheduler.plugins.gang_scheduling import PERMIT_TIMEOUT_S

SEED = int(os.environ.get("MINIKUBE_PY_LAW_SEED", "0"))
SCRIPTS = 4
STEPS = 25


class Fails:
    """A plugin whose Reserve refuses now and then, so that a gang falls apart between its two looks at the nodes."""

    name = "Fails"
    rng = random.Random(0)

    def __init__(self, args: Any = None, handle: Any = None) -> None:
        pass

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status(Code.ERROR, "drawn") if self.rng.random() < 0.1 else None

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        pass


class History:
    def __init__(self, seed: int, fails: bool) -> None:
        self.rng = rng = random.Random(f"gangs {seed}")
        Fails.rng = random.Random(seed)
        plugins = {"reserve": PluginSet((("Fails", 0),))} if fails else {}
        cpus = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        self.world = World(*cpus, profiles=(ProfileConfig(plugins=plugins),), registry={"Fails": Fails})
        self.fails = fails
        self.minima: dict[str, int] = {}
        self.reduced: set[str] = set()
        """Groups of which a pod was deleted that had a node."""
        self.count = 0

    def step(self) -> None:
        rng, world = self.rng, self.world
        pods = world.pods()
        action = rng.choice(("group", "gang", "gang", "pod", "delete", "relabel", "ungroup", "cordon", "wait"))
        if action == "group" and len(self.minima) < 3:
            name = f"g{len(self.minima)}"
            self.minima[name] = rng.randint(2, 4)
            world.make(group(name, self.minima[name]))
        elif action == "gang" and self.minima:
            name = rng.choice(sorted(self.minima))
            for _ in range(self.minima[name]):
                self.count += 1
                world.make(pod(f"p{self.count}", name))
        elif action == "pod":
            self.count += 1
            world.make(pod(f"p{self.count}", f"g{rng.randint(0, 2)}", str(rng.choice((1, 1, 2)))))
        elif action == "delete" and pods:
            name = rng.choice(sorted(pods))
            if pods[name]["spec"].get("nodeName"):
                self.reduced.add(pods[name]["spec"]["schedulingGroup"]["podGroupName"])
            world.delete(name)
        elif action == "relabel" and pods:
            found = world.ask("GET", f"{PODS}/{rng.choice(sorted(pods))}")
            found["metadata"]["labels"] = {"a": str(rng.randint(0, 9))}
            world.cluster.request("PUT", f"{PODS}/{found['metadata']['name']}", _body(found))
        elif action == "ungroup" and self.minima:
            world.ask("DELETE", f"{GROUPS}/{rng.choice(sorted(self.minima))}")
        elif action == "cordon":
            node = world.ask("GET", "/api/v1/nodes/n0")
            node["spec"]["unschedulable"] = rng.random() < 0.5
            world.cluster.request("PUT", "/api/v1/nodes/n0", _body(node))
        world.cluster.advance(rng.choice((0.01, 0.5, 3.0, 20.0)))
        world.require_books()
        if not self.fails and world.partial(self.whole):
            # Some bindings may be on their way.
            world.cluster.advance(1)
            assert not world.partial(self.whole)

    @property
    def whole(self) -> dict[str, int]:
        """The gangs that are to be whole."""
        return {name: least for name, least in self.minima.items() if name not in self.reduced}

    def end(self) -> None:
        self.world.cluster.advance(PERMIT_TIMEOUT_S + 30)
        if self.fails:
            # A gang that a failing plugin broke up is tried again forever; what counts is what is left of each try.
            Fails.rng = random.Random(1)
            Fails.reserve = lambda self, state, pod, node_name: None  # type: ignore[method-assign]
            self.world.cluster.advance(PERMIT_TIMEOUT_S + 30)
        self.world.require_books()
        self.world.require_law({} if self.fails else self.whole)


def _body(obj: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps(obj)


@pytest.mark.parametrize("fails", [False, True], ids=["well", "failing"])
def test_gangs_are_whole_and_nothing_stays_reserved(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fails, "reserve", Fails.reserve)
    for seed in range(SEED * SCRIPTS, (SEED + 1) * SCRIPTS):
        history = History(seed, fails)
        try:
            for _ in range(STEPS):
                history.step()
            history.end()
        finally:
            history.world.close()
