"""Faults of links. Members speak over TCP, where loss is delay and a cut is a reset or silence. Half of the faults of a
packet network affect single messages between members instead (`sim.message_links`), which Raft has to tolerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from minikube_py.env import Rng
from minikube_py.sim.faults import LEADER, MS, Fault, Injection, Plan, S, everyone, lasting, some
from minikube_py.sim.network import LinkQuality

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer

MESSAGES_SHARE: Final = 0.6
"""Share of loss, duplication and delay faults that affect messages between members. The others affect all bytes."""
RESET_SHARE: Final = 0.4
"""Share of cuts that reset. The others swallow everything."""


def _trouble(
    kind: str,
    about: str,
    amount: Callable[[Rng, Plan], float],
    change: Callable[[LinkQuality, float], LinkQuality],
) -> Injection:
    """Affects single messages between members, or by `change` all bytes."""

    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        places, others = (some(rng, plan), some(rng, plan)) if rng.random() < 0.6 else (everyone(plan),) * 2
        yield Fault(at_us, kind, places, others, lasting(rng, plan, 200 * MS), amount(rng, plan))

    def begin(player: FaultPlayer, fault: Fault) -> bool:
        if player.rng_of(fault).random() < MESSAGES_SHARE:
            sources, others = player.hosts(fault.places), player.hosts(fault.others)
            return player.until(fault, player.cluster.messages.begin(kind, sources, others, fault.amount))
        sources, others = player.sides(fault)
        network = player.world.network
        network.set_quality(change(network.quality, fault.amount), sources, others)
        return player.until(fault, lambda: network.set_quality(network.quality, sources, others))

    return Injection(kind, about, draw, begin)


def _draw_cut(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """A partition in two, one way or both; or one that only its own links see; or a ring in which no member sees all
    others."""
    duration_us = lasting(rng, plan)
    shape = rng.random()
    side = (LEADER,) if rng.random() < plan.aimed else some(rng, plan)
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


def _cut(player: FaultPlayer, fault: Fault) -> bool:
    if player.rng_of(fault).random() >= RESET_SHARE:
        return clog(player, fault)
    sources, others = player.sides(fault)
    network = player.world.network
    network.cut(sources, others)
    return player.until(fault, lambda: network.mend(sources, others))


def _draw_clog(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    """A subset is clogged one by one and unclogged in another order (FoundationDB's swizzle-clogging)."""
    chosen = list(some(rng, plan))
    rng.shuffle(chosen)
    step_us = lasting(rng, plan, 10 * MS, 500 * MS)
    ends = [at_us + step_us * (len(chosen) + turn) for turn in range(len(chosen))]
    rng.shuffle(ends)
    for turn, (place, end_us) in enumerate(zip(chosen, ends)):
        begin_us = at_us + step_us * turn
        duration_us = max(MS, end_us - begin_us)
        yield Fault(begin_us, "clog", (place,), everyone(plan), duration_us)
        yield Fault(begin_us, "clog", everyone(plan), (place,), duration_us)


def clog(player: FaultPlayer, fault: Fault) -> bool:
    sources, others = player.sides(fault)
    network = player.world.network
    network.clog(sources, others)
    return player.until(fault, lambda: network.unclog(sources, others))


INJECTIONS: Final = (
    _trouble(
        "loss",
        "messages from `places` to `others` are lost with probability `amount`, or their segments are sent again",
        lambda rng, plan: rng.choice((0.02, 0.1, 0.3, 0.6)),
        lambda quality, amount: replace(quality, loss=amount, retransmit_s=0.05),
    ),
    _trouble(
        "double",
        "messages are duplicated with probability `amount`, or bytes arrive in pieces",
        lambda rng, plan: rng.choice((0.05, 0.3, 0.9)),
        lambda quality, amount: replace(quality, split=amount),
    ),
    _trouble(
        "delay",
        "messages take up to `amount` us more, each on its own, so that they overtake each other; or segments do",
        lambda rng, plan: lasting(rng, plan, MS, 800 * MS),
        lambda quality, amount: replace(quality, jitter_s=amount / S / 3),
    ),
    Injection("cut", "connections are reset and refused, or nothing arrives", _draw_cut, _cut),
    Injection("clog", "sent data waits, and arrives when the fault ends", _draw_clog, clog),
)
