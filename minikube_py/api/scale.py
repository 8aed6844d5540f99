"""The `scale` subresource: an autoscaling/v1 Scale for any kind with replica paths.

Source of the owners: apimachinery `pkg/util/managedfields/scalehandler.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from minikube_py.api.apply.managed_fields import Managed
from minikube_py.api.apply.path_set import Path, PathSet, field
from minikube_py.api.apply.updater import Owned
from minikube_py.api.errors import FieldError, Json, bad_request, internal, invalid_value
from minikube_py.api.kind import Kind, ScalePaths
from minikube_py.api.meta import is_dns1123_subdomain
from minikube_py.api.printing import AGE, Age, Column, Printer, column
from minikube_py.api.validation.metadata import validate_object_meta
from minikube_py.api.validation.resources import NEGATIVE


def _print(scale: Json, age: Age) -> list[Any]:
    metadata, spec, status = scale["metadata"], scale.get("spec") or {}, scale.get("status") or {}
    times = age(metadata.get("creationTimestamp"))
    return [metadata["name"], spec.get("replicas") or 0, status.get("replicas") or 0, times]


SCALES: Final = Kind(
    "autoscaling", "v1", "Scale", "scales", "scale", True,
    stored=False,
    printer=Printer(
        (
            Column("Name", "string", "", "Name of the object.", 0),
            column("Desired", "Replicas asked for.", 0, "integer"),
            column("Available", "Replicas there are.", 0, "integer"),
            AGE,
        ),
        _print,
    ),
)  # fmt: skip
_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _paths(kind: Kind) -> ScalePaths:
    assert kind.scale is not None, f"{kind} has no scale"
    return kind.scale


def scale_of(kind: Kind, obj: Json) -> Json:
    """The Scale of an object."""
    paths, metadata = _paths(kind), obj["metadata"]
    replicas = _at(obj, paths.spec_replicas)
    scale: Json = {
        "kind": SCALES.kind,
        "apiVersion": SCALES.api_version,
        "metadata": {key: metadata[key] for key in _KEPT if metadata.get(key)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": _at(obj, paths.status_replicas) or 0},
    }
    if selector := paths.selector(obj):
        scale["status"]["selector"] = selector
    return scale


def owned_scale_of(kind: Kind, obj: Json) -> Json:
    """With its managedFields, as a write finds it."""
    scale = scale_of(kind, obj)
    if owners := owners_in_scale(kind, obj["metadata"].get("managedFields") or ()):
        scale["metadata"]["managedFields"] = owners
    return scale


def require_replicas(kind: Kind, obj: Json) -> None:
    """Raises: StatusError 500 if required replicas are missing, as upstream does."""
    paths = _paths(kind)
    if not paths.may_lack_replicas and _at(obj, paths.spec_replicas) is None:
        raise internal(f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist')


def with_scale(kind: Kind, obj: Json, scale: Json) -> Json:
    """A new object with the scale's replicas; the given one stays as it is."""
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    metadata = dict(obj["metadata"])
    given = scale.get("metadata") or {}
    if given.get("resourceVersion"):
        metadata["resourceVersion"] = given["resourceVersion"]
    if owners := owners_after_scale(kind, metadata.pop("managedFields", ()), given.get("managedFields") or ()):
        metadata["managedFields"] = owners
    return {**_with(obj, _paths(kind).spec_replicas, replicas), "metadata": metadata}


# --- owners -----------------------------------------------------------------------------------------------------------

_REPLICAS: Final[Path] = (field("spec"), field("replicas"))


@lru_cache(512)
def _replicas_at(kind: Kind) -> Mapping[str, Path | None]:
    """The field that a Scale writes, by apiVersion; None: that version has no scale."""
    at = {**kind.scales, kind.api_version: _paths(kind)}
    return {
        version: None if each is None else tuple(map(field, each.spec_replicas)) for version, each in at.items()
    }  # fmt: skip


def _read(entries: Sequence[Json]) -> Managed:
    """Raises: StatusError 400."""
    try:
        return Managed.read(entries)
    except ValueError as error:
        raise bad_request(f"failed to decode managed fields: {error}") from None


def owners_in_scale(kind: Kind, entries: Sequence[Json]) -> list[Json]:
    """The managedFields of the Scale of an object with these. Raises: StatusError 400."""
    held, at = _read(entries), _replicas_at(kind)
    owners = {
        name: Owned(PathSet(_REPLICAS), SCALES.api_version, owned.applied)
        for name, owned in held.owners.items() if (path := at.get(owned.version)) is not None and path in owned.fields
    }  # fmt: skip
    return Managed(owners, held.times).written()


def owners_after_scale(kind: Kind, entries: Sequence[Json], in_scale: Sequence[Json]) -> list[Json]:
    """An object's managedFields once its Scale, which had `owners_in_scale`, has those `in_scale`."""
    held, at = _read(entries), _replicas_at(kind)
    scaled = {name: owned for name, owned in _read(in_scale).owners.items() if _REPLICAS in owned.fields}
    owners = {}
    for name, owned in held.owners.items():
        if owned.version not in at:
            continue
        path = at[owned.version]
        if path is None or path not in owned.fields or scaled.pop(name, None) is not None:
            owners[name] = owned
        elif left := owned.fields - PathSet(path):
            owners[name] = owned._replace(fields=left)
    own = at[kind.api_version]
    assert own is not None, "a kind with a Scale has its path"
    owners |= {name: Owned(PathSet(own), kind.api_version, owned.applied) for name, owned in scaled.items()}
    return Managed(owners, held.times).written()


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _with(obj: Json, path: tuple[str, ...], value: Any) -> Json:
    name, *rest = path
    return {**obj, name: _with(obj.get(name) or {}, tuple(rest), value) if rest else value}


def validate_scale(scale: Json) -> list[FieldError]:
    # The prefix of a generated name is not checked here, only the resulting name.
    own = {key: value for key, value in (scale.get("metadata") or {}).items() if key != "generateName"}
    errors = validate_object_meta(own, True, is_dns1123_subdomain)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        errors.append(invalid_value("spec.replicas", replicas, NEGATIVE))
    return errors
