"""Check a scheduler plugin of your own on random clusters: whether its forms agree, scores are in range, its declared
scope holds, and processes agree; and measure its cost beside the built-in plugins.

  minikube-py plugin check mine.py:BestFit
  minikube-py plugin check mine.py:BestFit --args '{resource: cpu}' --examples 2000 --seed 7

If a law is broken, the smallest cluster that shows it is printed; exit code 1."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from minikube_py import own_code
from minikube_py.cli import flags
from minikube_py.cli.index_check import print_part, verdict_of, without
from minikube_py.cli.table import table
from minikube_py.errors import RequestError, WrongUsage

if TYPE_CHECKING:
    from minikube_py.lab.plugins.check import Verdict

EXAMPLES = 100


def configure(parser: argparse.ArgumentParser) -> None:
    target_help = "FILE.py:CLASS, MODULE:CLASS, or the name of an entry point"
    parser.add_argument("target", type=own_code.absolute, metavar="TARGET", help=target_help)
    args_help = "the args of its pluginConfig, YAML or JSON (default: none)"
    parser.add_argument("--args", type=flags.mapping, default={}, metavar="YAML", help=args_help)
    examples_help = f"number of clusters per law (default: {EXAMPLES})"
    count = flags.whole_number(1, 1_000_000)
    parser.add_argument("--examples", type=count, default=EXAMPLES, metavar="N", help=examples_help)
    seed_help = "the same seed generates the same clusters (default: 0)"
    parser.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)
    parser.add_argument("--no-bench", action="store_true", help="only the laws")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        from minikube_py.lab.plugins.check import as_json, check
    except ModuleNotFoundError as error:
        return without(error, "plugin")
    of = arguments.target, arguments.args, arguments.examples, arguments.seed, not arguments.no_bench
    try:
        verdict = verdict_of(arguments, lambda say: check(*of, say))
    except RequestError as error:
        raise WrongUsage(str(error)) from error
    if arguments.json:
        print(json.dumps(as_json(verdict), indent=2))
    else:
        _print(verdict)
    return 0 if verdict.holds else 1


def _print(verdict: Verdict) -> None:
    for part in verdict.parts:
        print_part(part)
    if verdict.costs:
        heads = ["PLUGIN", "FILTER", "SCORE", "FORM"]
        rows = [
            [
                f"* {cost.plugin}" if cost.plugin == verdict.plugin else f"  {cost.plugin}",
                _us(cost.filter_us),
                _us(cost.score_us),
                "all at once" if cost.vectorised else "node by node",
            ]
            for cost in verdict.costs
        ]
        print(f"\nmicroseconds per pod over {verdict.costs[0].nodes:,} nodes; -: not implemented")
        print(table(heads, rows, {"FILTER", "SCORE"}))
        print("\n" + "\n".join(verdict.notes))
    if verdict.unjudged:
        print(f"\nno law looks at: {', '.join(verdict.unjudged)}")
    print(f"\n{verdict.plugin}: {'all laws hold' if verdict.holds else 'broken'}")


def _us(value_us: float | None) -> str:
    return "-" if value_us is None else f"{value_us:,.0f}"
