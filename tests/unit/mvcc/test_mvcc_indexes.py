"""Declared indexes in the state machine: what is replicated of them, what each member builds, and that answers never
depend on how far it has come."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from minikube_py.errors import Compacted, Corruption, FieldsRedeclared, InvalidRequest
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Op, Where
from minikube_py.index import catalogue, planner
from minikube_py.index.declared import (
    INDEXES_PREFIX,
    MAX_INDEXES,
    IndexSpec,
    dump,
    extended,
    from_json,
    key_of,
    parse,
    to_json,
)
from minikube_py.index.structure import Box, Found, Point
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    OpenSession,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    WatchBatch,
    prefix_end,
)
from minikube_py.mvcc.watch import WatchHub

ZONE = FieldSpec("zone", "string", "path@1", {"path": "metadata.labels.zone"})
RANK = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.rank"})
DISKS = SumSpec("disks", b"/registry/volumes/", "spec.nodeName", "count@1")
DISK_COUNT = FieldSpec("disks", "quantity", "sum@2", {"sum": "disks", "resource": ""})

FITS = IndexSpec("fits", "nodes", ("free.cpu", "free.memory"), "scan")
ZONES = IndexSpec("zones", "nodes", ("zone", "rank"), "scan", declares=(ZONE, RANK))
DISKY = IndexSpec("disky", "nodes", ("disks",), "columns", {"block_slots": 128}, declares=(DISK_COUNT,), sums=(DISKS,))


@pytest.fixture(autouse=True)
def indexes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are so quick among so few rows that the planner would ask nobody else."""
    monkeypatch.setattr(planner, "COLUMNS_US", 1e6)


def node(number: int, cpu: int, **labels: str) -> Put:
    value = {
        "metadata": {"name": f"n{number}", "labels": labels},
        "status": {"allocatable": {"cpu": str(cpu), "memory": f"{cpu}Gi"}},
    }
    return Put(NODES.prefix + b"n%d" % number, orjson.dumps(value))


def pod(number: int, on: int, cpu: int) -> Put:
    value = {
        "metadata": {"name": f"p{number}"},
        "spec": {"nodeName": f"n{on}", "containers": [{"resources": {"requests": {"cpu": str(cpu)}}}]},
    }
    return Put(PODS.prefix + b"default/p%d" % number, orjson.dumps(value))


def volume(number: int, on: int) -> Put:
    return Put(b"/registry/volumes/v%d" % number, orjson.dumps({"spec": {"nodeName": f"n{on}"}}))


def where(*parts: tuple[str, Op, str]) -> Where:
    return Where(tuple(Comparison(field, op, (text,) if op != "exists" else ()) for field, op, text in parts))


def ask(state: StateMachine, asked: Where, revision: int = 0, **more: Any) -> RangeResult:
    return state.range(RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=asked, revision=revision, **more))


def names(result: RangeResult) -> list[bytes]:
    return [kv.key.removeprefix(NODES.prefix) for kv in result.kvs]


def build(state: StateMachine, rows: int = 10_000) -> None:
    for _ in range(100_000):
        if not state.build_indexes(rows):
            return
    raise AssertionError("it does not come to an end")


def cluster(nodes: int = 20) -> StateMachine:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    state.apply(DeclareFields(PODS))
    for number in range(nodes):
        state.apply(node(number, number % 9, zone=f"z{number % 3}", rank=str(number)))
    return state


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [FITS, ZONES, DISKY], ids=lambda spec: spec.name)
def test_a_declaration_reads_as_it_was_written(spec: IndexSpec) -> None:
    assert parse(dump(spec)) == spec == from_json(to_json(spec))
    assert unpack(pack(DeclareIndex(spec))) == DeclareIndex(spec)
    assert unpack(pack(DropIndex(spec.name))) == DropIndex(spec.name)
    assert unpack(pack(InSession(1, 1, 1, DeclareIndex(spec)))).command.spec == spec  # type: ignore[union-attr]


BAD_JSON: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "index name ''"),
    "a name of a path": ({"name": "a/b"}, "lower-case letters"),
    "no fields": ({"fields": []}, "it needs 1 to 16"),
    "too many fields": ({"fields": [f"f{number}" for number in range(17)]}, "it needs 1 to 16"),
    "a field twice": ({"fields": ["a", "a"]}, "more than once in a, a"),
    "a family": ({"fields": ["free.*"]}, "name one of its members"),
    "a field that is no text": ({"fields": [7]}, "fields must be a text, not int"),
    "fields that are no list": ({"fields": "free.cpu"}, "fields must be a list"),
    "something unknown": ({"field": ["a"]}, "has no 'field'; it has name, on, fields"),
    "an option that is a list": ({"options": {"a": [1]}}, "option a must be a whole number"),
    "an option that is true": ({"options": {"a": True}}, "option a must be a whole number"),
    "a limit of nothing": ({"memoryLimitBytes": 5}, "a memory limit of 5 bytes; it must be from 65536"),
    "an unknown kind": (
        {"declares": [{"name": "z", "kind": "float", "extractor": "path@1", "args": {"path": "z"}}]},
        "kind 'float' is none of int, quantity, string, time",
    ),
    "a field without an extractor": ({"declares": [{"name": "z", "kind": "int"}]}, "extractor is missing"),
    "a sum without a source": ({"sums": [{"name": "z"}]}, "sourcePrefix is missing"),
    "no structure": ({"structure": "no such thing"}, "is not a structure's name"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_declaration_that_does_not_read_is_refused(name: str) -> None:
    changed, message = BAD_JSON[name]
    with pytest.raises(InvalidRequest, match=message):
        from_json({**to_json(FITS), **changed})


def test_a_declaration_is_no_json() -> None:
    with pytest.raises(InvalidRequest, match="is not JSON"):
        parse(b"{")
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        parse(b"[]")


BAD: dict[str, tuple[IndexSpec, str]] = {
    "an unknown field": (IndexSpec("a", "nodes", ("free.cpu", "colour"), "scan"), "field 'colour' is not declared on"),
    "no such resource": (
        IndexSpec("a", "things", ("x",), "scan"),
        "no fields are declared on 'things'; the field sets are: nodes",
    ),
    "another of that name": (
        IndexSpec("fits", "nodes", ("free.cpu",), "scan"),
        "declared already with another definition; drop it",
    ),
    "a field that means something else": (
        IndexSpec("a", "nodes", ("metadata.name",), "scan", declares=(FieldSpec("metadata.name", "int", "count@1"),)),
        "field metadata.name is declared on nodes already",
    ),
    "a sum that is not there": (
        IndexSpec(
            "a", "nodes", ("x",), "scan", declares=(FieldSpec("x", "quantity", "sum@2", {"sum": "y", "resource": ""}),)
        ),
        "uses the sum y",
    ),
    "a sum that means something else": (
        IndexSpec("a", "nodes", ("free.cpu",), "scan", sums=(SumSpec("requested.*", b"/x/", "a", "pod_requests@1"),)),
        "sum requested.* is declared on nodes already",
    ),
    "a prefix that is no text": (
        IndexSpec("a", "nodes", ("free.cpu",), "scan", sums=(SumSpec("s", b"\xff/", "a", "pod_requests@1"),)),
        "is not valid JSON in UTF-8",
    ),
    "a name that is no text": (IndexSpec("a", "nodes", ("\ud800",), "scan"), "is not valid JSON in UTF-8"),
    "an unknown extractor": (
        IndexSpec("a", "nodes", ("x",), "scan", declares=(FieldSpec("x", "int", "guess@1"),)),
        "unknown extractor 'guess@1'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_declaration_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    state = cluster(3)
    state.apply(DeclareIndex(FITS))
    before = (state.revision, state.hash(), state.tables.version)
    spec, message = BAD[name]
    with pytest.raises(InvalidRequest, match=message.replace("*", r"\*")):
        state.apply(DeclareIndex(spec))
    with pytest.raises(InvalidRequest, match="there is no index 'a'; the indexes are: fits"):
        state.apply(DropIndex("a"))
    assert (state.revision, state.hash(), state.tables.version) == before


def test_there_are_not_too_many() -> None:
    state = cluster(1)
    for number in range(MAX_INDEXES):
        state.apply(DeclareIndex(IndexSpec(f"i{number}", "nodes", ("free.cpu",), "scan")))
    with pytest.raises(InvalidRequest, match=f"at most {MAX_INDEXES} indexes can be declared; drop one first"):
        state.apply(DeclareIndex(FITS))
    build(state)
    assert names(ask(state, where(("free.cpu", "=", "0")))) == [b"n0"]


def test_a_declaration_is_an_event_of_its_own_revision() -> None:
    state = cluster(3)
    hub = WatchHub(state)
    seen: list[WatchBatch] = []
    hub.add(INDEXES_PREFIX, prefix_end(INDEXES_PREFIX), 0, seen.append)
    revision = state.revision
    assert state.apply(DeclareIndex(FITS)) == PutResult(revision + 1)
    assert state.apply(DeclareIndex(FITS)) == PutResult(revision + 1)
    assert state.apply(DropIndex("fits")).revision == revision + 2
    hub.notify()
    events = [event for batch in seen for event in batch.events]
    assert [(event.type, event.kv.key, event.kv.mod_revision) for event in events] == [
        ("PUT", b"/minikube-py/indexes/fits", revision + 1),
        ("DELETE", b"/minikube-py/indexes/fits", revision + 2),
    ]
    assert parse(events[0].kv.value) == FITS
    assert state.range(RangeRequest(key_of("fits"), revision=revision + 1)).kvs[0].value == dump(FITS)


@pytest.mark.parametrize(
    "command",
    [
        Put(key_of("fits"), b"{}"),
        Put(key_of("other"), b"{}"),
        DeleteRange(key_of("fits")),
        DeleteRange(b"\0", b"\0"),
        DeleteRange(INDEXES_PREFIX, prefix_end(INDEXES_PREFIX)),
        Txn((), (Put(b"/a", b"1"), DeleteRange(b"/m", b"/n"))),
        Txn((), (Txn((), (Put(key_of("x"), b""),)),)),
    ],
    ids=str,
)
def test_clients_cannot_write_there(command: Put | DeleteRange | Txn) -> None:
    state = cluster(3)
    state.apply(DeclareIndex(FITS))
    before = (state.revision, state.hash())
    with pytest.raises(InvalidRequest, match="written only by declaring and dropping indexes"):
        state.apply(command)
    assert (state.revision, state.hash()) == before
    state.apply(DeleteRange(b"/registry/", b"/registry0"))
    state.apply(DropIndex("fits"))
    state.apply(DeleteRange(b"\0", b"\0"))


def test_declaring_in_a_session_is_done_once() -> None:
    state = cluster(3)
    session = state.apply(OpenSession(7)).id  # type: ignore[union-attr]
    first = state.apply(InSession(session, 1, 1, DeclareIndex(FITS)))
    assert state.apply(InSession(session, 1, 1, DeclareIndex(FITS))) == first
    dropped = state.apply(InSession(session, 2, 1, DropIndex("fits")))
    assert restore(records(state)).apply(InSession(session, 2, 1, DropIndex("fits"))) == dropped


# -- answers -----------------------------------------------------------------------------------------------------------

QUESTIONS = [
    where(("free.cpu", ">=", "4")),
    where(("free.cpu", ">", "2"), ("free.memory", "<", "7Gi")),
    where(("free.cpu", "<", "5"), ("metadata.name", "!=", "n4")),
    where(("free.cpu", "=", "3"), ("free.cpu", "=", "4")),
    where(("zone", "=", "z1"), ("rank", ">=", "7")),
    where(("zone", "=", "nowhere")),
    where(("zone", "exists", ""), ("free.cpu", ">=", "3")),
    where(("disks", ">=", "2")),
    where(("disks", "=", "0"), ("zone", "!=", "z0"), ("free.cpu", ">=", "1")),
]


def truth(state: StateMachine, asked: Where, revision: int) -> list[bytes]:
    """From the bytes alone: each object is read with all there is at that revision."""
    plain = StateMachine()
    for prefix in (b"/registry/nodes/", b"/registry/pods/", b"/registry/volumes/"):
        for kv in state.index.range_at(prefix, prefix_end(prefix), revision):
            plain.apply(Put(kv.key, kv.value))
    plain.apply(DeclareFields(extended(NODES, [FITS, ZONES, DISKY])))
    return names(ask(plain, asked))


class Life:
    """A cluster in which everything happens."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = cluster(12)
        self.log: list[Any] = []

    def apply(self, command: Any) -> None:
        self.log.append(command)
        self.state.apply(command)

    def step(self) -> None:
        pick = self.random
        number = pick.randrange(25)
        kind = pick.randrange(10)
        if kind < 3:
            labels = {"zone": f"z{pick.randrange(3)}", "rank": str(number)} if pick.randrange(4) else {}
            self.apply(node(number, pick.randrange(9), **labels))
        elif kind < 6:
            self.apply(pod(pick.randrange(30), number, pick.randrange(4)))
        elif kind < 8:
            self.apply(volume(pick.randrange(12), number))
        elif kind < 9:
            prefix = pick.choice([NODES.prefix + b"n", PODS.prefix + b"default/p", b"/registry/volumes/v"])
            self.apply(DeleteRange(prefix + b"%d" % number))
        else:
            self.apply(Txn((), (node(number, 8), pod(number, number, 3), volume(number, number))))

    def check(self, state: StateMachine, answered: set[str]) -> None:
        oldest = max(state.compact_revision, 1)
        for asked in QUESTIONS:
            for revision in {state.revision, self.random.randrange(oldest, state.revision + 1)}:
                try:
                    expected = truth(state, asked, revision)
                    result = ask(state, asked, revision)
                except InvalidRequest as error:
                    # Until they are declared.
                    assert "is not declared" in str(error)
                    continue
                assert names(result) == expected and result.count == len(expected), (str(asked), revision)
                assert result.stats is not None
                answered.add(result.stats.index or result.stats.structure)
                scanned = result.stats.structure == "scan" and not result.stats.index
                standing = len(state.index.range_at(NODES.prefix, prefix_end(NODES.prefix), revision))
                assert result.stats.objects_decoded >= standing if scanned else result.stats.objects_decoded == 0
                some = ask(state, asked, revision, limit=2, order="ANY")
                assert set(names(some)) <= set(expected) and len(some.kvs) == min(2, len(expected))
                assert some.more == (len(expected) > 2)


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_the_objects_however_far_building_has_come(seed: int) -> None:
    life = Life(seed)
    declared = life.random.sample([FITS, ZONES, DISKY], 3)
    answered: set[str] = set()
    for step in range(60):
        life.step()
        if step in (5, 15, 25):
            life.apply(DeclareIndex(declared.pop()))
        if step == 40:
            life.apply(Compact(life.state.revision - 12))
        if step > 8 and step % 2:
            life.state.build_indexes(4)
        if step % 4 == 3:
            life.check(life.state, answered)
    build(life.state, 7)
    life.check(life.state, answered)
    assert [report.state for report in life.state.tables.reports()] == ["ready"] * 3
    assert answered >= {"fits", "zones", "disky", "columns", "scan"}
    restored = restore(records(life.state))
    replayed = cluster(12)
    for command in life.log:
        replayed.apply(command)
    assert restored.hash() == life.state.hash() == replayed.hash()
    assert restored.tables.specs == replayed.tables.specs == life.state.tables.specs
    for other in (restored, replayed):
        life.check(other, set())
        build(other, 50)
        life.check(other, set())
    life.apply(DropIndex("zones"))
    life.apply(DropIndex("fits"))
    build(life.state, 9)
    assert list(life.state.tables.by_name["nodes"].running) == ["disky"]
    assert life.state.tables.by_name["nodes"].field_set == extended(NODES, [DISKY])
    with pytest.raises(InvalidRequest, match="field 'zone' is not declared"):
        ask(life.state, QUESTIONS[4])


def test_members_agree_whatever_they_have_built() -> None:
    first, second = cluster(), cluster()
    for state in (first, second):
        state.apply(DeclareIndex(ZONES))
    build(first)
    past = first.revision
    for state in (first, second):
        state.apply(node(3, 4, zone="z9"))
    third = restore(records(first))
    assert first.hash() == second.hash() == third.hash()
    assert first.hash(past) == second.hash(past) == third.hash(past)
    second.apply(DropIndex("zones"))
    assert first.hash() != second.hash()


def test_the_built_in_fields_declared_again_take_nothing_away() -> None:
    state = cluster()
    state.apply(DeclareIndex(ZONES))
    build(state)
    table = state.tables.by_name["nodes"]
    state.apply(DeclareFields(NODES))
    assert state.tables.by_name["nodes"] is table
    assert names(ask(state, QUESTIONS[5])) == [] and len(ask(state, where(("zone", "=", "z1"))).kvs) == 7
    # Other fields of its own: what the index adds stays.
    state.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields[3:], ())))
    result = ask(state, where(("zone", "=", "z1"), ("metadata.name", "!=", "n1")))
    assert len(result.kvs) == 6 and result.stats is not None and result.stats.objects_decoded == 0
    build(state)
    found = ask(state, where(("zone", "=", "z1"), ("rank", "<", "9")))
    assert names(found) == [b"n1", b"n4", b"n7"] and found.stats is not None and found.stats.index == "zones"
    with pytest.raises(InvalidRequest, match=r"field 'free.cpu' is not declared"):
        ask(state, QUESTIONS[0])


def test_an_index_whose_field_is_gone_is_degraded() -> None:
    state = cluster()
    state.apply(DeclareIndex(FITS))
    build(state)
    state.apply(DeclareFields(FieldSet("nodes", NODES.prefix, NODES.fields[1:2], ())))
    (report,) = state.tables.reports()
    assert report.state == "degraded" and report.reason == "field free.cpu is not declared on nodes any more"
    state.apply(DeclareFields(NODES))
    build(state)
    assert state.tables.reports()[0].state == "ready"


def test_the_fields_of_a_request_are_decoded_until_they_are_in_the_table() -> None:
    state = cluster(4)
    state.apply(volume(1, 2))
    state.apply(DeclareIndex(DISKY))
    request = RangeRequest(NODES.prefix, prefix_end(NODES.prefix), fields=("disks", "allocatable.cpu"), limit=3)
    decoded = state.range(request)
    assert decoded.fields == [(0, 0), (0, 1000), (1, 2000)]
    assert decoded.stats is not None and decoded.stats.objects_decoded == 4 and decoded.stats.structure == "scan"
    single = state.range(RangeRequest(NODES.prefix + b"n2", where=where(("disks", "=", "1")), fields=("disks",)))
    assert single.fields == [(1,)] and single.count == 1
    build(state)
    built = state.range(request)
    assert built.fields == decoded.fields
    assert built.stats is not None and built.stats.objects_decoded == 0


# -- building ----------------------------------------------------------------------------------------------------------


def test_a_compaction_that_passes_by_starts_the_table_over() -> None:
    state = cluster(30)
    state.apply(DeclareIndex(ZONES))
    state.build_indexes(5)
    state.build_indexes(5)
    for number in range(30):
        state.apply(node(number, 1, zone="other"))
    first = state.tables._successors["nodes"]
    state.apply(Compact(state.revision - 3))
    assert "nodes" not in state.tables._successors
    while "nodes" not in state.tables._successors:
        # What was begun is cleared away first.
        assert state.build_indexes(5)
    assert state.tables._successors["nodes"] is not first
    build(state, 5)
    oldest = state.compact_revision
    for revision in range(oldest, state.revision + 1):
        asked = where(("zone", "=", "other"))
        assert names(ask(state, asked, revision)) == truth(state, asked, revision)
    with pytest.raises(Compacted):
        ask(state, asked, oldest - 1)


def test_what_others_ask_goes_on_while_a_table_is_replaced() -> None:
    state = cluster(30)
    state.apply(DeclareIndex(FITS))
    build(state)
    state.apply(DeclareIndex(ZONES))
    used = []
    while state.build_indexes(6):
        result = ask(state, QUESTIONS[0])
        assert result.stats is not None
        used.append(result.stats.index)
        state.apply(node(3, len(used) % 9))
    # Never without an index.
    assert len(used) > 8 and set(used) == {"fits"}
    assert {report.spec.name: report.state for report in state.tables.reports()} == {"fits": "ready", "zones": "ready"}


def test_progress_is_told() -> None:
    state = cluster(40)
    state.apply(DeclareIndex(ZONES))
    told = [state.tables.reports()[0].progress]
    while state.build_indexes(4):
        (report,) = state.tables.reports()
        told.append(report.progress)
    assert told[0] == 0.0 and told == sorted(told) and len({*told}) > 10
    assert state.tables.reports()[0].progress == 1.0 and state.tables.reports()[0].rows == 40


def test_over_its_memory_limit_an_index_is_degraded_and_answers_stay() -> None:
    state = cluster(3)
    spec = IndexSpec("small", "nodes", ("free.cpu",), "columns", memory_limit_bytes=64 << 10)
    state.apply(DeclareIndex(spec))
    build(state)
    assert state.tables.reports()[0].state == "ready"
    assert ask(state, where(("free.cpu", "=", "0"), ("free.cpu", "=", "1"))).stats.index == "small"  # type: ignore[union-attr]
    for number in range(3, 9000):
        state.apply(node(number, 4))
    ask(state, where(("free.cpu", ">=", "4")))
    build(state)
    state.tables.check_memory()
    (report,) = state.tables.reports()
    assert report.state == "degraded" and report.size_bytes == 0
    assert report.reason.startswith("it takes ") and "its limit is 65536" in report.reason
    found = ask(state, where(("free.cpu", ">=", "4")))
    assert found.count == 8997 and found.stats is not None and found.stats.structure == "columns"
    assert not state.build_indexes(10)


class Breaking:
    """Somebody's own structure with a bug."""

    broken = ""
    raised: type[BaseException] = KeyError

    def _at(self, place: str) -> None:
        if self.broken == place:
            raise self.raised(place)

    def __init__(self, dimensions: int) -> None:
        self._at("init")

    def put(self, slot: int, point: Point) -> None:
        self._at("put")

    def find(self, box: Box, limit: int = 0) -> Found:
        raise self.raised("find")

    def size_bytes(self) -> int:
        self._at("size")
        return 1

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        self._at("cost")
        return 0.0


@pytest.mark.parametrize("raised", [Exception, SystemExit, asyncio.CancelledError, type("Panic", (BaseException,), {})])
@pytest.mark.parametrize("broken", ["init", "put", "size", "find", "later", "cost"])
def test_a_structure_that_fails_harms_nobody(broken: str, raised: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Breaking, "raised", raised)
    monkeypatch.setattr(catalogue, "_installed", lambda: {"breaking": None})
    monkeypatch.setattr(catalogue.Catalogue, "__getitem__", lambda self, name: Breaking)
    monkeypatch.setattr(Breaking, "broken", broken if broken != "later" else "")
    state = cluster()
    state.apply(DeclareIndex(IndexSpec("mine", "nodes", ("free.cpu",), "breaking")))
    build(state)
    monkeypatch.setattr(Breaking, "broken", "put" if broken == "later" else broken)
    for number in range(300):
        state.apply(node(number, 5))
    found = ask(state, where(("free.cpu", ">=", "4")))
    assert found.count == 300 and found.stats is not None and found.stats.structure == "columns"
    (report,) = state.tables.reports()
    assert report.state == "degraded" and "breaking" in report.reason
    assert ask(state, where(("free.cpu", ">=", "4"))).count == 300


# -- watches -----------------------------------------------------------------------------------------------------------


def test_a_watch_goes_on_when_fields_are_added_and_taken_away() -> None:
    state = cluster(9)
    hub = WatchHub(state)
    seen: list[WatchBatch] = []
    end = prefix_end(NODES.prefix)
    hub.add(NODES.prefix, end, 0, seen.append, where(("free.cpu", ">=", "4")))
    state.apply(DeclareIndex(ZONES))
    for number in range(6):
        state.apply(node(number, 8))
        hub.notify()
        state.build_indexes(3)
    build(state)
    state.apply(DropIndex("zones"))
    build(state)
    state.apply(node(0, 1))
    hub.notify()
    assert kinds(seen) == [*(("PUT", b"%d" % number) for number in range(6)), ("DELETE", b"0")]
    assert all(batch.error is None for batch in seen)


def kinds(seen: list[WatchBatch]) -> list[tuple[str, bytes]]:
    return [(event.type, event.kv.key[-1:]) for batch in seen for event in batch.events]


def test_a_watch_on_fields_that_are_being_built_waits_for_them_and_misses_nothing() -> None:
    state = cluster(9)
    state.apply(DeclareIndex(ZONES))
    declared = state.revision
    state.apply(node(3, 8, zone="z1"))
    hub = WatchHub(state)
    now: list[WatchBatch] = []
    past: list[WatchBatch] = []
    later: list[WatchBatch] = []
    end = prefix_end(NODES.prefix)
    asked = where(("zone", "=", "z1"))
    hub.add(NODES.prefix, end, 0, now.append, asked)
    hub.add(NODES.prefix, end, declared + 1, past.append, asked)
    hub.add(NODES.prefix, end, state.revision + 20, later.append, asked)
    for number in (0, 1):
        state.apply(node(number, 8, zone=f"z{1 - number}"))
    hub.notify()
    assert hub.catch_up() == 0 and len(hub) == 3 and not now and not past
    build(state)
    assert hub.catch_up() == 0
    hub.notify()
    assert kinds(now) == [("PUT", b"0"), ("DELETE", b"1")]
    assert kinds(past) == [("PUT", b"3"), ("PUT", b"0"), ("DELETE", b"1")]
    while not kinds(later):
        state.apply(node(5, 1, zone="z1"))
        hub.notify()
    assert later[0].events[0].kv.mod_revision >= state.revision
    state.apply(DropIndex("zones"))
    hub.notify()
    assert [type(seen[-1].error) for seen in (now, past, later)] == [FieldsRedeclared] * 3


def test_a_watch_that_waits_for_fields_ends_if_they_go() -> None:
    state = cluster(3)
    state.apply(DeclareIndex(ZONES))
    hub = WatchHub(state)
    seen: list[WatchBatch] = []
    hub.add(NODES.prefix, prefix_end(NODES.prefix), 0, seen.append, where(("rank", ">", "1")))
    state.apply(DropIndex("zones"))
    hub.notify()
    assert [type(batch.error) for batch in seen] == [FieldsRedeclared] and len(hub) == 0


def started(hub: WatchHub, start_revision: int, asked: Where) -> list[WatchBatch]:
    """What a watch is sent at once that starts there."""
    seen: list[WatchBatch] = []
    watcher = hub.add(NODES.prefix, prefix_end(NODES.prefix), start_revision, seen.append, asked)
    hub.catch_up()
    watcher.cancel()
    return seen


def test_a_watch_is_not_resumed_where_its_fields_meant_something_else() -> None:
    """Who goes on from what it was shown would never hear of what left the set by the declaration."""
    state = cluster(3)
    asked = where(("zone", "=", "z1"))
    state.apply(DeclareIndex(ZONES))
    build(state)
    shown = state.revision
    state.apply(DropIndex("zones"))
    other = FieldSpec("zone", "string", "path@1", {"path": "metadata.annotations.zone"})
    state.apply(DeclareIndex(replace(ZONES, declares=(other, *ZONES.declares[1:]))))
    build(state)
    hub = WatchHub(restore(records(state)))
    assert [type(batch.error) for batch in started(hub, shown + 1, asked)] == [FieldsRedeclared]
    assert [type(batch.error) for batch in started(hub, state.revision, asked)] == [FieldsRedeclared]
    assert started(hub, state.revision + 1, asked) == started(hub, 0, asked) == []
    of_its_own = started(hub, 2, where(("free.cpu", ">=", "4")))
    assert of_its_own and all(batch.error is None for batch in of_its_own)


def test_the_same_declared_by_another_index_keeps_its_meaning() -> None:
    state = cluster(3)
    state.apply(DeclareIndex(ZONES))
    state.apply(node(0, 8, zone="z1"))
    shown = state.revision
    state.apply(DeclareIndex(replace(ZONES, name="again")))
    state.apply(node(1, 8, zone="z0"))
    build(state)
    hub = WatchHub(state)
    assert kinds(started(hub, shown + 1, where(("zone", "=", "z1")))) == [("DELETE", b"1")]
    state.apply(DropIndex("zones"))
    state.apply(node(2, 8, zone="z1"))
    build(state)
    hub.notify()
    assert kinds(started(hub, state.revision, where(("zone", "=", "z1")))) == [("PUT", b"2")]


# -- what is said ------------------------------------------------------------------------------------------------------


def test_stats_and_reports_name_who_answered() -> None:
    state = cluster(50)
    state.apply(DeclareIndex(FITS))
    assert ask(state, QUESTIONS[0]).stats.structure == "columns"  # type: ignore[union-attr]
    build(state)
    stats = ask(state, QUESTIONS[0], limit=5, order="ANY").stats
    assert stats is not None and (stats.index, stats.structure, stats.objects_decoded) == ("fits", "scan", 0)
    assert 0 < stats.rows_examined <= 50
    ask(state, where(("metadata.name", "=", "n1")))
    (report,) = state.tables.reports()
    assert (report.queries, report.hits, report.rows, report.state) == (3, 1, 50, "ready")
    assert 0 < report.size_bytes < 100_000 and 0 < report.bytes_per_revision < 300
    nothing = ask(state, QUESTIONS[3]).stats
    assert nothing is not None and nothing.index == "fits" and nothing.rows_examined == 0


def test_explaining_lists_every_way_and_what_it_gives() -> None:
    state = cluster(50)
    state.apply(DeclareIndex(FITS))
    state.apply(DeclareIndex(IndexSpec("sorted", "nodes", ("free.cpu",), "columns")))
    state.apply(DeclareIndex(IndexSpec("named", "nodes", ("metadata.name",), "scan")))
    build(state)
    state.apply(DeclareIndex(ZONES))
    found = state.explain(
        RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=QUESTIONS[1], limit=3, order="ANY")
    )
    keys = {choice.name: run()[0].keys for choice, run in found.ways if run is not None}
    assert keys.keys() == {"", "fits", "sorted"} and all(len(each) == 3 for each in keys.values())
    reasons = {choice.name or choice.structure: choice.reason for choice, run in found.ways if run is None}
    assert reasons.keys() == {"named", "scan"} and "none of the queried fields" in reasons["named"]
    estimates = [choice.estimated_us for choice, run in found.ways if run is not None]
    assert estimates == sorted(estimates) and 0 < found.share < 1 and found.rows == 50
    with pytest.raises(InvalidRequest, match="nothing to explain without a condition"):
        state.explain(RangeRequest(NODES.prefix, prefix_end(NODES.prefix)))
    scanned = state.explain(RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=QUESTIONS[4]))
    ((choice, run),) = scanned.ways
    assert choice.structure == "scan" and run is not None and run()[1].objects_decoded == 50


def test_a_snapshot_with_a_declaration_that_does_not_read_is_corrupt() -> None:
    state = cluster(2)
    state.apply(DeclareIndex(FITS))
    slices = [[list(record) for record in each] for each in records(state)]
    for each in slices:
        for record in each:
            if record[0] == 2:
                record[2] = [
                    [key_of("fits"), b"nonsense", 0] if slim[0] == key_of("fits") else slim for slim in record[2]
                ]
    with pytest.raises(Corruption, match="is not JSON"):
        restore(slices)


def test_the_planner_prefers_what_costs_least(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster(0)
    rng = np.random.default_rng(3)
    for number, cpu in enumerate(rng.integers(0, 60, 3000).tolist()):
        state.apply(node(number, cpu))
    state.apply(DeclareIndex(FITS))
    state.apply(DeclareIndex(IndexSpec("quick", "nodes", ("free.cpu", "free.memory"), "columns")))
    build(state)
    # Looking at 3000 points one by one is never the best when all are wanted.
    for asked in QUESTIONS[:3]:
        stats = ask(state, asked).stats
        assert stats is not None and stats.index == "quick"
    monkeypatch.setattr(planner, "COLUMNS_US", 0.0)
    assert ask(state, QUESTIONS[0]).stats.index == "quick"  # type: ignore[union-attr]
    state.apply(node(0, 1))
    state.tables.version += 1
    assert ask(state, QUESTIONS[0]).stats.index == ""  # type: ignore[union-attr]


def test_an_index_declared_while_a_table_is_being_filled_for_another_has_all_rows() -> None:
    state = cluster(20)
    # What stood then is given to the table without a word to those who follow it.
    state.apply(Compact(state.revision))
    state.apply(DeclareIndex(ZONES))
    for _ in range(3):
        state.build_indexes(2)
    state.apply(DeclareIndex(FITS))
    build(state, 2)
    table = state.tables.by_name["nodes"]
    for name in ("fits", "zones"):
        hosted = table.running[name].hosted
        assert hosted is not None
        assert hosted.query(Where(), table.index.revision).count == 20
