"""ConfigMap, Secret and ServiceAccount: data with few rules."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.errors import FieldError, Json, forbidden_value, go_quote, invalid_value, required, too_long
from minikube_py.api.kind import NAMESPACED, Kind, Selectable, Subresource
from minikube_py.api.meta import is_config_key, is_dns1123_subdomain, validate_immutable
from minikube_py.api.printing import AGE, NAME, Age, Printer, column, print_name_and_age
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update

DATA_LIMIT_BYTES: Final = 1024 * 1024
_IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def _decoded(value: Any) -> bytes:
    """The bytes that base64 text stands for; decode has rejected invalid text."""
    try:
        return base64.b64decode(value or "")
    except (binascii.Error, ValueError):
        return b""


def _keys(data: Mapping[str, Any], path: str) -> list[FieldError]:
    return [invalid_value(f"{path}[{key}]", key, message) for key in data for message in is_config_key(key)]


def validate_config_map(config: Json) -> list[FieldError]:
    errors = validate_object_meta(config["metadata"], True, is_dns1123_subdomain)
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    for key in data:
        errors += _keys({key: None}, "data")
        if key in binary:
            errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
    errors += _keys(binary, "binaryData")
    size_bytes = sum(len(value.encode()) for value in data.values()) + sum(len(_decoded(v)) for v in binary.values())
    if size_bytes > DATA_LIMIT_BYTES:
        errors.append(too_long("[]", DATA_LIMIT_BYTES))
    return errors


def _validate_immutable_data(new: Json, old: Json, names: Sequence[str]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors: list[FieldError] = []
    if not new.get("immutable"):
        errors.append(forbidden_value("immutable", _IMMUTABLE_SET))
    changed = [name for name in names if (new.get(name) or {}) != (old.get(name) or {})]
    return errors + [forbidden_value(name, _IMMUTABLE_SET) for name in changed]


def validate_config_map_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += _validate_immutable_data(new, old, ("data", "binaryData"))
    return errors + validate_config_map(new)


def _print_config_map(config: Json, age: Age) -> list[Any]:
    count = len(config.get("data") or ()) + len(config.get("binaryData") or ())
    return [config["metadata"]["name"], count, age(config["metadata"].get("creationTimestamp"))]


CONFIGMAPS: Final = Kind(
    "", "v1", "ConfigMap", "configmaps", "configmap", True,
    short_names=("cm",),
    selectable=NAMESPACED,
    validate=validate_config_map,
    validate_update={"": validate_config_map_update},
    printer=Printer((NAME, column("Data", "Number of keys."), AGE), _print_config_map),
)  # fmt: skip


def _default_secret(obj: Json) -> None:
    if not obj.get("type"):
        obj["type"] = "Opaque"
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


_SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
_NEEDED_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _validate_secret_type(secret: Json, data: Mapping[str, Any]) -> list[FieldError]:
    kind = secret.get("type") or ""
    if kind == "kubernetes.io/service-account-token":
        if not (secret["metadata"].get("annotations") or {}).get(_SERVICE_ACCOUNT_NAME):
            return [required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]")]
        return []
    if kind == "kubernetes.io/basic-auth":
        if "username" in data or "password" in data:
            return []
        return [required("data[username]"), required("data[password]")]
    keys = _NEEDED_KEYS.get(kind, ())
    if kind == "kubernetes.io/ssh-auth":
        return [required(f"data[{key}]") for key in keys if not data.get(key)]
    errors = [required(f"data[{key}]") for key in keys if key not in data]
    if not errors and kind.startswith("kubernetes.io/docker"):
        wrong = _json_error(_decoded(data[keys[0]]))
        if wrong:
            errors.append(invalid_value(f"data[{keys[0]}]", "<secret contents redacted>", wrong))
    return errors


_GO_KINDS: Final = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


def _json_error(content: bytes) -> str:
    """encoding/json's error for a text that must be an object, or ""."""
    if not content.strip():
        return "unexpected end of JSON input"
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as wrong:
        if wrong.pos >= len(content):
            return "unexpected end of JSON input"
        char = wrong.doc[wrong.pos] if isinstance(wrong.doc, str) and wrong.pos < len(wrong.doc) else "?"
        where = "looking for beginning of value" if not content[: wrong.pos].strip() else "after top-level value"
        return f"invalid character {_go_char(char)} {where}"
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {_GO_KINDS[type(value)]} into Go value of type map[string]interface {{}}"


def _go_char(char: str) -> str:
    return "'\\''" if char == "'" else f"'{go_quote(char)[1:-1]}'"


def validate_secret(secret: Json) -> list[FieldError]:
    errors = validate_object_meta(secret["metadata"], True, is_dns1123_subdomain)
    data = secret.get("data") or {}
    errors += _keys(data, "data")
    if sum(len(_decoded(value)) for value in data.values()) > DATA_LIMIT_BYTES:
        errors.append(too_long("data", DATA_LIMIT_BYTES))
    return errors + _validate_secret_type(secret, data)


def validate_secret_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_immutable(new.get("type") or "", old.get("type") or "", "type")
    errors += _validate_immutable_data(new, old, ("data",))
    return errors + validate_secret(new)


def _secret_warnings(new: Json, old: Json | None) -> list[str]:
    if new.get("type") != "kubernetes.io/tls":
        return []
    from minikube_py.api.certificate_requests import pair_error

    data = new.get("data") or {}
    error = pair_error(_decoded(data.get("tls.crt")), _decoded(data.get("tls.key")))
    return [error] if error else []


def _keep_type(new: Json, old: Json) -> None:
    new["type"] = new.get("type") or old.get("type")


def _print_secret(secret: Json, age: Age) -> list[Any]:
    metadata = secret["metadata"]
    return [
        metadata["name"],
        secret.get("type") or "",
        len(secret.get("data") or ()),
        age(metadata.get("creationTimestamp")),
    ]


SECRETS: Final = Kind(
    "", "v1", "Secret", "secrets", "secret", True,
    selectable={**NAMESPACED, "type": Selectable(("type",))},
    default=_default_secret,
    prepare_update=_keep_type,
    validate=validate_secret,
    validate_update={"": validate_secret_update},
    warn=_secret_warnings,
    printer=Printer(
        (NAME, column("Type", "What the secret is for."), column("Data", "Number of keys."), AGE), _print_secret
    ),
)  # fmt: skip


def _clean_secret_references(account: Json) -> None:
    if secrets := account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in secrets]


def validate_service_account(account: Json) -> list[FieldError]:
    return validate_object_meta(account["metadata"], True, is_dns1123_subdomain)


def validate_service_account_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + validate_service_account(new)


_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"


def _service_account_warnings(account: Json, old: Json | None) -> list[str]:
    before = {} if old is None else old["metadata"].get("annotations") or {}
    if _MOUNTABLE in before or _MOUNTABLE not in (account["metadata"].get("annotations") or {}):
        return []
    why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    return [f"metadata.annotations[{_MOUNTABLE}]: {why}"]


SERVICEACCOUNTS: Final = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True,
    short_names=("sa",),
    selectable=NAMESPACED,
    subresources=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1", tabled=False),),
    delete_answer="object",
    prepare_create=_clean_secret_references,
    prepare_update=lambda new, old: _clean_secret_references(new),
    validate=validate_service_account,
    validate_update={"": validate_service_account_update},
    warn=_service_account_warnings,
    printer=Printer((NAME, AGE), print_name_and_age),
)  # fmt: skip
