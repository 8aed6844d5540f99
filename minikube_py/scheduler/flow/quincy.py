"""Quincy's cost model: pods go where their data is, and waiting makes a pod worth the transfer.

Source: camsas/firmament, quincy_cost_model.cc; Isard et al., SOSP 2009.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.scheduler.configuration.own_args import fields, flag, mapped, number, text
from minikube_py.scheduler.flow.coco import penalties_of
from minikube_py.scheduler.flow.model import CLUSTER, Arc, Arcs, EquivClass, Machine, Machines, Task
from minikube_py.scheduler.flow.shared import ByLabel, Slots
from minikube_py.scheduler.framework import IntArray

INPUT: Final = "minikube-py.io/input"
"""Pod label: the name of its input; the args give its size and locations."""


class Rack(NamedTuple):
    """The machines with one value of the rack label."""

    name: str

    def __str__(self) -> str:
        return f"rack {self.name}"


class _Input(NamedTuple):
    """GiB: total, and by node."""

    size: float
    on: Mapping[str, float]


GIB: Final = number(0, 2**30)
"""Up to an exbibyte."""


class Quincy(Slots):
    """args: `inputs`: by the value of the pod's label INPUT, `{gib: 8, on: {node-1: 8, node-2: 3}}`; `rackLabel` of
    nodes (topology.kubernetes.io/zone); `noSchedulingDelay` (false)."""

    name = "QUINCY"
    defaults: Mapping[str, Any] = {
        "inputs": {}, "rackLabel": "topology.kubernetes.io/zone", "noSchedulingDelay": False
    }  # fmt: skip
    kinds = {
        "inputs": mapped(fields({"gib": GIB, "on": mapped(GIB)}, needed=("gib",))), "rackLabel": text,
        "noSchedulingDelay": flag,
    }  # fmt: skip
    WAIT_FACTOR: Final = 0.5
    OFFSET: Final = 2_592_000
    TOR_COST: Final = 1
    CORE_COST: Final = 2
    PREFERRED: Final = 0.1

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._inputs = {name: _Input(each["gib"], each.get("on", {})) for name, each in self.args["inputs"].items()}
        self._racks = ByLabel(self.args["rackLabel"])
        self._delay = 39 * self.CORE_COST if self.args["noSchedulingDelay"] else 0

    def gather_stats(self, machine: Machine) -> None:
        self._racks.add(machine)

    def remove_machine(self, name: str) -> None:
        self._racks.remove(name)

    def task_key(self, task: Task) -> object:
        return int(task.waited_s), task.labels.get(INPUT, "")

    # --- data -------------------------------------------------------------------------------------------------------

    def _input(self, task: Task) -> _Input:
        return self._inputs.get(task.labels.get(INPUT, ""), _Input(0.0, {}))

    def _on_rack(self, data: _Input, rack: str) -> float:
        """At most the total: machines of a rack may hold the same blocks, which the args do not describe."""
        return min(data.size, sum(gib for node, gib in data.on.items() if self._racks.of(node) == rack))

    def transfer_cost(self, remote: float, on_rack: float) -> int:
        """`remote`: GiB not on the machine; `on_rack`: those of them in its rack."""
        return int(self.TOR_COST * on_rack + self.CORE_COST * (remote - on_rack))

    def _to_machine(self, data: _Input, name: str) -> int:
        here = min(data.size, data.on.get(name, 0.0))
        there = self._on_rack(data, self._racks.of(name) or "")
        return self.transfer_cost(data.size - here, max(0.0, there - here))

    def _to_rack(self, data: _Input, rack: str) -> int:
        """The cost of its worst machine."""
        return max(self._to_machine(data, name) for name in self._racks.names(rack))

    def _to_cluster(self, data: _Input) -> int:
        known = {self._racks.of(node) for node in data.on} - {None}
        worst = int(self.CORE_COST * data.size) if len(known) < len(self._racks) else 0
        return max([worst, *(self._to_rack(data, rack) for rack in self._racks if rack in known)])

    # --- arcs -------------------------------------------------------------------------------------------------------

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        return Arc(int(task.waited_s * self.WAIT_FACTOR) + self.OFFSET + self._delay)

    def task_preemption(self, task: Task) -> Arc:
        return self.task_to_unscheduled_agg(task)

    def task_continuation(self, task: Task) -> Arc:
        return Arc(self._to_machine(self._input(task), task.node) + self.OFFSET - int(task.ran_s))

    def get_task_equiv_classes(self, task: Task) -> Sequence[EquivClass]:
        data = self._input(task)
        held = ((rack, self._on_rack(data, rack)) for rack in self._racks) if data.size else ()
        return CLUSTER, *(Rack(rack) for rack, gib in held if gib and gib >= data.size * self.PREFERRED)

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        data = self._input(task)
        return Arc((self._to_rack(data, ec.name) if isinstance(ec, Rack) else self._to_cluster(data)) + self.OFFSET)

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> IntArray:
        data = self._input(task)
        return machines.positions([n for n, gib in data.on.items() if gib and gib >= data.size * self.PREFERRED])

    def task_to_resource_node(self, task: Task, machine: Machine) -> Arc:
        return Arc(self._to_machine(self._input(task), machine.name) + self.OFFSET)

    def get_equiv_class_to_equiv_classes_arcs(self, ec: EquivClass) -> Sequence[EquivClass]:
        return [Rack(rack) for rack in self._racks] if ec == CLUSTER else ()

    def equiv_class_to_equiv_class(self, ec: EquivClass, to: EquivClass) -> Arc:
        # Capacity is limited at the machines; a rack's is their sum.
        return Arc(0, 1 << 31)

    def get_outgoing_equiv_class_pref_arcs(self, ec: EquivClass, machines: Machines) -> IntArray | Sequence[int]:
        if not isinstance(ec, Rack):
            return ()
        return machines.positions(self._racks.names(ec.name))


class QuincyInterference(Quincy):
    """Quincy's prices plus, on each machine, CoCo's interference costs of its neighbours, for pods of all types. In
    Firmament this model is an empty shell: all costs are 0, and tasks have no arcs."""

    name = "QUINCY_INTERFERENCE"

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._penalties: dict[str, int] = {}

    def task_key(self, task: Task) -> object:
        return super().task_key(task), task.type

    def gather_stats(self, machine: Machine) -> None:
        super().gather_stats(machine)
        self._penalties[machine.name] = sum(penalties_of(machine).values())

    def remove_machine(self, name: str) -> None:
        super().remove_machine(name)
        self._penalties.pop(name, None)

    def task_to_resource_node(self, task: Task, machine: Machine) -> Arc:
        beside = penalties_of(machine)[task.type]
        return Arc(super().task_to_resource_node(task, machine).cost + beside)

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        cost = [self._penalties.get(machine.name, 0) for machine in machines]
        return Arcs(np.array(cost, np.int64), machines.free_slots)
