"""The scheduling queue: activeQ, backoffQ and the pods that wait for a change. Pure; the clock is injected.

A pod that fits nowhere sleeps until an event may help it, according to the hints of the plugins that rejected it
(KEP-4247). If these filters read single nodes only, the check is exact: does the pod now pass all filters on the
changed node? Events that arrive during a pod's attempt are recorded and replayed if it fails. Source:
pkg/scheduler/backend/queue; KEP-5142 (pods in backoff are popped when the active queue is empty).
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, Final

from minikube_py.own_code import raised
from minikube_py.scheduler.asking import Group, Groups, Unasked
from minikube_py.scheduler.framework import (
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_FORCE_ACTIVATE,
    EVENT_UNSCHEDULABLE_TIMEOUT,
    EVENT_UNSCHEDULED_POD_ADD,
    EVENT_UNSCHEDULED_POD_UPDATE,
    INT64_MAX,
    WILDCARD,
    ClusterChange,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo, QueuedPodInfo
from minikube_py.scheduler.rules import Rules

logger = logging.getLogger(__name__)

ACTIVE: Final = "active"
BACKOFF: Final = "backoff"
UNSCHEDULABLE: Final = "unschedulable"
GATED: Final = "gated"

SKIP, AFTER_BACKOFF, IMMEDIATELY = 0, 1, 2
BACKOFF_WINDOW_S = 1.0
"""Backoffs end at whole windows, within which pods are ordered by priority."""
NEVER = float("inf")
EVENTS_KEPT_MAX = 65_536
QUESTIONS_AT_ONCE: Final = 128
"""Between two yields to the event loop: some 1 to 8 ms."""
UNASKED_MAX: Final = 1024
FLUSHED_AT_ONCE: Final = 1000
QUESTIONS_MAX = 1024
"""Maximum recorded events replayed to the hints when a pod fails; beyond that it is simply retried."""

SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"


class SchedulingQueue:
    """`rules`: by scheduler name. `sort_key(queued)`: smaller goes first; all profiles share it. `node(name)`: the
    current node; without it, every node change is put to all groups.

    After calls that may add work, check `has_work`; call `flush` at `next_deadline_s`."""

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
        questions_at_once: int = QUESTIONS_AT_ONCE,
        flushed_at_once: int = FLUSHED_AT_ONCE,
    ) -> None:
        self._now_s = now_s
        self._sort_key = sort_key
        self._rules = rules
        self._initial_backoff_s = initial_backoff_s
        self._max_backoff_s = max_backoff_s
        self._max_unschedulable_s = max_unschedulable_s
        self._all: dict[str, QueuedPodInfo] = {}
        # Heap entries outlive moves: an entry is valid only if its sequence equals its pod's.
        self._active: list[tuple[Any, int, QueuedPodInfo]] = []
        self._backoff: list[tuple[float, Any, int, QueuedPodInfo]] = []
        self._error_backoff: list[tuple[float, Any, int, QueuedPodInfo]] = []
        # In order of their last attempt, since each attempt appends again.
        self._waiting: dict[str, QueuedPodInfo] = {}
        self._groups = Groups(rules, node)
        self._unasked: deque[Unasked] = deque()
        # The remaining groups for the first of these.
        self._asking: Iterator[Group] | None = None
        self._questions_at_once = self._questions_left = questions_at_once
        self._flushed_at_once = flushed_at_once
        self.asked = 0
        """Number of groups of waiting pods to which a change was put."""
        self._gated: dict[str, QueuedPodInfo] = {}
        self._counts = {ACTIVE: 0, BACKOFF: 0}
        self._sequence = 0
        self._in_flight: dict[str, int] = {}
        self._events: list[ClusterChange] = []
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
        """When to call `flush` next, on the clock's monotonic scale; infinity if never."""
        deadline_s = NEVER
        for heap in (self._backoff, self._error_backoff):
            self._drop_stale(heap)
            if heap:
                # A backoff ends once its window has passed.
                deadline_s = min(deadline_s, heap[0][0] + BACKOFF_WINDOW_S)
        for oldest in self._waiting.values():
            return min(deadline_s, oldest.timestamp_s + self._max_unschedulable_s)
        return deadline_s

    # --- adding, updating and removing pods -------------------------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """A pod that is new to the queue."""
        if pod.key in self._all:
            self.delete(pod.key)
        queued = QueuedPodInfo(pod, self._now_s())
        self._all[pod.key] = queued
        self._to_active(queued, EVENT_UNSCHEDULED_POD_ADD.label)

    def update(self, pod: PodInfo, changes: Iterable[ClusterChange]) -> None:
        """The current pod; `changes` are its differences, as events."""
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
        # With another spec, other changes may help than those of its group.
        self._groups.leave(queued)
        self._groups.join(queued, queued.queue == GATED)
        for change in changes:
            # A pod that changed groups misses the pending changes, so it is simply retried.
            strategy = AFTER_BACKOFF if self._unasked else self._worth(queued, change)
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
        """The next pod to try, or None. It is then in flight until `fail` or `done`."""
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
        """As `pop`, for a given pod in any queue; None if it is gated or not queued."""
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
        """Takes back a popped pod that was not scheduled, for its `unschedulable_plugins` and `pending_plugins`, both
        empty for an error. Returns the queue it went to."""
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
        # Events that help a group are unknown yet: its pods return by backoff, as upstream's do.
        strategy = SKIP if rejected and not pod.group else AFTER_BACKOFF
        if rejected and start is not None and start < self._events_start:
            strategy = AFTER_BACKOFF
        elif strategy == SKIP and start is not None:
            strategy = self._replay(queued, start)
        self._requeue(queued, strategy, SCHEDULE_ATTEMPT_FAILURE)
        self.done(pod.uid)
        return queued.queue

    def _replay(self, queued: QueuedPodInfo, start: int) -> int:
        """The combined effect of the events since `start` on a rejected pod."""
        rules = self._rules.get(queued.pod.scheduler_name)
        local = rules is not None and queued.unschedulable_plugins | queued.pending_plugins <= rules.local_plugins
        best = IMMEDIATELY if queued.pending_plugins else AFTER_BACKOFF
        strategy, questions = SKIP, 0
        nodes: set[str] = set()
        for change in islice(self._events, start - self._events_start, None):
            if local and change.node:
                # The check uses the current node: once per node is enough.
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

    def activate(self, pods: Iterable[PodInfo], *, after_error: bool = False) -> None:
        """Moves waiting pods to the active queue regardless of backoff; pods in flight go there if they fail.
        `after_error`: a request for the pod failed, so it waits out its backoff."""
        for pod in pods:
            queued = self._all.get(pod.key)
            if queued is not None:
                if after_error:
                    # As long as a backoff after so many attempts.
                    queued.consecutive_errors = max(queued.consecutive_errors, queued.unschedulable_count) + 1
                    queued.backoff_until_s = None
                if queued.queue != ACTIVE:
                    strategy = AFTER_BACKOFF if after_error else IMMEDIATELY
                    self._requeue(queued, strategy, EVENT_FORCE_ACTIVATE.label)
            elif pod.uid in self._in_flight:
                self._record(ClusterChange(EVENT_FORCE_ACTIVATE, None, pod))

    # --- events -----------------------------------------------------------------------------------------------------

    def on_change(self, change: ClusterChange, but_not: str = "", priority_max: int = INT64_MAX) -> int:
        """Moves the waiting pods that `change` may help, except the pod with uid `but_not` and pods above
        `priority_max`; returns how many. If there are many groups, `catch_up` handles the rest."""
        if self._in_flight:
            self._record(change)
        if len(self._unasked) >= EVENTS_KEPT_MAX:
            # Pods that may have missed a change are simply retried.
            change, but_not, priority_max = ClusterChange(EVENT_UNSCHEDULABLE_TIMEOUT), "", INT64_MAX
            self._unasked.clear()
            self._asking = None
        self._unasked.append(Unasked(change, but_not, priority_max, self._groups.last))
        return self._ask() if len(self._unasked) == 1 else 0

    @property
    def is_behind(self) -> bool:
        """Whether changes are still to be put to waiting pods: call `catch_up`."""
        return bool(self._unasked)

    @property
    def is_pressed(self) -> bool:
        """Whether so many changes are pending that placing more pods, each another change, should pause."""
        return len(self._unasked) >= UNASKED_MAX

    def end_step(self) -> None:
        """Call after yielding: resets the limit per step."""
        self._questions_left = self._questions_at_once

    def catch_up(self) -> None:
        """Puts pending changes to waiting pods, up to the limit per step of the event loop."""
        self._questions_left = self._questions_at_once
        self._ask()

    def _ask(self) -> int:
        moved = 0
        while self._unasked and self._questions_left > 0:
            asked = self._unasked[0]
            if self._asking is None:
                self._asking = iter(self._groups.concerned(asked))
            for group in islice(self._asking, self._questions_left):
                self._questions_left -= 1
                if group.members:
                    moved += self._put(asked, group)
            if self._questions_left <= 0:
                break
            self._asking = None
            self._unasked.popleft()
        return moved

    def _put(self, asked: Unasked, group: Group) -> int:
        """Checks one pod of the group: all share the result."""
        self.asked += 1
        strategy = self._worth(next(iter(group.members.values())), asked.change)
        if not strategy:
            return 0
        members, most = group.members.values(), asked.priority_max
        waking = [q for q in members if q.pod.uid != asked.but_not and q.pod.priority <= most]
        for queued in waking:
            self._requeue(queued, strategy, asked.change.event.label)
        return len(waking)

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
        """For filters that read single nodes, a node change helps exactly if the pod now fits there; a pod's end also
        if it may let this one onto a node that a filter across nodes bars, or preempt there. The pod's own change helps
        if it then fits any node: one that came meanwhile, and did not fit, has added none of its rejectors."""
        strategy = SKIP
        local = change.node and not rejectors.isdisjoint(rules.local_plugins)
        if local and _true_or_broken(rules.fits, queued.pod, change.node):
            strategy = AFTER_BACKOFF
        ends = bool(local) and strategy is SKIP and change.event == EVENT_ASSIGNED_POD_DELETE
        if ends and rejectors <= rules.local_plugins:
            ends = _true_or_broken(rules.elsewhere, queued.pod, change.node)
        for plugin in rejectors:
            if change.node and plugin in rules.local_plugins and not ends:
                continue
            for registration in rules.hints.get(plugin, ()):
                if not registration.event.matches(change.event):
                    continue
                if registration.hint is None or _true_or_broken(registration.hint, queued.pod, change):
                    if plugin in queued.pending_plugins:
                        return IMMEDIATELY
                    strategy = AFTER_BACKOFF
        own = strategy is SKIP and isinstance(change.new, PodInfo) and change.new.uid == queued.pod.uid
        if own and not rejectors.isdisjoint(rules.local_plugins) and _true_or_broken(rules.fits, queued.pod, ""):
            return AFTER_BACKOFF
        return strategy

    def _record(self, change: ClusterChange) -> None:
        self._events.append(change)
        if len(self._events) > EVENTS_KEPT_MAX:
            # Pods in flight for longer are simply retried if they fail.
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
        """Moves pods whose backoff is over to the active queue, and retries pods that waited too long: a limited number
        at once, after which `next_deadline_s` is due again."""
        left = self._flushed_at_once
        for heap in (self._backoff, self._error_backoff):
            self._drop_stale(heap)
            while left and heap and not self._is_backing_off(heap[0][3]):
                queued = heap[0][3]
                self._leave(queued)
                self._enter_active(queued, BACKOFF_COMPLETE)
                self._drop_stale(heap)
                left -= 1
        now_s, wait_s = self._now_s(), self._max_unschedulable_s
        timeout = ClusterChange(EVENT_UNSCHEDULABLE_TIMEOUT)
        # The same sum as in `next_deadline_s`: other rounding could leave nothing due at a deadline.
        due = takewhile(lambda q: q.timestamp_s + wait_s <= now_s, self._waiting.values())
        for queued in list(islice(due, left)):
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
        """Runs the PreEnqueue plugins; a rejected pod joins the gated ones."""
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
        self._groups.join(queued, True)
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
        rejected = (queued.unschedulable_plugins or queued.pending_plugins) and not queued.consecutive_errors
        # Popped early, a group's pods would be retried endlessly.
        early = rejected and not queued.pod.group
        heapq.heappush(self._backoff if early else self._error_backoff, entry)
        self._counts[BACKOFF] += 1
        self._count_incoming(BACKOFF, event)

    def _to_waiting(self, queued: QueuedPodInfo, event: str) -> None:
        queued.queue = UNSCHEDULABLE
        self._waiting[queued.pod.key] = queued
        self._groups.join(queued, False)
        self._count_incoming(UNSCHEDULABLE, event)

    def _leave(self, queued: QueuedPodInfo) -> None:
        """Removes the pod from its queue."""
        queue, queued.queue = queued.queue, ""
        queued.sequence = 0
        if queue in self._counts:
            self._counts[queue] -= 1
        elif queue == UNSCHEDULABLE:
            del self._waiting[queued.pod.key]
            self._groups.leave(queued)
        elif queue == GATED:
            del self._gated[queued.pod.key]
            self._groups.leave(queued)

    def _pop_active(self) -> QueuedPodInfo | None:
        heap = self._active
        while heap:
            _, sequence, queued = heapq.heappop(heap)
            if queued.sequence == sequence:
                return queued
        return None

    def _poppable_backoff(self) -> QueuedPodInfo | None:
        """The pod nearest the end of its backoff; after an error, pods must wait it out."""
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
    """The result of plugin code; True if it fails, so that no pod is left behind."""
    try:
        return bool(question(pod, about))
    except raised():
        logger.exception("a queueing hint for pod %s", pod.key)
        return True


def _window(at_s: float) -> float:
    return at_s // BACKOFF_WINDOW_S * BACKOFF_WINDOW_S
