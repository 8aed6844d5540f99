"""What the native protocol bounds. Each limit names itself when it is hit."""

from __future__ import annotations

from dataclasses import dataclass

FRAME_BYTES_MAX = 4 << 20
"""The largest frame either side takes: a request of 1.5 MiB with room to spare. Larger answers come in parts."""
HELLO_BYTES_MAX = 4096
"""The largest frame from someone who has not shown a token yet."""
PART_BYTES = 512 << 10
LARGE_AT_ONCE = 4
"""Ranges of more than one page that are read at once, for all connections; the next ones wait."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """`in_flight_max`: requests of one connection that wait for their answer; beyond it the server stops reading from
    it. `watch_bytes_max`: events that wait for one watch of a reader who does not keep up; beyond it that watch ends.
    `stall_s`: a connection that takes no bytes for so long while some wait for it is closed; a new one has
    `hello_s` to say who it is; one that is to end has `drain_s` to take its last answers."""

    connections_max: int = 1000
    in_flight_max: int = 4096
    watches_max: int = 10_000
    watch_bytes_max: int = 32 << 20
    write_buffer_bytes: int = 1 << 20
    stall_s: float = 60.0
    hello_s: float = 10.0
    drain_s: float = 2.0
