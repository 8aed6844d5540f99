"""The cluster's other objects for admission, from the watch cache."""

from __future__ import annotations

from collections.abc import Iterable

from minikube_py.api.errors import Json
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.kind import Kind
from minikube_py.apiserver.preparing import KindKey, key_of
from minikube_py.apiserver.projections import Projection, project
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock


class CachedCluster:
    """See `api.kind.Cluster`. Results are shared; do not change them."""

    def __init__(self, cache: WatchCache, clock: Clock, gates: FeatureGates = NO_GATES) -> None:
        self.gates = gates
        self._cache = cache
        self.wall_s = clock.wall_s
        by_key = {key_of(kind): kind for kind in cache.caches}
        self._seen: dict[Kind, list[Kind]] = {
            kind: [by_key[key] for key in kind.sees if key in by_key] for kind in cache.caches
        }
        project(cache, {seen for kinds in self._seen.values() for seen in kinds})

    def _projection(self, kind: Kind) -> Projection:
        found = self._cache.of(kind).projection
        assert found is not None, f"no kind says that its admission sees {kind}"
        return found

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        found: Json | None = self._projection(kind).objects.get(kind.key(namespace, name))
        return found

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Json]:
        found = self._projection(kind)
        return found.under(kind.collection_prefix(namespace)) if found.objects else ()

    def defaults(self, kind: Kind) -> Iterable[Json]:
        found: Iterable[Json] = self._projection(kind).defaults.values()
        return found

    def seen_by(self, kind: Kind, namespace: str) -> dict[KindKey, list[Json]]:
        """The objects that admission of `kind` reads, as a value for another process; of namespaced kinds
        only those in this namespace."""
        return {key_of(seen): list(self.all(seen, namespace)) for seen in self._seen.get(kind, ())}
