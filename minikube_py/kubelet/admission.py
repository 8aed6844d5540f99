"""Whether a node has room for a pod that was bound to it, which a kubelet asks before it starts one. Pure.

Of several schedulers none knows what the others decide at the same time: the node has the last word. Source:
pkg/kubelet/lifecycle/predicate.go, and AdmissionCheck of pkg/scheduler, of which these are the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from minikube_py.fields import quantity

Amounts = Mapping[str, int]
"""cpu in milli-units, all else in units; `pods` counts the pod itself."""
Texts = tuple[tuple[str, str], ...]
_FIRST: Final = ("pods", "cpu", "memory", "ephemeral-storage")
"""Upstream names the first that is too little; of other resources, in no order."""


class Rejection(NamedTuple):
    reason: str
    message: str


class Room:
    """What the pods that were admitted to each node ask for."""

    def __init__(self) -> None:
        self._admitted: dict[str, tuple[str, Amounts]] = {}
        self._used: dict[str, dict[str, int]] = {}

    def take(self, node: str, uid: str, asked: Amounts) -> None:
        """Replaces what the pod asked for before."""
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
        """By all pods of the node but this one."""
        of, own = self._admitted.get(uid, ("", {}))
        used = self._used.get(node, {})
        return {name: amount - (own.get(name, 0) if of == node else 0) for name, amount in used.items()}

    def refusal(self, node: str, asked: Amounts, allocatable: Texts) -> Rejection | None:
        """None where the node has room. An extended resource that it knows nothing of is others' to grant."""
        most, used = amounts_of(allocatable), self._used.get(node, {})
        for name in (*_FIRST, *sorted(asked.keys() - set(_FIRST))):
            amount, capacity = asked.get(name, 0), most.get(name, 0)
            if amount <= 0 or amount <= capacity - used.get(name, 0):
                continue
            # Real kubelets always say how many pods they take.
            if name not in most and (name == "pods" or ("/" in name and "kubernetes.io/" not in name)):
                continue
            return Rejection(f"OutOf{name}", lacking(name, amount, used.get(name, 0), capacity))
        return None


def lacking(name: str, requested: int, used: int, capacity: int) -> str:
    head = f"Node didn't have enough resource: {name}, requested: {requested}, "
    return f"{head}used: {used}, capacity: {capacity}"


@lru_cache(maxsize=1024)
def amounts_of(allocatable: Texts) -> Amounts:
    """What cannot be read counts as nothing."""
    found: dict[str, int] = {}
    for name, text in allocatable:
        try:
            parsed = quantity.parse(text)
        except quantity.QuantityError:
            continue
        found[name] = parsed.milli_value() if name == "cpu" else parsed.value()
    return found
