"""Check an index of your own: its laws, whether it reports what it examined, and its cost beside the built-in ones.

  minikube-py index check mine.py:MyIndex
  minikube-py index check max-tree --examples 2000 --seed 7

If a law is broken, the smallest program that shows it is printed; exit code 1."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from minikube_py import own_code
from minikube_py.cli import flags
from minikube_py.cli.apart import Say, judged_apart
from minikube_py.cli.table import table
from minikube_py.errors import to_install

if TYPE_CHECKING:
    from minikube_py.lab.conformance.check import Verdict
    from minikube_py.lab.conformance.judging import Part

T = TypeVar("T")
EXAMPLES = 400


def configure(parser: argparse.ArgumentParser) -> None:
    arguments_of_check(parser, "structure")
    parser.add_argument("--plot", type=flags.new_file, metavar="FILE", help="plot the benchmark to this .svg or .png")


def arguments_of_check(parser: argparse.ArgumentParser, what: str) -> None:
    """Flags shared by the checks of structures and fronts."""
    target_help = f"FILE.py:CLASS, MODULE:CLASS, or the name of a {what}"
    parser.add_argument("target", type=own_code.absolute, metavar="TARGET", help=target_help)
    count = flags.whole_number(1, 1_000_000)
    examples_help = f"number of generated programs; of histories, a quarter as many (default: {EXAMPLES})"
    parser.add_argument("--examples", type=count, default=EXAMPLES, metavar="N", help=examples_help)
    seed_help = "the same seed generates the same programs (default: 0)"
    parser.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)
    option_help = f"an option of the {what}; repeatable"
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help=option_help)
    parser.add_argument("--no-bench", action="store_true", help="only the laws")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(parser=parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.plot and arguments.no_bench:
        arguments.parser.error("--plot plots the benchmark; it excludes --no-bench")
    try:
        from minikube_py.lab.conformance import bench
        from minikube_py.lab.conformance.check import as_json, check
        from minikube_py.lab.conformance.subject import find_subject, parse_options
    except ModuleNotFoundError as error:
        return without(error, "index")

    def judge(say: Say) -> Verdict:
        subject = find_subject(arguments.target, parse_options(arguments.option))
        return check(subject, arguments.examples, arguments.seed, not arguments.no_bench, say)

    verdict = verdict_of(arguments, judge)
    if arguments.json:
        print(json.dumps(as_json(verdict), indent=2))
    else:
        _print(verdict)
    if arguments.plot and verdict.costs:
        written = bench.draw(verdict.costs, verdict.structure, arguments.plot)
        print(f"written: {written}", file=sys.stderr if arguments.json else sys.stdout)
    return 0 if verdict.holds else 1


def without(error: ModuleNotFoundError, command: str) -> int:
    if error.name != "hypothesis":
        raise error
    print(f"minikube-py {command} check: needs hypothesis; {to_install('lab')}", file=sys.stderr)
    return 1


def verdict_of(arguments: argparse.Namespace, judge: Callable[[Say], T]) -> T:
    """By a process of its own. `arguments`: with `json`."""
    progress = Progress(sys.stderr.isatty() and not arguments.json)
    try:
        with notes_elsewhere():
            return judged_apart(judge, progress.say)
    finally:
        progress.done()


@contextlib.contextmanager
def notes_elsewhere() -> Iterator[None]:
    """Hypothesis would leave its notes in the user's folder, unless the user says where."""
    from hypothesis.configuration import set_hypothesis_home_dir

    with tempfile.TemporaryDirectory(prefix="minikube-py-check-") as folder, contextlib.ExitStack() as after:
        after.callback(set_hypothesis_home_dir, None)
        set_hypothesis_home_dir(os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY") or folder)
        yield


class Progress:
    """A progress line, on a terminal only."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown

    def say(self, text: str) -> None:
        if self._shown:
            print(f"\r\x1b[K{text} ...", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print(verdict: Verdict) -> None:
    for part in verdict.parts:
        print_part(part)
    if not verdict.holds:
        print(f"\n{verdict.structure}: broken")
        return
    if verdict.costs:
        print()
        print(_costs(verdict))
        for left_out in verdict.left_out:
            print(f"left out: {left_out.structure}: {left_out.why}")
        print()
        for note in verdict.notes:
            print(note)
    print(f"\n{verdict.structure}: all laws hold")


def print_part(part: Part) -> None:
    print(f"{'ok' if part.failure is None else 'BROKEN':<7} {part.name:<10} {part.what}")
    if part.failure is not None:
        if part.failure.shown:
            print()
            print("\n".join(f"    {line}" for line in part.failure.shown.splitlines()))
        else:
            print(f"    {part.failure.law}:\n      {part.failure.wanted}")


def _costs(verdict: Verdict) -> str:
    """Microseconds by structure and number of rows."""
    asked = list(verdict.costs[0].finds_us)
    heads = ["STRUCTURE", "ROWS", *(question.upper() for question in asked), "CHANGE + FIND", "BYTES/ROW", "EXAMINED"]
    rows = []
    for cost in sorted(verdict.costs, key=lambda cost: cost.rows):
        name = f"* {cost.structure}" if cost.structure == verdict.structure else f"  {cost.structure}"
        figures = [_us(cost.finds_us[question]) for question in asked]
        held = f"{cost.size_bytes / cost.rows:.0f}"
        rows.append([name, f"{cost.rows:,}", *figures, _us(cost.pair_us), held, f"{cost.examined[asked[0]]:,}"])
    title = "microseconds per query; EXAMINED is that of the first query, 0 if its answer was cached"
    return f"{title}\n{table(heads, rows, set(heads[1:]))}"


def _us(value_us: float) -> str:
    return f"{value_us:.1f}" if value_us < 100 else f"{value_us:,.0f}"
