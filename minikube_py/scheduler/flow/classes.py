"""What a round knows of its pods: classes of equal ones, those that stay, and how each was placed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from minikube_py.scheduler.flow.graph import Step
from minikube_py.scheduler.flow.model import Task
from minikube_py.scheduler.framework import IntArray
from minikube_py.scheduler.objects import QueuedPodInfo
from minikube_py.scheduler.preparing import Prepared


class Decision(NamedTuple):
    """How a pod was placed. `path`: the arcs to the sink; `alternative`: the price of leaving it unscheduled."""

    round: int
    node: str
    model: str
    solver: str
    task_class: str
    path: tuple[Step, ...]
    alternative: int

    @property
    def price(self) -> int:
        return sum(step.cost for step in self.path)


class Promise(NamedTuple):
    """The pod's key, the node, and the uids of its victims."""

    pod: str
    node: str
    victims: tuple[str, ...]


class Staying(NamedTuple):
    """Pods of one class; `alternative`: what it costs to leave them, or None if they fit nowhere."""

    pods: Sequence[QueuedPodInfo]
    alternative: int | None
    key: Hashable

    @property
    def names(self) -> tuple[Hashable, str]:
        """Its key, which a price may change, and its pod that waited longest, which others may replace."""
        return self.key, min((queued.initial_attempt_s or 0.0, queued.pod.uid) for queued in self.pods)[1]


class PodClass:
    """Equal pods in a round, in queue order."""

    __slots__ = ("feasible", "job", "key", "of", "pods", "prepared", "read", "room", "solver")

    def __init__(self, key: Hashable, job: str, read: Hashable) -> None:
        """`read`: what the node-local filters read of its pods."""
        self.key = key
        self.job = job
        self.read = read
        self.of: Task
        self.feasible: IntArray
        self.room: IntArray
        self.pods: list[QueuedPodInfo] = []
        self.prepared: Prepared | None = None
        self.solver = ""
