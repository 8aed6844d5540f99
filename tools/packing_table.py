#!/usr/bin/env python3
"""Writes the table of docs/how-to/packing-quality.md from docs/data/packing.json.

python tools/packing_table.py --write      (without it: exits with 1 where the page is not up to date)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, DATA = DOCS / "how-to" / "packing-quality.md", DOCS / "data" / "packing.json"
BEGIN, END = "<!-- table: tools/packing_table.py -->\n", "<!-- end -->\n"
MARKS = (100, 130)


def rendered(document: Mapping[str, Any]) -> str:
    heads = ["List", "Policy"]
    for mark in MARKS:
        heads += [f"Allocated @{mark}", f"Published @{mark}", f"Fragmented @{mark}"]
    lines = [heads, ["---"] * len(heads)]
    for row in document["rows"]:
        cells = [row["pods"], row["policy"]]
        for mark in MARKS:
            at = row[f"at{mark}"]
            known = at.get("published")
            told = "-" if known is None else f"{known['mean']:.2f} ±{known['tolerance']:.2f}"
            outside = " (outside)" if not at.get("within", True) else ""
            cells += [_mean(at["allocated"]) + outside, told, _mean(at["fragmented"])]
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _mean(each: Mapping[str, float]) -> str:
    return f"{each['mean']:.2f} ({each['deviation']:.2f})"


def page_with_table(page: str, document: Mapping[str, Any]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rendered(document)}\n{END}{after}"


def main(arguments: list[str]) -> int:
    page = PAGE.read_text(encoding="utf-8")
    wanted = page_with_table(page, json.loads(DATA.read_bytes()))
    if "--write" in arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print(f"{PAGE} is not what {DATA} says; python tools/packing_table.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
