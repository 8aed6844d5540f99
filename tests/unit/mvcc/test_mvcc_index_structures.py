"""Logs and snapshots may name structures that have left this package, or that this process does not have."""

import orjson
import pytest

from minikube_py import own_code
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.index import catalogue, planner
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, DeclareFields, DeclareIndex, Put, RangeRequest, prefix_end

OLD = [IndexSpec("old", "nodes", ("free.cpu", "free.memory"), name) for name in own_code.plugged("structures")]


def log_of(spec: IndexSpec) -> list[Command]:
    log: list[Command] = [DeclareFields(NODES), DeclareFields(PODS)]
    for number in range(20):
        value = {
            "metadata": {"name": f"n{number}"},
            "status": {"allocatable": {"cpu": str(number), "memory": f"{number}Gi"}},
        }
        log.append(Put(NODES.prefix + b"n%02d" % number, orjson.dumps(value)))
    return [*log, DeclareIndex(spec)]


def replayed(log: list[Command]) -> StateMachine:
    state = StateMachine()
    for command in log:
        state.apply(command)
    return state


def asked(state: StateMachine) -> tuple[list[bytes], str]:
    """The nodes that fit, and who said so."""
    wanted = Where((Comparison("free.cpu", ">=", ("17",)), Comparison("free.memory", ">=", ("1Gi",))))
    found = state.range(RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=wanted))
    assert found.stats is not None
    return [kv.key.removeprefix(NODES.prefix) for kv in found.kvs], found.stats.index


@pytest.mark.parametrize("spec", OLD, ids=lambda spec: spec.structure)
def test_an_index_of_a_structure_that_is_a_studys_answers_as_before(
    spec: IndexSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "COLUMNS_US", 1e6)
    assert spec.structure not in catalogue.FAMILY
    first = replayed(log_of(spec))
    for state in (first, restore(records(first))):
        while state.build_indexes(100):
            pass
        assert [report.state for report in state.tables.reports()] == ["ready"]
        assert asked(state) == ([b"n17", b"n18", b"n19"], "old")


def test_one_of_a_structure_that_is_not_there_harms_nobody_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = replayed(log_of(OLD[0]))
    monkeypatch.setattr(own_code, "plugged", lambda group: {})
    for state in (replayed(log_of(OLD[0])), restore(records(first))):
        while state.build_indexes(100):
            pass
        (report,) = state.tables.reports()
        told = "bitmaps cannot be built here: no structure is named 'bitmaps'; there are scan, columns,"
        assert report.state == "degraded" and told in report.reason
        assert asked(state) == ([b"n17", b"n18", b"n19"], "")
        assert state.hash() == first.hash()
