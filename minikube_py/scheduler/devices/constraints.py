"""What the devices of a claim must have in common, or must not. Monotonic: a violation stays one with more devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from minikube_py.scheduler.devices.views import Device, Request

Value = tuple[str, Any]


class Constraint(Protocol):
    def add(self, request: Request, device: Device) -> bool:
        """False, without recording it, if the device must not be added."""

    def remove(self, request: Request, device: Device) -> None: ...


class _OnAttribute:
    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self._requests = requests
        self._attribute = attribute

    def _concerns(self, request: Request) -> bool:
        if not self._requests:
            return True
        return request.base_name in self._requests or request.full_name in self._requests

    def _has(self, device: Device) -> tuple[bool, Value | None]:
        """Whether the attribute exists, and its value if that is comparable."""
        attribute = device.attributes.get(self._attribute)
        if attribute is None:
            domain, slash, name = self._attribute.partition("/")
            attribute = device.attributes.get(name) if slash and domain == device.id.driver else None
        if attribute is None:
            return False, None
        return True, next(((kind, attribute[kind]) for kind in _ORDER if attribute.get(kind) is not None), None)


_ORDER = ("string", "int", "bool", "version")


class Match(_OnAttribute):
    """All have the same value of the attribute."""

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: Value | None = None
        self._count = 0

    def add(self, request: Request, device: Device) -> bool:
        if not self._concerns(request):
            return True
        has, value = self._has(device)
        if not has or (self._count and (value is None or value != self._value)):
            return False
        if not self._count:
            self._value = value
        self._count += 1
        return True

    def remove(self, request: Request, device: Device) -> None:
        if self._concerns(request):
            self._count -= 1


class Distinct(_OnAttribute):
    """All have different values of the attribute. As upstream, only the latest device of each request counts."""

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, Value | None] = {}
        self._count = 0

    def add(self, request: Request, device: Device) -> bool:
        if not self._concerns(request):
            return True
        has, value = self._has(device)
        if not has or (self._count and ((self._values and value is None) or value in self._values.values())):
            return False
        self._values[request.base_name] = value
        self._count += 1
        return True

    def remove(self, request: Request, device: Device) -> None:
        if self._concerns(request):
            self._values.pop(request.base_name, None)
            self._count -= 1


def constraint_of(spec: Mapping[str, Any]) -> Constraint | None:
    """None if its kind is unknown."""
    requests = frozenset(spec.get("requests") or ())
    if spec.get("matchAttribute") is not None:
        return Match(requests, spec["matchAttribute"])
    if spec.get("distinctAttribute") is not None:
        return Distinct(requests, spec["distinctAttribute"])
    return None
