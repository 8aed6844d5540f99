"""Connections never take the file descriptors that the rest of the process needs, and no port takes another's."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import pytest

from minikube_py.ports import descriptors
from minikube_py.ports.descriptors import RESERVED_MIN, Descriptors, PortLimits, raise_descriptors


@dataclass(eq=False)
class Holding:
    name: str
    wanted: PortLimits
    limits: PortLimits


def holding(name: str, connections_max: int) -> Holding:
    limits = PortLimits(connections_max)
    return Holding(name, limits, limits)


PORTS = {"API clients": 20_000, "store clients": 1000, "store members": 128}


@pytest.mark.parametrize("soft", [256, 300, 400, 1024, 4096, 20_000, 1 << 20, -1])
@pytest.mark.parametrize("names", [["API clients"], ["store clients", "store members"], list(PORTS)])
def test_all_ports_together_stay_within_what_the_process_may_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, names: list[str]
) -> None:
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda which: (soft, soft))
    found = Descriptors()
    ports = [holding(name, PORTS[name]) for name in names]
    for port in ports:
        found.add(port)
    if soft > 0:
        assert sum(port.limits.descriptors for port in ports) <= soft - RESERVED_MIN
    for port in ports:
        limits = port.limits
        assert limits.connections_max >= 15 and limits.strangers_max >= 10 and limits.waiting_max >= 10
        assert limits.strangers_per_peer_max <= limits.strangers_max
        assert limits.waiting_per_peer_max <= limits.waiting_max
    if soft in (-1, 1 << 20):
        assert all(port.limits == port.wanted for port in ports) and found.shortage() == ""
    else:
        assert ("ulimit -n" in found.shortage()) == any(port.limits != port.wanted for port in ports)


def test_small_ports_get_what_they_want_before_large_ones_share_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda which: (8192, 8192))
    found = Descriptors()
    ports = [holding(name, most) for name, most in PORTS.items()]
    for port in ports:
        found.add(port)
    api, clients, members = ports
    assert (clients.limits, members.limits) == (clients.wanted, members.wanted)
    assert found.shortage() == (
        "ulimit -n is 8192, which allows these connections: "
        f"API clients {api.limits.connections_max} (of 20000), store clients 1000 (of 1000), "
        "store members 128 (of 128)"
    )
    found.remove(clients)
    assert api.limits.connections_max > 8192 - 256 - members.wanted.descriptors - 1500


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda which: (256, 4096))
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda which, both: told.append((which, both)))
    raise_descriptors()
    assert told == [(resource.RLIMIT_NOFILE, (4096, 4096))]
