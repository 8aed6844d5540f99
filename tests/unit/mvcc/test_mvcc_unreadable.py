"""Objects that are not JSON, as Kubernetes' own API server stores them: counted, and said beside each index."""

from __future__ import annotations

import orjson
import pytest

from minikube_py.fields.builtin import KUBE_PODS, MINIONS
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.ahead import LARGE_KEYS
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, DeclareFields, DeclareIndex, DeleteRange, Put, prefix_end

PROTOBUF = b"k8s\x00\n\x0b\n\x02v1\x12\x05Node..."
MINION, POD = MINIONS.prefix, KUBE_PODS.prefix


def node(name: str) -> bytes:
    whole = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "4"}}}
    return orjson.dumps(whole)


def state(*commands: Command) -> StateMachine:
    machine = StateMachine()
    for each in commands:
        machine.apply(each)
    return machine


DECLARED = (DeclareFields(MINIONS), DeclareFields(KUBE_PODS))
WRITES = (Put(MINION + b"n1", PROTOBUF), Put(MINION + b"n2", node("n2")), Put(POD + b"d/p1", PROTOBUF))


@pytest.mark.parametrize("commands", [(*DECLARED, *WRITES), (*WRITES, *DECLARED)])
def test_they_are_counted_until_they_are_written_as_json_or_deleted(commands: tuple[Command, ...]) -> None:
    machine = state(*commands)
    assert machine.tables.unreadable() == {"minions": 2, "kube-pods": 1}
    machine.apply(Put(MINION + b"n1", node("n1")))
    assert machine.tables.unreadable() == {"minions": 1, "kube-pods": 1}
    machine.apply(DeleteRange(POD + b"d/p1"))
    assert machine.tables.unreadable() == {"minions": 0, "kube-pods": 0}
    machine.apply(Put(MINION + b"n2", b"[]"))
    assert machine.tables.unreadable() == {"minions": 1, "kube-pods": 0}


def test_a_large_deletion_takes_them_along() -> None:
    machine = state(*DECLARED, *(Put(POD + b"d/%d" % number, PROTOBUF) for number in range(LARGE_KEYS + 1)))
    assert machine.tables.unreadable()["kube-pods"] == LARGE_KEYS + 1
    deletion = DeleteRange(POD, prefix_end(POD))
    steps = machine.ahead.prepare(deletion)
    assert steps is not None
    for _ in steps:
        pass
    machine.apply(deletion)
    assert machine.tables.unreadable() == {"minions": 0, "kube-pods": 0}


def test_an_index_says_how_many_it_lacks() -> None:
    machine = state(*DECLARED, *WRITES, DeclareIndex(IndexSpec("fits", "minions", ("free.cpu",), "max-tree")))
    while machine.tables.unbuilt:
        machine.build_indexes(100)
    (report,) = machine.tables.reports()
    assert (report.state, report.reason) == ("ready", "2 objects are not JSON and cannot be read")
    machine.apply(DeleteRange(MINION + b"n1"))
    machine.apply(DeleteRange(POD + b"d/p1"))
    assert machine.tables.reports()[0].reason == ""
