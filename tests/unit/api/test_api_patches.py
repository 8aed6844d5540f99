"""Patches that upstream's API server was asked to apply: the same object, or the same refusal."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from api_cases import PATCHES

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.apps import DEPLOYMENTS
from minikube_py.api.kinds.core import CONFIGMAPS, REPLICATIONCONTROLLERS, SERVICES
from minikube_py.api.kinds.policy import PODDISRUPTIONBUDGETS
from minikube_py.api.kinds.rbac import ROLEBINDINGS
from minikube_py.api.patch import MERGE_PATCH, apply_patch
from minikube_py.apiserver.options import check_patch_type

CONFORMANCE = Path(__file__).parents[2] / "conformance"
RECORDED: dict[str, Any] = json.loads((CONFORMANCE / "data" / "api_patches.json").read_text())
RESOURCES = {"configmap": CONFIGMAPS, "rc": REPLICATIONCONTROLLERS, "service": SERVICES}

ADDED = frozenset((
    "protocol", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "resources", "targetPort",
    "restartPolicy", "dnsPolicy", "schedulerName", "securityContext", "terminationGracePeriodSeconds", "metadata",
    "defaultMode",
))  # fmt: skip
"""What upstream's defaulting adds to what a patch brought."""


def difference(theirs: Any, ours: Any, path: str = "") -> str:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {*theirs, *ours} - {"managedFields", "generation", "status"}:
            if name == "targetPort" and ours.get(name) == 0:
                continue  # Set by defaulting.
            if name not in theirs:
                return f"{path}.{name} is only in ours: {ours[name]!r}"
            if name not in ours:
                if name not in ADDED:
                    return f"{path}.{name} is only in theirs: {theirs[name]!r}"
                continue
            if found := difference(theirs[name], ours[name], f"{path}.{name}"):
                return found
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"{path}: {theirs!r} != {ours!r}"
        found = (difference(t, o, f"{path}[{i}]") for i, (t, o) in enumerate(zip(theirs, ours, strict=True)))
        return next(filter(None, found), "")
    return "" if theirs == ours else f"{path}: {theirs!r} != {ours!r}"


def patch_bytes(case: dict[str, Any]) -> bytes:
    if case["patch"] is not None:
        return str(case["patch"]).encode()
    return next(str(made["patch"]) for made in PATCHES if made["name"] == case["name"]).encode()


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: str(case["name"]))
def test_a_patch_is_applied_as_by_the_original(case: dict[str, Any]) -> None:
    original = RECORDED["objects"][case["object"]]
    before = copy.deepcopy(original)
    warnings: list[str] = []
    expected_code = 400 if case["code"] == 500 else case["code"]
    try:
        resource = RESOURCES[case["object"]]
        found = apply_patch(
            case["content_type"], resource, original, patch_bytes(case), case["validation"], warnings=warnings
        )
    except StatusError as error:
        assert (error.code, error.message) == (expected_code, case.get("message"))
        assert case["code"] == 500 or error.reason == case["reason"]
        return
    finally:
        assert original == before, "the original object was changed"
    if "is invalid: " in case.get("message", "") and "patch: Invalid value" not in case["message"]:
        return  # The patch applies, but what it makes is not valid.
    assert expected_code == 200, f"upstream answers {case.get('message')!r}"
    assert difference(case["answer"], found) == ""
    assert [f'299 - "{warning}"' for warning in warnings] == [
        text.replace('\\"', '"') for text in case.get("warnings", [])
    ]


@pytest.mark.parametrize("content_type", [None, "", ";charset=utf-8", " ", "application/json"])
def test_a_patch_of_no_known_media_type_is_refused(content_type: str | None) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(content_type, CONFIGMAPS, {"metadata": {"name": "a"}}, b"{}")
    assert refused.value.code == 415
    with pytest.raises(StatusError) as refused:
        check_patch_type(content_type or "")
    assert (refused.value.code, refused.value.message) == (415, "415: Unsupported Media Type")


SPEC = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {}}}


@pytest.mark.parametrize(("version", "kind", "wrong"), [
    ("apps/v1beta1", "Deployment", ""),
    ("extensions/v1beta1", "Deployment", ""),
    ("apps/v1beta1", "StatefulSet", "no kind"),
    ("apps/v1alpha1", "Deployment", "no kind"),
    (["apps/v1beta1"], "Deployment", "cannot unmarshal array"),
])  # fmt: skip
def test_a_patch_may_say_a_version_that_nobody_serves_any_more(version: Any, kind: str, wrong: str) -> None:
    original = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": SPEC}
    patch = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"labels": {"x": "y"}}}).encode()
    if wrong:
        with pytest.raises(StatusError, match=wrong):
            apply_patch(MERGE_PATCH, DEPLOYMENTS, original, patch)
        return
    found = apply_patch(MERGE_PATCH, DEPLOYMENTS, original, patch)
    assert (found["apiVersion"], found["metadata"]["labels"]) == ("apps/v1", {"x": "y"})


EMPTY = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
OTHER = {"key": "a", "operator": "Exists"}


@pytest.mark.parametrize(("selector", "wanted"), [
    (None, None),
    ({}, {"matchExpressions": [{"key": EMPTY, "operator": "Exists"}]}),
    ({"matchLabels": {}}, {"matchExpressions": [{"key": EMPTY, "operator": "Exists"}]}),
    ({"matchExpressions": [{"key": EMPTY, "operator": "DoesNotExist"}]}, {}),
    (
        {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": EMPTY, "operator": "Exists"}]},
        {"matchLabels": {"a": "b"}},
    ),
    ({"matchExpressions": [OTHER]}, {"matchExpressions": [OTHER]}),
])  # fmt: skip
def test_a_budget_of_a_former_version_selects_what_it_selected(selector: Any, wanted: Any) -> None:
    """Source: upstream's `pkg/apis/policy/v1beta1/conversion.go`."""
    original = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {}}
    given = {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "spec": {"selector": selector}}
    found = apply_patch(MERGE_PATCH, PODDISRUPTIONBUDGETS, original, json.dumps(given).encode())
    assert (found["apiVersion"], found["spec"].get("selector")) == ("policy/v1", wanted)


ROLLBACK = "deprecated.deployment.rollback.to"
UNKNOWN = 'unknown field "spec.rollbackTo.x"'


@pytest.mark.parametrize(("version", "spec", "wanted", "warned"), [
    ("apps/v1beta1", {"rollbackTo": {"revision": 3}}, "3", []),
    ("extensions/v1beta1", {"rollbackTo": {"revision": -1, "x": 1}}, "-1", [UNKNOWN]),
    ("extensions/v1beta1", {"rollbackTo": {}}, "0", []),
    ("extensions/v1beta1", {}, None, []),
    ("apps/v1beta2", {"rollbackTo": {"revision": 3}}, "2", ['unknown field "spec.rollbackTo"']),
    ("apps/v1beta1", {"rollbackTo": 7}, "number 7 into Go struct field DeploymentSpec.spec.rollbackTo", []),
    ("apps/v1beta1", {"rollbackTo": {"revision": "3"}}, "string into Go struct field RollbackConfig", []),
])  # fmt: skip
def test_a_rollback_of_a_former_version_is_an_annotation(
    version: str, spec: Any, wanted: str | None, warned: list[str]
) -> None:
    """Answers of kube-apiserver 1.36 (conformance's small_cases ask both)."""
    metadata = {"name": "d", "annotations": {ROLLBACK: "2"}}
    original = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": SPEC}
    patch, warnings = json.dumps({"apiVersion": version, "spec": spec}).encode(), list[str]()
    if wanted and len(wanted) > 9:
        with pytest.raises(StatusError, match=wanted):
            apply_patch(MERGE_PATCH, DEPLOYMENTS, original, patch)
        return
    found = apply_patch(MERGE_PATCH, DEPLOYMENTS, original, patch, warnings=warnings)
    assert found["metadata"].get("annotations", {}).get(ROLLBACK) == wanted
    assert ("rollbackTo" in found["spec"], warnings) == (False, warned)


RIGHTS = "rbac.authorization.k8s.io"


@pytest.mark.parametrize(("version", "given", "wanted"), [
    ("v1beta1", ("User", "*", {"apiGroup": RIGHTS}), ("User", "*", RIGHTS)),
    ("v1alpha1", ("User", "*", {"apiVersion": f"{RIGHTS}/v1alpha1"}), ("Group", "system:authenticated", RIGHTS)),
    ("v1alpha1", ("User", "ann", {}), ("User", "ann", RIGHTS)),
    ("v1alpha1", ("Group", "*", {"apiVersion": "x"}), ("Group", "*", RIGHTS)),
    ("v1alpha1", ("ServiceAccount", "a", {"namespace": "n"}), ("ServiceAccount", "a", "")),
    ("v1alpha1", ("Odd", "o", {"apiVersion": "odd.example.com/v1"}), ("Odd", "o", "odd.example.com")),
])  # fmt: skip
def test_subjects_of_a_former_version_name_their_group_otherwise(
    version: str, given: tuple[str, str, Any], wanted: tuple[str, str, str]
) -> None:
    """Source: upstream's `pkg/apis/rbac/v1alpha1/conversion.go`."""
    role = {"apiGroup": RIGHTS, "kind": "Role", "name": "r"}
    original = {"apiVersion": f"{RIGHTS}/v1", "kind": "RoleBinding", "metadata": {"name": "b"}, "roleRef": role}
    kind, name, more = given
    patch = {"apiVersion": f"{RIGHTS}/{version}", "subjects": [{"kind": kind, "name": name, **more}]}
    found = apply_patch(MERGE_PATCH, ROLEBINDINGS, original, json.dumps(patch).encode())
    (subject,) = found["subjects"]
    assert (subject["kind"], subject["name"], subject.get("apiGroup") or "") == wanted
    assert "apiVersion" not in subject
