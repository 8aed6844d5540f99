"""Annotations that name profiles of seccomp and AppArmor, and the fields that replaced them.

Source: `pkg/apis/core/validation` (ValidateSeccompPodAnnotations and its siblings), `pkg/registry/core/pod`
(applyAppArmorVersionSkew), `pkg/api/pod/warnings.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, go_quote, invalid_value
from minikube_py.api.validation.paths import validate_descending_path
from minikube_py.api.validation.security import validate_app_armor

SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_LOCAL: Final = "localhost/"
_NAMES: Final = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
_APP_ARMOR_OLD: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_SECCOMP_OLD: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'


_IS_PROFILE: Final = methodcaller("startswith", (SECCOMP_POD, SECCOMP, APP_ARMOR))


def names_profiles(annotations: Mapping[str, str]) -> bool:
    return any(map(_IS_PROFILE, annotations))


def _containers(spec: Json) -> Iterator[tuple[Json, str]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            yield container, f"{kind}[{i}]"


def _profile(holder: Json, name: str) -> Json | None:
    found: Json | None = (holder.get("securityContext") or {}).get(name)
    return found


def validate_annotations(annotations: Mapping[str, str], spec: Json, path: str) -> list[FieldError]:
    """Of a pod or template: the profiles exist, and so do their containers."""
    errors: list[FieldError] = []
    if not names_profiles(annotations):
        return errors
    for key in (SECCOMP_POD, *(each for each in annotations if each.startswith(SECCOMP))):
        if key in annotations:
            errors += _seccomp_errors(annotations[key], f"{path}.{key}")
    for key in (each for each in annotations if each.startswith(APP_ARMOR)):
        name, value = key.removeprefix(APP_ARMOR), annotations[key]
        if all(container.get("name") != name for container, _ in _containers(spec)):
            errors.append(invalid_value(f"{path}[{key}]", name, "container not found"))
        if value not in ("", "runtime/default", "unconfined") and not value.startswith(_LOCAL):
            why = f"invalid AppArmor profile name: {go_quote(value)}"
            errors.append(invalid_value(f"{path}[{key}]", value, why))
    return errors


def _seccomp_errors(value: str, path: str) -> list[FieldError]:
    if value in ("runtime/default", "docker/default", "unconfined"):
        return []
    if value.startswith(_LOCAL):
        return validate_descending_path(value.removeprefix(_LOCAL), path)
    return [invalid_value(path, value, "must be a valid seccomp profile")]


def validate_fields_match(annotations: Mapping[str, str], spec: Json, path: str) -> list[FieldError]:
    """Where both an annotation and a field name a profile, they name the same."""
    errors: list[FieldError] = []
    if not names_profiles(annotations):
        return errors
    if SECCOMP_POD in annotations:
        errors += _mismatch(annotations[SECCOMP_POD], _profile(spec, "seccompProfile"), "seccomp", path)
    for container, at in _containers(spec):
        key = SECCOMP + (container.get("name") or "")
        if key in annotations:
            errors += _mismatch(annotations[key], _profile(container, "seccompProfile"), "seccomp", f"{path}.{at}")
    if (spec.get("os") or {}).get("name") == "windows":
        return errors
    whole = _profile(spec, "appArmorProfile")
    for container, at in _containers(spec):
        key = APP_ARMOR + (container.get("name") or "")
        if key in annotations:
            own = _profile(container, "appArmorProfile") or whole
            errors += _mismatch(annotations[key], own, "apparmor", f"{path}.{at}")
    return errors


def _mismatch(annotation: str, field: Json | None, what: str, path: str) -> list[FieldError]:
    kind = (field or {}).get("type") or ""
    at = f"{path}.securityContext.{'seccompProfile' if what == 'seccomp' else 'appArmorProfile'}"
    if kind == "Localhost":
        if annotation.startswith(_LOCAL):
            same = annotation.removeprefix(_LOCAL) == (field or {}).get("localhostProfile")
            why = f"{what} profile in annotation and field must match"
            return [] if same else [forbidden_value(f"{at}.localhostProfile", why)]
    elif kind not in _NAMES or annotation in _NAMES[kind][: 2 if what == "seccomp" else 1]:
        return []
    return [forbidden_value(f"{at}.type", f"{what} type in annotation and field must match")]


def validate_annotation_update(annotations: Mapping[str, str], before: Mapping[str, str]) -> list[FieldError]:
    """For a pod: values read by its node are immutable."""
    errors: list[FieldError] = []
    changed = [key for key in before if annotations.get(key) != before[key]]
    added = [key for key in annotations if key not in before]
    for keys, verb in ((changed, "remove or update"), (added, "add")):
        for key in keys:
            at = f"metadata.annotations[{key}]"
            if key.startswith(APP_ARMOR):
                errors.append(forbidden_value(at, f"may not {verb} AppArmor annotations"))
            if key == "kubernetes.io/config.mirror":
                errors.append(forbidden_value(at, f"may not {verb} mirror pod annotation"))
    return errors


def _field_of(annotation: str) -> Json | None:
    for kind, names in _NAMES.items():
        if annotation == names[0]:
            return {"type": kind}
    local = annotation.removeprefix(_LOCAL) if annotation.startswith(_LOCAL) else ""
    return {"type": "Localhost", "localhostProfile": local} if local else None


def _unsynced(annotations: Mapping[str, str], spec: Json) -> Iterator[tuple[str, Json, Json | None]]:
    """AppArmor annotations of containers without a field of their own: key, container, and the field that it means."""
    if any(key.startswith(APP_ARMOR) for key in annotations):
        for container, _ in _containers(spec):
            key = APP_ARMOR + (container.get("name") or "")
            if key in annotations and _profile(container, "appArmorProfile") is None:
                field = _field_of(annotations[key])
                yield key, container, None if validate_app_armor(field, "") else field


def sync_fields(annotations: Mapping[str, str], spec: Json) -> None:
    """A pod's AppArmor annotations become fields of its containers."""
    if not names_profiles(annotations) or (spec.get("os") or {}).get("name") == "windows":
        return
    for _, container, field in _unsynced(annotations, spec):
        if field is not None and field != _profile(spec, "appArmorProfile"):
            container["securityContext"] = {**(container.get("securityContext") or {}), "appArmorProfile": field}


def sync_warnings(pod: Json) -> list[str]:
    """What is said of a pod before `sync_fields`."""
    annotations, spec = pod["metadata"].get("annotations") or {}, pod.get("spec") or {}
    if not names_profiles(annotations) or (spec.get("os") or {}).get("name") == "windows":
        return []
    return _app_armor_warnings(annotations, spec, "")


def _app_armor_warnings(annotations: Mapping[str, str], spec: Json, prefix: str) -> list[str]:
    whole = _profile(spec, "appArmorProfile")
    return [
        f"{prefix}metadata.annotations[{key}]: {_APP_ARMOR_OLD}"
        for key, _, field in _unsynced(annotations, spec)
        if field is None or field != whole
    ]


def container_warnings(annotations: Mapping[str, str], container: Json, spec: Json, prefix: str) -> list[str]:
    """Of a container whose annotations have no fields beside them. For AppArmor of pods, see `sync_warnings`."""
    key, found = SECCOMP + (container.get("name") or ""), []
    if key in annotations and _profile(container, "seccompProfile") is None:
        found.append(f"{prefix}metadata.annotations[{key}]: {_SECCOMP_OLD}")
    key = APP_ARMOR + (container.get("name") or "")
    if prefix and key in annotations:
        alone = {**spec, "initContainers": (), "containers": (container,), "ephemeralContainers": ()}
        found += _app_armor_warnings(annotations, alone, prefix)
    return found
