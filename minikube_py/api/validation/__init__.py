"""Whether an object may be stored: `validate_create` and `validate_update`, uniform over the kinds.

Fields, wordings and their order are those of the original (`pkg/apis/*/validation`, `registry/rest`). Objects have
gone through decode, defaults and strategy, so that types are right and what is missing means empty.
"""

from __future__ import annotations

from minikube_py.api.validation.dispatch import validate_binding, validate_create, validate_update
from minikube_py.api.validation.kinds import validate_scale

__all__ = ["validate_binding", "validate_create", "validate_scale", "validate_update"]
