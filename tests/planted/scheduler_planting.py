"""Plants each bug in a copy of the scheduler, and puts it to one general judge after the other until one finds it.

usage: python tests/planted/scheduler_planting.py [--only TEXT] [--seeds N] [--jobs J] [--json FILE]

Prints for each bug the test that failed. Exits with 1 if one went unnoticed: a law is missing. The judges run without a
bug first, and must pass.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flow_mutants import MUTANTS as OF_FLOW
from mutants import Mutant
from planting import SEEDS, copy_package, plant, run_checker
from planting_command import look_for, parse
from scheduler_mutants import JUDGES, SchedulerMutant
from scheduler_mutants import MUTANTS as OF_SCHEDULER

MUTANTS = (*OF_SCHEDULER, *OF_FLOW)
PATIENCE = 10
"""A judge that finds nothing wrong is done within seconds, but several run at a time."""


class Found(NamedTuple):
    """`by` is "" where it went unnoticed."""

    name: str
    by: str
    runs: int
    duration_s: float

    @property
    def noticed(self) -> bool:
        return bool(self.by)

    def row(self) -> str:
        return f"{self.name:<82} {self.runs:>4} {self.duration_s:>5.0f}  {self.by or 'NOT FOUND'}"


def search(mutant: SchedulerMutant | None, seeds: Sequence[int] = SEEDS) -> Found:
    """Without a mutant: whether any judge finds fault with the code as it is. Raises: SystemExit where it could not be
    put to a judge at all."""
    title = mutant.name if mutant else "(no bug)"
    runs, duration_s = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="scheduler-planted-") as name:
        folder = Path(name)
        copy_package(folder)
        if mutant is not None:
            file = f"scheduler/{mutant.file}"
            plant(folder, Mutant(mutant.name, mutant.near, file, mutant.old, mutant.new, mutant.why))
        for judge, seed in _asked(mutant, seeds):
            verdict = run_checker(folder, judge, seed, PATIENCE)
            runs, duration_s = runs + 1, duration_s + verdict.duration_s
            if verdict.failed:
                return Found(title, verdict.failed, runs, duration_s)
            if not verdict.passed:
                raise SystemExit(f"{title}: {judge} broke:\n{verdict.output}")
    return Found(title, "", runs, duration_s)


def _asked(mutant: SchedulerMutant | None, seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The judge that is near with all seeds, then the others with one."""
    near = mutant.near if mutant else JUDGES[0]
    yield from ((near, seed) for seed in seeds)
    yield from ((judge, seeds[0]) for judge in JUDGES if judge != near)


def main() -> int:
    arguments = parse(__doc__, "seeds", len(SEEDS), "tries of the judge that is near")
    seeds = range(1, arguments.amount + 1)
    clean = search(None, seeds[:1])
    if clean.noticed:
        raise SystemExit(f"without a bug {clean.by} fails")
    print(f"{'bug':<82} {'runs':>4} {'s':>5}  found by", flush=True)
    wanted = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    return look_for(wanted, lambda mutant: search(mutant, seeds), arguments)


if __name__ == "__main__":
    sys.exit(main())
