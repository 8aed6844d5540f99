"""The state machine's own rules: what generated histories do not say in words."""

from __future__ import annotations

from typing import Any

import msgpack
import orjson
import pytest

from minikube_py.errors import Compacted, Corruption, InvalidRequest, LeaseNotFound, RequestError
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import SCANNED_MAX, SLICE_RECORDS, restore
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeclareFields,
    DeleteRange,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseRevoke,
    Put,
    RangeRequest,
    Txn,
    prefix_end,
)

NODES_END = prefix_end(NODES.prefix)


def node(name: str, cpu: str = "4") -> Put:
    return Put(
        NODES.prefix + name.encode(),
        orjson.dumps({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}),
    )


def pod(name: str, node_name: str, cpu: str = "1", phase: str = "Running") -> Put:
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    body = {"spec": {"nodeName": node_name, "containers": containers}, "status": {"phase": phase}}
    return Put(PODS.prefix + name.encode(), orjson.dumps(body))


def declared() -> StateMachine:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    state.apply(DeclareFields(PODS))
    return state


def free(state: StateMachine, name: str, revision: int = 0) -> Any:
    result = state.range(RangeRequest(NODES.prefix + name.encode(), fields=("free.cpu",), revision=revision))
    return result.fields[0][0] if result.fields else None


def test_sums_follow_the_life_of_a_pod() -> None:
    state = declared()
    steps = [
        (pod("a", "n1", "1"), None),  # before its node
        (node("n1"), 3000),
        (pod("b", "n1", "2"), 1000),
        (pod("b", "n2", "2"), 3000),  # bound elsewhere
        (pod("b", "n1", "500m"), 2500),
        (pod("b", "", "500m"), 3000),  # unbound
        (pod("a", "n1", "1", "Succeeded"), 4000),  # finished
        (pod("a", "n1", "1"), 3000),
        (node("n1", "8"), 7000),
        (DeleteRange(NODES.prefix + b"n1"), None),
        (pod("b", "n1", "1"), None),
        (node("n1", "8"), 6000),
        (DeleteRange(PODS.prefix, prefix_end(PODS.prefix)), 8000),
        (pod("c", "n1", "20"), -12000),
    ]
    seen = []
    for command, expected in steps:
        state.apply(command)
        assert free(state, "n1") == expected, command
        seen.append((state.revision, expected))
    for revision, expected in seen:
        assert free(state, "n1", revision) == expected


def test_a_txn_is_one_step_for_the_index() -> None:
    state = declared()
    state.apply(Txn((), (node("n1"), node("n2"), pod("a", "n1"), pod("b", "n1"))))
    for field_set, names in ((NODES, (b"n1", b"n2")), (PODS, (b"a", b"b"))):
        changed = state.tables.by_name[field_set.name].index.changed(1, state.revision)
        assert sorted(changed) == [(state.revision, field_set.prefix + name) for name in names]
    assert free(state, "n1") == 2000
    assert state.tables.by_name["nodes"].index.stats().retained_versions == 2


REFUSED: dict[str, tuple[Any, type[RequestError]]] = {
    "no lease": (Txn((), (Put(b"a", b"1"), Put(b"b", b"2", lease=9))), LeaseNotFound),
    "future read after a write": (Txn((), (Put(b"a", b"1"), RangeRequest(b"a", revision=99))), RequestError),
    "ignore_value of a missing key": (Txn((), (Put(b"a", b"1"), Put(b"b", b"", ignore_value=True))), InvalidRequest),
    "a where in a txn": (
        Txn((), (Put(b"a", b"1"), RangeRequest(NODES.prefix, NODES_END, where=Where()))),
        InvalidRequest,
    ),
    "bytes for a number": (Txn((Compare(b"a", "MOD", "=", b"1"),), (Put(b"a", b"1"),)), InvalidRequest),
    "a number for bytes": (Txn((Compare(b"a", "VALUE", "=", 1),), (Put(b"a", b"1"),)), InvalidRequest),
    "revoke": (LeaseRevoke(9), LeaseNotFound),
    "checkpoint": (LeaseCheckpoint(9, 3), LeaseNotFound),
    "fields": (DeclareFields(FieldSet("x", b"/x/", (FieldSpec("a", "int", "nope@9"),))), InvalidRequest),
    "no command": (RangeRequest(b"a"), InvalidRequest),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_changes_nothing(name: str) -> None:
    command, error = REFUSED[name]
    state = declared()
    state.apply(node("n1"))
    before = (state.hash(), state.revision, list(records_of(state)))
    with pytest.raises(error):
        state.apply(command)
    assert (state.hash(), state.revision, list(records_of(state))) == before
    assert state.last_events == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            RangeRequest(b"/registry/x/", b"/registry/x0", where=Where()),
            "no fields are declared for keys under /registry/x/",
        ),
        (RangeRequest(b"/registry/", b"/registry0", where=Where()), "no fields are declared for keys under /registry/"),
        (RangeRequest(NODES.prefix, b"\0", where=Where()), "no fields are declared for keys under /registry/nodes/"),
        (
            RangeRequest(NODES.prefix, NODES_END, where=Where((Comparison("nope", "=", ("1",)),))),
            "field 'nope' is not declared for keys under /registry/nodes/",
        ),
        (
            RangeRequest(NODES.prefix, NODES_END, fields=("nope",)),
            "field 'nope' is not declared for keys under /registry/nodes/",
        ),
        (
            RangeRequest(NODES.prefix, NODES_END, where=Where((Comparison("free.cpu", "=", ("x",)),))),
            "unable to parse 'x' as a quantity for field free.cpu: quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_queries_that_cannot_be_answered(request_: RangeRequest, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        declared().range(request_)
    assert str(refused.value) == message


def test_fields_declared_late_answer_for_all_that_is_retained() -> None:
    early, late = declared(), StateMachine()
    for state in (early, late):
        for number in range(20):
            state.apply(node(f"n{number % 3}", str(number)))
            state.apply(pod(f"p{number % 7}", f"n{number % 4}"))
        state.apply(Compact(15))
    late.apply(DeclareFields(NODES))
    late.apply(DeclareFields(PODS))
    for revision in range(15, early.revision + 1):
        assert early.hash(revision) == late.hash(revision)
    # Said again, it stays; said differently, it is built again.
    table = late.tables.by_name["nodes"]
    late.apply(DeclareFields(NODES))
    assert late.tables.by_name["nodes"] is table
    late.apply(
        DeclareFields(FieldSet("nodes", NODES.prefix, (FieldSpec("a", "string", "path@1", {"path": "metadata.name"}),)))
    )
    found = late.range(RangeRequest(NODES.prefix, NODES_END, where=Where((Comparison("a", "=", ("n1",)),))))
    assert [kv.key for kv in found.kvs] == [NODES.prefix + b"n1"]


def test_memory_is_bounded_under_churn() -> None:
    state = declared()
    state.apply(node("n1"))
    sizes = []
    for generation in range(6):
        for number in range(400):
            state.apply(pod(f"g{generation}-{number}", "n1"))
            state.apply(DeleteRange(PODS.prefix + f"g{generation}-{number}".encode()))
        state.apply(Compact(state.revision))
        while state.trim(100):
            pass
        sizes.append(state.size_bytes)
    # Chunks of the log and slots are reused: no generation leaves more behind than the one before.
    assert sizes[-1] <= sizes[1]
    assert not state.index.history
    assert len(state.log.flat(state.revision - 1, state.revision)) == 1


def test_trimming_goes_on_with_later_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.mvcc.state.TRIM_PER_COMPACT", 10)
    state = StateMachine()
    for number in range(300):
        state.apply(Put(b"a", b"%d" % number))
    state.apply(Compact(300))
    assert len(state.index.history[b"a"]) == 1
    with pytest.raises(Compacted):
        state.range(RangeRequest(b"a", revision=299))
    first = state.log.first
    for number in range(20):
        state.apply(Put(b"b", b"%d" % number))
    assert first < state.log.first == 300


def test_leases_are_listed_with_their_keys() -> None:
    state = StateMachine()
    assert state.apply(LeaseGrant(7, 1)).ttl_s == 2  # type: ignore[union-attr]
    state.apply(LeaseGrant(3, 60))
    for key in (b"b", b"a"):
        state.apply(Put(key, b"", lease=7))
    assert (state.leases(), state.lease_keys(7)) == ([(3, 60), (7, 2)], [b"a", b"b"])
    state.apply(LeaseCheckpoint(3, 12))
    restored = restore(list(records_of(state)))
    assert restored.lessor.by_id == state.lessor.by_id


def damaged(records: list[Any], kind: str) -> list[Any]:
    if kind == "no end":
        return records[:-1]
    if kind == "no head":
        return records[1:]
    if kind == "an event lost":
        return [record for record in records if record[0] != 2 or record[1] != 4]
    if kind == "unknown record":
        return [*records[:-1], [99], records[-1]]
    if kind == "bad shape":
        return [records[0], [2, "x", 3], *records[1:]]
    return []


@pytest.mark.parametrize("kind", ["no end", "no head", "an event lost", "unknown record", "bad shape", "nothing"])
def test_a_damaged_snapshot_is_refused(kind: str) -> None:
    state = declared()
    for number in range(5):
        state.apply(Put(b"k%d" % number, b"v"))
    records = [record for each in records_of(state) for record in msgpack.unpackb(msgpack.packb(each))]
    assert restore([records]).hash() == state.hash()
    with pytest.raises(Corruption):
        restore([damaged(records, kind)])


def test_a_slice_of_a_snapshot_ends_where_there_is_much_to_pass_over() -> None:
    state = StateMachine()
    keys = 3 * SCANNED_MAX
    for i in range(keys):
        state.apply(Put(b"k%d" % i, b"1"))
    state.apply(Compact(state.revision))
    kept = state.hash()
    for i in range(keys):
        state.apply(Put(b"k%d" % i, b"2"))
    slices = list(records_of(state))
    assert [len(records) for records in slices[:4]] == [1, 0, 0, SLICE_RECORDS]
    assert restore(slices).hash(state.compact_revision) == kept
    for i in range(keys):
        state.apply(Put(b"k%d" % i, b"3"))
    slices = list(records_of(state))
    assert slices.count([]) >= 2 + keys // SCANNED_MAX - 1 and max(map(len, slices)) == SLICE_RECORDS
    assert restore(slices).hash() == state.hash()


def test_a_snapshot_is_of_its_call_not_of_its_reading() -> None:
    state = StateMachine()
    for number in range(1200):
        state.apply(Put(b"k%04d" % number, b"v"))
    digest, slices = state.hash(), records_of(state)
    first = next(slices)
    state.apply(DeleteRange(b"k", b"l"))
    state.apply(Compact(state.revision))
    state.trim(10_000)
    restored = restore([first, *slices])
    assert (restored.hash(), restored.revision) == (digest, 1201)


def test_commands_are_small_on_disk() -> None:
    create = Txn((Compare(b"key", "MOD", "=", 0),), (Put(b"key", b"v" * 100),), (RangeRequest(b"key"),))
    assert len(pack(create)) < 200


def test_what_a_txn_has_deleted_has_nothing_left_to_keep() -> None:
    """A delete to the end of all keys and a put of one of them in a nested txn: an overlap that etcd does not see."""
    state = StateMachine()
    state.apply(LeaseGrant(1, 60))
    state.apply(Put(b"a", b"v", 1))
    again = Txn((), (Put(b"a", b"", ignore_lease=True),))
    assert state.apply(Txn((), (DeleteRange(b"a", b"\0"), again))).succeeded
    kv = state.get(b"a")
    assert kv is not None and (kv.value, kv.lease, kv.version) == (b"", 0, 1)


def test_a_digest_taken_in_slices_is_that_of_its_moment():
    state = StateMachine()
    for i in range(1200):
        state.apply(Put(b"/%04d" % i, b"v"))
    digest, steps = state.hash(), state.hash_steps()
    result = None
    for i in range(100):
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
            break
        state.apply(Put(b"/%04d" % (i * 7), b"later"))
        state.apply(DeleteRange(b"/%04d" % (1199 - i)))
    assert result == digest != state.hash()
    cut_off = state.hash_steps()
    next(cut_off)
    state.apply(Put(b"/more", b"v"))
    state.apply(Compact(state.revision))
    with pytest.raises(Compacted):
        next(cut_off)
