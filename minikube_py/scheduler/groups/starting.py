"""Loads and creates the group cycle if its gate is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikube_py.api.feature_gates import GENERIC_WORKLOAD

if TYPE_CHECKING:
    from minikube_py.scheduler.groups.cycle import GroupCycle
    from minikube_py.scheduler.scheduler import Scheduler


def cycle_of(scheduler: Scheduler) -> GroupCycle | None:
    if GENERIC_WORKLOAD not in scheduler.config.gates:
        return None
    from minikube_py.scheduler.groups.cycle import GroupCycle

    return GroupCycle(scheduler)
