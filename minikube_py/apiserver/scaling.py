"""The steps of a write to `/scale`, for a small object here and for a large one in a worker process.

An admission plugin sees the Scale between the two halves. What a first half knows of a large object's owners is not
handed to the second: it takes longer to pass on than to find again.
"""

from __future__ import annotations

from typing import NamedTuple

from minikube_py.api import strategy
from minikube_py.api.apply.managed_fields import track, with_owners
from minikube_py.api.errors import GroupResource, Json, conflict, invalid
from minikube_py.api.kind import Kind
from minikube_py.api.patch import apply_patch, is_apply
from minikube_py.api.registry import Registry
from minikube_py.api.scale import SCALES, owned_scale_of, require_replicas, scale_of, validate_scale, with_scale
from minikube_py.apiserver.preparing import (
    Body,
    Made,
    Seen,
    applied,
    as_served,
    check_name,
    check_uid,
    decoded,
    kind_of,
    patch_of,
    same,
    settled_here,
    stored,
)


class Begun(NamedTuple):
    """The Scale before and after the write, each with its owners. `warnings`: of its body."""

    before: Json
    scale: Json
    warnings: list[str]


class Ended(NamedTuple):
    """`before`, `after`: the Scales that validating admission sees."""

    made: Made
    before: Json
    after: Json


def held_by(kind: Kind, asked: Body, old: Json) -> Json:
    """The object with the owners that its first apply finds."""
    return with_owners(kind, old, asked.sender) if is_apply(asked.content_type) else old


def begun(kind: Kind, asked: Body, given: Json | None, held: Json) -> Begun:
    """`given`: the body of a PUT. Raises: StatusError 400, 409, 413, 415, 422."""
    before, warnings = owned_scale_of(kind, held), list[str]()
    if given is None and is_apply(asked.content_type):
        return Begun(before, applied(SCALES, before, patch_of(asked), "scale", warnings), warnings)
    if given is not None:
        check_uid(kind, given["metadata"], held)
        scale = {**given, "metadata": dict(given["metadata"])}
    else:
        patch = asked.content_type, kind, before, asked.body, asked.field_validation
        scale = apply_patch(*patch, subresource=kind.subresource("scale"), warnings=warnings)
        check_name(scale["metadata"], asked.name)
    track(SCALES, "scale", before, scale, asked.sender)
    return Begun(before, scale, warnings)


def scaled(kind: Kind, name: str, scale: Json, held: Json, old: Json) -> Json:
    """The object with that Scale, to be finished as an update. Raises: StatusError 409, 422."""
    # A custom resource is validated with the replicas in it, by its own rules.
    if kind.codec is None and (errors := validate_scale(scale)):
        raise invalid(SCALES, name, errors)
    uid, found = scale["metadata"].get("uid"), old["metadata"]["uid"]
    if uid and uid != found and not kind.definition:
        part = f"{kind.plural}/scale"
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
        raise conflict(GroupResource(kind.group, part, part), name, why)
    return with_scale(kind, held, scale)


def shown_scale(kind: Kind, value: bytes, checks: bool) -> Json:
    """`checks`: raises StatusError 500 if the object lacks its replicas."""
    obj = decoded(kind, as_served(kind, value))
    if checks:
        require_replicas(kind, obj)
    return scale_of(kind, obj)


# --- the same as jobs -------------------------------------------------------------------------------------------------


def begin(kinds: Registry, asked: Body, given: Json | None, old_value: bytes, revision: int) -> Begun:
    kind = kind_of(kinds, asked)
    return begun(kind, asked, given, held_by(kind, asked, stored(kind, old_value, revision)))


def end(kinds: Registry, asked: Body, scale: Json, old_value: bytes, revision: int) -> Ended:
    kind, cluster = kind_of(kinds, asked), Seen(asked.seen, asked.wall_s, asked.gates)
    old = stored(kind, old_value, revision)
    before = scale_of(kind, old)
    new = scaled(kind, asked.name, scale, held_by(kind, asked, old), old)
    strategy.admit_update(kind, new, old, "", cluster)
    made = settled_here(kind, asked._replace(sub=""), new, old, cluster)
    after = scale_of(kind, stored(kind, made.value, revision))
    value = old_value if same(made.value, old_value) else made.value
    return Ended(made._replace(value=value, warnings=[]), before, after)


def show(kinds: Registry, asked: Body, value: bytes, checks: bool) -> Json:
    return shown_scale(kind_of(kinds, asked), value, checks)
