"""Claims for devices: requests, and allocations in a claim's status.

Source: `pkg/apis/resource/validation/validation.go`, in its order of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)  # fmt: skip
from minikube_py.api.meta import FIELD_IS_IMMUTABLE, is_dns1123_subdomain
from minikube_py.api.rules import named_by
from minikube_py.api.validation.affinity import validate_node_selector
from minikube_py.api.validation.conditions import validate_conditions
from minikube_py.api.validation.devices import (
    CONFIG_MAX,
    validate_binding_conditions,
    validate_configuration,
    validate_fully_qualified_name,
    validate_items,
    validate_name,
    validate_pool_name,
    validate_raw,
    validate_selectors,
    validate_set,
    validate_toleration,
    validate_uid,
)
from minikube_py.api.validation.go_view import go_view
from minikube_py.api.validation.ips import parse_ip
from minikube_py.api.validation.volume_sources import validate_driver_name
from minikube_py.fields.digits import whole_number

REQUESTS_MAX: Final = 32
CONSTRAINTS_MAX: Final = 32
SUBREQUESTS_MAX: Final = 8
RESERVED_FOR_MAX: Final = 256
RESULTS_MAX: Final = 32
STATUS_CONDITIONS_MAX: Final = 8
INTERFACE_NAME_BYTES_MAX: Final = 256
HARDWARE_ADDRESS_BYTES_MAX: Final = 128
IPS_MAX: Final = 16
_MODES: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")
_UNKNOWN_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_class_name: Final = named_by(is_dns1123_subdomain)

Names = Mapping[str, frozenset[str]]
"""The requests of a claim, with the subrequests of each."""
Refers = Callable[[str, str], list[FieldError]]


def _validate_class_name(name: str | None, path: str) -> list[FieldError]:
    return list(_class_name(name, path)) if name else [required(path)]


def _validate_mode(request: Json, path: str) -> list[FieldError]:
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All":
        why = "must not be specified when allocationMode is 'All'"
        return [invalid_value(f"{path}.count", count, why)] if count else []
    if mode == "ExactCount":
        return [] if count > 0 else [invalid_value(f"{path}.count", count, "must be greater than zero")]
    return [not_supported(f"{path}.allocationMode", mode, _MODES)]


def _validate_exact(request: Json, path: str) -> list[FieldError]:
    errors = _validate_class_name(request.get("deviceClassName"), f"{path}.deviceClassName")
    errors += validate_selectors(request.get("selectors"), f"{path}.selectors")
    errors += _validate_mode(request, path)
    return errors + validate_items(request.get("tolerations"), -1, validate_toleration, f"{path}.tolerations")


def _validate_subrequest(request: Json, path: str) -> list[FieldError]:
    return [*validate_name(request.get("name"), f"{path}.name"), *_validate_exact(request, path)]


def _validate_request(request: Json, path: str) -> list[FieldError]:
    errors = list(validate_name(request.get("name"), f"{path}.name"))
    exactly, listed = request.get("exactly"), request.get("firstAvailable")
    choose = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not listed:
        errors.append(required(path, choose))
    elif exactly is not None and listed:
        errors.append(invalid_value(path, None, f"{choose}, but multiple fields are set"))
    elif listed:
        at = f"{path}.firstAvailable"
        errors += validate_set(listed, SUBREQUESTS_MAX, _validate_subrequest, at, _name_of)
    else:
        assert exactly is not None
        errors += _validate_exact(exactly, f"{path}.exactly")
    return errors


def _name_of(named: Json) -> str:
    return named.get("name") or ""


def _names(devices: Json) -> Names:
    return {
        _name_of(request): frozenset(_name_of(each) for each in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def _refers_to(names: Names) -> Refers:
    """The check of a text that names a request, or a request and one of its subrequests."""

    def check(name: str, path: str) -> list[FieldError]:
        segments = (name or "").split("/")
        if len(segments) > 2:
            return [invalid_value(path, name, _UNKNOWN_REQUEST)]
        errors = [error for segment in segments for error in validate_name(segment, path)]
        subrequests = names.get(segments[0])
        if subrequests is None or (len(segments) == 2 and segments[1] not in subrequests):
            errors.append(invalid_value(path, name or "", _UNKNOWN_REQUEST))
        return errors

    return check


def validate_claim_spec(spec: Json, path: str = "spec") -> list[FieldError]:
    devices, at = spec.get("devices") or {}, f"{path}.devices"
    refers = _refers_to(_names(devices))

    def constraint_check(constraint: Json, where: str) -> list[FieldError]:
        errors = validate_set(constraint.get("requests"), REQUESTS_MAX, refers, f"{where}.requests")
        for name in ("matchAttribute", "distinctAttribute"):
            if constraint.get(name) is not None:
                return errors + validate_fully_qualified_name(constraint[name], f"{where}.{name}")
        why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*errors, required(where, why)]

    def config_check(config: Json, where: str) -> list[FieldError]:
        errors = validate_set(config.get("requests"), REQUESTS_MAX, refers, f"{where}.requests")
        return errors + validate_configuration(config, where)

    errors = validate_set(devices.get("requests"), REQUESTS_MAX, _validate_request, f"{at}.requests", _name_of)
    errors += validate_items(devices.get("constraints"), CONSTRAINTS_MAX, constraint_check, f"{at}.constraints")
    return errors + validate_items(devices.get("config"), CONFIG_MAX, config_check, f"{at}.config")


def immutable(message: str, new: Any, old: Any, path: str) -> list[FieldError]:
    return [] if same_message(message, new, old) else [invalid_value(path, go_view(message, new), FIELD_IS_IMMUTABLE)]


# --- status ---------------------------------------------------------------------------------------------------------


def device_id(device: Json) -> dict[str, str]:
    """Which device, or which share of it, an entry speaks of, as upstream prints it."""
    names = (("Driver", "driver"), ("Pool", "pool"), ("Device", "device"), ("ShareID", "shareID"))
    return {go_name: device.get(name) or "" for go_name, name in names}


def allocated_ids(status: Json) -> list[dict[str, str]]:
    allocation = status.get("allocation") or {}
    return [device_id(result) for result in (allocation.get("devices") or {}).get("results") or ()]


def _validate_consumer(consumer: Json, path: str) -> list[FieldError]:
    return [required(f"{path}.{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]


def validate_interface_address(text: str, path: str) -> list[FieldError]:
    """An address with the length of its subnet, in its canonical form."""
    address, slash, length = text.partition("/")
    ip = parse_ip(address)
    bits = 128 if ":" in address else 32
    if ip is None or not slash or not (length.isascii() and length.isdigit()) or whole_number(length) > bits:
        example = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid_value(path, text, example)]
    size = whole_number(length)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip, size = ip.ipv4_mapped, size - 96 if size > 32 else size
    canonical = f"{ip}/{size}"
    wanted = f"must be in canonical form ({go_quote(canonical)})"
    return [] if text == canonical else [invalid_value(path, text, wanted)]


def _validate_network(network: Json | None, path: str) -> list[FieldError]:
    if network is None:
        return []
    errors = [
        too_long(f"{path}.{name}", limit)
        for name, limit in (
            ("interfaceName", INTERFACE_NAME_BYTES_MAX),
            ("hardwareAddress", HARDWARE_ADDRESS_BYTES_MAX),
        )
        if len((network.get(name) or "").encode()) > limit
    ]
    return errors + validate_set(network.get("ips"), IPS_MAX, validate_interface_address, f"{path}.ips")


def _validate_device(device: Json, path: str, allocated: list[dict[str, str]]) -> list[FieldError]:
    errors = validate_driver_name(device.get("driver"), f"{path}.driver")
    errors += validate_pool_name(device.get("pool"), f"{path}.pool")
    errors += validate_name(device.get("device"), f"{path}.device")
    errors += validate_uid(device.get("shareID"), f"{path}.shareID")
    if (known := device_id(device)) not in allocated:
        errors.append(invalid_value(path, known, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or ()
    if len(conditions) > STATUS_CONDITIONS_MAX:
        errors.append(too_many(f"{path}.conditions", len(conditions), STATUS_CONDITIONS_MAX))
    errors += validate_conditions(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        errors += validate_raw(device["data"], f"{path}.data")
    return errors + _validate_network(device.get("networkData"), f"{path}.networkData")


def _validate_allocation(allocation: Json, path: str, refers: Refers) -> list[FieldError]:
    def result_check(result: Json, where: str) -> list[FieldError]:
        errors = refers(result.get("request") or "", f"{where}.request")
        errors += validate_driver_name(result.get("driver"), f"{where}.driver")
        errors += validate_pool_name(result.get("pool"), f"{where}.pool")
        errors += validate_name(result.get("device"), f"{where}.device")
        errors += validate_binding_conditions(result, where)
        return errors + validate_uid(result.get("shareID"), f"{where}.shareID")

    def config_check(config: Json, where: str) -> list[FieldError]:
        source = config.get("source") or ""
        errors: list[FieldError] = []
        if not source:
            errors.append(required(f"{where}.source"))
        elif source not in _SOURCES:
            errors.append(not_supported(f"{where}.source", source, _SOURCES))
        errors += validate_set(config.get("requests"), REQUESTS_MAX, refers, f"{where}.requests")
        return errors + validate_configuration(config, where)

    devices, at = allocation.get("devices") or {}, f"{path}.devices"
    errors = validate_items(devices.get("results"), RESULTS_MAX, result_check, f"{at}.results")
    errors += validate_items(devices.get("config"), 2 * CONFIG_MAX, config_check, f"{at}.config")
    if allocation.get("nodeSelector") is not None:
        errors += validate_node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")
    return errors


def _is_in(consumer: Json, consumers: list[Json]) -> bool:
    message = "resource/v1.ResourceClaimConsumerReference"
    return any(same_message(message, consumer, each) for each in consumers)


def validate_claim_status(new: Json, old: Json) -> list[FieldError]:
    """Of a status write: reservations, driver data and allocation."""
    status, before = new.get("status") or {}, old.get("status") or {}
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    allocated = allocated_ids(status)
    errors = validate_set(
        reserved, RESERVED_FOR_MAX, _validate_consumer, "status.reservedFor", lambda each: each.get("uid") or ""
    )
    errors += validate_set(
        status.get("devices"),
        -1,
        lambda device, path: _validate_device(device, path, allocated),
        "status.devices",
        device_id,
    )
    if reserved and allocation is None:
        errors.append(forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set"))
    elif reserved and new["metadata"].get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if not all(_is_in(consumer, known) for consumer in reserved):
            why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(forbidden_value("status.reservedFor", why))
    if allocation is None:
        return errors
    if before.get("allocation") is not None:
        return errors + immutable(
            "resource/v1.AllocationResult", allocation, before["allocation"], "status.allocation"
        )
    refers = _refers_to(_names((new.get("spec") or {}).get("devices") or {}))
    return errors + _validate_allocation(allocation, "status.allocation", refers)
