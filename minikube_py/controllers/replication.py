"""ReplicaSet and ReplicationController: as many active pods as asked for.

One class serves both. Source: k8s.io/kubernetes/pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Informer
from minikube_py.client.rest import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, Object, path_of
from minikube_py.controllers.base import (
    BY_CONTROLLER,
    ControllerContext,
    QueueController,
    QueueWorkers,
    orphans_for,
)
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.ownership import Claims, OwnedPods, Owner
from minikube_py.controllers.pod_control import PodControl, pod_from_template
from minikube_py.controllers.ranking import is_available, next_availability_s, pods_to_delete
from minikube_py.controllers.views import Labels, PodView, WorkloadView
from minikube_py.errors import MinikubeError

STATUS_COUNTS: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class ReplicaController(QueueController):
    """For the kind `owner`; events come from `component`. `counts_terminating`: the status counts terminating pods."""

    owner: Owner
    component: str
    queue: str
    counts_terminating = False

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._burst = context.config.burst_replicas
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._controllers: Informer[WorkloadView] = context.informers.of(self.owner.resource)
        self._claims: Claims[PodView] = Claims(context.client, self.owner, PODS)
        self._workers = QueueWorkers(context, self.queue, self.sync)
        self._queue = self._workers.queue
        self._expectations = Expectations(self._queue.add_after, context.clock, context.config.expectations_timeout_s)
        recorder = context.recorder(self.component)
        self._control = PodControl(context.client, self.owner, recorder, self._expectations)
        OwnedPods(self.owner, self._controllers, self._pods, self._queue, self._expectations)

    # --- one controller ---------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        """Brings the pods and status of one controller to the desired state."""
        controller = self._controllers.store.get(key)
        if controller is None:
            self._expectations.forget(key)
            return
        satisfied = self._expectations.satisfied(key)
        own = self._pods.store.by_index(BY_CONTROLLER, controller.uid)
        active = await self._claims.claim(controller, self._candidates(controller, own))
        going = [pod for pod in own if pod.deleting and not pod.terminal and controller.selects(pod.labels)]
        failure: Exception | None = None
        if satisfied and not controller.deleting:
            try:
                await self._manage(controller, active)
            except (MinikubeError, ValueError) as error:
                failure = error
        now_s = self._clock.wall_s()
        status = replication_status(controller, active, failure, now_s)
        if self.counts_terminating:
            status["terminatingReplicas"] = len(going)
        await self._write_status(controller, status)
        if failure is not None:
            raise failure
        if controller.min_ready_s > 0 and status["readyReplicas"] != status["availableReplicas"]:
            self._queue.add_after(key, next_availability_s(active, controller.min_ready_s, now_s))

    def _candidates(self, controller: WorkloadView, own: list[PodView]) -> list[PodView]:
        """Its own active pods, and active orphans that it selects."""
        found = [pod for pod in own if pod.active]
        if controller.deleting:
            return found
        return found + [pod for pod in orphans_for(self._pods.store, controller) if pod.active]

    # --- pod creation and deletion ----------------------------------------------------------------------------------

    async def _manage(self, controller: WorkloadView, active: list[PodView]) -> None:
        difference = len(active) - controller.replicas
        if difference < 0:
            body = orjson.dumps(pod_from_template(controller, self.owner.reference(controller)))
            await self._control.change(controller, [body] * min(-difference, self._burst), ())
        elif difference > 0:
            count = min(difference, self._burst)
            going = pods_to_delete(active, self._siblings_pods(controller), count, self._clock.wall_s())
            await self._control.change(controller, (), going)

    def _siblings_pods(self, controller: WorkloadView) -> list[PodView]:
        """Pods of all workloads with the same controller; none if it has no controller."""
        owner = controller.controller
        if owner is None:
            return []
        return [
            pod
            for other in self._controllers.store.by_index(BY_CONTROLLER, owner.uid)
            for pod in self._pods.store.by_index(BY_CONTROLLER, other.uid)
        ]

    async def _write_status(self, controller: WorkloadView, status: Object) -> None:
        current = controller.status
        same = all(current.get(name, 0) == status[name] for name in STATUS_COUNTS)
        same = same and current.get("terminatingReplicas") == status.get("terminatingReplicas")
        same = same and (current.get("conditions") or []) == (status["conditions"] or [])
        if same and current.get("observedGeneration", 0) == controller.generation:
            return
        patch = {"metadata": {"uid": controller.uid}, "status": status}
        path = path_of(self.owner.resource, controller.namespace, controller.name, "status")
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), "application/merge-patch+json")
        except StatusError as error:
            if error.code != 404:
                raise


class ReplicationManager(ReplicaController):
    name = "replicationcontroller-controller"
    owner = Owner(REPLICATION_CONTROLLERS, "ReplicationController")
    component = "replication-controller"
    queue = "replicationmanager"


class ReplicaSetController(ReplicaController):
    name = "replicaset-controller"
    owner = Owner(REPLICA_SETS, "ReplicaSet")
    component = "replicaset-controller"
    queue = "replicaset"
    counts_terminating = True


# --- pure functions -----------------------------------------------------------------------------------------------


def replication_status(
    controller: WorkloadView, active: list[PodView], failure: Exception | None, now_s: float
) -> Object:
    template_labels: Labels = (controller.template.get("metadata") or {}).get("labels") or {}
    ready = [pod for pod in active if pod.ready]
    return {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(
            all(pod.labels.get(k) == v for k, v in template_labels.items()) for pod in active
        ),
        "readyReplicas": len(ready),
        "availableReplicas": sum(is_available(pod, controller.min_ready_s, now_s) for pod in ready),
        "observedGeneration": controller.generation,
        "conditions": _conditions(controller, len(active), failure, now_s),
    }


def _conditions(
    controller: WorkloadView, active: int, failure: Exception | None, now_s: float
) -> list[Object] | None:
    """ReplicaFailure lasts while pods cannot be created or deleted. None stands for an empty list in a merge patch."""
    kept = [c for c in controller.status.get("conditions") or () if c.get("type") != "ReplicaFailure"]
    current = [c for c in controller.status.get("conditions") or () if c.get("type") == "ReplicaFailure"]
    if failure is None:
        return kept or None
    if current:
        return [*kept, *current]
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "lastTransitionTime": timestamp(now_s),
        "reason": "FailedCreate" if active < controller.replicas else "FailedDelete",
        "message": str(failure),
    }
    return [*kept, condition]
