"""The node order of a partial search: zones in round robin, and where the next search starts.

Only such a search maintains it. Upstream rebuilds its list on node additions and removals, not on zone changes.
Source: pkg/scheduler/backend/cache/node_tree.go, cache.go (UpdateSnapshot); component-helpers, GetZoneKey.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from minikube_py.scheduler.framework import IntArray

BETA, STABLE = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"


def zone_of(labels: Mapping[str, str]) -> tuple[str, str]:
    """Region and zone. A beta label takes precedence over the stable one, even if it is empty."""
    region, zone = (labels.get(BETA + key, labels.get(STABLE + key, "")) for key in ("region", "zone"))
    return region, zone


class NodeOrder:
    """`slots`: of all nodes, in order; `places`: the inverse. `next_start`: where the next search of any profile
    starts."""

    __slots__ = ("_listed", "_slots", "_stale", "_zone_of", "_zones", "next_start", "places", "slots")

    def __init__(self) -> None:
        self.next_start = 0
        self.slots: IntArray = np.zeros(0, np.int64)
        self.places: IntArray = self.slots
        self._slots: dict[str, int] = {}
        self._zone_of: dict[str, tuple[str, str]] = {}
        self._zones: dict[tuple[str, str], dict[str, None]] = {}
        self._listed: list[str] = []
        self._stale = False

    def put(self, name: str, slot: int, labels: Mapping[str, str]) -> None:
        zone = zone_of(labels)
        if self._slots.get(name) != slot:
            self._slots[name] = slot
            self._stale = True
        if self._zone_of.get(name) != zone:
            self._leave(name)
            self._zone_of[name] = zone
            self._zones.setdefault(zone, {})[name] = None

    def remove(self, name: str) -> None:
        self._leave(name)
        del self._zone_of[name], self._slots[name]
        self._stale = True

    def _leave(self, name: str) -> None:
        zone = self._zone_of.get(name)
        if zone is not None:
            del self._zones[zone][name]
            if not self._zones[zone]:
                del self._zones[zone]

    def bring_up_to_date(self) -> None:
        """Call at the start of each scheduling cycle."""
        if not self._stale:
            return
        self._stale = False
        if len(self._listed) != len(self._slots) or not all(name in self._slots for name in self._listed):
            rows = zip_longest(*self._zones.values())
            self._listed = [name for row in rows for name in row if name is not None]
        self.slots = np.array([self._slots[name] for name in self._listed], np.int64)
        self.places = np.zeros(max(self._slots.values(), default=-1) + 1, np.int64)
        self.places[self.slots] = np.arange(len(self.slots))

    def move_on(self, looked_at: int) -> None:
        """Advances the start of the next search by this many nodes."""
        self.next_start = (self.next_start + looked_at) % max(len(self.slots), 1)
