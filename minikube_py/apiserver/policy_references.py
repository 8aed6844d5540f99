"""A user who lets an admission policy read parameters must be allowed to read them.

Source: kubernetes `pkg/registry/admissionregistration/{validating,mutating}admissionpolicy{,binding}/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from minikube_py.api.errors import Json, forbidden_value, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.admissionregistration import BINDING, MUTATING_BINDING, MUTATING_POLICY, POLICY
from minikube_py.api.registry import Registry
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_cache import WatchCache

_POLICIES = (POLICY, MUTATING_POLICY)
REFERRING = (*_POLICIES, BINDING, MUTATING_BINDING)


def admission_of(policy: Policy, user: User, cache: WatchCache, registry: Callable[[], Registry]) -> Admission:
    """The checks on the user's valid writes to policies and bindings."""

    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        if new is None or sub or kind not in REFERRING:
            return
        field = "paramKind" if kind in _POLICIES else "paramRef"
        spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
        if spec.get(field) is None or _same(kind, spec, before, field):
            return
        wrong = kind.validate(new) if old is None and kind.validate else kind.validate_update[""](new, old or {})
        if wrong:
            return
        given = (policy, user, registry(), spec)
        if why := _policy(*given) if kind in _POLICIES else _binding(*given, cache, kind is MUTATING_BINDING):
            raise invalid(kind, new["metadata"].get("name") or name, [forbidden_value(f"spec.{field}", why)])

    return admit


def _same(kind: Kind, spec: Json, before: Json, field: str) -> bool:
    """Upstream compares binding references including pointers, which are never equal."""
    return kind in _POLICIES and before.get(field) == spec[field]


def _policy(policy: Policy, user: User, registry: Registry, spec: Json) -> str:
    told = spec["paramKind"]
    group, kind = _named(told, registry)
    if policy.allowed(user, Asked("get", group, kind.plural if kind else "*", "", "*", "*")):
        return ""
    named = f"(kind={told['kind']}, apiVersion={told['apiVersion']})"
    return f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind {named}'


def _binding(policy: Policy, user: User, registry: Registry, spec: Json, cache: WatchCache, mutating: bool) -> str:
    ref, referred = spec["paramRef"], MUTATING_POLICY if mutating else POLICY
    policies = cache.caches.get(referred)
    entry = policies.entries.get(referred.key("", spec["policyName"])) if policies is not None else None
    told = (entry.decode().get("spec") or {}).get("paramKind") if entry is not None else None
    group, kind = _named(told, registry) if told else ("*", None)
    verb, name = ("get", ref["name"]) if ref.get("name") else ("list", "")
    if policy.allowed(user, Asked(verb, group, kind.plural if kind else "*", "", ref.get("namespace") or "", name)):
        return ""
    least = "to determine minimum required permissions and user"
    lacks = f'{least} {_shown(user)} does not have "{verb}" permission for all groups, versions and resources'
    if entry is None:
        return f"unable to get policy {spec['policyName']} {lacks}"
    if told and kind is None:
        return f"unable to resolve paramKind &{{{told.get('apiVersion')} {told.get('kind')}}} {lacks}"
    # Upstream confuses the two for mutating policies.
    who, what = (verb, _shown(user)) if mutating else (_shown(user), verb)
    return f'user {who} does not have "{what}" permission on the object referenced by paramRef'


def _named(told: Json, registry: Registry) -> tuple[str, Kind | None]:
    group, _, version = (told.get("apiVersion") or "").rpartition("/")
    return group, registry.kind(group, version, told.get("kind") or "")


def _shown(user: User) -> str:
    """As Go prints it."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
