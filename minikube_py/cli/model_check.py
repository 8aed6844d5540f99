"""Check a cost model of your own on generated clusters: every arc has a cost and a capacity, its forms for one arc and
for many agree, leaving a pod unscheduled never gets cheaper as it waits, the same seed gives the same costs, and all
solvers find flows of equal cost.

  minikube-py model check mine.py:Warm
  minikube-py model check CPU_MEM --args '{machineClasses: 3}' --examples 500 --seed 7

If a law is broken, the smallest cluster that shows it is printed; exit code 1."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from minikube_py import own_code
from minikube_py.cli.flags import mapping, whole_number
from minikube_py.cli.index_check import print_part, verdict_of, without
from minikube_py.errors import RequestError, WrongUsage

if TYPE_CHECKING:
    from minikube_py.lab.conformance.judging import Part

    Check = Callable[[str, Mapping[str, Any], int, int, Callable[[str], None]], tuple[str, list[Part], list[str]]]

EXAMPLES = 60


def configure(parser: argparse.ArgumentParser) -> None:
    arguments_of_laws(parser, "its modelArgs", "clusters")


def arguments_of_laws(parser: argparse.ArgumentParser, args: str, drawn: str) -> None:
    """Flags shared by the checks of cost models and predictors."""
    target_help = "FILE.py:CLASS, MODULE:CLASS, or the name of one that is built in"
    parser.add_argument("target", type=own_code.absolute, metavar="TARGET", help=target_help)
    args_help = f"{args}, YAML or JSON (default: none)"
    parser.add_argument("--args", type=mapping, default={}, metavar="YAML", help=args_help)
    examples_help = f"number of {drawn} per law (default: {EXAMPLES})"
    count = whole_number(1, 1_000_000)
    parser.add_argument("--examples", type=count, default=EXAMPLES, metavar="N", help=examples_help)
    seed_help = f"the same seed generates the same {drawn} (default: 0)"
    parser.add_argument("--seed", type=whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        from minikube_py.lab.plugins.model_laws import check
    except ModuleNotFoundError as error:
        return without(error, "model")
    return judged(arguments, "model", check)


def judged(arguments: argparse.Namespace, what: str, check: Check) -> int:
    """Checks, reports, and returns the exit code."""
    of = arguments.target, arguments.args, arguments.examples, arguments.seed
    try:
        name, parts, unjudged = verdict_of(arguments, lambda say: check(*of, say))
    except RequestError as error:
        raise WrongUsage(str(error)) from error
    holds = all(part.failure is None for part in parts)
    if arguments.json:
        told = {what: name, "holds": holds, "parts": [part.as_json() for part in parts], "unjudged": unjudged}
        print(json.dumps(told, indent=2))
        return 0 if holds else 1
    for part in parts:
        print_part(part)
    if unjudged:
        print(f"\nno law looks at: {', '.join(unjudged)}")
    print(f"\n{name}: {'all laws hold' if holds else 'broken'}")
    return 0 if holds else 1
