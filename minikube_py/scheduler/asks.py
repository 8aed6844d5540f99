"""What a pod's spec requires of its node beyond amounts, location and neighbours: features, and named devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from minikube_py.fields.quantity import wide_units
from minikube_py.fields.resource_requests import resized

RESTARTS_ALL = "restarts all containers"
SHARES_HOST_NETWORK = "own users on the host's network"
POD_LEVEL_RESOURCES = "resources at pod level"
_CONTAINERS = ("initContainers", "containers")
_RESIZED = ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources", "conditions")


class ContainerAsks(NamedTuple):
    """Requested amounts in whole units; `ends`: terminates before later containers start."""

    name: str
    ends: bool
    requests: tuple[tuple[str, int], ...]


def uses_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Features that a node may have to declare."""
    found = []
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            rules = container.get("restartPolicyRules")
            if rules and any(rule.get("action") == "RestartAllContainers" for rule in rules):
                found.append(RESTARTS_ALL)
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        found.append(SHARES_HOST_NETWORK)
    if "resources" in spec:
        found.append(POD_LEVEL_RESOURCES)
    return tuple(found)


def asks_of(spec: Mapping[str, Any]) -> tuple[ContainerAsks, ...]:
    """All containers, init containers first, if one requests a non-native resource. Raises: QuantityError."""
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            for name in (container.get("resources") or {}).get("requests") or ():
                if "/" in name:
                    return _asks_of(spec)
    return ()


def _asks_of(spec: Mapping[str, Any]) -> tuple[ContainerAsks, ...]:
    found = [(container, field) for field in _CONTAINERS for container in spec.get(field) or ()]
    requests = [(container.get("resources") or {}).get("requests") or {} for container, _ in found]
    asks = [tuple((name, wide_units(name, amount)) for name, amount in each.items()) for each in requests]
    return tuple(
        ContainerAsks(
            container.get("name", ""), field != "containers" and container.get("restartPolicy") != "Always", amounts
        )
        for (container, field), amounts in zip(found, asks, strict=True)
    )


def resources_key(spec: Mapping[str, Any], status: Mapping[str, Any]) -> object:
    """A hashable of all inputs to the requests and CPU limits."""
    parts: list[object] = []
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        parts.append(tuple((resources.get("requests") or {}).items()))
        if limits := resources.get("limits"):
            parts.append(("limit", limits.get("cpu")))
    for container in spec.get("initContainers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        parts.append((container.get("restartPolicy"), tuple(requests.items())))
    if "overhead" in spec:
        parts.append(("overhead", tuple(spec["overhead"].items())))
    if spec.get("resources"):
        parts.append(("pod", tuple((spec["resources"].get("requests") or {}).items())))
    if resized(status, spec):
        names = [container.get("name") for field in _CONTAINERS for container in spec.get(field) or ()]
        parts.append((tuple(names), *(orjson.dumps(status.get(field)) for field in _RESIZED)))
    return tuple(parts)


class ContainersCpu(NamedTuple):
    """In thousandths of a core. `each`: (limit, request) per container, None where unset. `trimaran`: what the pod
    requests as trimaran counts, CPU and bytes of memory; None where Kubernetes counts the same."""

    each: tuple[tuple[int | None, int | None], ...] = ()
    overhead: int = 0
    trimaran: tuple[int, int] | None = None


def containers_cpu(spec: Mapping[str, Any]) -> ContainersCpu:
    """Raises: QuantityError."""

    def milli(amounts: Mapping[str, Any] | None) -> int | None:
        amount = (amounts or {}).get("cpu")
        return None if amount is None else max(0, wide_units("cpu", amount))

    resources = [container.get("resources") or {} for container in spec.get("containers") or ()]
    each = tuple((milli(of.get("limits")), milli(of.get("requests"))) for of in resources)
    return ContainersCpu(each, milli(spec.get("overhead")) or 0, _trimaran(spec))


def _trimaran(spec: Mapping[str, Any]) -> tuple[int, int] | None:
    """Sidecars are init containers like any other, and nothing is requested at pod level (GetResourceRequested of
    pkg/trimaran/resourcestats.go)."""
    inits = spec.get("initContainers") or ()
    if not spec.get("resources") and all(each.get("restartPolicy") != "Always" for each in inits):
        return None

    def amount(amounts: Mapping[str, Any] | None, name: str) -> int:
        return max(0, wide_units(name, (amounts or {}).get(name, "0")))

    def requested(name: str) -> int:
        both = (spec.get("containers") or (), inits)
        own, before = ([amount((of.get("resources") or {}).get("requests"), name) for of in each] for each in both)
        return max(sum(own), *before, 0) + amount(spec.get("overhead"), name)

    return requested("cpu"), requested("memory")
