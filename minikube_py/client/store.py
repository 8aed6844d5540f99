"""The content of an informer: projections by key, and indexes over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar


class Projection(Protocol):
    """The minimum of a projection: another uid under the same key is another object."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=Projection)
Indexer = Callable[[T], Iterable[Hashable]]


class ObjectStore(Generic[T]):
    """Keys are `namespace/name`, or `name` where there is no namespace. Projections are shared: never change them."""

    __slots__ = ("_indexers", "_indexes", "_items")

    def __init__(self, indexers: Mapping[str, Indexer[T]] | None = None) -> None:
        self._items: dict[str, T] = {}
        self._indexers = dict(indexers or {})
        # Values are dictionaries used as ordered sets: iteration order must not depend on hashes.
        self._indexes: dict[str, dict[Hashable, dict[str, None]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, key: str) -> T | None:
        return self._items.get(key)

    def keys(self) -> Collection[str]:
        return self._items.keys()

    def values(self) -> Collection[T]:
        return self._items.values()

    def items(self) -> Collection[tuple[str, T]]:
        return self._items.items()

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """The projections for which indexer `name` returned `value`."""
        keys = self._indexes[name].get(value)
        if not keys:
            return []
        items = self._items
        return [items[key] for key in keys]

    def count_by_index(self, name: str, value: Hashable) -> int:
        return len(self._indexes[name].get(value, ()))

    def index_values(self, name: str) -> Collection[Hashable]:
        return self._indexes[name].keys()

    def put(self, key: str, item: T) -> T | None:
        """Returns the previous item of `key`. Raises what an indexer raises for `item`, without any change."""
        old = self._items.get(key)
        found = [_as_keys(indexer(item)) for indexer in self._indexers.values()]
        self._items[key] = item
        for (name, indexer), after in zip(self._indexers.items(), found):
            self._reindex(self._indexes[name], key, () if old is None else indexer(old), after)
        return old

    def remove(self, key: str) -> T | None:
        old = self._items.pop(key, None)
        if old is not None:
            for name, indexer in self._indexers.items():
                self._reindex(self._indexes[name], key, indexer(old), ())
        return old

    @staticmethod
    def _reindex(
        index: dict[Hashable, dict[str, None]], key: str, before: Iterable[Hashable], kept: tuple[Hashable, ...]
    ) -> None:
        before = tuple(before)
        if before == kept:
            return
        stays = dict.fromkeys(kept)
        for value in before:
            if value not in stays and (keys := index.get(value)) is not None:
                keys.pop(key, None)
                if not keys:
                    del index[value]
        for value in kept:
            index.setdefault(value, {})[key] = None


def _as_keys(values: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Raises: TypeError if one is not hashable."""
    kept = tuple(values)
    dict.fromkeys(kept)
    return kept
