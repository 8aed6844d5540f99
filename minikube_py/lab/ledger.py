"""Verifies from the objects alone, without scheduler code, that pods fit where they were bound.

The ledger follows the watch in revision order: at no revision may a node exceed its capacity, or hold a pod that its
labels do not admit. At the end, pending pods must fit no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minikube_py.errors import MinikubeError
from minikube_py.lab.predicates import PODS, Amounts, Expression, LabNode, LabPod, Shape


class Misplaced(MinikubeError):
    """A pod is bound where it does not fit, or pending although it fits somewhere."""


def matches(terms: Sequence[Sequence[Expression]], labels: Mapping[str, str]) -> bool:
    """Node affinity by definition: one term holds, with all its expressions."""
    return not terms or any(all(_holds(expression, labels) for expression in term) for term in terms)


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.key), expression.values
    if expression.operator == "In":
        return value in values
    if expression.operator == "NotIn":
        return value not in values
    if value is None:
        return False
    return int(value) > int(values[0]) if expression.operator == "Gt" else int(value) < int(values[0])


class Verdict(NamedTuple):
    """`bound`: number of bindings followed; `pending`: remaining pods, which fit nowhere; `full`: by resource, the
    final requested share of the nodes."""

    bound: int
    pending: int
    full: dict[str, float]


class Ledger:
    def __init__(self, nodes: Iterable[LabNode], pods: Iterable[LabPod]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._free = {name: _free_of(node) for name, node in self._nodes.items()}
        self._shapes = {pod.body.key: pod.shape for pod in pods}
        self._where: dict[str, str] = {}
        self.bindings = 0
        self.wrong: list[str] = []

    def bound(self, key: str, node: str) -> None:
        """Watch event: the pod `namespace/name` is bound to `node`."""
        shape = self._shapes[key]
        self.bindings += 1
        self._where[key] = node
        if node not in self._nodes:
            self.wrong.append(f"pod {key} is bound to {node}, which does not exist")
            return
        if not matches(shape.terms, self._nodes[node].labels):
            self.wrong.append(f"pod {key} is bound to {node}, whose labels do not match its node affinity")
        free = self._free[node]
        for resource, amount in _with_itself(shape).items():
            left = free[resource] = free.get(resource, 0) - amount
            if left < 0:
                self.wrong.append(f"with pod {key}, {node} lacks {-left} of {resource}")

    def gone(self, key: str) -> None:
        node = self._where.pop(key, "")
        if node in self._free:
            free = self._free[node]
            for resource, amount in _with_itself(self._shapes[key]).items():
                free[resource] += amount

    def fits_on(self, key: str) -> str:
        """A node on which the pod fits now, or "". Checks every node."""
        shape = self._shapes[key]
        wanted = tuple(_with_itself(shape).items())
        for name, free in self._free.items():
            for resource, amount in wanted:
                if free.get(resource, 0) < amount:
                    break
            else:
                if matches(shape.terms, self._nodes[name].labels):
                    return name
        return ""

    def compare(self, placed: Mapping[str, str]) -> None:
        """`placed`: pod to node, from a list. Raises: Misplaced if it differs from the watch."""
        if placed != self._where:
            keys = sorted({*placed.items()} ^ {*self._where.items()})
            raise Misplaced(f"list and watch differ in {len(keys)} places, first {keys[:3]}")

    def verdict(self, pending: Iterable[str]) -> Verdict:
        """Raises: Misplaced."""
        if self.wrong:
            raise Misplaced(f"{len(self.wrong)} pods do not fit where they were bound: {'; '.join(self.wrong[:3])}")
        left = list(pending)
        for key in left:
            node = self.fits_on(key)
            if node:
                raise Misplaced(f"pod {key} is pending, but fits on {node}")
        return Verdict(self.bindings, len(left), self.full())

    def full(self) -> dict[str, float]:
        total: Amounts = {}
        free: Amounts = {}
        for name, node in self._nodes.items():
            for resource, amount in node.allocatable.items():
                total[resource] = total.get(resource, 0) + amount
                free[resource] = free.get(resource, 0) + self._free[name][resource]
        return {resource: round(1 - free[resource] / total[resource], 4) for resource in total}


def _free_of(node: LabNode) -> Amounts:
    """The bound pod that fills the node counts as one of its pods."""
    used = {**node.used, PODS: 1}
    return {resource: amount - used.get(resource, 0) for resource, amount in node.allocatable.items()}


def _with_itself(shape: Shape) -> Amounts:
    return {**shape.amounts, PODS: 1}
