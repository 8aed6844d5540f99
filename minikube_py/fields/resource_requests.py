"""A pod's requests: the rule shared by the store's sums (`pod_requests@2`) and the scheduler.

Source: k8s.io/component-helpers/resource 0.36 (PodRequests), with the options of kube-scheduler 1.36. Per resource: the
larger of (containers + sidecars) and the largest need while init containers run one after another beside the sidecars
started before them; pod-level requests replace that; overhead is added. A container, a sidecar or a pod that is resized
in place counts as the largest of its spec's, its allocated and its actual requests (`status`); an infeasible resize
does not count. Sums are exact and rounded up once, at the end; a single amount counts as 2**127 nano-units at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikube_py.fields import quantity
from minikube_py.fields.pod_requests import PODS, is_finished
from minikube_py.fields.resource_lists import Nanos, ResourceLists, add, listed, remember, shape_of

NANOS_PER_UNIT: Final = 10**9
NANOS_PER_MILLI: Final = 10**6
_NOTHING: Final[Mapping[str, int]] = {}
_lists: Final = ResourceLists(lambda value: quantity.from_json(value).saturated(quantity.NANO))
_by_shape: dict[tuple[Any, ...], dict[str, int]] = {}


def resource_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """Resource name to units (milli for cpu, whole otherwise, rounded up), `pods` counting 1; {} for a finished pod.

    Raises: QuantityError if a request is invalid."""
    if is_finished(pod):
        return {}
    spec, status = pod.get("spec"), pod.get("status")
    if not isinstance(spec, dict):
        return {PODS: 1}
    shape = None if resized(status, spec) else shape_of(spec)
    known = _by_shape.get(shape) if shape is not None else None
    if known is None:
        known = units_of(total_nanos(spec, status))
        known[PODS] = known.get(PODS, 0) + 1
        remember(_by_shape, shape, known)
    return dict(known)


def units_of(nanos: Mapping[str, int]) -> dict[str, int]:
    return {name: -(-value // (NANOS_PER_MILLI if name == "cpu" else NANOS_PER_UNIT)) for name, value in nanos.items()}


def resized(status: Any, spec: Mapping[str, Any]) -> bool:
    """Whether a pod's status affects its requests: it reports other amounts than the spec, or other texts."""
    if not isinstance(status, dict) or repeats(status, spec):
        return False
    if "resources" in status and not _alike(spec, status):
        return True
    names: list[Any] = []
    for states, group in _STATES:
        told = [each for each in listed(status.get(states)) if isinstance(each, dict) and "resources" in each]
        if not told:
            continue
        holders = listed(spec.get(group))
        if len(told) != len(holders) or not all(map(_alike, holders, told)):
            return True
        names += [each.get("name") for each in told]
    return len(names) > 1 and len(set(map(str, names))) != len(names)


def repeats(status: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether the status of the usual pod, with one container, reports the same resources as its spec, textually.
    False: unknown without a closer look."""
    if "resources" in status or "initContainerStatuses" in status:
        return False
    states = status.get("containerStatuses")
    if not states:
        return True
    holders = spec.get("containers")
    if type(states) is not list or type(holders) is not list or len(states) != 1 or len(holders) != 1:
        return False
    state, holder = states[0], holders[0]
    if type(state) is not dict or type(holder) is not dict:
        return False
    if "resources" not in state:
        return True
    now, allocated = state["resources"], state.get("allocatedResources")
    if type(now) is not dict or now != (holder.get("resources") or {}) or state.get("name") != holder.get("name"):
        return False
    return not allocated or bool(allocated == now.get("requests"))


_STATES: Final = (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"))


def _alike(holder: Any, state: Mapping[str, Any]) -> bool:
    resources, now = holder.get("resources") if isinstance(holder, dict) else None, state["resources"]
    wanted = (resources.get("requests") if isinstance(resources, dict) else None) or {}
    if not isinstance(now, dict) or holder.get("name") != state.get("name"):
        return False
    return (now.get("requests") or {}) == wanted and (state.get("allocatedResources") or wanted) == wanted


def total_nanos(spec: Mapping[str, Any], status: Any = None, defaults: Mapping[str, int] | None = None) -> Nanos:
    """Resource name to nano-units. `defaults`, also in nano-units, apply to containers without a request of a resource.
    Raises: QuantityError."""
    told = _Status(status) if resized(status, spec) else None
    total: Nanos = {}
    for container in listed(spec.get("containers")):
        if requests := _container(container, told, defaults):
            add(total, requests)
    sidecars: Nanos = {}
    need: Nanos = {}
    for container in listed(spec.get("initContainers")):
        if isinstance(container, dict) and container.get("restartPolicy") == "Always":
            requests = _container(container, told, defaults)
            add(total, requests)
            add(sidecars, requests)
            _raise_to(need, sidecars)
        else:
            running = dict(_container(container, None, defaults))
            add(running, sidecars)
            _raise_to(need, running)
    _raise_to(total, need)
    for name, nanos in _pod_level(spec, told).items():
        total[name] = nanos
    overhead = spec.get("overhead")
    if isinstance(overhead, dict):
        add(total, _lists.read(overhead))
    return total


def pod_level_requests(spec: Mapping[str, Any]) -> Nanos:
    """The pod-level requests, for the resources that support them. Raises: QuantityError."""
    return {
        name: nanos
        for name, nanos in _lists.requests(spec).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


class _Status:
    """The requests in a pod's status: by container, and of the pod."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.infeasible = _infeasible(status)
        self.pod = status
        self.containers: dict[str, Mapping[str, Any]] = {}
        for field in ("containerStatuses", "initContainerStatuses"):
            for each in listed(status.get(field)):
                if isinstance(each, dict) and isinstance(name := each.get("name"), str):
                    self.containers[name] = each

    def effective(self, spec: Nanos, state: Mapping[str, Any]) -> Nanos:
        """The largest of the desired (unless infeasible), the actual and the allocated one."""
        found = {} if self.infeasible else dict(spec)
        _raise_to(found, _lists.requests(state))
        allocated = state.get("allocatedResources")
        if isinstance(allocated, dict):
            _raise_to(found, _lists.read(allocated))
        return found


def _infeasible(status: Mapping[str, Any]) -> bool:
    for condition in listed(status.get("conditions")):
        if isinstance(condition, dict) and condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _container(container: Any, told: _Status | None, defaults: Mapping[str, int] | None) -> Mapping[str, int]:
    if told is None and defaults is None and isinstance(container, dict) and not container.get("resources"):
        return _NOTHING
    requests = _lists.requests(container)
    if told is not None and isinstance(container, dict):
        name = container.get("name")
        state = told.containers.get(name) if isinstance(name, str) else None
        if state is not None and isinstance(state.get("resources"), dict):
            requests = told.effective(requests, state)
    return requests if defaults is None else {**defaults, **requests}


def _pod_level(spec: Mapping[str, Any], told: _Status | None) -> Nanos:
    level = pod_level_requests(spec)
    if level and told is not None and isinstance(told.pod.get("resources"), dict):
        effective = told.effective(_lists.requests(spec), told.pod)
        return {name: effective.get(name, 0) for name in level}
    return level


def _raise_to(total: Nanos, least: Mapping[str, int]) -> None:
    for name, nanos in least.items():
        known = total.get(name)
        if known is None or nanos > known:
            total[name] = nanos
