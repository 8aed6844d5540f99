"""The last steps before an object is stored: whether it may be, and what is said to its sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import orjson

from minikube_py.api.admission_expressions import Matched, match
from minikube_py.api.admission_policies import Decision, ValidatingPolicy
from minikube_py.api.apply.managed_fields import with_times_of
from minikube_py.api.errors import Json, StatusError, invalid
from minikube_py.api.kind import Cluster, Kind
from minikube_py.api.registry import Registry
from minikube_py.api.validation.dispatch import validate_create, validate_update


def check(kind: Kind, new: Json, old: Json | None, sub: str, repeated: Sequence[str] = ()) -> list[str]:
    """Warnings for the sender, of what was `repeated` first. Changes nothing, and is the one step that may be long
    for a small object. Raises: StatusError 422."""
    errors = validate_create(kind, new) if old is None else validate_update(kind, new, old, sub)
    if errors:
        refusal = invalid(kind, (old or new)["metadata"].get("name") or "", errors)
        if old is not None:
            refusal.warnings = (*repeated, *kind.warn_status(new, old))
        raise refusal
    if old is None or sub not in ("", "status"):
        return [*repeated]
    return [*repeated, *(kind.warn_status(new, old) if sub else kind.warn(new, old))]


def conclude(kind: Kind, new: Json, old: Json | None, sub: str, cluster: Cluster) -> None:
    """Raises: StatusError 403, with what is said of the object."""
    kind.canonicalize(new)
    if not sub:
        try:
            kind.validate_admission(new, old, cluster)
        except StatusError as error:
            error.warnings = (*error.warnings, *kind.warn(new, old))
            raise
    if old is not None:
        with_times_of(new, old)


# --- jobs, of what admission asks -------------------------------------------------------------------------------------


def matched(kinds: Registry, conditions: Sequence[Json], bindings: Mapping[str, object], fails: bool) -> Matched:
    return match(conditions, bindings, fails)


def denials(
    kinds: Registry, spec: bytes, bindings: Mapping[str, object], namespace: Json | None
) -> tuple[list[Decision], list[str]]:
    return _policy(spec).denials(bindings, namespace)


@lru_cache(64)
def _policy(spec: bytes) -> ValidatingPolicy:
    return ValidatingPolicy(orjson.loads(spec))
