"""Forty simulated histories of at least 200 operations, all checked. `make swarm` runs as many as one likes."""

from __future__ import annotations

import pytest

from minikube_py.sim.swarm import run_block, told

BLOCK = 5


@pytest.mark.parametrize("block", range(8))
def test_no_history_goes_wrong(block):
    results = run_block(range(block * BLOCK, (block + 1) * BLOCK))
    assert len(results) == BLOCK
    for done in results:
        assert not done.violations and not done.crashed, told(done)
        assert not done.undecided, done.undecided
        assert done.counts["operations"] >= 200
        # A full disk refuses writes for as long as it is full; nothing else keeps a history from its work.
        without_room = done.counts["refused without room"]
        full = ("fault full", "fault full_start", "fault full_heirs")
        assert not without_room or sum(done.counts[fault] for fault in full)
        assert done.counts["done"] >= (60 if without_room else 100)
        assert done.counts["done"] + without_room >= 100
