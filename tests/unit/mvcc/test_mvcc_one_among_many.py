"""What befalls one of many befalls no other: watches that end, tables that fail, the puts of a release."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mvcc_degraded import BUSY, build, filled, node

from minikube_py.errors import NoSpace
from minikube_py.fields.builtin import NODES
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.declared import IndexSpec
from minikube_py.index.table import Table
from minikube_py.mvcc.snapshot import Loader, records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.successor import Successor
from minikube_py.mvcc.types import (
    Command,
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    Put,
    Release,
    SetAlarm,
    Txn,
    WatchBatch,
)
from minikube_py.mvcc.watch import Watcher, WatchHub

RANGES = ((b"/a", b""), (b"/b", b""), (b"/", b"0"), (b"/a", b"/c"), (b"/b", b"/z"))


@given(
    st.lists(st.tuples(st.sampled_from(RANGES), st.sampled_from([0, 2, 3])), min_size=2, max_size=6),
    st.data(),
)
@settings(max_examples=60)
def test_watches_that_end_while_others_are_served_take_none_along(
    wanted: list[tuple[tuple[bytes, bytes], int]], data: st.DataObject
) -> None:
    """Of one group or of several, in step or behind, before its turn or after it."""
    state = StateMachine()
    state.apply(Put(b"/a", b"1"))
    hub = WatchHub(state)
    watchers: list[Watcher] = []
    seen: list[list[bytes]] = [[] for _ in wanted]
    victims = [data.draw(st.sets(st.integers(0, len(wanted) - 1)), label=f"ended by {at}") for at in range(len(wanted))]
    ended: set[int] = set()

    def sink(at: int) -> Callable[[WatchBatch], None]:
        def take(batch: WatchBatch) -> None:
            assert at not in ended, "a batch for a watch that has ended"
            seen[at] += [event.kv.key for event in batch.events]
            for victim in victims[at] - {at} if batch.events else ():
                ended.add(victim)
                watchers[victim].cancel()

        return take

    for at, ((key, end), start) in enumerate(wanted):
        watchers.append(hub.add(key, end, start, sink(at)))
    for key in (b"/a", b"/b", b"/a"):
        state.apply(Put(key, b"2"))
        hub.notify()
        while hub.catch_up(1):
            pass
    for at, ((key, end), start) in enumerate(wanted):
        puts = [b"/a"] * (start == 2) + [b"/a", b"/b", b"/a"]
        mine = [put for put in puts if (key <= put < end if end else put == key)]
        assert at in ended or seen[at] == mine


@given(st.permutations([Put(b"/stands", b"x" * 90), DeleteRange(b"/other"), Put(b"/new", b"v")]))
def test_a_release_makes_nothing_new_wherever_its_puts_stand(ops: list[Put | DeleteRange]) -> None:
    state = StateMachine()
    state.apply(Put(b"/stands", b"v"))
    state.apply(Put(b"/other", b"v"))
    state.apply(SetAlarm(True, 7, "NOSPACE"))
    before = state.hash(state.revision)
    with pytest.raises(NoSpace, match="make nothing new"):
        state.apply(Release(Txn((), tuple(ops))))
    assert state.hash(state.revision) == before
    state.apply(Release(Txn((), tuple(op for op in ops if not isinstance(op, Put) or op.key == b"/stands"))))
    assert state.alarms.grown_bytes == 89


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


def succeeding() -> StateMachine:
    """Fields are declared beyond those that the table has, and another one is being filled."""
    state = filled()
    more = NODES.fields[-1].__class__("x", "int", "path@1", {"path": "x"})
    state.apply(DeclareIndex(IndexSpec("name", "nodes", ("x",), "columns", declares=(more,))))
    state.build_indexes(1)
    assert state.tables._successors
    return state


@pytest.mark.parametrize(
    ("where", "name", "command"),
    [(Table, "apply", node(9)), (ColumnIndex, "compact", Compact(15)), (Successor, "compact", Compact(15))],
    ids=["a row", "the past", "the past of what is being filled"],
)
def test_who_has_no_memory_left_ends_and_blames_no_table(
    where: type, name: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others hold this member must hold too, once it is started again; any other failure is the table's."""
    state = succeeding()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, raising(MemoryError()))
        with pytest.raises(MemoryError):
            state.apply(command)
    assert not state.tables.degraded
    state, other = succeeding(), succeeding()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, raising(OverflowError("a bug")))
        state.apply(command)
    other.apply(command)
    assert state.hash() == other.hash()
    assert any("a bug" in report.reason for report in state.tables.reports())


@pytest.mark.parametrize("failing", [(), ("nodes",), ("pods",), ("nodes", "pods")])
@pytest.mark.parametrize("part", ["_successors", "by_name"])
def test_what_of_one_kind_cannot_forget_the_past_keeps_no_other_from_it(part: str, failing: tuple[str, ...]) -> None:
    """Neither what is being filled nor what stands. Those that fail are named, and no others."""
    state = filled()
    asked: list[tuple[str, int]] = []

    def stand_in(name: str) -> Any:
        def compact(revision: int) -> bool:
            asked.append((name, revision))
            if name in failing:
                raise OverflowError("a bug")
            return True

        table: Any = Table(state.tables.effective[name], state.revision)
        if part == "by_name":
            table.index = SimpleNamespace(compact=compact)
            return table
        return SimpleNamespace(compact=compact, table=table, caught_up=False)

    getattr(state.tables, part).update({name: stand_in(name) for name in ("nodes", "pods")})
    state.tables.compact(15)
    assert sorted(asked) == [("nodes", 15), ("pods", 15)]
    assert sorted(state.tables.degraded) == sorted(failing)


def test_what_fails_while_it_is_cleared_away_is_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    state = filled()
    monkeypatch.setattr(Table, "dispose", raising(LookupError("a bug")))
    state.apply(DropIndex("free"))
    state.apply(DeclareFields(replace(NODES, fields=NODES.fields[:2])))
    build(state)
    assert not state.tables._retired and not state.tables.unbuilt


SPECIAL = (SetAlarm(True, 5, "NOSPACE"), SetAlarm(True, 9, "NOSPACE"), SetAlarm(True, 0, "CORRUPT"))


@given(st.sets(st.sampled_from(SPECIAL)))
def test_a_snapshot_brings_every_alarm_back_as_it_was(alarms: set[SetAlarm]) -> None:
    state = StateMachine()
    for alarm in sorted(alarms):
        state.apply(alarm)
    other = StateMachine()
    loader = Loader(other)
    for each in records(state):
        loader.feed(each)
    for _ in loader.finish():
        pass
    assert other.alarms.raised == state.alarms.raised and len(other.alarms.raised) == len(alarms)


@given(st.lists(st.tuples(st.sampled_from([b"/a", b"/bb", b"/c" * 9]), st.integers(0, 40)), max_size=12), st.data())
def test_what_a_snapshot_brings_back_takes_as_much_room_as_it_did(
    writes: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    """The quota goes by it; 0 bytes stand for a deletion."""
    state = StateMachine()
    for key, size_bytes in writes:
        state.apply(Put(key, bytes(size_bytes)) if size_bytes else DeleteRange(key))
    if state.revision > 1 and data.draw(st.booleans(), label="compacted"):
        state.apply(Compact(data.draw(st.integers(2, state.revision), label="at")))
    restored = restore(list(records(state)))
    for each in (state, restored):
        if each.revision > max(1, each.compact_revision):
            each.apply(Compact(each.revision))
    assert restored.index.size_bytes == state.index.size_bytes


@pytest.mark.parametrize("ranges", list(itertools.permutations(RANGES, 3)))
def test_a_watch_that_another_ends_in_its_turn_keeps_no_third_from_its_events(
    ranges: tuple[tuple[bytes, bytes], ...],
) -> None:
    """The first one told cancels the second before that one's turn."""
    state = StateMachine()
    hub = WatchHub(state)
    shown: list[list[bytes]] = [[], [], []]
    watchers: list[Watcher] = []

    def sink(at: int) -> Callable[[WatchBatch], None]:
        def take(batch: WatchBatch) -> None:
            shown[at] += [event.kv.key for event in batch.events]
            if at == 0 and batch.events:
                watchers[1].cancel()

        return take

    watchers += [hub.add(*each, 0, sink(at)) for at, each in enumerate(ranges)]
    for key in (b"/a", b"/b", b"/a"):
        state.apply(Put(key, b"v"))
        hub.notify()
    for at in (0, 2):
        key, end = ranges[at]
        assert shown[at] == [each for each in (b"/a", b"/b", b"/a") if (key <= each < end if end else each == key)]


def test_a_watch_whose_where_fails_keeps_no_other_from_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    state = filled()
    hub = WatchHub(state)
    shown: list[list[bytes]] = [[], [], []]
    bounds, where = BUSY[:2], BUSY.where
    watchers = [
        hub.add(*bounds, 0, lambda batch, at=at: shown[at].extend(event.kv.key for event in batch.events), asked)
        for at, asked in enumerate((None, where, None))
    ]
    others = hub.add(b"/other", b"", 0, lambda batch: shown[1].append(b"other") if batch.events else None)
    monkeypatch.setattr("minikube_py.mvcc.watch.where_events", raising(LookupError("a bug")))
    change = node(1, memory="1Gi")
    state.apply(Txn((), (change, Put(b"/other", b"v"))))
    hub.notify()
    assert shown == [[change.key], [b"other"], [change.key]] and hub.in_vain == 1
    assert [watcher.cancelled for watcher in (*watchers, others)] == [False, True, False, False]
