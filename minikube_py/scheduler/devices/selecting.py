"""Which devices an expression selects. Source: `k8s.io/dynamic-resource-allocation/cel`."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.device_selectors import COST_MAX, compiled
from minikube_py.cel.allowance import OutOfSteps, counted, within
from minikube_py.cel.kubernetes import semver
from minikube_py.cel.values import EvaluationError, MapWithDefault, type_name
from minikube_py.scheduler.devices.allocator import SelectorError, TooCostly, TooLong
from minikube_py.scheduler.devices.views import Device

STEPS_MAX: Final = 100_000
"""Per expression and device: some 20 ms. Upstream's most expensive expressions may take twenty times as long."""
CYCLE_STEPS_MAX: Final = 500_000
_SHOWN_MAX: Final = 200
KEPT_MAX: Final = 64
"""Maximum expressions whose results are kept with a device."""
_PLAIN: Final = ("int", "bool", "string")


class Selecting:
    """Bounds the evaluation time: an expression over the step limit fails, and a cycle over its total limit continues
    in the next one with the results so far."""

    def __init__(self) -> None:
        self._left = CYCLE_STEPS_MAX

    def begin(self) -> None:
        """A cycle begins."""
        self._left = CYCLE_STEPS_MAX

    def selects(self, expression: str, device: Device) -> bool:
        """Raises: SelectorError; TooLong once the cycle's steps are used up."""
        known = device.selected.get(expression)
        if known is None:
            if self._left <= 0:
                raise TooLong("selectors of devices take too long: more of them next time")
            known, steps = counted(_answered, expression, device)
            self._left -= steps
            if len(device.selected) >= KEPT_MAX:
                device.selected.clear()
            device.selected[expression] = known
        if not isinstance(known, bool):
            raise known.with_traceback(None)
        return known


def _answered(expression: str, device: Device) -> bool | SelectorError:
    # Compilation is cached, so it happens once and the evaluation makes progress.
    compiled(expression)
    try:
        found: bool = within(STEPS_MAX, selects, expression, device)
        return found
    except SelectorError as error:
        return error
    except OutOfSteps:
        why = f"CEL runtime error: it takes more than {STEPS_MAX:,} steps, the limit of this scheduler"
        return TooCostly(f"{why}: {expression[:_SHOWN_MAX]}")


def selects(expression: str, device: Device) -> bool:
    """Without a step limit. Raises: SelectorError."""
    found = compiled(expression)
    if isinstance(found, str):
        raise SelectorError(f"CEL compile error: {found}")
    try:
        value = found.evaluate({"device": _variable(device)}, COST_MAX)
    except EvaluationError as error:
        raise SelectorError(f"CEL runtime error: {error}") from error
    if not isinstance(value, bool):
        kind = type_name(value)
        text = f"CEL result of type {kind} could not be converted to bool"
        raise SelectorError(f"CEL runtime error: {text}: type conversion error from '{kind}' to 'bool'")
    return value


def _variable(device: Device) -> dict[str, Any]:
    """A domain without values on the device is empty. Raises: EvaluationError."""
    attributes: dict[Any, Any] = {}
    for name, attribute in sorted(device.attributes.items()):
        _put(attributes, name, device, _value(name, attribute))
    capacity: dict[Any, Any] = {}
    for name, each in device.capacity.items():
        _put(capacity, name, device, each.value)
    return {
        "driver": device.id.driver,
        "allowMultipleAllocations": device.allows_many,
        "attributes": MapWithDefault(attributes, {}),
        "capacity": MapWithDefault(capacity, {}),
    }


def _put(domains: dict[Any, Any], name: str, device: Device, value: Any) -> None:
    """Unqualified names belong to the driver's domain."""
    domain, slash, own = name.partition("/")
    place = (domain, own) if slash else (device.id.driver, name)
    domains.setdefault(place[0], {})[place[1]] = value


def _value(name: str, attribute: Any) -> Any:
    for kind in _PLAIN:
        if attribute.get(kind) is not None:
            return attribute[kind]
    if attribute.get("version") is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    version = semver(attribute["version"])
    if isinstance(version, EvaluationError):
        raise EvaluationError(f"attribute {name}: parse semantic version: {version}")
    return version
