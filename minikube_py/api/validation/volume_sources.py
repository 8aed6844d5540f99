"""Sources of volumes that pods and PersistentVolumes share: disks, file servers and drivers.

A source that both may name has one rule for each of them where upstream asks for more in a PersistentVolume, whose
secrets may be in other namespaces. Source: `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, not_supported, required, too_long
from minikube_py.api.meta import between, is_dns1123_label, is_dns1123_subdomain
from minikube_py.api.validation.paths import validate_local_path, validate_no_backsteps

Source = Callable[[Json, str], list[FieldError]]
"""Looks at one source, and gets the path that its errors name."""

DRIVER_NAME_MAX: Final = 63
_HOST_PATH_TYPES: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_TENANT_MAX: Final = 65
_TARGET_MAX: Final = 64
_IQN: Final = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.([a-zA-Z0-9-.]+)(:[^,;*&$|\t\n\f\r ]+)\Z"),
    "eui": re.compile(r"eui.[a-zA-Z0-9]{16}\Z"),
    "naa": re.compile(r"naa.[a-zA-Z0-9]{32}\Z"),
}
_BY_INITIATOR: Final = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
    "specified."
)


def needs(*names: str) -> Source:
    """Each of the fields, not empty."""
    return lambda source, path: [required(f"{path}.{name}") for name in names if not source.get(name)]


def both(*sources: Source) -> Source:
    """All rules, one after the other."""
    return lambda source, path: [error for each in sources for error in each(source, path)]


def _secret_needs(*names: str) -> Source:
    def validate(source: Json, path: str) -> list[FieldError]:
        secret = source.get("secretRef")
        return [] if secret is None else needs(*names)(secret, f"{path}.secretRef")

    return validate


def validate_host_path(source: Json, path: str) -> list[FieldError]:
    target = source.get("path") or ""
    if not target:
        return [required(f"{path}.path")]
    errors = validate_no_backsteps(target, f"{path}.path")
    kind = source.get("type")
    if kind is not None and kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def _validate_disk(name: str) -> Source:
    def validate(source: Json, path: str) -> list[FieldError]:
        partition = source.get("partition") or 0
        errors = needs(name)(source, path)
        if not 0 <= partition <= 255:
            errors.append(invalid_value(f"{path}.partition", partition, between(1, 255)))
        return errors

    return validate


def validate_git_repo(source: Json, path: str) -> list[FieldError]:
    return needs("repository")(source, path) + validate_local_path(source.get("directory") or "", f"{path}.directory")


def _validate_endpoints_namespace(source: Json, path: str) -> list[FieldError]:
    namespace, at = source.get("endpointsNamespace"), f"{path}.endpointsNamespace"
    if namespace is None:
        return []
    if not namespace:
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        return [invalid_value(at, namespace, detail)]
    return [invalid_value(at, namespace, message) for message in is_dns1123_label(namespace)]


def validate_flocker(source: Json, path: str) -> list[FieldError]:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    errors: list[FieldError] = []
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid_value(path, "resource", detail))
    if "/" in name:
        errors.append(invalid_value(f"{path}.datasetName", name, "must not contain '/'"))
    return errors


def validate_nfs(source: Json, path: str) -> list[FieldError]:
    errors, target = needs("server", "path")(source, path), source.get("path") or ""
    if not target.startswith("/"):
        errors.append(invalid_value(f"{path}.path", target, "must be an absolute path"))
    return errors


def _is_host_port(text: str) -> bool:
    """As Go's net.SplitHostPort."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return bool(bracket) and rest.startswith(":") and ":" not in rest[1:] and not set("[]") & set(host + rest)
    return text.count(":") == 1 and not set("[]") & set(text)


def validate_quobyte(source: Json, path: str) -> list[FieldError]:
    registry, detail = source.get("registry") or "", "must be a host:port pair or multiple pairs separated by commas"
    errors: list[FieldError] = []
    if not registry:
        errors.append(required(f"{path}.registry", detail))
    elif len((source.get("tenant") or "").encode()) >= _TENANT_MAX:
        errors.append(required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        wrong = [pair for pair in registry.split(",") if not _is_host_port(pair)]
        errors += [invalid_value(f"{path}.registry", registry, detail) for _ in wrong]
    return errors + needs("volume")(source, path)


# --- iSCSI ----------------------------------------------------------------------------------------------------------


def _validate_qualified_name(name: str, path: str, unknown: str) -> list[FieldError]:
    """`unknown`: what to say where it begins like none of the kinds of names."""
    pattern = _IQN.get(name[:3])
    if pattern is None:
        return [invalid_value(path, name, unknown)]
    matches = pattern.search(name) if name.startswith("iqn") else pattern.match(name)
    return [] if matches else [invalid_value(path, name, "must be valid format")]


def _validate_iscsi(source: Json, path: str, unknown: str) -> list[FieldError]:
    """Upstream's rule from the name of the target on."""
    name, lun = source.get("iqn") or "", source.get("lun") or 0
    errors = _validate_qualified_name(name, f"{path}.iqn", unknown) if name else [required(f"{path}.iqn")]
    if not 0 <= lun <= 255:
        errors.append(invalid_value(f"{path}.lun", lun, between(0, 255)))
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        errors.append(required(f"{path}.secretRef"))
    return errors


def _validate_initiator(source: Json, path: str, unknown: str) -> list[FieldError]:
    initiator = source.get("initiatorName")
    return [] if initiator is None else _validate_qualified_name(initiator, f"{path}.initiatorname", unknown)


def validate_iscsi(source: Json, path: str) -> list[FieldError]:
    """Of a pod; what the name of the volume adds is `validate_iscsi_name`."""
    unknown = "must be valid format starting with iqn, eui, or naa"
    errors = needs("targetPortal")(source, path) + _validate_iscsi(source, path, unknown)
    return errors + _validate_initiator(source, path, unknown)


def is_iscsi_target_too_long(source: Json, volume_name: str) -> bool:
    target = f"{volume_name}:{source.get('targetPortal') or ''}"
    return source.get("initiatorName") is not None and len(target.encode()) > _TARGET_MAX


def validate_iscsi_name(source: Json, path: str, volume_name: str) -> list[FieldError]:
    """`path` is that of a pod's volume."""
    return (
        [invalid_value(f"{path}.name", volume_name, _BY_INITIATOR)]
        if is_iscsi_target_too_long(source, volume_name)
        else []
    )


def validate_iscsi_volume(source: Json, path: str, volume_name: str) -> list[FieldError]:
    """Of the PersistentVolume of that name."""
    unknown = "must be valid format"
    errors = needs("targetPortal")(source, path)
    if is_iscsi_target_too_long(source, volume_name):
        errors.append(invalid_value(f"{path}.targetportal", source.get("targetPortal") or "", _BY_INITIATOR))
    errors += _validate_iscsi(source, path, unknown) + _secret_needs("name")(source, path)
    return errors + _validate_initiator(source, path, unknown)


# --- other disks ----------------------------------------------------------------------------------------------------


def validate_fibre_channel(source: Json, path: str) -> list[FieldError]:
    targets, ids, lun, at = source.get("targetWWNs"), source.get("wwids"), source.get("lun"), f"{path}.targetWWNs"
    errors: list[FieldError] = []
    if not targets and not ids:
        errors.append(required(at, "must specify either targetWWNs or wwids, but not both"))
    if targets and ids:
        errors.append(invalid_value(at, targets, "targetWWNs and wwids can not be specified simultaneously"))
    if targets and lun is None:
        errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif targets and lun is not None and not 0 <= lun <= 255:
        errors.append(invalid_value(f"{path}.lun", lun, between(0, 255)))
    return errors


def validate_flex(source: Json, path: str) -> list[FieldError]:
    errors = needs("driver")(source, path)
    for key in source.get("options") or ():
        if ("." + key.partition("/")[0].lower()).endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid_value(f"{path}.options[{key}]", key, detail))
    return errors


def _validate_secret_namespace(source: Json, path: str) -> list[FieldError]:
    return [required(f"{path}.secretNamespace")] if source.get("secretNamespace") == "" else []


_CACHING: Final = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")
_MANAGED_URI: Final = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_URI: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def validate_azure_disk(source: Json, path: str) -> list[FieldError]:
    errors, uri = needs("diskName", "diskURI")(source, path), source.get("diskURI") or ""
    caching, kind = source.get("cachingMode"), source.get("kind")
    if caching is not None and caching not in _CACHING:
        errors.append(not_supported(f"{path}.cachingMode", caching, _CACHING))
    if kind is not None and kind not in _DISK_KINDS:
        errors.append(not_supported(f"{path}.kind", kind, _DISK_KINDS))
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_MANAGED_URI,)))
    if kind is not None and kind != "Managed" and not uri.startswith("https://"):
        errors.append(not_supported(f"{path}.diskURI", uri, (_BLOB_URI,)))
    return errors


def validate_local(source: Json, path: str) -> list[FieldError]:
    target = source.get("path") or ""
    return validate_no_backsteps(target, f"{path}.path") if target else [required(f"{path}.path")]


def _validate_storageos(source: Json, path: str) -> list[FieldError]:
    name, namespace = source.get("volumeName") or "", source.get("volumeNamespace") or ""
    errors = [] if name else [required(f"{path}.volumeName")]
    for field, value in (("volumeName", name), ("volumeNamespace", namespace)):
        if value:
            errors += [invalid_value(f"{path}.{field}", value, message) for message in is_dns1123_label(value)]
    return errors


# --- CSI ------------------------------------------------------------------------------------------------------------


def validate_driver_name(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    errors = [too_long(path, DRIVER_NAME_MAX)] if len(name.encode()) > DRIVER_NAME_MAX else []
    return errors + [invalid_value(path, name, message) for message in is_dns1123_subdomain(name.lower())]


def validate_csi(source: Json, path: str) -> list[FieldError]:
    """Of a pod."""
    errors, secret = validate_driver_name(source.get("driver"), f"{path}.driver"), source.get("nodePublishSecretRef")
    if secret is not None:
        name = secret.get("name") or ""
        if not name:
            errors.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            errors += [invalid_value(f"{path}.name", name, message) for message in is_dns1123_subdomain(name)]
    return errors


def validate_csi_volume(source: Json, path: str) -> list[FieldError]:
    """Of a PersistentVolume."""
    errors = validate_driver_name(source.get("driver"), f"{path}.driver") + needs("volumeHandle")(source, path)
    for what in ("controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"):
        secret, at = source.get(f"{what}SecretRef"), f"{path}.{what}SecretRef"
        if secret is None:
            continue
        for field, rule in (("name", is_dns1123_subdomain), ("namespace", is_dns1123_label)):
            value = secret.get(field) or ""
            found = [invalid_value(f"{at}.{field}", value, message) for message in rule(value)] if value else []
            errors += found if value else [required(f"{at}.{field}")]
    return errors


_SCALE_IO: Final = needs("gateway", "system", "volumeName")
_GLUSTERFS: Final = needs("endpoints", "path")
_AZURE_FILE: Final = needs("secretName", "shareName")
_COMMON: Final[dict[str, Source]] = {
    "hostPath": validate_host_path,
    "gcePersistentDisk": _validate_disk("pdName"),
    "awsElasticBlockStore": _validate_disk("volumeID"),
    "flocker": validate_flocker,
    "nfs": validate_nfs,
    "rbd": needs("monitors", "image"),
    "quobyte": validate_quobyte,
    "cephfs": needs("monitors"),
    "fc": validate_fibre_channel,
    "flexVolume": validate_flex,
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": validate_azure_disk,
    "scaleIO": _SCALE_IO,
}
IN_PODS: Final[dict[str, Source]] = {
    **_COMMON,
    "gitRepo": validate_git_repo,
    "iscsi": validate_iscsi,
    "glusterfs": _GLUSTERFS,
    "cinder": both(needs("volumeID"), _secret_needs("name")),
    "azureFile": _AZURE_FILE,
    "storageos": both(_validate_storageos, _secret_needs("name")),
    "csi": validate_csi,
}
"""Rules of the sources in a pod, by name. Those that only pods have are in `validation.volumes`."""
IN_VOLUMES: Final[dict[str, Source]] = {
    **_COMMON,
    "glusterfs": both(_GLUSTERFS, _validate_endpoints_namespace),
    "cinder": both(needs("volumeID"), _secret_needs("name", "namespace")),
    "azureFile": both(_AZURE_FILE, _validate_secret_namespace),
    "local": validate_local,
    "storageos": both(_validate_storageos, _secret_needs("name", "namespace")),
    "csi": validate_csi_volume,
}
"""Rules of the sources in a PersistentVolume, by name; `iscsi`, which looks at its name too, is not among them."""
PATHS: Final = {"gcePersistentDisk": "persistentDisk"}
"""Sources whose errors name another path than their field."""
PATHS_OF_MORE: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Other names of sources in the error for too many."""
MORE_THAN_ONE: Final = "may not specify more than 1 volume type"


def one_too_many(name: str, path: str) -> FieldError:
    return forbidden_value(f"{path}.{PATHS_OF_MORE.get(name, name)}", MORE_THAN_ONE)
