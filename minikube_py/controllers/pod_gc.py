"""Pod GC: removes pods that no other component will remove.

Finished pods above a threshold, oldest first; pods of nodes that no longer exist; pods deleted before they had a node;
deleted pods on nodes marked out of service. Source: k8s.io/kubernetes/pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NODES, PODS, Object
from minikube_py.client.timers import has_passed
from minikube_py.controllers.base import BY_NODE, ControllerContext, delete_pod, disruption
from minikube_py.controllers.views import NodeView, PodView
from minikube_py.env import ended
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
ALIVE_PHASES: Final = frozenset(("Pending", "Running", "Unknown", ""))
DELETES_AT_ONCE: Final = 16


class PodGarbageCollector:
    """Candidates are tracked by pod events, so a pass costs what it finds, not all pods."""

    name = "pod-garbage-collector-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._config = context.config
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._finished: dict[str, PodView] = {}
        self._deleting: dict[str, PodView] = {}
        self._missing_since_s: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._deleted = {"terminated": 0, "orphaned": 0, "unscheduled": 0, "out-of-service": 0}
        self._failures = 0
        self._pods.add_handler(
            Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new), on_delete=self._gone)
        )

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)

    def metrics(self) -> dict[str, float]:
        counts = {
            f'pod_gc_collector_force_delete_pods_total{{reason="{reason}"}}': float(count)
            for reason, count in self._deleted.items()
        }
        return {**counts, "pod_gc_collector_force_delete_pod_errors_total": self._failures}

    def _seen(self, pod: PodView) -> None:
        for pods, due in ((self._finished, pod.phase not in ALIVE_PHASES), (self._deleting, bool(pod.deleting))):
            if due:
                pods[pod.key] = pod
            else:
                pods.pop(pod.key, None)

    def _gone(self, pod: PodView) -> None:
        self._finished.pop(pod.key, None)
        self._deleting.pop(pod.key, None)

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except MinikubeError as error:
                logger.warning("pod GC: %s", error or type(error).__name__)
            await self._clock.sleep(self._config.pod_gc_period_s)

    async def collect(self) -> None:
        """One pass."""
        excess = len(self._finished) - self._config.terminated_pods_max
        if self._config.terminated_pods_max > 0 and excess > 0:
            oldest = sorted(self._finished.values(), key=lambda pod: (not pod.evicted, pod.created, pod.name))
            await self._delete("terminated", oldest[:excess])
        await self._delete("out-of-service", [pod for pod in self._deleting.values() if self._out_of_service(pod)])
        for node in await self._deleted_nodes():
            await self._delete("orphaned", self._pods.store.by_index(BY_NODE, node))
        await self._delete("unscheduled", [pod for pod in self._deleting.values() if not pod.node])

    def _out_of_service(self, pod: PodView) -> bool:
        node = self._nodes.store.get(pod.node)
        if node is None or node.ready == "True":
            return False
        return any(taint.get("key") == OUT_OF_SERVICE for taint in node.taints)

    async def _deleted_nodes(self) -> list[str]:
        """Nodes that pods name and that were missing for the quarantine; checked against the server."""
        now_s = self._clock.monotonic_s()
        named = [str(name) for name in self._pods.store.index_values(BY_NODE)]
        missing = [name for name in named if name not in self._nodes.store]
        self._missing_since_s = {name: self._missing_since_s.get(name, now_s) for name in missing}
        deleted = []
        for name in missing:
            if not has_passed(self._config.pod_gc_quarantine_s, self._missing_since_s[name], now_s):
                continue
            try:
                await self._client.get(NODES, name)
            except StatusError as error:
                if error.code != 404:
                    raise
                deleted.append(name)
        return deleted

    async def _delete(self, reason: str, pods: Iterable[PodView]) -> None:
        limit = asyncio.Semaphore(DELETES_AT_ONCE)

        async def one(pod: PodView) -> None:
            async with limit:
                try:
                    await self._fail_and_delete(pod, orphaned=reason == "orphaned")
                    self._deleted[reason] += 1
                except MinikubeError as error:
                    self._failures += 1
                    logger.warning("pod GC: cannot delete %s: %s", pod.key, error or type(error).__name__)

        await asyncio.gather(*(one(pod) for pod in list(pods)))

    async def _fail_and_delete(self, pod: PodView, orphaned: bool) -> None:
        """Marks an unfinished pod Failed so that its watchers stop waiting, then deletes it without grace."""
        status: Object = {"phase": "Failed"}
        if orphaned:
            why = "DeletionByPodGC", "PodGC: node no longer exists"
            status["conditions"] = [disruption(*why, timestamp(self._clock.wall_s()))]
        try:
            await delete_pod(self._client, pod.namespace, pod.name, pod.uid, None if pod.terminal else status, 0)
        except StatusError as error:
            # Gone, or another pod has its name.
            if error.code not in (404, 409):
                raise
