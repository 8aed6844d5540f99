"""Paths inside volumes and containers, and the pod fields exposed to containers."""

from __future__ import annotations

import re
from typing import Final

from minikube_py.api.errors import FieldError, Json, invalid_value, not_supported, required
from minikube_py.api.meta import is_dns1123_subdomain, is_qualified_name, regex_message
from minikube_py.api.rules import named_by
from minikube_py.fields import quantity

_HTTP_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def validate_no_backsteps(target: str, path: str) -> list[FieldError]:
    return [invalid_value(path, target, "must not contain '..'")] if ".." in target.split("/") else []


def validate_descending_path(target: str, path: str) -> list[FieldError]:
    errors = [invalid_value(path, target, "must be a relative path")] if target.startswith("/") else []
    return errors + validate_no_backsteps(target, path)


def validate_local_path(target: str, path: str) -> list[FieldError]:
    """Relative, without steps back, and not beginning like one."""
    errors = validate_descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        errors.append(invalid_value(path, target, "must not start with '..'"))
    return errors


def validate_mode(mode: int | None, path: str) -> list[FieldError]:
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid_value(path, mode, FILE_MODE)]


_ENV_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_VOLUME_FIELDS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
)  # fmt: skip
_KNOWN_FIELDS: Final = frozenset(_ENV_FIELDS + _VOLUME_FIELDS)


def validate_field_ref(selector: Json, path: str, *, volume: bool) -> list[FieldError]:
    """`fieldRef` of an environment variable or of a downward API file."""
    if not selector.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    field = selector.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    if selector["apiVersion"] != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {selector['apiVersion']}"
        return [invalid_value(f"{path}.fieldPath", field, detail)]
    base, bracket, rest = field.partition("['")
    subscript = rest[:-2] if bracket and rest.endswith("']") else None
    if subscript is not None:
        if base == "metadata.annotations":
            return [invalid_value(path, subscript.lower(), m) for m in is_qualified_name(subscript.lower())]
        if base == "metadata.labels":
            return [invalid_value(path, subscript, m) for m in is_qualified_name(subscript)]
        detail = f"error converting fieldPath: field label does not support subscript: {field}"
        return [invalid_value(f"{path}.fieldPath", field, detail)]
    if field not in _KNOWN_FIELDS and field != "spec.host":
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid_value(f"{path}.fieldPath", field, detail)]
    known = _VOLUME_FIELDS if volume else _ENV_FIELDS
    field = "spec.nodeName" if field == "spec.host" else field
    return [] if field in known else [not_supported(f"{path}.fieldPath", field, known)]


_RESOURCE_FIELDS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
_HUGEPAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_SIZES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS: Final = {
    "cpu": (("1m", "1"), "only divisor's values 1m and 1 are supported with the cpu resource"),
    "memory": (_SIZES, f"only divisor's values {', '.join(_SIZES)} are supported with the memory resource"),
    "ephemeral-storage": (
        _SIZES,
        f"only divisor's values {', '.join(_SIZES)} are supported with the local ephemeral storage resource",
    ),
    "hugepages": (_SIZES, f"only divisor's values {', '.join(_SIZES)} are supported with the hugepages resource"),
}


def validate_resource_field_ref(selector: Json, path: str, *, volume: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    resource = selector.get("resource") or ""
    if volume and not selector.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGEPAGES):
        errors.append(not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    divisor = selector.get("divisor") or "0"
    if not quantity.parse(divisor).is_zero():
        kind = "hugepages" if resource.startswith(_HUGEPAGES) else resource.partition(".")[2]
        known, detail = _DIVISORS.get(kind, ((divisor,), ""))
        if divisor not in known:
            errors.append(invalid_value(f"{path}.divisor", resource, detail))
    return errors


def domain_prefixed_path(text: str, path: str) -> list[FieldError]:
    """`example.com/name`; an empty text is missing."""
    if not text:
        return [required(path)]
    host, _, rest = text.partition("/")
    if not host or not rest:
        return [invalid_value(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = list(named_by(is_dns1123_subdomain)(host, path))
    if not re.fullmatch(_HTTP_PATH, rest):
        errors.append(invalid_value(path, rest, regex_message("Invalid path", _HTTP_PATH)))
    return errors
