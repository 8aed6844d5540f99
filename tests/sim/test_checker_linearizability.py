"""The register checker: named histories, and random ones against all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    DeleteResult,
    KeyValue,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.sim.checkers.linearizability import NEVER_US, RegisterOp, check, check_register
from minikube_py.sim.history import Operation

KEY = b"/r/1"


def write(call: int, back: int, value: bytes) -> RegisterOp:
    return RegisterOp("write", call, back, value)


def read(call: int, back: int, seen: bytes | None) -> RegisterOp:
    return RegisterOp("read", call, back, seen=seen)


def swap(call: int, back: int, expected: bytes | None, value: bytes, swapped: bool) -> RegisterOp:
    return RegisterOp("swap", call, back, value, expected, seen=swapped)


def delete(call: int, back: int, there: bool) -> RegisterOp:
    return RegisterOp("delete", call, back, seen=there)


def lost(op: RegisterOp) -> RegisterOp:
    return op._replace(return_us=NEVER_US, known=False)


GOOD = {
    "nothing was done": [],
    "one after another": [write(1, 2, b"a"), read(3, 4, b"a")],
    "a read beside a write sees the old": [write(1, 9, b"a"), read(2, 3, None)],
    "a read beside a write sees the new": [write(1, 9, b"a"), read(2, 3, b"a")],
    "two reads beside a write, old then new": [write(1, 9, b"a"), read(2, 3, None), read(4, 5, b"a")],
    "writes that overlap, either order": [write(1, 9, b"a"), write(2, 8, b"b"), read(10, 11, b"a")],
    "an unknown write was done": [lost(write(1, 2, b"a")), read(5, 6, b"a")],
    "an unknown write was never done": [lost(write(1, 2, b"a")), read(5, 6, None)],
    "an unknown write was done late": [lost(write(1, 2, b"a")), read(5, 6, None), read(7, 8, b"a")],
    "a swap that holds": [write(1, 2, b"a"), swap(3, 4, b"a", b"b", True), read(5, 6, b"b")],
    "a swap that does not": [write(1, 2, b"a"), swap(3, 4, b"x", b"b", False), read(5, 6, b"a")],
    "create if absent": [swap(1, 2, None, b"a", True), swap(3, 4, None, b"b", False)],
    "deleted and made again": [write(1, 2, b"a"), delete(3, 4, True), read(5, 6, None), swap(7, 8, None, b"b", True)],
    "a call at the moment of a return overlaps it": [write(1, 5, b"a"), read(5, 6, None)],
}

BAD = {
    "a read of what nobody wrote": [read(1, 2, b"a")],
    "a stale read": [write(1, 2, b"a"), write(3, 4, b"b"), read(5, 6, b"a")],
    "a lost write": [write(1, 2, b"a"), read(3, 4, None)],
    "new, then old": [write(1, 9, b"a"), read(2, 3, b"a"), read(4, 5, None)],
    "two swaps of one value": [write(1, 2, b"a"), swap(3, 9, b"a", b"b", True), swap(4, 8, b"a", b"c", True)],
    "a swap that had to hold": [write(1, 2, b"a"), swap(3, 4, b"a", b"b", False)],
    "created twice": [swap(1, 9, None, b"a", True), swap(2, 8, None, b"b", True)],
    "deleted what was not there": [delete(1, 2, True)],
    "deleted, and still there": [write(1, 2, b"a"), delete(3, 4, True), read(5, 6, b"a")],
    "read before the call of an unknown write": [read(1, 2, b"a"), lost(write(3, 4, b"a"))],
    "an unknown write done twice": [
        lost(write(1, 2, b"a")), read(3, 4, b"a"), write(5, 6, b"b"), read(7, 8, b"b"), read(9, 10, b"a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name):
    verdict = check_register(KEY, GOOD[name])
    assert verdict.ok, verdict.text


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_found(name):
    verdict = check_register(KEY, BAD[name])
    assert verdict.outcome == "violation"
    assert "not linearizable" in verdict.text and "RegisterOp" in verdict.text


def by_permutation(ops: list[RegisterOp]) -> bool:
    """The definition itself: some subset with all that is known, in some order that real time allows, all fitting."""
    optional = [op for op in ops if not op.known]
    for chosen in range(1 << len(optional)):
        some = [op for place, op in enumerate(optional) if chosen >> place & 1]
        for order in permutations([*(op for op in ops if op.known), *some]):
            if any(later.return_us < earlier.call_us for i, earlier in enumerate(order) for later in order[i + 1 :]):
                continue
            content: bytes | None = None
            for op in order:
                fits, content = op.then(content)
                if not fits:
                    break
            else:
                return True
    return False


VALUES = st.sampled_from([b"a", b"b"])
SEEN = st.sampled_from([None, b"a", b"b"])


@st.composite
def register_ops(draw):
    ops = []
    for _ in range(draw(st.integers(1, 5))):
        call = draw(st.integers(0, 12))
        back = call + draw(st.integers(1, 6))
        op = draw(
            st.one_of(
                st.builds(write, st.just(call), st.just(back), VALUES),
                st.builds(read, st.just(call), st.just(back), SEEN),
                st.builds(swap, st.just(call), st.just(back), SEEN, VALUES, st.booleans()),
                st.builds(delete, st.just(call), st.just(back), st.booleans()),
            )
        )
        ops.append(lost(op) if op.kind != "read" and draw(st.integers(0, 3)) == 0 else op)
    return ops


@settings(max_examples=400)
@given(register_ops())
def test_the_search_agrees_with_the_definition(ops):
    assert check_register(KEY, ops).ok == by_permutation(ops)


def test_a_search_without_an_end_is_undecided():
    ops = [write(i, 1000, b"%d" % i) for i in range(20)] + [read(2000, 2001, b"never")]
    verdict = check_register(KEY, ops, steps_max=5000)
    assert verdict.outcome == "undecided" and "5000 steps" in verdict.text


def done(call: int, back: int, request, result, **more) -> Operation:
    return Operation(1, call, back, request, "done", result, **more)


def found(key: bytes, value: bytes) -> RangeResult:
    return RangeResult([KeyValue(key, value, 2, 2, 1, 0)], 1, False, 2)


NONE_FOUND = RangeResult([], 0, False, 2)


def test_operations_are_read_as_what_they_do_to_a_register():
    absent = Txn((Compare(KEY, "MOD", "=", 0),), (Put(KEY, b"a"),), (RangeRequest(KEY),))
    swapped = Txn((Compare(KEY, "VALUE", "=", b"a"),), (Put(KEY, b"b"),))
    history = [
        done(1, 2, absent, TxnResult(2, True, (PutResult(2),))),
        done(3, 4, swapped, TxnResult(3, True, (PutResult(3),))),
        done(5, 6, RangeRequest(KEY), found(KEY, b"b")),
        done(7, 8, DeleteRange(KEY), DeleteResult(4, 1)),
        done(9, 10, RangeRequest(KEY), NONE_FOUND),
    ]
    assert check(history).ok
    stale = [*history, done(11, 12, RangeRequest(KEY), found(KEY, b"b"))]
    assert check(stale).outcome == "violation"
    assert check([*stale[:-1], stale[-1]._replace(serializable=True)]).ok, "a serializable read may be old"


def test_refused_writes_were_not_done():
    refused = Operation(1, 1, 2, Put(KEY, b"a"), "refused")
    assert check([refused, done(3, 4, RangeRequest(KEY), NONE_FOUND)]).ok
    assert check([refused, done(3, 4, RangeRequest(KEY), found(KEY, b"a"))]).outcome == "violation"


@pytest.mark.parametrize(
    "other",
    [
        Txn((), (Put(KEY, b"x"), Put(b"/r/2", b"y"))),
        Txn((), (Txn((), (DeleteRange(b"/r/", b"/r0"),)),)),
        DeleteRange(b"/", b"0"),
        Put(KEY, b"x", lease=7),
    ],
)
def test_keys_that_are_written_in_other_ways_are_left_to_the_other_checker(other):
    history = [done(1, 2, other, None), done(3, 4, RangeRequest(KEY), found(KEY, b"odd"))]
    assert check(history).ok
