"""Privilege escalation check for roles and bindings: to write or bind a role, a user must hold all its rules, or be
allowed the verb `escalate` or `bind` for it.

Source: kubernetes `pkg/registry/rbac/{escalation_check,helpers}.go`, `pkg/registry/rbac/*/policybased`,
component-helpers `auth/rbac/validation/policy_comparator.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice, product
from operator import and_, or_
from typing import Final

from minikube_py.api.errors import Json, StatusError, forbidden, go_quote, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.rbac import CLUSTERROLES, GROUP, KINDS, ROLES
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.rbac import Policy, joined
from minikube_py.apiserver.rules import Rule, User, prefixes, rule_of

WRITES: Final = ("create", "update", "patch")
_EVERYTHING: Final = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))
LISTED_MAX: Final = 4_096
LISTED_BYTES_MAX: Final = 256 << 10
"""Missing permissions in one message, where upstream lists all of them."""
STEPS_MAX: Final = 30_000
"""Combinations walked in one check: some 20 ms. Upstream walks all."""
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


class TooWide(Exception):
    """Rules that many held rules cover in parts."""


# --- what is held, and what is not ----------------------------------------------------------------------------------


def lacking(policy: Policy, user: User, namespace: str, rules: Iterable[Rule]) -> str:
    """The rules that the user does not hold in the namespace, in upstream's format; empty if none is missing."""
    held, errors = policy.rules_of(user, namespace)
    missing, more = list[Rule](), ""
    try:
        missing += islice(uncovered(held, rules), LISTED_MAX + 1)
    except TooWide:
        more = f"\nand perhaps more: telling takes over {STEPS_MAX:,} steps, which is the limit; split the rules"
    if not missing and not more:
        return ""
    groups = f"[{' '.join(map(go_quote, user.groups))}]"
    text = f"user {go_quote(user.name)} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n"
    lines, room = set[str](), LISTED_BYTES_MAX
    for rule in compacted(missing[:LISTED_MAX]):
        line = described(rule)
        room -= len(line)
        if room < 0:
            break
        lines.add(line)
    if room < 0 or len(missing) > LISTED_MAX:
        more = f"\nand more: at most {LISTED_MAX:,} in {LISTED_BYTES_MAX >> 10} KiB are listed"
    text += "\n".join(sorted(lines)) + more
    return f"{text}; resolution errors: {_listed(errors)}" if errors else text


def _listed(errors: list[StatusError]) -> str:
    """A list of one aggregate, as Go prints it."""
    return f"[{joined(errors)}]"


def uncovered(held: Iterable[Rule], wanted: Iterable[Rule]) -> Iterator[Rule]:
    """Permissions in `wanted` but not `held`, one verb and resource or path per rule.

    A rule of a few kilobytes has millions of permissions. Items that the same held rules name are not told apart, and
    what one held rule covers as a whole is not walked. Raises: TooWide, where that does not help."""
    known = _Held(list(held))
    for rule in wanted:
        yield from known.missing(rule)


_Masks = dict[str, int]
"""By item, a bit for each held rule that names it."""


class _Held:
    def __init__(self, rules: list[Rule]) -> None:
        self._verbs = _masks(rule.verbs for rule in rules)
        self._groups = _masks(rule.groups for rule in rules)
        self._resources = _masks(rule.resources for rule in rules)
        self._names = _masks(rule.names for rule in rules)
        self._paths = _masks(() if rule.names else rule.paths for rule in rules)
        self._prefixes = [(prefix, self._paths[path]) for path, prefix in prefixes(self._paths)]
        self._unnamed = sum(1 << i for i, rule in enumerate(rules) if not rule.names)
        self._steps = 0

    def missing(self, rule: Rule) -> Iterator[Rule]:
        """In upstream's order, unless there are so many that they are not listed anyway. Raises: TooWide."""
        classes = _each if rule.count <= LISTED_MAX else _classes
        verbs = classes(rule.verbs, lambda verb: _or_all(self._verbs, verb))
        groups = classes(rule.groups, lambda group: _or_all(self._groups, group))
        resources = classes(rule.resources, self._of_resource)
        names = [(self._unnamed, [""])]
        if rule.names:
            names = classes(rule.names, lambda name: self._names.get(name, 0) | self._unnamed)
        for found in self._open((groups, resources, verbs, names)):
            for group, resource, verb, name in product(*found):
                yield Rule((verb,), (group,), (resource,), (name,) if rule.names else ())
        for found in self._open((classes(rule.paths, self._of_path), verbs)):
            for path, verb in product(*found):
                yield Rule((verb,), paths=(path,))

    def _open(self, dimensions: Sequence[_Classes]) -> Iterator[tuple[list[str], ...]]:
        """Combinations of classes that no held rule covers. Where one covers all the rest, that is not walked."""
        rests = [-1]
        for classes in reversed(dimensions):
            rests.append(reduce(and_, (mask for mask, _ in classes), rests[-1]))
        rests.reverse()

        def walk(at: int, mask: int, chosen: tuple[list[str], ...]) -> Iterator[tuple[list[str], ...]]:
            if mask & rests[at]:
                return
            if at == len(dimensions):
                yield chosen
                return
            for own, items in dimensions[at]:
                self._steps += 1
                if self._steps > STEPS_MAX:
                    raise TooWide
                yield from walk(at + 1, mask & own, (*chosen, items))

        return walk(0, -1, ())

    def _of_resource(self, resource: str) -> int:
        _, slash, sub = resource.partition("/")
        return _or_all(self._resources, resource) | (self._resources.get(f"*/{sub}", 0) if slash else 0)

    def _of_path(self, path: str) -> int:
        begun = (mask for prefix, mask in self._prefixes if path.startswith(prefix))
        return reduce(or_, begun, self._paths.get(path, 0))


def _masks(of_rules: Iterable[tuple[str, ...]]) -> _Masks:
    found: _Masks = {}
    for i, items in enumerate(of_rules):
        for item in items:
            found[item] = found.get(item, 0) | 1 << i
    return found


def _or_all(masks: _Masks, item: str) -> int:
    return masks.get(item, 0) | masks.get("*", 0)


_Classes = list[tuple[int, list[str]]]
"""Items by the held rules that name them."""


def _each(items: Iterable[str], mask: Callable[[str], int]) -> _Classes:
    return [(mask(item), [item]) for item in items]


def _classes(items: Iterable[str], mask: Callable[[str], int]) -> _Classes:
    found: dict[int, list[str]] = {}
    for item in items:
        found.setdefault(mask(item), []).append(item)
    return list(found.items())


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
