"""Plants each bug in a copy of the package, and puts the structure it concerns to the laws until one is broken.

usage: python tests/planted/index_planting.py [--only TEXT] [--examples N] [--jobs J] [--json FILE]

What judges is `tests/property/test_index_laws.py` as it stands, with more examples: it knows no bug. Prints for each
how long it took and which law was broken. Exits with 1 if one went unnoticed. All structures run without a bug first,
and must be in order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from index_mutants import MUTANTS, IndexMutant
from mutants import Mutant
from planting import ROOT, copy_package, plant
from planting_command import look_for, parse

CLEAN_EXAMPLES = 60
SEEDS = (0, 1, 2)
SEARCH = """
import sys
from pathlib import Path
import minikube_py
assert Path.cwd() == Path(minikube_py.__file__).parents[1], minikube_py.__file__
from test_index_laws import KINDS
from minikube_py.lab.conformance import work
from minikube_py.lab.conformance.hosting import Hosting
from minikube_py.lab.conformance.laws import dimensions_of, find_counter_example, find_counter_history
from minikube_py.lab.conformance.program import Broken

examples, seed, structures = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")

def first_broken():
    # Few of all before many of one: most bugs show at once, in whichever law they break.
    for share in (10, 1):
        for kind in KINDS:
            if structures != ["*"] and kind.structure not in structures:
                continue
            found = find_counter_example(kind.build, max(1, examples // share), seed, least=False)
            if found is not None:
                return kind, found[1]
            fields = max(dimensions_of(kind.build))
            hosting, few = Hosting(kind.build), max(1, examples // 4 // share)
            found = find_counter_history(hosting, few, seed, fields, least=False)
            if found is not None:
                return kind, found[1]
            try:
                work.check_counted(kind.build, min(3, fields))
            except Broken as broken:
                return kind, broken

found = first_broken()
if found is not None:
    print(f"{found[0]}: {found[1].law}")
"""


class Found(NamedTuple):
    """`what` is "" where it went unnoticed."""

    name: str
    what: str
    seed: int
    duration_s: float

    @property
    def noticed(self) -> bool:
        return bool(self.what)

    def row(self) -> str:
        return f"{self.name:<62} {self.duration_s:>5.1f}  {self.what or 'NOT FOUND'}"


def search(mutant: IndexMutant | None, examples: int, seeds: tuple[int, ...] = SEEDS, structures: str = "*") -> Found:
    """`structures`: those that are looked at where there is no bug. Raises: SystemExit where the laws could not be put
    at all."""
    started = time.monotonic()
    title = mutant.name if mutant else "(no bug)"
    with tempfile.TemporaryDirectory(prefix="index-planted-") as name:
        folder = Path(name)
        copy_package(folder)
        if mutant is not None:
            plant(folder, Mutant(mutant.name, "", mutant.file, mutant.old, mutant.new, mutant.why))
        structures = mutant.structures if mutant else structures
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((name, str(ROOT / "tests" / "property")))}
        for seed in seeds if mutant else seeds[:1]:
            command = [sys.executable, "-c", SEARCH, str(examples), str(seed), structures]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{title}: the search broke:\n{done.stderr}")
            what = done.stdout.strip()
            if what:
                break
    return Found(title, what, seed, time.monotonic() - started)


def main() -> int:
    arguments = parse(__doc__, "examples", 600, "programs of each structure, at most")
    wanted = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    concerned = {name for mutant in wanted for name in mutant.structures.split(",")}
    clean = search(None, CLEAN_EXAMPLES, structures=",".join(sorted(concerned)))
    if clean.noticed:
        raise SystemExit(f"without a bug: {clean.what}")
    print(f"{'bug':<62} {'s':>5}  found", flush=True)
    return look_for(wanted, lambda mutant: search(mutant, arguments.amount), arguments)


if __name__ == "__main__":
    sys.exit(main())
