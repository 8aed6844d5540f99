"""Admission policies and their bindings: what may be written, and what they do to writes. Each policy sees its own objects alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import authorizer_cases
from asking import Ask

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
NAMESPACE = "policies"
IN = f"/api/v1/namespaces/{NAMESPACE}"
MERGE = "application/merge-patch+json"
_HERE = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
_NEVER = {"resourceRules": [{**_RULE, "resources": ["nothing"]}]}


class Case(NamedTuple):
    """`spec` of the policy; `bindings` beyond one that denies; `asks` for objects that have its name as label `case`."""

    name: str
    spec: dict[str, Any]
    asks: tuple[Ask, ...]
    bindings: tuple[dict[str, Any], ...] = ({"validationActions": ["Deny"]},)
    object: str = ""


def _map(case: str, name: str = "", method: str = "POST", **data: str) -> Ask:
    body = {"metadata": {"name": name or f"{case}-x", "labels": {"case": case}}, "data": data}
    return Ask(case, method, f"{IN}/configmaps" + (f"/{name or f'{case}-x'}" if method == "PUT" else ""), body)


def _labelled(case: str) -> dict[str, Any]:
    return {"matchLabels": {"case": case}}


_WHOLE = frozenset(("plain", "request", "old", "updates", "named", "excluded", "name", "warned", "param", "annotations", "conditions", "bound"))


def _asks_of(case: str) -> tuple[Ask, ...]:
    """Made, changed to what is not liked and back, and deleted."""
    path = f"{IN}/configmaps/{case}-x"
    if case not in _WHOLE:
        return _map(case, a="1"), Ask(case, "PATCH", path, {"data": {"a": "no"}}, MERGE), Ask(case, "DELETE", path)
    return (
        _map(case, a="1"), _map(case, a="no"), Ask(case, "PATCH", path, {"data": {"a": "no"}}, MERGE), Ask(case, "PATCH", path, {"data": {"b": "2"}}, MERGE),
        _map(case, "", "PUT", a="no"), Ask(case, "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"generateName": "g-", "labels": {"case": case}}, "data": {"a": "no"}}),
        Ask(case, "DELETE", path), _map(case, f"{case}-y", a="no"), Ask(case, "DELETE", f"{IN}/configmaps?labelSelector=case%3D{case}"),
    )  # fmt: skip


_DATA = "has(object.data) && object.data.a != 'no'"
_LIKED = f"object == null || ({_DATA})"


def _v(expression: str = _LIKED, **more: Any) -> dict[str, Any]:
    return {"expression": expression, **more}


_VALIDATIONS: dict[str, list[dict[str, Any]]] = {
    "plain": [_v()], "message": [_v(message="  a is no  ")], "two": [_v(), _v("object == null || size(object.data) < 1", message="too many")],
    "told": [_v(messageExpression="'a is ' + object.data.a", message="else")], "told-badly": [_v(messageExpression="object.data.zz", message="else")],
    "told-nothing": [_v(messageExpression="'  '", message="m")], "told-lines": [_v(messageExpression="'a\\nb'")], "told-much": [_v(messageExpression="'abcdefgh'.replace('a', 'b') + object.metadata.name")],
    "forbidden": [_v(reason="Forbidden")], "invalid": [_v(reason="Invalid")], "large": [_v(reason="RequestEntityTooLarge", message="large")],
    "no-key": [_v("object.data.zz == 'x'")], "no-object": [_v("object.data.a == '1'")], "old": [_v("oldObject == null || object == null || oldObject.data == object.data")],
    "request": [_v("request.operation != 'UPDATE' || request.userInfo.username == 'nobody'", messageExpression="request.name + ' ' + request.namespace + ' ' + request.operation + ' ' + request.resource.resource + ' ' + string(request.dryRun)")],
    "groups": [_v("!('system:masters' in request.userInfo.groups)", messageExpression="request.userInfo.groups.join(' ') + request.userInfo.username + request.kind.kind + request.requestKind.version")],
    "namespace": [_v("namespaceObject.metadata.name == 'x'", messageExpression="namespaceObject.metadata.name + namespaceObject.status.phase + namespaceObject.spec.finalizers.join('-')")],
    "namespace-labels": [_v("namespaceObject.metadata.labels['kubernetes.io/metadata.name'] != 'policies'")], "options": [_v("!has(request.options.fieldManager)")],
    "kind": [_v("object == null || object.kind + object.apiVersion != 'ConfigMapv1'", message="it is a map")], "name": [_v("request.name != ''")],
    "uid": [_v("object == null || !has(object.metadata.uid) || object.metadata.uid == ''", message="it has a uid")], "both-fail": [_v("object.data.zz == 'x'"), _v("false", message="second", reason="Forbidden")],
    "costly": [_v("object == null || [0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e >= 0)))))")],
}  # fmt: skip
_SPECS: dict[str, dict[str, Any]] = {
    "variables": {"variables": [{"name": "a", "expression": "has(object.data) ? object.data.a : ''"}, {"name": "b", "expression": "variables.a + '!'"}], "validations": [_v("object == null || variables.b != 'no!'", messageExpression="'b is ' + variables.b")]},
    "variables-fail": {"variables": [{"name": "zz", "expression": "object.data.zz"}], "validations": [_v("variables.zz == ''"), _v("object == null || variables.zz == '' || true")]},
    "variables-typed": {"variables": [{"name": "l", "expression": "['a', 'b']"}, {"name": "m", "expression": "{'x': 1}"}], "validations": [_v("variables.l.exists(x, x == 'c') || variables.m.x == 2", messageExpression="variables.l.join(',') + string(variables.m['x'])")]},
    "ignores": {"failurePolicy": "Ignore", "validations": [_v("object.data.zz == 'x'"), _v()]}, "ignores-conditions": {"failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.data.zz == 'x'"}], "validations": [_v("false")]},
    "conditions": {"matchConditions": [{"name": "c", "expression": "request.operation == 'UPDATE'"}, {"name": "d", "expression": "object.data.a == 'no'"}], "validations": [_v("false", message="no updates")]},
    "conditions-fail": {"matchConditions": [{"name": "c", "expression": "object.data.zz == 'x'"}, {"name": "d", "expression": "object.data.yy == 'x'"}], "validations": [_v("true")]},
    "conditions-namespace": {"matchConditions": [{"name": "c", "expression": "namespaceObject == null"}], "validations": [_v()]},
    "annotations": {"auditAnnotations": [{"key": "k", "valueExpression": "'v' + string(size(object.data))"}]}, "annotations-null": {"auditAnnotations": [{"key": "k", "valueExpression": "null"}], "validations": [_v()]},
    "annotations-ignore": {"failurePolicy": "Ignore", "auditAnnotations": [{"key": "k", "valueExpression": "object.data.zz + ''"}]}, "annotations-fail": {"auditAnnotations": [{"key": "k", "valueExpression": "object.data.zz + ''"}], "validations": [_v("true")]},
}  # fmt: skip
_MATCHES: dict[str, dict[str, Any]] = {
    "creates": {"resourceRules": [{**_RULE, "operations": ["CREATE"]}]}, "updates": {"resourceRules": [{**_RULE, "operations": ["UPDATE", "DELETE"]}]}, "named": {"resourceRules": [{**_RULE, "resourceNames": ["named-x"]}]},
    "excluded": {"resourceRules": [_RULE], "excludeResourceRules": [{**_RULE, "operations": ["DELETE"]}, {**_RULE, "resourceNames": ["excluded-y"]}]}, "exact": {"matchPolicy": "Exact", "resourceRules": [{**_RULE, "apiVersions": ["v2", "v1"]}]},
    "cluster": {"resourceRules": [{**_RULE, "scope": "Cluster"}]}, "all": {"resourceRules": [{**_RULE, "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Namespaced"}]}, "others": {"resourceRules": [{**_RULE, "resources": ["pods", "configmaps/*"]}]},
}  # fmt: skip
_PARAMS = {"apiVersion": "v1", "kind": "Secret"}
_REFS: dict[str, tuple[dict[str, Any], ...]] = {
    "param": ({"name": "limits", "parameterNotFoundAction": "Deny"},), "param-absent": ({"name": "absent", "parameterNotFoundAction": "Deny"},), "param-allowed": ({"name": "absent", "parameterNotFoundAction": "Allow"},),
    "params": ({"selector": {"matchLabels": {"use": "me"}}, "parameterNotFoundAction": "Deny"},), "params-none": ({"selector": {"matchLabels": {"use": "none"}}, "parameterNotFoundAction": "Deny"},),
    "param-elsewhere": ({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"},), "param-two": ({"name": "limits", "parameterNotFoundAction": "Allow"}, {"name": "absent", "parameterNotFoundAction": "Allow"}),
}  # fmt: skip
_READS = [_v("object == null || params == null || !has(object.data) || object.data.a != string(params.type)", messageExpression="'not ' + params.kind + params.apiVersion + params.metadata.name")]


def setup() -> Iterator[Ask]:
    yield Ask("space", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield Ask("param", "POST", f"{IN}/secrets", {"metadata": {"name": "limits", "labels": {"use": "me"}}, "type": "no"})


def cases() -> list[Case]:
    found = [Case(name, {"validations": rules}, _asks_of(name)) for name, rules in _VALIDATIONS.items()]
    found += [Case(name, spec, _asks_of(name)) for name, spec in _SPECS.items()]
    found += [Case(name, {"matchConstraints": match, "validations": [_v("false")]}, _asks_of(name)) for name, match in _MATCHES.items()]
    for name, refs in _REFS.items():
        bindings = tuple({"validationActions": ["Deny"], "paramRef": ref} for ref in refs)
        found.append(Case(name, {"paramKind": _PARAMS, "validations": _READS}, _asks_of(name), bindings))
    found.append(Case("param-unbound", {"paramKind": _PARAMS, "validations": [_v("params != null", message="no params")]}, _asks_of("param-unbound")))
    found.append(Case("param-cluster", {"paramKind": {"apiVersion": "v1", "kind": "Node"}, "validations": [_v("params == null")]}, _asks_of("param-cluster"),
        ({"validationActions": ["Deny"], "paramRef": {"name": "n", "namespace": "x", "parameterNotFoundAction": "Allow"}},)))
    for policy in ("Fail", "Ignore"):
        name = f"param-unknown-{policy.lower()}"
        found.append(Case(name, {"failurePolicy": policy, "paramKind": {"apiVersion": "example.com/v1", "kind": "Nothing"}, "validations": [_v()]}, _asks_of(name)))
    for name, actions in (("warned", ["Warn"]), ("audited", ["Audit"]), ("warned-audited", ["Warn", "Audit"]), ("audited-denied", ["Audit", "Deny"])):
        found.append(Case(name, {"validations": [_v(message="a"), _v("object == null", messageExpression="'b' + object.data.a")]}, _asks_of(name), ({"validationActions": actions},)))
    narrow = {"matchResources": {"resourceRules": [{**_RULE, "operations": ["UPDATE"]}]}, "validationActions": ["Deny"]}
    other = {"matchResources": {"objectSelector": {"matchLabels": {"more": "yes"}}}, "validationActions": ["Warn"]}
    found += [Case(name, spec, authorizer_cases.asks(name, NAMESPACE)) for name, spec in authorizer_cases.specs().items()]
    found.append(Case("bound", {"validations": [_v()]}, _asks_of("bound"), (narrow, other)))
    return found


def configurations(case: Case) -> Iterator[Ask]:
    """`zz` last, which says that all are known."""
    constraints = {"resourceRules": [_RULE], **case.spec.get("matchConstraints", {}), "objectSelector": _labelled(case.name), "namespaceSelector": _HERE}
    name = f"{case.name}.policies"
    yield Ask("policy", "POST", POLICIES, {"metadata": {"name": name}, "spec": {**case.spec, "matchConstraints": constraints}})
    for i, binding in enumerate(case.bindings):
        yield Ask("binding", "POST", BINDINGS, {"metadata": {"name": f"{name}.{i}"}, "spec": {**binding, "policyName": name}})


PROBE = Case("zz", {"validations": [_v("false", message="zz knows")]}, ())


def known() -> tuple[Ask, bytes]:
    return Ask("known", "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"name": "zz", "labels": {"case": "zz"}}}), b"zz knows"


def referring() -> Iterator[Ask]:
    """Of one who may write policies, and read little."""
    rights = {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    reads = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    yield Ask("rights", "POST", f"{rbac}/clusterroles", {"metadata": {"name": "policies"}, "rules": [rights, reads]})
    yield Ask("rights", "POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "policies"}, "subjects": [subject], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"}})


_BOB = (("Impersonate-User", "bob"), ("Impersonate-Group", "system:authenticated"), ("Impersonate-Extra-Why", "x"))


def may_write() -> tuple[Ask, bytes]:
    return Ask("bob", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": "of-bob"}, "spec": _GOOD}, headers=_BOB), b'"of-bob"'


def referred() -> Iterator[Ask]:
    for version, kind in (("v1", "Secret"), ("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("example.com/v1", "Nothing"), ("v1", "")):
        yield Ask("of bob", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": "of-bob"}, "spec": {**_GOOD, "paramKind": {"apiVersion": version, "kind": kind}}}, headers=_BOB)
    made = (("of-secrets", {"apiVersion": "v1", "kind": "Secret"}), ("of-maps", {"apiVersion": "v1", "kind": "ConfigMap"}), ("of-nothing", {"apiVersion": "example.com/v1", "kind": "Nothing"}), ("of-none", None))
    for name, kind in made:
        spec = {**_GOOD, "matchConstraints": _NEVER, **({"paramKind": kind} if kind else {})}
        yield Ask("made", "POST", POLICIES, {"metadata": {"name": name}, "spec": spec})
        yield Ask("of bob", "PATCH", f"{POLICIES}/{name}", {"spec": {"failurePolicy": "Ignore"}}, MERGE, headers=_BOB)
    refs: tuple[dict[str, Any], ...] = ({"name": "x"}, {"name": "x", "namespace": "y"}, {"selector": {}})
    for name in (*(name for name, _ in made), "of-absent"):
        for ref in refs:
            spec = {"policyName": name, "validationActions": ["Deny"], "paramRef": {**ref, "parameterNotFoundAction": "Allow"}}
            yield Ask("of bob", "POST", f"{BINDINGS}?dryRun=All", {"metadata": {"name": "of-bob"}, "spec": spec}, headers=_BOB)


# --- what may be written ----------------------------------------------------------------------------------------------

_GOOD: dict[str, Any] = {"matchConstraints": {"resourceRules": [_RULE]}, "validations": [_v("object.x == 1")]}
_BAD_SPECS: tuple[dict[str, Any], ...] = (
    {}, {"validations": []}, {"matchConstraints": None}, {"matchConstraints": {}}, {"failurePolicy": "Maybe"}, {"failurePolicy": ""}, {"paramKind": {}}, {"paramKind": {"apiVersion": "a/b/c", "kind": "K"}},
    {"paramKind": {"apiVersion": "A_/V1", "kind": "k k"}}, {"paramKind": {"apiVersion": "a/", "kind": "K"}}, {"paramKind": {"apiVersion": "/", "kind": "K"}}, {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [_v("params.data == object.data")]}, {"validations": [_v("params.x")]},
    {"validations": [_v("")]}, {"validations": [_v("  ")]}, {"validations": [_v("object.x")]}, {"validations": [_v("1")]}, {"validations": [_v("object.")]}, {"validations": [_v("nothing == 1")]}, {"validations": [_v("variables.x == 1")]}, {"validations": [_v("request.zz == 1")]},
    {"validations": [_v("true", message=" ")]}, {"validations": [_v("true", message="a\nb")]}, {"validations": [_v("true", messageExpression=" ")]}, {"validations": [_v("true", messageExpression="1")]}, {"validations": [_v("true", messageExpression="object.x")]}, {"validations": [_v("true", messageExpression="string(authorizer)")]},
    {"validations": [_v("null"), _v("[null]"), _v("duration('1s')"), _v("timestamp('2020-01-01T00:00:00Z')"), _v("type(1)"), _v("optional.of(1)"), _v("{'a': 1u}"), _v("request"), _v("b'x'")]},
    {"validations": [_v("true", reason="Unauthorized")]}, {"validations": [_v("true", reason="")]}, {"validations": [_v("true", reason="Invalid")]}, {"variables": [{"name": "", "expression": ""}]}, {"variables": [{"name": "a b", "expression": "1"}]}, {"variables": [{"name": "in", "expression": "1"}]},
    {"variables": [{"name": "x", "expression": "1 +"}], "validations": [_v("variables.x == 1")]}, {"variables": [{"name": "x", "expression": "'a'"}], "validations": [_v("variables.x == 1")]}, {"variables": [{"name": "x", "expression": "variables.y"}, {"name": "y", "expression": "1"}]},
    {"variables": [{"name": "x", "expression": "1"}, {"name": "x", "expression": "2"}]}, {"variables": [{"name": "x", "expression": "object.a"}], "validations": [_v("variables.y == 1")]}, {"variables": [{"name": "x", "expression": "request"}], "validations": [_v("variables.x.zz == 1", messageExpression="variables.x")]},
    {"matchConditions": [{"name": "", "expression": ""}]}, {"matchConditions": [{"name": "a", "expression": "params.x == 1"}]}, {"matchConditions": [{"name": "a", "expression": "variables.x == 1"}], "variables": [{"name": "x", "expression": "1"}]}, {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "1"}]},
    {"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "matchConditions": [{"name": "a", "expression": "params.x == 1"}]}, {"matchConditions": [{"name": f"n{i}", "expression": "true"} for i in range(65)]},
    {"auditAnnotations": [{"key": "", "valueExpression": ""}]}, {"auditAnnotations": [{"key": "a b", "valueExpression": "1"}]}, {"auditAnnotations": [{"key": "k", "valueExpression": "'x'"}, {"key": "k", "valueExpression": "null"}]}, {"auditAnnotations": [{"key": "k", "valueExpression": f"'{'x' * 5200}'"}]},
    {"auditAnnotations": [{"key": f"k{i}", "valueExpression": "'x'"} for i in range(21)]}, {"auditAnnotations": [{"key": "k", "valueExpression": " object.x "}], "validations": None}, {"validations": [_v("true")] * 3, "auditAnnotations": []},
)  # fmt: skip
_BAD_MATCHES: tuple[dict[str, Any], ...] = (
    {"matchPolicy": "Some"}, {"matchPolicy": ""}, {"namespaceSelector": {"matchLabels": {"a b": "c d"}}}, {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, {"resourceRules": [{}]}, {"resourceRules": [{**_RULE, "operations": ["GET"]}]},
    {"resourceRules": [{**_RULE, "operations": ["*", "CREATE"], "apiGroups": ["*", ""], "apiVersions": [""], "scope": "Some"}]}, {"resourceRules": [{**_RULE, "resources": ["*", "pods", "a/*", "a/b", "*/*"]}]}, {"resourceRules": [{**_RULE, "resourceNames": ["a/b", "x", "x", ".."]}]},
    {"excludeResourceRules": [{}, _RULE]}, {"resourceRules": []},
)  # fmt: skip
_BAD_BINDINGS: tuple[dict[str, Any], ...] = (
    {}, {"policyName": "P_"}, {"policyName": "p"}, {"validationActions": []}, {"validationActions": ["Deny", "Warn"]}, {"validationActions": ["Deny", "Deny", "Some"]}, {"validationActions": ["Audit", "Warn"]}, {"paramRef": {}}, {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}},
    {"paramRef": {"name": "a/b", "parameterNotFoundAction": "Some"}}, {"paramRef": {"name": "a", "parameterNotFoundAction": ""}}, {"paramRef": {"selector": {"matchLabels": {"a b": "c"}}, "parameterNotFoundAction": "Allow"}}, {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}},
    {"paramRef": {"selector": {"matchLabels": {"b": "c", "a": "d"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}, {"key": "l", "operator": "Exists"}]}, "parameterNotFoundAction": "Allow", "namespace": "n"}},
    {"paramRef": {"name": "a", "namespace": "n", "parameterNotFoundAction": "Allow"}}, {"matchResources": {}}, {"matchResources": {"matchPolicy": "Some"}}, {"matchResources": {"resourceRules": [{}]}}, {"matchResources": {"excludeResourceRules": [{**_RULE, "operations": []}]}},
)  # fmt: skip


def writes() -> Iterator[Ask]:
    """None of those that stay is bound to anything that happens."""
    for i, bad in enumerate(_BAD_SPECS):
        yield Ask("spec", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": f"spec-{i}"}, "spec": {**_GOOD, **bad}})
    for i, bad in enumerate(_BAD_MATCHES):
        yield Ask("match", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": f"match-{i}"}, "spec": {**_GOOD, "matchConstraints": {"resourceRules": [_RULE], **bad}}})
    for name in ("A_", "p.static.k8s.io", ""):
        yield Ask("name", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": name}, "spec": {**_GOOD, "auditAnnotations": [{"key": "k", "valueExpression": "'a'"}]}, "status": {"observedGeneration": 4}})
    for i, bad in enumerate(_BAD_BINDINGS):
        spec = {"policyName": "absent", "validationActions": ["Deny"], **bad} if bad else {}
        yield Ask("bind", "POST", BINDINGS, {"metadata": {"name": f"bind-{i}"}, "spec": spec})
    yield Ask("made", "POST", POLICIES, {"metadata": {"name": "standing"}, "spec": {**_GOOD, "matchConstraints": _NEVER, "paramKind": _PARAMS}})
    at = f"{POLICIES}/standing"
    changes: tuple[dict[str, Any], ...] = ({"spec": {"failurePolicy": "Ignore"}}, {"metadata": {"labels": {"a": "b"}}}, {"spec": {"matchConditions": [{"name": "c", "expression": "params.x == 1"}]}}, {"spec": {"paramKind": None}}, {"status": {"observedGeneration": 7}}, {"spec": {"validations": []}})
    for change in changes:
        yield Ask("changed", "PATCH", at, change, MERGE)
    now = "2024-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": now}
    for status in ({"observedGeneration": 3, "conditions": [condition]}, {"conditions": [{**condition, "status": "x", "reason": ""}]}, {"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.validations[0].expression", "warning": "w"}, {"fieldRef": " ", "warning": ""}]}},
                   {"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.validations[0].expression", "warning": "w"}]}}):  # fmt: skip
        yield Ask("status", "PATCH", f"{at}/status", {"status": status, "spec": {"failurePolicy": "Fail"}}, MERGE)
    yield Ask("got", "GET", at)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for path in (at, BINDINGS):
        yield Ask("table", "GET", path, accept=table)
    yield Ask("unversioned", "PUT", at, {"metadata": {"name": "standing"}, "spec": _GOOD})
    yield Ask("bound", "PATCH", f"{BINDINGS}/bind-2", {"spec": {"validationActions": ["Warn"]}}, MERGE)
    yield Ask("bound", "PATCH", f"{BINDINGS}/bind-2", {"spec": {"validationActions": ["Warn", "Warn"]}}, MERGE)
    yield Ask("deleted", "DELETE", f"{BINDINGS}/bind-2")
    yield Ask("deleted", "DELETE", at)
