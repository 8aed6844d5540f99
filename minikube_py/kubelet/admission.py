"""A kubelet's admission check: whether the node has room for a bound pod.

Pure. Several schedulers may overcommit a node concurrently, so the node decides. Source:
pkg/kubelet/lifecycle/predicate.go, and AdmissionCheck of pkg/scheduler, of which these are the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from minikube_py.fields import quantity

Amounts = Mapping[str, int]
"""cpu in milli-units, all else in units; `pods` counts the pod itself."""
Texts = Mapping[str, str]
_FIRST: Final = ("pods", "cpu", "memory", "ephemeral-storage")
"""Upstream names the first insufficient one; other resources in no order."""


class Rejection(NamedTuple):
    reason: str
    message: str


class Room:
    """The requests of each node's admitted pods."""

    def __init__(self) -> None:
        self._admitted: dict[str, tuple[str, Amounts]] = {}
        self._used: dict[str, dict[str, int]] = {}

    def take(self, node: str, uid: str, asked: Amounts) -> None:
        """Replaces the pod's earlier requests."""
        self.leave(uid)
        self._admitted[uid] = node, asked
        used = self._used.setdefault(node, {})
        for name, amount in asked.items():
            used[name] = used.get(name, 0) + amount

    def leave(self, uid: str) -> None:
        """Idempotent."""
        node, asked = self._admitted.pop(uid, ("", {}))
        if not node:
            return
        used = self._used[node]
        for name, amount in asked.items():
            used[name] -= amount
        if not used.get("pods"):
            del self._used[node]

    def used_beside(self, node: str, uid: str) -> dict[str, int]:
        """Used by all other pods of the node."""
        of, own = self._admitted.get(uid, ("", {}))
        used = self._used.get(node, {})
        return {name: amount - (own.get(name, 0) if of == node else 0) for name, amount in used.items()}

    def refusal(self, node: str, asked: Amounts, allocatable: Texts) -> Rejection | None:
        """None if the node has room. Extended resources unknown to the node are ignored."""
        used = self._used.get(node, {})
        for name in (*_FIRST, *sorted(asked.keys() - set(_FIRST))):
            amount, capacity = asked.get(name, 0), amount_of(name, allocatable)
            if amount <= 0 or (capacity is not None and amount <= capacity - used.get(name, 0)):
                continue
            # Real kubelets always report their pod limit.
            if capacity is None and (name == "pods" or ("/" in name and "kubernetes.io/" not in name)):
                continue
            return Rejection(f"OutOf{name}", lacking(name, amount, used.get(name, 0), capacity or 0))
        return None


def lacking(name: str, requested: int, used: int, capacity: int) -> str:
    head = f"Node didn't have enough resource: {name}, requested: {requested}, "
    return f"{head}used: {used}, capacity: {capacity}"


def amount_of(name: str, allocatable: Texts) -> int | None:
    """Only what a pod asks for is read: a node may have thousands of resources. None: it has none that can be read."""
    try:
        parsed = quantity.parse(allocatable[name])
    except (KeyError, quantity.QuantityError):
        return None
    return parsed.milli_value() if name == "cpu" else parsed.value()
