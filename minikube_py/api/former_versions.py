"""Versions of kinds that nobody serves any more, which what a patch makes may still say.

Upstream reads what has them by their fields. Those are the present ones but for three: a selector of budgets that is
empty, which selected nothing; subjects of rbac `v1alpha1`, which name their group otherwise, and are refused here; and
`rollbackTo` and `templateGeneration` of workloads, which are unknown fields here.

Source: `pkg/apis/policy/v1beta1/conversion.go`, `pkg/apis/rbac/v1alpha1/conversion.go`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.document import object_of

_RIGHTS: Final = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_WORKLOADS: Final = ("Deployment", "DaemonSet", "ReplicaSet")
_BUDGET: Final = "PodDisruptionBudget"
_KINDS: Final = {
    "apps/v1beta1": ("Deployment", "StatefulSet"), "apps/v1beta2": (*_WORKLOADS, "StatefulSet"),
    "extensions/v1beta1": _WORKLOADS, "batch/v1beta1": ("CronJob",), "policy/v1beta1": (_BUDGET,),
    "rbac.authorization.k8s.io/v1beta1": _RIGHTS, "rbac.authorization.k8s.io/v1alpha1": _RIGHTS,
}  # fmt: skip
_NO_POD: Final = {"key": "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match", "operator": "Exists"}


def was_served(api_version: str, kind: str) -> bool:
    return kind in _KINDS.get(api_version, ())


def in_present_words(value: dict[str, Any], api_version: str) -> dict[str, Any] | None:
    """The object as the present `api_version` says it; None if it does not say a former one, or has subjects that the
    present one would misread."""
    said, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(said, str) or not isinstance(kind, str) or not was_served(said, kind):
        return None
    if said.endswith("/v1alpha1") and value.get("subjects"):
        return None
    value = {**value, "apiVersion": api_version}
    selector = object_of(value.get("spec")).get("selector")
    if kind == _BUDGET and isinstance(selector, dict):
        value["spec"] = {**value["spec"], "selector": _selector(selector)}
    return value


def _selector(selector: dict[str, Any]) -> dict[str, Any]:
    terms = selector.get("matchExpressions") or []
    if not isinstance(terms, list):
        return selector
    kept = [each for each in terms if object_of(each).get("key") != _NO_POD["key"]]
    if not terms and not selector.get("matchLabels"):
        kept = [dict(_NO_POD)]
    rest = {name: each for name, each in selector.items() if name != "matchExpressions"}
    return {**rest, "matchExpressions": kept} if kept else rest
