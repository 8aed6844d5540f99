"""What a member cannot hold is answered by scan: the same answers, the same hash, and it says so."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minikube_py.errors import Unavailable
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.columns import COLUMNS_MAX, ColumnIndex
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, DeclareFields, DeclareIndex, DropIndex, Put, RangeRequest, WatchBatch
from minikube_py.mvcc.watch import WatchHub

ALL_NODES = RangeRequest(b"/registry/nodes/", b"/registry/nodes0", fields=("free.cpu", "metadata.name"))
BUSY = ALL_NODES._replace(where=Where((Comparison("free.cpu", "<", ("4",)),)))
INDEX = IndexSpec("free", "nodes", ("free.cpu",), "columns")


def node(at: int, **resources: str) -> Put:
    value = {"metadata": {"name": f"n{at}"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", **resources}}}
    return Put(b"/registry/nodes/n%d" % at, orjson.dumps(value))


def pod(at: int, on: int, cpu: str = "1") -> Put:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    value = {"metadata": {"name": f"p{at}"}, "spec": {"nodeName": f"n{on}", "containers": containers}}
    return Put(b"/registry/pods/default/p%d" % at, orjson.dumps(value))


def build(state: StateMachine) -> None:
    for _ in range(1000):
        if not state.build_indexes(64):
            return
    raise AssertionError("it never ends")


def filled() -> StateMachine:
    state = StateMachine()
    for declare in (DeclareFields(NODES), DeclareFields(PODS), DeclareIndex(INDEX)):
        state.apply(declare)
    for at in range(8):
        state.apply(node(at))
    for at in range(8):
        state.apply(pod(at, at % 3))
    build(state)
    return state


def answers(state: StateMachine) -> list[Any]:
    """Now, in the past, by page, counted."""
    then = state.revision - 4
    requests = (BUSY, BUSY._replace(revision=then), BUSY._replace(limit=2), BUSY._replace(count_only=True), ALL_NODES)
    return [state.range(request)._replace(stats=None, revision=0) for request in requests]


def broken(monkeypatch: pytest.MonkeyPatch, at: str = "_write") -> None:
    def fail(*_: object) -> None:
        raise OverflowError("Python int too large to convert to C long")

    monkeypatch.setattr(ColumnIndex, at, fail)


@pytest.mark.parametrize("change", [pod(9, 1), node(9), node(1, memory="1Gi")], ids=["pod", "node", "changed"])
def test_a_table_that_fails_is_let_go_and_answers_and_hash_stay(change: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = filled(), filled()
    other.apply(change)
    with monkeypatch.context() as patch:
        broken(patch)
        state.apply(change)
    assert "nodes" in state.tables.degraded and not other.tables.degraded
    assert answers(state) == answers(other)
    assert state.range(BUSY).stats.structure == "scan"  # type: ignore[union-attr]
    for revision in (0, state.revision, state.revision - 3):
        assert state.hash(revision) == other.hash(revision)
    for each in (state, other):
        each.apply(pod(3, 5))
        each.apply(Compact(each.revision - 6))
    build(state)
    assert answers(state) == answers(other) and state.hash() == other.hash()
    assert "nodes" in state.tables.degraded, "nothing is built by itself"
    [report] = state.tables.reports()
    assert report.state == "degraded" and "OverflowError" in report.reason and "since revision" in report.reason


def test_it_can_be_declared_again_or_its_index_dropped_and_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for again in ([DeclareFields(NODES)], [DropIndex("free"), DeclareIndex(INDEX)]):
        state = filled()
        with monkeypatch.context() as patch:
            broken(patch)
            state.apply(node(9))
        for command in again:
            state.apply(command)
        build(state)
        assert not state.tables.degraded and state.range(BUSY).stats.structure != "scan"  # type: ignore[union-attr]
        assert [report.state for report in state.tables.reports()] == ["ready"]


def test_a_restart_builds_it_again_or_degrades_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = filled()
    with monkeypatch.context() as patch:
        broken(patch)
        state.apply(node(9))
        slices = list(records(state))
        restored = restore(slices)
        assert set(restored.tables.degraded) == {"nodes", "pods"}
        assert answers(restored) == answers(state) and restored.hash() == state.hash()
    assert not restore(slices).tables.degraded


def test_a_compaction_or_an_extension_that_fails_degrades_too(monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = filled(), filled()
    with monkeypatch.context() as patch:
        broken(patch, "compact")
        state.apply(Compact(state.revision - 6))
    other.apply(Compact(other.revision - 6))
    assert set(state.tables.degraded) == {"nodes", "pods"} and answers(state) == answers(other)
    more = IndexSpec(
        "name", "nodes", ("x",), "columns", declares=(NODES.fields[-1].__class__("x", "int", "path@1", {"path": "x"}),)
    )
    with monkeypatch.context() as patch:
        broken(patch, "load")
        other.apply(DeclareIndex(more))
        build(other)
    state.apply(DeclareIndex(more))
    assert "nodes" in other.tables.degraded and other.range(BUSY).stats.structure != "scan"  # type: ignore[union-attr]
    assert answers(state) == answers(other) and state.hash() == other.hash()


def test_more_fields_than_columns_are_answered_from_the_objects() -> None:
    state = filled()
    for at in range(20, 28):
        state.apply(node(at, **{f"example.com/r{at}-{each}": "1" for each in range(60)}))
    assert state.tables.degraded["nodes"].reason.startswith(f"its objects have more than {COLUMNS_MAX} fields")
    held, beyond = "allocatable.example.com/r20-0", "allocatable.example.com/r27-9"
    for name, structure in ((held, "columns"), (beyond, "scan")):
        asked = ALL_NODES._replace(fields=(name,), where=Where((Comparison(name, ">=", ("1",)),)))
        found = state.range(asked)
        assert list(found.fields or []) == [(1,)] and found.stats.structure == structure  # type: ignore[union-attr]
    restored = restore(list(records(state)))
    assert restored.hash() == state.hash() and restored.hash(state.revision - 1) == state.hash(state.revision - 1)
    with pytest.raises(Unavailable, match="more than 256 fields"):
        WatchHub(state).add(b"/registry/nodes/", b"/registry/nodes0", 0, print, Where((Comparison(beyond, "exists"),)))


def test_a_watch_on_what_is_degraded_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    state = filled()
    hub, told = WatchHub(state), list[WatchBatch]()
    hub.add(b"/registry/nodes/", b"/registry/nodes0", 0, told.append, BUSY.where)
    with monkeypatch.context() as patch:
        broken(patch)
        state.apply(node(9))
    hub.notify()
    assert isinstance(told[-1].error, Unavailable) and "OverflowError" in str(told[-1].error)
    assert len(hub) == 0


def test_an_object_that_an_extractor_fails_on_has_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    from minikube_py.fields import resource_requests

    state = filled()
    real = resource_requests.is_finished

    def fails_on_some(obj: Any) -> bool:
        if obj["metadata"]["name"] == "p9":
            raise KeyError("a bug")
        return real(obj)

    monkeypatch.setattr(resource_requests, "is_finished", fails_on_some)
    before = answers(state)
    state.apply(pod(9, 1))
    assert answers(state)[0] == before[0] and not state.tables.degraded
    asked = RangeRequest(b"/registry/pods/default/p9", fields=("requests.cpu",))
    assert state.range(asked).fields == [(None,)]
    assert state.tables.by_name["pods"].reader.unreadable == 1
    assert restore(list(records(state))).hash() == state.hash()
