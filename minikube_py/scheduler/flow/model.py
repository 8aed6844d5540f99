"""What a cost model says of the graph: the methods of Firmament's `CostModelInterface`, by name.

A task here is a class of equal pods. The methods that price an arc to one machine have a second form that prices the
arcs to many at once, as numpy arrays; without it, the first is asked for each. Both, where given, must agree.
Source: camsas/firmament, src/scheduling/flow/cost_model_interface.h.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo

EquivClass = Hashable
CLUSTER: Final = "cluster"
"""The equivalence class that stands for any machine: Firmament's cluster aggregator."""

TASK_TYPE: Final = "minikube-py.io/task-type"
"""Label of a pod: sheep, rabbit, devil or turtle; a turtle where it is absent."""
TASK_TYPES: Final = ("turtle", "sheep", "rabbit", "devil")


class Arc(NamedTuple):
    """`capacity`: how many pods may go this way; `min_flow`: how many must."""

    cost: int
    capacity: int = 1
    min_flow: int = 0


class Arcs(NamedTuple):
    """One arc to each of several machines. `capacity` may be one number for all."""

    cost: IntArray | int
    capacity: IntArray | int = 1


def task_type(pod: PodInfo) -> str:
    found = pod.labels.get(TASK_TYPE, TASK_TYPES[0])
    return found if found in TASK_TYPES else TASK_TYPES[0]


class Task:
    """Pods that are alike. `pod` is one of them, `count` how many they are; `waited_s` since that one was first tried;
    `node` and `ran_s` where they run, "" and 0 where they wait."""

    __slots__ = ("count", "job", "node", "pod", "ran_s", "waited_s")

    def __init__(
        self, pod: PodInfo, count: int = 1, waited_s: float = 0.0, job: str = "", node: str = "", ran_s: float = 0.0
    ) -> None:
        self.pod = pod
        self.count = count
        self.waited_s = waited_s
        self.job = job
        self.node = node
        self.ran_s = ran_s

    @property
    def name(self) -> str:
        return self.pod.key

    @property
    def labels(self) -> Mapping[str, str]:
        return self.pod.labels

    @property
    def type(self) -> str:
        return task_type(self.pod)

    def request(self, resource: str) -> int:
        return self.pod.spec.request(resource)


class Machine:
    """A node, as one arc sees it."""

    __slots__ = ("info",)

    def __init__(self, info: NodeInfo) -> None:
        self.info = info

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.info.labels

    @property
    def running(self) -> int:
        return len(self.info.pods)

    @property
    def slots(self) -> int:
        return self.allocatable(PODS)

    @property
    def free_slots(self) -> int:
        return max(0, self.slots - self.running)

    def allocatable(self, resource: str) -> int:
        return self.info.allocatable.get(resource, 0)

    def free(self, resource: str) -> int:
        return self.allocatable(resource) - self.info.requested.get(resource, 0)


class Machines:
    """Nodes in order, each figure an array with one entry a node: never write to them."""

    __slots__ = ("nodes", "slots")

    def __init__(self, nodes: Nodes, slots: IntArray) -> None:
        self.nodes = nodes
        self.slots = slots

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, position: int) -> Machine:
        info = self.nodes.columns.by_slot[int(self.slots[position])]
        assert info is not None
        return Machine(info)

    def __iter__(self) -> Iterator[Machine]:
        return (self[i] for i in range(len(self)))

    def allocatable(self, resource: str) -> IntArray:
        return self.nodes.allocatable(resource)

    def free(self, resource: str) -> IntArray:
        return self.nodes.free(resource)

    @property
    def running(self) -> IntArray:
        return self.nodes.requested(PODS)

    @property
    def free_slots(self) -> IntArray:
        return np.maximum(0, self.free(PODS))

    def positions(self, names: Sequence[str]) -> IntArray:
        """Where those of `names` stand that are here."""
        wanted = self.nodes.columns.slots_of(names)
        return np.flatnonzero(np.isin(self.slots, wanted))

    def values(self, key: str, otherwise: int) -> IntArray:
        """A label that reads as a whole number."""
        valid, values = self.nodes.label_ints(key)
        return np.where(valid, values, otherwise)

    def fit(self, task: Task) -> IntArray:
        """How many of the task's pods each takes by what is free of all that they ask for."""
        found = self.free_slots
        for resource, amount in task.pod.spec.requests:
            found = np.minimum(found, np.maximum(0, self.free(resource)) // amount)
        return found


class MachineClass(NamedTuple):
    """The machine as it is once it has taken `number` more pods: one more may go through it."""

    machine: Machine
    number: int


class ModelError(Exception):
    """A cost model failed, or returned what is no price or no room; the message names class, arc and pod."""


class CostModel:
    """Subclass this. `args`: those of the configuration; `rng`: the only source of chance.

    `machine_classes`: so many times may pods of one round go to a machine, each time by an arc of its own price
    (`equiv_class_to_machine_classes`); 0 where a class has one arc to a machine."""

    name = ""
    machine_classes = 0

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        self.args = args
        self.rng = rng

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def add_machine(self, machine: Machine) -> None:
        """A node is there."""

    def remove_machine(self, name: str) -> None:
        """It is gone."""

    def add_task(self, task: Task) -> None:
        """A class of pods takes part in a round, before anything else is required of it."""

    def remove_task(self, task: Task) -> None:
        """The flow was found: it has no more to do with the round."""

    def prepare_stats(self, machines: Machines) -> None:
        """A round begins."""

    def gather_stats(self, machine: Machine) -> None:
        """The machine, or what runs there, changed since the last round."""

    def update_stats(self, machines: Machines) -> None:
        """All that changed has been told."""

    # --- arcs -------------------------------------------------------------------------------------------------------

    def task_key(self, task: Task) -> Hashable:
        """What prices depend on beside the specification, the owner and the priority: pods that differ in it are
        different tasks."""
        return None

    def get_task_equiv_classes(self, task: Task) -> Sequence[EquivClass]:
        return (CLUSTER,)

    def get_equiv_class_to_equiv_classes_arcs(self, ec: EquivClass) -> Sequence[EquivClass]:
        return ()

    def get_outgoing_equiv_class_pref_arcs(self, ec: EquivClass, machines: Machines) -> IntArray | Sequence[int] | None:
        """Positions within `machines`; None for all."""
        return None

    def get_task_preference_arcs(self, task: Task, machines: Machines) -> IntArray | Sequence[int]:
        return ()

    # --- costs ------------------------------------------------------------------------------------------------------

    def task_to_unscheduled_agg(self, task: Task) -> Arc:
        """The price of leaving one pod of it where it is; upon later calls it must not fall."""
        raise NotImplementedError

    def unscheduled_agg_to_sink(self, job: str) -> Arc:
        """Only its cost counts: there is always room."""
        return Arc(0)

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        """The capacity is for each pod: 1, or 0 for none."""
        return Arc(0)

    def task_to_resource_node(self, task: Task, machine: Machine) -> Arc:
        return Arc(0)

    def equiv_class_to_resource_node(self, ec: EquivClass, machine: Machine) -> Arc:
        return Arc(0, machine.free_slots)

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        return _each(lambda machine: self.equiv_class_to_resource_node(ec, machine), machines)

    def equiv_class_to_equiv_class(self, ec: EquivClass, to: EquivClass | MachineClass) -> Arc:
        return Arc(0, 0)

    def equiv_class_to_machine_classes(self, ec: EquivClass, machines: Machines, index: int) -> Arcs:
        return _each(lambda machine: self.equiv_class_to_equiv_class(ec, MachineClass(machine, index)), machines)

    def resource_node_to_resource_node(self, machine: Machine) -> Arc:
        """From a machine to what executes there."""
        return Arc(0, machine.free_slots)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return _each(self.resource_node_to_resource_node, machines)

    def leaf_resource_node_to_sink(self, machine: Machine) -> Arc:
        return Arc(0, machine.free_slots)

    def leaf_resource_nodes_to_sink(self, machines: Machines) -> Arcs:
        return _each(self.leaf_resource_node_to_sink, machines)

    def task_continuation(self, task: Task) -> Arc:
        """The price of a running pod's staying where it is, with `preemption`."""
        return Arc(0)

    def task_preemption(self, task: Task) -> Arc:
        """The price of evicting it; to wait again is the least that an eviction costs."""
        return Arc(0)


def _each(price: Callable[[Machine], Arc], machines: Machines) -> Arcs:
    arcs = [price(machine) for machine in machines]
    # As they came: what is no whole number is for the graph to refuse, with the machine's name.
    cost, capacity = np.array([arc[0] for arc in arcs]), np.array([arc[1] for arc in arcs])
    return Arcs(cost, capacity) if arcs else Arcs(np.zeros(0, np.int64), np.zeros(0, np.int64))
