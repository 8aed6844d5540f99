# ruff: noqa: E501
"""Policies that mutate, for one version of a custom resource without conversion, and writes in the other."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import Core

from minikube_py.client.transport import JSON, MERGE_PATCH

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LABELLED = {"mutated-panda": "true"}
MUTATIONS: dict[str, dict[str, Any]] = {
    "applied": {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'mutated-panda': 'true'}}}"},
    },
    "patched": {
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'mutated-panda': 'true'}}]"},
    },
}


def definition() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "pandas", "kind": "Panda"}
    spec = {"group": "aw.com", "scope": "Cluster", "names": names, "versions": versions}
    return {"metadata": {"name": "pandas.aw.com"}, "spec": spec}


@pytest.mark.parametrize("mutation", MUTATIONS)
async def test_a_policy_for_one_version_changes_writes_in_the_other(core: Core, mutation: str) -> None:
    await core.done("POST", DEFINITIONS, definition())
    rule = {"operations": ["*"], "apiGroups": ["aw.com"], "apiVersions": ["v1"], "resources": ["pandas"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "mutations": [MUTATIONS[mutation]], "reinvocationPolicy": "IfNeeded"}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", {"metadata": {"name": "p"}, "spec": {"policyName": "p"}})
    for version in ("v1", "v2"):
        at, said = f"/apis/aw.com/{version}/pandas", {"apiVersion": f"aw.com/{version}", "kind": "Panda"}
        asks = (
            ("POST", at, {**said, "metadata": {"name": version}}, JSON, 201),
            ("PATCH", f"{at}/{version}", {"spec": {"x": 1}, "metadata": {"labels": None}}, MERGE_PATCH, 200),
            ("PATCH", f"{at}/ap-{version}?fieldManager=x", {**said, "metadata": {"name": f"ap-{version}"}}, "application/apply-patch+yaml", 201),
        )
        for method, path, body, media, code in asks:
            found = await core.ask(method, path, body, content_type=media)
            assert (found[0], found[1].get("apiVersion"), found[1].get("metadata", {}).get("labels")) == (
                code, said["apiVersion"], LABELLED,
            ), found  # fmt: skip
