"""Who may let an admission policy read its parameters: those who may read them, too.

Source: kubernetes `pkg/registry/admissionregistration/validatingadmissionpolicy{,binding}/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from minikube_py.api.errors import Json, forbidden_value, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.admissionregistration import BINDING, POLICY
from minikube_py.api.registry import Registry
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.rbac import Policy
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_cache import WatchCache

REFERRING = (POLICY, BINDING)


def admission_of(policy: Policy, user: User, cache: WatchCache, registry: Callable[[], Registry]) -> Admission:
    """What writes of the user to policies and their bindings are held to, once they are valid."""

    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        if new is None or sub or kind not in REFERRING:
            return
        field, check = ("paramKind", _policy) if kind is POLICY else ("paramRef", _binding)
        spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
        if spec.get(field) is None or _same(kind, spec, before, field):
            return
        wrong = kind.validate(new) if old is None and kind.validate else kind.validate_update[""](new, old or {})
        if not wrong and (why := check(policy, user, cache, registry(), spec)):
            raise invalid(kind, new["metadata"].get("name") or name, [forbidden_value(f"spec.{field}", why)])

    return admit


def _same(kind: Kind, spec: Json, before: Json, field: str) -> bool:
    """Upstream compares references of bindings with the pointers in them, of which no two are ever equal."""
    return kind is POLICY and before.get(field) == spec[field]


def _policy(policy: Policy, user: User, cache: WatchCache, registry: Registry, spec: Json) -> str:
    told = spec["paramKind"]
    group, kind = _named(told, registry)
    if policy.allowed(user, Asked("get", group, kind.plural if kind else "*", "", "*", "*")):
        return ""
    named = f"(kind={told['kind']}, apiVersion={told['apiVersion']})"
    return f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind {named}'


def _binding(policy: Policy, user: User, cache: WatchCache, registry: Registry, spec: Json) -> str:
    ref = spec["paramRef"]
    policies = cache.caches.get(POLICY)
    entry = policies.entries.get(POLICY.key("", spec["policyName"])) if policies is not None else None
    told = entry.decode()["spec"].get("paramKind") if entry is not None else None
    group, kind = _named(told, registry) if told else ("*", None)
    verb, name = ("get", ref["name"]) if ref.get("name") else ("list", "")
    if policy.allowed(user, Asked(verb, group, kind.plural if kind else "*", "", ref.get("namespace") or "", name)):
        return ""
    least = "to determine minimum required permissions and user"
    lacks = f'{least} {_shown(user)} does not have "{verb}" permission for all groups, versions and resources'
    if entry is None:
        return f"unable to get policy {spec['policyName']} {lacks}"
    if told and kind is None:
        return f"unable to resolve paramKind &{{{told['apiVersion']} {told['kind']}}} {lacks}"
    return f'user {_shown(user)} does not have "{verb}" permission on the object referenced by paramRef'


def _named(told: Json, registry: Registry) -> tuple[str, Kind | None]:
    group, _, version = told["apiVersion"].rpartition("/")
    return group, registry.kind(group, version, told["kind"])


def _shown(user: User) -> str:
    """As Go prints it."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted(user.extra))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
