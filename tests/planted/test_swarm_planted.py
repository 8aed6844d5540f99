"""Bugs planted for the simulator are found by its checkers. Here those that few histories suffice for; `make planted`
runs all of them and prints how many each took.
"""

from __future__ import annotations

import pytest
from swarm_mutants import MUTANTS, SwarmMutant
from swarm_planting import search

HISTORIES = 20
QUICK = (
    "raft: votes for two in one term",
    "raft: acknowledged before it is durable",
    "raft: the leader counts what its disk does not have yet",
    "raft: matching entries are cut too",
)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.name in QUICK], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_by_simulated_histories(mutant: SwarmMutant) -> None:
    found = search(mutant, HISTORIES)
    assert found.seed is not None, f"{mutant.name} ({mutant.why}) went unnoticed in {HISTORIES} histories"


def test_without_a_bug_the_same_histories_are_in_order() -> None:
    assert search(None, HISTORIES // 2).seed is None


def test_the_table_is_sound() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 25
    assert set(QUICK) <= set(names)
    assert all(mutant.old != mutant.new and mutant.why for mutant in MUTANTS)
