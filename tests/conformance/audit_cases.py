"""Requests whose audit events have something of their own: users, refusals, annotations, subresources, odd paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask

MERGE, APPLY, JSON_PATCH = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
NS = "/api/v1/namespaces/audited"
_SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**_SPEC, **spec}}


def _named(plural: str, kind: str, api: str, name: str, **rest: Any) -> Ask:
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **rest}
    return Ask("setup", "POST", plural, body)


_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
_LABELS = {
    "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/audit": "restricted",
    "pod-security.kubernetes.io/audit-version": "v1.30",
}  # fmt: skip
_RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
SETUP = (
    Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": "audited", "labels": _LABELS}}),
    Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": "plain"}}),
    _named(_RBAC, "ClusterRole", "rbac.authorization.k8s.io/v1", "readers", rules=[_RULE]),
    _named(
        f"{_RBAC[:-5]}rolebindings", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "readers",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    ),
    _named("/api/v1/namespaces/plain/serviceaccounts", "ServiceAccount", "v1", "robot"),
    _named("/api/v1/namespaces/plain/configmaps", "ConfigMap", "v1", "seen", data={"a": "<b> & \u00e9"}),
    _named("/api/v1/namespaces/plain/secrets", "Secret", "v1", "seen", stringData={"password": "hunter2"}),
)  # fmt: skip


_SPEC_OF_POLICY: dict[str, Any] = {
    "matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
    }]},
    "validations": [{"expression": "true"}, {"expression": "!has(object.data.bad)", "message": "<bad> & worse"}],
    "auditAnnotations": [
        {"key": "who", "valueExpression": "' ' + object.metadata.name + ' '"},
        {"key": "empty", "valueExpression": "''"},
        {"key": "none", "valueExpression": "null"},
    ],
}  # fmt: skip
SETUP += (
    Ask("setup", "POST", _POLICIES, {"metadata": {"name": "noted.example"}, "spec": _SPEC_OF_POLICY}),
    Ask("setup", "POST", f"{_POLICIES[:-3]}ybindings", {
        "metadata": {"name": "noted"},
        "spec": {"policyName": "noted.example", "validationActions": ["Audit", "Warn"],
                 "matchResources": {"namespaceSelector": {"matchLabels": {"noted": "yes"}}}},
    }),
    Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": "noted", "labels": {"noted": "yes"}}}),
)  # fmt: skip


def _as(user: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (("Impersonate-User", user), *more)


def _senders() -> Iterator[Ask]:
    path = "/api/v1/namespaces/plain/pods"
    yield Ask("anonymous", "GET", path, token="")
    yield Ask("bad token", "GET", path, token="nobody")
    yield Ask("bad token", "POST", path, pod("x"), token="nobody")
    yield Ask("bad token", "GET", "/healthz", token="nobody")
    yield Ask("basic", "GET", path, headers=(("Authorization", "Basic eDp5"),))
    yield Ask("anonymous version", "GET", "/version", token="")
    yield Ask("anonymous health", "GET", "/livez", token="")
    yield Ask("impersonated", "GET", path, headers=_as("jane"))
    group, uid, scope = ("Impersonate-Group", "g1"), ("Impersonate-Uid", "u"), "Impersonate-Extra-Scope"
    yield Ask("impersonated", "GET", f"{path}/none", headers=_as("jane", group, uid))
    yield Ask("impersonated", "GET", path, headers=_as("jane", (scope, "a"), (scope, "b")))
    yield Ask("impersonated, refused", "DELETE", f"{path}/none", headers=_as("jane"))
    yield Ask("impersonated, refused", "POST", path, pod("x"), headers=_as("jane"))
    yield Ask("impersonated, refused", "GET", "/metrics", headers=_as("jane"))
    yield Ask("impersonated account", "GET", path, headers=_as("system:serviceaccount:plain:robot"))
    yield Ask("impersonated node", "GET", path, headers=_as("system:node:n1"))
    yield Ask("no user", "GET", path, headers=(("Impersonate-Group", "g"),))
    yield Ask("may not impersonate", "GET", path, token="", headers=_as("jane"))
    yield Ask("agent", "GET", path, headers=(("User-Agent", "a" * 1100), ("X-Forwarded-For", "10.0.0.1, x, 10.0.0.2")))
    yield Ask("real ip", "GET", path, headers=(("X-Real-Ip", "2001:db8::1"),))
    yield Ask("real ip", "GET", path, headers=(("X-Forwarded-For", "127.0.0.1"), ("User-Agent", "")))


def _paths() -> Iterator[Ask]:
    for path in (
        "/", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/healthz", "/healthz/ping", "/readyz?verbose",
        "/openapi/v3", "/nothing", "/api/v1/nothing", "/apis/nothing.example/v1/things", "/api/v2/pods",
        "/api/v1/watch/namespaces/plain/pods?timeoutSeconds=1", "/api/v1/namespaces/plain/pods/x/nothing",
        "/api/v1/pods?watch=1&timeoutSeconds=1",
        "/api/v1/pods?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da",
        "/api/v1/pods?fieldSelector=metadata.name%3Da", "/api/v1/pods?limit=x&fieldSelector=metadata.name%3Da",
        "/api/v1/pods?resourceVersion=x&watch=1", "/api/v1/namespaces/plain/pods/x/log", "/api/v1/namespaces/plain",
        "/api/v1/namespaces/plain/configmaps/seen", "/api/v1/namespaces/plain/secrets/seen",
        "/api/v1/namespaces/plain/endpoints", "/api/v1/componentstatuses", "/api/v1/namespaces/plain/secrets",
        "/api/v1/namespaces/plain/configmaps?pretty=true", "/.well-known/openid-configuration", "/version?x=%20y",
    ):
        yield Ask(f"path {path}", "GET", path)
    yield Ask("method", "POST", "/api/v1/nodes/x")
    yield Ask("method", "PUT", "/version")
    yield Ask("method", "HEAD", "/api/v1/namespaces/plain/configmaps/seen")
    yield Ask("method", "OPTIONS", "/api/v1/nodes")
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    yield Ask("table", "GET", "/api/v1/namespaces/plain/configmaps", accept=table)
    yield Ask("table", "GET", "/api/v1/namespaces/plain/configmaps/seen?includeObject=Object", accept=table)
    yield Ask("yaml", "GET", "/api/v1/namespaces/plain/configmaps/seen", accept="application/yaml")
    yield Ask("yaml", "GET", "/api/v1/namespaces/plain/configmaps/none", accept="application/yaml")
    yield Ask("not acceptable", "GET", "/api/v1/namespaces/plain/configmaps/seen", accept="image/png")


def _writes() -> Iterator[Ask]:
    pods, maps = f"{NS}/pods", "/api/v1/namespaces/plain/configmaps"
    yield Ask("create", "POST", pods, pod("a"))
    yield Ask("create again", "POST", pods, pod("a"))
    yield Ask("violates", "POST", pods, pod("b", hostNetwork=True))
    yield Ask("generated", "POST", maps, {"metadata": {"generateName": "g-"}})
    yield Ask("invalid", "POST", pods, pod("B"))
    yield Ask("no spec", "POST", pods, {"metadata": {"name": "x"}})
    yield Ask("not json", "POST", pods, b"{")
    yield Ask("unknown field", "POST", f"{maps}?fieldValidation=Strict", {"metadata": {"name": "y"}, "x": 1})
    yield Ask("unknown field", "POST", f"{maps}?fieldValidation=Warn", {"metadata": {"name": "y"}, "x": 1})
    yield Ask("other namespace", "POST", maps, {"metadata": {"name": "y", "namespace": "other"}})
    yield Ask("other kind", "POST", maps, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "y"}})
    yield Ask("bad options", "POST", f"{maps}?dryRun=x", {"metadata": {"name": "z"}})
    yield Ask("dry run", "POST", f"{maps}?dryRun=All", {"metadata": {"name": "z"}})
    yield Ask("yaml", "POST", maps, "metadata:\n  name: of-yaml\n", content_type="application/yaml")
    yield Ask("media", "POST", maps, "x", content_type="text/plain")
    yield Ask("update", "PUT", f"{maps}/seen", {"metadata": {"name": "seen", "labels": {"a": "b"}}, "data": {"x": "y"}})
    yield Ask("update stale", "PUT", f"{maps}/seen", {"metadata": {"name": "seen", "resourceVersion": "1"}})
    yield Ask("update none", "PUT", f"{maps}/none", {"metadata": {"name": "none"}})
    yield Ask("update other", "PUT", f"{maps}/seen", {"metadata": {"name": "other"}})
    yield Ask("patch", "PATCH", f"{maps}/seen", {"data": {"x": "z"}}, content_type=MERGE)
    yield Ask("patch none", "PATCH", f"{maps}/none", {"data": {"x": "z"}}, content_type=MERGE)
    yield Ask("patch json", "PATCH", f"{maps}/seen", [{"op": "remove", "path": "/data/x"}], content_type=JSON_PATCH)
    yield Ask("patch bad", "PATCH", f"{maps}/seen", [{"op": "remove", "path": "/data/none"}], content_type=JSON_PATCH)
    yield Ask("patch not json", "PATCH", f"{maps}/seen", "{x", content_type=MERGE)
    yield Ask("patch media", "PATCH", f"{maps}/seen", "{}", content_type="text/plain")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}
    yield Ask("apply", "PATCH", f"{maps}/applied?fieldManager=me", applied, content_type=APPLY)
    as_yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: applied\n"
    yield Ask("apply yaml", "PATCH", f"{maps}/applied?fieldManager=me", as_yaml, content_type=APPLY)
    yield Ask("apply, no manager", "PATCH", f"{maps}/applied", applied, content_type=APPLY)
    yield Ask("status", "PATCH", f"{pods}/a/status", {"status": {"message": "m"}}, content_type=MERGE)
    for data in ({}, {"bad": "1"}):
        noted = {"metadata": {"name": f"m{len(data)}"}, "data": data}
        yield Ask("policy", "POST", "/api/v1/namespaces/noted/configmaps", noted)
    yield Ask("token", "POST", "/api/v1/namespaces/plain/serviceaccounts/robot/token", {"spec": {}})
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    yield Ask("binding", "POST", f"{pods}/a/binding", binding)
    yield Ask("binding again", "POST", f"{pods}/a/binding", binding)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    yield Ask("eviction", "POST", f"{pods}/none/eviction", {**eviction, "metadata": {"name": "none"}})
    yield Ask("eviction", "POST", f"{pods}/a/eviction?dryRun=All", eviction)
    yield Ask("token", "POST", "/api/v1/namespaces/plain/serviceaccounts/none/token", {"spec": {}})
    may = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    yield Ask("review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", may)
    yield Ask("review", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    yield Ask("review", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}})
    replicas = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**_SPEC, "hostNetwork": True}}
    spec = {"replicas": 0, "selector": {"a": "b"}, "template": template}
    yield Ask("template", "POST", f"{NS}/replicationcontrollers", {**replicas, "spec": spec})
    scale = f"{NS}/replicationcontrollers/rc/scale"
    yield Ask("scale", "GET", scale)
    yield Ask("scale", "PATCH", scale, {"spec": {"replicas": 1}}, content_type=MERGE)
    yield Ask("scale", "PUT", scale, {"metadata": {"name": "rc", "namespace": "audited"}, "spec": {"replicas": 2}})
    yield Ask("delete none", "DELETE", f"{maps}/none")
    of_meta = {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"}
    for options in (
        {"gracePeriodSeconds": 3, "kind": "DeleteOptions", "apiVersion": "v1"}, {"propagationPolicy": "Foreground"},
        {"propagationPolicy": "x", **of_meta},
    ):  # fmt: skip
        yield Ask("delete options", "DELETE", f"{maps}/none", options)
    yield Ask("delete options", "DELETE", f"{maps}/none?gracePeriodSeconds=x")
    yield Ask("delete", "DELETE", f"{maps}/applied")
    yield Ask("delete", "DELETE", f"{pods}/a", {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"})
    yield Ask("delete all", "DELETE", f"{maps}?labelSelector=none%3Dnone")


def cases() -> list[Ask]:
    return [*_senders(), *_paths()]


def changing() -> list[Ask]:
    return list(_writes())
