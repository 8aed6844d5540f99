"""Bugs planted for the simulator are found by its checkers. Here those that few histories suffice for; `make planted`
runs all of them and prints how many each took.
"""

from __future__ import annotations

import re

import pytest
from cluster_mutants import MUTANTS as CLUSTER_MUTANTS
from planting import ROOT
from swarm_mutants import MUTANTS, SwarmMutant
from swarm_planting import search

HISTORIES = 20
CLUSTER_HISTORIES = 8
CLUSTER_QUICK = ("scheduler cache: a deleted pod stays counted",)
QUICK = (
    "raft: votes for two in one term",
    "raft: acknowledged before it is durable",
    "raft: the leader counts entries that its disk does not have yet",
    "raft: matching entries are cut too",
)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.name in QUICK], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_by_simulated_histories(mutant: SwarmMutant) -> None:
    found = search(mutant, HISTORIES)
    assert found.seed is not None, f"{mutant.name} ({mutant.why}) went unnoticed in {HISTORIES} histories"


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTER_QUICK)
def test_a_planted_bug_is_found_by_histories_of_a_control_plane(name: str) -> None:
    (mutant,) = [each for each in CLUSTER_MUTANTS if each.name == name]
    assert search(mutant, CLUSTER_HISTORIES, "cluster").seed is not None, f"{name} ({mutant.why}) went unnoticed"


def test_without_a_bug_a_history_is_in_order() -> None:
    """In a copy, too: `tests/sim/test_swarm_histories.py` judges forty of the same on the code as it is."""
    assert search(None, 1).seed is None


@pytest.mark.parametrize(
    ("mutants", "least", "quick"), [(MUTANTS, 25, QUICK), (CLUSTER_MUTANTS, 15, CLUSTER_QUICK)], ids=["store", "plane"]
)
def test_the_table_is_sound(mutants: tuple[SwarmMutant, ...], least: int, quick: tuple[str, ...]) -> None:
    names = [mutant.name for mutant in mutants]
    assert len(set(names)) == len(names) >= least
    assert set(quick) <= set(names)
    assert all(mutant.old != mutant.new and mutant.why for mutant in mutants)


def test_the_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert {int(each) for each in re.findall(r"injects (\d+) bugs", page)} == {len(MUTANTS), len(CLUSTER_MUTANTS)}
    for mutants in (MUTANTS, CLUSTER_MUTANTS):
        assert [each.name for each in mutants if page.count(f"| {each.name} |") != 1] == []
