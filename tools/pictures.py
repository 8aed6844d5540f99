#!/usr/bin/env python3
"""Draws the pictures of the docs again from the data in docs, and writes the reports of the studies that show them.

    python tools/pictures.py            every picture, in its place
    python tools/pictures.py FOLDER     into FOLDER instead

Those of the scheduling tutorial, of the notebook and of the live page are made by what they show; the demo's by
`make demo`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minikube_py.cli.main import main as minikube_py  # noqa: E402
from minikube_py.lab.calls import beside_report, tables  # noqa: E402
from minikube_py.lab.conformance import bench  # noqa: E402
from minikube_py.lab.environment import Environment  # noqa: E402
from minikube_py.lab.study.experiment import BUILT_IN  # noqa: E402

DOCS = ROOT / "docs"
SUFFIX = ".jsonl.gz"


def study(run: str, folder: Path) -> None:
    """`run`: the name of a committed journal, study and mode, with a number if the mode ran again. Of a study's second
    run, only the figures are in docs, by that name."""
    name, mode = study_and_mode(run)
    own = DOCS / f"studies/{name}.toml"
    target = name if name in BUILT_IN else str(own)
    size = [] if mode == "full" else [f"--{mode}"]
    with tempfile.TemporaryDirectory() as out:
        journal = gzip.decompress((DOCS / "studies/data" / f"{run}{SUFFIX}").read_bytes())
        (Path(out) / "cells.jsonl").write_bytes(journal)
        if minikube_py(["lab", "study", target, *size, "--out", out, "--report"]):
            raise SystemExit(f"there is no report of {run}")
        second = (DOCS / f"studies/{run}-report.json").exists()
        for path in Path(out).glob(f"{name}-*"):
            there = path.name.replace(f"{name}-", f"{run}-", 1) if second else path.name
            if (DOCS / "studies" / there).exists():
                shutil.copy(path, folder / there)


def study_and_mode(run: str) -> tuple[str, str]:
    """Without the number of a repeat."""
    name, _, mode = re.sub(r"-\d+$", "", run).rpartition("-")
    return name, mode


def runs() -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in (DOCS / "studies/data").glob(f"*{SUFFIX}"))


def calls(folder: Path) -> None:
    for name, draw in (("calls", tables.draw), ("calls-beside", beside_report.draw)):
        figures = json.loads((DOCS / f"data/{name}.json").read_text(encoding="utf-8"))
        below = "; ".join(Environment(**figures["environment"]).lines())
        draw(figures, below, folder / f"{name}.png")


def tutorial(folder: Path) -> None:
    checked = json.loads((DOCS / "data/index-check.json").read_text(encoding="utf-8"))
    costs = [bench.Cost(**each) for each in checked["costs"]]
    bench.draw(costs, checked["structure"], folder / "an-index-of-your-own.svg")


if __name__ == "__main__":
    elsewhere = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for each in runs():
        study(each, elsewhere or DOCS / "studies")
    calls(elsewhere or DOCS / "img")
    tutorial(elsewhere or DOCS / "img")
