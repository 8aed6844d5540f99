"""The registry of all faults that can be injected, and schedules of them drawn from a seed.

Each run has a few kinds of faults, not all, so that bugs that need long losses are not masked by crashes, and vice
versa. Source: Groce and others, Swarm testing, 2012. A new fault is a row in one of the `inject_*` modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from minikube_py.env import Rng
from minikube_py.sim import inject_api, inject_links, inject_machines, inject_members, inject_parts, inject_successions
from minikube_py.sim.faults import Fault, Injection, Plan, chosen, of_each_kind, takes_part

STORE: Final = (*inject_links.INJECTIONS, *inject_machines.INJECTIONS, *inject_members.INJECTIONS)
OF_THEIR_OWN: Final = (inject_members.OUTRUN, inject_successions.ANNOUNCE, inject_successions.FULL_HEIRS)
REGISTRY: Final[dict[str, Injection]] = {
    row.kind: row for row in (*STORE, *OF_THEIR_OWN, *inject_api.INJECTIONS, *inject_parts.INJECTIONS)
}
JOINING: Final = frozenset(("grow", "announce"))
"""Their place need not take part yet."""
KINDS: Final = tuple(row.kind for row in STORE)
"""Of members, links and disks; `inject_api.KINDS` are those of a whole control plane and its clients,
`inject_parts.KINDS` those of its other processes."""

STORM: Final = (
    "crash", "kill", "torn_sync", "pause", "cut", "delay", "transfer", "loss", "depose", "depose", "slow_sync",
    "supersede", "supersede",
)  # fmt: skip
"""Causes many elections if it happens often and is short."""
STORM_SHARE: Final = 0.3
THEMES: Final[tuple[tuple[str, ...], ...]] = (
    ("crash", "torn_sync", "slow_sync", "depose"),
    ("cut", "clog", "pause", "clock"),
    ("kill", "loss", "double", "delay", "pause"),
    ("grow", "shrink", "wipe", "transfer", "crash", "snapshot"),
    ("grow", "shrink", "shrink", "transfer"),
    ("supersede", "supersede", "slow_sync", "delay"),
    ("full", "full_start", "bad_sync", "slow_sync", "rot", "crash"),
    ("full", "full", "full_start", "kill", "transfer", "depose"),
)
"""Related kinds of faults."""
THEMED_SHARE: Final = 0.3
AMONG: Final = 22
"""So many kinds share the count of a plan. It stays as it is when the registry grows: a new kind adds its faults."""
STORM_AMONG: Final = 6
OUTRUN: Final = ("outrun", "outrun", "outrun", "kill", "torn_sync")
NEWCOMERS: Final = ("announce", "announce", "announce", "shrink", "crash")
FULL_HEIRS: Final = ("full_heirs", "full_heirs", "pause", "delay")


class Apart(NamedTuple):
    """A share of histories drawn separately, so that all other seeds keep theirs; the content of their plans."""

    name: str
    share: float
    changes: dict[str, Any]


APART: Final = (
    # Members get one snapshot while they install another.
    Apart("outrun", 0.08, {"kinds": OUTRUN, "count": 6, "pace": 1.0}),
    # Members are announced and join while leaders change.
    Apart("newcomers", 0.06, {"kinds": NEWCOMERS, "count": 16, "pace": 1.0, "spare": 3}),
    # Leaders end before they answered, and their successors are out of space.
    Apart("full heirs", 0.06, {"kinds": FULL_HEIRS, "count": 5, "pace": 1.0}),
)


def drawn_plan(seed: object, span_us: int) -> Plan:
    """A plan for each seed: how many members, how many faults, and of which kinds."""
    rng = Rng(f"plan {seed}")
    members = rng.choice((1, 3, 3, 3, 3, 3, 5))
    if rng.random() < STORM_SHARE:
        members, count, aimed = rng.choice((3, 5)), rng.choice((30, 50, 70)), rng.choice((0.3, 0.7))
        stormy = tuple([kind for kind in STORM if takes_part(seed, kind, 0.5)])
        return Plan(members, span_us, count, stormy, aimed=aimed, pace=0.1, among=STORM_AMONG)
    aimed = rng.choice((0.0, 0.5, 0.9))
    if rng.random() < THEMED_SHARE:
        return Plan(members, span_us, rng.choice((12, 24, 36)), chosen(seed, THEMES), aimed=aimed)
    share, count = rng.choice((0.1, 0.2, 0.4, 0.7)), rng.choice((0, 4, 8, 12, 16, 24))
    kinds = tuple([kind for kind in KINDS if takes_part(seed, kind, share)])
    return Plan(members, span_us, count, kinds, aimed=aimed, among=max(1.0, share * AMONG))


def drawn_apart(seed: int, plan: Plan) -> Plan:
    """`plan`, or for a few seeds another one. A single member has none of these faults."""
    for each in APART:
        if plan.members > 1 and Rng(f"{each.name} {seed}").random() < each.share:
            return replace(plan, **each.changes, among=0)
    return plan


def named_schedule(seed: object, plan: Plan) -> dict[str, Fault]:
    """In order of time; a name is the row and the number of the fault among the row's. Each row draws from its own
    stream: one row more adds its faults, and changes neither the others nor their names."""
    faults: dict[str, list[Fault]] = {}
    for kind, rng in of_each_kind(seed, plan):
        faults.setdefault(kind, []).extend(REGISTRY[kind].draw(rng, plan, rng.randrange(plan.span_us)))
    named = {f"{kind}.{number}": fault for kind, drawn in faults.items() for number, fault in enumerate(drawn)}
    return dict(sorted(named.items(), key=lambda each: each[1].at_us))
