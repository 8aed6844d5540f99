"""The runs of one `bench schedule`: all combinations of node count, sampling and matcher, from the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minikube_py.control_plane.config import Step
from minikube_py.errors import InvalidRequest, WrongUsage
from minikube_py.index.catalogue import admit, build, built_in
from minikube_py.lab import report
from minikube_py.lab.environment import Environment
from minikube_py.lab.ledger import Misplaced
from minikube_py.lab.store_indexes import StoreIndex
from minikube_py.lab.stress import Outcome, StressOptions, run_stress
from minikube_py.lab.stress_report import name_of, print_outcomes, write_outcomes
from minikube_py.lab.virtual import in_virtual_time
from minikube_py.scheduler.matcher import COLUMNS

FAMILY_FLAG = "family"


def variants(
    each: StressOptions, nodes: Sequence[int], samplings: Sequence[str], matchers: Sequence[str]
) -> list[StressOptions]:
    """All combinations. Raises: InvalidRequest."""
    return [
        replace(each, nodes=count, sampling=sampling, matcher=matcher)
        for count in nodes
        for sampling in samplings
        for matcher in _matchers(matchers)
    ]


def _matchers(names: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys((COLUMNS, *built_in()) if name == FAMILY_FLAG else (admit(name),)))
    for name in found:
        if name != COLUMNS:
            build(name, 1, {})
    return list(found)


def store_index(text: str) -> StoreIndex:
    name, equals, structure = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"{text!r}: write NAME=STRUCTURE, as in fits=max-tree")
    structure = admit(structure)
    build(structure, 1, {})
    return StoreIndex(name, structure)


async def run_all(runs: Sequence[StressOptions], *, data_dir: Path | None, results: Path, step: Step) -> bool:
    """Prints progress; False if a pod was misplaced, or left pending although it fits.

    Raises: MinikubeError of every kind."""
    report.require_writable(results)
    if data_dir is not None and len(runs) > 1:
        raise WrongUsage(f"--data-dir holds one run, and these are {len(runs)}; leave it out, or ask for one")
    ran = [await _real(options, data_dir, step) for options in runs]
    return _tell([each for each in ran if each is not None], results) and None not in ran


def run_all_virtually(runs: Sequence[StressOptions], *, again: str, results: Path, step: Step) -> bool:
    """`run_all` in virtual time, each run with its digest. `again`: the command without its seed.

    Raises: MinikubeError of every kind; SimFailure."""
    if runs[0].members > 1:
        raise WrongUsage(f"--virtual has one member, not {runs[0].members}; `make swarm` simulates several")
    report.require_writable(results)
    ran = [_virtual(options, again, step) for options in runs]
    return _tell([each for each in ran if each is not None], results) and None not in ran


Ran = tuple[Environment, Outcome]


async def _real(options: StressOptions, data_dir: Path | None, step: Step) -> Ran | None:
    try:
        environment, outcome = await run_stress(options, data_dir=data_dir, step=step)
    except Misplaced as error:
        _say_wrong(options, error)
        return None
    print(f"{name_of(outcome)}: {outcome.pods_per_s:,.0f} pods/s", flush=True)
    return environment, outcome


def _virtual(options: StressOptions, again: str, step: Step) -> Ran | None:
    try:
        (environment, outcome), history = in_virtual_time(
            options.seed, lambda virtual: run_stress(options, data_dir=None, step=step, virtual=virtual)
        )
    except Misplaced as error:
        _say_wrong(options, error)
        return None
    print(f"{name_of(outcome)}: {outcome.attempts:,} attempts, {outcome.verdict.bound:,} bound", flush=True)
    for line in history.lines(again):
        print(f"  {line}", flush=True)
    return environment, replace(outcome, history=history.as_dict())


def _say_wrong(options: StressOptions, error: Misplaced) -> None:
    print(f"WRONG: {options.nodes:,} nodes, {options.sampling}, {options.matcher}: {error}", flush=True)


def _tell(ran: Sequence[Ran], results: Path) -> bool:
    if ran:
        environment = ran[-1][0]
        environment.tell()
        outcomes = [outcome for _, outcome in ran]
        print_outcomes(outcomes)
        report.print_written(write_outcomes(results, environment, outcomes))
    return True
