"""The door to flow scheduling from the scheduler: cost models and solvers load when a profile asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikube_py.client.timers import Timers
    from minikube_py.scheduler.binding import Bindings
    from minikube_py.scheduler.flow.rounds import Rounds as Rounds
    from minikube_py.scheduler.scheduler import Scheduler


def rounds_of(scheduler: Scheduler, bindings: Bindings, timers: Timers) -> list[Rounds]:
    """Gives them to those of the scheduler's profiles that are placed by flow."""
    for run in scheduler.profiles.values():
        if (placer := run.profile.placer) is not None:
            from minikube_py.scheduler.flow.rounds import Rounds

            run.rounds = Rounds(scheduler, run, placer, bindings, timers)
    return [run.rounds for run in scheduler.profiles.values() if run.rounds is not None]
