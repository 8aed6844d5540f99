"""The last steps before an object is stored: validation and warnings."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache

import orjson

from minikube_py.api import strategy
from minikube_py.api.admission_expressions import Matched, match
from minikube_py.api.admission_policies import Denials, ValidatingPolicy
from minikube_py.api.apply.managed_fields import with_times_of
from minikube_py.api.authorizer_checks import Unanswered, answered
from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    bad_request,
    conflict,
    go_quote,
    invalid,
    invalid_value,
)
from minikube_py.api.kind import Cluster, Kind
from minikube_py.api.registry import Registry
from minikube_py.api.validation.dispatch import validate_create, validate_update


def check(kind: Kind, new: Json, old: Json | None, sub: str, repeated: Sequence[str] = ()) -> list[str]:
    """Warnings for the sender, `repeated` fields first. Changes nothing; the only step that can be slow for a small
    object. Raises: StatusError 422."""
    errors = validate_create(kind, new) if old is None else validate_update(kind, new, old, sub)
    if errors:
        refusal = invalid(kind, (old or new)["metadata"].get("name") or "", errors)
        if old is not None:
            refusal.warnings = (*repeated, *kind.warn_status(new, old))
        raise refusal
    if old is None or sub not in ("", "status"):
        return [*repeated]
    return [*repeated, *(kind.warn_status(new, old) if sub else kind.warn(new, old))]


def check_version(kind: Kind, new: Json, old: Json) -> None:
    """A named version must be the stored one; an empty one means any, where the kind allows it. Called after mutating
    admission, as upstream does. Raises: StatusError 400, 409, 422."""
    metadata, before = new["metadata"], old["metadata"]
    wanted = metadata.get("resourceVersion")
    if wanted == before["resourceVersion"]:
        return
    if wanted and wanted != "0":
        check_number(wanted)
        raise conflict(kind, before["name"])
    if not kind.allow_unconditional_update:
        group_resource = GroupResource(kind.group, kind.plural, kind.plural)
        wrong = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(group_resource, before["name"], [wrong])
    metadata["resourceVersion"] = before["resourceVersion"]


def check_number(version: str) -> None:
    """Raises: StatusError 400 where a resourceVersion is no number of 64 bits."""
    if not (version.isascii() and version.isdigit()):
        raise bad_request(f"strconv.ParseUint: parsing {go_quote(version)}: invalid syntax")
    if len(version.lstrip("0")) > 20 or int(version) >= 1 << 64:
        raise bad_request(f"strconv.ParseUint: parsing {go_quote(version)}: value out of range")


def conclude(kind: Kind, new: Json, old: Json | None, sub: str, cluster: Cluster) -> None:
    """Raises: StatusError 403, with the object's warnings."""
    kind.canonicalize(new)
    if not sub or sub in kind.admit_part:
        try:
            (kind.admit_part[sub][1] if sub else kind.validate_admission)(new, old, cluster)
        except StatusError as error:
            error.warnings = (*error.warnings, *kind.warn(new, old))
            raise
    if old is not None:
        with_times_of(new, old)


def as_stored(kind: Kind, *objects: Json) -> Kind:
    """Converts them in place to the stored form, and returns its kind."""
    conversion = kind.converts
    if conversion is None:
        return kind
    for obj in objects:
        conversion.to_stored(obj)
    return conversion.stored


Steps = Generator[tuple[Kind, Json, Json | None, str, Sequence[str]], list[str], Json]
"""Yields arguments for `check`, receives the warnings, and returns the object to store."""


def steps_of_create(kind: Kind, obj: Json, cluster: Cluster) -> Steps:
    """The steps after admission. Raises: StatusError 403, 422."""
    kind = as_stored(kind, obj)
    strategy.prepare_create(kind, obj, cluster)
    yield kind, obj, None, "", ()
    conclude(kind, obj, None, "", cluster)
    return obj


def steps_of_update(kind: Kind, new: Json, old: Json, sub: str, said: list[str], cluster: Cluster) -> Steps:
    """As `steps_of_create`, for a change. `said` collects the warnings. Raises: StatusError 400, 403, 409, 422."""
    check_version(kind, new, old)
    kind = as_stored(kind, new, old)
    repeated = strategy.without_repeats(new, " after mutating admission happens")
    strategy.settle_update(kind, new, old, sub, cluster)
    said[:] = yield kind, new, old, sub, repeated
    conclude(kind, new, old, sub, cluster)
    return new


def finished(steps: Steps, warnings: list[str]) -> Json:
    try:
        steps.send(warnings)
    except StopIteration as done:
        found: Json = done.value
        return found
    raise AssertionError("an object is checked once")


def settled(steps: Steps) -> Json:
    return finished(steps, check(*next(steps)))


# --- jobs for the cluster state that admission reads
# -------------------------------------------------------------------------------------


def matched(
    kinds: Registry, conditions: Sequence[Json], bindings: Mapping[str, object], fails: bool
) -> Matched | Unanswered:
    found: Matched | Unanswered = answered(bindings, match, conditions, bindings, fails)
    return found


def denials(
    kinds: Registry, spec: bytes, bindings: Mapping[str, object], namespace: Json | None
) -> Denials | Unanswered:
    found: Denials | Unanswered = answered(bindings, _policy(spec).denials, bindings, namespace)
    return found


@lru_cache(64)
def _policy(spec: bytes) -> ValidatingPolicy:
    return ValidatingPolicy(orjson.loads(spec))
