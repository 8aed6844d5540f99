"""A pod's requests by the first version of the rule, for logs and folders that declare it. Never changed.

The current rule of `free.*` and of Fit is `resource_requests`.

Source: KEP-753 (sidecar containers, "Resources calculation for scheduling and pod admission"), KEP-688 (overhead),
KEP-2837 (pod-level resources). Per resource: the larger of (containers + sidecars) and the largest need while init
containers run one after another beside the sidecars started before them; pod-level requests replace that; overhead is
added. Sums are exact and rounded up once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.fields import quantity
from minikube_py.fields.resource_lists import ResourceLists, add, listed, remember, shape_of

FINISHED_PHASES = frozenset(("Succeeded", "Failed"))
PODS = "pods"

_UNIT_NANOS = 10**9
_MILLI_NANOS = 10**6
_by_shape: dict[tuple[Any, ...], dict[str, int]] = {}
_lists = ResourceLists(lambda value: quantity.from_json(value).at_scale(quantity.NANO))


def is_finished(pod: Mapping[str, Any]) -> bool:
    """A pod whose containers have ended permanently: it holds no resources."""
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return isinstance(phase, str) and phase in FINISHED_PHASES


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Resource name to units (milli for cpu, whole otherwise, rounded up), `pods` counting 1; {} for a finished pod.

    Raises: QuantityError if a request is invalid."""
    if is_finished(pod):
        return {}
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return {PODS: 1}
    shape = shape_of(spec)
    known = _by_shape.get(shape) if shape is not None else None
    if known is None:
        known = _units(spec)
        remember(_by_shape, shape, known)
    return dict(known)


def _units(spec: Mapping[str, Any]) -> dict[str, int]:
    units = {}
    for name, nanos in _total_nanos(spec).items():
        step = _MILLI_NANOS if name == "cpu" else _UNIT_NANOS
        units[name] = -(-nanos // step)
    units[PODS] = units.get(PODS, 0) + 1
    return units


def _total_nanos(spec: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in listed(spec.get("containers")):
        add(total, _lists.requests(container))
    init = spec.get("initContainers")
    if init:
        _raise_to(total, _init_need(total, listed(init)))
    pod_level = _lists.requests(spec)
    if pod_level:
        supported = [name for name in pod_level if name in ("cpu", "memory") or name.startswith("hugepages-")]
        total.update((name, pod_level[name]) for name in supported)
    overhead = spec.get("overhead")
    if isinstance(overhead, dict):
        add(total, _lists.read(overhead))
    return total


def _init_need(total: dict[str, int], init: list[Any]) -> dict[str, int]:
    """The largest need while init containers run; adds the restartable ones (sidecars) to `total`."""
    sidecars: dict[str, int] = {}
    need: dict[str, int] = {}
    for container in init:
        requests = _lists.requests(container)
        if isinstance(container, dict) and container.get("restartPolicy") == "Always":
            add(total, requests)
            add(sidecars, requests)
            _raise_to(need, sidecars)
        else:
            running = dict(requests)
            add(running, sidecars)
            _raise_to(need, running)
    return need


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, nanos in least.items():
        if nanos > total.get(name, -1):
            total[name] = nanos
