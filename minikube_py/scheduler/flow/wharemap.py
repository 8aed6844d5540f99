"""Whare-Map's cost model: pods prefer the machine type and the neighbours with which equal pods ran fastest.

Source: camsas/firmament, wharemap_cost_model.cc; Mars and Tang, ISCA 2013.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.scheduler.configuration.own_args import fields, listed, number, text, whole
from minikube_py.scheduler.flow.model import CLUSTER, Arc, Arcs, EquivClass, Machine, Machines, Task, task_type
from minikube_py.scheduler.flow.problem import COST_MAX
from minikube_py.scheduler.flow.shared import ByLabel, Slots
from minikube_py.scheduler.framework import IntArray

APP: Final = "minikube-py.io/app"
"""Pod label: the application; samples are grouped by it."""
MAX_ARC_COST: Final = 100_000_000
PREFERRED_ARCS: Final = 2
PICOSECONDS: Final = 1_000_000_000_000

CoRunners = tuple[int, int, int, int, int]
"""Idle slots, devils, rabbits, sheep, turtles."""


class App(NamedTuple):
    name: str

    def __str__(self) -> str:
        return f"app {self.name}"


class MachineType(NamedTuple):
    name: str

    def __str__(self) -> str:
        return f"type {self.name}"


SAMPLE: Final = fields(
    {
        "app": text,
        "machineType": text,
        "coRunners": listed(whole(0, 10_000), 5, 5),
        "runtimeSeconds": number(0, 10**9),
        "instructions": whole(1, 2**63 - 1),
    },
    needed=("app", "runtimeSeconds", "instructions"),
)


class WhareMap(Slots):
    """args: `machineTypeLabel` of nodes (node.kubernetes.io/instance-type); `samples`: replace Firmament's final
    reports, `{app, machineType, coRunners: [idle, devils, rabbits, sheep, turtles], runtimeSeconds, instructions}`."""

    name = "WHARE"
    defaults: Mapping[str, Any] = {"machineTypeLabel": "node.kubernetes.io/instance-type", "samples": ()}
    kinds = {"machineTypeLabel": text, "samples": listed(SAMPLE)}
    COST_LOWER_BOUND: Final = 96

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._types = ByLabel(self.args["machineTypeLabel"])
        self._psi: dict[tuple[str, str], list[int]] = {}
        self._xi: dict[tuple[str, CoRunners, str], list[int]] = {}
        self._beside: dict[str, CoRunners] = {}
        for each in self.args["samples"]:
            beside = each.get("coRunners", (0, 0, 0, 0, 0))
            self.record(
                each["app"], each.get("machineType", ""), beside, each["runtimeSeconds"], each["instructions"]
            )

    def record(self, app: str, machine_type: str, beside: CoRunners, runtime_s: float, instructions: int) -> None:
        """Records one finished run, as picoseconds per instruction."""
        pspi = int(runtime_s) * PICOSECONDS // instructions
        self._psi.setdefault((app, machine_type), []).append(pspi)
        self._xi.setdefault((app, beside, machine_type), []).append(pspi)

    def _averages(self, known: Mapping[Any, Sequence[int]], app: str) -> list[int]:
        return [_average(samples) for key, samples in known.items() if key[0] == app]

    # --- machines ---------------------------------------------------------------------------------------------------

    def remove_machine(self, name: str) -> None:
        self._types.remove(name)
        self._beside.pop(name, None)

    def gather_stats(self, machine: Machine) -> None:
        self._types.add(machine)
        counts = dict.fromkeys(("devil", "rabbit", "sheep", "turtle"), 0)
        for pod in machine.info.pods.values():
            counts[task_type(pod)] += 1
        self._beside[machine.name] = (machine.free_slots, *counts.values())  # type: ignore[assignment]

    # --- arcs -------------------------------------------------------------------------------------------------------

    def task_key(self, task: Task) -> object:
        return int(task.waited_s * 10), task.labels.get(APP, "")

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        averages = self._averages(self._psi, task.labels.get(APP, ""))
        # Picoseconds per instruction over all runs, in hundredths of the best machine type's.
        best = min(averages, default=0)
        normalized = _hundredths(_average(averages), best) + 1 if best else 100
        return Arc(self.COST_LOWER_BOUND + 1 + max(int(task.waited_s * 10), normalized))

    def get_task_equiv_classes(self, task: Task) -> Sequence[EquivClass]:
        return App(task.labels.get(APP, "")), CLUSTER

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        if ec != CLUSTER:
            return Arc(0)
        averages = self._averages(self._psi, task.labels.get(APP, ""))
        best = min(averages, default=0)
        return Arc(_hundredths(max(averages), best) if best else 0)

    def get_equiv_class_to_equiv_classes_arcs(self, ec: EquivClass) -> Sequence[EquivClass]:
        return [MachineType(kind) for kind in self._types] if isinstance(ec, App) else ()

    def equiv_class_to_equiv_class(self, ec: EquivClass, to: EquivClass) -> Arc:
        """From an application to a machine type; without samples there is no arc."""
        assert isinstance(ec, App) and isinstance(to, MachineType)
        samples, averages = self._psi.get((ec.name, to.name)), self._averages(self._psi, ec.name)
        return Arc(_hundredths(_average(samples), min(averages)), 1 << 31) if samples else Arc(0, 0)

    def get_outgoing_equiv_class_pref_arcs(self, ec: EquivClass, machines: Machines) -> IntArray | list[int] | None:
        if isinstance(ec, MachineType):
            return machines.positions(self._types.names(ec.name))
        if not isinstance(ec, App):
            return None
        averages = self._averages(self._xi, ec.name)
        worst = _hundredths(max(averages), min(averages)) if averages else 0
        priced = [(cost, i) for i, cost in enumerate(self._co_runs(ec.name, machines))] if averages else []
        return [i for cost, i in sorted(priced) if cost < worst][:PREFERRED_ARCS]

    def _co_runs(self, app: str, machines: Iterable[Machine]) -> Iterator[int]:
        """The cost of running the app on each machine, beside its current pods."""
        best = max(1, min(self._averages(self._xi, app), default=1))
        for machine in machines:
            beside = self._beside.get(machine.name, (machine.free_slots, 0, 0, 0, 0))
            samples = self._xi.get((app, beside, self._types.of(machine.name) or ""))
            yield _hundredths(_average(samples), best) if samples else MAX_ARC_COST

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        if not isinstance(ec, App):
            return super().equiv_class_to_resource_nodes(ec, machines)
        return Arcs(np.fromiter(self._co_runs(ec.name, machines), np.int64), machines.free_slots)

    def equiv_class_to_resource_node(self, ec: EquivClass, machine: Machine) -> Arc:
        return Arc(next(self._co_runs(ec.name, [machine])) if isinstance(ec, App) else 0, machine.free_slots)


def _average(numbers: Sequence[int]) -> int:
    return sum(numbers) // len(numbers)


def _hundredths(part: int, of: int) -> int:
    """Samples may say any runtime and any number of instructions: prices end where those of arcs may add up."""
    return min(part * 100 // max(1, of), COST_MAX // 4)
