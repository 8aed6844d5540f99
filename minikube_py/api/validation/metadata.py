"""Metadata of the core group's kinds, whose finalizers must be known or have a domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.api import meta
from minikube_py.api.errors import FieldError, Json, invalid_value
from minikube_py.api.meta import NameRule

_STANDARD: Final = ("kubernetes", "orphan", "foregroundDeletion")


def validate_known_finalizer(name: str, path: str) -> list[FieldError]:
    if "/" in name or name in _STANDARD:
        return []
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [invalid_value(path, name, detail)]


def _validate_finalizers(finalizers: Sequence[str]) -> list[FieldError]:
    return [
        error
        for i, name in enumerate(finalizers)
        for error in validate_known_finalizer(name, f"metadata.finalizers[{i}]")
    ]


def validate_object_meta(metadata: Json, namespaced: bool, name_rule: NameRule) -> list[FieldError]:
    errors = meta.validate_object_meta(metadata, namespaced, name_rule)
    return errors + _validate_finalizers(metadata["finalizers"]) if metadata.get("finalizers") else errors


def validate_object_meta_update(new: Json, old: Json) -> list[FieldError]:
    errors = meta.validate_object_meta_update(new, old)
    return errors + _validate_finalizers(new["finalizers"]) if new.get("finalizers") else errors


def keep_metadata(new: Json, old: Json) -> None:
    """A status write may change only managedFields in metadata."""
    own = {name: new["metadata"].get(name) for name in ("resourceVersion", "managedFields")}
    kept = {name: value for name, value in old["metadata"].items() if name not in own}
    new["metadata"] = {**kept, **{name: value for name, value in own.items() if value}}
