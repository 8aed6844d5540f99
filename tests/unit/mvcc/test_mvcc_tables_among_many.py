"""Of several FieldSets and indexes each is answered for by itself, whatever has become of the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from test_mvcc_degraded import ALL_NODES, BUSY, build, filled, node, pod

from minikube_py.errors import InvalidRequest
from minikube_py.fields.spec import FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.index.table import Table
from minikube_py.mvcc.reads import LIMIT_REACHABLE
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, Compact, DeclareIndex, DeleteRange, DropIndex, RangeRequest

INDEXES = (
    IndexSpec("by-name", "nodes", ("metadata.name",), "columns"),
    IndexSpec("by-node", "pods", ("requests.cpu",), "columns"),
    IndexSpec("busy", "nodes", ("free.cpu",), "columns"),
    IndexSpec("named", "pods", ("hash.spec.nodeName",), "columns"),
)
PODS_OF = RangeRequest(
    b"/registry/pods/", b"/registry/pods0", where=Where((Comparison("requests.cpu", ">=", ("1",)),))
)  # fmt: skip
MORE = IndexSpec("more", "nodes", ("x",), "columns", declares=(FieldSpec("x", "int", "path@1", {"path": "x"}),))


def indexed() -> StateMachine:
    state = filled()
    state.apply(DropIndex("free"))
    for spec in INDEXES:
        state.apply(DeclareIndex(spec))
    build(state)
    return state


def failing(of: Sequence[str], patch: pytest.MonkeyPatch) -> None:
    healthy: Callable[..., Any] = Table.apply

    def apply(table: Table, *arguments: Any) -> Any:
        if table.field_set.name in of:
            raise OverflowError("a bug")
        return healthy(table, *arguments)

    patch.setattr(Table, "apply", apply)


def asked(state: StateMachine) -> list[Any]:
    requests = (BUSY, ALL_NODES, PODS_OF, PODS_OF._replace(limit=1), BUSY._replace(count_only=True))
    return [state.range(request)._replace(stats=None) for request in requests]


@pytest.mark.parametrize("of", [["nodes"], ["pods"], ["nodes", "pods"]])
@pytest.mark.parametrize("change", [pod(9, 1), pod(0, 1, "3"), node(1, memory="1Gi"), DeleteRange(b"/registry/", b"0")])
def test_a_table_that_fails_takes_no_other_along(
    of: list[str], change: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, other = indexed(), indexed()
    with monkeypatch.context() as patch:
        failing(of, patch)
        state.apply(change)
    other.apply(change)
    failed = set(of)
    assert state.tables.degraded.keys() == failed and not other.tables.degraded
    assert asked(state) == asked(other) and state.hash() == other.hash()
    for name in other.tables.by_name.keys() - failed:
        assert state.tables.by_name[name].index.stats() == other.tables.by_name[name].index.stats()
    reports = state.tables.reports()
    assert [report.spec for report in reports] == sorted(INDEXES, key=lambda spec: spec.name)
    for report in reports:
        assert report.state == ("degraded" if report.spec.on in failed else "ready")
        assert (report.rows, report.size_bytes) == (0, 0) or report.state == "ready"


def test_every_index_is_reported_while_one_is_built_and_another_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    state = indexed()
    for table, spec in itertools.product(("pods", "nodes"), (MORE,)):
        with monkeypatch.context() as patch:
            failing([table] if table == "pods" else [], patch)
            state.apply(pod(7, 2))
        if spec.name not in state.tables.specs:
            state.apply(DeclareIndex(spec))
        while True:
            reports = {report.spec.name: report for report in state.tables.reports()}
            assert reports.keys() == {spec.name for spec in (*INDEXES, MORE)}
            assert {reports[name].state for name in ("by-node", "named")} == {"degraded"}
            assert {reports[name].state for name in ("by-name", "busy")} == {"ready"}
            more = reports["more"]
            assert more.state == "ready" or (more.rows, more.size_bytes, more.bytes_per_revision) == (0, 0, 0.0)
            assert 0.0 <= more.progress <= 1.0 and (more.state != "ready" or more.progress == 1.0)
            if not state.build_indexes(2):
                break


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 100, LIMIT_REACHABLE - 1, LIMIT_REACHABLE, (1 << 63) - 1])
@pytest.mark.parametrize("request_", [BUSY._replace(fields=()), PODS_OF], ids=["nodes", "pods"])
def test_each_way_that_is_explained_finds_what_the_request_does(request_: RangeRequest, limit: int) -> None:
    """At the edges of limits, too; and at a revision of the past."""
    state = indexed()
    for revision in (0, state.revision - 3):
        request = request_._replace(limit=limit, revision=revision)
        keys = [kv.key for kv in state.range(request).kvs]
        ways = [run for _, run in state.explain(request).ways if run is not None]
        assert ways
        for run in ways:
            matches, _ = run()
            assert list(matches.keys)[: max(0, limit) or None] == keys


@pytest.mark.parametrize("start", [b"/registry/nodes/", b"/registry/nodes/n3", b"/registry/nodes/zz"])
@pytest.mark.parametrize("end", [b"", b"/registry/nodes/n6", b"/registry/nodes0"])
@pytest.mark.parametrize("back", [0, 3, 12])
def test_what_is_counted_is_what_is_listed(start: bytes, end: bytes, back: int) -> None:
    """With a where, with fields, with both and with neither; now and in the past; after a compaction, too."""
    state = indexed()
    for change in (
        DeleteRange(b"/registry/nodes/n2"),
        node(11),
        DeleteRange(b"/registry/nodes/n6", b"/registry/nodes/n8"),
    ):
        state.apply(change)
    state.apply(Compact(state.revision - 14))
    at = state.revision - back if back else 0
    for where, fields in itertools.product((BUSY.where, None), ((), ("free.cpu",))):
        request = RangeRequest(start, end, where=where, fields=fields, revision=at)
        try:
            listed = state.range(request)
        except InvalidRequest:
            assert start == end
            continue
        counted = state.range(request._replace(count_only=True))
        assert (counted.kvs, counted.count, counted.more, counted.revision) == (
            [],
            len(listed.kvs),
            False,
            state.revision,
        )
        assert (listed.count, listed.more) == (len(listed.kvs), False)
        for limit in (1, 2, 5):
            page = state.range(request._replace(limit=limit))
            assert page.kvs == listed.kvs[:limit] and page.more == (len(listed.kvs) > limit)
            assert not fields or page.fields == (listed.fields or [])[:limit]
