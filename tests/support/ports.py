"""Ports for servers whose addresses others must know before they listen.

Above the roles' health ports, and below the ephemeral range: an outgoing connection might take a port between the check
and its use. Each process of a test run has a separate range, and reuses none until most were used."""

from __future__ import annotations

import os
import random
import socket

WORKERS_MAX = 4
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX
_RANGE = range(12_000, 20_000)
_OWN = _RANGE[_WORKER::WORKERS_MAX]
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """This many different ones without a current listener."""
    if len(_given) + count > len(_OWN) * 3 // 4:
        _given.clear()
    found: list[int] = []
    for port in random.Random().sample(_OWN, len(_OWN)):
        if port not in _given and _is_free(port):
            found.append(port)
            _given.add(port)
            if len(found) == count:
                return found
    raise AssertionError(f"fewer than {count} ports from {_RANGE.start} to {_RANGE.stop} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True
