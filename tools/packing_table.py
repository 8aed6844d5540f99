#!/usr/bin/env python3
"""Writes the table of docs/how-to/packing-quality.md from docs/data/packing.json.

python tools/packing_table.py --write      (without it: exits with 1 where the page is not up to date)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import page_table
from page_table import DOCS, table

PAGE, DATA = DOCS / "how-to" / "packing-quality.md", DOCS / "data" / "packing.json"
MARKS = (100, 130)


def rendered(document: Mapping[str, Any]) -> str:
    heads = ["List", "Policy"]
    for mark in MARKS:
        heads += [f"Allocated @{mark}", f"Published @{mark}", f"Fragmented @{mark}"]
    lines = []
    for row in document["rows"]:
        cells = [row["pods"], row["policy"]]
        for mark in MARKS:
            at = row[f"at{mark}"]
            known = at.get("published")
            told = "-" if known is None else f"{known['mean']:.2f} ±{known['tolerance']:.2f}"
            outside = " (outside)" if not at.get("within", True) else ""
            cells += [_mean(at["allocated"]) + outside, told, _mean(at["fragmented"])]
        lines.append(cells)
    return table(heads, lines)


def _mean(each: Mapping[str, float]) -> str:
    return f"{each['mean']:.2f} ({each['deviation']:.2f})"


def main(arguments: list[str]) -> int:
    return page_table.main(arguments, "packing_table", PAGE, DATA, rendered)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
