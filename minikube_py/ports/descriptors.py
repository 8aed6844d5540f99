"""The file descriptors of this process, divided among all its ports so that none starves another."""

from __future__ import annotations

import contextlib
import resource
import weakref
from dataclasses import dataclass, replace
from typing import Final, Protocol

RESERVED: Final = 256
"""Descriptors reserved for files, worker processes, and outgoing connections."""
RESERVED_MIN: Final = 64
"""The same if the limit is small: a whole control plane in one process has 14 open without clients."""


@dataclass(frozen=True, slots=True)
class PortLimits:
    """Limits of a port. Waiting is a socket that has sent nothing, or is queued; a stranger is a connection during its
    handshake, or without an authenticated user; all others are authenticated, and never closed in favour of those.
    Where they reach their limit, the user who has most makes room for others.

    `connections_max`: authenticated connections. `handshake_s`: from the acceptance to the end of the handshake.
    `proof_s`: from the acceptance to authentication. `patience_s`: a stranger idle for this long is closed if others
    from the same address wait for its place."""

    connections_max: int
    waiting_max: int = 1024
    waiting_per_peer_max: int = 512
    strangers_max: int = 128
    strangers_per_peer_max: int = 64
    handshake_s: float = 10.0
    proof_s: float = float("inf")
    patience_s: float = 1.0

    @classmethod
    def proving(cls, connections_max: int, hello_s: float) -> PortLimits:
        """For a port where each connection authenticates first."""
        return cls(connections_max, handshake_s=hello_s, proof_s=hello_s)

    @property
    def descriptors(self) -> int:
        return self.connections_max + self.waiting_max + self.strangers_max

    def within(self, descriptors: int) -> PortLimits:
        """The same with at most this many descriptors: at most a quarter for waiting ones, one for strangers."""
        if self.descriptors <= descriptors:
            return self
        waiting = min(self.waiting_max, max(descriptors // 4, 1))
        strangers = min(self.strangers_max, max(descriptors // 4, 1))
        return replace(
            self,
            connections_max=min(self.connections_max, max(descriptors - waiting - strangers, 1)),
            waiting_max=waiting,
            waiting_per_peer_max=min(self.waiting_per_peer_max, waiting),
            strangers_max=strangers,
            strangers_per_peer_max=min(self.strangers_per_peer_max, max(strangers // 2, 1)),
        )


class Holder(Protocol):
    """Uses descriptors: requests `wanted` and is `granted` what is available."""

    name: str
    wanted: PortLimits
    limits: PortLimits


class Descriptors:
    """Divides the system's limit (`ulimit -n`), minus a reserve, among the open ports: each gets what it wants, or an
    equal share of what ports that want less have left."""

    def __init__(self) -> None:
        self._holders: weakref.WeakKeyDictionary[Holder, None] = weakref.WeakKeyDictionary()

    def add(self, holder: Holder) -> None:
        self._holders[holder] = None
        self._divide()

    def remove(self, holder: Holder) -> None:
        self._holders.pop(holder, None)
        holder.limits = holder.wanted
        self._divide()

    def _divide(self) -> None:
        soft = allowed()
        left = soft - min(RESERVED, max(soft // 4, RESERVED_MIN))
        holders = sorted(self._holders, key=lambda each: (each.wanted.descriptors, each.name))
        for index, holder in enumerate(holders):
            share = max(left // (len(holders) - index), 1)
            holder.limits = holder.wanted.within(share)
            left -= min(share, holder.wanted.descriptors)

    def shortage(self) -> str:
        """The reduced limits of ports, as text; "" if each has what it wants."""
        short = sorted(each.name for each in self._holders if each.limits != each.wanted)
        if not short:
            return ""
        parts = [
            f"{each.name} {each.limits.connections_max} (of {each.wanted.connections_max})"
            for each in sorted(self._holders, key=lambda each: each.name)
            if each.wanted.connections_max
        ]
        return f"ulimit -n is {allowed()}, which allows these connections: {', '.join(parts)}"


def allowed() -> int:
    """Descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def raise_descriptors() -> None:
    """Raises the limit of file descriptors as far as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


PROCESS: Final = Descriptors()
"""The descriptors of this process."""
