"""NamespaceLifecycle: no creates in a missing or terminating namespace.

Source: apiserver `pkg/admission/plugin/namespace/lifecycle`. Unlike upstream, check and write are one txn: a create is
conditional on the namespace state that allowed it, so it cannot race with a deletion.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api.errors import StatusError, forbidden, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.mvcc.types import KeyValue

IMMORTAL: Final = frozenset(("default", "kube-system", "kube-public"))
SYSTEM: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class NamespaceGate:
    def __init__(self, store: ObjectStore, cache: WatchCache) -> None:
        self._store = store
        self._namespaces = cache.of(NAMESPACES)
        self._open: dict[str, KeyValue] = {}

    def known(self, namespace: str) -> KeyValue | None:
        """As `admit`, of a namespace that has not changed since; None: it must be read."""
        known = self._open.get(namespace)
        entry = self._namespaces.entries.get(known.key) if known is not None else None
        return known if known is not None and entry is not None and known.mod_revision == entry.revision else None

    async def admit(self, resource: Kind, namespace: str, name: str, fresh: bool = False) -> KeyValue:
        """The namespace's state, as a guard for the txn.

        `fresh`: read the store, as the guard failed. Raises: StatusError 404 if missing, 403 if terminating."""
        if not fresh and (known := self.known(namespace)) is not None:
            return known
        kv = await self._store.get(NAMESPACES.key("", namespace))
        if kv is None:
            self._open.pop(namespace, None)
            raise not_found(NAMESPACES, namespace)
        obj = orjson.loads(kv.value)
        if obj["metadata"].get("deletionTimestamp") or (obj.get("status") or {}).get("phase") == "Terminating":
            self._open.pop(namespace, None)
            raise _terminating(resource, namespace, name)
        if len(self._open) > 100_000:
            self._open.clear()
        self._open[namespace] = kv
        return kv


def _terminating(resource: Kind, namespace: str, name: str) -> StatusError:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(resource, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error


def check_mortal(resource: Kind, name: str) -> None:
    """Raises: StatusError 403 for undeletable namespaces."""
    if resource is NAMESPACES and name in IMMORTAL:
        raise forbidden(NAMESPACES, name, "this namespace may not be deleted")
