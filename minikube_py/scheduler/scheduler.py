"""The scheduler: watches pods and nodes, and binds every unassigned pod to a node.

Pods are placed one at a time (the scheduling cycle: pop, choose, assume, reserve, permit, without awaiting); the
binding runs asynchronously (the binding cycle: wait at Permit, PreBind, Bind, PostBind). Nothing polls: informers,
timers and finished bindings wake the loop. Source: pkg/scheduler/schedule_one.go; the scheduling framework, KEP-624.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minikube_py.client.events import NORMAL, WARNING
from minikube_py.client.informer import Handler, Informer, InformerFactory
from minikube_py.client.rest import NODES, PODS, Object, ResourceRef, RestClient
from minikube_py.client.timers import Timer, Timers
from minikube_py.client.transport import ApiTransport
from minikube_py.client.unreadable import unreadable_metrics
from minikube_py.env import Clock, Outside, ended
from minikube_py.scheduler.binding import Bindings
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.changes import columns_differ, node_changes, pod_changes
from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.decisions import Decisions
from minikube_py.scheduler.dry_run import DryRuns
from minikube_py.scheduler.evaluate import Evaluator
from minikube_py.scheduler.explaining import answer
from minikube_py.scheduler.extenders.asking import Extenders
from minikube_py.scheduler.extenders.cycle import ExtendedCycle
from minikube_py.scheduler.flow import starting
from minikube_py.scheduler.framework import (
    CODE_NAMES,
    EVENT_ASSIGNED_POD_ADD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    EVENT_NODE_DELETE,
    EVENT_UNSCHEDULED_POD_ADD,
    ClusterChange,
    Code,
    CycleState,
    Diagnosis,
    FitError,
    NoNodesAvailable,
    Status,
)
from minikube_py.scheduler.gauges import gauges_of
from minikube_py.scheduler.groups import starting as starting_groups
from minikube_py.scheduler.groups.state import POD_GROUPS, Groups, in_groups
from minikube_py.scheduler.kinds import LentKinds
from minikube_py.scheduler.matcher import COLUMNS, Matcher
from minikube_py.scheduler.metrics import AttemptMetrics, Labels, Metrics
from minikube_py.scheduler.nominations import Nominations
from minikube_py.scheduler.objects import NodeInfo, PodInfo, QueuedPodInfo, project_live, project_node, project_pod
from minikube_py.scheduler.permit import WaitingPods
from minikube_py.scheduler.plugin_informers import PluginInformers, Polled
from minikube_py.scheduler.pre_binding import PreBindings
from minikube_py.scheduler.preemption import Preemptions
from minikube_py.scheduler.profile import Profile, require_one_order
from minikube_py.scheduler.queue import NEVER, SchedulingQueue
from minikube_py.scheduler.reports import REASON_ERROR, REASON_UNSCHEDULABLE, Conditions, SchedulerEvents
from minikube_py.scheduler.rules import Rules
from minikube_py.scheduler.scoring import Choice

logger = logging.getLogger(__name__)

TURN_S = 0.002
"""How long pods are placed before yielding to the event loop."""


class ProfileRun:
    """A profile with its evaluator and metrics."""

    __slots__ = ("attempts", "evaluator", "events", "profile", "rounds")

    def __init__(
        self, profile: Profile, evaluator: Evaluator, attempts: AttemptMetrics, events: SchedulerEvents
    ) -> None:
        self.profile = profile
        self.evaluator = evaluator
        self.attempts = attempts
        self.events = events
        self.rounds: starting.Rounds | None = None


class Scheduler:
    """`start()` returns when nodes and pods are synced and scheduling has begun.

    Raises from the constructor: ConfigError; InvalidRequest for an unknown matcher."""

    def __init__(
        self,
        transport: ApiTransport,
        clock: Clock,
        rng: random.Random,
        config: SchedulerConfig | None = None,
        outside: Outside | None = None,
        informers: InformerFactory | None = None,
    ) -> None:
        self.config = config = config if config is not None else SchedulerConfig()
        self.client: Any = RestClient(transport)
        self._clock = clock
        self._now_s = clock.monotonic_s
        self._cache = Cache()
        self._metrics = Metrics()
        self._timers = Timers(clock)
        self.waiting_pods = WaitingPods(self._timers)
        self.pre_bindings = PreBindings()
        self.conditions = Conditions(self.client, clock)
        self._decisions = Decisions(config.explained_decisions)
        self.nominations = Nominations()
        self._preemptions = Preemptions(self, self._metrics)
        self.extenders = Extenders(config.extenders, outside)
        self.extended = ExtendedCycle(self, self.extenders)
        self._group_cycle = starting_groups.cycle_of(self)
        self.rng = rng
        informers = informers or InformerFactory(self.client, clock, rng)
        self._lent = PluginInformers(informers, clock)
        self.kinds = LentKinds(informers, clock, self._kind_changed, self._after_kinds)
        live, there = self.extenders.with_bodies(project_live, project_node)
        self._asked, _ = self.extenders.with_bodies(project_pod, project_node)
        if self._group_cycle is not None:
            live, self._asked = in_groups(live), in_groups(self._asked)
        self._pods = informers.make(PODS, live)
        self._nodes = informers.make(NODES, there)
        self.matcher = self._make_matcher()
        # All above is a plugin's, from its constructor on.
        self.profiles: dict[str, ProfileRun] = {}
        self.profiles |= {p.scheduler_name: self._run_of(p, rng) for p in config.profiles}
        self._queue = self._make_queue()
        self.bindings = Bindings(self)
        self._rounds = starting.rounds_of(self, self.bindings, self._timers)
        self._held: dict[str, PodInfo] = {}  # By key, pods that need a kind not yet synced.
        self._pods.add_handler(Handler(self._pod_added, self._pod_updated, self._pod_deleted, self.wake))
        self._nodes.add_handler(Handler(self._node_added, self._node_updated, self._node_deleted, self.wake))
        self._wake = asyncio.Event()
        self._flush_timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._crash: BaseException | None = None

    def _make_matcher(self) -> Matcher | None:
        """Finds nodes that may fit; None to filter all nodes."""
        name = self.config.matcher
        return None if name == COLUMNS else Matcher(self._cache.columns, name, self.config.matcher_options)

    def _run_of(self, config: Any, rng: random.Random) -> ProfileRun:
        profile = Profile.named(config, self, self.config.registry, self.config.gates)
        percentage = self.config.percentage_of_nodes_to_score
        evaluator = Evaluator(profile, self._cache.columns, rng, percentage, self.matcher, self.nominations)
        events = SchedulerEvents(self.client, self._clock, rng, profile.name, self.config.host)
        return ProfileRun(profile, evaluator, AttemptMetrics(self._metrics, profile.name), events)

    def _make_queue(self) -> SchedulingQueue:
        profiles = [run.profile for run in self.profiles.values()]
        require_one_order(profiles)
        more = self.extenders.events()
        rules = {run.profile.name: Rules.of(run.profile, run.evaluator, more) for run in self.profiles.values()}
        return SchedulingQueue(
            self._now_s,
            profiles[0].sort_key,
            rules,
            self._cache.columns.by_name.get,
            initial_backoff_s=self.config.pod_initial_backoff_s,
            max_backoff_s=self.config.pod_max_backoff_s,
            max_unschedulable_s=self.config.pod_max_in_unschedulable_s,
        )

    # --- lifecycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for run in self.profiles.values():
            run.events.start()
        self._nodes.start()
        self._lent.start()
        # Pods last: placed before the rest is known, they would be placed worse.
        await self._nodes.wait_synced()
        await self._lent.wait_synced()
        self._pods.start()
        await self._pods.wait_synced()
        self._task = asyncio.get_running_loop().create_task(self._schedule(), name="scheduler")
        self.wake()

    async def stop(self) -> None:
        """Idempotent. Bindings in progress are abandoned: the next start shows whether they took effect."""
        if (task := self._task) is not None:
            self._crash, self._task = self.failure, None
            task.cancel()
            await ended(task)
        await self._pods.stop()
        await self._nodes.stop()
        await self._lent.stop()
        await self.kinds.stop()
        await self._preemptions.stop()
        await self.bindings.stop()
        await self.extenders.close()
        await self.conditions.stop()
        await self._timers.close()
        for run in self.profiles.values():
            await run.events.stop()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the scheduler, if any: a bug. It outlives `stop`, which does not raise it."""
        if (task := self._task) is not None and task.done():
            return asyncio.CancelledError("code that it called") if task.cancelled() else task.exception()
        return self._crash or self._pods.failure or self._nodes.failure or self._lent.failure or self.kinds.failure

    # --- framework.Handle -------------------------------------------------------------------------------------------

    @property
    def columns(self) -> NodeColumns:
        return self._cache.columns

    def informer(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Informer[Any]:
        return self._lent.of(resource, project)

    def polled(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Polled:
        return self._lent.polled(resource, project, self.client, self.rng, self.count)

    def tell(self, pod: PodInfo, reason: str, message: str) -> None:
        self.profiles[pod.scheduler_name].events.about(pod, NORMAL, reason, message)

    def allow_waiting_pod(self, uid: str, plugin: str) -> bool:
        if (waiting := self.waiting_pods.get(uid)) is not None:
            waiting.allow(plugin)
        return waiting is not None

    def reject_waiting_pod(self, uid: str, plugin: str, message: str) -> bool:
        waiting = self.waiting_pods.get(uid)
        return waiting is not None and waiting.reject(plugin, message)

    def activate(self, pods: Iterable[PodInfo], *, after_error: bool = False) -> None:
        if self.profiles:  # A plugin's constructor has no pods.
            self._queue.activate(pods, after_error=after_error)
            self.wake()

    def dry_run(self, pod: PodInfo) -> DryRuns | None:
        return self.profiles[pod.scheduler_name].evaluator.dry_run(pod)

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        self._preemptions.start(self.profiles[pod.scheduler_name], pod, node_name, victims)

    def is_preempting(self, uid: str) -> bool:
        return self._preemptions.is_running(uid)

    def count(self, metric: str, labels: Labels = ()) -> None:
        self._metrics.count(metric, labels)

    # --- informer handlers ------------------------------------------------------------------------------------------

    def _pod_added(self, pod: PodInfo) -> None:
        if pod.node_name:
            self._cache.put_pod(pod)
            self._queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_ADD, None, pod))
        elif pod.scheduler_name in self.profiles:
            self.nominations.put(pod, "" if pod.gates else pod.nominated_node)
            if pod.group:
                self.groups.put(pod)
            self._enqueue(pod)
            if pod.group:
                self._queue.on_change(ClusterChange(EVENT_UNSCHEDULED_POD_ADD, None, pod))

    def _enqueue(self, pod: PodInfo) -> None:
        needed = self.profiles[pod.scheduler_name].profile.kinds_needed(pod) + ([POD_GROUPS] if pod.group else [])
        if not needed or self.kinds.known(needed):
            self._queue.add(pod)
        else:
            self._held[pod.key] = pod

    def _kind_changed(self, change: ClusterChange) -> None:
        self._queue.on_change(change)

    def _after_kinds(self) -> None:
        held, self._held = self._held, {}
        for pod in held.values():
            self._enqueue(pod)
        self.wake()

    def _pod_updated(self, old: PodInfo, new: PodInfo) -> None:
        if old.node_name:
            self._cache.put_pod(new)
            if old.spec is not new.spec or old.labels != new.labels:
                for change in pod_changes(old, new):
                    self._queue.on_change(change)
        elif new.node_name:
            self._cache.put_pod(new)
            self.conditions.forget(new.uid)
            self._held.pop(old.key, None)
            self.nominations.drop(old.uid)
            self._queue.delete(old.key)
            self._queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_ADD, None, new))
        elif old.key in self._held:
            self._held[old.key] = new
        elif new.scheduler_name in self.profiles and old.resource_version != new.resource_version:
            if new.group:
                self.groups.put(new)
            if self._cache.is_assumed(new.uid):
                if new.deleting and not old.deleting:
                    self._release_assumed(new)
            else:
                self.nominations.update(old, new)
                self._queue.update(new, pod_changes(old, new))
                if old.nominated_node != new.nominated_node:
                    self._leave_nominated(old)

    def _pod_deleted(self, pod: PodInfo) -> None:
        self.conditions.forget(pod.uid)
        if pod.node_name:
            node = self._cache.remove_pod(pod.uid)
            self._queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_DELETE, pod, None, node or pod.node_name))
            return
        self._held.pop(pod.key, None)
        self.nominations.drop(pod.uid)
        self._queue.delete(pod.key)
        if pod.group:
            self.groups.remove(pod)
        self._leave_nominated(pod)
        if self._cache.is_assumed(pod.uid):
            self._release_assumed(pod)

    def _leave_nominated(self, pod: PodInfo) -> None:
        """To pods not above it, a nominated pod counted as running on the node; it looks for a node again itself if
        another pod took it."""
        if pod.nominated_node:
            left = ClusterChange(EVENT_ASSIGNED_POD_DELETE, pod, None, pod.nominated_node)
            self._queue.on_change(left, priority_max=pod.priority)

    def _release_assumed(self, pod: PodInfo) -> None:
        """A pod with a binding in progress is being deleted: its room is free again, whatever the binding's outcome."""
        node = self._cache.assumed_node(pod.uid)
        if not self.reject_waiting_pod(pod.uid, "", "removed") and self._cache.forget(pod.uid):
            self._queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_DELETE, pod, None, node))

    def _node_added(self, node: NodeInfo) -> None:
        self._cache.put_node(node)
        self._queue.on_change(ClusterChange(EVENT_NODE_ADD, None, node, node.name))

    def _node_updated(self, old: NodeInfo, new: NodeInfo) -> None:
        if not columns_differ(old, new):
            return
        self._cache.put_node(new)
        for change in node_changes(old, new):
            self._queue.on_change(change)

    def _node_deleted(self, node: NodeInfo) -> None:
        self._cache.remove_node(node.name)
        self._queue.on_change(ClusterChange(EVENT_NODE_DELETE, node, None))

    def wake(self) -> None:
        """Call after anything that may have added work to the queue."""
        self._queue.end_step()
        if self._queue.has_work or self._queue.is_behind or any(rounds.is_due for rounds in self._rounds):
            self._wake.set()
        deadline_s = self._queue.next_deadline_s()
        timer = self._flush_timer
        if timer is not None and not timer.cancelled and timer.when_s <= deadline_s:
            return
        if timer is not None:
            timer.cancel()
        self._flush_timer = None if deadline_s == NEVER else self._timers.call_at(deadline_s, self._flush)

    def _flush(self) -> None:
        self._queue.flush()
        self._flush_timer = None
        self.wake()

    # --- the scheduling cycle ---------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        queue, wake, bindings = self._queue, self._wake, self.bindings
        while True:
            await wake.wait()
            wake.clear()
            while queue.is_behind or (queue.has_work and bindings.has_room):
                await self.take_turn()
                await asyncio.sleep(0)
            for rounds in self._rounds:
                await rounds.run()
            if self._rounds and bindings.has_room:
                # What a round failed waits in the queue: for a backoff, or because the cluster changed meanwhile.
                self.wake()

    async def take_turn(self) -> None:
        """Places pods of the queue, until the turn or the room for bindings ends."""
        queue, now_s = self._queue, self._now_s
        queue.catch_up()
        turn_ends_s, pressed = now_s() + TURN_S, queue.is_pressed
        while not pressed and self.bindings.has_room and (queued := queue.pop()) is not None:
            if queued.pod.group and self._group_cycle is not None:
                self._group_cycle.run(queued)
            elif self.extended.concerns(queued.pod):
                await self.extended.run(queued)
            else:
                self._schedule_one(queued)
            if now_s() >= turn_ends_s:
                break
        self.wake()

    def _schedule_one(self, queued: QueuedPodInfo) -> None:
        run = self.admitted(queued)
        if run is not None and run.rounds is not None:
            run.rounds.take(queued)
        elif run is not None:
            self.place_alone(run, queued)

    def place_alone(self, run: ProfileRun, queued: QueuedPodInfo) -> None:
        started_s = self._now_s()
        try:
            self.place(run, queued, run.evaluator.choose(queued.pod), started_s)
        except FitError as error:
            nominated = self.post_filter(run, queued.pod, error.diagnosis)
            self.unfit(run, queued, error, nominated, started_s)
        except Exception as error:
            self.broke(run, queued, error, started_s)

    def admitted(self, queued: QueuedPodInfo) -> ProfileRun | None:
        """The profile to place a popped pod by; None if it must not be placed any more."""
        pod = queued.pod
        run = self.profiles[pod.scheduler_name]
        if pod.deleting:
            message = f"skip schedule deleting pod: {pod.namespace}/{pod.name}"
            run.events.about(pod, WARNING, "FailedScheduling", message)
        elif not self._cache.is_assumed(pod.uid):
            return run
        self._queue.done(pod.uid)
        return None

    def place(self, run: ProfileRun, queued: QueuedPodInfo, choice: Choice, started_s: float) -> None:
        """Raises the plugins' errors."""
        run.attempts.algorithm.observe(self._now_s() - started_s)
        self._remember(run, queued, choice, started_s)
        self._commit(run, queued, choice, started_s)

    def unfit(
        self, run: ProfileRun, queued: QueuedPodInfo, error: FitError, nominated: str | None, started_s: float
    ) -> None:
        run.attempts.algorithm.observe(self._now_s() - started_s)
        self.fail(run, queued, error.code, error.message, error.diagnosis, started_s, nominated)

    def broke(self, run: ProfileRun, queued: QueuedPodInfo, error: Exception, started_s: float) -> None:
        """Other errors that ended an attempt."""
        if isinstance(error, NoNodesAvailable):
            nobody = Diagnosis(0)
            # Any fitting node may wake it: a retry without one would be useless.
            nobody.unschedulable_plugins |= run.profile.local_plugins & run.profile.looking.filters.keys()
            self.fail(run, queued, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, error.message, nobody, started_s)
            return
        logger.error("scheduling of pod %s", queued.pod.key, exc_info=error)
        self.fail(run, queued, Code.ERROR, str(error) or type(error).__name__, None, started_s)

    def _remember(self, run: ProfileRun, queued: QueuedPodInfo, choice: Choice, started_s: float) -> None:
        if self.config.explained_decisions:
            self._decisions.placed(queued.pod, self._now_s(), choice, queued.timestamp_s, started_s)

    def post_filter(self, run: ProfileRun, pod: PodInfo, diagnosis: Diagnosis) -> str | None:
        """The pod's nominated node; "" clears a nomination, None leaves it unchanged."""
        if not run.profile.post_filters:
            return ""
        result = None
        started_s = self._now_s()
        try:
            result, status = run.profile.run_post_filter(CycleState(), pod, diagnosis)
        except Exception as error:
            logger.exception("PostFilter for pod %s", pod.key)
            status = Status(Code.ERROR, str(error) or type(error).__name__)
        diagnosis.post_filter_message = status.message
        run.attempts.point("PostFilter", CODE_NAMES[status.code], self._now_s() - started_s)
        return None if result is None else result.nominated_node

    def _commit(self, run: ProfileRun, queued: QueuedPodInfo, choice: Choice, started_s: float) -> None:
        """Charges the node, and starts the pod's binding cycle. Raises the plugins' errors."""
        pod, node_name, state, profile = queued.pod, choice.node.name, choice.state, run.profile
        self._cache.assume(pod, node_name)
        self.nominations.drop(pod.uid)
        waits: dict[str, float] = {}
        try:
            status = profile.run_reserve(state, pod, node_name) if profile.reservers else None
            if (status is None or status.is_success) and profile.permitters:
                status, waits = profile.run_permit(state, pod, node_name)
        except Exception:
            self.release(run, state, pod, node_name)
            raise
        if status is not None and not status.is_success and not waits:
            self.release(run, state, pod, node_name)
            self.fail_by_status(run, queued, status, started_s)
            return
        self.bindings.start(run, queued, choice, waits, started_s)

    def release(self, run: ProfileRun, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        """Reverts the pod's charge; False if it was not charged any more."""
        run.profile.run_unreserve(state, pod, node_name)
        return self._cache.forget(pod.uid)

    # --- failures ---------------------------------------------------------------------------------------------------

    def fail_by_status(self, run: ProfileRun, queued: QueuedPodInfo, status: Status, started_s: float) -> None:
        """The pod was rejected after a node was found, or a plugin failed."""
        if not status.is_rejected:
            self.fail(run, queued, Code.ERROR, status.message, None, started_s)
            return
        diagnosis = Diagnosis(1, dict.fromkeys(status.reasons, 1))
        diagnosis.add_plugin(status)
        self.fail(run, queued, status.code, diagnosis.message(), diagnosis, started_s)

    def fail(
        self,
        run: ProfileRun,
        queued: QueuedPodInfo,
        code: Code,
        message: str,
        diagnosis: Diagnosis | None,
        started_s: float,
        nominated: str | None = "",
        quiet: bool = False,
    ) -> None:
        """Requeues the pod and, unless `quiet`, reports why. `diagnosis`: None for errors. `nominated`: the node being
        vacated for it; "" for none, None to keep the current one."""
        rejected = code is not Code.ERROR
        run.attempts.attempt("unschedulable" if rejected else "error", self._now_s() - started_s)
        queued.unschedulable_plugins = diagnosis.unschedulable_plugins if diagnosis is not None else set()
        queued.pending_plugins = diagnosis.pending_plugins if diagnosis is not None else set()
        known = self._pods.store.get(queued.pod.key)
        if known is None or known.uid != queued.pod.uid or known.node_name:
            # Gone, recreated, or bound after all.
            self._queue.done(queued.pod.uid)
            return
        pod = queued.pod = known
        self.nominations.put(pod, pod.nominated_node if nominated is None else nominated)
        self._queue.fail(queued)
        if self.config.explained_decisions:
            self._decisions.failed(pod, self._now_s(), message)
        if not quiet:
            run.events.about(pod, WARNING, "FailedScheduling", message)
            self.conditions.not_scheduled(pod, REASON_UNSCHEDULABLE if rejected else REASON_ERROR, message, nominated)

    # --- for the binding cycle --------------------------------------------------------------------------------------

    def bound(self, run: ProfileRun, queued: QueuedPodInfo, node_name: str, started_s: float) -> None:
        pod, now_s = queued.pod, self._now_s()
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        run.events.about(pod, NORMAL, "Scheduled", message)
        run.attempts.attempt("scheduled", now_s - started_s)
        first_s = queued.initial_attempt_s
        run.attempts.scheduled(queued.attempts, now_s - (first_s if first_s is not None else started_s))
        if queued.flushed:
            self._metrics.count("scheduler_pod_scheduled_after_flush_total")

    def unassumed(self, pod: PodInfo, node_name: str, rejected: bool) -> None:
        """An assumed pod released its node: for other pods like a deletion, but not for itself."""
        change = ClusterChange(EVENT_ASSIGNED_POD_DELETE, pod, None, node_name)
        self._queue.on_change(change, pod.uid if rejected else "")

    @property
    def queue(self) -> SchedulingQueue:
        return self._queue

    @property
    def cache(self) -> Cache:
        return self._cache

    @property
    def groups(self) -> Groups:
        return self._cache.groups

    @property
    def clock(self) -> Clock:
        return self._clock

    def observe(self, name: str, bounds: tuple[float, ...], labels: Labels, value: float) -> None:
        self._metrics.histogram(name, bounds, labels).observe(value)

    # --- user queries -----------------------------------------------------------------------------------------------

    def ask(self, question: str, subject: Any, params: Mapping[str, str]) -> dict[str, Any] | None:
        """User queries: "explain" a pod by its key, or "what-if" for a pod object, which may have `supposedClaims`
        beside it. None if the pod is not this scheduler's. Raises: as `answer`."""
        pod = self._asked(subject) if question == "what-if" else self._pods.store.get(subject)
        run = self.profiles.get(pod.scheduler_name) if pod is not None else None
        claims = subject.get("supposedClaims") or () if question == "what-if" else ()
        return None if run is None or pod is None else answer(self, run, pod, question, params, claims)

    @property
    def decisions(self) -> Decisions:
        return self._decisions

    def pod(self, key: str) -> PodInfo | None:
        """The pod `namespace/name` as last seen; None if unknown or finished."""
        return self._pods.store.get(key)

    def node(self, name: str) -> NodeInfo | None:
        """The node from its object, without pods."""
        return self._nodes.store.get(name)

    def metrics(self) -> dict[str, float]:
        followed: tuple[Informer[Any], ...] = (self._pods, self._nodes, *self._lent.all(), *self.kinds.all())
        left_out = unreadable_metrics(informer.unreadable for informer in followed)
        return self._metrics.collect(gauges_of(self, self.bindings.in_flight)) | left_out
