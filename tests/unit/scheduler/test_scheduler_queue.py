"""The scheduling queue by itself: order, backoff, hints, gates, pods in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scheduler_objects import pod

from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    EVENT_ASSIGNED_POD_DELETE,
    EVENT_NODE_ADD,
    SUCCESS,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    EventRegistration,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import PodInfo, QueuedPodInfo
from minikube_py.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from minikube_py.scheduler.queue import (
    ACTIVE,
    BACKOFF,
    GATED,
    NEVER,
    QUESTIONS_MAX,
    UNSCHEDULABLE,
    SchedulingQueue,
)
from minikube_py.scheduler.rules import Rules

GATES = SchedulingGates()


class Bench:
    """A queue, its clock, and what its rules answer."""

    def __init__(self, hints: list[tuple[str, EventRegistration]] | None = None, local: str = "Fit") -> None:
        self.now_s = 1000.0
        self.fits: Callable[[PodInfo, str], bool] = lambda pod, node: False
        self.asked: list[tuple[str, str]] = []
        events = hints if hints is not None else []
        events += [(GATES.name, registration) for registration in GATES.events_to_register()]
        rules = Rules(events, self._fits, frozenset((local,)), self._gate)
        self.queue = SchedulingQueue(lambda: self.now_s, PrioritySort().sort_key, {"default-scheduler": rules})

    def _fits(self, pod: PodInfo, node: str) -> bool:
        self.asked.append((pod.name, node))
        return self.fits(pod, node)

    @staticmethod
    def _gate(pod: PodInfo) -> Status:
        status = GATES.pre_enqueue(pod)
        return SUCCESS if status is None else status.by(GATES.name)

    def reject(self, name: str, *plugins: str, pending: tuple[str, ...] = (), **more: Any) -> QueuedPodInfo:
        """A pod that was tried and turned down by `plugins`."""
        self.queue.add(pod(name, **more))
        queued = self.queue.pop()
        assert queued is not None
        return self.fail(queued, *plugins, pending=pending)

    def fail(self, queued: QueuedPodInfo, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
        queued.unschedulable_plugins, queued.pending_plugins = set(plugins) | set(pending), set(pending)
        self.queue.fail(queued)
        return queued

    def names(self) -> list[str]:
        found = []
        while (queued := self.queue.pop()) is not None:
            found.append(queued.pod.name)
            self.queue.done(queued.pod.uid)
        return found


def freed(node: str, **more: Any) -> ClusterChange:
    return ClusterChange(EVENT_ASSIGNED_POD_DELETE, pod("gone", nodeName=node, **more), None, node)


def test_higher_priority_first_then_older() -> None:
    bench = Bench()
    for name, priority in (("low", 0), ("high", 10), ("later", 10)):
        bench.queue.add(pod(name, priority=priority))
        bench.now_s += 1
    assert bench.names() == ["high", "later", "low"]


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (60, 10.0)]
)
def test_backoff_doubles_up_to_its_limit(failures: int, expected: float) -> None:
    bench = Bench()
    queued = QueuedPodInfo(pod(), bench.now_s)
    queued.unschedulable_count = failures
    assert bench.queue.backoff_s(queued) == expected


def test_errors_back_off_by_their_own_count() -> None:
    bench = Bench()
    queued = bench.reject("p")
    assert (queued.queue, queued.consecutive_errors) == (BACKOFF, 1)
    # Not taken early even though nothing else is to do: an error is not mended by trying again at once.
    assert bench.queue.pop() is None and not bench.queue.has_work
    bench.now_s = bench.queue.next_deadline_s()
    assert 1001.0 < bench.now_s <= 1002.0
    bench.queue.flush()
    assert bench.names() == ["p"]


def test_a_rejected_pod_sleeps_until_something_helps() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    assert queued.queue == UNSCHEDULABLE and bench.queue.pop() is None
    bench.queue.on_change(freed("n1"))
    assert queued.queue == UNSCHEDULABLE and bench.asked == [("p", "n1")]
    bench.fits = lambda pod, node: node == "n2"
    bench.queue.on_change(freed("n2"))
    assert queued.queue == BACKOFF


def test_only_pods_that_could_use_the_node_wake() -> None:
    bench = Bench()
    for i in range(3):
        bench.reject(f"small-{i}", "Fit", cpu="1")
        bench.reject(f"large-{i}", "Fit", cpu="8")
    bench.asked.clear()
    bench.fits = lambda pod, node: pod.name.startswith("small")
    assert bench.queue.on_change(freed("n")) == 3
    # Pods of one spec share one question.
    assert len(bench.asked) == 2
    assert sorted(bench.names()) == ["small-0", "small-1", "small-2"]


def test_pods_of_one_spec_that_may_preempt_others_are_asked_about_apart() -> None:
    bench = Bench()
    for name, priority in (("plain", 0), ("high", 10)):
        bench.reject(name, "Fit", priority=priority)
    bench.fits = lambda pod, node: pod.priority == 10
    assert bench.queue.on_change(freed("n")) == 1 and bench.names() == ["high"]


def test_a_new_node_wakes_by_the_same_question() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    bench.fits = lambda pod, node: True
    bench.queue.on_change(ClusterChange(EVENT_NODE_ADD, None, None, "n"))
    assert queued.queue == BACKOFF


def test_changes_that_give_no_room_wake_nobody() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    bench.fits = lambda pod, node: True
    bench.queue.on_change(ClusterChange(ClusterEvent(ASSIGNED_POD, Action.ADD), None, pod("other")))
    assert queued.queue == UNSCHEDULABLE and not bench.asked


def hint(answer: Any) -> list[tuple[str, EventRegistration]]:
    def asked(pod: PodInfo, change: ClusterChange) -> QueueingHint:
        if isinstance(answer, Exception):
            raise answer
        return QueueingHint(answer)

    return [("Own", EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE), asked))]


@pytest.mark.parametrize(
    ("name", "answer", "pending", "expected"),
    [
        ("skip", 0, (), UNSCHEDULABLE),
        ("queue", 1, (), BACKOFF),
        ("a failing hint queues", RuntimeError("broken"), (), BACKOFF),
        ("a pending plugin skips the backoff", 1, ("Own",), ACTIVE),
    ],
)
def test_hints_of_other_plugins(name: str, answer: Any, pending: tuple[str, ...], expected: str) -> None:
    bench = Bench(hint(answer))
    queued = bench.reject("p", "Own", pending=pending)
    bench.queue.on_change(freed("n"))
    assert queued.queue == expected


def test_hints_of_plugins_that_did_not_reject_do_not_count() -> None:
    bench = Bench(hint(1))
    queued = bench.reject("p", "Another")
    bench.queue.on_change(freed("n"))
    assert queued.queue == UNSCHEDULABLE


def test_events_during_a_cycle_are_replayed() -> None:
    bench = Bench(hint(1))
    bench.queue.add(pod("p"))
    queued = bench.queue.pop()
    assert queued is not None and bench.queue.in_flight == 1
    bench.queue.on_change(freed("n"))
    bench.fail(queued, "Own")
    assert queued.queue == BACKOFF and bench.queue.in_flight == 0


def test_events_before_a_cycle_are_not_replayed() -> None:
    bench = Bench(hint(1))
    for name in ("first", "second"):
        bench.queue.add(pod(name))
    first = bench.queue.pop()
    bench.queue.on_change(freed("n"))
    second = bench.queue.pop()
    assert first is not None and second is not None
    bench.fail(second, "Own")
    bench.fail(first, "Own")
    assert (first.queue, second.queue) == (BACKOFF, UNSCHEDULABLE)


def test_pods_in_backoff_go_when_nothing_else_is_to_do() -> None:
    bench = Bench()
    bench.fits = lambda pod, node: True
    bench.reject("waits", "Fit")
    bench.queue.on_change(freed("n"))
    bench.queue.add(pod("new"))
    assert bench.names() == ["new", "waits"]


def test_backoff_ends_by_the_clock() -> None:
    bench = Bench()
    bench.fits = lambda pod, node: True
    queued = bench.reject("p", "Fit")
    bench.queue.on_change(freed("n"))
    bench.now_s += 0.5
    bench.queue.flush()
    assert queued.queue == BACKOFF
    bench.now_s = bench.queue.next_deadline_s()
    bench.queue.flush()
    assert queued.queue == ACTIVE and bench.queue.next_deadline_s() == NEVER


def test_whoever_waits_five_minutes_is_tried_again() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    assert bench.queue.next_deadline_s() == bench.now_s + 300
    bench.now_s += 299
    bench.queue.flush()
    assert queued.queue == UNSCHEDULABLE
    bench.now_s += 1
    bench.queue.flush()
    assert queued.queue == ACTIVE and queued.flushed


def test_gated_pods_wait_for_their_gates() -> None:
    bench = Bench()
    bench.fits = lambda pod, node: True
    held = pod("p", schedulingGates=[{"name": "a"}])
    bench.queue.add(held)
    assert bench.queue.pending()[GATED] == 1 and bench.queue.pop() is None
    bench.queue.on_change(freed("n"))
    assert bench.queue.pending()[GATED] == 1
    free = pod("p")
    gone = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    bench.queue.update(free, [ClusterChange(gone, held, free)])
    assert bench.names() == ["p"]


def test_activate_passes_over_the_backoff() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    bench.queue.activate([queued.pod])
    assert queued.queue == ACTIVE


def test_activate_reaches_pods_in_flight_when_they_fail() -> None:
    bench = Bench()
    bench.queue.add(pod("p"))
    queued = bench.queue.pop()
    assert queued is not None
    bench.queue.activate([queued.pod])
    bench.fail(queued, "Fit")
    assert queued.queue == BACKOFF


def test_deleted_pods_leave_every_queue() -> None:
    bench = Bench()
    bench.fits = lambda pod, node: pod.name == "backoff"
    bench.reject("waiting", "Fit")
    bench.reject("backoff", "Fit")
    bench.queue.on_change(freed("n"))
    bench.queue.add(pod("gated", schedulingGates=[{"name": "a"}]))
    bench.queue.add(pod("active"))
    for name in ("waiting", "backoff", "gated", "active"):
        bench.queue.delete(f"default/{name}")
    assert len(bench.queue) == 0 and bench.names() == []
    assert set(bench.queue.pending().values()) == {0}
    assert set(bench.queue.unschedulable_by_plugin.values()) == {0}


def test_a_pod_made_again_under_its_name_starts_anew() -> None:
    bench = Bench()
    queued = bench.reject("p", "Fit")
    bench.queue.add(pod("p"))
    fresh = bench.queue.pop()
    assert fresh is not None and fresh is not queued and fresh.attempts == 1


def test_wait_status_is_no_rejection() -> None:
    assert not Status(Code.WAIT).is_rejected and Status(Code.PENDING).is_rejected


def test_what_is_due_at_a_deadline_is_done_at_it() -> None:
    """Whatever rounding makes of the times: a deadline that came and changed nothing would come again at once."""
    for tenths in range(300):
        bench = Bench()
        bench.now_s = tenths * 0.1
        bench.reject("p", "Fit")
        deadline_s = bench.now_s = bench.queue.next_deadline_s()
        bench.queue.flush()
        assert bench.queue.next_deadline_s() > deadline_s


@pytest.mark.parametrize(
    ("nodes", "asked", "where"), [(3, 3, UNSCHEDULABLE), (QUESTIONS_MAX, QUESTIONS_MAX, UNSCHEDULABLE),
                                  (5 * QUESTIONS_MAX, QUESTIONS_MAX, BACKOFF)]
)  # fmt: skip
def test_a_long_cycle_replays_a_bounded_part(nodes: int, asked: int, where: str) -> None:
    """Each node is asked about once, as it is now; who missed too much is tried again."""
    bench = Bench()
    bench.queue.add(pod("p"))
    queued = bench.queue.pop()
    assert queued is not None
    for i in range(6 * QUESTIONS_MAX):
        bench.queue.on_change(freed(f"n{i % nodes}"))
    bench.fail(queued, "Fit")
    assert len(bench.asked) == asked and queued.queue == where


def test_the_replay_ends_where_nothing_could_help_more() -> None:
    asked: list[str] = []

    def helps(pod: PodInfo, change: ClusterChange) -> QueueingHint:
        asked.append(change.node)
        return QueueingHint.QUEUE

    bench = Bench([("Own", EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE), helps))])
    bench.queue.add(pod("p"))
    queued = bench.queue.pop()
    assert queued is not None
    for i in range(100):
        bench.queue.on_change(freed(f"n{i}"))
    bench.fail(queued, "Own")
    assert asked == ["n0"] and queued.queue == BACKOFF
