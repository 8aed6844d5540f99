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
    ("`start()`, ms", "300", WATCHES, "start"),
    ("`stop()` with ten watches open, ms", "50", WATCHES, "stop"),
    ("the same, a followed log and an unread list in flight, ms", "50", f"{WATCHES}, two requests in flight", "stop"),
    ("a fresh process imports the package and starts three nodes, ms", "", "fresh", "start"),
    ("etcd and kube-apiserver start until the API server is ready, ms", "", "upstream", "start"),
    *((f"`restore()` after {told}, ms", "20", "restore", name) for name, told in RESTORED.items()),
    (BEATS.format("one store member"), "60", "heartbeats of 1213 nodes, 1 member", ""),
    (BEATS.format("three members"), "15", "heartbeats of 1213 nodes, 3 members", ""),
)  # fmt: skip
"""What, goal, the row of the data and the prefix of its figures; "": they are no times."""


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
        lines.append([what, goal, _told(first), _told(wall) if wall else "", str(len(first)), loads, commit])
    return table(heads, lines)


def _told(values: list[float]) -> str:
    digits = 0 if statistics.median(values) >= 10 else 1
    median, low, high = (f"{each:,.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high})"


def main(arguments: list[str]) -> int:
    return page_table.main(arguments, "door_table", PAGE, DATA, rendered)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
