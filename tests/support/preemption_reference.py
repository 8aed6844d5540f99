"""Preemption by brute force, for clusters so small that every set of victims can be tried; and a generator of such
clusters.

It shares no code with the scheduler: a node's resources are its cpu and its host port, and pods are plain records."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import product
from typing import Any

PORT = 8080


@dataclass(frozen=True)
class Running:
    """A pod. `start_s`: None if it has not started; `team`: its label."""

    name: str
    node: str
    cpu: int
    priority: int
    start_s: int | None = None
    team: str = ""
    port: bool = False


@dataclass(frozen=True)
class Guard:
    """A disruption budget over the pods of a team, or over nothing."""

    name: str
    team: str
    allowed: int
    disrupted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """`waiting` is to be placed. `nominated`: pods nominated to a node."""

    nodes: dict[str, int]
    running: tuple[Running, ...]
    guards: tuple[Guard, ...]
    waiting: Running
    nominated: tuple[Running, ...] = ()
    never: bool = False
    chosen: frozenset[tuple[str, tuple[str, ...]]] = field(default=frozenset(), compare=False)


def fits(case: Case, node: str, there: list[Running]) -> bool:
    """With the pods nominated to the node that have no lower priority than the waiting one, and without them."""
    above = [other for other in case.nominated if other.node == node and other.priority >= case.waiting.priority]
    for all_there in (there + above, there):
        cpu = sum(pod.cpu for pod in all_there) + case.waiting.cpu
        taken = case.waiting.port and any(pod.port for pod in all_there)
        if cpu > case.nodes[node] or taken:
            return False
    return True


def _start(pod: Running) -> float:
    return float("inf") if pod.start_s is None else pod.start_s


def _violating(case: Case, pods: list[Running]) -> set[str]:
    left = {guard.name: guard.allowed for guard in case.guards}
    found = set()
    for pod in pods:
        for guard in case.guards:
            if pod.team and guard.team == pod.team and pod.name not in guard.disrupted:
                left[guard.name] -= 1
                if left[guard.name] < 0:
                    found.add(pod.name)
    return found


def victims_on(case: Case, node: str) -> tuple[list[Running], int] | None:
    """Of all sufficient sets of victims, the one that keeps the most important pods, with those protected by a budget
    first. None if there is none."""
    there = [pod for pod in case.running if pod.node == node]
    below = [pod for pod in there if pod.priority < case.waiting.priority]
    below.sort(key=lambda pod: (-pod.priority, _start(pod)))
    protected = _violating(case, below)
    order = [p for p in below if p.name in protected] + [p for p in below if p.name not in protected]
    stay = [pod for pod in there if pod not in below]
    for kept in product((True, False), repeat=len(order)):
        staying = stay + [pod for pod, keep in zip(order, kept, strict=True) if keep]
        if fits(case, node, staying):
            gone = [pod for pod in below if pod not in staying]
            return gone, sum(pod.name in protected for pod in gone)
    return None


def best(case: Case) -> set[tuple[str, tuple[str, ...]]]:
    """Possible results (node, victims) of preemption; several only if all criteria are equal."""
    if case.never:
        return set()
    costs: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}
    for node, cpu in case.nodes.items():
        if case.waiting.cpu > cpu:
            continue
        found = victims_on(case, node)
        if found is None or not found[0]:
            continue
        gone, violations = found
        highest = gone[0].priority
        started = min(_start(pod) for pod in gone if pod.priority == highest)
        total = sum(pod.priority + (1 << 31) for pod in gone)
        names = tuple(sorted(pod.name for pod in gone))
        costs[node, names] = (violations, highest, total, len(gone), -started)
    least = min(costs.values(), default=None)
    return {each for each, cost in costs.items() if cost == least}


def needs_preemption(case: Case) -> bool:
    return not any(fits(case, node, [p for p in case.running if p.node == node]) for node in case.nodes)


PRIORITIES = (-(1 << 31), -10, 0, 5, 10)
WAITING_PRIORITY = 10


def drawn(rng: random.Random, *, nominated: bool = True) -> Case:
    nodes = {f"n{i}": rng.choice((1, 2, 3, 4, 4)) for i in range(rng.randint(1, 4))}
    starts = rng.sample(range(1, 50), 30)
    running = []
    for node, cpu in nodes.items():
        left = cpu
        while left > 0 and rng.random() < 0.9:
            asked = rng.randint(0, left)
            left -= asked
            start_s = None if rng.random() < 0.1 else starts.pop() if rng.random() < 0.9 else 25
            team = rng.choice(("", "a", "b"))
            port = rng.random() < 0.2 and not any(p.port for p in running if p.node == node)
            name = f"p{len(running)}"
            running.append(Running(name, node, asked, rng.choice(PRIORITIES), start_s, team, port))
            if sum(p.node == node for p in running) == 5:
                break
    guards = tuple(
        Guard(f"g{i}", rng.choice(("a", "b", "c")), rng.randint(0, 2), ("p0",) if rng.random() < 0.2 else ())
        for i in range(rng.choice((0, 1, 1, 2)))
    )
    waiting = Running("waiting", "", rng.randint(1, 4), WAITING_PRIORITY, None, "", rng.random() < 0.2)
    promised: list[Running] = []
    if nominated and rng.random() < 0.3:
        node = rng.choice(list(nodes))
        promised.append(Running("promised", node, rng.randint(1, 2), rng.choice((5, 10, 20))))
    return Case(nodes, tuple(running), guards, waiting, tuple(promised), rng.random() < 0.05)


def stamp(start_s: int) -> str:
    return f"2024-01-01T00:00:{start_s:02}Z"


def pod_object(pod: Running, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(pod.cpu)}}}
    if pod.port:
        container["ports"] = [{"hostPort": PORT, "containerPort": PORT}]
    metadata: dict[str, Any] = {"name": pod.name, "namespace": namespace, "uid": f"uid-{pod.name}"}
    if pod.team:
        metadata["labels"] = {"team": pod.team}
    status = {"startTime": stamp(pod.start_s)} if pod.start_s is not None else {}
    placed = {"nodeName": pod.node} if pod.node else {}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "priority": pod.priority, **placed, **spec},
        "status": status,
    }


def node_object(name: str, cpu: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def guard_object(guard: Guard, namespace: str = "default") -> dict[str, Any]:
    return {
        "metadata": {"name": guard.name, "namespace": namespace, "uid": f"uid-{guard.name}"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"team": guard.team}}},
        "status": {
            "disruptionsAllowed": guard.allowed,
            "disruptedPods": dict.fromkeys(guard.disrupted, "2024-01-01T00:00:00Z"),
        },
    }
