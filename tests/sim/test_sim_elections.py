"""With two healthy survivors a new leader stands within two election timeouts, whatever their disks and links are like.

The published distribution is of more kills: tests/bench/bench_elections.py."""

from __future__ import annotations

import pytest
from elections import WORLDS, ElectionWorld, Interregna

SEEDS = 4


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "lossy links"])
def test_a_new_leader_stands_within_two_election_timeouts(world: str) -> None:
    found = Interregna()
    for seed in range(SEEDS):
        found.add(ElectionWorld(seed, WORLDS[world]).go())
    assert found.share_within(2.0) >= 0.98, sorted(found.timeouts)[-5:]
    assert found.terms.count(1) >= len(found.terms) - 1, "votes are hardly ever split"


def test_lost_segments_cost_what_tcp_takes_to_send_them_again() -> None:
    found = ElectionWorld(0, WORLDS["lossy links"]).go()
    assert max(found.timeouts) < 4 and max(found.terms) <= 2
