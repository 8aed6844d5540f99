"""What admission may look at: the other objects of the cluster, as the watch cache holds them."""

from __future__ import annotations

from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.preparing import KindKey
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock


class CachedCluster:
    """See `api.kind.Cluster`. What it gives is shared, and must not be changed."""

    def __init__(self, cache: WatchCache, clock: Clock) -> None:
        self._cache = cache
        self.wall_s = clock.wall_s

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        entry = self._cache.of(kind).entries.get(kind.key(namespace, name))
        return None if entry is None else entry.decode()

    def all(self, kind: Kind) -> list[Json]:
        return [entry.decode() for entry in self._cache.of(kind).entries.values()]

    def seen_by(self, kind: Kind) -> dict[KindKey, list[Json]]:
        """What the admission of `kind` looks at, as a value that can be sent to another process."""
        return {key: self.all(seen) for key in kind.sees if (seen := REGISTRY.resource(*key)) is not None}
