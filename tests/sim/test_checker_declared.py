"""What the transaction checker says of fields that indexes declare: named histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged import assert_found, assert_passes

from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES
from minikube_py.fields.spec import FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec, dump, key_of
from minikube_py.mvcc.types import (
    CompactResult,
    DeclareFields,
    DeclareIndex,
    DeleteResult,
    DropIndex,
    KeyValue,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
)
from minikube_py.sim.checkers import transactions
from minikube_py.sim.history import History, Operation

RANK = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.rank"})
OTHER = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.other"})
COUNT = SumSpec("pods", b"/registry/pods/", "spec.nodeName", "count@1")
PODS = FieldSpec("pods", "quantity", "sum@2", {"sum": "pods", "resource": ""})
INDEX = IndexSpec("i", "nodes", ("rank", "pods"), "scan", declares=(RANK, PODS), sums=(COUNT,))
ANOTHER = IndexSpec("j", "nodes", ("rank",), "scan", declares=(OTHER,))
KEY = NODES.prefix + b"n"
NODE = b'{"metadata":{"name":"n","labels":{"rank":"7","other":"1"}}}'
POD = b'{"spec":{"nodeName":"n"}}'
FOUND = KeyValue(KEY, NODE, 2, 2, 1, 0)


def done(call, request, result, **more):
    return Operation(1, call, call + 1, request, "done", result, **more)


def refused(call, request, **more):
    return Operation(1, call, call + 1, request, "refused", None, InvalidRequest("not declared"), **more)


def ask(bound, *names, past=0):
    where = Where((Comparison("rank", ">=", (bound,)),))
    return RangeRequest(NODES.prefix, b"/registry/nodes0", revision=past, where=where, fields=names)


def answer(revision, *fields, found=True):
    return RangeResult([FOUND] if found else [], int(found), False, revision, [fields] if fields else None)


BEGUN = [done(1, DeclareFields(NODES), CompactResult(1)), done(3, Put(KEY, NODE), PutResult(2))]
DECLARED = [*BEGUN, done(5, DeclareIndex(INDEX), PutResult(3))]
BOUND = [*DECLARED, done(7, Put(b"/registry/pods/p", POD), PutResult(4))]
DROPPED = [*DECLARED, done(7, DropIndex("i"), DeleteResult(4, 1))]
REPLACED = [*DROPPED, done(9, DeclareIndex(ANOTHER), PutResult(5))]

GOOD = {
    "a row that was there before": [*DECLARED, done(11, ask("7"), answer(3))],
    "of the past, from before the declaration": [*DECLARED, done(11, ask("7", past=2), answer(3))],
    "a sum of its own": [*BOUND, done(11, ask("7", "pods", "rank"), answer(4, 1, 7))],
    "the sum in the past": [*BOUND, done(11, ask("7", "pods", past=3), answer(4, 0))],
    "another meaning of the name": [*REPLACED, done(11, ask("2"), answer(5, found=False))],
    "the past asked by the other meaning": [*REPLACED, done(11, ask("2", past=3), answer(5, found=False))],
    "refused before it is declared": [*BEGUN, refused(3, ask("7")), *DECLARED[2:]],
    "refused while it is being declared": [*DECLARED, refused(5, ask("7"))],
    "refused once it is dropped": [*DROPPED, refused(11, ask("7"))],
    "refused by a member that may be behind": [*DECLARED, refused(11, ask("7"), serializable=True)],
    "refused for its bound": [*DECLARED, refused(11, ask("seven"))],
    "refused where nobody knows what became of a drop": [
        *DECLARED, Operation(2, 7, None, DropIndex("i"), "unknown"), refused(11, ask("7")),
    ],
    "the same declared by two": [
        *DECLARED, done(9, DeclareIndex(replace(ANOTHER, declares=(RANK,))), PutResult(4)),
        done(11, ask("7"), answer(4)),
    ],
}  # fmt: skip
BAD = {
    "a row that was there before is not found": (
        [*DECLARED, done(11, ask("7"), answer(3, found=False))], "replay gives"),
    "a sum left behind": ([*BOUND, done(11, ask("7", "pods"), answer(4, 0))], "replay gives"),
    "answered by what the name meant before": ([*REPLACED, done(11, ask("2"), answer(5))], "replay gives"),
    "answered before it is declared": ([*BEGUN, done(5, ask("7"), answer(2))], "no declared fields"),
    "answered once it is dropped": ([*DROPPED, done(11, ask("7"), answer(4))], "no declared fields"),
    "refused though it is declared": ([*DECLARED, refused(11, ask("7"))], "refused, though"),
    "refused for the past though it is declared": ([*DECLARED, refused(11, ask("7", past=2))], "refused, though"),
    "refused though the FieldSet itself has it": (
        [done(1, DeclareFields(NODES), CompactResult(1)),
         refused(3, RangeRequest(NODES.prefix, b"/registry/nodes0", where=Where((Comparison("free.cpu", "exists"),))))],
        "refused, though"),
    "two meanings at once": ([*DECLARED, done(9, DeclareIndex(ANOTHER), PutResult(4))], "stands for something else"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name):
    assert_passes(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name):
    assert_found(*BAD[name])


def test_a_declaration_of_which_nobody_knows_is_found_by_what_it_lets_be_asked():
    operations = [*BEGUN, Operation(2, 5, None, DeclareIndex(INDEX), "unknown"), done(11, ask("7"), answer(3))]
    checked = transactions.check(History(operations))
    assert checked.verdict.ok, checked.verdict.text
    standing = checked.model.current[key_of("i")]
    assert standing.value == dump(INDEX) and checked.model.effective("nodes", 2) == NODES
