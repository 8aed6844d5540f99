"""Watchers: who sees what, and when, around every boundary."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from minikube_py.errors import Compacted, FieldsRedeclared, InvalidRequest, Unavailable
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, DeclareFields, DeleteRange, Put, Txn, WatchBatch, prefix_end
from minikube_py.mvcc.watch import WatchHub

Seen = list[WatchBatch]


def written(count: int) -> tuple[StateMachine, WatchHub]:
    """A store whose keys k0, k1, ... were put at revisions 2, 3, ..."""
    state = StateMachine()
    hub = WatchHub(state)
    for number in range(count):
        state.apply(Put(b"k%d" % number, b""))
    return state, hub


def keys(seen: Seen) -> list[bytes]:
    return [event.kv.key for batch in seen for event in batch.events]


def test_from_now_means_from_what_is_applied_not_from_what_was_handed_out() -> None:
    state, hub = written(3)
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    state.apply(Put(b"k9", b""))
    hub.notify()
    assert keys(seen) == [b"k9"]


def test_a_start_between_handed_out_and_applied_sees_its_part() -> None:
    _, hub = written(5)
    seen: Seen = []
    hub.add(b"k", b"l", 4, seen.append)
    hub.notify()
    hub.notify()
    assert keys(seen) == [b"k2", b"k3", b"k4"]
    assert hub.behind == 0


@pytest.mark.parametrize("budget", [1, 2, 100])
def test_catching_up_while_writes_go_on_loses_and_doubles_nothing(budget: int) -> None:
    state, hub = written(20)
    hub.notify()
    seen: Seen = []
    hub.add(b"k", b"l", 2, seen.append)
    for number in range(20, 30):
        hub.catch_up(budget)
        state.apply(Put(b"k%d" % number, b""))
        hub.notify()
    while hub.catch_up(budget):
        pass
    assert keys(seen) == [b"k%d" % number for number in range(30)]
    assert [batch.revision for batch in seen] == sorted(batch.revision for batch in seen)


def test_a_future_start_is_silent_until_then() -> None:
    state, hub = written(2)
    seen: Seen = []
    watcher = hub.add(b"k", b"l", 6, seen.append)
    for number in range(2, 6):
        state.apply(Put(b"k%d" % number, b""))
        hub.notify()
        assert hub.progress(watcher) is (state.revision >= 5)
    assert keys(seen) == [b"k4", b"k5"]


def test_compaction_does_not_swallow_what_was_not_handed_out_yet() -> None:
    state, hub = written(0)
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    for number in range(4):
        state.apply(Put(b"k%d" % number, b""))
    state.apply(Compact(state.revision))
    hub.notify()
    assert keys(seen) == [b"k0", b"k1", b"k2", b"k3"]


@pytest.mark.parametrize("start", [-5, 1, 3])
def test_a_compacted_start_ends_the_watch(start: int) -> None:
    state, hub = written(5)
    state.apply(Compact(4))
    seen: Seen = []
    hub.add(b"k", b"l", start, seen.append)
    hub.catch_up()
    assert [type(batch.error) for batch in seen] == [Compacted]
    assert len(hub) == 0


def test_the_compacted_revision_itself_can_be_watched() -> None:
    state, hub = written(5)
    state.apply(DeleteRange(b"k0"))
    state.apply(Compact(state.revision))
    state.trim(1000)
    for each in (state, restore(list(records(state)))):
        seen: Seen = []
        late = WatchHub(each)
        late.add(b"k", b"l", each.revision, seen.append)
        late.catch_up()
        assert [(event.type, event.kv.key, event.prev_kv is not None) for event in seen[0].events] == [
            ("DELETE", b"k0", True)
        ]
    assert hub.behind == 0


def test_one_revision_is_one_batch() -> None:
    state, hub = written(0)
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    state.apply(Txn((), tuple(Put(b"k%d" % number, b"") for number in range(5))))
    hub.notify()
    late: Seen = []
    hub.add(b"k", b"l", 2, late.append)
    hub.catch_up(1)
    assert [len(batch.events) for batch in seen] == [len(batch.events) for batch in late] == [5]


def test_single_keys_and_cancelling() -> None:
    state, hub = written(0)
    one: Seen = []
    other: Seen = []
    watcher = hub.add(b"k1", b"", 0, one.append)
    hub.add(b"k1", b"", 0, lambda batch: (other.append(batch), watcher.cancel()))  # type: ignore[func-returns-value]
    for _ in range(2):
        state.apply(Txn((), (Put(b"k1", b""), Put(b"k2", b""))))
        hub.notify()
    assert (keys(one), keys(other)) == ([b"k1"], [b"k1", b"k1"])
    watcher.cancel()
    assert len(hub) == 1


@pytest.mark.parametrize(("key", "end"), [(b"b", b"a"), (b"b", b"b")])
def test_a_range_that_holds_no_key_is_refused(key: bytes, end: bytes) -> None:
    with pytest.raises(InvalidRequest, match="watcher range is empty"):
        WatchHub(StateMachine()).add(key, end, 0, lambda _: None)


def test_closing_ends_all() -> None:
    state, hub = written(3)
    hub.notify()
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    hub.add(b"k", b"l", 2, seen.append)
    hub.close(Unavailable("stopping"))
    state.apply(Put(b"k", b""))
    hub.notify()
    assert [str(batch.error) for batch in seen] == ["stopping", "stopping"]


def test_progress_is_told_only_to_those_in_step() -> None:
    _, hub = written(3)
    hub.notify()
    seen: Seen = []
    watcher = hub.add(b"k", b"l", 2, seen.append)
    assert not hub.progress(watcher)
    hub.catch_up()
    assert hub.progress(watcher)
    assert (seen[-1].events, seen[-1].revision) == ((), 4)


class Told:
    """A hub as its member runs it: progress goes out whenever the revision has moved. Of each watch, what its client
    knows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.state = StateMachine()
        self.state.apply(DeclareFields(NODES))
        self.hub = WatchHub(self.state)
        self.watches: list[Seen] = []
        self.progressed = 0

    def watch(self) -> None:
        start = self.rng.choice((0, 2, self.state.revision + 1))
        seen: Seen = [WatchBatch((), start - 1 if start else self.state.revision)]
        key, end, where = self.rng.choice(
            ((b"k", b"l", None), (b"k1", b"", None), (NODES.prefix, prefix_end(NODES.prefix), WHERE))
        )
        self.hub.add(key, end, start, seen.append, where)
        self.watches.append(seen)

    def write(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.state.apply(self.rng.choice((Put(b"k1", b""), Put(b"other", b""), node("4"), node("1"))))
        self.hub.notify()

    def replaced(self) -> None:
        self.state = restore(records(self.state))
        self.hub.replace(self.state)

    def build(self) -> None:
        self.state.build_indexes(1)
        self.hub.refresh()

    def catch_up(self) -> None:
        self.hub.catch_up(self.rng.choice((1, 5, 100)))

    def upkeep(self) -> None:
        if self.state.revision != self.progressed:
            self.progressed = self.state.revision
            self.hub.progress()

    def rest(self) -> None:
        """Nothing is written any more."""
        while self.state.build_indexes(1) or self.hub.catch_up():
            self.build()
            self.upkeep()
        self.build()
        self.hub.catch_up()
        self.upkeep()


@pytest.mark.parametrize("seed", range(100))
def test_at_rest_every_watch_was_told_that_it_has_seen_all(seed: int) -> None:
    """Whatever it waited for, and whenever it came back into step. `replaced`: the tables are to be built again."""
    rng = random.Random(seed)
    told = Told(rng)
    steps = (told.watch, told.write, told.write, told.replaced, told.build, told.catch_up, told.upkeep, told.upkeep)
    for _ in range(60):
        rng.choice(steps)()
    told.rest()
    live = [seen[-1] for seen in told.watches if seen[-1].error is None]
    assert {batch.revision for batch in live} <= {told.state.revision}


WHERE = Where((Comparison("free.cpu", ">=", ("2",)),))
NODE = NODES.prefix + b"n1"


def node(cpu: str, label: str = "") -> Put:
    return Put(
        NODE, orjson.dumps({"metadata": {"name": "n1", "label": label}, "status": {"allocatable": {"cpu": cpu}}})
    )


def pod(name: str, cpu: str) -> Put:
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return Put(PODS.prefix + name.encode(), orjson.dumps({"spec": spec}))


def test_a_watch_on_a_sum() -> None:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    hub = WatchHub(state)
    seen: Seen = []
    hub.add(NODES.prefix, prefix_end(NODES.prefix), 0, seen.append, WHERE)
    steps: list[tuple[Put | DeleteRange, list[tuple[str, int, bool]]]] = [
        (node("4"), [("PUT", 2, False)]),
        (pod("a", "1"), []),  # inside, and not written
        (node("4", "x"), [("PUT", 4, True)]),
        (pod("b", "2"), [("DELETE", 5, True)]),  # a bind takes it under the line
        (node("4", "y"), []),
        (DeleteRange(PODS.prefix + b"b"), [("PUT", 6, False)]),  # back, with its own revision
        (node("1"), [("DELETE", 8, True)]),
        (node("8"), [("PUT", 9, False)]),
        (DeleteRange(NODE), [("DELETE", 10, True)]),
    ]
    for command, expected in steps:
        seen.clear()
        state.apply(command)
        hub.notify()
        got = [
            (event.type, event.kv.mod_revision, event.prev_kv is not None) for batch in seen for event in batch.events
        ]
        assert got == expected, command
    late: Seen = []
    hub.add(NODES.prefix, prefix_end(NODES.prefix), 2, late.append, WHERE)
    while hub.catch_up(1):
        pass
    assert [event.kv.mod_revision for batch in late for event in batch.events] == [2, 4, 5, 6, 8, 9, 10]


def test_a_bad_where_is_refused_and_a_new_declaration_ends_the_watch() -> None:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    hub = WatchHub(state)
    end = prefix_end(NODES.prefix)
    for bad in (Comparison("nope", "=", ("1",)), Comparison("free.cpu", "=", ("x",))):
        with pytest.raises(InvalidRequest):
            hub.add(NODES.prefix, end, 0, lambda _: None, Where((bad,)))
    seen: Seen = []
    hub.add(NODES.prefix, end, 0, seen.append, WHERE)
    # What it asks about means the same.
    state.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields[:1], NODES.sums)))
    state.apply(node("4"))
    hub.notify()
    assert [type(batch.error) for batch in seen] == [type(None)]
    state.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields[1:2], NODES.sums)))
    state.apply(node("2"))
    hub.notify()
    assert [type(batch.error) for batch in seen] == [type(None), FieldsRedeclared]


def test_a_sum_declared_anew_ends_the_watch_on_what_it_is_taken_off_from() -> None:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    hub = WatchHub(state)
    seen: Seen = []
    hub.add(NODES.prefix, prefix_end(NODES.prefix), 0, seen.append, WHERE)
    other = NODES.sums[0].__class__("requested.*", b"/registry/others/", "spec.nodeName", "pod_requests@1")
    state.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields, (other,))))
    hub.notify()
    assert [type(batch.error) for batch in seen] == [FieldsRedeclared]


def test_a_watcher_that_is_behind_ends_with_what_it_has_seen() -> None:
    state = StateMachine()
    hub = WatchHub(state)
    for _ in range(5):
        state.apply(Put(b"k", b"v"))
    hub.notify()
    seen: list[WatchBatch] = []
    hub.add(b"k", b"", 3, seen.append)
    later: list[WatchBatch] = []
    hub.add(b"k", b"", 99, later.append)
    hub.close(Unavailable("stopping"))
    assert [batch.revision for batch in seen] == [2]
    assert [batch.revision for batch in later] == [state.revision]


# -- another state in place of this one --------------------------------------------------------------------------------


def later(state: StateMachine, count: int, compact: int = 0) -> StateMachine:
    """The same store `count` revisions on, as a snapshot of another member brings it."""
    further = restore(records(state))
    for number in range(count):
        further.apply(Put(b"k%d" % (100 + number), b""))
    if compact:
        further.apply(Compact(compact))
    return restore(records(further))


@pytest.mark.parametrize("budget", [1, 3, 100])
def test_watchers_go_on_from_another_state_without_gap_or_double(budget: int) -> None:
    state, hub = written(10)
    hub.notify()
    in_step, behind, future = ([], [], [])
    hub.add(b"k", b"l", 0, in_step.append)
    hub.add(b"k", b"l", 2, behind.append)
    hub.add(b"k", b"l", 15, future.append)
    hub.catch_up(3)
    following = later(state, 8)
    hub.replace(following)
    while hub.catch_up(budget):
        pass
    following.apply(Put(b"k-last", b""))
    hub.notify()
    new = [b"k%d" % (100 + number) for number in range(8)]
    assert keys(in_step) == [*new, b"k-last"]
    assert keys(behind) == [*(b"k%d" % number for number in range(10)), *new, b"k-last"]
    assert keys(future) == [*new[3:], b"k-last"]
    state.apply(Put(b"k-stale", b""))
    hub.notify()
    assert keys(in_step)[-1] == b"k-last", "the old state has no hold on the hub any more"


def test_a_start_ahead_of_the_other_state_stays_silent_until_then() -> None:
    state, hub = written(3)
    hub.notify()
    seen: Seen = []
    watcher = hub.add(b"k", b"l", 20, seen.append)
    following = later(state, 5)
    hub.replace(following)
    hub.catch_up()
    assert hub.behind == 0 and not hub.progress(watcher)
    for number in range(12):
        following.apply(Put(b"k%d" % (200 + number), b""))
        hub.notify()
    assert keys(seen) == [b"k210", b"k211"]


def test_who_needs_what_the_other_state_has_forgotten_is_told_how_far_it_got() -> None:
    state, hub = written(3)
    hub.notify()
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    hub.replace(later(state, 8, compact=9))
    hub.catch_up()
    assert [type(batch.error) for batch in seen] == [Compacted] and seen[-1].revision == state.revision


def test_the_events_of_the_compacted_revision_itself_are_still_there() -> None:
    state, hub = written(3)
    hub.notify()
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    hub.replace(later(state, 8, compact=5))
    hub.catch_up()
    assert keys(seen) == [b"k%d" % (100 + number) for number in range(8)]


def test_a_compaction_of_the_other_state_hands_out_first() -> None:
    state, hub = written(3)
    following = later(state, 2)
    hub.replace(following)
    seen: Seen = []
    hub.add(b"k", b"l", 0, seen.append)
    following.apply(Put(b"k7", b""))
    following.apply(Compact(following.revision))
    assert keys(seen) == [b"k7"]


def test_a_watch_on_fields_goes_on_from_another_state_if_they_are_declared_there_alike() -> None:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    state.apply(node("8"))
    hub = WatchHub(state)
    end = prefix_end(NODES.prefix)
    same: Seen = []
    hub.add(NODES.prefix, end, 0, same.append, WHERE)
    following = restore(records(state))
    following.apply(node("1"))
    hub.replace(restore(records(following)))
    hub.catch_up()
    assert [event.type for batch in same for event in batch.events] == ["DELETE"]
    following.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields[1:2], NODES.sums)))
    hub.replace(restore(records(following)))
    assert isinstance(same[-1].error, FieldsRedeclared)


def lines_of(run: Callable[[], object]) -> int:
    """How many lines of Python `run` takes: work counted, where time would depend on the machine."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def test_a_write_costs_the_same_beside_thousands_of_watches_on_other_keys() -> None:
    """20,000 held each write of everybody for 41 ms."""
    state, hub = written(1)
    hub.notify()
    seen: Seen = []
    hub.add(b"k0", b"", 0, seen.append)
    hub.add(b"k", b"l", 0, seen.append)
    taken = []
    for _ in range(2):
        state.apply(Put(b"k0", b"v"))
        taken.append(lines_of(hub.notify))
        others = [hub.add(b"other%d" % number, b"", 0, seen.append) for number in range(3000)]
    assert taken[0] == taken[1] and keys(seen) == [b"k0"] * 4
    assert len(hub) == 6002
    for each in others:
        each.cancel()
    state.apply(Put(b"other1", b"v"))
    hub.notify()
    assert keys(seen)[4:] == [b"other1"], "of the two watches on it one has ended"


def test_progress_reaches_each_watch_once_a_round_a_part_at_a_time() -> None:
    state, hub = written(1)
    seen: list[int] = []
    watchers = [hub.add(b"w%d" % (number // 2), b"", 0, lambda _, at=number: seen.append(at)) for number in range(10)]
    watchers += [hub.add(b"a", b"b", 0, lambda _: seen.append(10))]
    state.apply(Put(b"z", b""))
    hub.notify()
    assert [hub.progress_some(4) for _ in range(2)] == [True, True]
    watchers[9].cancel()
    assert not hub.progress_some(4)
    assert len(seen) == 10 and sorted(seen) == [*range(9), 10]
    assert hub.progress_some(4) and len(seen) == 14, "the next round"
