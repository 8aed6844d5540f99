"""CoCo's cost model: a pod's share of a machine, and the interference with its neighbours.

Source: camsas/firmament, coco_cost_model.cc.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from minikube_py.scheduler.configuration.own_args import listed, text
from minikube_py.scheduler.flow.model import TASK_TYPES, Arc, Arcs, EquivClass, Machine, Machines, Task, task_type
from minikube_py.scheduler.flow.shared import OneClass
from minikube_py.scheduler.objects import CPU, MEMORY

OMEGA: Final = 1000
PRIORITY_MAX: Final = 10
PARTS_MAX: Final = 1000
"""Prices distinguish up to this multiple of a resource's total."""

PENALTY: Final[Mapping[str, Mapping[str, int]]] = {
    "turtle": {"turtle": 50, "sheep": 50, "rabbit": 50, "devil": 50},
    "sheep": {"turtle": 10, "sheep": 50, "rabbit": 100, "devil": 200},
    "rabbit": {"turtle": 10, "sheep": 50, "rabbit": 200, "devil": 1000},
    "devil": {"turtle": 10, "sheep": 200, "rabbit": 1000, "devil": 200},
}
"""What a running pod of the outer type adds to the machine's price for pods of the inner type."""


def penalties_of(machine: Machine) -> dict[str, int]:
    """By type of an arriving pod, the sum over all pods that run there."""
    found = dict.fromkeys(TASK_TYPES, 0)
    for pod in machine.info.pods.values():
        for coming, amount in PENALTY[task_type(pod)].items():
            found[coming] += amount
    return found


class Coco(OneClass):
    """args: `resources`: those beside cpu and memory that make up a cost, such as network and disk bandwidth. Firmament
    has five in all; a resource no machine has only adds OMEGA to the cost of waiting."""

    name = "COCO"
    defaults: Mapping[str, Any] = {"resources": ()}
    kinds = {"resources": listed(text, most=20)}
    DIMENSIONS: Final = 5

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._resources = (CPU, MEMORY, *self.args["resources"])
        self._amounts: dict[str, tuple[int, ...]] = {}
        self._extremes: dict[str, tuple[int, int]] = {}
        self._penalties: dict[str, dict[str, int]] = {}

    @staticmethod
    def normalized(raw: int, most: int) -> int:
        return int(min(raw / most, PARTS_MAX) * OMEGA) if most else 0

    # --- known pods and machines ------------------------------------------------------------------------------------

    def remove_machine(self, name: str) -> None:
        self._penalties.pop(name, None)
        self._amounts.pop(name, None)
        self._extremes.clear()

    def gather_stats(self, machine: Machine) -> None:
        amounts = tuple(map(machine.allocatable, self._resources))
        if self._amounts.get(machine.name) != amounts:
            self._amounts[machine.name] = amounts
            self._extremes.clear()
        self._penalties[machine.name] = penalties_of(machine)

    def _extreme(self, resource: str) -> tuple[int, int]:
        """The least that a machine has of it, if it has any, and the most."""
        if not self._extremes:
            for i, each in enumerate(self._resources):
                amounts = [of[i] for of in self._amounts.values() if of[i]]
                self._extremes[each] = min(amounts, default=0), max(amounts, default=0)
        return self._extremes[resource]

    # --- arcs -------------------------------------------------------------------------------------------------------

    def _priority(self, task: Task) -> int:
        return min(PRIORITY_MAX, max(0, task.pod.priority)) * OMEGA

    def task_key(self, task: Task) -> object:
        return int(task.waited_s * 10), task.type

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        parts = (self.normalized(task.request(r), self._extreme(r)[0]) for r in self._resources)
        base = self._priority(task) + max(self.DIMENSIONS, len(self._resources)) * OMEGA + sum(parts)
        # 1 each for machine type and interference; then tenths of seconds.
        return Arc(base + 2 + int(task.waited_s * 10))

    def _class_of(self, task: Task) -> EquivClass:
        return f"job {task.job}, {task.type}, {task.pod.spec.requests}"

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        parts = (self.normalized(task.request(r), self._extreme(r)[1]) for r in self._resources)
        return Arc(self._priority(task) + sum(parts))

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        task = self._tasks[ec]
        cost = [self._penalties.get(machine.name, {}).get(task.type, 0) for machine in machines]
        return Arcs(np.array(cost, np.int64), machines.fit(task))

    def resource_node_to_resource_node(self, machine: Machine) -> Arc:
        cost = sum(
            self.normalized(machine.allocatable(r) - machine.free(r), machine.allocatable(r)) for r in self._resources
        )
        return Arc(cost + self.interference(machine), machine.free_slots)

    def interference(self, machine: Machine) -> int:
        """The total interference of the pods running there; it grows with the machine's load."""
        if not machine.slots:
            return 0
        summed = sum(self._penalties.get(machine.name, {}).values())
        # A node that has shrunk runs more than it has slots for.
        return int(math.exp(min(1.0, machine.running / machine.slots)) * summed) - summed
