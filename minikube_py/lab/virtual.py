"""Measurements in virtual time: decisions are measured and reproducible; processor time is not measured.

The coroutine that measures a control plane in real time runs on a VirtualCluster's loop, with its clock. Durations are
virtual: they derive from the configured disk sync times and the components' waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from minikube_py.cluster.versions import versions, versions_told
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.lab.environment import Environment, describe_virtual
from minikube_py.sim.replaced import frozen
from minikube_py.ui.recording import Recording

T = TypeVar("T")
LAYOUT = "one process in virtual time: store, API server, scheduler, controllers, kubelet and load"


@dataclass(frozen=True, slots=True)
class History:
    """The values determined by the seed (`digest`, `revision`, `changes`, `virtual_s`), and the real duration. `name`:
    what was left out."""

    seed: int
    digest: str
    revision: int
    changes: int
    virtual_s: float
    wall_s: float
    cpu_s: float
    name: str = ""

    def lines(self, again: str) -> list[str]:
        """`again`: the command without its seed."""
        ratio = self.virtual_s / self.cpu_s if self.cpu_s else 0.0
        faster = f" ({ratio:,.0f} times real time)" if ratio >= 1 else ""
        name = f" ({self.name})" if self.name else ""
        return [
            f"digest {self.digest}{name}: {self.changes:,} changes up to revision {self.revision:,}, "
            f"of seed {self.seed}, with {versions_told(versions())}",
            f"{self.virtual_s:,.3f} s of virtual time in {self.wall_s:,.1f} s, {self.cpu_s:,.1f} s of them the "
            f"processor's{faster}",
            f"next: `{again} --seed {self.seed}` gives the same digest in any process; another seed gives another "
            "history",
        ]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def in_virtual_time(
    seed: int,
    main: Callable[[VirtualCluster], Coroutine[Any, Any, T]],
    config: VirtualConfig | None = None,
    recording: Recording | None = None,
) -> tuple[T, History]:
    """The result of `main`, which starts the cluster itself, and the resulting history. `recording` observes it.

    Raises: SimFailure; what `main` raises."""
    wall_s, cpu_s = time.monotonic(), time.process_time()
    # Not entered: `main` decides what to start.
    cluster = VirtualCluster(seed, config=config)
    if recording is not None:
        cluster.on_change(recording.take)
    try:
        with frozen():
            result = cluster.run(lambda: main(cluster))
        told = History(
            seed,
            cluster.digest,
            cluster.history.revision,
            cluster.history.changes,
            round(cluster.now_s, 9),
            round(time.monotonic() - wall_s, 3),
            round(time.process_time() - cpu_s, 3),
            cluster.config.name,
        )
        return result, told
    finally:
        cluster.close()


def environment_of(config: VirtualConfig, scored_percent: int) -> Environment:
    return describe_virtual(LAYOUT, config.syncs.sync_s + config.syncs.jitter_s, scored_percent)
