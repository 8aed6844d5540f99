"""Taint eviction: deletes pods from nodes with NoExecute taints when their toleration ends.

Source: k8s.io/kubernetes/pkg/controller/tainteviction/taint_eviction.go.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NODES, PODS
from minikube_py.client.timers import Timer
from minikube_py.controllers.base import BY_NODE, ControllerContext, QueueWorkers, delete_pod, disruption, involved
from minikube_py.controllers.node_taints import NO_EXECUTE, Taint, toleration_s
from minikube_py.controllers.views import NodeView, PodView

REASON: Final = "TaintManagerEviction"


class TaintEvictionController:
    name = "taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._timers = context.timers
        self._recorder = context.recorder(self.name)
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._tainted: dict[str, tuple[Taint, ...]] = {}
        self._scheduled: dict[str, Timer] = {}
        self._evicting: dict[str, str] = {}
        self._workers = QueueWorkers(context, "taint_eviction", self.evict)
        self.evicted = 0
        self._nodes.add_handler(
            Handler(on_add=self._node, on_update=lambda old, new: self._node(new), on_delete=self._node_gone)
        )
        self._pods.add_handler(
            Handler(on_add=self._pod, on_update=self._pod_updated, on_delete=lambda pod: self._cancel(pod, gone=True))
        )

    def start(self) -> None:
        self._workers.start()

    async def stop(self) -> None:
        for timer in self._scheduled.values():
            timer.cancel()
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return {**self._workers.metrics(), "taint_eviction_controller_pod_deletions_total": self.evicted}

    def _node(self, node: NodeView) -> None:
        taints = tuple(taint for taint in node.taints if taint.get("effect") == NO_EXECUTE)
        before = self._tainted.get(node.name, ())
        if taints == before:
            return
        if taints:
            self._tainted[node.name] = taints
        else:
            del self._tainted[node.name]
        allowed_s: dict[int, float] = {}
        for pod in self._pods.store.by_index(BY_NODE, node.name):
            # Pods of one workload share their tolerations.
            if taints and id(pod.tolerations) not in allowed_s:
                allowed_s[id(pod.tolerations)] = toleration_s(taints, pod.tolerations)
            self._judge(pod, allowed_s.get(id(pod.tolerations)))

    def _node_gone(self, node: NodeView) -> None:
        self._tainted.pop(node.name, None)

    def _pod(self, pod: PodView) -> None:
        taints = self._tainted.get(pod.node)
        if taints:
            self._judge(pod, toleration_s(taints, pod.tolerations))

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        if old.node != new.node or old.tolerations != new.tolerations:
            self._pod(new)

    def _judge(self, pod: PodView, allowed_s: float | None) -> None:
        """Evicts now, schedules the eviction, or cancels it. Only an immediate eviction replaces a scheduled one.

        `allowed_s`: how long the pod may stay; None without taints."""
        if allowed_s is None or allowed_s == float("inf"):
            self._cancel(pod)
            return
        timer = self._scheduled.get(pod.key)
        if timer is not None:
            if allowed_s > 0 or timer.cancelled:
                return
            timer.cancel()
        key, uid = pod.key, pod.uid
        self._scheduled[key] = self._timers.call_later(allowed_s, lambda: self._due(key, uid))

    def _cancel(self, pod: PodView, gone: bool = False) -> None:
        self._evicting.pop(pod.key, None)
        timer = self._scheduled.pop(pod.key, None)
        if timer is not None and not timer.cancelled:
            timer.cancel()
            if not gone:
                self._event(pod, "Cancelling deletion of Pod")

    def _due(self, key: str, uid: str) -> None:
        self._evicting[key] = uid
        self._workers.queue.add(key)

    def _event(self, pod: PodView, what: str) -> None:
        self._recorder.event(involved("Pod", pod), NORMAL, REASON, f"{what} {pod.key}")

    async def evict(self, key: str) -> None:
        """Records the reason in the pod's status, then deletes it with its own grace period."""
        uid = self._evicting.get(key)
        pod = self._pods.store.get(key)
        if pod is None or pod.uid != uid:
            self._evicting.pop(key, None)
            return
        if not pod.deleting:
            self._event(pod, "Marking for deletion Pod")
            why = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
            status = {"conditions": [disruption(*why, timestamp(self._clock.wall_s()))]}
            try:
                await delete_pod(self._client, pod.namespace, pod.name, pod.uid, status, None)
                self.evicted += 1
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
        self._evicting.pop(key, None)
        self._scheduled.pop(key, None)
