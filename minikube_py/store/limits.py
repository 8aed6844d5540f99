"""Limits of the native protocol. The error states the limit that was exceeded."""

from __future__ import annotations

from dataclasses import dataclass

FRAME_BYTES_MAX = 4 << 20
"""The largest frame either side accepts: a request of 1.5 MiB with a margin. Larger answers are split."""
HELLO_BYTES_MAX = 4096
"""The largest frame from a client that has not sent a token yet."""
PART_BYTES = 512 << 10
LARGE_AT_ONCE = 4
"""Multi-page ranges read concurrently, over all connections; further ones wait."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """`in_flight_max`: unanswered requests of one connection, beyond which the server stops reading from it.
    `watch_bytes_max`: events queued for a slow watch, beyond which it ends. `stall_s`: a connection that takes no bytes
    for this long while some are queued is closed. `hello_s`: the time a new connection has to identify itself;
    `drain_s`: the time an ending one has to take its last answers."""

    connections_max: int = 1000
    in_flight_max: int = 4096
    watches_max: int = 10_000
    watch_bytes_max: int = 32 << 20
    write_buffer_bytes: int = 1 << 20
    stall_s: float = 60.0
    hello_s: float = 10.0
    drain_s: float = 2.0
