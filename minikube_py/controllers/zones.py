"""How fast the pods of failed nodes may be evicted, zone by zone. Pure.

If most of a zone is down, the likely cause is the network, not the nodes. Source:
k8s.io/kubernetes/pkg/controller/nodelifecycle (ComputeZoneState, handleDisruption).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

UNHEALTHY_NODES_MIN: Final = 3
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"


class ZoneState(Enum):
    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


def zone_of(labels: Mapping[str, str]) -> str:
    """Empty if a node names neither region nor zone."""
    region, zone = labels.get(REGION, ""), labels.get(ZONE, "")
    return f"{region}:\x00:{zone}" if region or zone else ""


def zone_state(ready: int, not_ready: int, unhealthy_share: float) -> ZoneState:
    if ready == 0 and not_ready > 0:
        return ZoneState.FULL_DISRUPTION
    if not_ready >= UNHEALTHY_NODES_MIN and not_ready / (ready + not_ready) >= unhealthy_share:
        return ZoneState.PARTIAL_DISRUPTION
    return ZoneState.NORMAL


def eviction_rate_per_s(
    state: ZoneState, size: int, rate_per_s: float, secondary_rate_per_s: float, large_size: int
) -> float:
    """Nodes per second. A small zone under partial disruption evicts nothing."""
    if state is ZoneState.PARTIAL_DISRUPTION:
        return secondary_rate_per_s if size > large_size else 0.0
    return rate_per_s


@dataclass(slots=True)
class ZoneQueue:
    """Nodes of one zone that await their NoExecute taint; at most one token is saved."""

    rate_per_s: float
    state: ZoneState = ZoneState.INITIAL
    waiting: dict[str, None] = field(default_factory=dict)
    tokens: float = 1.0
    at_s: float = 0.0

    def set_rate(self, rate_per_s: float, now_s: float) -> None:
        if rate_per_s != self.rate_per_s:
            self.rate_per_s, self.tokens, self.at_s = rate_per_s, 1.0, now_s

    def take(self, now_s: float) -> str | None:
        """The next node to taint, if one waits and the rate allows."""
        if not self.waiting or self.rate_per_s <= 0:
            return None
        self.tokens = min(1.0, self.tokens + (now_s - self.at_s) * self.rate_per_s)
        self.at_s = now_s
        # Deadlines are computed from the rate, and rounding may miss them by a hair.
        if self.tokens < 1.0 - 1e-6:
            return None
        self.tokens -= 1.0
        node = next(iter(self.waiting))
        del self.waiting[node]
        return node

    def next_s(self, now_s: float) -> float | None:
        """Seconds until `take` may return a node; None if it cannot."""
        if not self.waiting or self.rate_per_s <= 0:
            return None
        tokens = min(1.0, self.tokens + (now_s - self.at_s) * self.rate_per_s)
        return max(0.0, (1.0 - tokens) / self.rate_per_s)
