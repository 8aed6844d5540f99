"""What policies judge, and what who writes a policy's status can change."""

from __future__ import annotations

from typing import Any

import pytest
from api_core import JSON, MERGE, Core

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULES = {
    "resourceRules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    ]
}
EXEMPT = {
    "validatingadmissionpolicies": {"spec": {"matchConstraints": RULES, "validations": [{"expression": "true"}]}},
    "validatingadmissionpolicybindings": {"spec": {"policyName": "other", "validationActions": ["Deny"]}},
    "mutatingadmissionpolicies": {
        "spec": {
            "matchConstraints": RULES,
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
            ],
            "reinvocationPolicy": "Never",
        }
    },
    "mutatingadmissionpolicybindings": {"spec": {"policyName": "other"}},
}


@pytest.mark.parametrize("kind", ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])
async def test_a_policy_judges_who_installs_webhooks(core: Core, kind: str) -> None:
    """Only policies and their bindings are exempt (generic/plugin.go, admissionResources)."""
    await core.done("POST", f"{ADMISSION}/{kind}", {"metadata": {"name": "before"}})
    spec = {"matchConstraints": RULES, "validations": [{"expression": "false"}]}
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await core.done("POST", f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    label = {"metadata": {"labels": {"a": "b"}}}
    for method, path, body in (
        ("POST", kind, {"metadata": {"name": "after"}}),
        ("PATCH", f"{kind}/before", label),
        ("DELETE", f"{kind}/before", None),
    ):
        form = MERGE if method == "PATCH" else JSON
        status, answer = await core.ask(method, f"{ADMISSION}/{path}", body, content_type=form)
        assert status == 422 and "ValidatingAdmissionPolicy 'p' with binding 'b' denied request" in answer["message"]
    for exempt, obj in EXEMPT.items():
        await core.done("POST", f"{ADMISSION}/{exempt}", {"metadata": {"name": "other"}, **obj})
        await core.done("DELETE", f"{ADMISSION}/{exempt}/other")


async def test_a_mutating_policy_changes_webhooks_that_are_installed(core: Core) -> None:
    change = "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}]
    spec = {"matchConstraints": RULES, "mutations": mutations, "reinvocationPolicy": "Never"}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await core.done("POST", f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    made = await core.done("POST", f"{ADMISSION}/mutatingwebhookconfigurations", {"metadata": {"name": "a"}})
    assert made["metadata"]["labels"] == {"seen": "yes"}


async def test_who_writes_the_status_of_a_policy_writes_no_metadata(core: Core) -> None:
    """Source: metav1.ResetObjectMetaForStatus."""
    spec = {"matchConstraints": RULES, "validations": [{"expression": "true"}]}
    policy = {"metadata": {"name": "p"}, "spec": spec}
    made = await core.done("POST", f"{ADMISSION}/validatingadmissionpolicies", policy)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}
    taken: dict[str, Any] = {
        "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"], "ownerReferences": [owner],
    }  # fmt: skip
    path = f"{ADMISSION}/validatingadmissionpolicies/p/status"
    body = {"metadata": taken, "status": {"observedGeneration": 7}}
    found = await core.done("PATCH", path, body, content_type=MERGE)
    assert found["status"]["observedGeneration"] == 7
    assert not taken.keys() & found["metadata"].keys() and found["metadata"]["uid"] == made["metadata"]["uid"]
