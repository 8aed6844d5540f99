"""Roles, bindings and what follows from them: access reviews, refusals, and who may grant what. Drawn from a seed.

The same requests are put to both servers: first what `setup` makes, then, once `known` answers that authorization has heard
of it, what `cases` asks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from asking import Ask

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
NAMESPACES = ("ruled-a", "ruled-b")
_GROUP = "rbac.authorization.k8s.io"
_VERBS = ("get", "list", "create", "update", "delete", "*", "escalate", "bind", "x")
_GROUPS = ("", "apps", "rbac.authorization.k8s.io", "*", "x.io")
_RESOURCES = ("pods", "pods/status", "*/status", "deployments", "*", "configmaps", "pods/*", "*/*", "*/", "roles", "clusterroles", "")
_ASKED = ("pods", "deployments", "configmaps", "roles", "*", "")
_SUBS = ("", "", "", "status", "scale", "*")
_NAMES = ("", "one", "two", "*")
_PATHS = ("/", "/metrics", "/x", "/x/*", "/x/y", "*", "/y*", "/z**", "/healthz", "")
USERS = ("ann", "bob", "writers", "cy", "system:serviceaccount:ruled-a:robot", "system:serviceaccount:ruled-b:robot", "nobody", "system:anonymous")
GROUPS = ("writers", "ann", "readers", "system:serviceaccounts", "system:serviceaccounts:ruled-a", "system:authenticated", "system:unauthenticated", "system:masters")
ROLES = tuple(f"drawn-{i}" for i in range(10))


class Drawn:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def some(self, of: tuple[str, ...], most: int = 3) -> list[str]:
        return self._rng.sample(of, self._rng.randint(1, min(most, len(of))))

    def rule(self, paths: bool) -> dict[str, Any]:
        if paths and self._rng.random() < 0.3:
            return {"verbs": self.some(_VERBS), "nonResourceURLs": self.some(_PATHS)}
        rule = {"verbs": self.some(_VERBS), "apiGroups": self.some(_GROUPS, 2), "resources": self.some(_RESOURCES)}
        return rule | ({"resourceNames": self.some(_NAMES[1:], 2)} if self._rng.random() < 0.3 else {})

    def role(self, name: str, paths: bool) -> dict[str, Any]:
        return {"metadata": {"name": name}, "rules": [self.rule(paths) for _ in range(self._rng.randint(1, 3))]}

    def subject(self, namespaced: bool) -> dict[str, Any]:
        kind = self._rng.choice(("User", "User", "Group", "ServiceAccount"))
        if kind == "User":
            return {"kind": kind, "name": self._rng.choice(USERS)}
        if kind == "Group":
            return {"kind": kind, "name": self._rng.choice(GROUPS[:5])}
        namespace = self._rng.choice((*NAMESPACES, "") if namespaced else NAMESPACES)
        return {"kind": kind, "name": "robot"} | ({"namespace": namespace} if namespace else {})

    def binding(self, name: str, namespaced: bool, subjects: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        kind = self._rng.choice(("Role", "ClusterRole")) if namespaced else "ClusterRole"
        reference = {"apiGroup": _GROUP, "kind": kind, "name": self._rng.choice((*ROLES, "absent"))}
        subjects = subjects or [self.subject(namespaced) for _ in range(self._rng.randint(1, 2))]
        return {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}

    def attributes(self) -> dict[str, Any]:
        if self._rng.random() < 0.25:
            return {"nonResourceAttributes": {"verb": self._rng.choice(_VERBS), "path": self._rng.choice(_PATHS)}}
        choices = {"verb": _VERBS, "group": _GROUPS, "resource": _ASKED, "subresource": _SUBS, "name": _NAMES, "namespace": (*NAMESPACES, "", "default")}
        return {"resourceAttributes": {field: self._rng.choice(of) for field, of in choices.items()}}

    def who(self) -> tuple[str, list[str]]:
        groups = [] if self._rng.random() < 0.5 else self.some(GROUPS, 2)
        return self._rng.choice(USERS), groups

    def among(self, of: tuple[Any, ...]) -> Any:
        return self._rng.choice(of)


def _in(plural: str, namespace: str) -> str:
    return f"{RBAC}/namespaces/{namespace}/{plural}"


def setup(seed: int) -> Iterator[Ask]:
    drawn = Drawn(seed)
    for namespace in NAMESPACES:
        yield Ask("rbac setup", "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for name in ROLES:
        yield Ask("rbac setup", "POST", f"{RBAC}/clusterroles", drawn.role(name, True))
        for namespace in NAMESPACES:
            yield Ask("rbac setup", "POST", _in("roles", namespace), drawn.role(name, False))
    for i in range(8):
        yield Ask("rbac setup", "POST", f"{RBAC}/clusterrolebindings", drawn.binding(f"drawn-{i}", False))
        for namespace in NAMESPACES:
            yield Ask("rbac setup", "POST", _in("rolebindings", namespace), drawn.binding(f"drawn-{i}", True))
    # Those whose writes to roles are judged: they may write them, and hold little else.
    may_write = [{"verbs": ["create", "update", "patch", "get"], "apiGroups": [_GROUP], "resources": ["*"]}, *_HELD]
    yield Ask("rbac setup", "POST", f"{RBAC}/clusterroles", {"metadata": {"name": "grants"}, "rules": may_write})
    binds = [{"verbs": ["bind"], "apiGroups": [_GROUP], "resources": ["clusterroles", "roles"], "resourceNames": ["drawn-1", "drawn-2"]}]
    yield Ask("rbac setup", "POST", f"{RBAC}/clusterroles", {"metadata": {"name": "binds"}, "rules": [*may_write, *binds]})
    escalates = [{"verbs": ["escalate"], "apiGroups": [_GROUP], "resources": ["clusterroles", "roles"]}]
    yield Ask("rbac setup", "POST", f"{RBAC}/clusterroles", {"metadata": {"name": "escalates"}, "rules": [*may_write, *escalates]})
    for name in ("binds", "escalates", "grants"):
        reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
        yield Ask("rbac setup", "POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [{"kind": "User", "name": name}], "roleRef": reference})


_HELD = [
    {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "*/status"]},
    {"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]},
    {"verbs": ["get"], "nonResourceURLs": ["/x/*"]},
]


def known() -> Ask:
    """Allowed once authorization has heard of the last of the bindings."""
    spec = {"user": "grants", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    return Ask("rbac known", "POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})


def reviews(seed: int, count: int) -> Iterator[Ask]:
    drawn = Drawn(seed + 1)
    for _ in range(count):
        user, groups = drawn.who()
        attributes = drawn.attributes()
        form = drawn.among(("of somebody", "of somebody", "local", "of oneself", "rules"))
        spec = {"user": user, "groups": groups, **attributes}
        if form == "of somebody":
            spec |= drawn.among(({}, {}, {"extra": {"a": ["b"]}}, {"uid": "7"}, {"user": ""}, {"nonResourceAttributes": {"path": "/", "verb": "get"}}))
            yield Ask("rbac review", "POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})
        elif form == "local":
            namespace = drawn.among(NAMESPACES)
            body = {"spec": spec} | drawn.among(({}, {"metadata": {"namespace": namespace}}, {"metadata": {"name": "x"}}))
            yield Ask("rbac local review", "POST", f"{AUTHORIZATION}/namespaces/{namespace}/localsubjectaccessreviews", body)
        else:
            impersonated = (("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups))
            if form == "rules":
                body = {"spec": {"namespace": drawn.among((*NAMESPACES, ""))}}
                yield Ask("rbac rules review", "POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", body, headers=impersonated)
            else:
                yield Ask("rbac own review", "POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": attributes}, headers=impersonated)


_SELECTORS: tuple[dict[str, Any], ...] = (
    {"labelSelector": {"rawSelector": "a=b"}}, {"labelSelector": {"rawSelector": "a in (b"}}, {"labelSelector": {}}, {"fieldSelector": {}},
    {"fieldSelector": {"rawSelector": "metadata.name=x"}}, {"fieldSelector": {"rawSelector": "x"}}, {"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}},
    {"fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "Exists"}]}},
    {"fieldSelector": {"requirements": [{"key": "", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]}, {"key": "a", "operator": "Later"}]}},
    {"labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "Later"}]}},
    {"labelSelector": {"requirements": [{"key": "", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]}]}},
    {"labelSelector": {"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists"}]}},
)  # fmt: skip


def selectors() -> Iterator[Ask]:
    """Reviews of lists that select: what of a selector is refused, and what is ignored."""
    for selector in _SELECTORS:
        spec = {"user": "ann", "resourceAttributes": {"verb": "list", "resource": "pods", **selector}}
        yield Ask("rbac selector", "POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": spec})


def grants(seed: int, count: int) -> Iterator[Ask]:
    """Writes of roles and bindings by those who do not hold everything; none is kept."""
    drawn = Drawn(seed + 2)
    for _ in range(count):
        who = (("Impersonate-User", drawn.among(("grants", "binds", "escalates", "nobody"))),)
        namespace = drawn.among(NAMESPACES)
        cluster = drawn.among((True, False))
        if drawn.among((True, False)):
            held = drawn.among((True, False, False))
            role = drawn.role("new", cluster)
            if held:
                role["rules"] = [each for each in _HELD if cluster or "resources" in each]
            if cluster and drawn.among((True, False, False)):
                role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
            where = f"{RBAC}/clusterroles" if cluster else _in("roles", namespace)
            name, body = "drawn-3", role
        else:
            where = f"{RBAC}/clusterrolebindings" if cluster else _in("rolebindings", namespace)
            name, body = "drawn-3", drawn.binding("new", not cluster)
        how = drawn.among(("POST", "POST", "PUT", "PUT new", "PATCH"))
        if how == "POST":
            yield Ask("rbac grant", "POST", f"{where}?dryRun=All", body, headers=who)
        elif how == "PATCH":
            part = {"rules": body["rules"]} if "rules" in body else {"subjects": body["subjects"]}
            part = drawn.among((part, part, {"metadata": {"finalizers": ["x.io/y"]}}, {"metadata": {"labels": {"a": "b"}}}))
            yield Ask("rbac grant", "PATCH", f"{where}/{name}?dryRun=All", part, "application/merge-patch+json", headers=who)
        else:
            name = "new" if how == "PUT new" else name
            body["metadata"]["name"] = name
            yield Ask("rbac grant", "PUT", f"{where}/{name}?dryRun=All", body, headers=who)


def refusals(seed: int, count: int) -> Iterator[Ask]:
    """Requests of users who may little."""
    drawn = Drawn(seed + 3)
    for _ in range(count):
        user, groups = drawn.who()
        target = drawn.among((
            "/api/v1/pods", "/api/v1/namespaces/ruled-a/pods", "/api/v1/namespaces/ruled-b/pods/one", "/apis/apps/v1/namespaces/ruled-a/deployments/one/scale",
            "/metrics", "/x/y", "/api/v1/namespaces/ruled-a/configmaps/one", "/api/v1/namespaces/ruled-a/configmaps?fieldSelector=metadata.name%3Done",
            f"{RBAC}/clusterroles", _in("roles", "ruled-b"), "/api/v1/nodes/one/status", "/api/v1/namespaces/ruled-a",
        ))  # fmt: skip
        impersonated = (("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups if group != "system:masters"))
        yield Ask("rbac request", drawn.among(("GET", "DELETE")), f"{target}{'&' if '?' in target else '?'}dryRun=All", headers=impersonated)
