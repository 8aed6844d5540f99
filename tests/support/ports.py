"""Ports for servers whose addresses others must know before they listen."""

from __future__ import annotations

import random
import socket

RANGE = range(12_000, 20_000)
"""Above the ports at which roles answer for their health, and below what systems give to outgoing connections: one of
those may take a port between a look at it and its use."""


def free_ports(count: int) -> list[int]:
    """So many different ones on which nobody listens now, at random, so that tests that look at once do not meet."""
    held: list[socket.socket] = []
    try:
        for port in random.Random().sample(RANGE, len(RANGE)):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                each.bind(("127.0.0.1", port))
                each.listen(1)
            except OSError:
                each.close()
                continue
            held.append(each)
            if len(held) == count:
                return [each.getsockname()[1] for each in held]
        raise AssertionError(f"fewer than {count} ports from {RANGE.start} to {RANGE.stop} are free")
    finally:
        for each in held:
            each.close()
