"""Policies that change writes, and their bindings: what may be written, and what they make of writes. Each sees its own objects alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask
from policy_cases import GROUP, MERGE, Case

POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
NAMESPACE = "mutations"
IN = f"/api/v1/namespaces/{NAMESPACE}"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_HERE = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
_OF_DEPLOYMENTS = {"resourceRules": [{**_RULE, "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"]}]}
_OF_PODS = {"resourceRules": [{**_RULE, "resources": ["pods"]}]}


def _a(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def _j(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def _op(op: str, path: str, value: str = "") -> str:
    return f"JSONPatch{{op: '{op}', path: '{path}'{f', value: {value}' if value else ''}}}"


_LABEL = "Object{metadata: Object.metadata{labels: {'mutated': 'yes'}}}"
_MAPS: dict[str, list[dict[str, Any]]] = {
    "label": [_a(_LABEL)], "data": [_a("Object{data: {'b': object.data.a + '!'}}")], "in-turn": [_a("Object{data: {'b': object.data.a + '!'}}"), _a("Object{data: {'c': object.data.b + '?'}}")],
    "optional": [_a("Object{?data: object.data.?zz.hasValue() ? optional.of({'z': 'z'}) : optional.none(), metadata: Object.metadata{?generateName: optional.of('g-')}}")],
    "binary": [_a("Object{binaryData: {'x': 'aGVsbG8='}}")], "immutable": [_a("Object{immutable: object.data.a == 'no'}")], "nothing": [_a("Object{}")],
    "no-key": [_a("Object{data: {'b': object.data.zz}}")], "wrong-name": [_a("Object{metadata: Object.spec{labels: {'a': 'b'}}}")], "unknown": [_a("Object{spec: Object.spec{a: 1}}")], "wrong-type": [_a("Object{immutable: 'yes'}")],
    "renamed": [_a("Object{metadata: Object.metadata{name: 'other'}}")], "moved": [_a("Object{metadata: Object.metadata{namespace: 'default'}}")], "uid": [_a("Object{metadata: Object.metadata{uid: 'x'}}")],
    "atomic": [_a("Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{uid: 'u', name: 'n', kind: 'K', apiVersion: 'v1'}]}}")],
    "typed": [_a("type(Object{}) == Object && type(Object.data{}) == Object.data && has(JSONPatch{op: 'add'}.op) && !has(JSONPatch{}.op) && Object{a: 1} == Object{a: 1} && Object{a: 1} != Object.b{a: 1} ? " + _LABEL + " : Object{}")],
    "numbers": [_a("Object{data: {'n': 1}}")], "bad-label": [_a("Object{metadata: Object.metadata{labels: {'a b': 'c d'}}}")], "finalizers": [_a("Object{metadata: Object.metadata{finalizers: ['example.com/a', 'example.com/a']}}")],
    "costly": [_a("[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, a + b + c + d + e >= 0))))) ? Object{} : " + _LABEL)],
    "j-add": [_j(f"[{_op('add', '/data/b', chr(39) + 'x' + chr(39))}]")], "j-none": [_j("[]")], "j-choice": [_j(f"has(object.data) && object.data.a == 'no' ? [{_op('remove', '/data/a')}] : []")],
    "j-replace": [_j(f"[{_op('replace', '/data', '{' + chr(39) + 'q' + chr(39) + ': object.metadata.name}')}]")], "j-test": [_j(f"[{_op('test', '/data/a', chr(39) + 'no' + chr(39))}, {_op('replace', '/data/a', chr(39) + 'tested' + chr(39))}]")],
    "j-move": [_j("[JSONPatch{op: 'move', from: '/data/a', path: '/data/moved'}]")], "j-copy": [_j("[JSONPatch{op: 'copy', from: '/data/a', path: '/data/copied'}]")], "j-absent": [_j(f"[{_op('remove', '/data/zz')}]")], "j-bad-op": [_j(f"[{_op('grow', '/data/zz')}]")],
    "j-unknown": [_j(f"[{_op('add', '/spec', '{' + chr(39) + 'a' + chr(39) + ': 1}')}]")], "j-number": [_j(f"[{_op('add', '/data/n', '1')}]")], "j-null": [_j(f"[{_op('add', '/data', 'null')}]")], "j-escaped": [_j("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/a~b'), value: 'x'}]")],
    "j-object": [_j("[JSONPatch{op: 'add', path: '/metadata/annotations', value: Object.metadata.annotations{b: 'c'}}]")], "j-list": [_j("[JSONPatch{op: 'add', path: '/metadata/finalizers', value: ['example.com/x']}]")], "j-kind": [_j(f"[{_op('replace', '/kind', chr(39) + 'Secret' + chr(39))}]")],
    **{f"dies-{name}": [_j(f"request.operation == 'CREATE' ? [] : [{_op('add', path, value)}]")] for name, path, value in (
        ("timed", "/metadata/deletionTimestamp", "'2020-01-01T00:00:00Z'"), ("graceful", "/metadata/deletionGracePeriodSeconds", "5"),
    )},
    "dying": [_j("request.operation != 'CREATE' ? [] : [JSONPatch{op: 'add', path: '/metadata/deletionTimestamp', value: '2020-01-01T00:00:00Z'}, JSONPatch{op: 'add', path: '/metadata/deletionGracePeriodSeconds', value: 5}]")],
    "both": [_a(_LABEL), _j(f"[{_op('add', '/data/b', 'object.metadata.labels.mutated')}]")], "fails-then": [_a("Object{data: {'b': object.data.zz}}"), _a(_LABEL)], "authorized": [_a("Object{data: {'who': request.userInfo.groups.join('-')}}")],
    "old": [_a("Object{data: {'old': oldObject == null ? 'none' : oldObject.data.a}}")], "namespace": [_a("Object{data: {'ns': namespaceObject.metadata.name, 'rq': request.operation + request.kind.kind + request.name}}")],
}  # fmt: skip
_SPECS: dict[str, dict[str, Any]] = {
    "variables": {"variables": [{"name": "a", "expression": "object.data.a"}, {"name": "b", "expression": "variables.a + '!'"}], "mutations": [_a("Object{data: {'b': variables.b}}")]},
    "variables-fail": {"variables": [{"name": "zz", "expression": "object.data.zz"}], "mutations": [_a("Object{data: {'b': variables.zz}}")]},
    "ignores": {"failurePolicy": "Ignore", "mutations": [_a("Object{data: {'b': object.data.zz}}"), _a(_LABEL)]}, "ignores-unknown": {"failurePolicy": "Ignore", "mutations": [_j(f"[{_op('add', '/spec', '1')}]"), _a(_LABEL)]},
    "conditions": {"matchConditions": [{"name": "c", "expression": "request.operation == 'UPDATE'"}, {"name": "d", "expression": "object.data.a == 'no'"}], "mutations": [_a(_LABEL)]},
    "conditions-fail": {"matchConditions": [{"name": "c", "expression": "object.data.zz == 'x'"}], "mutations": [_a(_LABEL)]}, "conditions-ignored": {"failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.data.zz == 'x'"}], "mutations": [_a(_LABEL)]},
    "again": {"reinvocationPolicy": "IfNeeded", "mutations": [_a("Object{data: {'n': string(int(object.data.?n.orValue('0')) + 1)}}")]}, "once": {"mutations": [_a("Object{data: {'n': string(int(object.data.?n.orValue('0')) + 1)}}")]},
    "again-nothing": {"reinvocationPolicy": "IfNeeded", "mutations": [_j("object.data.a == 'no' ? [JSONPatch{op: 'add', path: '/data/n', value: object.data.?n.orValue('') + 'x'}] : []")]},
}  # fmt: skip
_OBJECTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "sidecar": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 'side:1'}]}}}}")]),
    "images": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, image: 'registry/' + c.image, imagePullPolicy: 'Always'})}}}}")]),
    "tolerated": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{tolerations: [Object.spec.template.spec.tolerations{key: 'a', operator: 'Exists'}]}}}}")]),
    "scaled": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{replicas: request.subResource == 'scale' ? 3 : 2}}")]), "selected": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'x': 'y'}}}}")]),
    "limits": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'c', resources: Object.spec.template.spec.containers.resources{limits: {'cpu': '1'}}}]}}}}")]),
    "quantity": (_OF_DEPLOYMENTS, [_a("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'c', resources: Object.spec.template.spec.containers.resources{limits: {'cpu': 'much'}}}]}}}}")]),
    "j-container": (_OF_DEPLOYMENTS, [_j("[JSONPatch{op: 'add', path: '/spec/template/spec/containers/-', value: Object.spec.template.spec.containers{name: 'more', image: 'more', ports: [Object.spec.template.spec.containers.ports{containerPort: 80}]}}]")]),
    "j-env": (_OF_DEPLOYMENTS, [_j("[JSONPatch{op: 'add', path: '/spec/template/spec/containers/0/env', value: [{'name': 'A', 'value': 'b'}]}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 4}]")]),
    "pod-side": (_OF_PODS, [_a("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 'side:1', restartPolicy: 'Always'}], initContainers: [Object.spec.initContainers{name: 'first', image: 'first', restartPolicy: 'Always'}], activeDeadlineSeconds: 60}}")]),
    "pod-strings": (_OF_PODS, [_a("Object{spec: Object.spec{activeDeadlineSeconds: '60'}}")]), "pod-removed": (_OF_PODS, [_j("[JSONPatch{op: 'remove', path: '/spec/containers/0'}]")]), "pod-status": (_OF_PODS, [_a("Object{status: Object.status{phase: 'Running'}}")]),
}  # fmt: skip
_PARAMS = {"apiVersion": "v1", "kind": "Secret"}
_REFS: dict[str, tuple[dict[str, Any], ...]] = {
    "param": ({"name": "limits", "parameterNotFoundAction": "Deny"},), "param-absent": ({"name": "absent", "parameterNotFoundAction": "Deny"},), "param-allowed": ({"name": "absent", "parameterNotFoundAction": "Allow"},),
    "params": ({"selector": {"matchLabels": {"use": "me"}}, "parameterNotFoundAction": "Deny"},), "param-two": ({"name": "limits", "parameterNotFoundAction": "Allow"}, {"name": "limits", "namespace": NAMESPACE, "parameterNotFoundAction": "Allow"}),
}  # fmt: skip


def setup() -> Iterator[Ask]:
    yield Ask("space", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield Ask("param", "POST", f"{IN}/secrets", {"metadata": {"name": "limits", "labels": {"use": "me"}}, "type": "no"})
    # A pod needs one, which the controllers of neither make here.
    yield Ask("account", "POST", f"{IN}/serviceaccounts", {"metadata": {"name": "default"}})


def _asks_of(case: str) -> tuple[Ask, ...]:
    path, labels = f"{IN}/configmaps/{case}-x", {"case": case}
    body = {"metadata": {"name": f"{case}-x", "labels": labels}, "data": {"a": "1"}}
    return (
        Ask(case, "POST", f"{IN}/configmaps?fieldManager=w", body), Ask(case, "PATCH", f"{path}?fieldManager=w", {"data": {"a": "no"}}, MERGE), Ask(case, "PUT", f"{path}?fieldManager=w", {**body, "data": {"a": "no", "c": "c"}}),
        Ask(case, "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"generateName": "g-", "labels": labels}, "data": {"a": "no"}}),
        Ask(case, "PATCH", f"{path}?fieldManager=m", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{case}-x", "labels": labels}, "data": {"a": "2"}}, "application/apply-patch+yaml"),
        Ask(case, "GET", path), Ask(case, "PATCH", path, {"metadata": {"finalizers": None}}, MERGE), Ask(case, "DELETE", path),
    )  # fmt: skip


def _renamed(case: str) -> tuple[Ask, ...]:
    path = f"{IN}/configmaps"
    body = {"metadata": {"name": f"{case}-x", "labels": {"case": case}}, "data": {"a": "1"}}
    return Ask(case, "POST", path, body), Ask(case, "GET", f"{path}/{case}-x"), Ask(case, "PATCH", f"{path}/other", {"data": {"b": "2"}}, MERGE), Ask(case, "DELETE", f"{path}/other")


def _of_objects(case: str, pods: bool) -> tuple[Ask, ...]:
    labels = {"case": case}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}
    if pods:
        path = f"{IN}/pods"
        body: dict[str, Any] = {"metadata": {"name": f"{case}-x", "labels": labels}, "spec": spec}
        changes: tuple[Ask, ...] = ()
    else:
        path = APPS
        body = {"metadata": {"name": f"{case}-x", "labels": labels}, "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}}
        changes = (Ask(case, "PATCH", f"{path}/{case}-x/scale", {"spec": {"replicas": 5}}, MERGE),)
    return (
        Ask(case, "POST", path, body), Ask(case, "PATCH", f"{path}/{case}-x", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        *changes, Ask(case, "GET", f"{path}/{case}-x"), Ask(case, "DELETE", f"{path}/{case}-x?gracePeriodSeconds=0"),
    )  # fmt: skip


def cases() -> list[Case]:
    found = [Case(name, {"mutations": mutations}, (_renamed if name == "renamed" else _asks_of)(name), ({},)) for name, mutations in _MAPS.items()]
    found += [Case(name, spec, _asks_of(name), ({},)) for name, spec in _SPECS.items()]
    found += [Case(name, {"matchConstraints": match, "mutations": mutations}, _of_objects(name, match is _OF_PODS), ({},)) for name, (match, mutations) in _OBJECTS.items()]
    reads = [_a("Object{data: {'p': params == null ? 'none' : params.kind + params.metadata.name, 'n': object.data.?n.orValue('') + 'x'}}")]
    for again in ("Never", "IfNeeded"):
        for name, refs in _REFS.items():
            case = f"{name}-{again.lower()}"
            found.append(Case(case, {"paramKind": _PARAMS, "reinvocationPolicy": again, "mutations": reads}, _asks_of(case), tuple({"paramRef": ref} for ref in refs)))
    found.append(Case("param-unbound", {"paramKind": _PARAMS, "mutations": reads}, _asks_of("param-unbound"), ({},)))
    for policy in ("Fail", "Ignore"):
        name = f"param-unknown-{policy.lower()}"
        found.append(Case(name, {"failurePolicy": policy, "paramKind": {"apiVersion": "example.com/v1", "kind": "Nothing"}, "mutations": reads}, _asks_of(name), ({},)))
    narrow = {"matchResources": {"resourceRules": [{**_RULE, "operations": ["UPDATE"]}]}}
    found.append(Case("bound", {"mutations": [_a(_LABEL)]}, _asks_of("bound"), (narrow, {"matchResources": {"objectSelector": {"matchLabels": {"more": "yes"}}}})))
    return found


def configurations(case: Case) -> Iterator[Ask]:
    constraints = {"resourceRules": [_RULE], **case.spec.get("matchConstraints", {}), "objectSelector": {"matchLabels": {"case": case.name}}, "namespaceSelector": _HERE}
    name = f"{case.name}.mutations"
    yield Ask("policy", "POST", POLICIES, {"metadata": {"name": name}, "spec": {"reinvocationPolicy": "Never", **case.spec, "matchConstraints": constraints}})
    for i, binding in enumerate(case.bindings):
        yield Ask("binding", "POST", BINDINGS, {"metadata": {"name": f"{name}.{i}"}, "spec": {**binding, "policyName": name}})


PROBE = Case("zz", {"mutations": [_a("Object{metadata: Object.metadata{labels: {'known': 'zz-knows'}}}")]}, (), ({},))


def known() -> tuple[Ask, bytes]:
    return Ask("known", "POST", f"{IN}/configmaps?dryRun=All", {"metadata": {"name": "zz", "labels": {"case": "zz"}}}), b"zz-knows"


# --- what may be written ----------------------------------------------------------------------------------------------

_GOOD: dict[str, Any] = {"matchConstraints": {"resourceRules": [_RULE]}, "mutations": [_a(_LABEL)], "reinvocationPolicy": "Never"}
_BAD: tuple[dict[str, Any], ...] = (
    {}, {"mutations": []}, {"reinvocationPolicy": ""}, {"reinvocationPolicy": "Always"}, {"failurePolicy": "Maybe"}, {"matchConstraints": None}, {"matchConstraints": {}}, {"matchConstraints": {"resourceRules": [{**_RULE, "operations": ["DELETE", "CREATE", "GET"]}]}},
    {"matchConstraints": {"resourceRules": [{**_RULE, "operations": ["*"]}, {**_RULE, "operations": ["CONNECT"]}]}}, {"mutations": [{}]}, {"mutations": [{"patchType": "Other"}]}, {"mutations": [{"patchType": "JSONPatch"}]}, {"mutations": [{"patchType": "ApplyConfiguration"}]},
    {"mutations": [{**_a(_LABEL), "jsonPatch": {"expression": "[]"}}]}, {"mutations": [{**_j("[]"), "applyConfiguration": {"expression": "Object{}"}}]}, {"mutations": [_a(""), _j("  ")]}, {"mutations": [_a("1"), _j("1")]}, {"mutations": [_a("Object.spec{}"), _j("[Object{}]")]},
    {"mutations": [_a("Objects{}"), _a("object{}"), _a("Object{metadata: Objects.metadata{}}")]}, {"mutations": [_j("[JSONPatch{op: 1}]"), _j("[JSONPatch{op: 'add', path: 1, from: 2}]")]}, {"mutations": [_a("{'a': 1}"), _a("dyn(1)"), _j("[]"), _j("dyn([])")]},
    {"mutations": [_a("Object{?metadata: 1}")]}, {"mutations": [_a("Object{?metadata: optional.of(1)}")]}, {"mutations": [_a("Object{metadata: Object.metadata{labels: {'a': 1, 'b': '2'}}}")]}, {"mutations": [_a("Object{metadata:}")]}, {"mutations": [_a("Object{'metadata': 1}")]},
    {"mutations": [_a("Object{metadata: nothing}")]}, {"mutations": [_a("object.x")]}, {"mutations": [_a("Object{data: params.data}")]}, {"mutations": [_a("Object{data: variables.x}")]}, {"variables": [{"name": "x", "expression": "Object{}"}]}, {"variables": [{"name": "x", "expression": "jsonpatch.escapeKey('a')"}]},
    {"variables": [{"name": "x", "expression": "'a'"}], "mutations": [_a("Object{data: {'a': variables.x}}")]}, {"variables": [{"name": "x", "expression": "1 +"}]}, {"variables": [{"name": "", "expression": ""}]}, {"matchConditions": [{"name": "a", "expression": "Object{} == 1"}]},
    {"matchConditions": [{"name": "a", "expression": "variables.x"}]}, {"paramKind": {}}, {"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "mutations": [_a("Object{data: params.data}")]}, {"matchConditions": [{"name": f"n{i}", "expression": "true"} for i in range(65)]},
    {"mutations": [_j("[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('a/b')}]"), _j("[JSONPatch{op: 'add', path: jsonpatch.escapeKey(1)}]")]},
)  # fmt: skip
_BAD_BINDINGS: tuple[dict[str, Any], ...] = (
    {}, {"policyName": "P_"}, {"paramRef": {}}, {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}}, {"paramRef": {"name": "a/b", "parameterNotFoundAction": "Some"}}, {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}},
    {"matchResources": {}}, {"matchResources": {"resourceRules": [{**_RULE, "operations": ["DELETE"]}]}}, {"matchResources": {"matchPolicy": "Some"}}, {"matchResources": {"excludeResourceRules": [{**_RULE, "operations": ["DELETE"]}]}}, {"validationActions": ["Deny"]},
)  # fmt: skip


def writes() -> Iterator[Ask]:
    for i, bad in enumerate(_BAD):
        yield Ask("spec", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": f"spec-{i}"}, "spec": {**_GOOD, **bad} if bad else {}})
    for name in ("A_", "p.static.k8s.io", ""):
        yield Ask("name", "POST", f"{POLICIES}?dryRun=All", {"metadata": {"name": name}, "spec": _GOOD})
    for i, bad in enumerate(_BAD_BINDINGS):
        yield Ask("bind", "POST", f"{BINDINGS}?dryRun=All", {"metadata": {"name": f"bind-{i}"}, "spec": {"policyName": "absent", **bad} if bad else {}})
    never = {"resourceRules": [{**_RULE, "resources": ["nothing"]}]}
    at, table = f"{POLICIES}/standing", "application/json;as=Table;v=v1;g=meta.k8s.io"
    yield Ask("made", "POST", POLICIES, {"metadata": {"name": "standing"}, "spec": {**_GOOD, "matchConstraints": never, "paramKind": _PARAMS}})
    yield Ask("bound", "POST", BINDINGS, {"metadata": {"name": "standing"}, "spec": {"policyName": "standing", "paramRef": {"name": "a", "namespace": "n", "parameterNotFoundAction": "Allow"}}})
    for change in ({"reinvocationPolicy": "IfNeeded"}, {"mutations": []}, {"matchConditions": [{"name": "a", "expression": "params.x"}]}, {"paramKind": None}):
        yield Ask("changed", "PATCH", at, {"spec": change}, MERGE)
    for path in (at, BINDINGS):
        yield Ask("table", "GET", path, accept=table)
    yield Ask("status", "GET", f"{at}/status")
    yield Ask("unversioned", "PUT", at, {"metadata": {"name": "standing"}, "spec": _GOOD})
    yield Ask("bound", "PATCH", f"{BINDINGS}/standing", {"spec": {"paramRef": None}}, MERGE)
    yield Ask("deleted", "DELETE", f"{BINDINGS}/standing")
    yield Ask("deleted", "DELETE", at)
