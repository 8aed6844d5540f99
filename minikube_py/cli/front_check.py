"""Check a front of your own: its laws, its false positives against its stated bound, its upkeep and bytes.

  minikube-py front check mine.py:MyFront
  minikube-py front check skyline --examples 2000 --seed 7

If a law is broken, the smallest program that shows it is printed; exit code 1."""

from __future__ import annotations

import argparse
import json

from minikube_py.cli import index_check
from minikube_py.cli.apart import Say
from minikube_py.cli.table import table


def configure(parser: argparse.ArgumentParser) -> None:
    index_check.arguments_of_check(parser, "front")


def run(arguments: argparse.Namespace) -> int:
    try:
        from minikube_py.lab.conformance.subject import parse_options
        from minikube_py.studies.emptiness import check
    except ModuleNotFoundError as error:
        return index_check.without(error, "front")

    def judge(say: Say) -> check.Verdict:
        subject = check.find_front(arguments.target, parse_options(arguments.option))
        return check.check(subject, arguments.examples, arguments.seed, not arguments.no_bench, say)

    verdict = index_check.verdict_of(arguments, judge)
    if arguments.json:
        print(json.dumps(check.as_json(verdict), indent=2))
        return 0 if verdict.holds else 1
    for part in verdict.parts:
        index_check.print_part(part)
    if verdict.costs:
        heads = ["NODES", "FRONT", "LET THROUGH", "BYTES", "HELD", "ROWS READ", "US A REQUEST", "US A CHANGE"]
        rows = [[*cost[:2], *("-" if each != each else f"{each:.3g}" for each in cost[2:])] for cost in verdict.costs]
        print("\nLET THROUGH: share of full shards; ROWS READ: for each changed node")
        print("BYTES: for a query, as it states (built-in fronts: packed bits); HELD: by tracemalloc, nodes included")
        print(table(heads, rows, set(heads[2:])))
        for note in check.notes(verdict):
            print(f"\n{note}")
    for line in verdict.asked:
        print(f"\n{line}")
    print(f"\n{verdict.front}: {'all laws hold' if verdict.holds else 'broken'}")
    return 0 if verdict.holds else 1
