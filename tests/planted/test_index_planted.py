"""Bugs planted in structures and in how the past is kept are found by the laws. Here a few; `make planted` runs all."""

from __future__ import annotations

import pytest
from index_mutants import MUTANTS, IndexMutant
from index_planting import search

EXAMPLES = 200
QUICK = (
    "hosted: a row that has changed since is still a candidate",
    "columns: owns up only to what it found",
    "kd-tree: what changes while it is being ordered is lost",
)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.name in QUICK], ids=lambda mutant: mutant.name)
def test_a_planted_bug_breaks_a_law(mutant: IndexMutant) -> None:
    found = search(mutant, EXAMPLES)
    assert found.what, f"{mutant.name} ({mutant.why}) went unnoticed in {EXAMPLES} programs"


def test_the_table_is_sound() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 40
    assert set(QUICK) <= set(names)
    assert all(mutant.old != mutant.new and mutant.why and mutant.structures for mutant in MUTANTS)
