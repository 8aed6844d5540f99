"""Hints that send each zone's traffic to as many endpoints as its share of CPU asks for (`topology-mode: Auto`). Pure.

Source: k8s.io/endpointslice/topologycache. Where upstream follows the random order of a map, zones come by name here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minikube_py.client.events import NORMAL
from minikube_py.client.rest import Object
from minikube_py.controllers.slices import Plan, with_hints
from minikube_py.controllers.views import EndpointSliceView, NodeView, ServiceView
from minikube_py.fields.quantity import milli_units

OVERLOAD_MAX: Final = 0.2
"""By this share an endpoint may have more traffic than were it spread evenly."""
_APART: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_ENABLED: Final = "Topology Aware Hints has been enabled"
_NO_ZONE: Final = "One or more endpoints do not have a zone specified"
_NO_NODES: Final = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
_TOO_FEW: Final = "Insufficient number of endpoints"
_UNEVEN: Final = (
    "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
)


@dataclass(slots=True)
class Share:
    """How many endpoints a zone is to have."""

    least: int
    desired: float
    most: int = 0


Shares = dict[str, Share]


class Topology:
    """The zones' shares of CPU, and the endpoints that services have in each: `hinted[key][address type][zone]`."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}
        self.hinted: dict[str, dict[str, Mapping[str, int]]] = {}
        self._enabled: set[str] = set()

    def set_nodes(self, nodes: Iterable[NodeView]) -> None:
        """One ready node without zone or CPU, and nothing is known of any."""
        cpu: Counter[str] = Counter()
        self._ratios = {}
        for node in nodes:
            if node.ready != "True" or any(label in node.labels for label in _APART):
                continue
            zone, own = node.labels.get("topology.kubernetes.io/zone"), milli_units(node.cpu)
            if not zone or not own:
                return
            cpu[zone] += own
        if len(cpu) > 1:
            self._ratios = {zone: cpu[zone] / cpu.total() for zone in sorted(cpu)}

    def overloaded(self) -> list[str]:
        """Services with too few endpoints for a zone."""
        return [key for key, by_type in self.hinted.items() if any(map(self._overloads, by_type.values()))]

    def _overloads(self, hinted: Mapping[str, int]) -> bool:
        total = sum(hinted.values())
        return not self._ratios or any(
            zone not in hinted or hinted[zone] < _least(total * ratio) for zone, ratio in self._ratios.items()
        )

    def hint(
        self, found: Plan, service: ServiceView, existing: list[EndpointSliceView], address_type: str
    ) -> str:
        """Gives the endpoints of a plan hints, and of slices that were to stay as they are. Why there can be none, or
        ""."""
        touched = found.touched()
        left = [view for view in existing if view not in touched]
        held = [view.endpoints for view in left] + [piece.endpoints for piece in (*found.create, *found.update)]
        shares = self.shares(sum(is_ready(endpoint) for endpoints in held for endpoint in endpoints))
        if isinstance(shares, str):
            return shares
        given = Counter[str]()
        for view in left:
            kept = standing(view.endpoints, given, shares)
            if kept is None:
                found.update.append(with_hints(view, service, [dict(each) for each in view.endpoints]))
            else:
                given += kept
        if not spread([piece.endpoints for piece in (*found.create, *found.update)], given, shares):
            return _NO_ZONE
        if self.enable(service.key, address_type, given):
            told = f"{_ENABLED}, addressType: {address_type}"
            found.told.append((NORMAL, "TopologyAwareHintsEnabled", told))
        return ""

    def enable(self, key: str, address_type: str, hinted: Mapping[str, int]) -> bool:
        """Whether the service had none before."""
        before = key in self._enabled
        self._enabled.add(key)
        self.hinted.setdefault(key, {})[address_type] = hinted
        return not before

    def disable(self, key: str, address_type: str) -> bool:
        """Whether the service had hints."""
        by_type = self.hinted.get(key, {})
        by_type.pop(address_type, None)
        if not by_type:
            self.hinted.pop(key, None)
        before = key in self._enabled
        self._enabled.discard(key)
        return before

    def shares(self, ready: int) -> Shares | str:
        """Of this many endpoints; or why there are none."""
        zones = len(self._ratios)
        if not zones:
            return _NO_NODES
        counted = f"({ready} endpoints, {zones} zones)"
        if zones > ready:
            return f"{_TOO_FEW} {counted}"
        found = {}
        for zone, ratio in self._ratios.items():
            least = _least(ratio * ready)
            found[zone] = Share(least, max(ratio * ready, least))
        spare = ready - sum(share.least for share in found.values())
        if spare < 0:
            return f"{_UNEVEN} {counted}"
        for share in found.values():
            share.most = share.least + spare
        return found


def _least(desired: float) -> int:
    return math.ceil(desired * (1 / (1 + OVERLOAD_MAX)))


def is_ready(endpoint: Mapping[str, Any]) -> bool:
    return bool((endpoint.get("conditions") or {}).get("ready"))


def standing(endpoints: Iterable[Mapping[str, Any]], given: Mapping[str, int], shares: Shares) -> Counter[str] | None:
    """The hints of a slice that may stay as it is, by zone; None where it may not."""
    found: Counter[str] = Counter()
    for endpoint in filter(is_ready, endpoints):
        zones = [each["name"] for each in (endpoint.get("hints") or {}).get("forZones") or ()]
        if not zones or any(zone not in shares for zone in zones):
            return None
        found.update(zones)
    fits = all(count + given.get(zone, 0) <= shares[zone].most for zone, count in found.items())
    return found if fits else None


def spread(slices: Sequence[list[Object]], given: Counter[str], shares: Shares) -> bool:
    """Gives the endpoints of slices hints: for their own zones, and of those that have too many, for others. `given`:
    hints by zone, which is updated. False where an endpoint has no zone."""
    for endpoints in slices:
        for at, endpoint in enumerate(endpoints):
            if is_ready(endpoint):
                if not (zone := endpoint.get("zone")):
                    return False
                given[zone] += 1
                endpoints[at] = _for(endpoint, zone)
    giving, receiving = exchange(shares, given)
    for endpoints in slices:
        for at, endpoint in enumerate(endpoints):
            if not giving or not receiving:
                return True
            zone = endpoint.get("zone", "")
            if is_ready(endpoint) and giving[zone]:
                other = next(iter(receiving))
                endpoints[at] = _for(endpoint, other)
                given[other] += 1
                given[zone] -= 1
                giving -= Counter([zone])
                receiving -= Counter([other])
    return True


def _for(endpoint: Object, zone: str) -> Object:
    return {**endpoint, "hints": {"forZones": [{"name": zone}]}}


def exchange(shares: Shares, given: Mapping[str, int]) -> tuple[Counter[str], Counter[str]]:
    """How many endpoints zones give to others, and get."""
    over = {zone: given.get(zone, 0) - share.desired for zone, share in shares.items()}
    too_many = {zone: more for zone, more in over.items() if more > 0}
    too_few = {zone: -more for zone, more in over.items() if more < 0}
    giving, receiving = Counter[str](), Counter[str]()
    while too_many and too_few:
        one, other = max(too_many, key=too_many.__getitem__), max(too_few, key=too_few.__getitem__)
        more, less = too_many[one], too_few[other]
        if (more < 1 and less < 1) or more < 0.5 or less < 0.5:
            break
        giving[one] += 1
        receiving[other] += 1
        too_many[one] -= 1
        too_few[other] -= 1
    return giving, receiving
