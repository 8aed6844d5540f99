"""The group `authorization.k8s.io`: access reviews.

Source: `pkg/apis/authorization/validation`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, required
from minikube_py.api.kind import Kind, review
from minikube_py.api.validation.affinity import validate_label_selector

GROUP: Final = "authorization.k8s.io"
_OF_RESOURCE: Final = "spec.resourceAttributes"
_OF_PATH: Final = "spec.nonResourceAttributes"
_BOTH: Final = "cannot be specified in combination with resourceAttributes"
_NEITHER: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def _default_review(obj: Json) -> None:
    part(obj, "spec")


def _validate_attributes(spec: Json, of_user: bool) -> list[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errors: list[FieldError] = []
    if resource is not None and path is not None:
        errors.append(invalid_value(_OF_PATH, _shown(path), _BOTH))
    if resource is None and path is None:
        errors.append(invalid_value(_OF_RESOURCE, None, _NEITHER))
    if of_user and not spec.get("user") and not spec.get("groups"):
        errors.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    for field in ("fieldSelector", "labelSelector"):
        errors += _validate_selector((resource or {}).get(field), f"{_OF_RESOURCE}.{field}", field == "labelSelector")
    return errors


def _shown(path: Json) -> Json:
    """As upstream prints its internal type."""
    return {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}


def _validate_selector(selector: Json | None, path: str, of_labels: bool) -> list[FieldError]:
    if selector is None:
        return []
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
    errors: list[FieldError] = []
    if raw and requirements:
        detail = "may not specified at the same time as requirements"
        errors.append(invalid_value(f"{path}.rawSelector", raw, detail))
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        errors.append(required(f"{path}.requirements", detail))
    if of_labels:
        found = validate_label_selector({"matchExpressions": requirements}, path)
        # Clients may use operators unknown to the server.
        known = (error for error in found if not error.field.endswith(".operator"))
        return errors + [
            error._replace(field=error.field.replace("matchExpressions", "requirements")) for error in known
        ]
    for i, requirement in enumerate(requirements):
        errors += _validate_field_requirement(requirement, f"{path}.requirements[{i}]")
    return errors


def _validate_field_requirement(requirement: Json, path: str) -> list[FieldError]:
    errors = [] if requirement.get("key") else [required(f"{path}.key", "must be specified")]
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn") and not values:
        errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    if operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errors.append(forbidden_value(f"{path}.values", detail))
    return errors


def _validate_empty(metadata: Json, but: tuple[str, ...], detail: str) -> list[FieldError]:
    told = {key: value for key, value in metadata.items() if key not in ("managedFields", *but) and value}
    return [invalid_value("metadata", {key: value for key, value in metadata.items() if value}, detail)] if told else []


def validate_self_subject_access_review(review: Json) -> list[FieldError]:
    errors = _validate_attributes(review.get("spec") or {}, False)
    return errors + _validate_empty(review["metadata"], (), "must be empty")


def validate_subject_access_review(review: Json) -> list[FieldError]:
    errors = _validate_attributes(review.get("spec") or {}, True)
    return errors + _validate_empty(review["metadata"], (), "must be empty")


def validate_local_subject_access_review(review: Json) -> list[FieldError]:
    spec, metadata = review.get("spec") or {}, review["metadata"]
    errors = _validate_attributes(spec, True)
    errors += _validate_empty(metadata, ("namespace",), "must be empty except for namespace")
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and (resource.get("namespace") or "") != (metadata.get("namespace") or ""):
        detail = "must match metadata.namespace"
        errors.append(invalid_value(f"{_OF_RESOURCE}.namespace", resource.get("namespace") or "", detail))
    if path is not None:
        errors.append(invalid_value(_OF_PATH, _shown(path), "disallowed on this kind of request"))
    return errors


LOCALSUBJECTACCESSREVIEWS: Final = review(
    GROUP, "LocalSubjectAccessReview", _default_review, validate_local_subject_access_review, True
)
SELFSUBJECTACCESSREVIEWS: Final = review(
    GROUP, "SelfSubjectAccessReview", _default_review, validate_self_subject_access_review
)
SELFSUBJECTRULESREVIEWS: Final = review(GROUP, "SelfSubjectRulesReview", _default_review)
SUBJECTACCESSREVIEWS: Final = review(GROUP, "SubjectAccessReview", _default_review, validate_subject_access_review)

KINDS: Final[tuple[Kind, ...]] = (
    LOCALSUBJECTACCESSREVIEWS, SELFSUBJECTACCESSREVIEWS, SELFSUBJECTRULESREVIEWS, SUBJECTACCESSREVIEWS,
)  # fmt: skip
