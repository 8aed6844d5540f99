"""How much CPU a cluster gains when it believes a predictor, and what it pays in violations and evictions.

  minikube-py lab prediction                                        eight predictors, two clusters; a few minutes
  minikube-py lab prediction --predictor n-sigma,mine.py:Recent --usage busy --seeds 4
  minikube-py lab study prediction --quick                          the registered study, with its journal and report

One day of a small cluster, minute by minute: the scheduler's own decisions, on usage that a generator or a real day
makes. The table has a mean for each predictor, and its interval over the clusters (seeds)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minikube_py.cli import flags
from minikube_py.cli.table import table

if TYPE_CHECKING:
    from minikube_py.lab.study.measured import Measured

USAGES = ("replayed", "fitted", "busy", "alone")
FIGURES = ("usable", "used", "violations", "slowed", "evictions", "placed")


def configure(parser: argparse.ArgumentParser) -> None:
    predictor_help = "names or FILE.py:CLASS, comma-separated; NAME+target-load or +risk: other scores (default: all)"
    names = flags.several(flags.checked("studies.prediction.trial:require_predictor"))
    parser.add_argument("--predictor", type=names, metavar="P,...", help=predictor_help)
    usage_help = "pod usage: the fitted generator, a busy one, one without shared load, or the real day replayed "
    usage_help += "from the files in $MINIKUBE_PY_DATA (default: busy)"
    parser.add_argument("--usage", choices=USAGES, default="busy", help=usage_help)
    seeds_help = "number of clusters; a single one has no interval (default: 2)"
    parser.add_argument("--seeds", type=flags.whole_number(1, 1000), default=2, metavar="N", help=seeds_help)
    parser.add_argument("--jobs", type=flags.whole_number(1, 1024), default=1, metavar="N", help="how many processes")
    nodes_help = "nodes of a cluster; arrivals scale with them (default: 5)"
    parser.add_argument("--nodes", type=flags.whole_number(1, 10_000), default=5, metavar="N", help=nodes_help)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the JSON to FILE as well")
    parser.add_argument("--png", type=Path, metavar="FILE", help="plot benefit against cost")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.lab import plots
    from minikube_py.lab.report import require_writable_file
    from minikube_py.studies.prediction.trial import NAMES, gains_and_prices, told_json, tried

    for flag, path in (("--write", arguments.write), ("--png", arguments.png)):
        if path is not None:
            require_writable_file(path, flag)
    names = list(dict.fromkeys(arguments.predictor or NAMES))
    found, absent = tried(names, arguments.usage, arguments.seeds, arguments.nodes, arguments.jobs)
    document = json.dumps(told_json(found, FIGURES, arguments.usage, arguments.seeds, absent), indent=1)
    if arguments.write is not None:
        arguments.write.write_text(document + "\n", encoding="utf-8")
    print(document if arguments.json else _told(found, names, arguments.usage, absent))
    if arguments.png is not None:
        if plots.available():
            gains_and_prices(found, names, arguments.png)
        else:
            print(plots.MISSING)
    return 1 if absent else 0


def _told(found: Measured, names: list[str], usage: str, absent: list[str]) -> str:
    heads = ["PREDICTOR", *(figure.upper() for figure in FIGURES)]
    rows: list[Any] = []
    for name in names:
        values = [found.by_cluster("tried", figure, name) for figure in FIGURES]
        if values[0]:
            rows.append([name, *(found.interval(each).text() for each in values)])
    text = [f"usage {usage}; mean and 99 % interval over clusters; shares of node capacity, evictions per 100 pods"]
    return "\n".join([*text, table(heads, rows, set(heads[1:])), *absent])
