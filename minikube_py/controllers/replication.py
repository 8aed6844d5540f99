"""ReplicationController: as many active pods as asked for.

Source: k8s.io/kubernetes/pkg/controller/replicaset/replica_set.go, which serves ReplicationControllers too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, WARNING, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, REPLICATION_CONTROLLERS, Object, delete_options, path_of
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.controllers.base import (
    BY_CONTROLLER,
    BY_LABEL,
    BY_SELECTOR,
    ControllerContext,
    QueueWorkers,
    has_cause,
    involved,
)
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.ranking import parse_time_s, pods_to_delete
from minikube_py.controllers.views import Labels, PodView, ReplicationView, matches
from minikube_py.errors import MinikubeError

KIND: Final = "ReplicationController"
NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
GENERATED_PREFIX_MAX: Final = 253 - 5 - 1
"""Above this the pods' prefix drops its dash; the server cuts the rest."""
STATUS_COUNTS: Final = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class ReplicationManager:
    name = "replicationcontroller-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._burst = context.config.burst_replicas
        self._recorder = context.recorder("replication-controller")
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._controllers: Informer[ReplicationView] = context.informers.of(REPLICATION_CONTROLLERS)
        self._expectations = Expectations(context.clock, context.config.expectations_timeout_s)
        self._workers = QueueWorkers(context, "replicationmanager", self.sync)
        self._queue = self._workers.queue
        self._controllers.add_handler(
            Handler(
                on_add=self._enqueue, on_update=lambda old, new: self._enqueue(new), on_delete=self._controller_deleted
            )
        )
        self._pods.add_handler(
            Handler(on_add=self._pod_added, on_update=self._pod_updated, on_delete=self._pod_deleted)
        )

    def start(self) -> None:
        self._workers.start()

    async def stop(self) -> None:
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()

    # --- what happened, and whom it concerns ------------------------------------------------------------------------

    def _enqueue(self, controller: ReplicationView) -> None:
        self._queue.add(controller.key)

    def _controller_deleted(self, controller: ReplicationView) -> None:
        self._expectations.forget(controller.key)
        self._queue.add(controller.key)

    def _owner(self, pod: PodView) -> ReplicationView | None:
        """The ReplicationController that the pod's controllerRef names, if it is that very one."""
        if not pod.controller_uid:
            return None
        reference = pod.controller
        if reference is None or reference.kind != KIND:
            return None
        controller = self._controllers.store.get(f"{pod.namespace}/{reference.name}")
        return controller if controller is not None and controller.uid == reference.uid else None

    def _selecting(self, pod: PodView) -> list[ReplicationView]:
        return [
            controller
            for key, value in pod.labels.items()
            for controller in self._controllers.store.by_index(BY_SELECTOR, (pod.namespace, key, value))
            if matches(controller.selector, pod.labels)
        ]

    def _pod_added(self, pod: PodView) -> None:
        if pod.deleting:
            self._pod_deleted(pod)
        elif pod.controller_uid:
            if (owner := self._owner(pod)) is not None:
                self._expectations.creation_observed(owner.key)
                self._queue.add(owner.key)
        else:
            for controller in self._selecting(pod):
                self._queue.add(controller.key)

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        if new.deleting:
            self._pod_deleted(new)
            return
        if old.controller_uid != new.controller_uid and (owner := self._owner(old)) is not None:
            self._queue.add(owner.key)
        if new.controller_uid:
            if (owner := self._owner(new)) is not None:
                self._queue.add(owner.key)
                if owner.min_ready_s > 0 and new.ready and not old.ready:
                    self._queue.add_after(owner.key, owner.min_ready_s)
        elif old.labels != new.labels or old.controller_uid:
            for controller in self._selecting(new):
                self._queue.add(controller.key)

    def _pod_deleted(self, pod: PodView) -> None:
        if (owner := self._owner(pod)) is not None:
            self._expectations.deletion_observed(owner.key, pod.uid)
            self._queue.add(owner.key)

    # --- one controller ---------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        """Brings the pods of one controller and its status to what they should be."""
        controller = self._controllers.store.get(key)
        if controller is None:
            self._expectations.forget(key)
            return
        satisfied = self._expectations.satisfied(key)
        active = await self._claim(controller)
        failure: Exception | None = None
        if satisfied and not controller.deleting:
            try:
                await self._manage(controller, active)
            except (MinikubeError, ValueError) as error:
                failure = error
        now_s = self._clock.wall_s()
        status = replication_status(controller, active, failure, now_s)
        await self._write_status(controller, status)
        if failure is not None:
            raise failure
        if controller.min_ready_s > 0 and status["readyReplicas"] != status["availableReplicas"]:
            self._queue.add_after(key, next_availability_s(active, controller.min_ready_s, now_s))

    def _candidates(self, controller: ReplicationView) -> list[PodView]:
        """Active pods that are its own, and active orphans that it selects."""
        store = self._pods.store
        found = [pod for pod in store.by_index(BY_CONTROLLER, controller.uid) if pod.active]
        selector = controller.selector
        if not selector or controller.deleting:
            return found
        rarest = min(selector, key=lambda k: store.count_by_index(BY_LABEL, (controller.namespace, k, selector[k])))
        alike = store.by_index(BY_LABEL, (controller.namespace, rarest, selector[rarest]))
        return found + [p for p in alike if not p.controller_uid and p.active and matches(selector, p.labels)]

    async def _claim(self, controller: ReplicationView) -> list[PodView]:
        """The active pods that count: its own, less those it must release, plus those it could adopt."""
        claimed: list[PodView] = []
        failures: list[Exception] = []
        may_adopt: bool | None = None
        for pod in self._candidates(controller):
            selected = matches(controller.selector, pod.labels)
            if pod.controller_uid and selected:
                claimed.append(pod)
                continue
            if controller.deleting:
                continue
            try:
                if pod.controller_uid:
                    await self._release(controller, pod)
                    continue
                if may_adopt is None:
                    may_adopt = await self._may_adopt(controller)
                if may_adopt and await self._adopt(controller, pod):
                    claimed.append(pod)
            except MinikubeError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return claimed

    async def _may_adopt(self, controller: ReplicationView) -> bool:
        """Asks the server, not the cache: a controller being deleted must not adopt what it orphans."""
        try:
            fresh = await self._client.get(REPLICATION_CONTROLLERS, controller.name, controller.namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        metadata = fresh["metadata"]
        return metadata["uid"] == controller.uid and not metadata.get("deletionTimestamp")

    async def _adopt(self, controller: ReplicationView, pod: PodView) -> bool:
        patch = {"metadata": {"ownerReferences": [controller_reference(controller)], "uid": pod.uid}}
        return await self._patch_pod(pod, patch)

    async def _release(self, controller: ReplicationView, pod: PodView) -> None:
        references = [{"$patch": "delete", "uid": controller.uid}]
        try:
            await self._patch_pod(pod, {"metadata": {"ownerReferences": references, "uid": pod.uid}})
        except StatusError as error:
            # Another pod has the name by now, or the reference is gone: nothing to release.
            if error.code != 422:
                raise

    async def _patch_pod(self, pod: PodView, patch: Object) -> bool:
        """False if the pod is gone."""
        path = path_of(PODS, pod.namespace, pod.name)
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), STRATEGIC_MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    # --- pods made and deleted --------------------------------------------------------------------------------------

    async def _manage(self, controller: ReplicationView, active: list[PodView]) -> None:
        difference = len(active) - controller.replicas
        if difference < 0:
            await self._create_pods(controller, min(-difference, self._burst))
        elif difference > 0:
            await self._delete_pods(controller, active, min(difference, self._burst))

    async def _create_pods(self, controller: ReplicationView, count: int) -> None:
        self._expectations.expect_creations(controller.key, count)
        body = orjson.dumps(pod_from_template(controller))
        path = path_of(PODS, controller.namespace)
        done, failure = await slow_start(count, lambda: self._create_pod(controller, path, body))
        for _ in range(count - done):
            self._expectations.creation_observed(controller.key)
        if failure is not None:
            raise failure

    async def _create_pod(self, controller: ReplicationView, path: str, body: bytes) -> None:
        if not (controller.template.get("metadata") or {}).get("labels"):
            raise ValueError("unable to create pods, no labels")
        try:
            response = await self._client.raw("POST", path, None, body)
        except StatusError as error:
            if has_cause(error, NAMESPACE_TERMINATING):
                # Every creation will fail there, and nobody needs to hear of it.
                self._expectations.creation_observed(controller.key)
                return
            reference = involved(KIND, controller)
            self._recorder.event(reference, WARNING, "FailedCreate", f"Error creating: {error.message}")
            raise
        name = orjson.loads(response.body)["metadata"]["name"]
        self._recorder.event(involved(KIND, controller), NORMAL, "SuccessfulCreate", f"Created pod: {name}")

    async def _delete_pods(self, controller: ReplicationView, active: list[PodView], count: int) -> None:
        going = pods_to_delete(active, self._siblings_pods(controller), count, self._clock.wall_s())
        self._expectations.expect_deletions(controller.key, (pod.uid for pod in going))
        outcomes = await asyncio.gather(*(self._delete_pod(controller, pod) for pod in going), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _delete_pod(self, controller: ReplicationView, pod: PodView) -> None:
        body = orjson.dumps(delete_options(pod.uid, "", None, ""))
        reference = involved(KIND, controller)
        try:
            await self._client.raw("DELETE", path_of(PODS, pod.namespace, pod.name), None, body)
        except MinikubeError as error:
            self._expectations.deletion_observed(controller.key, pod.uid)
            if isinstance(error, StatusError) and error.code in (404, 409):
                # Gone, or another pod of the same name: ours is deleted either way.
                return
            self._recorder.event(reference, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.event(reference, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.name}")

    def _siblings_pods(self, controller: ReplicationView) -> list[PodView]:
        """Pods of all ReplicationControllers with the same controller as this one; none where it has no controller."""
        owner = controller.controller
        if owner is None:
            return []
        return [
            pod
            for other in self._controllers.store
            if other.controller is not None and other.controller.uid == owner.uid
            for pod in self._pods.store.by_index(BY_CONTROLLER, other.uid)
        ]

    async def _write_status(self, controller: ReplicationView, status: Object) -> None:
        current = controller.status
        same = all(current.get(name, 0) == status[name] for name in STATUS_COUNTS)
        same = same and (current.get("conditions") or []) == (status["conditions"] or [])
        if same and current.get("observedGeneration", 0) == controller.generation:
            return
        patch = {"metadata": {"uid": controller.uid}, "status": status}
        path = path_of(REPLICATION_CONTROLLERS, controller.namespace, controller.name, "status")
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), "application/merge-patch+json")
        except StatusError as error:
            if error.code != 404:
                raise


# --- pure ---------------------------------------------------------------------------------------------------------


async def slow_start(count: int, call: Callable[[], Awaitable[None]]) -> tuple[int, Exception | None]:
    """Calls in batches of 1, 2, 4, ...; after a batch with a failure no more. (successes, first failure)"""
    done, size = 0, min(count, 1)
    while size > 0:
        outcomes = await asyncio.gather(*(call() for _ in range(size)), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        done += size - len(failures)
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            first = failures[0]
            return done, first if isinstance(first, Exception) else None
        size = min(2 * size, count - done)
    return done, None


def controller_reference(controller: ReplicationView) -> Object:
    return {
        "apiVersion": "v1",
        "kind": KIND,
        "name": controller.name,
        "uid": controller.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(controller: ReplicationView) -> Object:
    """The pod to create, without a name: the server makes one from the prefix."""
    template = controller.template
    metadata = template.get("metadata") or {}
    prefix = f"{controller.name}-"
    copied: dict[str, Any] = {k: metadata[k] for k in ("labels", "annotations", "finalizers") if metadata.get(k)}
    copied["generateName"] = prefix if len(prefix) <= GENERATED_PREFIX_MAX else controller.name
    copied["ownerReferences"] = [controller_reference(controller)]
    return {"kind": "Pod", "apiVersion": "v1", "metadata": copied, "spec": template.get("spec") or {}}


def replication_status(
    controller: ReplicationView, active: list[PodView], failure: Exception | None, now_s: float
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


def is_available(pod: PodView, min_ready_s: int, now_s: float) -> bool:
    if not pod.ready or min_ready_s == 0:
        return pod.ready
    since_s = parse_time_s(pod.ready_since)
    return since_s is not None and since_s + min_ready_s <= now_s


def next_availability_s(active: list[PodView], min_ready_s: int, now_s: float) -> float:
    """How long until the next ready pod becomes available."""
    waits = [
        since_s + min_ready_s - now_s
        for pod in active
        if pod.ready and (since_s := parse_time_s(pod.ready_since)) is not None and since_s + min_ready_s > now_s
    ]
    return min(waits, default=float(min_ready_s))


def _conditions(
    controller: ReplicationView, active: int, failure: Exception | None, now_s: float
) -> list[Object] | None:
    """ReplicaFailure stands while pods could not be made or deleted. None, as a merge patch takes it, for none."""
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
