"""Limits of one connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`streams_max`: concurrent streams. `header_bytes_max`: of a request's fields, and of their block.
    `continuations_max`: further frames of a block. `idle_frames_max`: consecutive frames without effect (settings,
    priorities, empty ones, those of ended streams), with no request and no answer of ours between them. `resets_max`,
    `resets_per_s`: streams that the peer may end before they are answered, as burst and rate. `resized_max`,
    `resized_per_s`: streams whose window its settings may change, likewise. `window_bytes`: unconsumed data of all
    streams. `ping_least_s`: between two pings, if we send nothing between them; after
    `pings_early_max` earlier ones the connection ends."""

    streams_max: int = 1024
    header_bytes_max: int = 16 << 10
    continuations_max: int = 8
    idle_frames_max: int = 1_000
    resets_max: int = 1_000
    resets_per_s: float = 100.0
    resized_max: int = 16_384
    resized_per_s: float = 10_000.0
    window_bytes: int = 1 << 20
    ping_least_s: float = 5.0
    pings_early_max: int = 2


class Allowance:
    """A token bucket: a burst, and then a rate per second."""

    __slots__ = ("_at_s", "_left", "_most", "_per_s")

    def __init__(self, most: int, per_s: float) -> None:
        self._most = self._left = float(most)
        self._per_s = per_s
        self._at_s: float | None = None

    def take(self, now_s: float, tokens: int = 1) -> bool:
        """Whether so many tokens were left."""
        if self._at_s is not None:
            self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < tokens:
            return False
        self._left -= tokens
        return True
