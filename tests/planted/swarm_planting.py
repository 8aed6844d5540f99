"""Plants each bug in a copy of the package, and lets simulated histories run until a checker finds it.

usage: python tests/planted/swarm_planting.py [--of cluster] [--only TEXT] [--seeds N] [--jobs J] [--json FILE]

Prints for each bug how many histories it took, the seed, and what was found. Exits with 1 if one went unnoticed: a hole
in a checker, or in the faults that are drawn. The same histories run without a bug first, and must be in order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cluster_mutants import MUTANTS as CLUSTER_MUTANTS
from planting import copy_package, plant
from planting_command import look_for, parse
from swarm_mutants import MUTANTS, SwarmMutant

FIRST_SEED = 0
CLEAN_SEEDS = 30
TABLES = {"store": MUTANTS, "cluster": CLUSTER_MUTANTS}
SEARCH = """
import sys
from minikube_py.sim.histories import histories
first, count, of = int(sys.argv[1]), int(sys.argv[2]), histories(sys.argv[3])
for seed in range(first, first + count):
    try:
        outcome = of.run(of.drawn(seed)).go()
        found = [f"{checker}: {text}" for checker, text in outcome.violations.items()]
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    if found:
        print(seed, found[0].splitlines()[0])
        break
"""


class Found(NamedTuple):
    """`seed` None: unnoticed in so many `histories`."""

    name: str
    seed: int | None
    histories: int
    what: str
    duration_s: float

    @property
    def noticed(self) -> bool:
        return self.seed is not None

    def row(self) -> str:
        told = f"seed {self.seed}: {self.what[:120]}" if self.noticed else "NOT FOUND"
        return f"{self.name:<58} {self.histories:>9} {self.duration_s:>5.0f}  {told}"


def search(mutant: SwarmMutant | None, seeds: int, of: str = "store") -> Found:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="swarm-planted-") as name:
        folder = Path(name)
        copy_package(folder)
        if mutant is not None:
            plant(folder, mutant)
        command = [sys.executable, "-c", SEARCH, str(FIRST_SEED), str(seeds), of]
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the search broke:\n{done.stderr}")
    seed, _, what = done.stdout.strip().partition(" ")
    took_s = time.monotonic() - started
    title = mutant.name if mutant else "(no bug)"
    if not seed:
        return Found(title, None, seeds, "", took_s)
    return Found(title, int(seed), int(seed) - FIRST_SEED + 1, what, took_s)


def main() -> int:
    arguments = parse(__doc__, "seeds", 400, "histories for each, at most", of=tuple(TABLES))
    clean = search(None, CLEAN_SEEDS, arguments.of)
    if clean.noticed:
        raise SystemExit(f"without a bug seed {clean.seed} finds: {clean.what}")
    print(f"{'bug':<58} {'histories':>9} {'s':>5}  found", flush=True)
    wanted = [mutant for mutant in TABLES[arguments.of] if arguments.only in mutant.name]
    return look_for(wanted, lambda mutant: search(mutant, arguments.amount, arguments.of), arguments)


if __name__ == "__main__":
    sys.exit(main())
