"""Objects that admission looks at, decoded once for each of their states: kept by events, not made by requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.mvcc.types import prefix_end


class Projection:
    """The objects of one kind by key, in key order, and apart from them those that are its defaults."""

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
        """`entry` None: it is gone."""
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


def project(cache: WatchCache, kinds: Iterable[Kind]) -> None:
    """From now on, these kinds are kept decoded. To be called before the cache is loaded."""
    for kind in kinds:
        of = cache.of(kind)
        of.projection = of.projection or Projection(kind)
