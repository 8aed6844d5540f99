"""When a device claim's pods must go because of the taints of its devices. Pure.

Source: k8s.io/kubernetes/pkg/controller/devicetainteviction (claimEvictionTime), without DeviceTaintRules, whose gate
is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from minikube_py.api.tolerations import Tolerations, fields_of
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.controllers.node_taints import NO_EXECUTE, Taint
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import MetaView, meta_of
from minikube_py.controllers.volume_views import WholeView

DEVICE_SLICES: Final = ResourceRef("resource.k8s.io", "v1", "resourceslices")


class Pool(NamedTuple):
    driver: str
    name: str


Taints = Mapping[str, Sequence[Taint]]
"""NoExecute taints, by the name of a pool's device; devices without any are left out."""


@dataclass(slots=True, eq=False)
class SliceView(MetaView):
    pool: Pool
    generation: int
    taints: Taints


def project_slice(obj: Object) -> SliceView:
    spec, taints = obj["spec"], {}
    for device in spec.get("devices") or ():
        if evicting := tuple(each for each in device.get("taints") or () if each.get("effect") == NO_EXECUTE):
            taints[device["name"]] = evicting
    pool = spec["pool"]
    return SliceView(*meta_of(obj["metadata"]), Pool(spec["driver"], pool["name"]), pool.get("generation") or 0, taints)


def placed_taints(piece: SliceView | None) -> dict[tuple[Pool, int, str], Sequence[Taint]]:
    """By pool, generation and name of the device."""
    if piece is None:
        return {}
    return {(piece.pool, piece.generation, name): taints for name, taints in piece.taints.items()}


def results_of(claim: WholeView) -> Sequence[Mapping[str, Any]]:
    """The devices that it was given."""
    allocation = (claim.obj.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def held_devices(claim: WholeView) -> list[tuple[Pool, str]]:
    return [(Pool(each["driver"], each["pool"]), each["device"]) for each in results_of(claim)]


def due_s(claim: WholeView, taints_of: Callable[[Pool, str], Sequence[Taint]]) -> float | None:
    """When its pods must go, in seconds since the epoch; None: they may stay."""
    found = []
    for result in results_of(claim):
        for taint in taints_of(Pool(result["driver"], result["pool"]), result["device"]):
            allowed_s = tolerated_s(taint, result.get("tolerations") or ())
            if allowed_s is not None:
                found.append((parse_time_s(taint.get("timeAdded") or "") or 0.0) + allowed_s)
    return min(found, default=None)


def tolerated_s(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> float | None:
    """For how long these allow the taint: 0 not at all, None forever. Of several that match, one without limit counts,
    otherwise the shortest. One that names no effect allows no NoExecute taint here, although the allocator obeys it."""
    limits = []
    for toleration in tolerations:
        if toleration.get("effect") != NO_EXECUTE or not _tolerates(toleration, taint):
            continue
        limit_s = toleration.get("tolerationSeconds")
        if limit_s is None:
            return None
        limits.append(max(0.0, float(limit_s)))
    return min(limits, default=0.0)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    found = Tolerations((fields_of(toleration),))
    return found.first(taint.get("key") or "", taint.get("value") or "", NO_EXECUTE) is not None
