"""The scheduling queue: activeQ, backoffQ and the pods that wait for something to change. Pure; the clock is handed in.

A pod that fits nowhere sleeps until an event that may help it. Who rejected it decides what may help: the hints that
these plugins registered are asked (KEP-4247), and where the rejecting filters look at single nodes only, the question
is put exactly: does the pod now pass all filters on the node that changed? Events that arrive while a pod is being
tried are kept and replayed if it fails. Source: pkg/scheduler/backend/queue; KEP-5142 (pods in backoff go when nothing
else is to do).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from minikube_py.scheduler.framework import (
    EVENT_FORCE_ACTIVATE,
    EVENT_UNSCHEDULABLE_TIMEOUT,
    EVENT_UNSCHEDULED_POD_ADD,
    EVENT_UNSCHEDULED_POD_UPDATE,
    INT64_MAX,
    WILDCARD,
    ClusterChange,
    ClusterEvent,
    EventRegistration,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo, QueuedPodInfo
from minikube_py.scheduler.waiting import Waiting

if TYPE_CHECKING:
    from minikube_py.scheduler.evaluate import Evaluator
    from minikube_py.scheduler.profile import Profile

logger = logging.getLogger(__name__)

ACTIVE: Final = "active"
BACKOFF: Final = "backoff"
UNSCHEDULABLE: Final = "unschedulable"
GATED: Final = "gated"

SKIP, AFTER_BACKOFF, IMMEDIATELY = 0, 1, 2
BACKOFF_WINDOW_S = 1.0
"""Ends of backoff fall on whole windows, within which pods go by priority."""
NEVER = float("inf")
EVENTS_KEPT_MAX = 65_536
QUESTIONS_MAX = 1024
"""So many kept events are put to the hints when a pod fails; one that missed more is simply tried again."""

SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"


class Rules:
    """What the queue asks of a profile. `fits(pod, node)`: passes all node-local filters on the node as it is now, or
    as it would be without the pods that it may preempt. `needs(pod)`: how much of each resource must be free for that,
    as far as is known of every node and for as long as the pod waits. `promised(pod)`: the node it is nominated to."""

    __slots__ = ("events", "fits", "hints", "local_plugins", "needs", "pre_enqueue", "promised")

    def __init__(
        self,
        events: Iterable[tuple[str, EventRegistration]],
        fits: Callable[[PodInfo, str], bool],
        local_plugins: frozenset[str],
        pre_enqueue: Callable[[PodInfo], Status],
        needs: Callable[[PodInfo], Mapping[str, int]] = lambda pod: NO_NEEDS,
        promised: Callable[[PodInfo], str] = lambda pod: "",
    ) -> None:
        self.hints: dict[str, list[EventRegistration]] = {}
        for plugin, registration in events:
            self.hints.setdefault(plugin, []).append(registration)
        self.fits = fits
        self.local_plugins = local_plugins
        self.pre_enqueue = pre_enqueue
        self.needs = needs
        self.promised = promised

    @classmethod
    def of(cls, profile: Profile, evaluator: Evaluator, more: Iterable[tuple[str, EventRegistration]]) -> Rules:
        """`more`: what else wakes its pods."""
        events = [*profile.events(), *more]
        local, gates = profile.local_plugins, profile.run_pre_enqueue
        return cls(events, evaluator.helps, local, gates, evaluator.needs, evaluator.promised)


NO_NEEDS: Mapping[str, int] = {}


class Group:
    """Waiting pods that share the answer to what a change is worth to them. `row`: of `Waiting`, -1 for pods whose
    answer depends on more than a node."""

    __slots__ = ("members", "row")

    def __init__(self, row: int) -> None:
        self.members: dict[str, QueuedPodInfo] = {}
        self.row = row


class SchedulingQueue:
    """`rules`: by scheduler name. `sort_key(queued)`: smaller goes first; all profiles share it. `node(name)`: the node
    as it is now; without it, all groups are asked whenever a node changes.

    After calls that may make work, `has_work` tells; `next_deadline_s` is when `flush` has something to do."""

    def __init__(
        self,
        now_s: Callable[[], float],
        sort_key: Callable[[QueuedPodInfo], Any],
        rules: Mapping[str, Rules],
        node: Callable[[str], NodeInfo | None] | None = None,
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_unschedulable_s: float = 300.0,
    ) -> None:
        self._now_s = now_s
        self._sort_key = sort_key
        self._rules = rules
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._max_unschedulable_s = max_unschedulable_s
        self._all: dict[str, QueuedPodInfo] = {}
        # Heap entries outlive moves: one counts only if its sequence is still that of its pod.
        self._active: list[tuple[Any, int, QueuedPodInfo]] = []
        self._backoff: list[tuple[float, Any, int, QueuedPodInfo]] = []
        self._error_backoff: list[tuple[float, Any, int, QueuedPodInfo]] = []
        # In order of their last attempt, since each attempt adds again.
        self._waiting: dict[str, QueuedPodInfo] = {}
        self._groups: dict[object, Group] = {}
        self._node = node
        self._needing = Waiting()
        self.asked = 0
        """How many groups of waiting pods were asked what a change is worth to them."""
        self._gated: dict[str, QueuedPodInfo] = {}
        self._counts = {ACTIVE: 0, BACKOFF: 0}
        self._sequence = 0
        self._in_flight: dict[str, int] = {}
        self._events: list[ClusterChange] = []
        self._heard: dict[ClusterEvent, bool] = {}
        self._events_start = 0
        self.incoming: dict[tuple[str, str], int] = {}
        self.unschedulable_by_plugin: dict[tuple[str, str], int] = {}

    # --- reading ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def get(self, key: str) -> QueuedPodInfo | None:
        return self._all.get(key)

    @property
    def has_work(self) -> bool:
        return self._counts[ACTIVE] > 0 or self._poppable_backoff() is not None

    def pending(self) -> dict[str, int]:
        return {**self._counts, UNSCHEDULABLE: len(self._waiting), GATED: len(self._gated)}

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def next_deadline_s(self) -> float:
        """When `flush` should next be called, on the clock's monotonic scale; infinity if never."""
        deadline_s = NEVER
        for heap in (self._backoff, self._error_backoff):
            self._drop_stale(heap)
            if heap:
                # An end of backoff counts once its window has passed.
                deadline_s = min(deadline_s, heap[0][0] + BACKOFF_WINDOW_S)
        for oldest in self._waiting.values():
            return min(deadline_s, oldest.timestamp_s + self._max_unschedulable_s)
        return deadline_s

    # --- pods come, change and go -----------------------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """A pod that is new to the queue."""
        if pod.key in self._all:
            self.delete(pod.key)
        queued = QueuedPodInfo(pod, self._now_s())
        self._all[pod.key] = queued
        self._to_active(queued, EVENT_UNSCHEDULED_POD_ADD.label)

    def update(self, pod: PodInfo, changes: Iterable[ClusterChange]) -> None:
        """The pod as it now is; `changes` are what is different, in the events' terms."""
        queued = self._all.get(pod.key)
        if queued is None:
            if pod.uid in self._in_flight:
                for change in changes:
                    self._record(change)
                return
            self.add(pod)
            return
        queued.pod = pod
        if queued.queue in (ACTIVE, BACKOFF):
            return
        # Another spec may need other changes than those it was grouped with.
        self._leave_group(queued)
        self._join_group(queued)
        for change in changes:
            strategy = self._worth(queued, change)
            if strategy:
                self._requeue(queued, strategy, EVENT_UNSCHEDULED_POD_UPDATE.label)
                return

    def delete(self, key: str) -> None:
        queued = self._all.pop(key, None)
        if queued is not None:
            self._leave(queued)
            self._count_plugins(queued, -1)

    # --- scheduling -------------------------------------------------------------------------------------------------

    def pop(self) -> QueuedPodInfo | None:
        """The next pod to try, or None. From then on it is in flight: `fail` or `done` must follow."""
        queued = self._pop_active()
        if queued is None:
            queued = self._poppable_backoff()
            if queued is None:
                return None
            self._count_incoming(ACTIVE, POP_FROM_BACKOFF)
            if queued.initial_attempt_s is None:
                queued.initial_attempt_s = self._now_s()
        return self._begin(queued)

    def take(self, pod: PodInfo) -> QueuedPodInfo | None:
        """As `pop`, of that pod, in whichever queue it is; None where its gates hold it back, or it is in none."""
        queued = self._all.get(pod.key)
        if queued is not None and queued.queue != ACTIVE:
            self._leave(queued)
            self._to_active(queued, EVENT_FORCE_ACTIVATE.label)
        return self._begin(queued) if queued is not None and queued.queue == ACTIVE else None

    def _begin(self, queued: QueuedPodInfo) -> QueuedPodInfo:
        self._leave(queued)
        del self._all[queued.pod.key]
        self._count_plugins(queued, -1)
        queued.attempts += 1
        queued.backoff_until_s = None
        self._in_flight[queued.pod.uid] = self._events_start + len(self._events)
        return queued

    def done(self, uid: str) -> None:
        """The pod is no longer in flight: bound, or about to be, or gone."""
        if self._in_flight.pop(uid, None) is not None and self._events:
            self._trim_events()

    def fail(self, queued: QueuedPodInfo) -> str:
        """Takes back a popped pod that was not scheduled; its `unschedulable_plugins` and `pending_plugins` say why,
        both empty for an error. Returns the queue it went to."""
        pod = queued.pod
        start = self._in_flight.get(pod.uid)
        if pod.key in self._all:
            self.done(pod.uid)
            return self._all[pod.key].queue
        rejected = bool(queued.unschedulable_plugins or queued.pending_plugins)
        if rejected:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
            self._count_plugins(queued, 1)
        else:
            queued.consecutive_errors += 1
        queued.timestamp_s = self._now_s()
        queued.backoff_until_s = None
        queued.flushed = False
        self._all[pod.key] = queued
        # Which changes help a group nobody can tell yet: its pods come back by their backoff, as upstream's do.
        strategy = SKIP if rejected and not pod.group else AFTER_BACKOFF
        if rejected and start is not None and start < self._events_start:
            strategy = AFTER_BACKOFF
        elif strategy == SKIP and start is not None:
            strategy = self._replay(queued, start)
        self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE)
        self.done(pod.uid)
        return queued.queue

    def _replay(self, queued: QueuedPodInfo, start: int) -> int:
        """What the events since `start` are worth to a pod that was rejected, all in all."""
        rules = self._rules.get(queued.pod.scheduler_name)
        local = rules is not None and queued.unschedulable_plugins | queued.pending_plugins <= rules.local_plugins
        best = IMMEDIATELY if queued.pending_plugins else AFTER_BACKOFF
        strategy, questions = SKIP, 0
        nodes: set[str] = set()
        for change in islice(self._events, start - self._events_start, None):
            if local and change.node:
                # The question is whether the pod fits on the node as it is now: once is enough.
                if change.node in nodes:
                    continue
                nodes.add(change.node)
            if questions == QUESTIONS_MAX:
                return max(strategy, AFTER_BACKOFF)
            questions += 1
            strategy = max(strategy, self._worth(queued, change))
            if strategy == best:
                break
        return strategy

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Moves waiting pods to the active queue whatever their backoff; those in flight go there if they fail."""
        for pod in pods:
            queued = self._all.get(pod.key)
            if queued is not None:
                if queued.queue != ACTIVE:
                    self._leave(queued)
                    self._to_active(queued, EVENT_FORCE_ACTIVATE.label)
            elif pod.uid in self._in_flight:
                self._record(ClusterChange(EVENT_FORCE_ACTIVATE, None, pod))

    # --- events -----------------------------------------------------------------------------------------------------

    def on_change(self, change: ClusterChange, but_not: str = "", priority_max: int = INT64_MAX) -> int:
        """Moves the waiting pods that `change` may help, but neither the one with the uid `but_not` nor those above
        `priority_max`; returns how many."""
        if self._in_flight:
            self._record(change)
        moved = 0
        if not self._is_heard(change):
            return 0
        may_fit = self._needing.may_fit(self._node(change.node)) if change.node and self._node is not None else None
        for group in list(self._groups.values()):
            if may_fit is not None and group.row >= 0 and not may_fit[group.row]:
                continue
            self.asked += 1
            # Pods that share a group share the answer.
            strategy = self._worth(next(iter(group.members.values())), change)
            if strategy:
                members = group.members.values()
                waking = [q for q in members if q.pod.uid != but_not and q.pod.priority <= priority_max]
                for queued in waking:
                    self._requeue(queued, strategy, change.event.label)
                    moved += 1
        return moved

    def _is_heard(self, change: ClusterChange) -> bool:
        """Whether any plugin may say that it helps. Of most events, such as a pod that was bound, none does, and with
        many pods waiting it is worth knowing that at once. (Whoever waits was rejected, so some plugin is asked.)"""
        event = change.event
        if change.node or event.resource == WILDCARD:
            return True
        heard = self._heard.get(event)
        if heard is None:
            hints = chain.from_iterable(chain.from_iterable(r.hints.values()) for r in self._rules.values())
            heard = self._heard[event] = any(registration.event.matches(event) for registration in hints)
        return heard

    def _group(self, queued: QueuedPodInfo) -> object:
        """What decides whether a change helps: the same for all pods of one spec, priority and nomination that fail by
        node-local filters, and for gated ones unless their gate looks at the pod itself, which `update` deals with."""
        pod = queued.pod
        if queued.queue == GATED:
            # One that was tried before is woken by what turned it down then.
            tried = queued.unschedulable_plugins != {queued.gating_plugin}
            return pod.uid if tried else (pod.scheduler_name, queued.gating_plugin, pod.group)
        rules = self._rules.get(pod.scheduler_name)
        if queued.pending_plugins or rules is None or not queued.unschedulable_plugins <= rules.local_plugins:
            return pod.uid
        may_preempt = pod.priority, pod.preemption_policy, rules.promised(pod)
        return (pod.scheduler_name, pod.spec, may_preempt, frozenset(queued.unschedulable_plugins))

    def _worth(self, queued: QueuedPodInfo, change: ClusterChange) -> int:
        """SKIP, AFTER_BACKOFF or IMMEDIATELY."""
        rejectors = queued.unschedulable_plugins | queued.pending_plugins
        if not rejectors:
            return AFTER_BACKOFF
        event = change.event
        if event.resource == WILDCARD:
            if queued.gating_plugin:
                return SKIP
            other = isinstance(change.new, PodInfo) and change.new.uid != queued.pod.uid
            return SKIP if other else AFTER_BACKOFF
        rules = self._rules.get(queued.pod.scheduler_name)
        if rules is None:
            return AFTER_BACKOFF
        if queued.gating_plugin and not any(
            registration.event.matches(event) for registration in rules.hints.get(queued.gating_plugin, ())
        ):
            return SKIP
        return self._ask_hints(queued, rejectors, rules, change)

    def _ask_hints(self, queued: QueuedPodInfo, rejectors: set[str], rules: Rules, change: ClusterChange) -> int:
        """For filters that look at single nodes, a change of a node helps if and only if the pod now fits there."""
        strategy = SKIP
        local = change.node and not rejectors.isdisjoint(rules.local_plugins)
        if local and _true_or_broken(rules.fits, queued.pod, change.node):
            strategy = AFTER_BACKOFF
        for plugin in rejectors:
            if change.node and plugin in rules.local_plugins:
                continue
            for registration in rules.hints.get(plugin, ()):
                if not registration.event.matches(change.event):
                    continue
                if registration.hint is None:
                    hint = QueueingHint.QUEUE
                else:
                    hint = QueueingHint(_true_or_broken(registration.hint, queued.pod, change))
                if hint is QueueingHint.QUEUE:
                    if plugin in queued.pending_plugins:
                        return IMMEDIATELY
                    strategy = AFTER_BACKOFF
        return strategy

    def _record(self, change: ClusterChange) -> None:
        self._events.append(change)
        if len(self._events) > EVENTS_KEPT_MAX:
            # Pods in flight since before are simply tried again if they fail.
            self._events_start += len(self._events)
            self._events.clear()

    def _trim_events(self) -> None:
        oldest = next(iter(self._in_flight.values()), self._events_start + len(self._events))
        drop = oldest - self._events_start
        if drop > 0:
            del self._events[:drop]
            self._events_start = oldest

    # --- time -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Moves pods whose backoff is over to the active queue, and those that have waited too long on from there."""
        for heap in (self._backoff, self._error_backoff):
            self._drop_stale(heap)
            while heap and not self._is_backing_off(heap[0][3]):
                queued = heap[0][3]
                self._leave(queued)
                self._enter_active(queued, BACKOFF_COMPLETE)
                self._drop_stale(heap)
        now_s, wait_s = self._now_s(), self._max_unschedulable_s
        timeout = ClusterChange(EVENT_UNSCHEDULABLE_TIMEOUT)
        # The same sum as in `next_deadline_s`: rounded otherwise, a deadline could come and nothing be due at it.
        for queued in list(takewhile(lambda q: q.timestamp_s + wait_s <= now_s, self._waiting.values())):
            queued.flushed = True
            self._requeue(queued, self._worth(queued, timeout), timeout.event.label)

    def backoff_s(self, queued: QueuedPodInfo) -> float:
        """How long the pod must wait, counted from its last attempt."""
        count = queued.consecutive_errors or queued.unschedulable_count
        if count == 0 or self._max_backoff_s == 0:
            return 0.0
        doubled = self._initial_backoff_s * (1 << min(count - 1, 30))
        return min(doubled, self._max_backoff_s)

    def _backoff_until(self, queued: QueuedPodInfo) -> float:
        if queued.backoff_until_s is None:
            duration_s = self.backoff_s(queued)
            queued.backoff_until_s = _window(queued.timestamp_s + duration_s) if duration_s else float("-inf")
        return queued.backoff_until_s

    def _is_backing_off(self, queued: QueuedPodInfo) -> bool:
        return self._backoff_until(queued) >= _window(self._now_s())

    # --- moves ------------------------------------------------------------------------------------------------------

    def _requeue(self, queued: QueuedPodInfo, strategy: int, event: str) -> None:
        if strategy == SKIP:
            if not queued.queue:
                self._to_waiting(queued, event)
            return
        self._leave(queued)
        if strategy == AFTER_BACKOFF and self._is_backing_off(queued):
            if self._passes_gates(queued, event):
                self._enter_backoff(queued, event)
        else:
            self._to_active(queued, event)

    def _to_active(self, queued: QueuedPodInfo, event: str) -> None:
        if self._passes_gates(queued, event):
            if queued.initial_attempt_s is None:
                queued.initial_attempt_s = self._now_s()
            self._enter_active(queued, event)

    def _passes_gates(self, queued: QueuedPodInfo, event: str) -> bool:
        """Asks the PreEnqueue plugins; a pod that they hold back goes to the gated ones."""
        rules = self._rules.get(queued.pod.scheduler_name)
        if rules is None:
            return True
        status = rules.pre_enqueue(queued.pod)
        if status.is_success:
            queued.gating_plugin = ""
            return True
        self._count_plugins(queued, -1)
        queued.gating_plugin = status.plugin
        queued.unschedulable_plugins.add(status.plugin)
        self._count_plugins(queued, 1)
        queued.queue = GATED
        self._gated[queued.pod.key] = queued
        self._join_group(queued)
        self._count_incoming(UNSCHEDULABLE, event)
        return False

    def _enter_active(self, queued: QueuedPodInfo, event: str) -> None:
        self._sequence += 1
        queued.sequence, queued.queue = self._sequence, ACTIVE
        heapq.heappush(self._active, (self._sort_key(queued), self._sequence, queued))
        self._counts[ACTIVE] += 1
        self._count_incoming(ACTIVE, event)

    def _enter_backoff(self, queued: QueuedPodInfo, event: str) -> None:
        self._sequence += 1
        queued.sequence, queued.queue = self._sequence, BACKOFF
        entry = (self._backoff_until(queued), self._sort_key(queued), self._sequence, queued)
        rejected = queued.unschedulable_plugins or queued.pending_plugins
        # A group whose pods could be popped early would be tried again and again without an end.
        early = rejected and not queued.pod.group
        heapq.heappush(self._backoff if early else self._error_backoff, entry)
        self._counts[BACKOFF] += 1
        self._count_incoming(BACKOFF, event)

    def _to_waiting(self, queued: QueuedPodInfo, event: str) -> None:
        queued.queue = UNSCHEDULABLE
        self._waiting[queued.pod.key] = queued
        self._join_group(queued)
        self._count_incoming(UNSCHEDULABLE, event)

    def _join_group(self, queued: QueuedPodInfo) -> None:
        queued.group = self._group(queued)
        group = self._groups.get(queued.group)
        if group is None:
            group = self._groups[queued.group] = Group(self._row_of(queued))
        group.members[queued.pod.key] = queued

    def _row_of(self, queued: QueuedPodInfo) -> int:
        """Only where a change of a node is worth something if and only if the pod then fits there."""
        pod, rules = queued.pod, self._rules.get(queued.pod.scheduler_name)
        if queued.queue == GATED or rules is None or queued.group == pod.uid:
            return -1
        return self._needing.put(pod.priority, rules.needs(pod))

    def _leave_group(self, queued: QueuedPodInfo) -> None:
        group = self._groups[queued.group]
        del group.members[queued.pod.key]
        if not group.members:
            del self._groups[queued.group]
            if group.row >= 0:
                self._needing.drop(group.row)

    def _leave(self, queued: QueuedPodInfo) -> None:
        """Takes the pod out of the queue it is in."""
        queue, queued.queue = queued.queue, ""
        queued.sequence = 0
        if queue in self._counts:
            self._counts[queue] -= 1
        elif queue == UNSCHEDULABLE:
            del self._waiting[queued.pod.key]
            self._leave_group(queued)
        elif queue == GATED:
            del self._gated[queued.pod.key]
            self._leave_group(queued)

    def _pop_active(self) -> QueuedPodInfo | None:
        heap = self._active
        while heap:
            _, sequence, queued = heapq.heappop(heap)
            if queued.sequence == sequence:
                return queued
        return None

    def _poppable_backoff(self) -> QueuedPodInfo | None:
        """The pod nearest the end of its backoff; pods that failed by an error wait it out."""
        self._drop_stale(self._backoff)
        return self._backoff[0][3] if self._backoff else None

    def _drop_stale(self, heap: list[tuple[float, Any, int, QueuedPodInfo]]) -> None:
        while heap and heap[0][3].sequence != heap[0][2]:
            heapq.heappop(heap)

    # --- counts -----------------------------------------------------------------------------------------------------

    def _count_incoming(self, queue: str, event: str) -> None:
        key = (queue, event)
        self.incoming[key] = self.incoming.get(key, 0) + 1

    def _count_plugins(self, queued: QueuedPodInfo, by: int) -> None:
        for plugin in queued.unschedulable_plugins | queued.pending_plugins:
            key = (plugin, queued.pod.scheduler_name)
            self.unschedulable_by_plugin[key] = self.unschedulable_by_plugin.get(key, 0) + by


def _true_or_broken(question: Callable[[PodInfo, Any], object], pod: PodInfo, about: Any) -> bool:
    """The answer of a plugin's code; if it fails, yes: it must not leave a pod behind."""
    try:
        return bool(question(pod, about))
    except Exception:
        logger.exception("a queueing hint for pod %s", pod.key)
        return True


def _window(at_s: float) -> float:
    return at_s // BACKOFF_WINDOW_S * BACKOFF_WINDOW_S
