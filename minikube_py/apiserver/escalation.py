"""Privilege escalation check for roles and bindings: to write or bind a role, a user must hold all its rules, or be
allowed the verb `escalate` or `bind` for it.

Source: kubernetes `pkg/registry/rbac/{escalation_check,helpers}.go`, `pkg/registry/rbac/*/policybased`,
component-helpers `auth/rbac/validation/policy_comparator.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from minikube_py.api.errors import Json, StatusError, forbidden, go_quote, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.rbac import CLUSTERROLES, GROUP, KINDS, ROLES
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.rbac import Policy, joined
from minikube_py.apiserver.rules import Rule, User, rule_of

WRITES: Final = ("create", "update", "patch")
_EVERYTHING: Final = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
_COLLECTED: Final = ("ownerReferences", "finalizers", "selfLink", "managedFields")
"""Fields that the garbage collector changes."""


def admission_of(policy: Policy, user: User, asked: Asked) -> Admission:
    """The checks on the user's writes to roles and bindings."""

    def admit(kind: Kind, sub: str, name: str, old: Json | None, new: Json | None) -> None:
        if new is None or kind not in KINDS or (old is not None and _is_collected(new, old)):
            return
        name = new["metadata"].get("name") or name
        if kind in (ROLES, CLUSTERROLES):
            if not policy.allowed(user, asked._replace(verb="escalate")):
                _check_role(policy, user, asked.namespace, kind, name, new, old)
        else:
            _check_binding(policy, user, asked.namespace, kind, name, new)

    return admit


def _is_collected(new: Json, old: Json) -> bool:
    def shown(obj: Json) -> Json:
        metadata = {key: value for key, value in obj["metadata"].items() if key not in _COLLECTED}
        return {**{key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}, "metadata": metadata}

    return shown(new) == shown(old)


def _check_role(
    policy: Policy, user: User, namespace: str, kind: Kind, name: str, role: Json, old: Json | None
) -> None:
    rules = [rule_of(rule) for rule in role.get("rules") or ()]
    if why := lacking(policy, user, namespace, rules):
        raise forbidden(kind, name, why)
    if any(each is not None and _gathers(each) for each in (role, old)) and lacking(
        policy, user, namespace, _EVERYTHING
    ):
        raise forbidden(kind, name, "must have cluster-admin privileges to use the aggregationRule")


def _gathers(role: Json) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _check_binding(policy: Policy, user: User, namespace: str, kind: Kind, name: str, binding: Json) -> None:
    reference = binding["roleRef"]
    plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(reference.get("kind") or "")
    role = reference.get("name") or ""
    if plural and policy.allowed(user, Asked("bind", reference.get("apiGroup") or GROUP, plural, "", namespace, role)):
        return
    try:
        rules = policy.rules_of_role(reference, namespace)
    except StatusError as error:
        raise not_found(kind, role) if error.code == 404 else error from None
    if why := lacking(policy, user, namespace, rules):
        raise forbidden(kind, name, why)


# --- what is held, and what is not ----------------------------------------------------------------------------------


def lacking(policy: Policy, user: User, namespace: str, rules: Iterable[Rule]) -> str:
    """The rules that the user does not hold in the namespace, in upstream's format; empty if none is missing."""
    held, errors = policy.rules_of(user, namespace)
    missing = uncovered(held, rules)
    if not missing:
        return ""
    groups = f"[{' '.join(map(go_quote, user.groups))}]"
    text = f"user {go_quote(user.name)} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n"
    text += "\n".join(sorted({described(rule) for rule in compacted(missing)}))
    return f"{text}; resolution errors: {_listed(errors)}" if errors else text


def _listed(errors: list[StatusError]) -> str:
    """A list of one aggregate, as Go prints it."""
    return f"[{joined(errors)}]"


def uncovered(held: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Permissions in `wanted` but not `held`, one verb and resource or path per rule."""
    held = list(held)
    parts = (part for rule in wanted for part in _parts(rule))
    return [part for part in parts if not any(_covers(rule, part) for rule in held)]


def _parts(rule: Rule) -> Iterator[Rule]:
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in rule.names or ("",):
                    yield Rule((verb,), (group,), (resource,), (name,) if rule.names else ())
    for path in rule.paths:
        for verb in rule.verbs:
            yield Rule((verb,), paths=(path,))


def _covers(held: Rule, part: Rule) -> bool:
    if part.verbs[0] not in held.verbs and "*" not in held.verbs:
        return False
    if part.paths:
        path = part.paths[0]
        found = any(path == each or (each[-1:] == "*" and path.startswith(each.rstrip("*"))) for each in held.paths)
        return found and not held.names
    resource = part.resources[0]
    _, slash, sub = resource.partition("/")
    wider = {"*", resource, f"*/{sub}"} if slash else {"*", resource}
    return (
        not {"*", part.groups[0]}.isdisjoint(held.groups)
        and not wider.isdisjoint(held.resources)
        and (not held.names or (bool(part.names) and part.names[0] in held.names))
    )


def compacted(rules: Iterable[Rule]) -> list[Rule]:
    """Merges rules of the same resource (and name)."""
    found: list[Rule] = []
    simple: dict[tuple[str, str, tuple[str, ...]], Rule] = {}
    for rule in rules:
        if len(rule.names) > 1 or rule.paths or len(rule.groups) != 1 or len(rule.resources) != 1:
            found.append(rule)
            continue
        key = (rule.groups[0], rule.resources[0], rule.names)
        known = simple.get(key)
        verbs = rule.verbs if known is None else known.verbs + rule.verbs
        simple[key] = Rule(verbs, rule.groups, rule.resources, rule.names)
    return [*found, *simple.values()]


_TITLES: Final = ("APIGroups", "Resources", "NonResourceURLs", "ResourceNames", "Verbs")


def described(rule: Rule) -> str:
    parts = zip(_TITLES, (rule.groups, rule.resources, rule.paths, rule.names, rule.verbs))
    shown = (f"{title}:[{' '.join(map(go_quote, held))}]" for title, held in parts if held)
    return f"{{{', '.join(shown)}}}"
