"""A pod's total requests and limits, as quantities that print as upstream's.

`fields.resource_requests` has the sums of the same rule as plain numbers, for the store and the scheduler.
Source: component-helpers `resource/helpers.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikube_py.api.errors import Json
from minikube_py.api.memo import remembered
from minikube_py.api.quota.amounts import Amounts, largest, plus, read
from minikube_py.fields import quantity


def is_pod_level(name: str) -> bool:
    """Whether it can be a pod-level resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def given(holder: Json, which: str) -> Mapping[str, str]:
    found: Mapping[str, str] = (holder.get("resources") or {}).get(which) or {}
    return found


def of_containers(pod: Json, which: str) -> Amounts:
    """Total requests or limits of all containers, including init containers and sidecars."""
    spec, status = pod["spec"], pod.get("status") or {}
    listed = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    states = {each.get("name"): each for each in listed}
    infeasible = _infeasible(status)

    def own(container: Json, resizable: bool = True) -> Amounts:
        wanted, state = read(given(container, which)), states.get(container.get("name"))
        if not resizable or state is None or state.get("resources") is None:
            return wanted
        in_force = read(given(state, which))
        allocated = read(state.get("allocatedResources")) if which == "requests" else {}
        return largest(in_force, allocated) if infeasible else largest(wanted, in_force, allocated)

    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = plus(total, own(container))
    beside: Amounts = {}
    before: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            asked = own(container)
            total, beside = plus(total, asked), plus(beside, asked)
            before = largest(before, beside)
        else:
            before = largest(before, plus(own(container, False), beside))
    return largest(total, before)


def _infeasible(status: Json) -> bool:
    pending = [each for each in status.get("conditions") or () if each.get("type") == "PodResizePending"]
    return bool(pending) and pending[0].get("reason") == "Infeasible"


def requests_of(pod: Json) -> Amounts:
    """Raises: QuantityError."""
    spec = pod["spec"]
    own = {name: amount for name, amount in read(given(spec, "requests")).items() if is_pod_level(name)}
    return plus({**of_containers(pod, "requests"), **own}, read(spec.get("overhead")))


def limits_of(pod: Json) -> Amounts:
    """Raises: QuantityError."""
    spec = pod["spec"]
    own = {name: amount for name, amount in read(given(spec, "limits")).items() if is_pod_level(name)}
    limits = {**of_containers(pod, "limits"), **own}
    over = read(spec.get("overhead"))
    return {name: each.plus(over[name]) if name in over and each.unscaled else each for name, each in limits.items()}


@remembered(4096)
def _milli(text: str) -> int:
    return quantity.parse(text).milli_value()


_QOS_RESOURCES: Final = ("cpu", "memory")


def qos_class(spec: Json) -> str:
    """`Guaranteed` where all containers limit cpu and memory and ask for as much, `BestEffort` where none asks for
    any, `Burstable` otherwise. Pod-level resources, where given, decide alone."""
    holders = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if spec.get("resources") is not None:
        holders = [spec]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    limited = True
    for holder in holders:
        resources = holder.get("resources")
        if not resources:
            limited = False
            continue
        if given := resources.get("requests"):
            for name in _QOS_RESOURCES:
                if name in given and (amount := _milli(given[name])) > 0:
                    requests[name] = requests.get(name, 0) + amount
        found = 0
        if given := resources.get("limits"):
            for name in _QOS_RESOURCES:
                if name in given and (amount := _milli(given[name])) > 0:
                    limits[name] = limits.get(name, 0) + amount
                    found += 1
        if found < len(_QOS_RESOURCES):
            limited = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if limited and requests == limits else "Burstable"
