"""The scheduling queue under any order of operations: no pod is lost, none is twice, and who can run does not sleep.

Who goes first, and how long a pod that failed must wait, is worked out beside it, by upstream's rules.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_laws import check_queue

from minikube_py.scheduler.framework import EVENT_ASSIGNED_POD_DELETE, SUCCESS, ClusterChange, Code, Status
from minikube_py.scheduler.objects import PodInfo, PodSpec, QueuedPodInfo
from minikube_py.scheduler.plugins.queueing import PrioritySort
from minikube_py.scheduler.queue import NEVER, SchedulingQueue
from minikube_py.scheduler.rules import Rules

NAMES = [f"p{i}" for i in range(5)]
SPECS = [PodSpec((("cpu", i),)) for i in range(2)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(NAMES), st.integers(0, 2)),
        st.tuples(st.just("asleep"), st.sampled_from(NAMES), st.integers(0, 2)),
        st.tuples(st.just("asleep"), st.sampled_from(NAMES), st.integers(0, 2)),
        st.tuples(st.just("late"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.just(0)),
        st.tuples(st.just("reject"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("error"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("done"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("freed"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("caught up"), st.just(""), st.just(0)),
        st.tuples(st.just("time"), st.just(""), st.sampled_from((0.3, 1, 1.7, 4, 12, 290))),
    ),
    max_size=60,
)


class Model:
    """The queue, and beside it which pods exist and which are in flight. `room`: the specs that fit at the moment;
    `at_once`: how much the queue does in one step."""

    def __init__(self, at_once: int) -> None:
        self.now_s = 50.0
        self.room: set[int] = set()
        self.made = 0
        self.alive: dict[str, PodInfo] = {}
        self.flying: list[QueuedPodInfo] = []
        self.since: dict[str, float] = {}
        """By uid, when the pod came or last failed."""
        self.fell: dict[str, tuple[int, int]] = {}
        """By uid, how often the pod was rejected, and how often in a row it has failed by an error."""
        self.missed: dict[str, bool] = {}
        """By uid of a pod in flight, whether a node has changed since."""
        rules = Rules([], self._fits, frozenset(("Fit",)), self._gate)
        self.queue = SchedulingQueue(
            lambda: self.now_s,
            PrioritySort().sort_key,
            {"default-scheduler": rules},
            questions_at_once=at_once,
            flushed_at_once=at_once,
        )
        self.slept: set[str] = set()
        """By uid, who slept when a node changed, and was not tried since."""

    def _fits(self, pod: PodInfo, node: str) -> bool:
        return SPECS.index(pod.spec) in self.room

    @staticmethod
    def _gate(pod: PodInfo) -> Status:
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, plugin="Gate") if pod.gates else SUCCESS

    def add(self, name: str, priority: int) -> None:
        self.made += 1
        pod = PodInfo("d", name, f"uid-{self.made}", SPECS[self.made % 2])
        pod.priority = priority
        pod.gates = ("gate",) if self.made % 7 == 0 else ()
        self.alive[pod.key] = pod
        self.since[pod.uid] = self.now_s
        self.queue.add(pod)

    def asleep(self, name: str, priority: int) -> None:
        """A pod that comes, and whatever is next is tried and fits nowhere."""
        self.add(name, priority)
        self.pop()
        self.land(-1, "Fit")

    def late(self, name: str, specs: int) -> None:
        """As `asleep`, but a node changes after it was looked at."""
        self.add(name, 0)
        self.pop()
        self.freed(specs)
        self.land(-1, "Fit")

    def delete(self, name: str) -> None:
        self.alive.pop(f"d/{name}", None)
        self.queue.delete(f"d/{name}")

    def pop(self) -> None:
        active = [queued.pod for queued in self.entries() if queued.queue == "active"]
        resting = [queued.pod for queued in self.entries() if queued.queue == "backoff"]
        queued = self.queue.pop()
        if queued is None:
            # Errors wait out their backoff, whatever else there is to do.
            assert not active and all(self.fell[pod.uid][1] for pod in resting)
            return
        pod = queued.pod
        assert self.alive[pod.key] is pod
        if active:
            assert (-pod.priority, self.since[pod.uid]) == min((-p.priority, self.since[p.uid]) for p in active)
        else:
            rejected = [p for p in resting if not self.fell[p.uid][1]]
            assert (self.over_s(pod), -pod.priority) == min((self.over_s(p), -p.priority) for p in rejected)
        self.flying.append(queued)
        self.missed[pod.uid] = False

    def over_s(self, pod: PodInfo) -> float:
        """The second in which the pod's backoff ends: doubled each time, from 1 s to 10 s."""
        rejected, errors = self.fell[pod.uid]
        return float(math.floor(self.since[pod.uid] + min(2.0 ** ((errors or rejected) - 1), 10.0)))

    def land(self, i: int, *plugins: str, done: bool = False) -> None:
        if not self.flying:
            return
        queued = self.flying.pop(i % len(self.flying))
        pod = queued.pod
        self.slept.discard(pod.uid)
        if done or self.alive.get(pod.key) is not pod:
            if self.alive.get(pod.key) is pod:
                del self.alive[pod.key]
            self.queue.done(pod.uid)
            return
        queued.unschedulable_plugins, queued.pending_plugins = set(plugins), set()
        rejected, errors = self.fell.get(pod.uid, (0, 0))
        self.fell[pod.uid] = (rejected + 1, 0) if plugins else (rejected, errors + 1)
        self.since[pod.uid] = self.now_s
        self.queue.fail(queued)
        # A node that came to fit meanwhile was missed by the attempt.
        helped = self.missed[pod.uid] and self._fits(pod, "n")
        assert queued.queue == ("backoff" if helped or not plugins else "unschedulable")

    def freed(self, specs: int) -> None:
        self.room = {i for i in range(2) if specs & 1 << i}
        asleep = [queued for queued in self.entries() if queued.queue == "unschedulable"]
        self.slept |= {queued.pod.uid for queued in asleep}
        self.queue.end_step()
        self.queue.on_change(ClusterChange(EVENT_ASSIGNED_POD_DELETE, None, None, "n"))
        self.missed = dict.fromkeys(self.missed, True)
        if self.queue.is_behind:
            return
        for queued in asleep:
            # An exact answer: whoever sleeps on cannot use the node, and whoever can is awake, or soon.
            helped = self._fits(queued.pod, "n")
            over = math.floor(self.now_s) > self.over_s(queued.pod)
            assert queued.queue == (("active" if over else "backoff") if helped else "unschedulable")

    def catch_up(self) -> None:
        while self.queue.is_behind:
            self.queue.catch_up()

    def flush(self) -> None:
        before = self.queue.incoming.copy()
        self.queue.flush()
        while self.queue.incoming != before and self.queue.next_deadline_s() <= self.now_s:
            before = self.queue.incoming.copy()
            self.queue.flush()
        for queued in self.entries():
            if queued.queue == "backoff":
                assert self.over_s(queued.pod) >= math.floor(self.now_s)
            elif queued.queue == "unschedulable":
                assert self.now_s < self.since[queued.pod.uid] + 300.0

    def entries(self) -> list[QueuedPodInfo]:
        found = (self.queue.get(key) for key in self.alive)
        return [queued for queued in found if queued is not None]

    def check(self) -> None:
        flying = {queued.pod.uid for queued in self.flying}
        assert self.queue.in_flight == len(flying)
        for pod in self.alive.values():
            # In the queue or in flight; in both only where a pod was made again under its name.
            assert (pod.key in self.queue) != (pod.uid in flying)
        pending = self.queue.pending()
        assert sum(pending.values()) == len(self.queue) == len(self.entries())
        for name, number in pending.items():
            assert number == sum(queued.queue == name for queued in self.entries())
        if pending["backoff"] or pending["unschedulable"]:
            assert self.queue.next_deadline_s() < NEVER
        if not self.queue.is_behind:
            for queued in self.entries():
                if queued.queue == "unschedulable" and queued.pod.uid in self.slept:
                    assert not self._fits(queued.pod, "n")
        check_queue(self.queue)

    def drain(self) -> None:
        """Time alone brings every pod back that no gate holds."""
        self.catch_up()
        for _ in range(10):
            deadline_s = self.queue.next_deadline_s()
            if deadline_s == NEVER:
                break
            self.now_s = max(self.now_s, deadline_s)
            self.flush()
        pending = self.queue.pending()
        assert not pending["backoff"] and not pending["unschedulable"]


@settings(max_examples=150)
@given(STEPS, st.sampled_from((1, 2, 256)))
def test_no_pod_is_lost(steps: list[tuple[str, str, Any]], at_once: int) -> None:
    model = Model(at_once)
    actions: dict[str, Any] = {
        "add": model.add,
        "asleep": model.asleep,
        "late": model.late,
        "delete": lambda name, _: model.delete(name),
        "pop": lambda _, __: model.pop(),
        "reject": lambda _, i: model.land(i, "Fit"),
        "error": lambda _, i: model.land(i),
        "done": lambda _, i: model.land(i, done=True),
        "freed": lambda _, specs: model.freed(specs),
        "caught up": lambda _, __: model.catch_up(),
    }
    for what, name, number in steps:
        if what == "time":
            model.now_s += number
            model.flush()
        else:
            actions[what](name, number)
        model.check()
    model.drain()
    model.check()
