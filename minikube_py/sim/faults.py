"""What goes wrong in a run, and when: a schedule drawn from a seed, as plain data.

Members are named by their places, 0 to n - 1, not by ids: a member that lost its disk comes back to its place under a
new id. `LEADER` names the place of whoever leads when the fault begins: that is where it hurts. Whoever plays a
schedule may have to leave out what would take more members than a majority can spare; it says so in its counts.

Each run has a few kinds of faults, not all: what only shows under long losses is not drowned by crashes, and the other
way round. Source: Groce and others, Swarm testing, 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from minikube_py.env import Rng

FaultKind = Literal[
    "loss",
    "double",
    "delay",
    "cut",
    "clog",
    "crash",
    "kill",
    "pause",
    "torn_sync",
    "rot",
    "full",
    "slow_sync",
    "bad_sync",
    "clock",
    "wipe",
    "grow",
    "shrink",
    "transfer",
    "depose",
    "compact",
    "snapshot",
]
KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

S: Final = 1_000_000
MS: Final = 1_000
LEADER: Final = -1
STORM: Final[tuple[FaultKind, ...]] = (
    "crash", "kill", "torn_sync", "pause", "cut", "delay", "transfer", "loss", "depose", "depose",
)  # fmt: skip
"""What makes for many elections, if it comes quickly and is soon over."""
STORM_SHARE: Final = 0.3
DRIFT_MAX: Final = 1.25
"""A clock counts at most this many seconds in one, and at least one in this many."""


class Fault(NamedTuple):
    """At `at_us`, for `duration_us`. What `places`, `others` and `amount` are depends on `kind`:

    - loss, double: messages from `places` to `others` are lost, or come twice, with the probability `amount`.
    - delay: they take up to `amount` us more, each on its own, so that they overtake each other.
    - cut: they are lost, and links are. clog: they wait, and come when it is over.
    - crash: the power of `places` goes, for `duration_us`, at their disk's `amount`-th operation from now (0: at once).
      kill: their processes end; what they wrote stays. pause: they stand still.
    - torn_sync: as crash, in the middle of a sync that is under way, if one is.
    - rot: a bit flips on the disk of a member while its power is off; it must refuse to start, and comes back empty.
      wipe: it comes back empty, under a new id.
    - full: a disk has room for `amount` bytes more. slow_sync: its syncs take `amount` us more. bad_sync: its
      `amount`-th sync from now fails.
    - clock: the clock of `places` counts `amount` seconds a second.
    - grow: a new member joins. shrink: one is removed, for ever. transfer: leadership goes to `places`.
    - depose: whoever comes to lead meanwhile is cut off from all, or from all but one, or loses its process or its
      power, `amount` us after its election: what it began is left with a few.
    - compact: history older than the share `amount` of all goes. snapshot: `places` take one."""

    at_us: int
    kind: FaultKind
    places: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    duration_us: int = 0
    amount: float = 0.0

    def __str__(self) -> str:
        others = f" -> {self.others}" if self.others else ""
        duration = f" for {self.duration_us / S:.3f} s" if self.duration_us else ""
        amount = f" {self.amount:g}" if self.amount else ""
        return f"{self.kind}{amount} {self.places}{others}{duration}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to go wrong: about `count` faults of `kinds` in the first `span_us`, among `members` places.
    `spare`: places beyond them that may be joined to the cluster. `aimed`: the share of faults of one member that are
    the leader's. `pace`: how long faults last, in usual lengths."""

    members: int = 3
    span_us: int = 8 * S
    count: int = 12
    kinds: tuple[FaultKind, ...] = KINDS
    spare: int = 1
    aimed: float = 0.0
    pace: float = 1.0


def drawn_plan(rng: Rng, span_us: int, *, aimed: bool = False) -> Plan:
    """A plan of its own for each seed: how many members, how many faults, and of which kinds. `aimed`: whoever plays
    it knows LEADER."""
    members = rng.choice((1, 3, 3, 3, 3, 3, 5))
    if aimed and rng.random() < STORM_SHARE:
        members = rng.choice((3, 5))
        stormy = tuple(kind for kind in STORM if rng.random() < 0.5) or STORM
        return Plan(members, span_us, rng.choice((30, 50, 70)), stormy, aimed=rng.choice((0.3, 0.7)), pace=0.1)
    share = rng.choice((0.1, 0.2, 0.4, 0.7))
    kinds = [kind for kind in KINDS if rng.random() < share and (aimed or kind != "depose")]
    count = rng.choice((0, 4, 8, 12, 16, 24))
    share = rng.choice((0.0, 0.5, 0.9)) if aimed else 0.0
    return Plan(members, span_us, count if kinds else 0, tuple(kinds), aimed=share)


def aim(fault: Fault, leader: int | None, members: int) -> Fault | None:
    """`fault` with LEADER as a place; None where nobody leads and it has no other. A side of a cut that names LEADER is
    it alone, the other side all but it."""
    if LEADER not in (*fault.places, *fault.others):
        return fault
    if leader is None:
        return None
    rest = tuple(place for place in range(members) if place != leader)
    places = (leader,) if LEADER in fault.places else fault.places
    others = (leader,) if LEADER in fault.others else fault.others
    if LEADER in fault.places and others:
        others = rest
    elif LEADER in fault.others:
        places = rest
    return fault._replace(places=places, others=others)


def schedule(rng: Rng, plan: Plan) -> list[Fault]:
    """In order of time. The same `rng` gives the same one."""
    faults: list[Fault] = []
    if not plan.kinds:
        return faults
    for _ in range(plan.count):
        at_us = rng.randrange(plan.span_us)
        faults += _DRAW[rng.choice(plan.kinds)](rng, plan, at_us)
    return sorted(faults, key=lambda fault: fault.at_us)


def _some(rng: Rng, plan: Plan, least: int = 1) -> tuple[int, ...]:
    places = list(range(plan.members))
    rng.shuffle(places)
    return tuple(sorted(places[: rng.randint(min(least, plan.members), plan.members)]))


def _one(rng: Rng, plan: Plan) -> tuple[int, ...]:
    return (LEADER,) if rng.random() < plan.aimed else (rng.randrange(plan.members),)


def _while(rng: Rng, plan: Plan, low_us: int = 50 * MS, high_us: int = 3 * S) -> int:
    """Short ones are as likely as long ones, by orders of magnitude."""
    return int(low_us * math.exp(math.log(high_us / low_us) * rng.random()) * plan.pace)


def _links(kind: FaultKind, amount: Callable[[Rng, Plan], float]) -> Callable[[Rng, Plan, int], Iterator[Fault]]:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places, others = (_some(rng, plan), _some(rng, plan)) if rng.random() < 0.6 else (everyone(plan),) * 2
        yield Fault(at_us, kind, places, others, _while(rng, plan, 200 * MS), amount(rng, plan))

    return draw


def everyone(plan: Plan) -> tuple[int, ...]:
    return tuple(range(plan.members))


def _cut(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """A partition in two, one way or both; or one that only its own links see; or a ring in which nobody sees all."""
    duration_us = _while(rng, plan)
    shape = rng.random()
    side = (LEADER,) if rng.random() < plan.aimed else _some(rng, plan)
    rest = tuple(place for place in range(plan.members) if place not in side) or side
    if shape < 0.6:
        yield Fault(at_us, "cut", side, rest, duration_us)
        if shape < 0.4:
            yield Fault(at_us, "cut", rest, side, duration_us)
    elif shape < 0.8:
        yield Fault(at_us, "cut", (rng.randrange(plan.members),), (rng.randrange(plan.members),), duration_us)
    else:
        for place in range(plan.members):
            ahead = (place + plan.members // 2) % plan.members
            yield Fault(at_us, "cut", (place,), (ahead,), duration_us)
            yield Fault(at_us, "cut", (ahead,), (place,), duration_us)


def _swizzle(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """A subset is clogged one by one and unclogged in another order (FoundationDB's swizzle-clogging)."""
    chosen = list(_some(rng, plan))
    rng.shuffle(chosen)
    step_us = _while(rng, plan, 10 * MS, 500 * MS)
    ends = [at_us + step_us * (len(chosen) + turn) for turn in range(len(chosen))]
    rng.shuffle(ends)
    for turn, (place, end_us) in enumerate(zip(chosen, ends)):
        begin_us = at_us + step_us * turn
        duration_us = max(MS, end_us - begin_us)
        yield Fault(begin_us, "clog", (place,), everyone(plan), duration_us)
        yield Fault(begin_us, "clog", everyone(plan), (place,), duration_us)


def _crash(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """One, some, or all at once; at once, or after so many operations of the disk."""
    places = everyone(plan) if rng.random() < 0.2 else _some(rng, plan) if rng.random() < 0.3 else _one(rng, plan)
    after = rng.choice((0, 1, 2, 3, 5, 8, 13, 40))
    yield Fault(at_us, "crash", places, (), _while(rng, plan, 20 * MS), after)


def _stop(kind: FaultKind) -> Callable[[Rng, Plan, int], Iterator[Fault]]:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places = _one(rng, plan) if rng.random() < 0.8 else _some(rng, plan)
        yield Fault(at_us, kind, places, (), _while(rng, plan, 20 * MS))

    return draw


def _disk(kind: FaultKind, amounts: Sequence[float]) -> Callable[[Rng, Plan, int], Iterator[Fault]]:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        yield Fault(at_us, kind, _one(rng, plan), (), _while(rng, plan, 100 * MS), rng.choice(amounts))

    return draw


def _depose(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    after_us = rng.choice((0, 200, 1 * MS, 5 * MS, 20 * MS, 60 * MS))
    yield Fault(at_us, "depose", everyone(plan), (), _while(rng, plan, 1 * S, 20 * S), after_us)


def _clock(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    rate = DRIFT_MAX ** rng.uniform(-1, 1)
    yield Fault(at_us, "clock", _some(rng, plan), (), _while(rng, plan, 500 * MS, 6 * S), round(rate, 3))


def _grow(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    if plan.spare:
        yield Fault(at_us, "grow", (plan.members + rng.randrange(plan.spare),))


def _plain(kind: FaultKind) -> Callable[[Rng, Plan, int], Iterator[Fault]]:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places = (rng.randrange(plan.members),) if kind == "transfer" else _one(rng, plan)
        yield Fault(at_us, kind, places, (), 0, round(rng.random(), 2))

    return draw


_DRAW: Final[dict[FaultKind, Callable[[Rng, Plan, int], Iterator[Fault]]]] = {
    "loss": _links("loss", lambda rng, plan: rng.choice((0.02, 0.1, 0.3, 0.6))),
    "double": _links("double", lambda rng, plan: rng.choice((0.05, 0.3, 0.9))),
    "delay": _links("delay", lambda rng, plan: _while(rng, plan, MS, 800 * MS)),
    "cut": _cut,
    "clog": _swizzle,
    "crash": _crash,
    "kill": _stop("kill"),
    "pause": _stop("pause"),
    "torn_sync": _stop("torn_sync"),
    "rot": _stop("rot"),
    "wipe": _stop("wipe"),
    "full": _disk("full", (0, 100, 5000)),
    "slow_sync": _disk("slow_sync", (10 * MS, 200 * MS, 2 * S)),
    "bad_sync": _disk("bad_sync", (0, 1, 5)),
    "clock": _clock,
    "depose": _depose,
    "grow": _grow,
    "shrink": _plain("shrink"),
    "transfer": _plain("transfer"),
    "compact": _plain("compact"),
    "snapshot": _plain("snapshot"),
}
assert _DRAW.keys() == set(KINDS)
