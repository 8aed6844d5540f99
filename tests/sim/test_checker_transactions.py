"""The transaction checker: named histories, and right ones from a state machine, whole and spoiled."""

from __future__ import annotations

import random

import pytest
from correct_history import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st
from judged import assert_found, assert_passes

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.types import (
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    DeleteRange,
    DeleteResult,
    Event,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.sim.checkers import transactions
from minikube_py.sim.checkers.transactions import changes
from minikube_py.sim.history import Delivery, History, Operation, Watch, WatchPart


def done(call, back, request, result, **more):
    return Operation(1, call, back, request, "done", result, **more)


def unknown(call, request):
    return Operation(2, call, None, request, "unknown")


def refused(call, back, request, error):
    return Operation(1, call, back, request, "refused", None, error)


def kv(key, value, mod, create=None, version=1, lease=0):
    return KeyValue(key, value, create or mod, mod, version, lease)


def put(call, back, key, value, revision):
    return done(call, back, Put(key, value), PutResult(revision))


def got(call, back, key, kvs, revision, **more):
    return done(call, back, RangeRequest(key, **more), RangeResult(kvs, len(kvs), False, revision))


A2, B3 = kv(b"a", b"1", 2), kv(b"b", b"2", 3)
ALL = b"\0"


def everything(call, back, kvs, revision):
    return done(call, back, RangeRequest(ALL, ALL), RangeResult(kvs, len(kvs), False, revision))


BOTH = Txn((Compare(b"a", "VERSION", "=", 0),), (Put(b"a", b"1"), Put(b"b", b"1")), (RangeRequest(b"a"),))
BOTH_DONE = TxnResult(2, True, (PutResult(2), PutResult(2)))
BOTH_KVS = [kv(b"a", b"1", 2), kv(b"b", b"1", 2)]

GOOD = {
    "nothing": [],
    "a put and a read": [put(1, 2, b"a", b"1", 2), got(3, 4, b"a", [A2], 2)],
    "overlapping puts in either order": [put(1, 9, b"b", b"2", 3), put(2, 8, b"a", b"1", 2)],
    "a txn of two keys": [done(1, 2, BOTH, BOTH_DONE), everything(3, 4, BOTH_KVS, 2)],
    "a compare that failed, with what it read": [
        put(1, 2, b"a", b"1", 2),
        done(3, 4, BOTH, TxnResult(2, False, (RangeResult([A2], 1, False, 2),))),
    ],
    "an unknown write that was seen": [unknown(1, Put(b"a", b"1")), got(5, 6, b"a", [A2], 2)],
    "an unknown write that was not done": [unknown(1, Put(b"a", b"1")), got(5, 6, b"a", [], 1)],
    "of two unknown writes the one that was seen": [
        unknown(1, Put(b"a", b"0")), unknown(1, Put(b"a", b"1")), got(5, 6, b"a", [A2], 2),
    ],
    "an unknown write beneath an acknowledged one": [unknown(1, Put(b"x", b"0")), put(2, 3, b"b", b"2", 3)],
    "unknown writes in the order that a later compare needs": [
        unknown(1, Put(b"x", b"0")), unknown(1, DeleteRange(b"x")),
        done(5, 6, Txn((Compare(b"x", "VERSION", "=", 0),), (Put(b"a", b"1"),)), TxnResult(4, True, (PutResult(4),))),
    ],
    "a read of the past": [
        put(1, 2, b"a", b"1", 2), put(3, 4, b"a", b"2", 3),
        done(5, 6, RangeRequest(b"a", revision=2), RangeResult([A2], 1, False, 3)),
    ],
    "a serializable read of the past": [
        put(1, 2, b"a", b"1", 2), put(3, 4, b"a", b"2", 3),
        got(5, 6, b"a", [A2], 2)._replace(serializable=True),
    ],
    "a page of a range": [
        put(1, 2, b"a", b"1", 2), put(3, 4, b"b", b"2", 3),
        done(5, 6, RangeRequest(b"a", b"z", limit=1), RangeResult([A2], 2, True, 3)),
    ],
    "keys only, and counted": [
        put(1, 2, b"a", b"1", 2),
        done(5, 6, RangeRequest(b"a", keys_only=True), RangeResult([A2._replace(value=b"")], 1, False, 2)),
        done(7, 8, RangeRequest(b"a", count_only=True), RangeResult([], 1, False, 2)),
    ],
    "a lease that ended by itself": [
        done(1, 2, LeaseGrant(7, 5), LeaseResult(1, 7, 5)),
        done(3, 4, Put(b"a", b"1", 7), PutResult(2)),
        everything(9, 10, [], 3),
    ],
    "a lease that was revoked": [
        done(1, 2, LeaseGrant(7, 5), LeaseResult(1, 7, 5)),
        done(3, 4, Put(b"a", b"1", 7), PutResult(2)),
        done(5, 6, LeaseRevoke(7), LeaseResult(3, 7, 5)),
        everything(9, 10, [], 3),
    ],
    "a revoke that deleted nothing": [
        done(1, 2, LeaseGrant(7, 5), LeaseResult(1, 7, 5)),
        put(3, 4, b"a", b"1", 2),
        done(5, 6, LeaseRevoke(7), LeaseResult(2, 7, 5)),
    ],
    "a compaction": [
        put(1, 2, b"a", b"1", 2), put(3, 4, b"a", b"2", 3),
        done(5, 6, Compact(3), CompactResult(3)),
        refused(7, 8, RangeRequest(b"a", revision=2), Compacted(2, 3)),
        done(9, 10, RangeRequest(b"a", revision=3), RangeResult([kv(b"a", b"2", 3, 2, 2)], 1, False, 3)),
    ],
    "a future revision": [refused(1, 2, RangeRequest(b"a", revision=9), FutureRevision(9, 1))],
    "deleting nothing": [done(1, 2, DeleteRange(b"a"), DeleteResult(1, 0))],
    "a txn reads what it wrote": [
        done(1, 2, Txn((), (Put(b"a", b"1"), RangeRequest(b"a"))),
             TxnResult(2, True, (PutResult(2), RangeResult([A2], 1, False, 2)))),
    ],
}  # fmt: skip

BAD = {
    "a lost write": ([put(1, 2, b"a", b"1", 2), got(3, 4, b"a", [], 2)], "the replay gives"),
    "a lost revision": ([put(1, 2, b"a", b"1", 2), got(3, 4, b"a", [], 1)], "a later one was seen"),
    "a stale read": (
        [put(1, 2, b"a", b"1", 2), put(3, 4, b"a", b"2", 3), got(5, 6, b"a", [A2], 2)], "a later one was seen"),
    "a read of what nobody wrote": ([got(1, 2, b"a", [A2], 2)], "no write is known"),
    "a wrong value": ([put(1, 2, b"a", b"1", 2), got(3, 4, b"a", [kv(b"a", b"x", 2)], 2)], "was seen as"),
    "a wrong version": ([put(1, 2, b"a", b"1", 2), got(3, 4, b"a", [kv(b"a", b"1", 2, 2, 2)], 2)], "was seen as"),
    "against real time": ([put(1, 2, b"a", b"1", 3), put(3, 4, b"b", b"2", 2)], "before its write"),
    "two writes of one revision": ([put(1, 9, b"a", b"1", 2), put(2, 8, b"b", b"2", 2)], "were both answered"),
    "a revision too many": ([put(1, 2, b"a", b"1", 3)], "no write is known"),
    "an unknown write done twice": (
        [unknown(1, Put(b"a", b"1")), got(3, 4, b"a", [A2], 2),
         got(5, 6, b"a", [kv(b"a", b"1", 3, 2, 2)], 3)], "no write is known"),
    "an unknown write seen before its call": ([got(1, 2, b"a", [A2], 2), unknown(5, Put(b"a", b"1"))], "no write is"),
    "a refused write that was done": (
        [refused(1, 2, Put(b"a", b"1"), None), got(3, 4, b"a", [A2], 2)], "no write is known"),
    "half a txn": ([done(1, 2, BOTH, BOTH_DONE), everything(3, 4, BOTH_KVS[:1], 2)], "the replay gives"),
    "a compare that had to fail": (
        [put(1, 2, b"a", b"0", 2), done(3, 4, BOTH, TxnResult(3, True, (PutResult(3), PutResult(3))))], "changes"),
    "a compare that had to hold": (
        [put(1, 2, b"b", b"0", 2), done(3, 4, BOTH, TxnResult(2, False, (RangeResult([], 0, False, 2),)))], "changed"),
    "a wrong count": (
        [put(1, 2, b"a", b"1", 2), done(3, 4, DeleteRange(b"a", b"z"), DeleteResult(3, 2))], "the replay gives"),
    "a page without more": (
        [put(1, 2, b"a", b"1", 2), put(3, 4, b"b", b"2", 3),
         done(5, 6, RangeRequest(b"a", b"z", limit=1), RangeResult([A2], 2, False, 3))], "the replay gives"),
    "a serializable read of what never was": (
        [put(1, 2, b"a", b"1", 2), got(5, 6, b"a", [], 2)._replace(serializable=True)], "the replay gives"),
    "a read before a linearizable one that is newer": (
        [put(1, 90, b"a", b"1", 2), got(3, 4, b"a", [A2], 2), got(5, 6, b"a", [], 1)], "a later one was seen"),
    "a put with a lease that nobody asked for": (
        [done(3, 4, Put(b"a", b"1", 7), PutResult(2))], "which was not requested"),
    "a put with a lease that was revoked": (
        [done(1, 2, LeaseGrant(7, 5), LeaseResult(1, 7, 5)), put(3, 4, b"b", b"1", 2),
         done(5, 6, LeaseRevoke(7), LeaseResult(2, 7, 5)), done(7, 8, Put(b"a", b"1", 7), PutResult(3))], "had ended"),
    "a revoke that left a key": (
        [done(1, 2, LeaseGrant(7, 5), LeaseResult(1, 7, 5)), done(3, 4, Put(b"a", b"1", 7), PutResult(2)),
         done(5, 6, LeaseRevoke(7), LeaseResult(2, 7, 5)), put(7, 8, b"b", b"1", 3)], "ended by then"),
    "a read of what was compacted": (
        [put(1, 2, b"a", b"1", 2), put(3, 4, b"a", b"2", 3), done(5, 6, Compact(3), CompactResult(3)),
         done(7, 8, RangeRequest(b"a", revision=2), RangeResult([A2], 1, False, 3))], "had compacted was answered"),
    "compacted by nobody": ([refused(1, 2, RangeRequest(b"a", revision=1), Compacted(1, 3))], "that was not requested"),
    "refused at the compacted revision": (
        [put(1, 2, b"a", b"1", 2), done(3, 4, Compact(2), CompactResult(2)),
         refused(5, 6, RangeRequest(b"a", revision=2), Compacted(3, 2))], "it was not"),
    "a future that is not": ([refused(1, 2, RangeRequest(b"a", revision=1), FutureRevision(1, 1))], "it was not"),
    "a key put twice in one txn": (
        [done(1, 2, Txn((), (Put(b"a", b"1"), Put(b"a", b"2"))), TxnResult(2, True, (PutResult(2), PutResult(2))))],
        "put twice"),
    "a wrong previous value": (
        [put(1, 2, b"a", b"1", 2), done(3, 4, Put(b"a", b"2", prev_kv=True), PutResult(3, None))], "the replay gives"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name):
    assert_passes(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name):
    assert_found(*BAD[name])


def test_what_a_watch_saw_pins_an_unknown_write():
    batch = WatchBatch([Event("PUT", A2, None)], 2)
    watch = Watch(9, b"a", parts=[WatchPart(2, 1, deliveries=[Delivery(3, batch)])])
    candidates = [unknown(1, Put(b"b", b"1")), unknown(1, Put(b"a", b"1"))]
    checked = transactions.check(History([*candidates, put(5, 6, b"c", b"2", 3)], [watch]))
    assert checked.verdict.ok and checked.writers[2] is candidates[1]
    checked = transactions.check(History(candidates[:1], [watch]))
    assert checked.verdict.outcome == "violation"


def test_a_watch_that_saw_nothing_speaks_against_a_writer():
    watch = Watch(9, b"a", parts=[WatchPart(2, 1, deliveries=[Delivery(7, WatchBatch([], 3))])])
    candidates = [unknown(1, Put(b"a", b"1")), unknown(2, Put(b"b", b"1"))]
    checked = transactions.check(History([*candidates, put(5, 6, b"c", b"2", 3)], [watch]))
    assert checked.writers[2] is candidates[1]


def test_a_where_is_answered_by_looking_at_every_object():
    node = b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"4"}}}'
    pod = b'{"spec":{"nodeName":"n","containers":[{"resources":{"requests":{"cpu":"1500m"}}}]}}'
    where = Where((Comparison("free.cpu", ">=", ("2500m",)),))
    ask = RangeRequest(NODES.prefix, b"/registry/nodes0", where=where, fields=("free.cpu",))
    key = NODES.prefix + b"n"
    answer = RangeResult([kv(key, node, 2)], 1, False, 3, [(2500,)])
    operations = [
        done(1, 2, DeclareFields(NODES), CompactResult(1)),
        put(3, 4, key, node, 2),
        put(5, 6, b"/registry/pods/p", pod, 3),
        done(7, 8, ask, answer),
    ]
    assert transactions.check(History(operations)).verdict.ok
    for wrong in (
        answer._replace(kvs=[], count=0, fields=[]),
        answer._replace(fields=[(4000,)]),
        answer._replace(count=2),
    ):
        operations[3] = done(7, 8, ask, wrong)
        assert transactions.check(History(operations)).verdict.outcome == "violation"
    anyhow = ask._replace(order="ANY", limit=1, fields=())
    operations[3] = done(7, 8, anyhow, answer._replace(count=-1, fields=None))
    assert transactions.check(History(operations)).verdict.ok
    operations[3] = done(7, 8, anyhow, answer._replace(kvs=[], fields=None))
    assert transactions.check(History(operations)).verdict.outcome == "violation"


def test_a_search_without_an_end_is_undecided():
    puts = [unknown(1, Put(b"%d" % i, b"x")) for i in range(12)]
    contradiction = done(50, 51, RangeRequest(b"z"), RangeResult([], 1, False, 13))
    verdict = transactions.check(History([*puts, contradiction]), steps_max=3000).verdict
    assert verdict.outcome == "undecided" and "3000 steps" in verdict.text


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_what_a_right_store_did_passes(seed):
    checked = transactions.check(Recorder(seed).run())
    assert checked.verdict.ok, checked.verdict.text


# -- right histories, spoiled ------------------------------------------------------------------------------------------


def replace_one(history, rng, wanted, change):
    """Changes one of the operations for which `wanted` holds; False if there is none."""
    places = [place for place, each in enumerate(history.operations) if wanted(each)]
    if not places:
        return False
    place = rng.choice(places)
    history.operations[place] = change(history.operations[place])
    return True


def is_read(operation, least=1):
    result = operation.result
    return operation.status == "done" and isinstance(result, RangeResult) and len(result.kvs) >= least


def with_kvs(operation, change):
    kvs = list(operation.result.kvs)
    change(kvs)
    return operation._replace(result=operation.result._replace(kvs=kvs))


def swap_values(history, rng):
    def change(kvs):
        kvs[0], kvs[1] = kvs[0]._replace(value=kvs[1].value), kvs[1]._replace(value=kvs[0].value)

    return replace_one(history, rng, lambda each: is_read(each, 2), lambda each: with_kvs(each, change))


def lose_a_key(history, rng):
    return replace_one(history, rng, is_read, lambda each: with_kvs(each, lambda kvs: kvs.pop(rng.randrange(len(kvs)))))


def stale_read(history, rng):
    """A linearizable read answers from before something that had been acknowledged when it was called."""
    model = transactions.check(history).model
    returned = {
        each.result.revision: each.return_us
        for each in history.operations
        if each.status == "done" and changes(each.result)
    }

    def wanted(operation):
        if not isinstance(operation.request, RangeRequest) or operation.status != "done" or operation.request.where:
            return False
        return not operation.request.revision and returned.get(operation.result.revision, 1 << 60) < operation.call_us

    def change(operation):
        return operation._replace(result=model.range(operation.request, operation.result.revision - 1))

    return replace_one(history, rng, wanted, change)


def lose_a_write(history, rng):
    """It was acknowledged, and is refused in the record: its revision has no writer, for its value is its own."""

    def wanted(operation):
        return operation.status == "done" and type(operation.request) is Put and operation.request.value[:1] == b"v"

    return replace_one(history, rng, wanted, lambda each: each._replace(status="refused", result=None))


def reorder_writes(history, rng):
    """Two writes, one after the other in real time, tell each other's revision."""
    puts = [
        place
        for place, each in enumerate(history.operations)
        if each.status == "done" and type(each.request) is Put and type(each.result) is PutResult
    ]
    pairs = [
        (one, two)
        for one in puts
        for two in puts
        if history.operations[one].return_us < history.operations[two].call_us
    ]
    if not pairs:
        return False
    one, two = rng.choice(pairs)
    first, second = history.operations[one], history.operations[two]
    history.operations[one] = first._replace(result=second.result)
    history.operations[two] = second._replace(result=first.result)
    return True


def flip_a_compare(history, rng):
    def wanted(operation):
        return operation.status == "done" and isinstance(operation.result, TxnResult)

    def change(operation):
        return operation._replace(result=operation.result._replace(succeeded=not operation.result.succeeded))

    return replace_one(history, rng, wanted, change)


def miscount(history, rng):
    def change(operation):
        return operation._replace(result=operation.result._replace(count=operation.result.count + 1))

    return replace_one(history, rng, lambda each: is_read(each, 0), change)


def acknowledge_twice(history, rng):
    """A write that was done once was acknowledged to two clients."""
    writes = [each for each in history.operations if each.status == "done" and changes(each.result)]
    if not writes:
        return False
    history.operations.append(rng.choice(writes)._replace(client=99))
    return True


SPOILED = [
    swap_values, lose_a_key, stale_read, lose_a_write, reorder_writes, flip_a_compare, miscount, acknowledge_twice,
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32))
def test_a_spoiled_history_is_found(spoil, seed):
    history = Recorder(seed).run()
    if spoil(history, random.Random(seed)):
        verdict = transactions.check(history).verdict
        assert verdict.outcome == "violation"
        assert verdict.text
