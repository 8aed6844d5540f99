"""Pods that wait at Permit, until all plugins that requested it allow them, one rejects them, or time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from minikube_py.client.timers import Timer, Timers
from minikube_py.scheduler.framework import SUCCESS, Code, Status
from minikube_py.scheduler.objects import PodInfo

WAIT_MAX_S = 900.0
"""The longest wait that a plugin may request."""


def duration_text(duration_s: float) -> str:
    """As Go prints a time.Duration: 10s, 1m30s, 500ms."""
    if duration_s < 1.0:
        return f"{duration_s * 1000:g}ms" if duration_s else "0s"
    minutes, seconds = divmod(duration_s, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{seconds:g}s"


class WaitingPod:
    """`result` is set to Success, or to the rejection."""

    __slots__ = ("node_name", "pending", "pod", "result")

    def __init__(self, pod: PodInfo, node_name: str) -> None:
        self.pod = pod
        self.node_name = node_name
        self.pending: dict[str, Timer] = {}
        self.result: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    def allow(self, plugin: str) -> None:
        """Called once by each plugin that made the pod wait; after the last one, the pod continues."""
        timer = self.pending.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self.pending:
            self._end(SUCCESS)

    def reject(self, plugin: str, message: str) -> bool:
        """False if it is allowed or rejected already."""
        return self._end(Status(Code.UNSCHEDULABLE, message, plugin=plugin))

    def preempt(self, plugin: str) -> bool:
        """As `reject`, but no event is needed for the pod to be tried again."""
        return self._end(Status(Code.ERROR, "waiting on permit for pod: preempted", plugin=plugin))

    def _end(self, status: Status) -> bool:
        for timer in self.pending.values():
            timer.cancel()
        self.pending.clear()
        if self.result.done():
            return False
        self.result.set_result(status)
        return True


class WaitingPods:
    """By uid. Plugins access them through their handle."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._pods: dict[str, WaitingPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def add(self, pod: PodInfo, node_name: str, waits: dict[str, float]) -> WaitingPod:
        """`waits`: by plugin, its timeout in seconds."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name)
        for plugin, timeout_s in waits.items():
            limit_s = min(timeout_s, WAIT_MAX_S)
            waiting.pending[plugin] = self._timers.call_later(limit_s, self._expire(waiting, plugin, limit_s))
        return waiting

    @staticmethod
    def _expire(waiting: WaitingPod, plugin: str, limit_s: float) -> Callable[[], None]:
        text = f"rejected due to timeout after waiting {duration_text(limit_s)} at plugin {plugin}"

        def expire() -> None:
            waiting.reject(plugin, text)

        return expire

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)
