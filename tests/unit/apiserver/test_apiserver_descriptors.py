"""Connections never take the file descriptors that the store and the workers need."""

from __future__ import annotations

import resource

import pytest

from minikube_py.apiserver import limits
from minikube_py.apiserver.limits import Limits, raise_descriptors, within_descriptors


@pytest.mark.parametrize(("soft", "most"), [(400, 144), (300, 75), (1024, 768), (1 << 20, 20_000), (-1, 20_000)])
def test_connections_are_bounded_by_the_descriptors_of_the_process(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (soft, soft))
    found = within_descriptors(Limits())
    assert found.connections_max == most
    assert found.waiting_per_peer_max == min(4096, most // 2)
    assert found.waiting_max == min(8192, most // 2)


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (256, 4096))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda which, both: told.append((which, both)))
    raise_descriptors()
    assert told == [(resource.RLIMIT_NOFILE, (4096, 4096))]
