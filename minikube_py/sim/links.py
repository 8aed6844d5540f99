"""Links between places, each direction for itself: what becomes of a message, and when it arrives.

A place is a member's or a client's. Nothing here knows what is sent. Faults overlap: each stays in force until it is
taken back itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from minikube_py.env import Rng

LATENCY_US: Final = (200, 1200)
LOCAL_US: Final = 20
HELD: Final = 1 << 62
"""The arrival of what waits in a clogged link: it is not known yet."""

Pair = tuple[int, int]


@dataclass(slots=True)
class Link:
    """`cuts` and `clogs` count the faults in force; of `loss`, `double` and `delays` the largest counts."""

    cuts: int = 0
    clogs: int = 0
    loss: list[float] = field(default_factory=list)
    double: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.cuts or self.clogs or self.loss or self.double or self.delays)


class Links:
    """All links of a cluster, each with a latency out of `latency_us`. `lost` and `doubled` count messages."""

    def __init__(self, rng: Rng, latency_us: tuple[int, int] = LATENCY_US) -> None:
        self._rng = rng
        self.latency_us = latency_us
        self._links: dict[Pair, Link] = {}
        self._last_arrival: dict[Pair, int] = {}
        self.lost = 0
        self.doubled = 0

    def link(self, sender: int, receiver: int) -> Link:
        found = self._links.get((sender, receiver))
        if found is None:
            found = self._links[sender, receiver] = Link()
        return found

    def is_cut(self, sender: int, receiver: int) -> bool:
        link = self._links.get((sender, receiver))
        return link is not None and link.cuts > 0

    def arrivals(self, now_us: int, sender: int, receiver: int) -> tuple[int, ...]:
        """When a message sent now arrives: not at all, once, or more often. In order on a sound link; on one with
        delays each message takes its own time."""
        rng = self._rng
        low, high = (LOCAL_US, LOCAL_US) if sender == receiver else self.latency_us
        at_us = now_us + rng.randint(low, high)
        link = self._links.get((sender, receiver))
        if link is None or link.sound:
            at_us = max(at_us, self._last_arrival.get((sender, receiver), 0) + 1)
            self._last_arrival[sender, receiver] = at_us
            return (at_us,)
        if link.cuts or (link.loss and rng.random() < max(link.loss)):
            self.lost += 1
            return ()
        if link.clogs:
            return (HELD,)
        if link.delays:
            at_us += round(rng.random() * max(link.delays))
        if link.double and rng.random() < max(link.double):
            self.doubled += 1
            return (at_us, at_us + rng.randint(1, 50_000))
        return (at_us,)

    def pairs(self, senders: Iterable[int], receivers: Iterable[int]) -> list[Pair]:
        """The links from each to each, in order; none from a place to itself."""
        targets = list(receivers)
        return [(sender, receiver) for sender in senders for receiver in targets if sender != receiver]

    def heal(self) -> None:
        """All faults end, and all links are quick."""
        self._links.clear()
        self.latency_us = LATENCY_US
