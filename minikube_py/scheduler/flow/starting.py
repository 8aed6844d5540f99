"""Entry point from the scheduler to flow scheduling: loads cost models and solvers when a profile needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikube_py.client.timers import Timers
    from minikube_py.scheduler.binding import Bindings
    from minikube_py.scheduler.flow.rounds import Rounds as Rounds
    from minikube_py.scheduler.scheduler import Scheduler


def rounds_of(scheduler: Scheduler, bindings: Bindings, timers: Timers) -> list[Rounds]:
    """Creates the rounds of those scheduler profiles that are placed by flow."""
    for run in scheduler.profiles.values():
        if (placer := run.profile.placer) is not None:
            from minikube_py.scheduler.flow.rounds import Rounds

            run.rounds = Rounds(scheduler, run, placer, bindings, timers)
    return [run.rounds for run in scheduler.profiles.values() if run.rounds is not None]
