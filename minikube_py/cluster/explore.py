"""Runs one test of a program under many seeds, each with another interleaving and other faults, drawn from the
registry and aimed at the steps that the program took in a first run without faults (`aimed_faults`).

For a failing seed it searches the shortest schedule of faults that still fails, by halves and then one by one."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from minikube_py.cluster.aimed_faults import Aimed, FaultlessRun, drawn
from minikube_py.cluster.code_place import place
from minikube_py.cluster.fault_injection import FaultInjection
from minikube_py.cluster.local import Cluster
from minikube_py.cluster.no_cluster import no_cluster
from minikube_py.cluster.timeline import NS_PER_S, Timeline
from minikube_py.cluster.versions import versions, versions_told
from minikube_py.sim.loop import SimFailure
from minikube_py.sim.replaced import frozen
from minikube_py.sim.shrinking import Rounds, fewest

RUNS_TO_SHRINK_MAX: Final = 120
FAILS_CALM: Final = "it fails without faults, in the first run, so no seed was explored"

_ONE_AT_A_TIME: Final = threading.RLock()

Test = Callable[[Cluster], object]
Failures = tuple[type[BaseException], ...]
Paths = Path | str | Sequence[Path | str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run. `error`: None if the test passed. `programs`: how each went, a line each. `begun`: the faults that
    began, with their time in nanoseconds. `met`: the kinds of those that had an effect."""

    faults: tuple[Aimed, ...]
    error: BaseException | None
    timeline: Timeline
    calm: FaultlessRun
    programs: tuple[str, ...] = ()
    begun: tuple[tuple[int, Aimed], ...] = ()
    met: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.error is None


@dataclass(slots=True)
class Found:
    """A failing seed: as drawn, once more, and with the fewest faults that still fail. `runs`: of all of them."""

    seed: int
    drawn: Outcome
    again: Outcome
    least: Outcome
    runs: int

    @property
    def repeats(self) -> bool:
        return _alike(self.drawn, self.again)

    def text(self) -> str:
        error, least = self.least.error, self.least
        lines = [f"seed {self.seed} fails: {type(error).__name__}: {error}".strip()]
        of = f"{len(least.faults)} of {len(self.drawn.faults)} faults, {self.runs} runs"
        if self.repeats:
            lines.append(f"the shortest schedule found that still fails ({of}):")
        else:
            error = self.again.error
            came = "did not fail again" if error is None else f"failed otherwise: {type(error).__name__}: {error}"
            lines += [
                f"once more, the same seed {came}. The program or the test reads time, randomness or an undecided "
                "order by itself",
                f"the schedule that failed ({of}):",
            ]
        lines += [f"  {at_ns / NS_PER_S:10.4f}  {fault}" for at_ns, fault in least.begun] or ["  no fault at all"]
        lines += [*least.programs, f"with {versions_told(versions(programs=True))}"]
        lines += ["reads and writes, in virtual seconds since the cluster was ready:", *least.timeline.lines()]
        return "\n".join(lines)


@dataclass(slots=True)
class Explored:
    """`seeds`: how many ran, of `asked`. `kinds`: how many faults of each had an effect."""

    asked: int
    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    found: Found | None = None

    def text(self) -> str:
        ran = "" if self.seeds == self.asked else f"{self.seeds} of "
        faults = f"{_told(self.kinds.total(), 'fault')} of {_told(len(self.kinds), 'kind')}"
        return f"{ran}{_told(self.asked, 'seed')}, {faults}"


def _told(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def explore(test: Test, seeds: Sequence[int], nodes: int = 1, failures: Failures = (), stages: Paths = ()) -> Explored:
    """Stops at the first seed that fails. `failures`: what the test may raise as its failure besides an Exception.

    Raises: what the test raises without any fault, with a note of this and of the programs."""
    run = partial(run_once, test, nodes=nodes, failures=failures, stages=stages)
    calm_run = run("calm", ())
    if calm_run.error is not None:
        told = str(calm_run.error)
        calm_run.error.add_note("\n".join((FAILS_CALM, *(each for each in calm_run.programs if each not in told))))
        raise calm_run.error
    result = Explored(len(seeds))
    for seed in seeds:
        faults = drawn(f"explore {seed}", calm_run.calm, nodes)
        try:
            outcome = run(seed, faults)
            result.seeds += 1
            result.kinds.update(outcome.met)
            if not outcome.passed:
                result.found = shrunk(partial(run, seed), seed, outcome)
                return result
        except BaseException as error:
            # Of a limit of time, or Ctrl-C.
            error.add_note(f"it came while seed {seed} was explored")
            raise
    return result


def run_once(
    test: Test, seed: object, faults: Sequence[Aimed], nodes: int = 1, failures: Failures = (), stages: Paths = ()
) -> Outcome:
    """One run of the test, in a new cluster; one at a time, because a process has one `random`."""
    with _ONE_AT_A_TIME:
        # Garbage of an earlier run is only found before the freeze.
        gc.collect()
        with frozen():
            return _run_once(test, seed, faults, nodes, failures, stages)


def _run_once(
    test: Test, seed: object, faults: Sequence[Aimed], nodes: int, failures: Failures, stages: Paths
) -> Outcome:
    kept = random.getstate()
    # The seed also determines the program's own random draws.
    random.seed(f"explore {seed}")
    error: BaseException | None = None
    programs: tuple[str, ...] = ()
    failed: tuple[type[BaseException], ...] = (Exception, *failures)
    try:
        with no_cluster(), Cluster(nodes, clock="virtual", seed=f"explore {seed}", stages=stages) as cluster:
            engine = cluster._virtual()
            timeline = engine.programs.timeline
            injection = FaultInjection(engine.programs, engine.plane.player, faults)
            injection.start()
            try:
                test(cluster)
            except failed as raised:
                error = raised
            programs = tuple(engine.programs.lines())
            span_us = (engine.virtual.now_ns - timeline.zero_ns) // 1000
    except SimFailure as raised:
        error = error or raised
    finally:
        random.setstate(kept)
    calm = FaultlessRun(max(span_us, 1), dict(engine.programs.steps))
    met = tuple([faults[place].kind for place in injection.met])
    return Outcome(tuple(faults), error, timeline, calm, programs, tuple(injection.begun), met)


def shrunk(run: Callable[[Sequence[Aimed]], Outcome], seed: int, outcome: Outcome) -> Found:
    """Removes faults as long as the test still fails in the same way."""
    least, again, rounds = outcome, run(outcome.faults), Rounds(RUNS_TO_SHRINK_MAX)

    def fails(faults: tuple[Aimed, ...]) -> Outcome | None:
        nonlocal least
        tried = run(faults)
        if not _alike(tried, outcome):
            return None
        least = tried
        return tried

    asked = rounds.limited(fails)
    # None at all first: then the interleaving alone is the cause.
    if _alike(again, outcome) and outcome.faults and asked(()) is None:
        fewest(outcome.faults, asked)
    return Found(seed, outcome, again, least, 2 + RUNS_TO_SHRINK_MAX - rounds.left)


def _alike(one: Outcome, other: Outcome) -> bool:
    """By type and place: two failed asserts are two bugs."""
    return type(one.error) is type(other.error) and place(one.error) == place(other.error)
