"""Firmament's cost models, with its constants, and one that minimises electricity.

What Firmament learns from final task reports or its data layer comes from args here, by labels of pods and nodes.
Source: camsas/firmament, src/scheduling/flow/*_cost_model.cc; Huawei-PaaS/firmament for CPU_MEM.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.own_code import BadCode, find_class, load, name_of, raised, told
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import Kind, mapped, number, text, whole
from minikube_py.scheduler.flow.coco import Coco
from minikube_py.scheduler.flow.model import Arc, Arcs, CostModel, EquivClass, Machine, Machines, Task
from minikube_py.scheduler.flow.problem import COST_MAX
from minikube_py.scheduler.flow.quincy import Quincy, QuincyInterference
from minikube_py.scheduler.flow.shared import OneClass, Slots
from minikube_py.scheduler.flow.wharemap import WhareMap
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import CPU, MEMORY, PodSpec

GROUP: Final = "minikube_py.cost_models"
MAX_ARC_COST: Final = 100_000_000
OMEGA: Final = 1000
RUNTIME: Final = "minikube-py.io/runtime-seconds"
"""Pod label: the average runtime of such pods."""
IDLE_WATTS, PEAK_WATTS = "minikube-py.io/idle-watts", "minikube-py.io/peak-watts"
"""Node labels."""


class Trivial(Slots):
    """All machines are equal; random preferences are slightly better. args: `preferences` (1) per pod."""

    name = "TRIVIAL"
    defaults: Mapping[str, Any] = {"preferences": 1}
    kinds = {"preferences": whole(0, 100)}

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(5)

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        return Arc(2)

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> Sequence[int]:
        wanted = task.count * self.args["preferences"]
        return [self.rng.randrange(len(machines)) for _ in range(wanted if len(machines) else 0)]


class Random(Slots):
    """Random prices up to MAX_ARC_COST; leaving a pod costs most."""

    name = "RANDOM"

    def _unscheduled(self) -> int:
        half = MAX_ARC_COST // 2
        return half + self.rng.randrange(half) + 1

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(self._unscheduled())

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        return Arc(self.rng.randrange(self._unscheduled()) - 1)

    def task_to_resource_node(self, task: Task, machine: Machine) -> Arc:
        return Arc(self.rng.randrange(MAX_ARC_COST // 3) + 1)

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        return self._drawn(machines, MAX_ARC_COST // 2)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return self._drawn(machines, MAX_ARC_COST // 4)

    def _drawn(self, machines: Machines, most: int) -> Arcs:
        cost = [self.rng.randrange(most) + 1 for _ in range(len(machines))]
        return Arcs(np.array(cost, np.int64), machines.free_slots)


class ShortestJobFirst(Slots):
    """Short pods go first; waiting eventually makes every pod worth placing. The label RUNTIME gives the runtime."""

    name = "SJF"

    def _runtime(self, task: Task) -> int:
        text = task.labels.get(RUNTIME, "")
        # Firmament keeps runtimes in milliseconds.
        return int(text) * 1000 if text.isascii() and text.isdigit() else 0

    def _price(self, task: Task) -> int:
        return min(self._runtime(task) * 100, COST_MAX // 2)

    def task_key(self, task: Task) -> object:
        return int(task.waited_s * 10), self._price(task)

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(max(int(task.waited_s * 10), self._price(task)))

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        return Arc(self._price(task) + 1)

    def task_to_resource_node(self, task: Task, machine: Machine) -> Arc:
        return Arc(self._price(task))


class Octopus(Slots):
    """Spreads pods: a machine costs 100 per pod running there."""

    name = "OCTOPUS"
    BUSY: Final = 100

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(1_000_000)

    def task_preemption(self, task: Task) -> Arc:
        return Arc(1_000_000)

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        return Arc(1)

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        return Arcs(self.BUSY * machines.running, machines.free_slots)

    def equiv_class_to_resource_node(self, ec: EquivClass, machine: Machine) -> Arc:
        return Arc(self.BUSY * machine.running, machine.free_slots)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return Arcs(self.BUSY * machines.running, machines.free_slots)

    def resource_node_to_resource_node(self, machine: Machine) -> Arc:
        return Arc(self.BUSY * machine.running, machine.free_slots)


class Void(Slots):
    """Nothing costs anything, not even leaving a pod unscheduled."""

    name = "VOID"

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(0)


class SpecClass(NamedTuple):
    """The equivalence class of a specification; equal specifications share one object."""

    spec: PodSpec

    def __str__(self) -> str:
        return ", ".join(f"{name}={amount}" for name, amount in self.spec.requests) or "no requests"


class _Tiers(Slots, OneClass):
    """Each further pod on a machine has its own price. args: `machineClasses`, the pods per machine and round (10)."""

    UNSCHEDULED: Final = 2_560_000
    defaults: Mapping[str, Any] = {"machineClasses": 10}
    kinds: Mapping[str, Kind] = {"machineClasses": whole(1, 1000)}

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self.machine_classes = self.args["machineClasses"]

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(self.UNSCHEDULED)

    def _class_of(self, task: Task) -> EquivClass:
        return SpecClass(task.pod.spec)


class Net(_Tiers):
    """Prefers the most free network bandwidth. args: `resource`, the bandwidth in requests and nodes
    (minikube-py.io/net-rx-bandwidth)."""

    name = "NET"
    defaults: Mapping[str, Any] = {**_Tiers.defaults, "resource": "minikube-py.io/net-rx-bandwidth"}
    kinds = {**_Tiers.kinds, "resource": text}

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._resource = self.args["resource"]

    def _class_of(self, task: Task) -> EquivClass:
        return f"{task.request(self._resource)} of {self._resource}"

    def equiv_class_to_machine_classes(self, ec: EquivClass, machines: Machines, index: int) -> Arcs:
        wanted = self._tasks[ec].request(self._resource) * (index + 1)
        available = np.maximum(0, machines.free(self._resource))
        fits = available >= wanted
        price = np.maximum(wanted - available, -COST_MAX // 2) + 1_280_000
        return Arcs(np.where(fits, price, 0), fits.astype(np.int64))


class CpuMem(_Tiers):
    """Poseidon's: prefers the least and most balanced use of cpu and memory. Affinity costs are those of a pod without
    preferences, 1,000 each; those of taints and of preferAvoidPods are 0."""

    name = "CPU_MEM"
    NO_PREFERENCE: Final = 2 * OMEGA

    def equiv_class_to_machine_classes(self, ec: EquivClass, machines: Machines, index: int) -> Arcs:
        task = self._tasks[ec]
        room = np.ones(len(machines.slots), np.bool_)
        taken: list[IntArray] = []
        for resource in (CPU, MEMORY):
            wanted, free, all_of_it = task.request(resource), machines.free(resource), machines.allocatable(resource)
            # More may be requested on a node than it has: that keeps nobody away who asks for none of it.
            room &= (free >= wanted * (index + 1)) | (wanted == 0)
            # As 32-bit floats, like Firmament.
            part = (all_of_it - free + index * wanted) / np.maximum(all_of_it, 1).astype(np.float32)
            # Usage can exceed the capacity if a node has shrunk.
            taken.append(np.clip(part, 0, 1).astype(np.float32))
        cpu, memory = taken
        mean = (cpu + memory) / np.float32(2)
        variance = ((cpu - mean) ** 2 + (memory - mean) ** 2) / np.float32(2)
        cost = ((cpu * OMEGA).astype(np.int64) + (memory * OMEGA).astype(np.int64)) // 2
        cost = cost + (variance * OMEGA).astype(np.int64) + self.NO_PREFERENCE
        return Arcs(np.where(room, cost, 0), room.astype(np.int64))


class Electricity(_Tiers):
    """Minimises electricity: the power a pod adds to its machine, times the local price of a kWh.

    A machine draws IDLE_WATTS when on, rising linearly to PEAK_WATTS at full cpu. A pod on an empty machine pays the
    idle power in proportion to its cpu share (the fixed cost, spread: a flow cannot charge it once). Costs are in
    thousandths of a cent per hour. args: `idleWatts` (100) and `peakWatts` (250) for nodes without labels;
    `centsPerKwh`: by the value of `zoneLabel` (topology.kubernetes.io/zone), `otherwise` (30)."""

    name = "ELECTRICITY"
    defaults: Mapping[str, Any] = {
        **_Tiers.defaults, "idleWatts": 100, "peakWatts": 250, "centsPerKwh": {},
        "zoneLabel": "topology.kubernetes.io/zone",
    }  # fmt: skip
    kinds = {
        **_Tiers.kinds, "idleWatts": whole(0, 1_000_000), "peakWatts": whole(0, 1_000_000),
        "centsPerKwh": mapped(number(0, 10_000)), "zoneLabel": text,
    }  # fmt: skip

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._idle, self._peak = self.args["idleWatts"], self.args["peakWatts"]
        self._cents = self.args["centsPerKwh"]
        self._zone = self.args["zoneLabel"]

    def _prices(self, machines: Machines) -> Any:
        found = np.full(len(machines), self._cents.get("otherwise", 30.0))
        for zone, cents in self._cents.items():
            found[machines.nodes.label_mask(self._zone, zone)] = cents
        return found

    def equiv_class_to_machine_classes(self, ec: EquivClass, machines: Machines, index: int) -> Arcs:
        task = self._tasks[ec]
        cpu = np.maximum(1, machines.allocatable(CPU))
        idle, peak = (
            machines.values(label, otherwise).astype(np.float64)
            for label, otherwise in ((IDLE_WATTS, self._idle), (PEAK_WATTS, self._peak))
        )
        watts = np.maximum(0.0, peak - idle) + np.where(machines.running == 0, np.maximum(0.0, idle), 0.0)
        # watts x cents / kWh is thousandths of a cent an hour. A label may say any number of watts.
        cost = np.clip(watts * (task.request(CPU) / cpu) * self._prices(machines), -COST_MAX, COST_MAX)
        return Arcs(np.rint(cost).astype(np.int64), (machines.fit(task) > index).astype(np.int64))


MODELS: Final[Mapping[str, type[CostModel]]] = {
    model.name: model
    for model in (
        Trivial, Random, ShortestJobFirst, Quincy, WhareMap, Coco, Octopus, Void, Net, QuincyInterference, CpuMem,
        Electricity,
    )
}  # fmt: skip


def model_named(target: str, args: Mapping[str, Any], rng: random.Random) -> CostModel:
    """One of `MODELS`, `FILE.py:CLASS`, `MODULE:CLASS`, or the name of an entry point of `minikube_py.cost_models`.

    Raises: ConfigError, with the location and a remedy."""
    kind: Callable[..., Any] | None = MODELS.get(target)
    if kind is None:
        try:
            if target.rpartition(":")[0]:
                kind = find_class(target, "task_to_unscheduled_agg", required=False)
            else:
                installed = {point.name: point for point in entry_points(group=GROUP)}
                if target not in installed:
                    names = ", ".join((*MODELS, *installed))
                    raise ConfigError(f"there is no cost model {target!r}; the models are: {names}; or FILE.py:CLASS")
                kind = load(installed[target])
        except (ConfigError, BadCode) as error:
            raise ConfigError(str(error)) from error
        except raised() as error:
            raise ConfigError(f"cost model {target}: {told(error)}") from error
        if not isinstance(kind, type) or not issubclass(kind, CostModel):
            raise ConfigError(f"{target} is not derived from minikube_py.scheduler.flow.CostModel")
    try:
        model: CostModel = kind(args, rng)
        # An inherited name would be another model's.
        model.name = name_of(kind, target, "name") if "name" in vars(kind) else target.rpartition(":")[2]
        tiers = model.machine_classes
    except ConfigError:
        raise
    except raised() as error:
        raise ConfigError(f"cost model {target}: {told(error)}") from error
    if not isinstance(tiers, int) or tiers < 0:
        raise ConfigError(f"cost model {target}: machine_classes is {tiers!r}; a whole number from 0 is expected")
    return model
