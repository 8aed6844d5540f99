"""A Job's decisions about its pods: how many are missing or surplus, which count, and how the job ends. Pure.

Source: k8s.io/kubernetes/pkg/controller/job/job_controller.go (syncJob, manageJob, trackJobStatusAndRemoveFinalizers).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.client.events import timestamp
from minikube_py.client.rest import Object
from minikube_py.controllers import job_pods
from minikube_py.controllers.job_pods import (
    Backoff,
    Intervals,
    failed,
    index_of,
    intervals_text,
    match_policy,
    parse_intervals,
    tracked,
    with_indexes,
)
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import JOB_TRACKING, PodView, WorkloadView

UNCOUNTED_MAX: Final = 500
"""Pods accounted for at a time, so that the status stays small."""
PODS_AT_ONCE_MAX: Final = 500
NAME_PREFIX_MAX: Final = 58
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_DEADLINE: Final = ("DeadlineExceeded", "Job was active longer than specified deadline")
_BACKOFF: Final = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_FAILED_INDEXES_MAX: Final = (
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)
_FAILED_INDEXES: Final = ("FailedIndexes", "Job has failed indexes")
_REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")


def condition_of(status: Mapping[str, Any], kind: str) -> Object | None:
    found: Object | None = next((c for c in status.get("conditions") or () if c.get("type") == kind), None)
    return found


def is_true(status: Mapping[str, Any], *kinds: str) -> bool:
    return any((condition_of(status, kind) or {}).get("status") == "True" for kind in kinds)


def is_finished(status: Mapping[str, Any]) -> bool:
    return is_true(status, "Complete", "Failed")


class Plan(NamedTuple):
    """Pods to delete, pods to create (by index, None without one), or how long to wait before that."""

    going: Sequence[PodView] = ()
    coming: Sequence[int | None] = ()
    wait_s: float = 0.0


class JobSync:
    """One sync of a job: `status` becomes what is to be written. `removing`: pods whose finalizer is being removed."""

    def __init__(
        self,
        job: WorkloadView,
        pods: Sequence[PodView],
        removing: Collection[str],
        backoff: Backoff,
        now_s: float,
    ) -> None:
        self.job, self.spec, self.now_s = job, job.spec, now_s
        self.status: Object = copy.deepcopy(dict(job.status))
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.pods = sorted(pods, key=lambda pod: -1 if (i := index_of(pod)) is None else i) if self.indexed else pods
        self.active = [pod for pod in pods if pod.active]
        self.active_count = len(self.active)
        self.ready = sum(pod.ready for pod in self.active)
        self.terminating = sum(bool(pod.deleting) and not pod.terminal for pod in pods)
        self._removing = removing
        given = self.status.get("uncountedTerminatedPods") or {}
        self._uncounted = {name: list(given.get(name) or ()) for name in ("succeeded", "failed")}
        self._were = {name: frozenset(uids) for name, uids in self._uncounted.items()}
        new_succeeded = self._valid("succeeded", lambda pod: pod.phase == "Succeeded")
        new_failed = self._valid("failed", lambda pod: failed(pod, self.spec))
        self.backoff = backoff.after(new_succeeded, new_failed)
        self.succeeded = self._count("succeeded") + len(new_succeeded) + len(self._uncounted["succeeded"])
        counting = sum(match_policy(self.spec, pod).counts for pod in new_failed)
        self.failed = self._count("failed") + counting + len(self._uncounted["failed"])
        self.succeeded_indexes: Intervals = []
        self.failed_indexes: Intervals | None = None
        self._counted_indexes: Intervals = []
        self.replaced: dict[int, PodView] = {}
        self.ending: Object | None = None
        """The condition that ends the job: first the interim one, then the final one."""
        self.changed = False
        self.rest = False
        self.written: Object | None = None
        """The last written status."""
        if not self.status.get("startTime") and not self.suspended:
            self.status["startTime"] = timestamp(now_s)

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def per_index(self) -> bool:
        return self.spec.get("backoffLimitPerIndex") is not None

    def _count(self, name: str) -> int:
        return int(self.status.get(name) or 0)

    def _may_count(self, pod: PodView) -> bool:
        if not tracked(pod) or pod.uid in self._removing:
            return False
        return not self.indexed or self._valid_index(pod) is not None

    def _valid_index(self, pod: PodView) -> int | None:
        index = index_of(pod)
        return index if index is not None and index < self.spec["completions"] else None

    def _valid(self, kind: str, fits: Any) -> list[PodView]:
        were = self._were[kind]
        return [pod for pod in self.pods if self._may_count(pod) and pod.uid not in were and fits(pod)]

    def condition(self, kind: str, reason: str, message: str, status: str = "True") -> Object:
        now = timestamp(self.now_s)
        return {
            "type": kind, "status": status, "lastProbeTime": now, "lastTransitionTime": now,
            "reason": reason, "message": message,
        }  # fmt: skip

    # --- end conditions -----------------------------------------------------------------------------------------------

    def judge(self) -> float | None:
        """Sets `ending` if the job has ended. Returns the seconds until its deadline, if it has one."""
        deadline_s: float | None = None
        self.ending = self._ending_before()
        if self.ending is None:
            if self._over_limit():
                self.ending = self.condition("FailureTarget", *_BACKOFF)
            elif self.spec.get("activeDeadlineSeconds") is not None and not self.suspended:
                started_s = parse_time_s(self.status.get("startTime") or "") or self.now_s
                deadline_s = self.spec["activeDeadlineSeconds"] - (self.now_s - started_s)
                if deadline_s <= 0:
                    self.ending, deadline_s = self.condition("FailureTarget", *_DEADLINE), None
        if self.indexed:
            self._judge_indexes()
        return deadline_s

    def _ending_before(self) -> Object | None:
        """The ending from an earlier sync, or from the failure policy now."""
        met, target = condition_of(self.status, "SuccessCriteriaMet"), condition_of(self.status, "FailureTarget")
        if met is not None and met.get("status") == "True":
            return met
        if target is not None and target.get("status") == "True":
            return self.condition("Failed", target.get("reason") or "", target.get("message") or "")
        if self.spec.get("podFailurePolicy") is None:
            return None
        for pod in self.pods:
            message = match_policy(self.spec, pod).message if failed(pod, self.spec) else None
            if message is not None:
                return self.condition("FailureTarget", "PodFailurePolicy", message)
        return None

    def _over_limit(self) -> bool:
        limit = self.spec["backoffLimit"]
        if self.failed > limit:
            return True
        if ((self.spec.get("template") or {}).get("spec") or {}).get("restartPolicy") != "OnFailure":
            return False
        count = job_pods.restarts(self.pods)
        return count > 0 if limit == 0 else count >= limit

    def _judge_indexes(self) -> None:
        completions = self.spec["completions"]
        self._counted_indexes = parse_intervals(self.status.get("completedIndexes") or "", completions)
        new = (
            index
            for pod in self.pods
            if pod.phase == "Succeeded" and tracked(pod) and (index := self._valid_index(pod)) is not None
        )
        self.succeeded_indexes = with_indexes(self._counted_indexes, new)
        self.succeeded = job_pods.total(self.succeeded_indexes)
        if self.per_index:
            lost = (
                index
                for pod in self.pods
                if tracked(pod)
                and (index := self._valid_index(pod)) is not None
                and job_pods.index_failed(self.spec, pod)
            )
            before = parse_intervals(self.status.get("failedIndexes") or "", completions)
            self.failed_indexes = with_indexes(before, lost)
            count, most = job_pods.total(self.failed_indexes), self.spec.get("maxFailedIndexes")
            if self.ending is None and most is not None and count > most:
                self.ending = self.condition("FailureTarget", *_FAILED_INDEXES_MAX)
            elif self.ending is None and count > 0 and count + self.succeeded >= completions:
                self.ending = self.condition("FailureTarget", *_FAILED_INDEXES)
            self._find_replaced()
        if self.ending is None:
            message = job_pods.succeeded_enough(self.spec.get("successPolicy"), completions, self.succeeded_indexes)
            if message is not None:
                self.ending = self.condition("SuccessCriteriaMet", "SuccessPolicy", message)

    def _find_replaced(self) -> None:
        """The last failed pod of each index to retry: kept until its failure count is carried over."""
        running = {index_of(pod) for pod in self.active}
        for pod in self.pods:
            index = self._valid_index(pod)
            if index is None or not self._may_count(pod) or not failed(pod, self.spec) or index in running:
                continue
            if job_pods.holds(self.succeeded_indexes, index) or job_pods.holds(self.failed_indexes or [], index):
                continue
            last = self.replaced.get(index)
            rank = job_pods.all_failures_of_index
            if last is None or (rank(last) <= rank(pod) and job_pods.finished_s(pod) >= job_pods.finished_s(last)):
                self.replaced[index] = pod

    # --- pods ---------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Plans pod creations and deletions for a job that continues."""
        if self.suspended:
            return Plan(going=job_pods.pods_to_remove(self.spec, self.active, len(self.active)))
        parallelism, completions = self.spec["parallelism"], self.spec.get("completions")
        active = len(self.active)
        if completions is None:
            wanted = active if self.succeeded > 0 else parallelism
        else:
            wanted = max(0, min(completions - self.succeeded, parallelism))
        going = job_pods.pods_to_remove(self.spec, self.active, max(0, active - wanted))[:PODS_AT_ONCE_MAX]
        if going:
            return Plan(going=going)
        only_failed = job_pods.only_replaces_failed(self.spec)
        missing = wanted - active - (self.terminating if only_failed else 0)
        if missing <= 0:
            return Plan()
        if not self.per_index and (wait_s := self.backoff.remaining_s(self.now_s)) > 0:
            return Plan(wait_s=wait_s)
        missing = min(missing, PODS_AT_ONCE_MAX)
        if not self.indexed:
            return Plan(coming=[None] * missing)
        return self._plan_indexes(missing, only_failed)

    def _plan_indexes(self, missing: int, only_failed: bool) -> Plan:
        taken = {index for pod in self.active if (index := index_of(pod)) is not None}
        if only_failed:
            leaving = (pod for pod in self.pods if pod.deleting and not pod.terminal)
            taken |= {index for pod in leaving if (index := index_of(pod)) is not None}
        nonpending = with_indexes(self.succeeded_indexes, taken)
        if self.failed_indexes is not None:
            nonpending = job_pods.merged(nonpending, self.failed_indexes)
        indexes = job_pods.first_missing(nonpending, missing, self.spec["completions"])
        if not self.per_index:
            return Plan(coming=indexes)
        waits = {index: job_pods.remaining_of_index_s(self.replaced.get(index), self.now_s) for index in indexes}
        now = [index for index, wait_s in waits.items() if wait_s == 0]
        return Plan(coming=now) if now or not waits else Plan(wait_s=min(waits.values()))

    def body(self, index: int | None, reference: Object) -> Object:
        """The pod to create."""
        template = copy.deepcopy(dict(self.job.template))
        metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
        made: Object = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
        finalizers = list(metadata.get("finalizers") or ())
        made["finalizers"] = finalizers if JOB_TRACKING in finalizers else [*finalizers, JOB_TRACKING]
        made["generateName"] = f"{self.job.name}-"
        made["ownerReferences"] = [reference]
        if self.indexed:
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
                _tell_index(container)
        if index is not None:
            made["annotations"] = {**(made.get("annotations") or {}), job_pods.INDEX: str(index)}
            made["labels"] = {**(made.get("labels") or {}), job_pods.INDEX: str(index)}
            spec["hostname"] = f"{self.job.name}-{index}"
            end = f"-{index}-"
            made["generateName"] = f"{self.job.name}{end}"
            if len(made["generateName"]) > NAME_PREFIX_MAX:
                made["generateName"] = f"{self.job.name[: NAME_PREFIX_MAX - len(end)]}{end}"
            if self.per_index:
                made["annotations"] |= job_pods.failure_annotations(self.spec, self.replaced.get(index))
        return {"kind": "Pod", "apiVersion": "v1", "metadata": made, "spec": spec}

    def conclude(self, managed: bool) -> str:
        """After the pods are handled: checks for completion, then suspension. Returns an event's reason, or ""."""
        completions = self.spec.get("completions")
        enough = self.succeeded > 0 if completions is None else self.succeeded >= completions
        if enough and self.active_count == 0:
            self.ending = self.condition("SuccessCriteriaMet", *_REACHED)
            return ""
        if not managed:
            return ""
        if self.suspended:
            if self._ensure("Suspended", "True", "JobSuspended", "Job suspended"):
                self.status.pop("startTime", None)
                return "Suspended"
        elif self._ensure("Suspended", "False", "JobResumed", "Job resumed"):
            self.status["startTime"] = timestamp(self.now_s)
            return "Resumed"
        return ""

    def _ensure(self, kind: str, status: str, reason: str, message: str) -> bool:
        found = condition_of(self.status, kind)
        if found is None:
            if status != "False":
                self._add(self.condition(kind, reason, message, status))
            return status != "False"
        if (found.get("status"), found.get("reason"), found.get("message")) == (status, reason, message):
            return False
        found.update(self.condition(kind, reason, message, status))
        return self._note()

    def _note(self) -> bool:
        self.changed = True
        return True

    def _add(self, condition: Object) -> None:
        self.status["conditions"] = [*(self.status.get("conditions") or ()), condition]
        self.changed = True

    # --- accounting ---------------------------------------------------------------------------------------------------

    def note_counts(self) -> None:
        for name, value in (("active", self.active_count), ("ready", self.ready), ("terminating", self.terminating)):
            before = self.status.get(name)
            if value != ((before or 0) if name == "active" else before):
                self._note()
            self.status[name] = value

    def count(self) -> list[PodView]:
        """Records finished pods and returns those whose finalizer may now be removed. `rest`: there are more."""
        self._clean({pod.uid for pod in self.pods if tracked(pod) and pod.uid not in self._removing})
        done: list[PodView] = []
        indexes: list[int] = []
        for pod in self.pods:
            if not tracked(pod) or pod.uid in self._removing:
                continue
            is_failed = failed(pod, self.spec)
            if not self._may_go(pod, is_failed):
                continue
            done.append(pod)
            self._count_one(pod, is_failed, indexes)
            if len(indexes) + sum(map(len, self._uncounted.values())) >= UNCOUNTED_MAX:
                self.rest = True
                break
        if self.indexed:
            self._write_indexes(indexes)
        self._announce()
        self._write_uncounted()
        return done

    def _may_go(self, pod: PodView, is_failed: bool) -> bool:
        if self.job.deleting or self.ending is not None or pod.phase == "Succeeded":
            return True
        if not is_failed:
            return False
        index = index_of(pod) if self.per_index else None
        return index is None or self.replaced.get(index) is not pod

    def _count_one(self, pod: PodView, is_failed: bool, indexes: list[int]) -> None:
        index = self._valid_index(pod) if self.indexed else None
        ends_badly = self.ending is not None and self.ending["type"] != "SuccessCriteriaMet"
        if pod.phase == "Succeeded" and pod.uid not in self._were["failed"]:
            if self.indexed:
                if index is not None and not job_pods.holds(self._counted_indexes, index):
                    indexes.append(index)
                    self._note()
            elif pod.uid not in self._were["succeeded"]:
                self._uncounted["succeeded"].append(pod.uid)
                self._note()
        elif is_failed or ends_badly:
            known = pod.uid in self._were["failed"] or (self.indexed and index is None)
            if not known and match_policy(self.spec, pod).counts:
                self._uncounted["failed"].append(pod.uid)
                self._note()

    def _write_indexes(self, new: list[int]) -> None:
        self.succeeded_indexes = with_indexes(self.succeeded_indexes, new)
        texts = {"completedIndexes": intervals_text(self.succeeded_indexes) or None}
        texts["failedIndexes"] = None if self.failed_indexes is None else intervals_text(self.failed_indexes)
        for name, text in texts.items():
            if self.status.get(name) != text:
                self._note()
                self.status[name] = text
        self.status["succeeded"] = job_pods.total(self.succeeded_indexes)

    def _announce(self) -> None:
        """The interim condition is written before pods lose their finalizers; the final one follows."""
        if self.ending is None:
            return
        kind, told = self.ending["type"], (self.ending["reason"], self.ending["message"])
        if kind == "FailureTarget":
            self._add(self.ending)
            self.ending = self.condition("Failed", *told)
        elif kind == "SuccessCriteriaMet":
            if not is_true(self.status, "SuccessCriteriaMet"):
                self._add(self.ending)
            self.ending = self.condition("Complete", *told)

    def _clean(self, with_finalizer: Collection[str]) -> None:
        """Counts pods that have lost their finalizer."""
        for name, uids in self._uncounted.items():
            left = [uid for uid in uids if uid in with_finalizer]
            if len(left) != len(uids):
                self.status[name] = self._count(name) + len(uids) - len(left)
                self._uncounted[name] = left
                self._note()

    def _write_uncounted(self) -> None:
        self.status["uncountedTerminatedPods"] = {name: uids for name, uids in self._uncounted.items() if uids}

    def settle(self, with_finalizer: Collection[str]) -> None:
        """Call after finalizers were removed."""
        self._clean(with_finalizer)
        self._write_uncounted()

    def finish(self) -> bool:
        """Writes the final condition once every pod is counted and gone."""
        if self.ending is None or self.rest or any(self._uncounted.values()) or self.terminating > 0:
            return False
        kind = self.ending["type"]
        if condition_of(self.status, kind) is None:
            self._add(self.ending)
        else:
            self._ensure(kind, "True", self.ending["reason"], self.ending["message"])
        if kind == "Complete":
            self.status["completionTime"] = self.ending["lastTransitionTime"]
        return self._note()


def _tell_index(container: Object) -> None:
    known = container.get("env") or []
    if not any(each.get("name") == INDEX_VARIABLE for each in known):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{job_pods.INDEX}']"}}
        container["env"] = [*known, {"name": INDEX_VARIABLE, "valueFrom": source}]
