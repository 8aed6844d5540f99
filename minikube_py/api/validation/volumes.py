"""Volumes of a pod: the sources that only pods have, and that each volume has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain
from minikube_py.api.validation.claims import validate_claim_template
from minikube_py.api.validation.paths import (
    validate_field_ref,
    validate_local_path,
    validate_mode,
    validate_resource_field_ref,
)
from minikube_py.api.validation.volume_sources import IN_PODS, PATHS, Source, one_too_many, validate_iscsi_name
from minikube_py.fields import quantity


def _validate_items(items: Sequence[Json], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, item in enumerate(items):
        at, target = f"{path}[{i}]", item.get("path") or ""
        if not item.get("key"):
            errors.append(required(f"{at}.key"))
        if not target:
            errors.append(required(f"{at}.path"))
        errors += validate_local_path(target, f"{at}.path")
        errors += validate_mode(item.get("mode"), f"{at}.mode")
    return errors


def _validate_keyed(name: str) -> Callable[[Json, str], list[FieldError]]:
    def validate(source: Json, path: str) -> list[FieldError]:
        errors = [] if source.get(name) else [required(f"{path}.{name}")]
        errors += validate_mode(source.get("defaultMode"), f"{path}.defaultMode")
        return errors + _validate_items(source.get("items") or (), f"{path}.items")

    return validate


def _validate_empty_dir(source: Json, path: str) -> list[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and quantity.parse(limit).unscaled < 0:
        return [forbidden_value(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _validate_file(file: Json, path: str) -> list[FieldError]:
    """A file of the downward API; `path` is that of its volume."""
    errors: list[FieldError] = []
    target = file.get("path") or ""
    if not target:
        errors.append(required(f"{path}.path"))
    errors += validate_local_path(target, f"{path}.path")
    field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if field is not None:
        errors += validate_field_ref(field, f"{path}.fieldRef", volume=True)
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid_value(path, "resource", detail))
    elif resource is not None:
        errors += validate_resource_field_ref(resource, f"{path}.resourceFieldRef", volume=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + validate_mode(file.get("mode"), f"{path}.mode")


def _validate_downward(source: Json, path: str) -> list[FieldError]:
    errors = validate_mode(source.get("defaultMode"), f"{path}.defaultMode")
    for file in source.get("items") or ():
        errors += _validate_file(file, path)
    return errors


class _PathSet:
    """Paths that the sources of one projected volume take."""

    def __init__(self, volume_path: str) -> None:
        self._volume_path = volume_path
        self._seen: set[str] = set()

    def take(self, target: str, owner: str) -> list[FieldError]:
        if not target:
            return []
        if target in self._seen:
            return [invalid_value(self._volume_path, owner, "conflicting duplicate paths")]
        self._seen.add(target)
        return []


def _validate_projected_source(source: Json, at: str, volume_path: str, taken: _PathSet) -> list[FieldError]:
    errors: list[FieldError] = []
    for kind in ("secret", "configMap"):
        if (part := source.get(kind)) is not None:
            if not part.get("name"):
                errors.append(required(f"{at}.{kind}.name"))
            for i, item in enumerate(part.get("items") or ()):
                found = _validate_items([item], f"{at}.{kind}.items")
                errors += [e._replace(field=e.field.replace(".items[0]", f".items[{i}]", 1)) for e in found]
                errors += taken.take(item.get("path") or "", part.get("name") or "")
    if (part := source.get("downwardAPI")) is not None:
        for file in part.get("items") or ():
            errors += _validate_file(file, f"{at}.downwardAPI")
            errors += taken.take(file.get("path") or "", file.get("path") or "")
    if (part := source.get("serviceAccountToken")) is not None:
        errors += _validate_token(part, f"{at}.serviceAccountToken", volume_path)
    return errors


def _validate_token(token: Json, path: str, volume_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    expiration_s = token.get("expirationSeconds") or 0
    if expiration_s < 600:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid_value(f"{path}.expirationSeconds", expiration_s, detail))
    if expiration_s > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid_value(f"{path}.expirationSeconds", expiration_s, detail))
    if not token.get("path"):
        return [*errors, required(f"{volume_path}.path")]
    return errors + validate_local_path(token["path"], f"{volume_path}.path")


def _validate_projected(source: Json, path: str) -> list[FieldError]:
    errors = validate_mode(source.get("defaultMode"), f"{path}.defaultMode")
    taken = _PathSet(path)
    for i, part in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{i}]"
        errors += _validate_projected_source(part, at, path, taken)
        if sum(value is not None for value in part.values()) > 1:
            errors.append(forbidden_value(at, "may not specify more than 1 volume type per source"))
    return errors


def _validate_ephemeral(source: Json, path: str) -> list[FieldError]:
    template, at = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    return [required(at)] if template is None else validate_claim_template(template, at)


def _validate_claim(source: Json, path: str) -> list[FieldError]:
    return [] if source.get("claimName") else [required(f"{path}.claimName")]


def _validate_image(source: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    reference, policy = source.get("reference") or "", source.get("pullPolicy") or ""
    if not reference:
        errors.append(required(f"{path}.reference"))
    elif reference.strip() != reference:
        errors.append(invalid_value(f"{path}.reference", reference, "must not have leading or trailing whitespace"))
    if policy and policy not in ("Always", "IfNotPresent", "Never"):
        errors.append(not_supported(f"{path}.pullPolicy", policy, ("Always", "IfNotPresent", "Never")))
    return errors


_RULES: Final[dict[str, Source]] = {
    **IN_PODS,
    "emptyDir": _validate_empty_dir,
    "secret": _validate_keyed("secretName"),
    "persistentVolumeClaim": _validate_claim,
    "downwardAPI": _validate_downward,
    "configMap": _validate_keyed("name"),
    "projected": _validate_projected,
    "ephemeral": _validate_ephemeral,
    "image": _validate_image,
}
_ORDER: Final = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""In which upstream looks at them: the first is looked at, the others are too many."""


def _validate_source(volume: Json, path: str, pod_name: str) -> list[FieldError]:
    named = [name for name in volume if name != "name" and volume[name] is not None]
    if not named:
        return [required(path, "must specify a volume type")]
    if len(named) > 1:
        named.sort(key=_ORDER.index)
    errors: list[FieldError] = []
    for i, name in enumerate(named):
        source = volume[name]
        if i and name != "emptyDir":
            errors.append(one_too_many(name, path))
        else:
            errors += _RULES[name](source, f"{path}.{PATHS.get(name, name)}")
        if name == "iscsi":
            errors += validate_iscsi_name(source, path, volume.get("name") or "")
        elif name == "ephemeral" and not i and pod_name and volume.get("name"):
            claim = f"{pod_name}-{volume['name']}"
            detail = f"PVC name {go_quote(claim)}: "
            errors += [
                invalid_value(f"{path}.name", volume["name"], detail + message)
                for message in is_dns1123_subdomain(claim)
            ]
    return errors


def validate_volumes(
    volumes: Sequence[Json], path: str, pod_name: str = ""
) -> tuple[dict[str, Json], list[FieldError]]:
    """The volumes that are right, by name, and what is wrong with the others."""
    errors: list[FieldError] = []
    good: dict[str, Json] = {}
    created = {f"{pod_name}-{v.get('name') or ''}" for v in volumes if pod_name and v.get("ephemeral") is not None}
    for i, volume in enumerate(volumes):
        at, name = f"{path}[{i}]", volume.get("name") or ""
        found = _validate_source(volume, at, pod_name)
        if not name:
            found.append(required(f"{at}.name"))
        else:
            found += [invalid_value(f"{at}.name", name, message) for message in is_dns1123_label(name)]
        if name in good:
            found.append(duplicate(f"{at}.name", name))
        if found:
            errors += found
        else:
            good[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if claim in created and claim:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid_value(f"{at}.persistentVolumeClaim.claimName", claim, detail))
    return good, errors
