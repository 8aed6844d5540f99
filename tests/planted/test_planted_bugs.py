"""Planted bugs: each is found by an unchanged, general checker, which passes on the code as it is.

`mutants.py` and `api_mutants.py` are the tables. A checker that cannot tell a bug from its absence proves nothing, so a
bug that goes unnoticed fails here, and calls for a stronger general test - never for a test of that bug alone.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from api_mutants import MUTANTS as OF_API
from api_mutants import QUICK
from mutants import INFORMER, Mutant
from mutants import MUTANTS as OF_ALL_ELSE
from planting import ROOT, SEEDS, copy_package, plant, run_checker
from warm import Warm

ALL = bool(os.environ.get("MINIKUBE_PY_PLANTED"))
MUTANTS = (*OF_ALL_ELSE, *(mutant for mutant in OF_API if ALL or mutant.name in QUICK))
CHECKERS = sorted({mutant.checker for mutant in MUTANTS})
if not ALL:
    # Each checker is a test of the suite, which passes it on the code as it is. Here one passes in a copy, too;
    # `make planted` runs all.
    CHECKERS = [INFORMER]


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_checker_passes_on_the_code_as_it_is(checker: str, tmp_path: Path, record_property, warm: Warm) -> None:
    copy_package(tmp_path)
    verdict = run_checker(tmp_path, checker, SEEDS[0], warm=warm)
    record_property("planted", ("- (no bug)", f"{checker} passes", verdict.duration_s))
    assert verdict.passed, verdict.output


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path, record_property, warm: Warm) -> None:
    copy_package(tmp_path)
    plant(tmp_path, mutant)
    duration_s = 0.0
    for seed in sorted(SEEDS, key=lambda seed: seed != mutant.seed):
        verdict = run_checker(tmp_path, mutant.checker, seed, warm=warm)
        duration_s += verdict.duration_s
        if not verdict.passed:
            break
    found_by = verdict.failed or "NOT FOUND"
    record_property("planted", (mutant.name, f"{found_by} (seed {seed})", duration_s))
    assert verdict.failed, f"{mutant.name} ({mutant.why}) went unnoticed by {mutant.checker}:\n{verdict.output}"


def test_the_table_is_sound() -> None:
    assert max(Counter(mutant.name for mutant in (*OF_ALL_ELSE, *OF_API)).values()) == 1
    assert len(OF_ALL_ELSE) >= 16 and len(OF_API) >= 40 and {mutant.name for mutant in OF_API} >= set(QUICK)
    for mutant in (*OF_ALL_ELSE, *OF_API):
        assert mutant.old != mutant.new and mutant.why, mutant.name
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"plants {len(OF_API)} in what guards and shares objects" in page
