"""Faults of the processes of a control plane beside its store: API servers, scheduler, controllers, kubelets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from minikube_py.env import Rng
from minikube_py.sim.faults import MS, Draw, Fault, Injection, Plan, S, lasting

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer
    from minikube_py.sim.plane_parts import PartsPlayer

LONG_SHARE: Final = 0.3
LONG_US: Final = (45 * S, 150 * S)
"""Longer than the grace period of nodes, and the leases of leaders."""
BEHIND: Final = ("pods", "pods", "pods", "nodes", "replicasets", "jobs", "cronjobs", "poddisruptionbudgets")
CARRIED_OUT: Final = "carried out"
FAILS: Final = "fails"
LOST: Final = "the answer is lost"
ENDS_BEFORE: Final = "the client ends before it"
ENDS_AFTER: Final = "it is carried out, and the client ends"
"""Possible outcomes of a write."""


def _draw(kind: str) -> Draw:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        duration_us = lasting(rng, plan, *LONG_US) if rng.random() < LONG_SHARE else lasting(rng, plan, 20 * MS, 10 * S)
        yield Fault(at_us, kind, (), (), duration_us, 0.0, rng.choice(plan.parts))

    return draw


def _kill(player: FaultPlayer, fault: Fault) -> bool:
    parts = cast("PartsPlayer", player).parts
    parts.hold_down(fault.subject)
    player.world.kill(fault.subject)
    return player.until(fault, lambda: parts.release(fault.subject))


def _pause(player: FaultPlayer, fault: Fault) -> bool:
    player.world.pause(fault.subject)
    return player.until(fault, lambda: player.world.resume(fault.subject))


def _cut(player: FaultPlayer, fault: Fault) -> bool:
    """Cuts an API server from all its clients, or another process from all API servers."""
    parts = cast("PartsPlayer", player).parts
    links = parts.links_of(fault.subject)
    for link in links:
        parts.calls.cut(link)

    def end() -> None:
        for link in links:
            parts.calls.mend(link)

    return player.until(fault, end)


def _client(rng: Rng, plan: Plan) -> str:
    return rng.choice([part for part in plan.parts if not part.startswith("api-")])


def _draw_writes(kind: str, most: int) -> Draw:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        yield Fault(at_us, kind, (), (), 0, float(rng.randint(1, most)), _client(rng, plan))

    return draw


def _draw_watches(kind: str) -> Draw:
    def draw(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
        yield Fault(at_us, kind, (), (), lasting(rng, plan, 100 * MS, 60 * S), 0.0, _client(rng, plan))

    return draw


def _spoil(fates: Callable[[int], list[str]]) -> Callable[[FaultPlayer, Fault], bool]:
    def begin(player: FaultPlayer, fault: Fault) -> bool:
        cast("PartsPlayer", player).parts.calls.spoil(fault.subject, fates(int(fault.amount)))
        return True

    return begin


def _late(player: FaultPlayer, fault: Fault) -> bool:
    calls = cast("PartsPlayer", player).parts.calls
    calls.delay_watches(fault.subject)
    return player.until(fault, lambda: calls.resume_watches(fault.subject))


def _draw_behind(rng: Rng, plan: Plan, at_us: int) -> Iterator[Fault]:
    duration_us = lasting(rng, plan, 100 * MS, 60 * S)
    yield Fault(at_us, "part_behind", (), (), duration_us, float(rng.randrange(len(BEHIND))), _client(rng, plan))


def _behind(player: FaultPlayer, fault: Fault) -> bool:
    calls, plural = cast("PartsPlayer", player).parts.calls, BEHIND[int(fault.amount)]
    calls.delay_watches(fault.subject, plural)
    return player.until(fault, lambda: calls.resume_watches(fault.subject, plural))


def _unseen(player: FaultPlayer, fault: Fault) -> bool:
    calls = cast("PartsPlayer", player).parts.calls
    calls.delay_watches(fault.subject)
    return player.until(fault, lambda: calls.expire_watches(fault.subject))


INJECTIONS: Final = (
    Injection("part_kill", "the process `subject` ends, and is started again afterwards", _draw("part_kill"), _kill),
    Injection("part_pause", "the process `subject` is paused", _draw("part_pause"), _pause),
    Injection(
        "part_cut",
        "between `subject` and API servers (of an API server: its clients) nothing passes",
        _draw("part_cut"),
        _cut,
    ),
    Injection(
        "part_fail", "the next `amount` writes of `subject` are answered by 500, and not carried out",
        _draw_writes("part_fail", 4), _spoil(lambda amount: [FAILS] * amount),
    ),
    Injection(
        "part_lost", "the next `amount` writes of `subject` are carried out, and the answers are lost",
        _draw_writes("part_lost", 4), _spoil(lambda amount: [LOST] * amount),
    ),
    Injection(
        "part_crash",
        "`subject` ends with its next write but `amount` // 2, where that is odd once it is carried out",
        _draw_writes("part_crash", 24),
        _spoil(lambda amount: [CARRIED_OUT] * (amount // 2) + [ENDS_AFTER if amount % 2 else ENDS_BEFORE]),
    ),
    Injection("part_late", "watches of `subject` deliver nothing meanwhile", _draw_watches("part_late"), _late),
    Injection(
        "part_behind", "watches of `subject` of one kind, `BEHIND[amount]`, deliver nothing meanwhile: others go on",
        _draw_behind, _behind,
    ),
    Injection(
        "part_unseen", "watches of `subject` deliver nothing meanwhile, and end with 410: what happens is never seen",
        _draw_watches("part_unseen"), _unseen,
    ),
)  # fmt: skip
KINDS: Final = tuple(row.kind for row in INJECTIONS)
