"""Versions of kinds that nobody serves any more, which what a patch makes may still say.

Upstream reads what has them by their fields. Those are the present ones but for four: a selector of budgets that is
empty, which selected nothing; subjects of rbac `v1alpha1`, which say a version in place of a group; `rollbackTo` of
Deployments, now an annotation; and `templateGeneration` of DaemonSets, which the server alone sets.

Source: `pkg/apis/policy/v1beta1/conversion.go`, `pkg/apis/rbac/v1alpha1/{conversion,defaults}.go`,
`pkg/apis/apps/v1/conversion.go`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.document import object_of
from minikube_py.api.errors import Json
from minikube_py.api.kinds.apps.common import ROLLBACK_TO
from minikube_py.api.typed import DecodeError
from minikube_py.api.values import INT64_MAX, INT64_MIN, json_type

RIGHTS: Final = "rbac.authorization.k8s.io"

_RIGHTS: Final = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_WORKLOADS: Final = ("Deployment", "DaemonSet", "ReplicaSet")
_BUDGET: Final = "PodDisruptionBudget"
_KINDS: Final = {
    "apps/v1beta1": ("Deployment", "StatefulSet"), "apps/v1beta2": (*_WORKLOADS, "StatefulSet"),
    "extensions/v1beta1": _WORKLOADS, "batch/v1beta1": ("CronJob",), "policy/v1beta1": (_BUDGET,),
    f"{RIGHTS}/v1beta1": _RIGHTS, f"{RIGHTS}/v1alpha1": _RIGHTS,
}  # fmt: skip
_WITH_FIELDS: Final = {
    "apps/v1beta1": {"Deployment": "rollbackTo"},
    "extensions/v1beta1": {"Deployment": "rollbackTo", "DaemonSet": "templateGeneration"},
}  # fmt: skip
"""Fields of a `spec` that only these had."""
_NO_POD: Final = {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "Exists"}


def was_served(api_version: str, kind: str) -> bool:
    return kind in _KINDS.get(api_version, ())


def in_present_words(value: Json, api_version: str) -> tuple[Json, list[str]] | None:
    """The object as the present `api_version` says it, and which of its fields the former one does not have; None if it
    does not say a former one. Raises: DecodeError."""
    said, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(said, str) or not isinstance(kind, str) or not was_served(said, kind):
        return None
    value, unknown = {**value, "apiVersion": api_version}, list[str]()
    spec = value.get("spec")
    if said in _WITH_FIELDS and isinstance(spec, dict):
        value["spec"] = {name: each for name, each in spec.items() if name != _WITH_FIELDS[said].get(kind)}
        if kind == "DaemonSet":
            _int64(spec.get("templateGeneration"), "DaemonSetSpec.spec.templateGeneration")
        elif kind == "Deployment":
            value["metadata"] = _rolled_back(object_of(value.get("metadata")), spec.get("rollbackTo"), unknown)
    if kind == _BUDGET and isinstance(selector := object_of(spec).get("selector"), dict):
        value["spec"] = {**value["spec"], "selector": _selector(selector)}
    if said.endswith("/v1alpha1") and isinstance(subjects := value.get("subjects"), list):
        value["subjects"] = [_subject(at, each, unknown) if isinstance(each, dict) else each
                             for at, each in enumerate(subjects)]  # fmt: skip
    return value, unknown


def _rolled_back(metadata: Json, to: Any, unknown: list[str]) -> Json:
    """Its annotations say what `spec.rollbackTo` said. Raises: DecodeError."""
    annotations = {**object_of(metadata.get("annotations"))}
    annotations.pop(ROLLBACK_TO, None)
    if to is not None:
        if not isinstance(to, dict):
            raise _wrong(to, "DeploymentSpec.spec.rollbackTo of type v1beta1.RollbackConfig")
        revision = _int64(to.get("revision"), "RollbackConfig.spec.rollbackTo.revision")
        annotations[ROLLBACK_TO] = str(revision)
        unknown += [f'unknown field "spec.rollbackTo.{name}"' for name in to if name != "revision"]
    return {**metadata, "annotations": annotations} if annotations or "annotations" in metadata else metadata


def _int64(value: Any, field: str) -> int:
    if value is not None and (type(value) is not int or not INT64_MIN <= value <= INT64_MAX):
        raise _wrong(value, f"{field} of type int64")
    return value or 0


def _wrong(value: Any, field: str) -> DecodeError:
    shown = f"number {value}" if isinstance(value, int | float) and not isinstance(value, bool) else json_type(value)
    return DecodeError(f"json: cannot unmarshal {shown} into Go struct field {field}")


def _subject(at: int, subject: Json, unknown: list[str]) -> Json:
    kind, version = subject.get("kind"), subject.get("apiVersion")
    if "apiGroup" in subject:
        unknown.append(f'unknown field "subjects[{at}].apiGroup"')
    if version is not None and not isinstance(version, str):
        raise _wrong(version, "Subject.subjects.apiVersion of type string")
    group = "" if kind == "ServiceAccount" else RIGHTS
    if kind not in ("User", "Group", "ServiceAccount"):
        parts = (version or "").split("/")
        group = parts[0] if len(parts) == 2 else ""
    found = {name: each for name, each in subject.items() if name not in ("apiVersion", "apiGroup")}
    if kind == "User" and subject.get("name") == "*":
        found |= {"kind": "Group", "name": "system:authenticated"}
    return {**found, "apiGroup": group}


def _selector(selector: Json) -> Json:
    terms = selector.get("matchExpressions") or []
    if not isinstance(terms, list):
        return selector
    kept = [each for each in terms if object_of(each).get("key") != _NO_POD["key"]]
    if not terms and not selector.get("matchLabels"):
        kept = [dict(_NO_POD)]
    rest = {name: each for name, each in selector.items() if name != "matchExpressions"}
    return {**rest, "matchExpressions": kept} if kept else rest
