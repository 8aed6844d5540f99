"""docs/how-to/live-page.md says what docs/data/ui-cost.json shows; bench_ui.py measures it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from minikube_py.lab.statistics import of_clusters

DOCS = Path(__file__).parents[3] / "docs"
CASES: dict[str, Any] = json.loads((DOCS / "data" / "ui-cost.json").read_text(encoding="utf-8"))
CONFIDENCE = 0.95


def rows() -> Iterator[str]:
    for case, measured in CASES.items():
        nodes, _, per_s = case.partition("x")
        by = {(each["block"], each["arm"]): each["cpu_percent"] for each in measured["windows"]}
        blocks = sorted({block for block, _ in by})
        cells = [f"{int(nodes):,}", per_s, f"{fmean([by[block, 'closed'] for block in blocks]):.1f}"]
        for arm, other in (("open", "closed"), ("panel", "open")):
            mean, low, high = of_clusters([by[block, arm] - by[block, other] for block in blocks], CONFIDENCE)
            cells.append(f"{mean:.1f} ({low:.1f} to {high:.1f})")
        yield f"| {' | '.join(cells)} |"


def test_the_page_says_what_was_measured() -> None:
    page = (DOCS / "how-to" / "live-page.md").read_text(encoding="utf-8")
    for row in rows():
        assert row in page, row
    for case, measured in CASES.items():
        assert len({each["block"] for each in measured["windows"]}) >= 8, case
