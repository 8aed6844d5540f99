"""The RBAC authorizer: users' rules from the roles and bindings in the watch cache.

Bindings are indexed by subject. A user's rules in a namespace are compiled once, and dropped when a role or binding
changes; a decision is a few set lookups. Only an answer with a reason walks the rules.

Source: kubernetes `plugin/pkg/auth/authorizer/rbac/rbac.go`, `pkg/registry/rbac/validation/rule.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from minikube_py.api.errors import GroupResource, Json, StatusError, go_quote, not_found
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.rbac import CLUSTERROLEBINDINGS, CLUSTERROLES, GROUP, ROLEBINDINGS, ROLES
from minikube_py.api.memo import Bounded, bytes_of
from minikube_py.api.service_tokens import account_user
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.projections import Projection
from minikube_py.apiserver.rules import (
    COMPONENT_RULES,
    KEY_BYTES,
    MASTERS,
    Rights,
    Rule,
    User,
    compile_steps,
    compiled,
    rule_of,
)
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.env import Slices

_COMPILED_MAX: Final = 4096
_TRIES: Final = 3
_COMPILED_BYTES_MAX: Final = 64 << 20
"""Of users' groups and rights that are kept."""
_Subject = tuple[str, str, str]
"""Namespace of the binding, whether a user or a group, and its name."""


class Held(NamedTuple):
    """A user's rule and its binding; or why a binding's rules are unavailable."""

    source: str
    rule: Rule | None
    error: StatusError | None = None


class Policy:
    """`on_change` is called when a role or a binding has changed."""

    def __init__(self, cache: WatchCache, on_change: Callable[[], None] = lambda: None) -> None:
        self._compiled = Bounded(_COMPILED_MAX, _COMPILED_BYTES_MAX)

        self._underway: dict[tuple[User, str], asyncio.Event] = {}
        self._changes = 0

        def forget() -> None:
            self._changes += 1
            self._compiled.clear()
            on_change()

        self._roles = {kind: _Roles(kind, forget) for kind in (CLUSTERROLES, ROLES)}
        self._bindings = {kind: _Bindings(kind, forget) for kind in (CLUSTERROLEBINDINGS, ROLEBINDINGS)}
        for kind, kept in (*self._roles.items(), *self._bindings.items()):
            if kind in cache.caches:
                cache.of(kind).projection = kept

    def allowed(self, user: User, asked: Asked) -> bool:
        if MASTERS in user.groups:
            return True
        rights = self._rights(user, "")
        if asked.path is not None:
            return rights.allow_path(asked.verb, asked.path)
        group, resource, name = asked.group, asked.resource, asked.name
        if rights.allow(asked.verb, group, resource, name):
            return True
        return bool(asked.namespace) and self._rights(user, asked.namespace).allow(asked.verb, group, resource, name)

    async def ready(self, user: User, asked: Asked) -> None:
        """Compiles in slices what `allowed` needs: a user may have tens of thousands of rules."""
        known, namespace = self._compiled.known, asked.namespace
        if known((user, "")) is None:
            await self._ready(user, "")
        if not namespace or asked.path is not None or known((user, namespace)) is not None:
            return
        if not self._rights(user, "").allow(asked.verb, asked.group, asked.resource, asked.name):
            await self._ready(user, namespace)

    async def _ready(self, user: User, namespace: str) -> None:
        """Once for all who wait. If roles change all the time, `allowed` does it."""
        key = user, namespace
        for _ in range(_TRIES):
            if self._compiled.known(key) is not None:
                return
            if (done := self._underway.get(key)) is not None:
                await done.wait()
                continue
            done = self._underway[key] = asyncio.Event()
            try:
                await self._compile(user, namespace)
            finally:
                del self._underway[key]
                done.set()

    async def _compile(self, user: User, namespace: str) -> None:
        """Nothing is kept if a role or a binding changes meanwhile."""
        changes, slices, steps = self._changes, Slices(), compile_steps(self._rules(user, namespace))
        try:
            while self._changes == changes:
                await slices.spend(next(steps))
        except StopIteration as end:
            self._keep(user, namespace, end.value)

    def decide(self, user: User, asked: Asked) -> tuple[bool, str]:
        """As `allowed`, with the reason: the binding, or a binding's error."""
        if MASTERS in user.groups:
            return True, ""
        errors: list[StatusError] = []
        wanted = (asked.verb, asked.group, asked.resource, asked.name, asked.path)
        for held in self.held(user, asked.namespace):
            if held.error is not None:
                errors.append(held.error)
            elif held.rule is not None and held.rule.allows(*wanted):
                return True, f"RBAC: allowed by {held.source}"
        if self.allowed(user, asked):
            return True, ""
        return False, f"RBAC: {joined(errors)}" if errors else ""

    def rules_of(self, user: User, namespace: str) -> tuple[list[Rule], list[StatusError]]:
        """All rules that a user holds in a namespace; errors of bindings."""
        rules: list[Rule] = []
        errors: list[StatusError] = []
        for held in self.held(user, namespace):
            if held.error is not None:
                errors.append(held.error)
            elif held.rule is not None:
                rules.append(held.rule)
        return rules, errors

    def held(self, user: User, namespace: str) -> Iterator[Held]:
        """From cluster bindings, then namespace bindings, each in order of name."""
        yield from self._held_by(CLUSTERROLEBINDINGS, user, "")
        if namespace:
            yield from self._held_by(ROLEBINDINGS, user, namespace)

    def _held_by(self, kind: Kind, user: User, namespace: str) -> Iterator[Held]:
        for binding in self._bindings[kind].of(user, namespace):
            try:
                rules = self.rules_of_role(binding["roleRef"], namespace)
            except StatusError as error:
                yield Held("", None, error)
                continue
            source = _described(kind, binding, user)
            yield from (Held(source, rule) for rule in rules)

    def rules_of_role(self, reference: Json, namespace: str) -> list[Rule]:
        """Raises: StatusError 404 if the role is missing."""
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        of = {"ClusterRole": CLUSTERROLES, "Role": ROLES}.get(kind)
        if of is None:
            raise StatusError(500, "", f"unsupported role reference kind: {go_quote(kind)}")
        rules = self._roles[of].rules.get(of.key(namespace, name))
        if rules is None:
            raise not_found(GroupResource(GROUP, of.singular), name)
        return rules

    def _rights(self, user: User, namespace: str) -> Rights:
        """Of one namespace, or ("") of the cluster's bindings."""
        found: Rights | None = self._compiled.known((user, namespace))
        if found is None:
            found = self._keep(user, namespace, compiled(self._rules(user, namespace)))
        return found

    def _rules(self, user: User, namespace: str) -> Iterator[Rule]:
        kind = ROLEBINDINGS if namespace else CLUSTERROLEBINDINGS
        rules = (held.rule for held in self._held_by(kind, user, namespace) if held.rule is not None)
        return chain(rules, () if namespace else COMPONENT_RULES.get(user.name, ()))

    def _keep(self, user: User, namespace: str, rights: Rights) -> Rights:
        self._compiled((user, namespace), rights, bytes_of(user.groups) + KEY_BYTES * rights.size)
        return rights


def joined(errors: Iterable[StatusError]) -> str:
    """As Go prints an error aggregate."""
    texts = list(dict.fromkeys(error.message for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


# --- what is kept -----------------------------------------------------------------------------------------------------


class _Kept(Projection):
    def __init__(self, kind: Kind, forget: Callable[[], None]) -> None:
        super().__init__(kind)
        self._begin()
        self._forget = forget

    def _begin(self) -> None:
        """Without objects."""

    def load(self, entries: Iterable[Entry]) -> None:
        self._begin()
        self._forget()
        super().load(entries)


class _Roles(_Kept):
    """The rules of each role, by its key."""

    def _begin(self) -> None:
        self.rules: dict[bytes, list[Rule]] = {}

    def put(self, key: bytes, entry: Entry | None) -> None:
        super().put(key, entry)
        self._forget()
        if entry is None:
            self.rules.pop(key, None)
        else:
            self.rules[key] = [rule_of(rule) for rule in self.objects[key].get("rules") or ()]


class _Bindings(_Kept):
    """The bindings by key, and by subject."""

    def _begin(self) -> None:
        self._by_subject: dict[_Subject, set[bytes]] = {}

    def put(self, key: bytes, entry: Entry | None) -> None:
        self._forget()
        for subject in _subjects(self.objects.get(key)):
            keys = self._by_subject[subject]
            keys.discard(key)
            if not keys:
                del self._by_subject[subject]
        super().put(key, entry)
        for subject in _subjects(self.objects.get(key)):
            self._by_subject.setdefault(subject, set()).add(key)

    def of(self, user: User, namespace: str) -> list[Json]:
        """Those that apply to a user, by name."""
        subjects = [(namespace, "User", user.name), *((namespace, "Group", group) for group in user.groups)]
        found = {key for subject in subjects for key in self._by_subject.get(subject, ())}
        return [self.objects[key] for key in sorted(found)]


def _subjects(binding: Json | None) -> list[_Subject]:
    """Service accounts by user name."""
    if binding is None:
        return []
    namespace = binding["metadata"].get("namespace") or ""
    named = ((subject.get("kind") or "", _user_name(subject, namespace)) for subject in binding.get("subjects") or ())
    found = ((namespace, "Group" if kind == "Group" else "User", name) for kind, name in named if name)
    return list(dict.fromkeys(found))


def _user_name(subject: Json, namespace: str) -> str:
    """The user or group name of a subject, or ""."""
    kind, name = subject.get("kind") or "", str(subject.get("name") or "")
    if kind != "ServiceAccount":
        return name if kind in ("User", "Group") else ""
    namespace = subject.get("namespace") or namespace
    return account_user(namespace, name) if namespace and name else ""


def _described(kind: Kind, binding: Json, user: User) -> str:
    """The binding and its first subject that matches the user, in upstream's words."""
    metadata, reference = binding["metadata"], binding["roleRef"]
    namespace = metadata.get("namespace") or ""
    for subject in binding.get("subjects") or ():
        name = _user_name(subject, namespace)
        if name and (name in user.groups if subject.get("kind") == "Group" else name == user.name):
            break
    named = subject.get("name") or ""
    if subject.get("kind") == "ServiceAccount":
        named = f"{named}/{subject.get('namespace') or namespace}"
    title = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
    role = f"{reference.get('kind')} {go_quote(reference.get('name') or '')}"
    return f"{kind.kind} {go_quote(title)} of {role} to {subject.get('kind')} {go_quote(named)}"
