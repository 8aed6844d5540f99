"""Job: pods that run to completion, by count or index; each keeps a finalizer until the status records its end, so it
counts once.

Source: k8s.io/kubernetes/pkg/controller/job/job_controller.go. The decisions are in `jobs` and `job_pods`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, WARNING
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import JOBS, PODS, Object, path_of
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.client.workqueue import ItemExponentialRateLimiter
from minikube_py.controllers.base import BY_CONTROLLER, ControllerContext, QueueWorkers, orphans_for, selecting
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.job_pods import Backoff, tracked
from minikube_py.controllers.jobs import JobSync, Plan, is_finished
from minikube_py.controllers.ownership import Claims, Owner
from minikube_py.controllers.pod_control import PodControl
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import JOB_TRACKING, PodView, WorkloadView
from minikube_py.errors import MinikubeError

BATCH_S: Final = 1.0
"""Pod events and status updates are batched for this long."""
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
MANAGER: Final = "kubernetes.io/job-controller"
_REMOVE: Final = orjson.dumps({"metadata": {"$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}})


def is_ours(job: WorkloadView) -> bool:
    """Whether no other controller manages it."""
    return job.spec.get("managedBy") in (None, MANAGER)


class JobController:
    name = "job-controller"
    owner = Owner(JOBS, "Job")

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._jobs: Informer[WorkloadView] = context.informers.of(JOBS)
        self._claims: Claims[PodView] = Claims(context.client, self.owner, PODS, JOB_TRACKING)

        def limiter() -> ItemExponentialRateLimiter[str]:
            return ItemExponentialRateLimiter(RETRY_S, RETRY_MAX_S)

        self._workers = QueueWorkers(context, "job", self.sync, limiter=limiter())
        self._orphans = QueueWorkers(context, "job_orphan_pod", self._sync_orphan, limiter=limiter())
        self._queue = self._workers.queue
        self._expectations = Expectations(self._queue.add_after, context.clock, context.config.expectations_timeout_s)
        self._events = context.recorder("job-controller")
        self._control = PodControl(context.client, self.owner, self._events, self._expectations)
        self._removing: dict[str, set[str]] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._written: dict[str, int] = {}
        """Job to the version of its last write: older views are ignored."""
        self._jobs.add_handler(
            Handler(
                on_add=lambda job: self._queue.add(job.key), on_update=self._job_updated, on_delete=self._job_deleted
            )
        )
        self._pods.add_handler(
            Handler(
                on_add=self._pod_added, on_update=self._pod_updated, on_delete=lambda pod: self._left(pod, True),
                on_list=self._expectations.pods_listed,
            )
        )

    def start(self) -> None:
        self._workers.start()
        self._orphans.start()

    async def stop(self) -> None:
        await self._workers.stop()
        await self._orphans.stop()

    def metrics(self) -> dict[str, float]:
        return {**self._workers.metrics(), **self._orphans.metrics()}

    # --- event handlers ---------------------------------------------------------------------------------------------

    def _soon(self, job: WorkloadView) -> None:
        self._queue.add_after(job.key, BATCH_S)

    def _job_updated(self, old: WorkloadView, new: WorkloadView) -> None:
        if is_finished(new.status):
            # Its pods should have lost their finalizers by now.
            self._free_pods(new)
        if new.generation != old.generation:
            self._queue.add(new.key)
        else:
            self._soon(new)
        started, deadline_s = new.status.get("startTime"), new.spec.get("activeDeadlineSeconds")
        if started and deadline_s is not None and deadline_s != old.spec.get("activeDeadlineSeconds"):
            passed_s = self._clock.wall_s() - (parse_time_s(started) or 0.0)
            self._queue.add_after(new.key, max(0.0, deadline_s - passed_s))

    def _job_deleted(self, job: WorkloadView) -> None:
        self._free_pods(job)
        self._forget(job.key)
        self._queue.add(job.key)

    def _forget(self, key: str) -> None:
        self._expectations.forget(key)
        for known in (self._removing, self._backoffs, self._written):
            known.pop(key, None)

    def _free_pods(self, job: WorkloadView) -> None:
        for pod in self._pods.store.by_index(BY_CONTROLLER, job.uid):
            if tracked(pod):
                self._orphans.queue.add(pod.key)

    def _owner_of(self, pod: PodView) -> WorkloadView | None:
        return self.owner.of(pod, self._jobs.store) if pod.controller_uid else None

    def _pod_added(self, pod: PodView) -> None:
        if pod.deleting:
            self._left(pod, False)
        elif pod.controller_uid:
            if (job := self._owner_of(pod)) is not None:
                self._expectations.creation_observed(job.key)
                self._soon(job)
        else:
            self._ownerless(pod, True)

    def _pod_updated(self, old: PodView, new: PodView) -> None:
        if new.deleting:
            self._left(new, False)
            return
        changed = old.controller_uid != new.controller_uid
        for job in (self._owner_of(old) if changed else None, self._owner_of(new)):
            if job is not None:
                if not tracked(new):
                    self._freed(job, new)
                self._soon(job)
        if not new.controller_uid:
            self._ownerless(new, changed or old.labels != new.labels)

    def _ownerless(self, pod: PodView, to_adopt: bool) -> None:
        if tracked(pod):
            self._orphans.queue.add(pod.key)
        for job in selecting(self._jobs.store, pod) if to_adopt else ():
            self._soon(job)

    def _left(self, pod: PodView, gone: bool) -> None:
        """The job is being deleted, or gone."""
        job = self._owner_of(pod)
        if job is None or is_finished(job.status):
            if tracked(pod) and not gone and (job is not None or not pod.controller_uid or self._was_of_a_job(pod)):
                self._orphans.queue.add(pod.key)
            return
        self._expectations.deletion_observed(job.key, pod.uid)
        if gone or not tracked(pod):
            self._freed(job, pod)
        self._soon(job)

    def _was_of_a_job(self, pod: PodView) -> bool:
        return pod.controller is not None and pod.controller.kind == self.owner.kind

    def _freed(self, job: WorkloadView, pod: PodView) -> None:
        self._removing.get(job.key, set()).discard(pod.uid)

    # --- untracked pods ---------------------------------------------------------------------------------------------

    async def _sync_orphan(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or not tracked(pod):
            return
        if pod.controller is not None:
            job = self._owner_of(pod)
            if not self._was_of_a_job(pod) or (job is not None and not (is_ours(job) and is_finished(job.status))):
                return
        await self._free(pod)

    async def _free(self, pod: PodView) -> None:
        """Removes the finalizer."""
        path = path_of(PODS, pod.namespace, pod.name)
        try:
            await self._client.raw("PATCH", path, None, _REMOVE, STRATEGIC_MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise

    # --- one job ----------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        """Brings the pods and status of one job to the desired state."""
        job = self._jobs.store.get(key)
        if job is None:
            self._forget(key)
            return
        if not is_ours(job):
            return
        if is_finished(job.status):
            self._forget(key)
            return
        if int(job.resource_version or 0) < self._written.get(key, 0):
            # The informer will show the last write; the job is synced again then.
            return
        satisfied = self._expectations.satisfied(key)
        own = self._pods.store.by_index(BY_CONTROLLER, job.uid)
        orphans = [] if job.deleting else orphans_for(self._pods.store, job)
        pods = await self._claims.claim(job, [*own, *orphans])
        backoff = self._backoffs.get(key, Backoff())
        look = JobSync(job, pods, self._removing.get(key, ()), backoff, self._clock.wall_s())
        deadline_s = look.judge()
        if deadline_s is not None:
            self._queue.add_after(key, deadline_s)
        failure: Exception | None
        if look.ending is not None:
            failure = await self._end_pods(look, satisfied)
        else:
            managed = satisfied and not job.deleting
            failure = await self._manage(look) if managed else None
            if reason := look.conclude(managed):
                self._events.event(self.owner.involved(job), NORMAL, reason, f"Job {reason.lower()}")
        look.note_counts()
        await self._track(look)
        if failure is not None:
            raise failure

    async def _end_pods(self, look: JobSync, satisfied: bool) -> Exception | None:
        """Deletes running pods; their finalizers are removed once they are counted."""
        outcomes = await self._control.delete(look.job, look.active)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures or not satisfied:
            look.ending = None
        deleted = [pod for pod, outcome in zip(look.active, outcomes) if outcome is None]
        self._deleted(look, deleted)
        return failures[0] if failures else None

    def _deleted(self, look: JobSync, pods: Sequence[PodView]) -> None:
        look.active_count -= len(pods)
        look.terminating += len(pods)
        look.ready -= sum(pod.ready for pod in pods)

    async def _manage(self, look: JobSync) -> Exception | None:
        plan, job = look.plan(), look.job
        if plan.wait_s > 0:
            self._queue.add_after(job.key, max(plan.wait_s, BATCH_S))
            look.active_count = 0
            return None
        if plan.going:
            return await self._remove(look, plan)
        if not plan.coming:
            return None
        reference = self.owner.reference(job)
        bodies = [orjson.dumps(look.body(index, reference)) for index in plan.coming]
        done, failure = await self._control.create(job, bodies)
        look.active_count += done
        return failure

    async def _remove(self, look: JobSync, plan: Plan) -> Exception | None:
        """Deletes surplus pods, which are not counted."""
        job = look.job
        self._expectations.expect(job.key, 0, (pod.uid for pod in plan.going))
        freed = await asyncio.gather(*(self._free(pod) for pod in plan.going if tracked(pod)), return_exceptions=True)
        outcomes = await self._control.delete(job, plan.going)
        self._deleted(look, [pod for pod, outcome in zip(plan.going, outcomes) if outcome is None])
        failures = [each for each in (*freed, *outcomes) if isinstance(each, Exception)]
        return failures[0] if failures else None

    # --- status -----------------------------------------------------------------------------------------------------

    async def _track(self, look: JobSync) -> None:
        """Records finished pods in the status, removes their finalizers and counts them, in this order."""
        job = look.job
        done = look.count()
        if look.changed:
            await self._write(look)
            self._backoffs[job.key] = look.backoff
        failure = await self._free_counted(job, done) if done else None
        removing = self._removing.get(job.key, set())
        look.settle({pod.uid for pod in look.pods if tracked(pod) and pod.uid not in removing})
        finished = failure is None and look.finish()
        if look.changed:
            await self._write(look)
        if failure is not None:
            raise failure
        if finished and look.ending is not None:
            self._tell_end(look, look.ending)

    async def _free_counted(self, job: WorkloadView, pods: Sequence[PodView]) -> Exception | None:
        removing = self._removing.setdefault(job.key, set())
        removing.update(pod.uid for pod in pods)
        outcomes = await asyncio.gather(*(self._free(pod) for pod in pods), return_exceptions=True)
        failure: Exception | None = None
        for pod, outcome in zip(pods, outcomes):
            if isinstance(outcome, MinikubeError):
                removing.discard(pod.uid)
                failure = failure or outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return failure

    async def _write(self, look: JobSync) -> None:
        job, before = look.job, look.written if look.written is not None else look.job.status
        status: Object = {name: None for name in before if name not in look.status} | look.status
        uncounted = {"succeeded": None, "failed": None} | look.status.get("uncountedTerminatedPods", {})
        status["uncountedTerminatedPods"] = uncounted
        version = str(self._written.get(job.key, 0) if look.written is not None else job.resource_version)
        patch = {"metadata": {"uid": job.uid, "resourceVersion": version}, "status": status}
        try:
            obj = await self._client.patch(JOBS, job.name, patch, job.namespace, subresource="status")
        finally:
            look.changed = False
        look.written = obj.get("status") or {}
        self._written[job.key] = int(obj["metadata"]["resourceVersion"])

    def _tell_end(self, look: JobSync, ending: Object) -> None:
        reference = self.owner.involved(look.job)
        if ending["type"] != "Complete":
            self._events.event(reference, WARNING, ending["reason"], ending["message"])
            return
        completions = look.spec.get("completions")
        if completions is not None and (look.status.get("succeeded") or 0) > completions:
            text = "Too many succeeded pods running after completion count reached"
            self._events.event(reference, WARNING, "TooManySucceededPods", text)
        self._events.event(reference, NORMAL, "Completed", "Job completed")
