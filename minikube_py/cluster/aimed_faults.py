"""Which faults a seed has, and at which of the program's steps they begin.

A first run without faults counts the program's steps: its requests, by verb and plural, and the events on their way to
it. A fault is aimed at one of them that it can affect: a conflict at an update, a cut at an event of a watch. Source of
the classes of faults: Sun and others, Automatic reliability testing for cluster management controllers, OSDI 2022
(intermediate, stale and unobserved states)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from minikube_py.cluster.faults import METHODS
from minikube_py.cluster.program import EVENTS, Step
from minikube_py.env import Rng
from minikube_py.sim.fault_schedule import REGISTRY
from minikube_py.sim.faults import MS, Fault, Plan, S, chosen, lasting, of_each_kind, takes_part
from minikube_py.sim.inject_api import KINDS, READS, UPDATES, WRITES

WATCH: Final = "watch"
REQUESTS: Final = (*READS, *WRITES)
FITS: Final[Mapping[str, tuple[str, ...]]] = {
    "conflict": UPDATES,
    **dict.fromkeys(("lost_answer", "crash_client"), WRITES),
    **dict.fromkeys(("fail", "throttle", "no_leader", "slow"), REQUESTS),
    **dict.fromkeys(("expire", "cut_watch", "slow_events", "unseen", "repeat", "stale"), (*EVENTS, WATCH)),
}
"""The steps that a kind of fault can affect; others can begin at any."""
COUNTS: Final = (2, 3, 3, 4, 4, 5, 6, 9)
"""The number of faults per seed."""
AMONG: Final = 12
"""So many kinds share the count, also when the registry grows."""
CLASSES: Final[tuple[tuple[str, ...], ...]] = (
    ("crash_client",),
    ("stale",),
    ("crash_client", "stale"),
    ("stale", "unseen", "cut_watch", "expire", "slow_events"),
    ("conflict", "lost_answer", "fail", "no_leader"),
    ("crash_client", "stale", "unseen", "conflict", "slow"),
)
"""Those that break operators: intermediate, stale and unobserved states; writes refused or answered wrongly."""
CLASSES_SHARE: Final = 0.75
NOT_DRAWN: Final = ("node_up",)
"""Rows that end another fault are not faults."""
LATER_SHARE: Final = 0.4
LATER_US: Final = (20 * MS, 20 * S)
"""A watch that is open is affected by what comes later, too."""
EVERYTHING_SHARE: Final = 0.2
"""Of faults that affect requests or watches of all resources, as when an API server restarts."""
NODE_DOWN_MAX_US: Final = 60 * S


class Aimed(NamedTuple):
    """The fault begins `fault.at_us` after that step, and at 0 just before it; without a step, after the cluster's
    start."""

    fault: Fault
    step: Step | None = None

    @property
    def kind(self) -> str:
        return self.fault.kind

    def __str__(self) -> str:
        at_s = f"{self.fault.at_us / S:.3f} s"
        if self.step is None:
            return f"{at_s} after the start: {described(self.fault)}"
        verb, plural, nth = self.step
        when = f"{at_s} after" if self.fault.at_us else "at"
        event = " event" if verb in EVENTS else ""
        return f"{when} the {ordinal(nth)} {verb}{event} of {plural}: {described(self.fault)}"


@dataclass(frozen=True, slots=True)
class FaultlessRun:
    """Observations of the run without faults. `steps`: how many of each, by verb and plural."""

    span_us: int
    steps: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def fitting(self, kind: str) -> list[tuple[str, str]]:
        """Verbs and plurals. Where there is no watch, a list may be stale."""
        verbs = FITS.get(kind)
        found = sorted(each for each in self.steps if verbs is None or each[0] in verbs)
        return found if found or kind != "stale" else self.listed()

    def listed(self) -> list[tuple[str, str]]:
        return sorted(each for each in self.steps if each[0] == "list")


def drawn(seed: object, calm: FaultlessRun, nodes: int) -> tuple[Aimed, ...]:
    """Each kind draws from a stream of its own, so that a new kind leaves the others their faults."""
    of_plan, among = Rng(f"faults {seed}"), 0.0
    if of_plan.random() < CLASSES_SHARE:
        kinds = chosen(seed, CLASSES)
    else:
        share = of_plan.choice((0.2, 0.5, 0.9))
        kinds = tuple([each for each in KINDS if each not in NOT_DRAWN and takes_part(seed, each, share)])
        among = share * AMONG
    plan = Plan(count=of_plan.choice(COUNTS), kinds=kinds, among=among)
    steps: dict[str, list[tuple[str, str]]] = {}
    faults: list[Aimed] = []
    for kind, rng in of_each_kind(seed, plan):
        of_a_node = kind.startswith("node_")
        if kind not in steps:
            steps[kind] = calm.fitting(kind)
            rng.shuffle(steps[kind])
        # Without any step the test itself may be the client, at any time.
        if not nodes if of_a_node else calm.steps and not steps[kind]:
            continue
        # Not the same again while there are others.
        steps[kind] = [*steps[kind][1:], *steps[kind][:1]]
        faults += _aimed(rng, kind, steps[kind][-1] if steps[kind] else None, calm, nodes)
    return tuple(faults)


def _aimed(
    rng: Rng, kind: str, verb_and_plural: tuple[str, str] | None, calm: FaultlessRun, nodes: int
) -> Iterator[Aimed]:
    step, at_us = None, rng.randrange(calm.span_us)
    if verb_and_plural is not None:
        step = Step(*verb_and_plural, rng.randint(1, calm.steps[verb_and_plural]))
        later = step.verb == WATCH or rng.random() < LATER_SHARE
        at_us = lasting(rng, Plan(), *LATER_US) if later and step.verb in (WATCH, *EVENTS) else 0
    for fault in REGISTRY[kind].draw(rng, Plan(), at_us):
        yield Aimed(_fitting(rng, fault, step, calm, nodes), step)


def _fitting(rng: Rng, fault: Fault, step: Step | None, calm: FaultlessRun, nodes: int) -> Fault:
    """About the step's resource, and no longer than a test waits."""
    if fault.kind == "node_down":
        return fault._replace(
            subject=f"node-{rng.randrange(nodes)}", duration_us=min(fault.duration_us, NODE_DOWN_MAX_US)
        )
    if fault.kind == "crash_client":
        return fault._replace(amount=0.0)
    subject = step.plural if step is not None else ""
    if fault.kind == "stale":
        # An old view of anything that the program lists, whatever it does.
        return fault._replace(subject=rng.choice(calm.listed() or [("", subject)])[1])
    return fault._replace(subject="" if rng.random() < EVERYTHING_SHARE else subject)


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
