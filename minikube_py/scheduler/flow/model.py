"""The cost model interface: the methods of Firmament's `CostModelInterface`, by name.

A task here is a class of equal pods. Methods that price an arc to one machine have a vectorised form for many machines
as numpy arrays; without it, the first is called for each. If both exist, they must agree.
Source: camsas/firmament, src/scheduling/flow/cost_model_interface.h.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.client.sharing import locked
from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.configuration.own_args import Kind, anything, read_args
from minikube_py.scheduler.flow.problem import AMOUNT_MAX
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import PODS, NodeInfo, PodInfo
from minikube_py.scheduler.topology import REQUIRED_ANTI_AFFINITY, Topology

EquivClass = Hashable
CLUSTER: Final = "cluster"
"""The equivalence class for any machine: Firmament's cluster aggregator."""

TASK_TYPE: Final = "minikube-py.io/task-type"
"""Pod label: sheep, rabbit, devil or turtle; default sheep, the first of Firmament's TaskDescriptor.TaskType."""
TASK_TYPES: Final = ("sheep", "rabbit", "devil", "turtle")


class Arc(NamedTuple):
    """`capacity`: how many pods may use the arc; `min_flow`: how many must, between tasks and classes; 0 elsewhere.
    A class that has fewer pods, or cannot meet it, stays Pending. Both are of one flow and of one class of pods, which
    has its own copy of each equivalence class: they bound no pods of other classes together with these. The filters may
    turn down some of the pods that a `min_flow` let through, and it counts none that run: it is no gang."""

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


def job_of(pod: PodInfo) -> str:
    """Pods without an owner share one job within their namespace."""
    if pod.controller is None:
        return pod.namespace
    _, kind, name = pod.controller
    return f"{pod.namespace}/{kind}/{name}"


def labels_that_matter(pod: PodInfo, topology: Topology, by_others: bool) -> Hashable:
    """What filters that read more than a node may read of its labels: the terms by which running pods shun it, and all
    labels if it selects others by labels, as equal pods may be selected, too. `by_others`: all labels, too, as there
    are custom filters of that kind."""
    spec = pod.spec
    shun = frozenset(one.key for one in topology.carried_against(pod) if one.kind == REQUIRED_ANTI_AFFINITY)
    if not (by_others or spec.pod_affinity or spec.pod_anti_affinity or spec.spread):
        return shun
    return shun, pod.namespace, tuple(sorted(pod.labels.items()))


@dataclass(slots=True, eq=False)
class Task:
    """Equal pods. `pod` is one of them, `count` their number; `waited_s` since this process first tried it; `node` and
    `ran_s` if they run, "" and 0 if they wait. Read-only: the graph counts by it. A subclass may have attributes of
    its own."""

    pod: PodInfo
    count: int = 1
    waited_s: float = 0.0
    job: str = ""
    node: str = ""
    ran_s: float = 0.0

    def __setattr__(self, name: str, value: Any) -> None:
        # A frozen dataclass with slots would refuse attributes of subclasses, too.
        if name in Task.__slots__ and hasattr(self, name):
            raise AttributeError(f"{name} of a Task is read-only")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in Task.__slots__:
            raise AttributeError(f"{name} of a Task is read-only")
        object.__delattr__(self, name)

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
    """A node, as an arc to it sees it."""

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
        """At most what an arc may have."""
        return min(max(0, self.slots - self.running), AMOUNT_MAX)

    def allocatable(self, resource: str) -> int:
        return self.info.allocatable.get(resource, 0)

    def free(self, resource: str) -> int:
        return self.allocatable(resource) - self.info.requested.get(resource, 0)


class Machines:
    """Nodes in order; each figure is an array with one entry per node. Read-only."""

    __slots__ = ("nodes", "slots")

    def __init__(self, nodes: Nodes, slots: IntArray) -> None:
        self.nodes = nodes
        self.slots = locked(slots)

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
        """At most what an arc may have."""
        return np.clip(self.free(PODS), 0, AMOUNT_MAX)

    def positions(self, names: Sequence[str]) -> IntArray:
        """The positions of those of `names` that are present."""
        wanted = self.nodes.columns.slots_of(names)
        return np.flatnonzero(np.isin(self.slots, wanted))

    def values(self, key: str, otherwise: int) -> IntArray:
        """The values of an integer label."""
        valid, values = self.nodes.label_ints(key)
        return np.where(valid, values, otherwise)

    def fit(self, task: Task) -> IntArray:
        """How many of the task's pods each takes, by the free amounts of all requested resources."""
        found = self.free_slots
        for resource, amount in task.pod.spec.requests:
            found = np.minimum(found, np.maximum(0, self.free(resource)) // amount)
        return found


class MachineClass(NamedTuple):
    """The machine after taking `number` more pods: one more may go through it."""

    machine: Machine
    number: int


FORMS: Final[Mapping[str, str]] = {
    "equiv_class_to_resource_node": "equiv_class_to_resource_nodes",
    "resource_node_to_resource_node": "resource_nodes_to_resource_nodes",
    "leaf_resource_node_to_sink": "leaf_resource_nodes_to_sink",
}
"""By method for one machine, the one for many."""


class ModelError(Exception):
    """A cost model failed or returned an invalid price or capacity; the message names class, arc and pod."""


class MinimumUnmet(ModelError):
    """A class has fewer pods than a `min_flow` asks for, or it cannot be met: they stay Pending, as the model asks."""


class CostModel:
    """Subclass this. `args`: from the configuration, over `defaults`; unknown ones are errors. `kinds`: what an
    argument may be (`scheduler.configuration.own_args`); by default anything. `rng`: the only source of randomness.

    `machine_classes`: how many pods of a round may go to a machine, each by an arc with its own price
    (`equiv_class_to_machine_classes`); 0 if a class has one arc to a machine."""

    name = ""
    defaults: Mapping[str, Any] = {}
    kinds: Mapping[str, Kind] = {}
    machine_classes = 0

    def __init_subclass__(cls, **given: Any) -> None:
        """A class that prices one machine, itself or by a mixin, is asked so for many, whatever a later base has for
        many."""
        super().__init_subclass__(**given)
        for one, many in FORMS.items():
            first = next(vars(each) for each in cls.__mro__ if one in vars(each) or many in vars(each))
            if many not in first:
                setattr(cls, many, getattr(CostModel, many))

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        kinds = {**dict.fromkeys(self.defaults, anything), **self.kinds}
        self.args = {**self.defaults, **read_args(f"cost model {self.name or type(self).__name__}", args, kinds)}
        self.rng = rng

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def add_machine(self, machine: Machine) -> None:
        """A node was added."""

    def remove_machine(self, name: str) -> None:
        """A node was removed."""

    def add_task(self, task: Task) -> None:
        """A class of pods joins a round; called before anything else about it."""

    def remove_task(self, task: Task) -> None:
        """The flow was found: the task leaves the round."""

    def prepare_stats(self, machines: Machines) -> None:
        """A round begins."""

    def gather_stats(self, machine: Machine) -> None:
        """The machine or its pods changed since the last round."""

    def update_stats(self, machines: Machines) -> None:
        """All changes were reported."""

    # --- arcs -------------------------------------------------------------------------------------------------------

    def task_key(self, task: Task) -> Hashable:
        """What prices depend on besides specification, owner and priority: pods that differ in it are different
        tasks."""
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
        """The price of leaving one of its pods unscheduled; it must not fall over time."""
        raise NotImplementedError

    def unscheduled_agg_to_sink(self, job: str) -> Arc:
        """Only the cost counts: capacity is unlimited."""
        return Arc(0)

    def task_to_equiv_class_aggregator(self, task: Task, ec: EquivClass) -> Arc:
        """The capacity is per pod: 1, or 0 for none."""
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
        """From a machine to its processing units."""
        return Arc(0, machine.free_slots)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return _each(self.resource_node_to_resource_node, machines)

    def leaf_resource_node_to_sink(self, machine: Machine) -> Arc:
        return Arc(0, machine.free_slots)

    def leaf_resource_nodes_to_sink(self, machines: Machines) -> Arcs:
        return _each(self.leaf_resource_node_to_sink, machines)

    def task_continuation(self, task: Task) -> Arc:
        """The price of a running pod's continuation, with `preemption`."""
        return Arc(0)

    def task_preemption(self, task: Task) -> Arc:
        """The price of evicting it, which is at least that of waiting again."""
        return Arc(0)


def _each(price: Callable[[Machine], Arc], machines: Machines) -> Arcs:
    arcs = [price(machine) for machine in machines]
    for arc, machine in zip(arcs, machines, strict=True):
        if any(arc[2:]):
            raise ValueError(f"min_flow of machine {machine.name} is {arc[2]}; only arcs between classes have one")
    # Unconverted: the graph rejects non-integers, naming the machine.
    cost, capacity = np.array([arc[0] for arc in arcs]), np.array([arc[1] for arc in arcs])
    return Arcs(cost, capacity) if arcs else Arcs(np.zeros(0, np.int64), np.zeros(0, np.int64))
