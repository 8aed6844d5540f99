"""The scheduling cycle of a group: its pods are placed in memory one by one, and bound if enough fit.

Each placed pod is assumed, so that the next one sees it, and all are reverted at the end. Then, if a Permit accepted
the group, each placed pod is assumed again and enters its binding cycle; otherwise all return to the queue. Nothing
awaits in between, so results stay valid. Source: pkg/scheduler/schedule_one_podgroup.go, with the gates
TopologyAwareWorkloadScheduling and WorkloadAwarePreemption off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minikube_py.api.errors import go_quote
from minikube_py.scheduler.framework import Code, CycleState, Diagnosis, FitError, NoNodesAvailable, Status
from minikube_py.scheduler.groups.conditions import GroupConditions
from minikube_py.scheduler.metrics import ATTEMPT_BUCKETS
from minikube_py.scheduler.objects import QueuedPodInfo
from minikube_py.scheduler.scoring import Choice

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import ProfileRun, Scheduler

logger = logging.getLogger(__name__)

UNSCHEDULABLE: Final = "pod group is unschedulable"
PREEMPTING: Final = f"{UNSCHEDULABLE}, pod group is waiting for preemption to complete"


@dataclass(slots=True)
class Try:
    """The result for one pod. `node`: where it was placed, or "". `fail`: requeues it with its own reason; None if it
    was placed without preemption. `error`: what aborted the attempt, or ""."""

    queued: QueuedPodInfo
    started_s: float
    choice: Choice | None = None
    node: str = ""
    permit: Status | None = None
    fail: Callable[[], None] | None = None
    error: str = ""

    @property
    def permit_text(self) -> str:
        return self.permit.message if self.permit is not None else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The group's result. `code`: Success, Unschedulable or Error."""

    code: Code
    message: str = ""
    preempting: bool = False


class GroupCycle:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._conditions = GroupConditions(scheduler)

    @property
    def conditions(self) -> GroupConditions:
        return self._conditions

    def run(self, first: QueuedPodInfo) -> None:
        """Schedules the group of a popped pod, with all its queued pods."""
        scheduler, group = self._scheduler, first.pod.group
        members = self._members(first)
        if problem := self._problem(members):
            for queued in members:
                run = scheduler.profiles[queued.pod.scheduler_name]
                scheduler.fail(run, queued, Code.ERROR, problem, None, scheduler.clock.monotonic_s())
            return
        run = scheduler.profiles[first.pod.scheduler_name]
        members = [queued for queued in members if scheduler.admitted(queued) is not None]
        if members:
            started_s = scheduler.clock.monotonic_s()
            tries, outcome = self._try_all(run, members)
            scheduler.observe(
                "scheduler_podgroup_scheduling_algorithm_duration_seconds",
                ATTEMPT_BUCKETS,
                (),
                scheduler.clock.monotonic_s() - started_s,
            )
            self._submit(run, members, tries, outcome)
            self._tell(run, group, outcome, started_s)

    def _members(self, first: QueuedPodInfo) -> list[QueuedPodInfo]:
        """By priority, then by first attempt."""
        scheduler = self._scheduler
        known = scheduler.groups.get(first.pod.group)
        others = [pod for pod in known.unscheduled.values() if pod.uid != first.pod.uid] if known is not None else []
        found = [first, *(queued for pod in others if (queued := scheduler.queue.take(pod)) is not None)]
        found.sort(key=lambda queued: (-queued.pod.priority, queued.initial_attempt_s or 0.0))
        return found

    def _problem(self, members: Sequence[QueuedPodInfo]) -> str:
        """Why the group cannot be scheduled at all, or ""."""
        scheduler = self._scheduler
        names = list(dict.fromkeys(queued.pod.scheduler_name for queued in members))
        if len(names) > 1:
            got = " and ".join(map(go_quote, names[:2]))
            return f"all pods in a single pod group should have the same .spec.schedulerName set, got: {got}"
        if scheduler.profiles[names[0]].rounds is not None:
            return "pods of a pod group are not placed in rounds: leave out the profile's plugin that does so"
        if any(scheduler.extended.concerns(queued.pod) for queued in members):
            return "pods of a pod group are not placed by extenders: leave out those that are interested in them"
        return ""

    # --- placement in memory ----------------------------------------------------------------------------------------

    def _try_all(self, run: ProfileRun, members: Sequence[QueuedPodInfo]) -> tuple[list[Try], Outcome]:
        tries: list[Try] = []
        outcome, preempts = Outcome(Code.UNSCHEDULABLE, UNSCHEDULABLE), False
        reverts: list[Callable[[], None]] = []
        try:
            for queued in members:
                tried = self._try(run, queued, reverts)
                tries.append(tried)
                if tried.error:
                    text = f"failed to schedule other pod from a pod group: {tried.error}"
                    outcome = Outcome(Code.ERROR, text)
                    break
                if not tried.node:
                    continue
                preempts = preempts or tried.fail is not None
                if tried.permit is not None and tried.permit.is_success:
                    outcome = Outcome(Code.UNSCHEDULABLE, PREEMPTING, True) if preempts else Outcome(Code.SUCCESS)
        finally:
            for revert in reversed(reverts):
                revert()
        return tries, outcome

    def _try(self, run: ProfileRun, queued: QueuedPodInfo, reverts: list[Callable[[], None]]) -> Try:
        """Places one pod in addition to the earlier ones. Its undo is appended to `reverts`."""
        scheduler, pod = self._scheduler, queued.pod
        tried = Try(queued, scheduler.clock.monotonic_s())
        try:
            try:
                tried.choice = choice = run.evaluator.choose(pod)
                node, state = choice.node.name, choice.state
            except FitError as error:
                nominated = scheduler.post_filter(run, pod, error.diagnosis)
                tried.fail = self._unfit(run, tried, error.code, error.message, error.diagnosis, nominated)
                if not nominated:
                    return tried
                # Later pods see it as running there, with its victims gone.
                node, state = nominated, run.evaluator.prepare(pod).state
            self._assume(run, tried, state, node, reverts)
        except NoNodesAvailable as error:
            tried.fail = self._broke(run, tried, error)
        except Exception as error:
            tried.error = str(error) or type(error).__name__
            tried.fail = self._broke(run, tried, error)
        return tried

    def _assume(
        self, run: ProfileRun, tried: Try, state: CycleState, node: str, reverts: list[Callable[[], None]]
    ) -> None:
        """Raises the plugins' errors."""
        scheduler, pod = self._scheduler, tried.queued.pod

        def revert() -> None:
            scheduler.release(run, state, pod, node)
            if pod.nominated_node:
                scheduler.nominations.put(pod, pod.nominated_node)

        scheduler.cache.assume(pod, node)
        scheduler.nominations.drop(pod.uid)
        try:
            status = run.profile.run_reserve(state, pod, node)
            if status.is_success:
                status, _ = run.profile.run_permit(state, pod, node)
        except Exception:
            revert()
            raise
        if status.is_success or status.code is Code.WAIT:
            tried.node, tried.permit = node, status
            reverts.append(revert)
            return
        revert()
        tried.fail = self._by_status(run, tried, status)
        if not status.is_rejected:
            tried.error = status.message

    # --- requeueing -------------------------------------------------------------------------------------------------

    def _unfit(
        self, run: ProfileRun, tried: Try, code: Code, message: str, diagnosis: Diagnosis | None, nominated: str | None
    ) -> Callable[[], None]:
        fail, queued, started_s = self._scheduler.fail, tried.queued, tried.started_s
        return lambda: fail(run, queued, code, message, diagnosis, started_s, nominated)

    def _broke(self, run: ProfileRun, tried: Try, error: Exception) -> Callable[[], None]:
        return lambda: self._scheduler.broke(run, tried.queued, error, tried.started_s)

    def _by_status(self, run: ProfileRun, tried: Try, status: Status) -> Callable[[], None]:
        return lambda: self._scheduler.fail_by_status(run, tried.queued, status, tried.started_s)

    # --- submitting -------------------------------------------------------------------------------------------------

    def _submit(
        self, run: ProfileRun, members: Sequence[QueuedPodInfo], tries: Sequence[Try], outcome: Outcome
    ) -> None:
        now_s = self._scheduler.clock.monotonic_s()
        for i, queued in enumerate(members):
            tried = tries[i] if i < len(tries) else Try(queued, now_s)
            if outcome.code is Code.ERROR:
                if tried.error and tried.fail is not None:
                    tried.fail()
                else:
                    self._unfit(run, tried, Code.ERROR, outcome.message, None, "")()
            elif tried.fail is not None and (not tried.node or outcome.preempting):
                tried.fail()
            elif outcome.preempting:
                self._unfit(run, tried, Code.UNSCHEDULABLE, outcome.message, None, tried.node)()
            elif outcome.code is Code.SUCCESS and tried.choice is not None:
                self._bind(run, tried, tried.choice)
            else:
                text = f"{UNSCHEDULABLE}, {tried.permit_text}"
                self._unfit(run, tried, Code.UNSCHEDULABLE, text, None, "")()

    def _bind(self, run: ProfileRun, tried: Try, choice: Choice) -> None:
        try:
            self._scheduler.place(run, tried.queued, choice, tried.started_s)
        except Exception as error:
            self._scheduler.broke(run, tried.queued, error, tried.started_s)

    def _tell(self, run: ProfileRun, group: str, outcome: Outcome, started_s: float) -> None:
        scheduler = self._scheduler
        if outcome.code is Code.SUCCESS:
            result, condition = "scheduled", ("True", "Scheduled")
        elif outcome.code is Code.ERROR:
            logger.error("scheduling of pod group %s: %s", group, outcome.message)
            result, condition = "error", ("False", "SchedulerError")
        else:
            result = "waiting_on_preemption" if outcome.preempting else "unschedulable"
            condition = ("False", "Unschedulable")
        labels = (("result", result), ("profile", run.profile.name))
        scheduler.count("scheduler_podgroup_schedule_attempts_total", labels)
        duration_s = scheduler.clock.monotonic_s() - started_s
        scheduler.observe("scheduler_podgroup_scheduling_attempt_duration_seconds", ATTEMPT_BUCKETS, labels, duration_s)
        self._conditions.put(group, *condition, outcome.message)
