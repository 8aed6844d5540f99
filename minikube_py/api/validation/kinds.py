"""Kinds whose rules are few: namespaces, replication controllers, config maps, secrets, endpoints, events, leases."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from minikube_py.api import meta
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from minikube_py.api.meta import (
    is_config_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_port_number,
    is_qualified_name,
    validate_annotations,
    validate_immutable,
    validate_labels,
)
from minikube_py.api.validation.containers import PROTOCOLS
from minikube_py.api.validation.ips import validate_endpoint_ip, validate_ip
from minikube_py.api.validation.metadata import (
    validate_known_finalizer,
    validate_object_meta,
    validate_object_meta_update,
)
from minikube_py.api.validation.pods import validate_pod_annotations, validate_pod_spec
from minikube_py.api.validation.resources import NEGATIVE

DATA_LIMIT_BYTES: Final = 1024 * 1024
_IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"

# --- namespaces -----------------------------------------------------------------------------------------------------


def _validate_finalizer(name: str, path: str) -> list[FieldError]:
    errors = [invalid_value(path, name, message) for message in is_qualified_name(name)]
    return errors + validate_known_finalizer(name, path)


def _finalizers(namespace: Json) -> Sequence[str]:
    found: Sequence[str] | None = (namespace.get("spec") or {}).get("finalizers")
    return found or ()


def validate_namespace(namespace: Json) -> list[FieldError]:
    errors = validate_object_meta(namespace["metadata"], False, is_dns1123_label)
    for name in _finalizers(namespace):
        errors += _validate_finalizer(name, "spec.finalizers")
    return errors


def validate_namespace_update(new: Json, old: Json) -> list[FieldError]:
    return validate_namespace(new) + validate_object_meta_update(new["metadata"], old["metadata"])


def validate_namespace_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    phase = (new.get("status") or {}).get("phase") or ""
    deleted = bool(new["metadata"].get("deletionTimestamp"))
    wanted, state = ("Terminating", "not empty") if deleted else ("Active", "empty")
    if phase != wanted:
        detail = f"may only be '{wanted}' if `deletionTimestamp` is {state}"
        errors.append(invalid_value("status.Phase", phase, detail))
    return errors


def validate_namespace_finalize_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    for i, name in enumerate(_finalizers(new)):
        errors += _validate_finalizer(name, f"spec.finalizers[{i}]")
    return errors


# --- replication controllers and scale ------------------------------------------------------------------------------


def _validate_template(template: Json, path: str) -> list[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    errors = validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    errors += validate_annotations(annotations, f"{path}.annotations")
    errors += validate_pod_annotations(annotations, spec, f"{path}.annotations")
    errors += validate_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_value(f"{path}.spec.ephemeralContainers", detail))
    return errors


def _validate_controller_spec(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    selector: Mapping[str, str] = spec.get("selector") or {}
    for name, value in (("minReadySeconds", spec.get("minReadySeconds") or 0),):
        if value < 0:
            errors.append(invalid_value(f"spec.{name}", value, NEGATIVE))
    if not selector:
        errors.append(required("spec.selector"))
    replicas = spec.get("replicas")
    if replicas is None:
        errors.append(required("spec.replicas"))
    elif replicas < 0:
        errors.append(invalid_value("spec.replicas", replicas, NEGATIVE))
    template = spec.get("template")
    if template is None:
        return [*errors, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels")
    if any((labels or {}).get(key) != value for key, value in selector.items()):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid_value("spec.template.metadata.labels", labels, detail))
    errors += _validate_template(template, "spec.template")
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") != "Always":
        policy = pod.get("restartPolicy") or ""
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicationController is not Supported"
        errors.append(forbidden_value("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def validate_replication_controller(controller: Json) -> list[FieldError]:
    metadata = controller["metadata"]
    # The prefix of a generated name is not looked at here, only the name made from it.
    own = {key: value for key, value in metadata.items() if key != "generateName"}
    errors = validate_object_meta(own, True, is_dns1123_subdomain)
    return errors + _validate_controller_spec(controller.get("spec") or {})


def validate_replication_controller_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _validate_controller_spec(new.get("spec") or {})


_COUNTS: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")


def validate_replication_controller_status_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    status = new.get("status") or {}
    count = {name: status.get(name) or 0 for name in _COUNTS}
    for name, value in count.items():
        if value < 0:
            errors.append(invalid_value(f"status.{name}", value, NEGATIVE))
    for name in _COUNTS[1:4]:
        if count[name] > count["replicas"]:
            errors.append(invalid_value(f"status.{name}", count[name], "cannot be greater than status.replicas"))
    if count["availableReplicas"] > count["readyReplicas"]:
        detail = "cannot be greater than readyReplicas"
        errors.append(invalid_value("status.availableReplicas", count["availableReplicas"], detail))
    return errors


def validate_scale(scale: Json) -> list[FieldError]:
    own = {key: value for key, value in (scale.get("metadata") or {}).items() if key != "generateName"}
    errors = validate_object_meta(own, True, is_dns1123_subdomain)
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        errors.append(invalid_value("spec.replicas", replicas, NEGATIVE))
    return errors


# --- config maps and secrets ----------------------------------------------------------------------------------------


def _decoded(value: Any) -> bytes:
    """The bytes that base64 text stands for; what is none was refused by decode."""
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
    """What encoding/json would say of a text that is to be an object; empty where nothing is wrong."""
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


def validate_service_account(account: Json) -> list[FieldError]:
    return validate_object_meta(account["metadata"], True, is_dns1123_subdomain)


def validate_service_account_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"]) + validate_service_account(new)


# --- endpoints ------------------------------------------------------------------------------------------------------


def _validate_address(address: Json, path: str) -> list[FieldError]:
    text = address.get("ip") or ""
    errors = validate_ip(text, f"{path}.ip")
    if name := address.get("hostname"):
        errors += [invalid_value(f"{path}.hostname", name, message) for message in is_dns1123_label(name)]
    if (node := address.get("nodeName")) is not None:
        errors += [invalid_value(f"{path}.nodeName", node, message) for message in is_dns1123_subdomain(node)]
    return errors + validate_endpoint_ip(text, f"{path}.ip")


def _validate_endpoint_port(port: Json, name_needed: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, number, protocol = port.get("name") or "", port.get("port") or 0, port.get("protocol") or ""
    if name_needed and not name:
        errors.append(required(f"{path}.name"))
    elif name:
        errors += [invalid_value(f"{path}.name", name, message) for message in is_dns1123_label(name)]
    errors += [invalid_value(f"{path}.port", number, message) for message in is_port_number(number)]
    if not protocol:
        errors.append(required(f"{path}.protocol"))
    elif protocol not in PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", protocol, PROTOCOLS))
    if (app := port.get("appProtocol")) is not None:
        errors += [invalid_value(f"{path}.appProtocol", app, message) for message in is_qualified_name(app)]
    return errors


def _validate_subsets(subsets: Sequence[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, subset in enumerate(subsets):
        at = f"subsets[{i}]"
        ports = subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(at, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(name) or ()):
                errors += _validate_address(address, f"{at}.{name}[{j}]")
        for j, port in enumerate(ports):
            errors += _validate_endpoint_port(port, len(ports) > 1, f"{at}.ports[{j}]")
    return errors


def validate_endpoints(endpoints: Json) -> list[FieldError]:
    errors = validate_object_meta(endpoints["metadata"], True, is_dns1123_subdomain)
    return errors + _validate_subsets(endpoints.get("subsets") or ())


def validate_endpoints_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_object_meta_update(new["metadata"], old["metadata"])
    errors += validate_object_meta(new["metadata"], True, is_dns1123_subdomain)
    if new.get("subsets") != old.get("subsets"):
        errors += _validate_subsets(new.get("subsets") or ())
    return errors


# --- events ---------------------------------------------------------------------------------------------------------

_EVENT_LIMITS: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128))
_NOTE_LIMIT: Final = 1024


def validate_event(event: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    namespace = event["metadata"].get("namespace") or ""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    mismatch = invalid_value("involvedObject.namespace", involved, "does not match event.namespace")
    if not event.get("eventTime"):
        if (involved and namespace != involved) or (not involved and namespace not in ("", "default")):
            errors.append(mismatch)
    else:
        if not involved and namespace not in ("default", "kube-system"):
            errors.append(mismatch)
        component = event.get("reportingComponent") or ""
        if not component:
            errors.append(required("reportingComponent"))
        errors += [invalid_value("reportingComponent", component, message) for message in is_qualified_name(component)]
        for name, limit in _EVENT_LIMITS:
            text = event.get(name) or ""
            if not text:
                errors.append(required(name))
            if len(text.encode()) > limit:
                errors.append(invalid_value(name, "", f"can have at most {limit} characters"))
        if len((event.get("message") or "").encode()) > _NOTE_LIMIT:
            errors.append(invalid_value("message", "", f"can have at most {_NOTE_LIMIT} characters"))
    errors += [invalid_value("namespace", namespace, message) for message in is_dns1123_subdomain(namespace)]
    return errors


def validate_event_update(new: Json, old: Json) -> list[FieldError]:
    return validate_event(new)


# --- leases ---------------------------------------------------------------------------------------------------------


def _validate_lease_spec(spec: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    duration_s, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration_s is not None and duration_s <= 0:
        errors.append(invalid_value("spec.leaseDurationSeconds", duration_s, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid_value("spec.leaseTransitions", transitions, NEGATIVE))
    return errors


def validate_lease(lease: Json) -> list[FieldError]:
    errors = meta.validate_object_meta(lease["metadata"], True, is_dns1123_subdomain)
    return errors + _validate_lease_spec(lease.get("spec") or {})


def validate_lease_update(new: Json, old: Json) -> list[FieldError]:
    errors = meta.validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + _validate_lease_spec(new.get("spec") or {})
