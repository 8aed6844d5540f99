"""Which mutants are drawn: a fixed order for each seed, of which a run takes as many as it is given time for.

A draw of 40 is the beginning of the draw of 400 with the same seed. Each package has its share of every `BLOCK`; within
a package the operators take turns, and each draws from what it can change there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mutation_operators import OPERATORS, Change, changes

QUOTAS: Final[Mapping[str, int]] = {"raft": 5, "wal": 2, "mvcc": 5, "store": 8}
"""How many of each twenty mutants lie in a package."""
BLOCK: Final = sum(QUOTAS.values())


def candidates(tree: Path, package: str) -> list[Change]:
    """All that the operators can change in a package, the tree being one that holds `minikube_py/`."""
    files = sorted((tree / "minikube_py" / package).rglob("*.py"))
    return [
        change
        for file in files
        for change in changes(file.relative_to(tree / "minikube_py").as_posix(), file.read_text(encoding="utf-8"))
    ]


def in_order(candidates: list[Change], seed: str, package: str) -> Iterator[Change]:
    """All of a package's candidates; operators take turns until each has none left."""
    by_operator: dict[str, list[Change]] = {operator.name: [] for operator in OPERATORS}
    for change in candidates:
        by_operator[change.operator].append(change)
    for name, those in by_operator.items():
        random.Random(f"{seed}:{package}:{name}").shuffle(those)
    waiting = list(by_operator.values())
    random.Random(f"{seed}:{package}").shuffle(waiting)
    while waiting := [those for those in waiting if those]:
        for those in waiting:
            yield those.pop()


def draw(by_package: Mapping[str, list[Change]], seed: str) -> Iterator[Change]:
    """The whole order. `by_package` may hold fewer packages than `QUOTAS`, if only those are asked for."""
    queues = {package: in_order(candidates, seed, package) for package, candidates in by_package.items()}
    pattern = [package for package, quota in QUOTAS.items() if package in queues for _ in range(quota)]
    random.Random(f"{seed}:packages").shuffle(pattern)
    empty: set[str] = set()
    while len(empty) < len(queues):
        for package in pattern:
            change = next(queues[package], None)
            if change is None:
                empty.add(package)
            else:
                yield change
