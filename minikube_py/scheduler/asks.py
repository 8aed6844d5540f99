"""What a pod's spec asks of its node beside amounts, a place and neighbours: features, and devices by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minikube_py.fields.quantity import wide_units

RESTARTS_ALL = "restarts all containers"
SHARES_HOST_NETWORK = "own users on the host's network"
POD_LEVEL_RESOURCES = "resources at pod level"
_CONTAINERS = ("initContainers", "containers")


class ContainerAsks(NamedTuple):
    """Amounts in whole units, of all that it requests; `ends`: before the containers that come after it start."""

    name: str
    ends: bool
    requests: tuple[tuple[str, int], ...]


def uses_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What a node may have to declare that it can do."""
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
    """All containers, initial ones first, where one asks for what is not native. Raises: QuantityError."""
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


class ContainersCpu(NamedTuple):
    """In thousandths of a core. `each`: (limit, request) of each container, None where it says none."""

    each: tuple[tuple[int | None, int | None], ...] = ()
    overhead: int = 0


def containers_cpu(spec: Mapping[str, Any]) -> ContainersCpu:
    """Raises: QuantityError."""

    def milli(amounts: Mapping[str, Any] | None) -> int | None:
        amount = (amounts or {}).get("cpu")
        return None if amount is None else max(0, wide_units("cpu", amount))

    resources = [container.get("resources") or {} for container in spec.get("containers") or ()]
    each = tuple((milli(of.get("limits")), milli(of.get("requests"))) for of in resources)
    return ContainersCpu(each, milli(spec.get("overhead")) or 0)
