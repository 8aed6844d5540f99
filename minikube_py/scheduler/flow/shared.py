"""Common parts of cost models: slots as capacity, one class per task, machines by label."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minikube_py.scheduler.flow.model import Arcs, CostModel, EquivClass, Machine, Machines, Task


class Slots(CostModel):
    """Common to most of Firmament's models: a class reaches every machine at one price, up to its free slots."""

    def equiv_class_to_resource_nodes(self, ec: EquivClass, machines: Machines) -> Arcs:
        return Arcs(0, machines.free_slots)

    def resource_nodes_to_resource_nodes(self, machines: Machines) -> Arcs:
        return Arcs(0, machines.free_slots)

    def leaf_resource_nodes_to_sink(self, machines: Machines) -> Arcs:
        return Arcs(0, machines.free_slots)


class OneClass(CostModel):
    """Each task has one equivalence class, from which its arcs are priced."""

    def __init__(self, args: Mapping[str, Any], rng: random.Random) -> None:
        super().__init__(args, rng)
        self._tasks: dict[EquivClass, Task] = {}

    def _class_of(self, task: Task) -> EquivClass:
        raise NotImplementedError

    def get_task_equiv_classes(self, task: Task) -> Sequence[EquivClass]:
        ec = self._class_of(task)
        self._tasks[ec] = task
        return (ec,)

    def remove_task(self, task: Task) -> None:
        self._tasks.pop(self._class_of(task), None)


class ByLabel:
    """Machine names by the value of one label; "" if it is absent."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._names: dict[str, dict[str, None]] = {}
        self._value_of: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        """The values that occur."""
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, machine: Machine) -> None:
        """Also for a machine that is known: its label may have changed."""
        value = machine.labels.get(self._label, "")
        if self._value_of.get(machine.name, value) != value:
            self.remove(machine.name)
        self._value_of[machine.name] = value
        self._names.setdefault(value, {})[machine.name] = None

    def remove(self, name: str) -> None:
        value = self._value_of.pop(name)
        del self._names[value][name]
        if not self._names[value]:
            del self._names[value]

    def of(self, name: str) -> str | None:
        return self._value_of.get(name)

    def names(self, value: str) -> list[str]:
        return list(self._names.get(value, ()))
