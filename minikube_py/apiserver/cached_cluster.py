"""The cluster's other objects for admission, from the watch cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikube_py.api.errors import Json
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NODES
from minikube_py.apiserver.preparing import KindKey, key_of
from minikube_py.apiserver.projections import Projection, project
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock


class CachedCluster:
    """See `api.kind.Cluster`. Results are shared; do not change them."""

    def __init__(self, cache: WatchCache, clock: Clock, gates: FeatureGates = NO_GATES) -> None:
        self.gates = gates
        self.passes_on = False
        self._nodes = cache.of(NODES) if NODES in cache.caches else None
        self.wall_s = clock.wall_s
        by_key = {key_of(kind): kind for kind in cache.caches}
        self._seen: dict[Kind, list[Kind]] = {
            kind: [by_key[key] for key in kind.sees if key in by_key] for kind in cache.caches
        }
        self._projections: Mapping[Kind, Projection] = project(
            cache, {seen for kinds in self._seen.values() for seen in kinds}
        )

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        found: Json | None = self._projections[kind].objects.get(kind.key(namespace, name))
        return found

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Json]:
        found = self._projections[kind]
        return found.under(kind.collection_prefix(namespace)) if found.objects else ()

    def defaults(self, kind: Kind) -> Iterable[Json]:
        found = self._projections[kind].defaults
        return found.values() if found else ()

    def topology_of(self, node: str) -> Mapping[str, str]:
        entry = self._nodes.entries.get(NODES.key("", node)) if self._nodes is not None else None
        found: Mapping[str, str] = entry.labels if entry is not None else {}
        return found

    def seen_by(self, kind: Kind, namespace: str) -> dict[KindKey, list[Json]]:
        """The objects that admission of `kind` reads, as a value for another process; of namespaced kinds
        only those in this namespace."""
        return {key_of(seen): list(self.all(seen, namespace)) for seen in self._seen.get(kind, ())}
