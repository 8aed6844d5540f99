"""Choices that are made but not yet seen in what the API server serves.

An assumed object stands in for the informer's as long as that one is of the version that the choice was made from: as
soon as the informer has another, that is the truth, and the choice will be refused when it is written. Source:
`volumebinding/passive_assume_cache.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from minikube_py.client.store import ObjectStore


class Versioned(Protocol):
    @property
    def uid(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def resource_version(self) -> str: ...


V = TypeVar("V", bound=Versioned)


class OutOfSync(Exception):
    """The object has changed, or gone, since the choice was made."""


class AssumedObjects(Generic[V]):
    """Over the store of an informer, whose handler is to call `changed`."""

    def __init__(self, store: ObjectStore[V]) -> None:
        self._store = store
        self._assumed: dict[str, V] = {}

    def __len__(self) -> int:
        return len(self._assumed)

    def get(self, key: str) -> V | None:
        known = self._store.get(key)
        return None if known is None else self._newest(known)

    def served(self, key: str) -> V | None:
        """What the informer has, whatever is assumed."""
        return self._store.get(key)

    def by_index(self, name: str, value: Hashable) -> list[V]:
        """By what the informer has; each as it is assumed, and in the order of their names."""
        found = sorted(self._store.by_index(name, value), key=lambda each: each.key)
        return [self._newest(each) for each in found] if self._assumed else found

    def assume(self, chosen: V) -> None:
        """Raises: OutOfSync."""
        known = self._store.get(chosen.key)
        if known is None:
            raise OutOfSync(f'"{chosen.key}" not found')
        if known.resource_version != chosen.resource_version:
            stored, assumed = known.resource_version, chosen.resource_version
            raise OutOfSync(f'"{chosen.key}" is out of sync (stored: {stored}, assume: {assumed})')
        self._assumed[chosen.key] = chosen

    def restore(self, chosen: V) -> None:
        """Takes the choice back, unless the object has moved on."""
        assumed = self._assumed.get(chosen.key)
        if assumed is not None and assumed.resource_version == chosen.resource_version:
            del self._assumed[chosen.key]

    def changed(self, key: str) -> None:
        """The informer has another version of the object, or has it no more."""
        assumed, known = self._assumed.get(key), self._store.get(key)
        if assumed is not None and (known is None or known.resource_version != assumed.resource_version):
            del self._assumed[key]

    def _newest(self, known: V) -> V:
        assumed = self._assumed.get(known.key)
        return assumed if assumed is not None and assumed.resource_version == known.resource_version else known
