"""PreBind: what must happen before a pod is bound, such as the binding of its volumes; it may take minutes.

Until it has ended, a preemption only cancels it: the pod is not deleted, and is scheduled again. Source:
RunPreBindPlugins and podsInPreBindMap in pkg/scheduler/framework/runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from minikube_py.env import ended
from minikube_py.scheduler.framework import SUCCESS, Code, CycleState, Status
from minikube_py.scheduler.objects import PodInfo


class Running:
    """A pod's PreBind in its binding's task. `plugins`: those that run now. `why`: set once it is cancelled."""

    __slots__ = ("node_name", "plugins", "task", "why")

    def __init__(self, task: asyncio.Task[Any], node_name: str) -> None:
        self.task = task
        self.node_name = node_name
        self.plugins: tuple[str, ...] = ()
        self.why = ""


class PreBindings:
    def __init__(self) -> None:
        self._running: dict[str, Running] = {}

    def get(self, uid: str) -> Running | None:
        return self._running.get(uid)

    def cancel(self, uid: str, why: str) -> bool:
        """False if the pod is not in PreBind, or no longer."""
        running = self._running.get(uid)
        if running is None:
            return False
        if not running.why:
            running.why = why
            running.task.cancel()
        return True

    async def run(self, plugins: Mapping[str, Any], state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """`plugins`: those that the pod needs, in order."""
        task = asyncio.current_task()
        assert task is not None
        running = self._running[pod.uid] = Running(task, node_name)
        status = SUCCESS
        try:
            for group in _groups(plugins):
                running.plugins = tuple(group)
                status = await _together(group, state, pod, node_name)
                if not status.is_success:
                    break
        except asyncio.CancelledError:
            if not running.why or task.uncancel():
                raise
            return of_point("PreBind", running.plugins[0], Status(Code.ERROR, running.why))
        finally:
            del self._running[pod.uid]
        if running.why:
            # A plugin went on although it was cancelled.
            task.uncancel()
            status = Status(Code.ERROR, running.why) if status.is_success else status
        return status


def _groups(plugins: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Neighbours that allow it run in parallel."""
    group: dict[str, Any] = {}
    for name, plugin in plugins.items():
        parallel = getattr(plugin, "parallel_pre_bind", False)
        if group and not parallel:
            yield group
            group = {}
        group[name] = plugin
        if not parallel:
            yield group
            group = {}
    if group:
        yield group


async def _together(group: Mapping[str, Any], state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """The first failure ends the others."""
    if len(group) == 1:
        ((name, plugin),) = group.items()
        return await _one(name, plugin, state, pod, node_name)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_one(name, plugin, state, pod, node_name)) for name, plugin in group.items()]
    left = list(tasks)
    try:
        while left:
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in left if each.done()]:
                left.remove(task)
                if not (status := task.result()).is_success:
                    return status
    finally:
        for task in left:
            task.cancel()
        await ended(*tasks)
    return SUCCESS


async def _one(name: str, plugin: Any, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    status = await plugin.pre_bind(state, pod, node_name)
    return SUCCESS if status is None or status.is_success else of_point("PreBind", name, status)


def of_point(point: str, name: str, status: Status) -> Status:
    """An error names its point; a rejection keeps its message."""
    if status.is_rejected:
        return Status(status.code, *status.reasons, plugin=name)
    return Status(status.code, f'running {point} plugin "{name}": {status.message}', plugin=name)
