"""The group `authorization.k8s.io`: questions about what somebody may do."""

from __future__ import annotations

from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.kind import Kind, review
from minikube_py.api.validation.affinity import validate_label_selector


def _default_review(obj: Json) -> None:
    part(obj, "spec")


def validate_self_subject_access_review(review: Json) -> list[FieldError]:
    spec = review.get("spec") or {}
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid_value("spec.nonResourceAttributes", shown, detail)]
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid_value("spec.resourceAttributes", None, detail)]
    selector = (resource or {}).get("labelSelector") or {}
    if selector.get("requirements"):
        expressions = {"matchExpressions": selector["requirements"]}
        at = "spec.resourceAttributes.labelSelector"
        return [
            error._replace(field=error.field.replace("matchExpressions", "requirements"))
            for error in validate_label_selector(expressions, at)
        ]
    return []


SELFSUBJECTACCESSREVIEWS: Final = review(
    "authorization.k8s.io", "SelfSubjectAccessReview", _default_review, validate_self_subject_access_review
)
SELFSUBJECTRULESREVIEWS: Final = review("authorization.k8s.io", "SelfSubjectRulesReview", _default_review)

KINDS: Final[tuple[Kind, ...]] = (SELFSUBJECTACCESSREVIEWS, SELFSUBJECTRULESREVIEWS)
