"""Faults of a run as plain data: a fault, and a row of the registry (`sim.fault_schedule`).

Members are named by their places, 0 to n - 1, not by ids: a member that lost its disk comes back to its place under a
new id. `LEADER` is the leader's place when the fault begins: that has the greatest effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from minikube_py.env import Rng

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer

T = TypeVar("T")
S: Final = 1_000_000
MS: Final = 1_000
LEADER: Final = -1
DRIFT_MAX: Final = 1.25
"""A clock counts at most this many seconds per second, and at least one in this many."""


class Fault(NamedTuple):
    """At `at_us`, for `duration_us`. The row of its `kind` defines `places`, `others`, `amount`, `subject`."""

    at_us: int
    kind: str
    places: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    duration_us: int = 0
    amount: float = 0.0
    subject: str = ""

    def __str__(self) -> str:
        others = f" -> {self.others}" if self.others else ""
        duration = f" for {self.duration_us / S:.3f} s" if self.duration_us else ""
        amount = f" {self.amount:g}" if self.amount else ""
        subject = f" of {self.subject}" if self.subject else ""
        return f"{self.kind}{amount}{subject} {self.places}{others}{duration}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of faults: about `count` faults of `kinds` in the first `span_us`, among `members` places. `spare`:
    places beyond them that may be joined to the cluster. `aimed`: the share of single-member faults that hit the
    leader. `pace`: a factor of the faults' duration. `parts`: the other processes of a control plane. `among`: each
    fault of the `count` is of a kind with a probability of one in `among` (0: one in the number of `kinds`)."""

    members: int = 3
    span_us: int = 8 * S
    count: int = 12
    kinds: tuple[str, ...] = ()
    spare: int = 1
    aimed: float = 0.0
    pace: float = 1.0
    parts: tuple[str, ...] = ()
    among: float = 0


Draw = Callable[[Rng, Plan, int], Iterator[Fault]]
"""Draws faults of one kind that begin at a moment or soon after it."""
Begin = Callable[["FaultPlayer", Fault], bool]
"""Injects one into a running cluster; whether it did. Temporary changes are reverted by `FaultPlayer.until`."""


class Injection(NamedTuple):
    """A row of the registry. `about` defines `places`, `others` and `amount`."""

    kind: str
    about: str
    draw: Draw
    begin: Begin


def aim(fault: Fault, leader: int | None, members: int) -> Fault | None:
    """`fault` with LEADER replaced by a place; None if there is no leader and no other place. A side of a cut that
    names LEADER is it alone, the other side all other members."""
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


# -- a stream for each row ---------------------------------------------------------------------------------------------


def takes_part(seed: object, row: str, share: float) -> bool:
    """Whether the row is among those of this seed."""
    return Rng(f"{row} takes part in {seed}").random() < share


def chosen(seed: object, options: Sequence[T]) -> T:
    """One of the options, with equal probability. A new option takes over some seeds; the others keep theirs."""
    return max(options, key=lambda option: Rng(f"{option} is chosen for {seed}").random())


def of_each_kind(seed: object, plan: Plan) -> Iterator[tuple[str, Rng]]:
    """The kinds of the plan's faults, one by one, with the kind's own stream to draw the fault by. What one kind draws
    depends on the seed and its name alone, not on the other kinds."""
    for kind in dict.fromkeys(plan.kinds):
        rng = Rng(f"{kind} of {seed}")
        share = plan.kinds.count(kind) / (plan.among or len(plan.kinds))
        for _ in range(plan.count):
            if rng.random() < share:
                yield kind, rng


# -- what rows draw by -------------------------------------------------------------------------------------------------


def everyone(plan: Plan) -> tuple[int, ...]:
    return tuple(range(plan.members))


def some(rng: Rng, plan: Plan) -> tuple[int, ...]:
    places = list(range(plan.members))
    rng.shuffle(places)
    return tuple(sorted(places[: rng.randint(1, plan.members)]))


def one(rng: Rng, plan: Plan) -> tuple[int, ...]:
    return (LEADER,) if rng.random() < plan.aimed else (rng.randrange(plan.members),)


def lasting(rng: Rng, plan: Plan, low_us: int = 50 * MS, high_us: int = 3 * S) -> int:
    """Short ones are as likely as long ones, by orders of magnitude."""
    return int(low_us * math.exp(math.log(high_us / low_us) * rng.random()) * plan.pace)


def stopping(kind: str) -> Draw:
    """Usually of one, sometimes of several."""

    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places = one(rng, plan) if rng.random() < 0.8 else some(rng, plan)
        yield Fault(at_us, kind, places, (), lasting(rng, plan, 20 * MS))

    return draw


def of_one(kind: str, amounts: Sequence[float]) -> Draw:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        yield Fault(at_us, kind, one(rng, plan), (), lasting(rng, plan, 100 * MS), rng.choice(amounts))

    return draw


def at_once(kind: str) -> Draw:
    """It is instantaneous; `amount` is a share."""

    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places = (rng.randrange(plan.members),) if kind == "transfer" else one(rng, plan)
        yield Fault(at_us, kind, places, (), 0, round(rng.random(), 2))

    return draw
