#!/usr/bin/env python3
"""Judges the packing policy `fill` beside FGD as docs/studies/packing-fill.md says, and writes the page's tables.

python tools/packing_fill.py --journal results/packing-fill.jsonl --write       (replays; resumable)
python tools/packing_fill.py --write                    (writes the page's tables from the committed data)

Which member of the family won is found again from the figures of the tuning (docs/data/packing-tuning.json).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import page_table
from page_table import DOCS, table

from minikube_py.lab import pod_lists
from minikube_py.lab.statistics import Compared, compared
from minikube_py.studies.packing import study
from minikube_py.studies.packing.study import Task

JUDGEMENT: Final = DOCS / "data" / "packing-fill.json"
JUDGED: Final = range(42, 52)
PAGE, DATA = DOCS / "studies" / "packing-fill.md", DOCS / "data" / "packing-tuning.json"
FEWEST: Final = 10
"""Seeds without which no p is in the table."""
LISTS: Final = ("cpu037", "cpu072", "cpu235", "cpu300", "gpushare20", "gpuspec05")
FIRST: Final = LISTS[:3]
"""On which all members are compared, with the first seed (Deviations, 1)."""
SEEDS: Final = (1, 2)
NOISE: Final = 1e-9
"""Sums that differ by less are equal."""
FINALISTS: Final = 4
ALIKE: Final = 0.02
"""Points by which means may differ and the simpler member is taken."""


class Member(NamedTuple):
    """Of the family, in the order of the registration; the first is FGD."""

    device: str
    cpu_limit: bool
    weight_by: str
    sharpness: int

    @property
    def differs(self) -> int:
        """In how many factors from FGD."""
        return sum(mine != fgd for mine, fgd in zip(self, FAMILY[0], strict=True))


FAMILY: Final = tuple(
    Member(*levels) for levels in product(("left", "copies", "expected"), (False, True), ("pods", "gpus"), (1, 4))
)
Key = tuple[int, str, int]
Shares = dict[Key, float]
"""By number of the member, list and seed: the mean of the shares at 100 and 130 %."""


def mean(shares: Mapping[Key, float], number: int) -> float:
    return statistics.fmean(share for (member, _, _), share in shares.items() if member == number)


def finalists(shares: Shares) -> list[int]:
    """By the first seed and lists."""
    first = _of_first(shares)
    return sorted(range(len(FAMILY)), key=lambda number: -mean(first, number))[:FINALISTS]


def _of_first(shares: Shares) -> Shares:
    return {(n, pods, seed): v for (n, pods, seed), v in shares.items() if pods in FIRST and seed == SEEDS[0]}


def winner(shares: Shares) -> int:
    means = {number: mean(shares, number) for number in finalists(shares)}
    best = max(means.values())
    return min(
        (number for number, value in means.items() if value >= best - ALIKE), key=lambda n: (FAMILY[n].differs, n)
    )


def judged(journal: Path, jobs: int) -> bytes:
    """As registered: the default list with ten seeds, the others of the table with three."""
    tasks = [
        Task(pods, "fill", seed)
        for pods in pod_lists.PUBLISHED
        for seed in (JUDGED if pods == "default" else JUDGED[:3])
    ]
    found = study.run(tasks, jobs=jobs, journal=journal, say=lambda text: print(text, flush=True))
    return study.as_json(study.means({task: found[task] for task in tasks}), JUDGED)


def read(path: Path = DATA) -> Shares:
    shares: Shares = {}
    for number, row in enumerate(json.loads(path.read_bytes())["members"]):
        for key, share in row["shares"].items():
            pods, seed = key.split()
            shares[number, pods, int(seed)] = share
    return shares


def rendered(shares: Shares, judged: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """The tables of the page: the tuning, and the winner beside FGD."""
    final, won = finalists(shares), winner(shares)
    rows = []
    for number, member in enumerate(FAMILY):
        limit = "yes" if member.cpu_limit else "no"
        every = f"{mean(shares, number):.3f}" if number in final else "-"
        cells = [member.device, limit, member.weight_by, str(member.sharpness)]
        rows.append([*cells, f"{mean(_of_first(shares), number):.3f}", f"**{every}**" if number == won else every])
    heads = ["`device`", "`cpuLimit`", "`weightBy`", "`sharpness`", "Three lists, seed 1", "Six lists, seeds 1 and 2"]
    fgd = {row["pods"]: row for row in published["rows"] if row["policy"] == "fgd"}
    cells = []
    for row in judged["rows"]:
        for mark in ("at100", "at130"):
            by_seed = row[mark]["allocated"]["by_seed"]
            found = compared(fgd[row["pods"]][mark]["allocated"]["by_seed"][: len(by_seed)], by_seed)
            p = "-" if found.p is None or len(by_seed) < FEWEST else f"{one_sided(found):.4f}"
            means = [f"{each.value:.2f}" for each in (found.mean_first, found.mean_second)]
            cells.append([row["pods"], f"{mark[2:]} %", str(len(by_seed)), *means, f"{found.difference.value:+.2f}", p])
    return table(heads, rows) + "\n" + table(["List", "Arrivals", "Seeds", "FGD", "`fill`", "Difference", "p"], cells)


def one_sided(found: Compared) -> float:
    """That `fill` is not better, by the exact sign-flip test: the share of sign flips with at least this sum."""
    differences = [second - first for first, second in zip(found.first, found.second, strict=True)]
    least = sum(differences) - NOISE
    sums = [sum(flipped) for flipped in product(*((each, -each) for each in differences))]
    return sum(each >= least for each in sums) / len(sums)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.journal is not None:
        JUDGEMENT.write_bytes(judged(asked.journal, asked.jobs))
    of_fill, published = (
        json.loads((DOCS / "data" / name).read_bytes()) for name in ("packing-fill.json", "packing.json")
    )
    made = rendered(read(), of_fill, published)
    return page_table.put(arguments, "packing_fill", PAGE, made, f"{DATA} or packing-fill.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
