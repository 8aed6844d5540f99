"""Which writes a webhook or policy asks for: by rules, and by the labels of the object and of its namespace.

Source: apiserver `pkg/admission/plugin/webhook/predicates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from minikube_py.api.errors import Json, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES
from minikube_py.api.registry import Registry
from minikube_py.api.selectors import LabelSelector
from minikube_py.apiserver.admission import Attributes, Operation
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.watch_cache import WatchCache


def rule_matches(rule: Json, of: Operation, kind: Kind) -> bool:
    """`kind`: of the operation, or one of its equals."""
    return (
        _in_scope(rule.get("scope") or "*", of)
        and _holds(rule.get("operations"), of.verb)
        and _holds(rule.get("apiGroups"), kind.group)
        and _holds(rule.get("apiVersions"), kind.version)
        and any(_resource_matches(each, of, kind) for each in rule.get("resources") or ())
    )


def _holds(items: Sequence[str] | None, wanted: str) -> bool:
    return any(item in ("*", wanted) for item in items or ())


def _in_scope(scope: str, of: Operation) -> bool:
    wide = of.kind is NAMESPACES or not of.namespace
    return scope == "*" or wide == (scope == "Cluster")


def _resource_matches(text: str, of: Operation, kind: Kind) -> bool:
    resource, _, sub = text.partition("/")
    return resource in ("*", kind.plural) and sub in ("*", of.sub)


def equals_of(kind: Kind, registry: Registry) -> Iterator[Kind]:
    """The same resource in other versions."""
    return (each for each in registry.kinds if each.prefix == kind.prefix and each is not kind)


class Namespaces:
    """What is known of the namespace of a write."""

    def __init__(self, store: ObjectStore, cache: WatchCache) -> None:
        self._store = store
        self._entries = cache.of(NAMESPACES).entries

    async def get(self, name: str) -> Json:
        """Raises: StatusError 404."""
        key = NAMESPACES.key("", name)
        entry = self._entries.get(key)
        if entry is not None:
            found: Json = entry.decode()
            return found
        kv = await self._store.get(key)
        if kv is None:
            raise not_found(NAMESPACES, name)
        obj: Json = orjson.loads(kv.value)
        return obj

    async def selected(self, selector: LabelSelector, attributes: Attributes) -> bool:
        """Raises: StatusError 404."""
        of = attributes.of
        if not selector or not (of.namespace or of.kind is NAMESPACES):
            return True
        if of.kind is NAMESPACES and not of.sub and attributes.new is not None:
            return selector.matches(attributes.new["metadata"].get("labels"))
        return selector.matches((await self.get(of.namespace))["metadata"].get("labels"))


def object_selected(selector: LabelSelector, attributes: Attributes) -> bool:
    found = (obj for obj in (attributes.new, attributes.old) if obj is not None)
    return not selector or any(selector.matches((obj.get("metadata") or {}).get("labels")) for obj in found)
