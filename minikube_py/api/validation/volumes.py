"""Volumes of a pod. Sources that only old cloud plugins used are checked for being alone, not in themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.api.errors import (
    FieldError,
    Json,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.meta import is_dns1123_label, validate_annotations, validate_labels
from minikube_py.api.validation.paths import (
    validate_field_ref,
    validate_local_path,
    validate_mode,
    validate_no_backsteps,
    validate_resource_field_ref,
)
from minikube_py.fields import quantity

_HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


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


def _validate_host_path(source: Json, path: str) -> list[FieldError]:
    target = source.get("path") or ""
    if not target:
        return [required(f"{path}.path")]
    errors = validate_no_backsteps(target, f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


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
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    at = f"{path}.volumeClaimTemplate"
    errors = validate_annotations(metadata.get("annotations") or {}, f"{at}.metadata.annotations")
    errors += validate_labels(metadata.get("labels") or {}, f"{at}.metadata.labels")
    for name in metadata:
        if name not in ("annotations", "labels") and metadata[name]:
            errors.append(forbidden_value(f"{at}.metadata.{name}", "cannot be set"))
    return errors + validate_claim_spec(spec, f"{at}.spec")


def validate_claim_spec(spec: Json, path: str) -> list[FieldError]:
    """The spec of a PersistentVolumeClaim, or of a template for one."""
    errors: list[FieldError] = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    unknown = [mode for mode in modes if mode not in _ACCESS_MODES]
    errors += [not_supported(f"{path}.accessModes", mode, _ACCESS_MODES) for mode in unknown]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden_value(f"{path}.accessModes", detail))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        errors.append(required(f"{path}.resources[storage]"))
    elif quantity.parse(storage).unscaled <= 0:
        errors.append(invalid_value(f"{path}.resources[storage]", storage, "must be greater than zero"))
    return errors


def _validate_claim(source: Json, path: str) -> list[FieldError]:
    return [] if source.get("claimName") else [required(f"{path}.claimName")]


def _validate_nfs(source: Json, path: str) -> list[FieldError]:
    errors = [] if source.get("server") else [required(f"{path}.server")]
    target = source.get("path") or ""
    if not target:
        errors.append(required(f"{path}.path"))
    elif not target.startswith("/"):
        errors.append(invalid_value(f"{path}.path", target, "must be an absolute path"))
    return errors


def _validate_csi(source: Json, path: str) -> list[FieldError]:
    return [] if source.get("driver") else [required(f"{path}.driver")]


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


_SOURCES: Final[tuple[tuple[str, Callable[[Json, str], list[FieldError]] | None], ...]] = (
    ("emptyDir", _validate_empty_dir),
    ("hostPath", _validate_host_path),
    ("gitRepo", None),
    ("gcePersistentDisk", None),
    ("awsElasticBlockStore", None),
    ("secret", _validate_keyed("secretName")),
    ("nfs", _validate_nfs),
    ("iscsi", None),
    ("glusterfs", None),
    ("flocker", None),
    ("persistentVolumeClaim", _validate_claim),
    ("rbd", None),
    ("cinder", None),
    ("cephfs", None),
    ("quobyte", None),
    ("downwardAPI", _validate_downward),
    ("fc", None),
    ("flexVolume", None),
    ("configMap", _validate_keyed("name")),
    ("azureFile", None),
    ("vsphereVolume", None),
    ("azureDisk", None),
    ("storageos", None),
    ("projected", _validate_projected),
    ("portworxVolume", None),
    ("scaleIO", None),
    ("photonPersistentDisk", None),
    ("csi", _validate_csi),
    ("ephemeral", _validate_ephemeral),
    ("image", _validate_image),
)
_SOURCE_BY_NAME: Final = dict(_SOURCES)


def _validate_source(volume: Json, path: str) -> list[FieldError]:
    named = [name for name in volume if name != "name" and volume[name] is not None]
    if len(named) == 1:
        validate = _SOURCE_BY_NAME.get(named[0])
        return validate(volume[named[0]], f"{path}.{named[0]}") if validate is not None else []
    if not named:
        return [required(path, "must specify a volume type")]
    errors: list[FieldError] = []
    first = True
    for name, validate in _SOURCES:
        if volume.get(name) is None:
            continue
        if first:
            errors += validate(volume[name], f"{path}.{name}") if validate is not None else []
            first = False
        else:
            errors.append(forbidden_value(f"{path}.{name}", "may not specify more than 1 volume type"))
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
        found = _validate_source(volume, at)
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
