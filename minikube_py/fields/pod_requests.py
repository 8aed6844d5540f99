"""What a pod asks of its node: the sum that `free.*` is computed from and that Fit compares.

Source: KEP-753 (sidecar containers, "Resources calculation for scheduling and pod admission"), KEP-688 (overhead),
KEP-2837 (pod-level resources). Per resource: the larger of (containers + sidecars) and the largest need while init
containers run one after another beside the sidecars started before them; pod-level requests take the place of that;
overhead is added. Sums are exact and rounded up once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.fields import quantity

FINISHED_PHASES = frozenset(("Succeeded", "Failed"))
PODS = "pods"

_NANO = quantity.NANO
_UNIT_NANOS = 10**9
_MILLI_NANOS = 10**6
_OTHERS = frozenset(("initContainers", "resources", "overhead"))
_nanos: dict[str, int] = {}
_by_shape: dict[tuple[Any, ...], dict[str, int]] = {}
_CACHE_LIMIT = 20_000


def is_finished(pod: Mapping[str, Any]) -> bool:
    """A pod whose containers have ended for good: it holds no resources any more."""
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return isinstance(phase, str) and phase in FINISHED_PHASES


def pod_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Resource name to units (milli for cpu, whole otherwise, rounded up), `pods` counting 1; {} for a finished pod.

    Raises: QuantityError where a request cannot be read."""
    if is_finished(pod):
        return {}
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return {PODS: 1}
    shape = _shape(spec)
    known = _by_shape.get(shape) if shape is not None else None
    if known is None:
        known = _units(spec)
        if shape is not None:
            if len(_by_shape) >= _CACHE_LIMIT:
                _by_shape.clear()
            _by_shape[shape] = known
    return dict(known)


def _shape(spec: dict[str, Any]) -> tuple[Any, ...] | None:
    """What decides the answer for the usual pod, one container and nothing else that counts; None for all others."""
    containers = spec.get("containers")
    if type(containers) is not list or len(containers) != 1 or not _OTHERS.isdisjoint(spec):
        return None
    container = containers[0]
    resources = container.get("resources") if type(container) is dict else None
    requests = resources.get("requests") if type(resources) is dict else None
    if type(requests) is not dict:
        return ()
    for value in requests.values():
        if type(value) is not str:
            return None
    return tuple(requests.items())


def _units(spec: Mapping[str, Any]) -> dict[str, int]:
    units = {}
    for name, nanos in _total_nanos(spec).items():
        step = _MILLI_NANOS if name == "cpu" else _UNIT_NANOS
        units[name] = -(-nanos // step)
    units[PODS] = units.get(PODS, 0) + 1
    return units


def _total_nanos(spec: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in _list(spec.get("containers")):
        _add(total, _requests(container))
    init = spec.get("initContainers")
    if init:
        _raise_to(total, _init_need(total, _list(init)))
    pod_level = _requests(spec)
    if pod_level:
        supported = [name for name in pod_level if name in ("cpu", "memory") or name.startswith("hugepages-")]
        total.update((name, pod_level[name]) for name in supported)
    overhead = spec.get("overhead")
    if isinstance(overhead, dict):
        _add(total, _read_list(overhead))
    return total


def _init_need(total: dict[str, int], init: list[Any]) -> dict[str, int]:
    """The largest need while init containers run; adds the restartable ones (sidecars) to `total`."""
    sidecars: dict[str, int] = {}
    need: dict[str, int] = {}
    for container in init:
        requests = _requests(container)
        if isinstance(container, dict) and container.get("restartPolicy") == "Always":
            _add(total, requests)
            _add(sidecars, requests)
            _raise_to(need, sidecars)
        else:
            running = dict(requests)
            _add(running, sidecars)
            _raise_to(need, running)
    return need


def _requests(holder: Any) -> dict[str, int]:
    """The requests of a container, or of a pod's spec, in nano-units."""
    resources = holder.get("resources") if isinstance(holder, dict) else None
    requests = resources.get("requests") if isinstance(resources, dict) else None
    return _read_list(requests) if isinstance(requests, dict) and requests else {}


def _read_list(resources: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in resources.items():
        nanos = _nanos.get(value) if type(value) is str else None
        if nanos is None:
            nanos = quantity.from_json(value).at_scale(_NANO)
            if type(value) is str:
                if len(_nanos) >= _CACHE_LIMIT:
                    _nanos.clear()
                _nanos[value] = nanos
        found[name] = nanos
    return found


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, nanos in least.items():
        if nanos > total.get(name, -1):
            total[name] = nanos


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
