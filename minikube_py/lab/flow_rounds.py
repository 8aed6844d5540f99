"""Measures one round of flow scheduling without a control plane: graph, solver, repair.

Repair checks every placement with the default profile's filters and charges its node, one after another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minikube_py.env import Clock
from minikube_py.lab import report
from minikube_py.lab.environment import describe
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.flow.checking import Asking
from minikube_py.scheduler.flow.graph import Graph, TaskClass
from minikube_py.scheduler.flow.model import Machines, ModelError, Task
from minikube_py.scheduler.flow.models import model_named
from minikube_py.scheduler.flow.problem import Infeasible, faults
from minikube_py.scheduler.flow.solvers import solver_named
from minikube_py.scheduler.objects import PodInfo, project_node, project_pod
from minikube_py.scheduler.profile import Profile

Object = dict[str, Any]
MILLI_STEP, MEMORY_STEP_MI = 50, 64


class Round(NamedTuple):
    """Seconds and counters. `solver`: who solved it, and for whom; `turned_down`: rejected during repair."""

    model: str
    solver: str
    nodes: int
    pods: int
    classes: int
    arcs: int
    graph_s: float
    solve_s: float
    repair_s: float
    placed: int
    turned_down: int

    @property
    def total_s(self) -> float:
        return self.graph_s + self.solve_s + self.repair_s


def measured(
    clock: Clock, models: Iterable[str], solvers: Iterable[str], sizes: Iterable[int], pods: int, classes: int
) -> Iterator[Round]:
    """Raises: ConfigError."""
    for nodes in sizes:
        for model in models:
            for solver in solvers:
                yield one_round(clock, model, solver, nodes, pods, classes)


def one_round(clock: Clock, model_name: str, solver_name: str, nodes: int, pods: int, classes: int) -> Round:
    """`pods` in equal `classes`, on nodes of four sizes. Raises: ConfigError."""
    cache = Cache()
    for i in range(nodes):
        cache.put_node(project_node(_node(i)))
    columns = cache.columns
    model, solver = model_named(model_name, {}, random.Random(0)), solver_named(solver_name)
    templates = [_pod(f"c{c}", c) for c in range(classes)]
    lent: Any = NoCluster(columns)
    evaluator = Evaluator(Profile(ProfileConfig(), lent), columns, random.Random(0), 100)
    machines = Machines(columns.some(np.arange(nodes)), np.arange(nodes))
    tasks = [Task(pod, len(range(c, pods, classes)), 1.0, f"job{c}") for c, pod in enumerate(templates)]
    graph = Graph(model, columns)
    now_s = clock.monotonic_s
    began_s = now_s()
    try:
        for machine in machines:
            Asking(model.name, "all", tasks[0]).tell(model, machine)
        problem = graph.build([TaskClass(task, machines.slots, machines.fit(task)) for task in tasks])
        built_s = now_s()
        for failed in graph.failed.values():
            raise failed
        flow, by = solver.solved(problem)
    except (ModelError, Infeasible) as error:
        raise ConfigError(f"{model.name}, {nodes} nodes: {error}") from error
    solved_s = now_s()
    placed = turned_down = 0
    for c, task in enumerate(tasks):
        for placement in graph.placements(c, flow, problem):
            node = columns.by_slot[placement.slot]
            if node is not None and evaluator.fits(task.pod, node.name):
                cache.assume(_twin(task.pod, placed), node.name)
                placed += 1
            else:
                turned_down += 1
    ended_s = now_s()
    assert nodes > 1000 or not faults(problem, flow)
    spent = (built_s - began_s, solved_s - built_s, ended_s - solved_s)
    by = by if by == solver.name else f"{by} for {solver.name}"
    return Round(model.name, by, nodes, pods, classes, graph.size[1], *spent, placed, turned_down)


def write(rounds: Sequence[Round], results: Path) -> Path:
    """A JSON file, in a new folder. Raises: ReportError."""
    folder = report.results_folder(results, "flow", datetime.now())
    environment = describe(folder, "one round in one process, without a control plane")
    return report.write_json(
        folder, "flow", environment, {"rounds": [{**each._asdict(), "total_s": each.total_s} for each in rounds]}
    )


def _twin(pod: PodInfo, number: int) -> PodInfo:
    return PodInfo(pod.namespace, f"{pod.name}-{number}", f"{pod.uid}-{number}", pod.spec)


def _node(number: int) -> Object:
    size = 1 + number % 4
    allocatable = {"cpu": str(8 * size), "memory": f"{32 * size}Gi", "pods": "110"}
    metadata = {"name": f"node-{number}", "uid": f"n{number}"}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}}


def _pod(name: str, number: int) -> PodInfo:
    requests = {"cpu": f"{MILLI_STEP * (number + 2)}m", "memory": f"{MEMORY_STEP_MI * (number + 2)}Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return project_pod({"metadata": metadata, "spec": {"containers": [container]}})
