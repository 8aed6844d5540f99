#!/usr/bin/env python3
"""Judges the packing policy `prices` beside FGD as docs/studies/packing-prices.md says, and writes the page's table.

python tools/packing_prices.py --journal results/packing-prices.jsonl --write     (replays; resumable)
python tools/packing_prices.py --write                    (writes the page's table from the committed data)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import page_table
from page_table import DOCS, table

from minikube_py.lab import pod_lists
from minikube_py.lab.statistics import Compared, compared
from minikube_py.studies.packing import study
from minikube_py.studies.packing.study import Task

JUDGEMENT: Final = DOCS / "data" / "packing-prices.json"
JUDGED: Final = range(42, 52)
PAGE: Final = DOCS / "studies" / "packing-prices.md"
FEWEST: Final = 10
"""Seeds without which no p is in the table."""
NOISE: Final = 1e-9
"""Sums that differ by less are equal."""


def judged(journal: Path, jobs: int) -> bytes:
    """As registered: the default list with ten seeds, the others of the table with three."""
    tasks = [
        Task(pods, "prices", seed)
        for pods in pod_lists.PUBLISHED
        for seed in (JUDGED if pods == "default" else JUDGED[:3])
    ]
    found = study.run(tasks, jobs=jobs, journal=journal, say=lambda text: print(text, flush=True))
    return study.as_json(study.means({task: found[task] for task in tasks}), JUDGED)


def rendered(judged: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    fgd = {row["pods"]: row for row in published["rows"] if row["policy"] == "fgd"}
    cells = []
    for row in judged["rows"]:
        for mark in ("at100", "at130"):
            by_seed = row[mark]["allocated"]["by_seed"]
            found = compared(fgd[row["pods"]][mark]["allocated"]["by_seed"][: len(by_seed)], by_seed)
            p = "-" if found.p is None or len(by_seed) < FEWEST else f"{one_sided(found):.4f}"
            means = [f"{each.value:.2f}" for each in (found.mean_first, found.mean_second)]
            cells.append([row["pods"], f"{mark[2:]} %", str(len(by_seed)), *means, f"{found.difference.value:+.2f}", p])
    return table(["List", "Arrivals", "Seeds", "FGD", "`prices`", "Difference", "p"], cells)


def one_sided(found: Compared) -> float:
    """That `prices` is not better, by the exact sign-flip test: the share of sign flips with at least this sum."""
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
    ours, published = (json.loads((DOCS / "data" / name).read_bytes()) for name in (JUDGEMENT.name, "packing.json"))
    return page_table.put(arguments, "packing_prices", PAGE, rendered(ours, published), JUDGEMENT.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
