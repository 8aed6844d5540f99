"""CronJob: creates a Job at each scheduled time.

Source: k8s.io/kubernetes/pkg/controller/cronjob (cronjob_controllerv2.go, utils.go).
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final, NamedTuple

from minikube_py.api.cron import BadSchedule, Schedule, load_zone, parse
from minikube_py.api.errors import StatusError, go_quote
from minikube_py.client.events import NORMAL, WARNING, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import CRON_JOBS, JOBS, Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers, has_cause
from minikube_py.controllers.jobs import is_finished, is_true
from minikube_py.controllers.ownership import Owner
from minikube_py.controllers.pod_control import NAMESPACE_TERMINATING
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import MetaView, WorkloadView
from minikube_py.errors import MinikubeError

LATE_S: Final = 0.1
"""Delay after the due time, to allow for clock skew."""
MISSED_MAX: Final = 100
SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY: Final = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
_ACTIVE: Final = "Not starting job because prior execution is running and concurrency policy is Forbid"
_ZONED: Final = (
    "CRON_TZ or TZ used in schedule {} is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


_WALKED: Final = 30


class Missed(NamedTuple):
    """`since_s`: start of the count; `last_s`: the last due time, if any; `times`: approximate number of missed
    runs."""

    since_s: float
    last_s: float | None = None
    times: int = 0


def missed(cron: WorkloadView, now_s: float, schedule: Schedule, within_deadline: bool) -> Missed:
    """Raises: BadSchedule where the schedule is never due."""
    since_s = parse_time_s(cron.status.get("lastScheduleTime") or "") or parse_time_s(cron.created) or 0.0
    deadline_s = cron.spec.get("startingDeadlineSeconds")
    if within_deadline and deadline_s is not None:
        since_s = max(since_s, now_s - deadline_s)
    first_s = schedule.next(since_s)
    second_s = None if first_s is None else schedule.next(first_s)
    if first_s is None or second_s is None:
        raise BadSchedule("time difference between two schedules is less than 1 second")
    if now_s < first_s:
        return Missed(since_s)
    if now_s < second_s:
        return Missed(since_s, first_s)
    between_s = int(second_s - first_s)
    count = int(now_s - first_s) // between_s + 1
    return Missed(since_s, _last_due_s(schedule, first_s + (count - 2) * between_s, now_s), count)


def _last_due_s(schedule: Schedule, after_s: float, until_s: float) -> float | None:
    """The last due time after `after_s`, up to `until_s`. Upstream walks there, which may take 90,000 steps; the times
    of a schedule that is due so often do not depend on where one begins, so it is bisected."""
    last_s: float | None = None
    for _ in range(_WALKED):
        due_s = schedule.next(after_s)
        if due_s is None or due_s > until_s:
            return last_s
        after_s = last_s = due_s
    low_s, high_s = int(after_s), int(until_s) + 1
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        due_s = schedule.next(middle_s)
        if due_s is not None and due_s <= until_s:
            last_s, low_s = due_s, int(due_s)
        else:
            high_s = middle_s
    return last_s


def next_look_s(cron: WorkloadView, now_s: float, schedule: Schedule) -> float:
    """Seconds until it is due next; at once where it never is, which the sync tells."""
    try:
        found = missed(cron, now_s, schedule, False)
        since_s = found.last_s if found.last_s is not None else now_s if found.times else found.since_s
    except BadSchedule:
        since_s = now_s
    due_s = schedule.next(since_s)
    return 0.0 if due_s is None else max(0.0, due_s + LATE_S - now_s)


def job_name(cron: MetaView, scheduled_s: float) -> str:
    return f"{cron.name}-{int(scheduled_s) // 60}"


def job_of(cron: WorkloadView, scheduled_s: float, reference: Object) -> Object:
    """The job to create. Raises: BadSchedule where its time zone is unknown."""
    template = copy.deepcopy(dict(cron.spec.get("jobTemplate") or {}))
    given = template.get("metadata") or {}
    moment = datetime.fromtimestamp(scheduled_s, UTC).astimezone(load_zone(cron.spec.get("timeZone") or ""))
    shown = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
    metadata: Object = {
        "name": job_name(cron, scheduled_s),
        "annotations": {**(given.get("annotations") or {}), SCHEDULED: shown},
        "ownerReferences": [reference],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata, "spec": template.get("spec") or {}}


class _Sync:
    """One sync of a CronJob: `status` becomes what is to be written."""

    def __init__(self, cron: WorkloadView) -> None:
        self.cron = cron
        self.status: Object = copy.deepcopy(dict(cron.status))
        self.changed = False

    @property
    def active(self) -> list[Object]:
        found: list[Object] = self.status.get("active") or []
        return found

    def is_active(self, uid: str) -> bool:
        return any(each.get("uid") == uid for each in self.active)

    def drop(self, uid: str) -> None:
        self.status["active"] = [each for each in self.active if each.get("uid") != uid]
        self.changed = True

    def set(self, name: str, value: Any) -> None:
        self.status[name] = value
        self.changed = True


class CronJobController(QueueController):
    name = "cronjob-controller"
    owner = Owner(CRON_JOBS, "CronJob")

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._crons: Informer[WorkloadView] = context.informers.of(CRON_JOBS)
        self._jobs: Informer[WorkloadView] = context.informers.of(JOBS)
        self._events = context.recorder("cronjob-controller")
        self._workers = QueueWorkers(context, "cronjob", self.sync)
        self._queue = self._workers.queue
        self._written: dict[str, int] = {}
        self._crons.add_handler(
            Handler(
                on_add=lambda cron: self._queue.add(cron.key),
                on_update=self._cron_updated,
                on_delete=lambda cron: self._queue.add(cron.key),
            )
        )
        self._jobs.add_handler(Handler(on_add=self._job, on_update=self._job_updated, on_delete=self._job))

    def _tell(self, cron: WorkloadView, kind: str, reason: str, message: str) -> None:
        self._events.event(self.owner.involved(cron), kind, reason, message)

    # --- event handlers ---------------------------------------------------------------------------------------------

    def _cron_updated(self, old: WorkloadView, new: WorkloadView) -> None:
        if all(old.spec.get(name) == new.spec.get(name) for name in ("schedule", "timeZone")):
            self._queue.add(new.key)
            return
        try:
            schedule = self._schedule(new)
        except BadSchedule:
            text = f"unparseable schedule for cronjob: {new.spec.get('schedule')}"
            self._tell(new, WARNING, "UnParseableCronJobSchedule", text)
            return
        self._queue.add_after(new.key, next_look_s(new, self._clock.wall_s(), schedule))

    def _job(self, job: WorkloadView) -> None:
        cron = self.owner.of(job, self._crons.store)
        if cron is not None:
            self._queue.add(cron.key)

    def _job_updated(self, old: WorkloadView, new: WorkloadView) -> None:
        if old.controller != new.controller:
            self._job(old)
        self._job(new)

    # --- one CronJob ------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> None:
        cron = self._crons.store.get(key)
        if cron is None:
            self._written.pop(key, None)
            return
        if int(cron.resource_version or 0) < self._written.get(key, 0):
            # The informer will show the last write: until then the jobs that it dropped would be missed.
            return
        look = _Sync(cron)
        jobs = sorted(
            (
                job
                for job in self._jobs.store
                if job.namespace == cron.namespace
                and (ref := job.controller) is not None
                and (ref.kind, ref.name) == (self.owner.kind, cron.name)
            ),
            key=lambda job: job.name,
        )
        failure: MinikubeError | None = None
        wait_s: float | None = None
        await self._clean(look, jobs)
        try:
            wait_s = await self._run(look, jobs)
        except MinikubeError as error:
            failure = error
        if look.changed:
            await self._write(look)
        if failure is not None:
            raise failure
        if wait_s is not None:
            self._queue.add_after(key, wait_s)

    async def _write(self, look: _Sync) -> None:
        cron = look.cron
        status = {name: look.status.get(name) or None for name in dict.fromkeys((*cron.status, *look.status))}
        metadata = {"uid": cron.uid, "resourceVersion": cron.resource_version}
        patch = {"metadata": metadata, "status": status}
        written = await self._client.patch(CRON_JOBS, cron.name, patch, cron.namespace, subresource="status")
        self._written[cron.key] = int(written["metadata"]["resourceVersion"])

    async def _clean(self, look: _Sync, jobs: list[WorkloadView]) -> None:
        """Deletes the oldest finished jobs beyond the history limits."""
        limits = (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit"))
        for kind, limit in limits:
            most = look.cron.spec.get(limit)
            ended = [job for job in jobs if is_true(job.status, kind)]
            ended.sort(key=lambda job: (not job.status.get("startTime"), job.status.get("startTime") or "", job.name))
            for job in ended[: max(0, len(ended) - most)] if most is not None else ():
                await self._delete(look, job.name, job.uid)

    async def _delete(self, look: _Sync, name: str, uid: str) -> bool:
        cron = look.cron
        try:
            await self._client.delete(JOBS, name, cron.namespace, propagation="Background")
        except MinikubeError as error:
            self._tell(cron, WARNING, "FailedDelete", f"Deleted job: {error}")
            return False
        look.drop(uid)
        self._tell(cron, NORMAL, "SuccessfulDelete", f"Deleted job {name}")
        return True

    async def _run(self, look: _Sync, jobs: list[WorkloadView]) -> float | None:
        """Returns the seconds until the next sync, None if there is none. Raises: StatusError, Unavailable."""
        cron, now_s = look.cron, self._clock.wall_s()
        await self._follow(look, jobs)
        if cron.deleting:
            return None
        zone = cron.spec.get("timeZone")
        try:
            load_zone(zone or "")
        except BadSchedule as error:
            self._tell(cron, WARNING, "UnknownTimeZone", f"invalid timeZone: {go_quote(zone or '')}: {error}")
            return None
        if cron.spec.get("suspend"):
            return None
        text = cron.spec.get("schedule") or ""
        if "TZ" in text:
            self._tell(cron, WARNING, "UnsupportedSchedule", _ZONED.format(go_quote(text)))
        try:
            schedule = self._schedule(cron)
        except BadSchedule as error:
            self._tell(cron, WARNING, "UnparseableSchedule", f"unparseable schedule: {go_quote(text)} : {error}")
            return None
        try:
            found = missed(cron, now_s, schedule, True)
        except BadSchedule as error:
            self._tell(cron, WARNING, "InvalidSchedule", f"invalid schedule: {text} : {error}")
            return None
        if found.last_s is not None and found.times > MISSED_MAX:
            self._tell(cron, WARNING, "TooManyMissedTimes", _MANY)
        if found.last_s is not None and self._may_start(look, found.last_s, now_s):
            await self._replace(look)
            if not await self._start(look, found.last_s):
                return None
            cron = _with_status(cron, look.status)
        return next_look_s(cron, now_s, schedule)

    def _schedule(self, cron: WorkloadView) -> Schedule:
        """Raises: BadSchedule."""
        try:
            zone = load_zone(cron.spec.get("timeZone") or "")
        except BadSchedule:
            zone = UTC
        return parse(cron.spec.get("schedule") or "", zone)

    async def _follow(self, look: _Sync, jobs: list[WorkloadView]) -> None:
        """Updates the status from the jobs it started."""
        cron = look.cron
        for job in jobs:
            if not is_finished(job.status):
                if not look.is_active(job.uid):
                    fresh = await self._client.get(CRON_JOBS, cron.name, cron.namespace)
                    known = (fresh.get("status") or {}).get("active") or ()
                    if not any(each.get("uid") == job.uid for each in known):
                        text = f"Saw a job that the controller did not create or forgot: {job.name}"
                        self._tell(cron, WARNING, "UnexpectedJob", text)
                continue
            complete = is_true(job.status, "Complete")
            if look.is_active(job.uid):
                look.drop(job.uid)
                text = f"Saw completed job: {job.name}, condition: {'Complete' if complete else 'Failed'}"
                self._tell(cron, NORMAL, "SawCompletedJob", text)
            ended = job.status.get("completionTime")
            if complete and ended and ended > (look.status.get("lastSuccessfulTime") or ""):
                look.set("lastSuccessfulTime", ended)
        uids = {job.uid for job in jobs}
        for each in look.active:
            if each.get("uid") in uids:
                continue
            try:
                await self._client.get(JOBS, each["name"], cron.namespace)
            except StatusError as error:
                if error.code != 404:
                    raise
                self._tell(cron, NORMAL, "MissingJob", f"Active job went missing: {each['name']}")
                look.drop(each["uid"])

    def _may_start(self, look: _Sync, due_s: float, now_s: float) -> bool:
        cron = look.cron
        deadline_s = cron.spec.get("startingDeadlineSeconds")
        if deadline_s is not None and due_s + deadline_s < now_s:
            shown = format_datetime(datetime.fromtimestamp(due_s, UTC))
            self._tell(cron, WARNING, "MissSchedule", f"Missed scheduled time to start a job: {shown}")
            return False
        name = job_name(cron, due_s)
        known = any(each.get("name") == name for each in look.active)
        if known or look.status.get("lastScheduleTime") == timestamp(due_s):
            return False
        if cron.spec.get("concurrencyPolicy") == "Forbid" and look.active:
            self._tell(cron, NORMAL, "JobAlreadyActive", _ACTIVE)
            return False
        return True

    async def _replace(self, look: _Sync) -> None:
        cron = look.cron
        if cron.spec.get("concurrencyPolicy") != "Replace":
            return
        for each in list(look.active):
            try:
                await self._client.get(JOBS, each["name"], cron.namespace)
            except MinikubeError as error:
                self._tell(cron, WARNING, "FailedGet", f"Get job: {error}")
                raise
            if not await self._delete(look, each["name"], each["uid"]):
                raise StatusError(500, "InternalError", f"could not replace job {cron.namespace}/{each['name']}")

    async def _start(self, look: _Sync, due_s: float) -> bool:
        """False if another owner's job has the name, or the job is already known. Raises: StatusError, Unavailable."""
        cron = look.cron
        wanted = job_of(cron, due_s, self.owner.reference(cron))
        try:
            job = await self._client.create(JOBS, wanted, cron.namespace)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                job = await self._client.get(JOBS, wanted["metadata"]["name"], cron.namespace)
                refs = job["metadata"].get("ownerReferences") or ()
                ours = any(ref.get("uid") == cron.uid and ref.get("controller") for ref in refs)
                if not ours or look.is_active(job["metadata"]["uid"]):
                    return False
            else:
                if not has_cause(error, NAMESPACE_TERMINATING):
                    self._tell(cron, WARNING, "FailedCreate", f"Error creating job: {error.message}")
                raise
        else:
            self._tell(cron, NORMAL, "SuccessfulCreate", f"Created job {job['metadata']['name']}")
        metadata = job["metadata"]
        reference = {
            "kind": "Job", "namespace": cron.namespace, "name": metadata["name"], "uid": metadata["uid"],
            "apiVersion": "batch/v1", "resourceVersion": metadata["resourceVersion"],
        }  # fmt: skip
        look.set("active", [*look.active, reference])
        look.set("lastScheduleTime", timestamp(due_s))
        return True


def _with_status(cron: WorkloadView, status: Object) -> WorkloadView:
    changed = copy.copy(cron)
    changed.status = status
    return changed
