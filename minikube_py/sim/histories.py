"""The histories that can be simulated: of the store, and of a whole control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from minikube_py.sim.run import Run, RunOptions, drawn_options

NAMES: Final = ("store", "cluster")


class Histories(NamedTuple):
    """`name`: of NAMES. `drawn`: what the seed decides; `run` plays it. `replay`: the command that replays one."""

    name: str
    run: type[Run]
    drawn: Callable[[int], RunOptions]
    replay: str = "python -m minikube_py.sim.replay"


STORE: Final = Histories("store", Run, drawn_options)


def histories(name: str) -> Histories:
    """One of NAMES."""
    if name == "store":
        return STORE
    # Loads every component.
    from minikube_py.sim.plane_run import PlaneRun, drawn_plane

    return Histories("cluster", PlaneRun, drawn_plane, f"{STORE.replay} --of cluster")
