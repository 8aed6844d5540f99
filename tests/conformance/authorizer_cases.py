# ruff: noqa: E501
"""Drawn expressions that ask the authorizer, in policies' validations, variables and conditions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from asking import Ask

DRAWN = 60
SEED = 36
BOB = (("Impersonate-User", "bob"), ("Impersonate-Group", "system:authenticated"))
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_VERBS = ("get", "create", "create", "list", "delete", "*", "")
_ACCOUNTS = ("'policies', 'robot'", "'policies', 'robot'", "'default', 'robot'", "'policies', 'A_'", "'a.b', 'robot'", "'', ''")
_SELECTORS = ("spec.nodeName=n", "a=b,c!=d", "a in (b)", "a in (", "=", "")


def setup(namespace: str) -> Iterator[Ask]:
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "resourceNames": ["one"], "verbs": ["*"]},
    ]
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}, {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writers"}
    path = f"{_RBAC}/namespaces/{namespace}"
    yield Ask("role", "POST", f"{path}/roles", {"metadata": {"name": "writers"}, "rules": rules})
    yield Ask("role", "POST", f"{path}/rolebindings", {"metadata": {"name": "writers"}, "roleRef": role, "subjects": subjects})
    yield Ask("role", "POST", f"{path}/rolebindings", {"metadata": {"name": "lost"}, "roleRef": {**role, "name": "absent"}, "subjects": subjects[1:]})


def known(namespace: str) -> tuple[Ask, bytes]:
    return Ask("known", "POST", f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All", {"metadata": {"name": "of-bob"}}, headers=BOB), b'"of-bob"'


def specs() -> dict[str, dict[str, Any]]:
    rng = random.Random(SEED)
    return {f"authorizer-{i}": _spec(rng) for i in range(DRAWN)}


def asks(case: str, namespace: str) -> tuple[Ask, ...]:
    path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    labels = {"labels": {"case": case}}
    named, generated = {"metadata": {"name": f"{case}-x", **labels}}, {"metadata": {"generateName": f"{case}-", **labels}}
    return (Ask(case, "POST", path, named), Ask(case, "POST", path, named, headers=BOB), Ask(case, "POST", path, generated, headers=BOB))


def _spec(rng: random.Random) -> dict[str, Any]:
    # What is evaluated is part of the error. A message cannot show it: the authorizer is not there.
    told = {"expression": "{'x': true}[variables.v]"}
    if rng.random() < 0.1:
        told = {"expression": "variables.v == 'x'", "messageExpression": "variables.v"}
    spec: dict[str, Any] = {"variables": [{"name": "v", "expression": _text(rng)}], "validations": [told]}
    if rng.random() < 0.3:
        spec["matchConditions"] = [{"name": "c", "expression": f"{rng.choice(('', '!'))}{_check(rng)}.allowed()"}]
    if rng.random() < 0.3:
        spec["validations"] = [{"expression": f"{_check(rng)}.allowed() {rng.choice(('||', '&&'))} {_check(rng)}.allowed()"}, told]
    if rng.random() < 0.2:
        spec["failurePolicy"] = "Ignore"
    return spec


def _text(rng: random.Random) -> str:
    drawn = rng.random()
    if drawn < 0.1:
        checks = (f"{_check(rng)}.allowed()" for _ in range(rng.choice((2, 3))))
        return f"string([{', '.join(checks)}])" if rng.random() < 0.3 else f"string({' && '.join(checks)})"
    if drawn < 0.15:
        return rng.choice(("string(authorizer == authorizer)", "string(authorizer.requestResource != authorizer.requestResource)", "string(type(authorizer) == type(1))", "string(authorizer in [authorizer])"))
    check = _check(rng)
    return rng.choice((f"string({check}.allowed())", f"{check}.reason()", f"{check}.reason()", f"string({check}.errored()) + {check}.error()"))


def _check(rng: random.Random) -> str:
    of = "authorizer" if rng.random() < 0.6 else f"authorizer.serviceAccount({rng.choice(_ACCOUNTS)})"
    drawn = rng.random()
    if drawn < 0.2:
        # One role alone allows each: of several, upstream names any.
        return f"{of}.path('{rng.choice(('/apis', '/api', 'api', '/secret', '', ' '))}').check('{rng.choice(_VERBS)}')"
    if drawn < 0.45:
        found = "authorizer.requestResource"
    else:
        group, plural = rng.choice((("", "configmaps"), ("", "configmaps"), ("apps", "deployments"), ("", "pods"), ("", " "), ("x", "CONFIGMAPS")))
        found = f"{of}.group('{group}').resource('{plural}').namespace('{rng.choice(('policies', 'policies', 'default', ''))}')"
    for part, values in (("subresource", ("scale", "status", "")), ("name", ("one", "two", "")), ("fieldSelector", _SELECTORS), ("labelSelector", _SELECTORS), ("namespace", ("policies", ""))):
        if rng.random() < 0.25:
            found += f".{part}('{rng.choice(values)}')"
    return f"{found}.check('{rng.choice(_VERBS)}')"
