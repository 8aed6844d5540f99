"""Devices shared by capacity. Source: `structured/internal/incubating/consumable_capacity.go`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.fields.quantity import Quantity, from_json, from_value
from minikube_py.scheduler.devices.views import Amounts, Capacity


def consumed(asked: Mapping[str, Quantity], capacity: Mapping[str, Capacity]) -> Amounts:
    """The capacity that a request takes from a device."""
    return {name: _taken(asked.get(name), each) for name, each in capacity.items()}


def fits(
    asked: Mapping[str, Quantity], capacity: Mapping[str, Capacity], *in_use: Mapping[str, Quantity] | None
) -> bool:
    """Whether the device has the requested capacity beside what is in use. A capacity it lacks never fits."""
    if any(name not in capacity for name in asked):
        return False
    for name, each in capacity.items():
        total = _taken(asked.get(name), each)
        if each.policy is not None and _is_against(total, each.policy):
            return False
        for used in in_use:
            if used is not None and name in used:
                total = total.plus(used[name])
        if total.compare(each.value) > 0:
            return False
    return True


def _taken(asked: Quantity | None, capacity: Capacity) -> Quantity:
    policy = capacity.policy or {}
    if asked is None:
        default = policy.get("default")
        return capacity.value if default is None else from_json(default)
    valid_range = policy.get("validRange")
    if valid_range is not None and valid_range.get("min") is not None:
        return _rounded_up(asked, valid_range)
    for value in policy.get("validValues") or ():
        valid = from_json(value)
        if asked.compare(valid) <= 0:
            return valid
    return asked


def _rounded_up(asked: Quantity, valid_range: Mapping[str, Any]) -> Quantity:
    low = from_json(valid_range["min"])
    if asked.compare(low) < 0:
        return low
    if valid_range.get("step") is None:
        return asked
    step = from_json(valid_range["step"]).value()
    steps = -(-(asked.value() - low.value()) // step)
    return from_value(low.value() + step * steps, "BinarySI")


def _is_against(taken: Quantity, policy: Mapping[str, Any]) -> bool:
    default, valid_range = policy.get("default"), policy.get("validRange")
    if default is not None and taken.compare(from_json(default)) == 0:
        return False
    if valid_range is not None:
        if valid_range.get("max") is not None and taken.compare(from_json(valid_range["max"])) > 0:
            return True
        if valid_range.get("step") is None:
            return False
        low, step = from_json(valid_range.get("min")).value(), from_json(valid_range["step"]).value()
        return (taken.value() - low) % step != 0
    valid = policy.get("validValues") or ()
    return bool(valid) and all(taken.compare(from_json(value)) != 0 for value in valid)
