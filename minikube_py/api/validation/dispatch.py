"""The rules that hold for every object, before the rules of its kind."""

from __future__ import annotations

from minikube_py.api.errors import FieldError, Json
from minikube_py.api.kind import Kind
from minikube_py.api.meta import is_path_segment, validate_object_meta, validate_object_meta_update


def validate_create(kind: Kind, obj: Json) -> list[FieldError]:
    """What is wrong with a new object, in upstream's order; or empty."""
    errors = kind.validate(obj) if kind.validate is not None else []
    # Check names as path segments last, so that better messages win.
    if errors or not kind.stored:
        return errors
    name = obj["metadata"].get("name")
    if name and not is_path_segment(name):
        return [] if kind.validate is not None and kind.checks_metadata else _common(kind, obj)
    return _common(kind, obj)


def _common(kind: Kind, obj: Json) -> list[FieldError]:
    return validate_object_meta(obj["metadata"], kind.namespaced, is_path_segment)


def validate_update(kind: Kind, new: Json, old: Json, subresource: str = "") -> list[FieldError]:
    """What is wrong with an update through the main path, or through `status` or `finalize`."""
    errors = _common(kind, new)
    errors += validate_object_meta_update(new["metadata"], old["metadata"])
    validate = kind.validate_update.get(subresource)
    if validate is not None:
        errors += validate(new, old)
    return errors
