"""ValidatingAdmissionPolicies whose expressions fit what they match, and some that do not."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from minikube_py.client.rest import ResourceRef, RestClient

POLICIES = ResourceRef("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_DRAWN = re.compile(r"\b([A-Z][A-Za-z]+)\d+\b")
"""Upstream's names of types end in digits of the time."""


def _rule(group: str, *resources: str, version: str = "v1") -> dict[str, Any]:
    return {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [*resources]}


def _policy(expression: str, *rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    matched = {"resourceRules": [*(rules or (_rule("apps", "deployments"),))]}
    return {"matchConstraints": matched, "validations": [{"expression": expression}], **spec}


PARAMS = {"apiVersion": "v1", "kind": "ConfigMap"}
VARIABLES = [
    {"name": "few", "expression": "object.spec.replicas"},
    {"name": "wrong", "expression": "object.spec.nothing"},
    {"name": "template", "expression": "object.spec.template"},
    {"name": "names", "expression": "object.spec.template.spec.containers.map(c, c.name)"},
]
SPECS = {
    "fits": _policy("object.spec.replicas > 1 && object.metadata.labels['a'] == 'b'"),
    "undefined": _policy("object.replicas > 1"),
    "two-faults": _policy("object.replicas > 1 && object.spec.replicas > 'a'"),
    "overload": _policy("object.spec + 1 == 2"),
    "several-kinds": _policy(
        "object.spec.replicas > 1", _rule("apps", "deployments", "daemonsets"), _rule("", "pods", "events")
    ),
    "not-bool": _policy("object.spec.replicas > 1 ? true : false", _rule("batch", "jobs")),
    "int-or-string": _policy("object.spec.strategy.rollingUpdate.maxSurge == 1"),
    "quantity": _policy("object.spec.containers.all(c, c.resources.limits['cpu'] == '1')", _rule("", "pods")),
    "time": _policy("object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')"),
    "any": _policy("object.nothing == 1", _rule("*", "deployments")),
    "any-resource": _policy("object.nothing == 1", _rule("apps", "*")),
    "subresource": _policy("object.nothing == 1", _rule("apps", "deployments/scale")),
    "unknown": _policy("object.nothing == 1", _rule("x.io", "things")),
    "old-object": _policy("oldObject.spec.replica == 1"),
    "params": _policy("params.data['a'] == 'b' && params.nothing == 1", paramKind=PARAMS),
    "request": _policy("request.userInfo.username == 'a' && namespaceObject.metadata.name == 'b'"),
    "authorizer": _policy("authorizer.requestResource.check('create').allowed()"),
    "authorizer-path": _policy("authorizer.path('/x').check('get').allowed()"),
    "variables": _policy(
        "variables.few > 'a' || variables.wrong > 1 || variables.template.nothing == 1 || variables.names[0] == 1",
        variables=VARIABLES,
    ),
    "message": {
        **_policy("true"), "validations": [{"expression": "true", "messageExpression": "string(object.nothing)"}],
    },
    "recursive": _policy(
        "object.spec.versions.all(v, v.schema.openAPIV3Schema.properties['a'].items == 1)",
        _rule("apiextensions.k8s.io", "customresourcedefinitions"),
    ),
}  # fmt: skip


def checked(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        for name, spec in SPECS.items():
            await client.create(POLICIES, {"metadata": {"name": name}, "spec": spec})

        async def ask() -> Any:
            found = {p["metadata"]["name"]: p.get("status") for p in await client.list(POLICIES)}
            for status in found.values():
                for warning in ((status or {}).get("typeChecking") or {}).get("expressionWarnings") or ():
                    warning["warning"] = _DRAWN.sub(r"\1", warning["warning"])
            return found

        answers = [await settled(client, ask)]
        fits = {"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}
        await client.patch(POLICIES, "undefined", fits)
        answers.append(await settled(client, ask))
        for name in SPECS:
            await client.delete(POLICIES, name)
        return answers

    return scenario
