"""Runs one test of a program under many seeds, each with another interleaving and other faults, drawn from the
registry.

A first run without faults measures how long the test takes, and when the program reads and writes which resources. A
seed's faults happen near those moments. For a failing seed it searches the shortest schedule of faults that still
fails, by halves and then one by one. Source of the classes of faults: Sun and others, Automatic reliability testing for
cluster management controllers, OSDI 2022 (intermediate, stale and unobserved states)."""

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

from minikube_py.cluster.code_place import place
from minikube_py.cluster.faults import METHODS
from minikube_py.cluster.local import Cluster
from minikube_py.cluster.no_cluster import no_cluster
from minikube_py.cluster.timeline import Timeline
from minikube_py.env import Rng
from minikube_py.sim.fault_schedule import REGISTRY
from minikube_py.sim.faults import Fault, Plan, S, chosen, of_each_kind, takes_part
from minikube_py.sim.inject_api import KINDS
from minikube_py.sim.loop import SimFailure
from minikube_py.sim.replaced import frozen
from minikube_py.sim.shrinking import Rounds, fewest

COUNTS: Final = (1, 1, 2, 2, 3, 3, 4, 6)
"""The number of faults per seed."""
AMONG: Final = 12
"""So many kinds share the count, also when the registry grows."""
NEAR_SHARE: Final = 0.8
NEAR_US: Final = (-50_000, 150_000)
NODE_DOWN_MAX_US: Final = 60 * S
WELL_AFTER_US: Final = S
RUNS_TO_SHRINK_MAX: Final = 120
CLASSES: Final[tuple[tuple[str, ...], ...]] = (
    ("crash_client",),
    ("crash_client", "stale"),
    ("stale", "cut_watch", "slow_events"),
    ("unseen", "cut_watch", "expire"),
    ("conflict", "lost_answer", "fail", "no_leader"),
    ("crash_client", "unseen", "conflict", "slow"),
)
"""Those that break operators: intermediate, stale and unobserved states; writes refused or answered wrongly."""
CLASSES_SHARE: Final = 0.6
FAILS_CALM: Final = "it fails without faults, in the first run, so no seed was explored"
NOT_DRAWN: Final = ("node_up",)
"""Rows that end another fault are not faults."""

_ONE_AT_A_TIME: Final = threading.RLock()

Test = Callable[[Cluster], object]
Failures = tuple[type[BaseException], ...]
Paths = Path | str | Sequence[Path | str]


@dataclass(frozen=True, slots=True)
class Calm:
    """Observations of the run without faults: when the program read, wrote or was notified, and of what."""

    span_us: int
    moments_us: tuple[int, ...]
    plurals: tuple[str, ...]
    writes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run. `error`: None if the test passed. `programs`: how each went, a line each."""

    faults: tuple[Fault, ...]
    error: BaseException | None
    timeline: Timeline
    calm: Calm
    programs: tuple[str, ...] = ()

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
        lines += [f"  {fault.at_us / S:10.4f}  {described(fault)}" for fault in least.faults] or ["  no fault at all"]
        lines += least.programs
        lines += ["reads and writes, in virtual seconds since the cluster was ready:", *least.timeline.lines()]
        return "\n".join(lines)


@dataclass(slots=True)
class Explored:
    """`seeds`: how many ran, of `asked`. `kinds`: how many faults of each were injected."""

    asked: int
    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    found: Found | None = None

    def text(self) -> str:
        many = self.kinds.total()
        ran = f"{self.seeds} seeds" if self.seeds == self.asked else f"{self.seeds} of {self.asked} seeds"
        return f"{ran}, {many} faults of {len(self.kinds)} kinds"


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
            result.kinds.update(fault.kind for fault in faults)
            if not outcome.passed:
                result.found = shrunk(partial(run, seed), seed, outcome)
                return result
        except BaseException as error:
            # Of a limit of time, or Ctrl-C.
            error.add_note(f"it came while seed {seed} was explored")
            raise
    return result


def run_once(
    test: Test, seed: object, faults: Sequence[Fault], nodes: int = 1, failures: Failures = (), stages: Paths = ()
) -> Outcome:
    """One run of the test, in a new cluster; one at a time, because a process has one `random`."""
    with _ONE_AT_A_TIME:
        # Garbage of an earlier run is only found before the freeze.
        gc.collect()
        with frozen():
            return _run_once(test, seed, faults, nodes, failures, stages)


def _run_once(
    test: Test, seed: object, faults: Sequence[Fault], nodes: int, failures: Failures, stages: Paths
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
            engine.weather(faults, WELL_AFTER_US)
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
    plurals = tuple(sorted(each for each in timeline.plurals if each))
    moments = tuple(each // 1000 for each in timeline.moments_ns)
    calm = Calm(max(span_us, 1), moments, plurals, timeline.writes)
    return Outcome(tuple(faults), error, timeline, calm, programs)


def drawn(seed: object, calm: Calm, nodes: int) -> tuple[Fault, ...]:
    """In order of time. Each kind draws from a stream of its own, so that a new kind leaves the others their faults."""
    of_plan, among = Rng(f"faults {seed}"), 0.0
    if of_plan.random() < CLASSES_SHARE:
        kinds = chosen(seed, CLASSES)
    else:
        share = of_plan.choice((0.2, 0.5, 0.9))
        kinds = tuple([each for each in KINDS if each not in NOT_DRAWN and takes_part(seed, each, share)])
        among = share * AMONG
    faults: list[Fault] = []
    for kind, rng in of_each_kind(seed, Plan(count=of_plan.choice(COUNTS), kinds=kinds, among=among)):
        at_us = rng.randrange(calm.span_us)
        if calm.moments_us and rng.random() < NEAR_SHARE:
            at_us = max(0, rng.choice(calm.moments_us) + rng.randrange(*NEAR_US))
        if nodes or not kind.startswith("node_"):
            faults += [_fitting(rng, each, calm, nodes) for each in REGISTRY[kind].draw(rng, Plan(), at_us)]
    return tuple(sorted(faults, key=lambda fault: fault.at_us))


def _fitting(rng: Rng, fault: Fault, calm: Calm, nodes: int) -> Fault:
    """Matches the program's reads and writes, and lasts no longer than a test waits."""
    if fault.kind == "node_down":
        return fault._replace(
            subject=f"node-{rng.randrange(nodes)}", duration_us=min(fault.duration_us, NODE_DOWN_MAX_US)
        )
    if fault.kind == "crash_client":
        amount = float(rng.randrange(max(1, calm.writes)))
        # Counted from the start, so that it is equally likely to stop before each of its writes.
        return fault._replace(amount=amount, at_us=rng.choice((0, fault.at_us)))
    return fault._replace(subject=rng.choice(("", *calm.plurals)))


def shrunk(run: Callable[[Sequence[Fault]], Outcome], seed: int, outcome: Outcome) -> Found:
    """Removes faults as long as the test still fails in the same way."""
    least, again, rounds = outcome, run(outcome.faults), Rounds(RUNS_TO_SHRINK_MAX)

    def fails(faults: tuple[Fault, ...]) -> Outcome | None:
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


def described(fault: Fault) -> str:
    """Its row of the registry, with its numbers."""
    about = REGISTRY[fault.kind].about
    about = about.replace("`amount`", f"{fault.amount:g}").replace("`subject`", fault.subject or "everything")
    about = about.replace("`nth`", ordinal(int(fault.amount) + 1))
    as_by = f" (as by {METHODS[fault.kind]})" if fault.kind in METHODS else ""
    duration = f" (for {fault.duration_us / S:.3f} s)" if fault.duration_us else ""
    return f"{fault.kind}{as_by}: {about}{duration}"


def ordinal(number: int) -> str:
    tens = {1: "st", 2: "nd", 3: "rd"} if number % 100 not in (11, 12, 13) else {}
    return f"{number}{tens.get(number % 10, 'th')}"
