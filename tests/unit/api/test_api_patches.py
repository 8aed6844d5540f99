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


@pytest.mark.parametrize(("version", "subjects", "is_read"), [
    ("v1beta1", [{"kind": "User", "name": "*", "apiGroup": "rbac.authorization.k8s.io"}], True),
    ("v1alpha1", [], True),
    ("v1alpha1", [{"kind": "User", "name": "*", "apiVersion": "rbac.authorization.k8s.io/v1alpha1"}], False),
])  # fmt: skip
def test_subjects_that_would_be_misread_are_refused(version: str, subjects: list[Any], is_read: bool) -> None:
    """In v1alpha1 each names its group otherwise, and `*` are all who are authenticated."""
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "Role", "name": "r"}
    original = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "b"}, "roleRef": role}
    patch = json.dumps({"apiVersion": f"{group}/{version}", "kind": "RoleBinding", "subjects": subjects}).encode()
    if is_read:
        assert apply_patch(MERGE_PATCH, ROLEBINDINGS, original, patch)["apiVersion"] == f"{group}/v1"
        return
    with pytest.raises(StatusError, match="does not match the expected API version"):
        apply_patch(MERGE_PATCH, ROLEBINDINGS, original, patch)
