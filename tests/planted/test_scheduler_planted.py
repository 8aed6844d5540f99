"""Bugs planted in the scheduler are found by its general judges. Here those found soon; `make planted` runs all."""

from __future__ import annotations

import pytest
from scheduler_mutants import JUDGES
from scheduler_planting import MUTANTS, search

QUICK = (
    "columns: of two pods with one claim the first to go takes it along",
    "queue: what happened while a pod was tried is forgotten",
    "preemption: a budget protects one pod too many",
    "flow: more pods of a class than fit go through machine classes",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    (mutant,) = [each for each in MUTANTS if each.name == name]
    assert search(mutant).noticed, f"{name} ({mutant.why}) went unnoticed"


def test_the_table_is_sound() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 50
    assert set(QUICK) <= set(names)
    assert all(mutant.old != mutant.new and mutant.why and mutant.near in JUDGES for mutant in MUTANTS)
