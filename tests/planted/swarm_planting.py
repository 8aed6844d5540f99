"""Plants each bug in a copy of the package, and lets simulated histories run until a checker finds it.

usage: python tests/planted/swarm_planting.py [--only TEXT] [--seeds N] [--jobs J] [--json FILE]

Prints for each bug how many histories it took, the seed, and what was found. Exits with 1 if one went unnoticed: a hole
in a checker, or in the faults that are drawn. The same histories run without a bug first, and must be in order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from planting import copy_package, plant
from swarm_mutants import MUTANTS, SwarmMutant

FIRST_SEED = 0
CLEAN_SEEDS = 30
SEARCH = """
import sys
from minikube_py.sim.run import run_seed
first, count = int(sys.argv[1]), int(sys.argv[2])
for seed in range(first, first + count):
    try:
        found = [f"{checker}: {text}" for checker, text in run_seed(seed).violations.items()]
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


def search(mutant: SwarmMutant | None, seeds: int) -> Found:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="swarm-planted-") as name:
        folder = Path(name)
        copy_package(folder)
        if mutant is not None:
            plant(folder, mutant)
        command = [sys.executable, "-c", SEARCH, str(FIRST_SEED), str(seeds)]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name holds this")
    parser.add_argument("--seeds", type=int, default=400, metavar="N", help="histories for each, at most")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="J")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    clean = search(None, CLEAN_SEEDS)
    if clean.seed is not None:
        raise SystemExit(f"without a bug seed {clean.seed} finds: {clean.what}")
    print(f"{'bug':<58} {'histories':>9} {'s':>5}  found", flush=True)
    wanted = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(lambda mutant: search(mutant, arguments.seeds), wanted):
            results.append(found)
            told = f"seed {found.seed}: {found.what[:120]}" if found.seed is not None else "NOT FOUND"
            print(f"{found.name:<58} {found.histories:>9} {found.duration_s:>5.0f}  {told}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([each._asdict() for each in results], indent=1) + "\n")
    missed = [found.name for found in results if found.seed is None]
    print(f"{len(results) - len(missed)} of {len(results)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
