"""Replays one simulated history, step by step: identical to the byte each time.

  python -m minikube_py.sim.replay 4711                 what happened, and the verdicts
  python -m minikube_py.sim.replay 4711 --until 3.5     stops at that second
  python -m minikube_py.sim.replay 4711 --shrink        with as few faults and requests as still fail
  python -m minikube_py.sim.replay 4711 --of cluster    that of a whole control plane"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TextIO

from minikube_py.sim.fault_schedule import named_schedule
from minikube_py.sim.histories import NAMES, STORE, Histories, histories
from minikube_py.sim.run import Outcome, Run, RunOptions, drawn_faults
from minikube_py.sim.shrinking import fewest

OPERATIONS_MIN = 8
_DRAWN = re.compile(r"""b?'[^']*'|b?"[^"]*"|\d+""")


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Exit code 1 if the history failed."""
    out = out or sys.stdout
    parsed = _parser().parse_args(arguments)
    of = histories(parsed.of)
    options = of.drawn(parsed.seed)
    if parsed.operations is not None:
        options = replace(options, operations=parsed.operations)
    if unknown := set(parsed.without or ()) - named_schedule(options.seed, options.plan).keys():
        raise SystemExit(f"seed {options.seed} has no fault {', '.join(sorted(unknown))}")
    if parsed.without:
        options = replace(options, without=frozenset(parsed.without))
    if parsed.shrink:
        return _shrink(of, options, out)
    return replay(of.run, options, out, parsed.until)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minikube_py.sim.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("seed", type=int)
    parser.add_argument("--of", choices=NAMES, default=NAMES[0], help="of what (default: the store)")
    parser.add_argument("--until", type=float, metavar="S", help="tell nothing after this second of virtual time")
    parser.add_argument("--operations", type=int, metavar="N", help="requests before all heals (default: 220)")
    parser.add_argument("--without", type=_names, metavar="NAME,NAME", help="faults of the schedule to leave out")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller history that fails in the same way")
    return parser


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def replay(kind: type[Run], options: RunOptions, out: TextIO, until_s: float | None = None) -> int:
    """Prints what happens in the history with these options. Exit code 1 if it failed."""
    plan = options.plan
    print(
        f"seed {options.seed}: {plan.members} members, {options.clients} clients ({options.workers} requests at once), "
        f"{options.operations} requests",
        file=out,
    )
    for name, fault in named_schedule(options.seed, plan).items():
        left_out = "  (left out)" if name in options.without else ""
        print(f"  {name:>16} at {fault.at_us / 1e6:9.6f}: {fault}{left_out}", file=out)

    def told(line: str) -> None:
        if until_s is None or float(line.partition(" ")[0]) <= until_s:
            print(line, file=out)

    run = kind(options, told)
    outcome = run.go()
    print(file=out)
    for name, verdict in outcome.verdicts.items():
        print(f"{name:14s} {verdict.outcome}{': ' if verdict.text else ''}{verdict.text}", file=out)
    counted = ", ".join(f"{count} {name}" for name, count in outcome.counts.items() if count and "fault " not in name)
    print(f"\n{counted}\n{run.fingerprint()}", file=out)
    return 1 if outcome.violations else 0


# -- shrinking ---------------------------------------------------------------------------------------------------------


def _shrink(of: Histories, options: RunOptions, out: TextIO) -> int:
    first = of.run(options).go()
    if not first.violations:
        print(f"seed {options.seed} does not fail: there is nothing to shrink", file=out)
        return 0
    wanted = kinds_of(first)

    def still_wrong(options: RunOptions) -> bool:
        return not wanted.isdisjoint(kinds_of(of.run(options).go()))

    smallest = shrunk(options, still_wrong, lambda text: print(text, file=out, flush=True))
    left = len(drawn_faults(smallest))
    print(f"\n{left} faults and {smallest.operations} requests still go wrong:\n  {command(smallest, of)}", file=out)
    for name, text in of.run(smallest).go().violations.items():
        print(f"{name}: {text}", file=out)
    return 1


def command(options: RunOptions, of: Histories = STORE) -> str:
    """The command that replays a history with these options."""
    drawn = of.drawn(options.seed)
    words = [f"{of.replay} {options.seed}"]
    if options.operations != drawn.operations:
        words.append(f"--operations {options.operations}")
    if options.without:
        words.append(f"--without {','.join(sorted(options.without))}")
    return " ".join(words)


def kinds_of(outcome: Outcome) -> set[tuple[str, str]]:
    """Its violations by checker and wording without what was drawn: two sentences of one checker are two bugs."""
    return {(name, _DRAWN.sub("#", text.partition("\n")[0])) for name, text in outcome.violations.items()}


def shrunk(
    options: RunOptions, wrong: Callable[[RunOptions], bool], tell: Callable[[str], None] = lambda text: None
) -> RunOptions:
    """Fewer faults first, none at all or by `fewest`; then fewer requests; until nothing can be removed."""
    names = tuple(named_schedule(options.seed, options.plan))

    def tried(candidate: RunOptions) -> RunOptions | None:
        nonlocal options
        if not wrong(candidate):
            return None
        options = candidate
        tell(f"{len(drawn_faults(options)):3d} faults, {options.operations:4d} requests")
        return options

    def fails(left: tuple[str, ...]) -> RunOptions | None:
        return tried(replace(options, without=frozenset(names) - frozenset(left)))

    before = None
    while options != before:
        before = options
        left = tuple(name for name in names if name not in options.without)
        if left and fails(()) is None:
            fewest(left, fails)
        for operations in (int(options.operations * share) for share in (0.3, 0.6, 0.9)):
            if operations >= OPERATIONS_MIN and tried(replace(options, operations=operations)):
                break
    return options


if __name__ == "__main__":
    sys.exit(main())
