"""Slices: the devices that a driver offers on a node, on some nodes or on all.

Source: `pkg/apis/resource/validation/validation.go`, in its order of errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    invalid_value,
    required,
    too_long,
)  # fmt: skip
from minikube_py.api.meta import validate_immutable
from minikube_py.api.validation.affinity import validate_node_selector
from minikube_py.api.validation.devices import (
    DOMAIN_MAX,
    IDENTIFIER_MAX,
    validate_binding_conditions,
    validate_entries,
    validate_items,
    validate_name,
    validate_node_name,
    validate_pool_name,
    validate_qualified_name,
    validate_set,
    validate_taint,
)
from minikube_py.api.validation.go_view import go_view
from minikube_py.api.validation.volume_sources import validate_driver_name
from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

DEVICES_MAX: Final = 128
DEVICES_WITH_MORE_MAX: Final = 64
"""Where any of them has taints or consumes counters."""
COUNTER_SETS_MAX: Final = 8
COUNTERS_MAX: Final = 32
CONSUMED_SETS_MAX: Final = 2
ATTRIBUTES_MAX: Final = 32
ATTRIBUTE_VALUES_MAX: Final = 48
VALUE_BYTES_MAX: Final = 64
TAINTS_MAX: Final = 16
OPTIONS_MAX: Final = 10
_KEY_MAX: Final = DOMAIN_MAX + 1 + IDENTIFIER_MAX
_LABEL_MAX: Final = 63
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_ONE_VALUE: Final = "exactly one value must be specified"


# --- capacities -----------------------------------------------------------------------------------------------------


def _validate_step(value: Quantity, least: Quantity, step: Quantity, path: str) -> list[FieldError]:
    size = step.value()
    # Upstream divides, and fails as a whole, where the step is zero.
    if size != 0 and (value.value() - least.value()) % size == 0:
        return []
    why = f"value is not a multiple of a given step ({step}) from ({least})"
    return [invalid_value(path, str(value), why)]


def _validate_range(default: Quantity, most: Quantity, limits: Json, path: str) -> list[FieldError]:
    if limits.get("min") is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    least, errors = quantity.parse(limits["min"]), []
    if least.compare(most) > 0:
        errors.append(invalid_value(f"{path}.min", str(least), f"min is larger than capacity value: {most}"))
    if default.compare(least) < 0:
        errors.append(invalid_value(f"{path}.min", str(default), f"default is less than min: {least}"))
    limit = None if limits.get("max") is None else quantity.parse(limits["max"])
    if limit is not None:
        if least.compare(limit) > 0:
            errors.append(invalid_value(f"{path}.max", str(least), f"min is larger than max: {limit}"))
        if limit.compare(most) > 0:
            errors.append(invalid_value(f"{path}.max", str(limit), f"max is larger than capacity value: {most}"))
        if default.compare(limit) > 0:
            errors.append(invalid_value(f"{path}.max", str(default), f"default is more than max: {limit}"))
    if limits.get("step") is not None:
        step = quantity.parse(limits["step"])
        added = least.plus(step)
        if added.compare(most) > 0:
            why = f"one step {added} is larger than capacity value: {most}"
            errors.append(invalid_value(f"{path}.step", str(step), why))
        errors += _validate_step(default, least, step, f"{path}.step")
        if limit is not None:
            errors += _validate_step(limit, least, step, f"{path}.step")
    return errors


def _validate_options(default: Quantity, most: Quantity, options: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    parsed = [quantity.parse(option) for option in options]
    for i, following in enumerate(parsed[1:]):
        if parsed[i].compare(following) > 0:
            why = "values must be sorted in ascending order"
            errors.append(invalid_value(f"{path}[{i + 1}]", str(following), why))

    def check(option: Quantity, where: str) -> list[FieldError]:
        why = f"option is larger than capacity value: {most}"
        return [invalid_value(where, str(option), why)] if option.compare(most) > 0 else []

    errors += validate_set(parsed, OPTIONS_MAX, check, path, lambda option: str(option.value()))
    if len(parsed) > OPTIONS_MAX or not any(option.compare(default) == 0 for option in parsed):
        why = "default value is not valid according to the requestPolicy"
        errors.append(invalid_value(path, str(default), why))
    return errors


def _validate_shared_capacity(capacity: Json, path: str) -> list[FieldError]:
    """Of a device that several claims may have at a time."""
    policy, at = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return []
    most = quantity.parse(capacity.get("value") or "0")
    options, limits, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if options and limits is not None:
        why = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_value(at, why)]
    if options:
        if default is None:
            return [required(f"{at}.default", "required when validValues is defined")]
        return _validate_options(quantity.parse(default), most, options, f"{at}.validValues")
    if limits is not None:
        if default is None:
            return [required(f"{at}.default", "required when validRange is defined")]
        return _validate_range(quantity.parse(default), most, limits, f"{at}.validRange")
    return []


def _validate_sole_capacity(capacity: Json, path: str) -> list[FieldError]:
    if capacity.get("requestPolicy") is None:
        return []
    return [forbidden_value(f"{path}.requestPolicy", "allowMultipleAllocations must be true")]


# --- attributes and counters ----------------------------------------------------------------------------------------


def _validate_attribute(attribute: Json, path: str) -> list[FieldError]:
    given = [name for name in ("bool", "int", "string", "version") if attribute.get(name) is not None]
    errors: list[FieldError] = []
    if "string" in given and len(attribute["string"].encode()) > VALUE_BYTES_MAX:
        errors.append(too_long(f"{path}.string", VALUE_BYTES_MAX))
    if "version" in given:
        version = attribute["version"]
        if not _SEMVER.fullmatch(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            errors.append(invalid_value(f"{path}.version", version, why))
        if len(version.encode()) > VALUE_BYTES_MAX:
            errors.append(too_long(f"{path}.version", VALUE_BYTES_MAX))
    if not given:
        errors.append(invalid_value(path, "", _ONE_VALUE))
    elif len(given) > 1:
        errors.append(invalid_value(path, go_view("resource/v1.DeviceAttribute", attribute), _ONE_VALUE))
    return errors


def _any_counter(counter: Json, path: str) -> list[FieldError]:
    return []


def _validate_counters(counters: Mapping[str, Json] | None, path: str) -> list[FieldError]:
    if not counters:
        return [required(path)]
    return validate_entries(counters, COUNTERS_MAX, _LABEL_MAX, validate_name, _any_counter, path)


def _validate_set_name(name: str | None, path: str) -> list[FieldError]:
    return list(validate_name(name, path)) if name else [required(path)]


def _validate_counter_set(counters: Json, path: str) -> list[FieldError]:
    errors = _validate_set_name(counters.get("name"), f"{path}.name")
    return errors + _validate_counters(counters.get("counters"), f"{path}.counters")


def _validate_consumption(consumed: Json, path: str) -> list[FieldError]:
    errors = _validate_set_name(consumed.get("counterSet"), f"{path}.counterSet")
    return errors + _validate_counters(consumed.get("counters"), f"{path}.counters")


# --- devices --------------------------------------------------------------------------------------------------------


def _listed(names: list[str]) -> str:
    return "{" + ", ".join(f"`{name}`" for name in names) + "}"


def _validate_place(holder: Json, path: str, empty: str) -> tuple[list[str], list[FieldError]]:
    """Which of `nodeName`, `nodeSelector` and `allNodes` are set, and what is wrong with them."""
    found: list[str] = []
    errors: list[FieldError] = []
    name, selector, everywhere = holder.get("nodeName"), holder.get("nodeSelector"), holder.get("allNodes")
    if name:
        found.append("nodeName")
        errors += validate_node_name(name, f"{path}.nodeName")
    elif name is not None:
        errors.append(invalid_value(f"{path}.nodeName", name, empty))
    if selector is not None:
        found.append("nodeSelector")
        errors += validate_node_selector(selector, f"{path}.nodeSelector")
    return found, errors + _validate_flag(everywhere, f"{path}.allNodes", "allNodes", found)


def _validate_flag(flag: bool | None, path: str, name: str, found: list[str]) -> list[FieldError]:
    if flag:
        found.append(name)
    return [invalid_value(path, flag, "must be either unset or set to true")] if flag is False else []


def _validate_device_place(device: Json, path: str, each_its_own: bool) -> list[FieldError]:
    if not each_its_own:
        if all(device.get(name) is None for name in ("nodeName", "nodeSelector", "allNodes")):
            return []
        why = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in "
            "the ResourceSlice spec"
        )
        return [invalid_value(path, None, why)]
    found, errors = _validate_place(device, path, "must not be empty")
    choose = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )
    if not found:
        errors.append(required(path, choose))
    elif len(found) > 1:
        errors.append(invalid_value(path, _listed(found), choose))
    return errors


def _same_taints(device: Json, old: Json | None) -> bool:
    return old is not None and same_message(
        "resource/v1.Device", {"taints": device.get("taints")}, {"taints": old.get("taints")}
    )


def _validate_device(device: Json, path: str, old: Json | None, each_its_own: bool) -> list[FieldError]:
    errors = list(validate_name(device.get("name"), f"{path}.name"))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    for count, limit, what in (
        (len(attributes) + len(capacity), ATTRIBUTES_MAX, "attributes and capacities"),
        (len(attributes), ATTRIBUTE_VALUES_MAX, "attribute values"),
    ):
        if count > limit:
            errors.append(invalid_value(path, count, f"the total number of {what} must not exceed {limit}"))
    errors += validate_entries(
        attributes, -1, _KEY_MAX, validate_qualified_name, _validate_attribute, f"{path}.attributes"
    )
    check = _validate_shared_capacity if device.get("allowMultipleAllocations") else _validate_sole_capacity
    errors += validate_entries(capacity, -1, _KEY_MAX, validate_qualified_name, check, f"{path}.capacity")
    if not _same_taints(device, old):
        errors += validate_items(device.get("taints"), TAINTS_MAX, validate_taint, f"{path}.taints")
    errors += validate_set(
        device.get("consumesCounters"),
        CONSUMED_SETS_MAX,
        _validate_consumption,
        f"{path}.consumesCounters",
        lambda consumed: consumed.get("counterSet") or "",
    )
    errors += _validate_device_place(device, path, each_its_own)
    return errors + validate_binding_conditions(device, path)


# --- slices ---------------------------------------------------------------------------------------------------------


def _validate_pool(pool: Json, path: str) -> list[FieldError]:
    errors = validate_pool_name(pool.get("name"), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        errors.append(invalid_value(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid_value(f"{path}.generation", generation, "must be greater than or equal to zero"))
    return errors


def _validate_slice_place(spec: Json) -> list[FieldError]:
    found, errors = _validate_place(spec, "spec", "must be either unset or set to a non-empty string")
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms")
    if spec.get("nodeSelector") is not None and len(terms or ()) != 1:
        shown = None if terms is None else [go_view("core/v1.NodeSelectorTerm", term) for term in terms]
        at = next((i for i, error in enumerate(errors) if error.field == "spec.allNodes"), len(errors))
        wanted = "must have exactly one node selector term"
        errors.insert(at, invalid_value("spec.nodeSelector.nodeSelectorTerms", shown, wanted))
    name = "perDeviceNodeSelection"
    errors += _validate_flag(spec.get(name), f"spec.{name}", name, found)
    choose = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not found:
        errors.append(required("spec", choose))
    elif len(found) > 1:
        errors.append(invalid_value("spec", _listed(found), f"{choose}, but multiple fields are set"))
    return errors


_EITHER: Final = ("devices", "sharedCounters")


def validate_slice_spec(spec: Json, old: Json | None = None) -> list[FieldError]:
    errors = validate_driver_name(spec.get("driver"), "spec.driver")
    pool, devices = spec.get("pool") or {}, spec.get("devices") or ()
    errors += _validate_pool(pool, "spec.pool")
    if old is not None:
        errors += validate_immutable(pool.get("name"), (old.get("pool") or {}).get("name"), "spec.pool.name")
        errors += validate_immutable(spec.get("driver"), old.get("driver"), "spec.driver")
        if spec.get("nodeName") != old.get("nodeName"):
            errors.append(invalid_value("spec.nodeName", spec.get("nodeName"), "field is immutable"))
    errors += _validate_slice_place(spec)
    if all(spec.get(name) is not None for name in _EITHER):
        errors.append(invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    for name in _EITHER:
        if spec.get(name) == []:
            # Kept until here, as Go tells it from none.
            del spec[name]
    before: dict[str, Json] = {}
    for device in (old or {}).get("devices") or ():
        before.setdefault(device.get("name") or "", device)
    each_its_own = bool(spec.get("perDeviceNodeSelection"))

    def check(device: Any, path: str) -> list[FieldError]:
        return _validate_device(device, path, before.get(device.get("name") or ""), each_its_own)

    with_more = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = DEVICES_WITH_MORE_MAX if with_more else DEVICES_MAX
    errors += validate_set(devices, limit, check, "spec.devices", lambda device: device.get("name") or "")
    return errors + validate_set(
        spec.get("sharedCounters"),
        COUNTER_SETS_MAX,
        _validate_counter_set,
        "spec.sharedCounters",
        lambda counters: counters.get("name") or "",
    )


