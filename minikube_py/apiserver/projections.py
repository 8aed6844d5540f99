"""Decoded objects for admission, updated by events instead of decoded per request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.mvcc.types import prefix_end


class Projection:
    """The objects of one kind by key, in key order, and separately the defaults among them."""

    def __init__(self, kind: Kind) -> None:
        self._is_default = kind.is_default
        self.objects: SortedDict = SortedDict()
        self.defaults: SortedDict = SortedDict()

    def load(self, entries: Iterable[Entry]) -> None:
        self.objects.clear()
        self.defaults.clear()
        for entry in entries:
            self.put(entry.key, entry)

    def put(self, key: bytes, entry: Entry | None) -> None:
        """`entry` None: deleted."""
        if entry is None:
            self.objects.pop(key, None)
            self.defaults.pop(key, None)
            return
        obj = self.objects[key] = entry.decode()
        if self._is_default(obj):
            self.defaults[key] = obj
        else:
            self.defaults.pop(key, None)

    def under(self, prefix: bytes) -> Iterator[Json]:
        return (self.objects[key] for key in self.objects.irange(prefix, prefix_end(prefix), (True, False)))


def project(cache: WatchCache, kinds: Iterable[Kind]) -> dict[Kind, Projection]:
    """Keeps these kinds decoded. Call before the cache is loaded."""
    found: dict[Kind, Projection] = {}
    for kind in kinds:
        of = cache.of(kind)
        found[kind] = of.projection = of.projection or Projection(kind)
    return found
