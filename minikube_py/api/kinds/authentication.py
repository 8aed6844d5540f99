"""The group `authentication.k8s.io`: self and token reviews.

Source: `pkg/apis/authentication/validation`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.kind import Kind, review

GROUP: Final = "authentication.k8s.io"
_LASTS: Final = "spec.expirationSeconds"
_LEAST_S: Final = 600
_DEFAULT_S: Final = 3600


def _default_token_request(obj: Json) -> None:
    spec = part(obj, "spec")
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = _DEFAULT_S


def _default_token_review(obj: Json) -> None:
    part(obj, "spec")


def validate_token_request(asked: Json) -> list[FieldError]:
    lasts_s = asked["spec"]["expirationSeconds"]
    if lasts_s < _LEAST_S:
        return [invalid_value(_LASTS, lasts_s, "may not specify a duration less than 10 minutes")]
    if lasts_s > 1 << 32:
        return [invalid_value(_LASTS, lasts_s, "may not specify a duration larger than 2^32 seconds")]
    return []


SELFSUBJECTREVIEWS: Final = review(GROUP, "SelfSubjectReview")
TOKENREVIEWS: Final = review(GROUP, "TokenReview", _default_token_review)
TOKENREQUESTS: Final = review(GROUP, "TokenRequest", _default_token_request)
"""The body of `serviceaccounts/token`; not a resource itself."""

KINDS: Final[tuple[Kind, ...]] = (SELFSUBJECTREVIEWS, TOKENREVIEWS)
