"""Choices that the API server does not show yet.

An assumed object replaces the informer's while that has the version the choice was based on; once the informer has
another version, that one counts, and writing the choice will conflict. Source: `volumebinding/passive_assume_cache.go`.
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
    """The object has changed or is gone since the choice."""


class AssumedObjects(Generic[V]):
    """Wraps an informer's store; the informer's handler must call `changed`."""

    def __init__(self, store: ObjectStore[V]) -> None:
        self._store = store
        self._assumed: dict[str, V] = {}
        self.supposed: dict[str, V] = {}
        """Objects that do not exist, while a question about their pod is answered."""

    def __len__(self) -> int:
        return len(self._assumed)

    def get(self, key: str) -> V | None:
        known = self.served(key)
        return None if known is None else self._newest(known)

    def served(self, key: str) -> V | None:
        """The informer's object, ignoring assumptions."""
        return self._store.get(key) or self.supposed.get(key)

    def by_index(self, name: str, value: Hashable) -> list[V]:
        """Looked up by the informer's objects; returns them as assumed, ordered by name."""
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
        """Reverts the choice, unless the object has changed meanwhile."""
        assumed = self._assumed.get(chosen.key)
        if assumed is not None and assumed.resource_version == chosen.resource_version:
            del self._assumed[chosen.key]

    def changed(self, key: str) -> None:
        """The informer has another version of the object, or none."""
        assumed, known = self._assumed.get(key), self._store.get(key)
        if assumed is not None and (known is None or known.resource_version != assumed.resource_version):
            del self._assumed[key]

    def _newest(self, known: V) -> V:
        assumed = self._assumed.get(known.key)
        return assumed if assumed is not None and assumed.resource_version == known.resource_version else known
