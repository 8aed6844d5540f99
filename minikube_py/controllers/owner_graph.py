"""The ownership graph, by uid. Pure.

Only edges are kept: an object without owners or dependents costs nothing. Owners may be unknown to the informers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minikube_py.client.rest import ResourceRef
from minikube_py.controllers.views import OwnerRef


class Item(NamedTuple):
    """One object. `kind` and `api_version` are as ownerReferences name them."""

    resource: ResourceRef
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerGraph:
    def __init__(self) -> None:
        # Dictionaries used as ordered sets: the processing order must not depend on hashes.
        self._dependents: dict[str, dict[Item, None]] = {}

    @property
    def edges(self) -> int:
        return sum(len(dependents) for dependents in self._dependents.values())

    def add(self, item: Item, owners: Iterable[OwnerRef]) -> None:
        for owner in owners:
            self._dependents.setdefault(owner.uid, {})[item] = None

    def remove(self, item: Item, owners: Iterable[OwnerRef]) -> None:
        for owner in owners:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.pop(item, None)
                if not dependents:
                    del self._dependents[owner.uid]

    def update(self, item: Item, old: tuple[OwnerRef, ...], new: tuple[OwnerRef, ...]) -> None:
        if old != new:
            kept = {owner.uid for owner in new}
            self.remove(item, (owner for owner in old if owner.uid not in kept))
            self.add(item, new)

    def dependents(self, uid: str) -> list[Item]:
        return list(self._dependents.get(uid, ()))

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents


def unblocked_owners(old: tuple[OwnerRef, ...], new: tuple[OwnerRef, ...]) -> list[str]:
    """Uids of owners whose deletion a change of references no longer blocks."""
    now = {owner.uid: owner for owner in new}
    return [
        owner.uid
        for owner in old
        if owner.block_owner_deletion and not (owner.uid in now and now[owner.uid].block_owner_deletion)
    ]
