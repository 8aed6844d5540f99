#!/usr/bin/env python3
"""Writes the table of a cluster in a test in docs/performance.md from docs/data/door.json, which
tests/bench/bench_door.py writes.

python tools/door_table.py --write      (without it: exits with 1 where the page is not up to date)
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from typing import Any

import page_table
from page_table import DOCS, table

PAGE, DATA = DOCS / "performance.md", DOCS / "data" / "door.json"
WATCHES = "start and stop, 10 watches"
RESTORED = {
    "100 pods created": "a test created 100 pods",
    "100 maps changed": "a test changed 100 ConfigMaps",
    "100 pods changed": "a test changed 100 pods: components start again",
}
BEATS = "every heartbeat of 1,213 idle nodes written, {}, virtual seconds for one of processor time"
ROWS = (
    ("`start()`, ms", 300, WATCHES, "start"),
    ("`stop()` with ten watches open, ms", 50, WATCHES, "stop"),
    ("the same, a followed log and an unread list in flight, ms", 50, f"{WATCHES}, two requests in flight", "stop"),
    ("a fresh process imports the package and starts three nodes, ms", 400, "fresh", "start"),
    ("etcd and kube-apiserver start until the API server is ready, ms", None, "upstream", "start"),
    *((f"`restore()` after {told}, ms", 20, "restore", name) for name, told in RESTORED.items()),
    (BEATS.format("one store member"), 60, "heartbeats of 1213 nodes, 1 member", ""),
    (BEATS.format("three members"), 15, "heartbeats of 1213 nodes, 3 members", ""),
)  # fmt: skip
"""What, goal (None: it is for comparison), the row of the data and the prefix of its figures. Times are to stay below
their goal; with prefix "", figures are no times, and are to reach it."""


def rendered(document: Mapping[str, Any]) -> str:
    heads = ["What", "Goal", "Processor time, or as said", "Wall", "Turns", "Load average", "Commit"]
    lines = []
    for what, goal, name, prefix in ROWS:
        row = document["rows"][name]
        figures = row["figures"]
        first = figures[f"{prefix} processor ms" if prefix else "times real time"]
        wall = figures.get(f"{prefix} wall ms")
        loads = " to ".join(f"{each:.1f}" for each in row["load"])
        commit = row["environment"]["commit"][:8]
        told = f"{goal or ''}{', **missed**' if _missed(first, goal, times=bool(prefix)) else ''}"
        lines.append([what, told, _told(first, goal), _told(wall) if wall else "", str(len(first)), loads, commit])
    return table(heads, lines)


def _missed(values: list[float], goal: int | None, *, times: bool) -> bool:
    """By the median."""
    median = statistics.median(values)
    return goal is not None and (median >= goal if times else median < goal)


def _told(values: list[float], goal: int | None = None) -> str:
    """As many digits as show on which side of the goal each figure is: none from ten on, else one."""
    three = statistics.median(values), min(values), max(values)
    digits = 0 if three[0] >= 10 else 1
    while goal is not None and any(round(each, digits) == goal != each for each in three):
        digits += 1
    median, low, high = (f"{each:,.{digits}f}" for each in three)
    return f"{median} ({low} to {high})"


def main(arguments: list[str]) -> int:
    return page_table.main(arguments, "door_table", PAGE, DATA, rendered)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
