"""Which writes a webhook or policy matches: by rules, and by the labels of the object and of its namespace.

Source: apiserver `pkg/admission/plugin/webhook/predicates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import orjson

from minikube_py.api.errors import Json, StatusError, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES
from minikube_py.api.registry import Registry
from minikube_py.api.selectors import LabelSelector
from minikube_py.apiserver.admission import Attributes, Operation
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Slices

H = TypeVar("H")
KEPT_MAX: Final = 64
"""Kinds of writes whose webhooks or policies are kept."""
HOOKS_AT_ONCE: Final = 200
"""Their rules are looked at in one step."""


def rule_matches(rule: Json, of: Operation, kind: Kind) -> bool:
    """`kind`: the operation's, or an equivalent."""
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


def any_matches(rules: Iterable[Json], of: Operation, registry: Registry) -> bool:
    """Whether one may match the write, in any version."""
    kinds = [of.kind, *equals_of(of.kind, registry)]
    return any(rule_matches(rule, of, kind) for rule in rules for kind in kinds)


def matched_kind(rules: Sequence[Json], equivalent: bool, of: Operation, name: str, registry: Registry) -> Kind | None:
    """The kind in which the rules match a write of this object; None: no match."""
    kinds = [*equals_of(of.kind, registry)] if equivalent else []
    named = [rule for rule in rules if not rule.get("resourceNames") or name in rule["resourceNames"]]
    if any(rule_matches(rule, of, of.kind) for rule in named):
        return of.kind
    return next((kind for rule in named for kind in kinds if rule_matches(rule, of, kind)), None)


class Candidates(Generic[H]):
    """The hooks whose rules may match a write, with their places among all. Kept by all that rules look at."""

    def __init__(self, rules_of: Callable[[H], Iterable[Json]]) -> None:
        self._rules_of = rules_of
        self._hooks: Sequence[H] = ()
        self._registry: Registry | None = None
        self._known: dict[tuple[str, Kind, str, bool], list[tuple[int, H]]] = {}

    def may_exist(self, hooks: Sequence[H], of: Operation, registry: Registry) -> bool:
        """True, too, if there are too many hooks to look at in one step."""
        found = self._found(hooks, of, registry)
        if found is None and len(hooks) <= HOOKS_AT_ONCE:
            found = [each for each in enumerate(hooks) if any_matches(self._rules_of(each[1]), of, registry)]
            self._keep(found, hooks, of, registry)
        return found is None or bool(found)

    async def of(self, hooks: Sequence[H], of: Operation, registry: Registry) -> list[tuple[int, H]]:
        found = self._found(hooks, of, registry)
        if found is None:
            found, slices = [], Slices()
            for each in enumerate(hooks):
                rules = [*self._rules_of(each[1])]
                await slices.spend(1 + len(rules))
                if any_matches(rules, of, registry):
                    found.append(each)
            self._keep(found, hooks, of, registry)
        return found

    def _found(self, hooks: Sequence[H], of: Operation, registry: Registry) -> list[tuple[int, H]] | None:
        if hooks is self._hooks and registry is self._registry:
            return self._known.get((of.verb, of.kind, of.sub, bool(of.namespace)))
        return None

    def _keep(self, found: list[tuple[int, H]], hooks: Sequence[H], of: Operation, registry: Registry) -> None:
        if hooks is not self._hooks or registry is not self._registry or len(self._known) == KEPT_MAX:
            self._hooks, self._registry, self._known = hooks, registry, {}
        self._known[of.verb, of.kind, of.sub, bool(of.namespace)] = found


class Namespaces:
    """The namespace of a write."""

    def __init__(self, store: ObjectStore, cache: WatchCache) -> None:
        self._store = store
        self._cached = cache.of(NAMESPACES)

    async def get(self, name: str) -> Json:
        """Raises: StatusError 404."""
        key = NAMESPACES.key("", name)
        entry = self._cached.entries.get(key)
        if entry is not None:
            found: Json = entry.decode()
            return found
        kv = await self._store.get(key)
        if kv is None:
            raise not_found(NAMESPACES, name)
        obj: Json = orjson.loads(kv.value)
        return obj

    async def wanted(
        self,
        of_namespace: LabelSelector,
        of_object: LabelSelector,
        attributes: Attributes,
        as_kind: Callable[[], Kind | None],
    ) -> Kind | None:
        """The kind in which the rules and both selectors match a write; None: no match. A missing namespace is an error
        only on a match. Raises: StatusError 404; what `as_kind` raises."""
        missing: StatusError | None = None
        try:
            if not await self.selected(of_namespace, attributes):
                return None
        except StatusError as error:
            missing = error
        if not object_selected(of_object, attributes):
            return None
        kind = as_kind()
        if kind is not None and missing is not None:
            raise missing
        return kind

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
