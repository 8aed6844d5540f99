"""Deletes jobs `ttlSecondsAfterFinished` after their end.

Source: k8s.io/kubernetes/pkg/controller/ttlafterfinished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.api.errors import StatusError
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import JOBS
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import WorkloadView


class NeverEnded(ValueError):
    """The job has finished, but gives no time."""


def expires_s(spec: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    """When the job is to be deleted; None if never. Raises: NeverEnded."""
    ttl_s = spec.get("ttlSecondsAfterFinished")
    for condition in status.get("conditions") or () if ttl_s is not None else ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            ended_s = parse_time_s(condition.get("lastTransitionTime") or "")
            if ended_s is None:
                raise NeverEnded("unable to find the time when the Job finished")
            return ended_s + float(ttl_s or 0)
    return None


class TtlAfterFinished(QueueController):
    name = "ttl-after-finished-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._jobs: Informer[WorkloadView] = context.informers.of(JOBS)
        self._workers = QueueWorkers(context, "ttl_jobs_to_delete", self.sync)
        self._jobs.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))

    def _seen(self, job: WorkloadView) -> None:
        if not job.deleting and job.spec.get("ttlSecondsAfterFinished") is not None:
            self._workers.queue.add(job.key)

    def _is_due(self, key: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
        """If it is due later, it is queued again for then."""
        at_s = expires_s(spec, status)
        if at_s is None:
            return False
        left_s = at_s - self._clock.wall_s()
        if left_s > 0:
            self._workers.queue.add_after(key, left_s)
        return left_s <= 0

    async def sync(self, key: str) -> None:
        job = self._jobs.store.get(key)
        if job is None or job.deleting or not self._is_due(key, job.spec, job.status):
            return
        try:
            # The cache may be stale, and the TTL may have changed.
            fresh = await self._client.get(JOBS, job.name, job.namespace)
            metadata = fresh["metadata"]
            if metadata.get("deletionTimestamp") or not self._is_due(key, fresh["spec"], fresh.get("status") or {}):
                return
            await self._client.delete(JOBS, job.name, job.namespace, uid=metadata["uid"], propagation="Foreground")
        except StatusError as error:
            if error.code != 404:
                raise
