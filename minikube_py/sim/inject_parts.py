"""Faults of the processes of a control plane beside its store: API servers, scheduler, controllers, kubelets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from minikube_py.env import Rng
from minikube_py.sim.faults import MS, Draw, Fault, Injection, Plan, S, lasting

if TYPE_CHECKING:
    from minikube_py.sim.fault_player import FaultPlayer
    from minikube_py.sim.plane_parts import PartsPlayer

LONG_SHARE: Final = 0.3
LONG_US: Final = (45 * S, 150 * S)
"""Beyond the grace of nodes, and the leases of leaders."""


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
    """Of an API server: from all its clients; of another: from all API servers."""
    parts = cast("PartsPlayer", player).parts
    links = parts.links_of(fault.subject)
    for link in links:
        parts.calls.cut(link)

    def end() -> None:
        for link in links:
            parts.calls.mend(link)

    return player.until(fault, end)


INJECTIONS: Final = (
    Injection("part_kill", "the process `subject` ends, and is started again afterwards", _draw("part_kill"), _kill),
    Injection("part_pause", "the process `subject` stands still", _draw("part_pause"), _pause),
    Injection(
        "part_cut",
        "between `subject` and API servers (of an API server: its clients) nothing passes",
        _draw("part_cut"),
        _cut,
    ),
)
KINDS: Final = tuple(row.kind for row in INJECTIONS)
