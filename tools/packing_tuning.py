#!/usr/bin/env python3
"""Tunes the packing policy `fill` as docs/studies/packing-fill.md says, and tells which member wins.

python tools/packing_tuning.py --journal results/packing-tuning.jsonl --write    (resumable; 24 members, six lists)
python tools/packing_tuning.py --write                    (writes the page's tables from the committed data)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import page_table
from page_table import DOCS, table

from minikube_py.lab.compare.statistics import Compared, compared
from minikube_py.lab.packing import lists
from minikube_py.lab.packing.replay import replay
from minikube_py.lab.trace import load

PAGE, DATA = DOCS / "studies" / "packing-fill.md", DOCS / "data" / "packing-tuning.json"
FEWEST: Final = 10
"""Seeds of which p is told."""
LISTS: Final = ("cpu037", "cpu072", "cpu235", "cpu300", "gpushare20", "gpuspec05")
FIRST: Final = LISTS[:3]
"""On which all members are compared, with the first seed (Deviations, 1)."""
SEEDS: Final = (1, 2)
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
    def args(self) -> dict[str, Any]:
        names = ("device", "cpuLimit", "weightBy", "sharpness")
        return dict(zip(names, self, strict=True))

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


def tuned(journal: Path, jobs: int) -> Shares:
    shares: Shares = {}
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            number, pods, seed, share = json.loads(line)
            shares[number, pods, seed] = share
    with get_context("spawn").Pool(jobs) as pool, journal.open("a", encoding="utf-8") as file:
        for stage in (_first, _rest):
            for key, share in pool.imap(_share, [key for key in stage(shares) if key not in shares]):
                shares[key] = share
                print(json.dumps([*key, share]), file=file, flush=True)
    return shares


def _share(key: Key) -> tuple[Key, float]:
    number, pods, seed = key
    found = replay(load().nodes, lists.read(pods), "fill", seed, FAMILY[number].args).allocated
    return key, round(statistics.fmean(found.values()), 4)


def _first(shares: Shares) -> list[Key]:
    """Lists first, so that an interrupted run has compared all members on some of them."""
    return [(number, pods, SEEDS[0]) for pods in FIRST for number in range(len(FAMILY))]


def _rest(shares: Shares) -> list[Key]:
    final = finalists(shares)
    return [(number, pods, seed) for seed in SEEDS for pods in LISTS for number in final]


def as_json(shares: Shares) -> str:
    rows = [
        json.dumps({**member.args, "shares": {f"{p} {s}": v for (n, p, s), v in sorted(shares.items()) if n == number}})
        for number, member in enumerate(FAMILY)
    ]
    return '{"members":[\n' + ",\n".join(rows) + "\n]}\n"


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
    """That `fill` is not better, by the exact sign-flip test."""
    assert found.p is not None
    return found.p / 2 if found.difference.value > 0 else 1 - found.p / 2


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.journal is not None:
        shares = tuned(asked.journal, asked.jobs)
        if asked.write:
            DATA.write_text(as_json(shares), encoding="utf-8")
        print(f"winner: {FAMILY[winner(shares)].args}")
        return 0
    judged, published = (
        json.loads((DOCS / "data" / name).read_bytes()) for name in ("packing-fill.json", "packing.json")
    )
    made = rendered(read(), judged, published)
    return page_table.put(arguments, "packing_tuning", PAGE, made, f"{DATA} or packing-fill.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
