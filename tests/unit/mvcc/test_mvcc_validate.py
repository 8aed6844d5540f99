"""What is refused before it reaches the log, and what looking at it costs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import edges
import pytest

from minikube_py.errors import InvalidRequest
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc import txn as txn_rules
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.txn import DUPLICATE_KEY, TOO_MANY_OPS
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeclareFields,
    DeleteRange,
    InSession,
    KeyValue,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RangeRequest,
    Txn,
)
from minikube_py.mvcc.validate import INT64_MAX, TXN_OPS_TOTAL, WHERE_CHARS_MAX, validate
from minikube_py.mvcc.watch import WatchHub

BEYOND = INT64_MAX + 1


def work(call: Callable[[], Any]) -> int:
    """Calls of functions, Python's and C's."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "request_",
    [
        Put(b"a", b"", lease=BEYOND),
        RangeRequest(b"a", limit=BEYOND),
        RangeRequest(b"a", min_create_revision=-BEYOND - 1),
        RangeRequest(b"a", revision=2**64 - 1),
        Txn(success=(Txn(failure=(RangeRequest(b"a", limit=BEYOND),)),)),
        Txn(compare=(Compare(b"a", "MOD", "=", BEYOND),)),
        Txn(success=(Put(b"a", b"", lease=BEYOND),)),
        LeaseGrant(BEYOND, 5),
        LeaseGrant(5, BEYOND),
        LeaseRevoke(BEYOND),
        Compact(BEYOND),
        OpenSession(BEYOND),
        InSession(1, BEYOND, 1, Put(b"a", b"")),
        InSession(1, 1, 1, Compact(BEYOND)),
        Compact(2**5000),
    ],
    ids=repr,
)
def test_a_number_beyond_int64_is_refused(request_: Any) -> None:
    with pytest.raises(InvalidRequest, match="does not fit a signed 64-bit integer"):
        validate(request_)


def test_the_largest_numbers_that_fit_are_taken_and_answered() -> None:
    state = StateMachine()
    for key in (b"a", b"b"):
        state.apply(Put(key, b""))
    asked = RangeRequest(b"\0", b"\0", limit=INT64_MAX, max_mod_revision=INT64_MAX)
    validate(Txn(success=(asked,)))
    assert len(state.range(asked._replace(max_mod_revision=0)).kvs) == 2
    assert len(state.range(asked._replace(limit=-INT64_MAX - 1)).kvs) == 2
    assert len(state.apply(Txn(success=(asked,))).responses[0].kvs) == 2  # type: ignore[union-attr]


SINGLE_KEYS = (b"k", b"k", b"k", b"", b"/minikube-py/indexes/x", b"\0")
SINGLE_NUMBERS: tuple[Any, ...] = (0, 1, 7, INT64_MAX, BEYOND, -1, -BEYOND, -BEYOND - 1, True, b"", b"7")
SINGLE_OPS: tuple[Any, ...] = (
    RangeRequest(b"k"), RangeRequest(b""), RangeRequest(b"k", b"l"), RangeRequest(b"k", limit=BEYOND),
    RangeRequest(b"k", revision=3), RangeRequest(b"k", keys_only=True), RangeRequest(b"k", fields=("f",)),
    RangeRequest(b"k", where=Where((Comparison("f", "=", ("1",)),))), DeleteRange(b"k"), Put(b"k", b"v"), Txn(),
)  # fmt: skip


def drawn_single(rng: random.Random) -> Txn:
    """One compare, one op in each branch, as a rule; anything may be at its edge."""
    usual = rng.random() < 0.6
    compare = Compare(
        rng.choice(SINGLE_KEYS),
        "MOD" if usual else rng.choice(("VALUE", "CREATE", "MOD", "VERSION", "LEASE", "mod")),  # type: ignore[arg-type]
        "=" if usual else rng.choice(("=", "!=", "<", ">", "==")),  # type: ignore[arg-type]
        rng.choice(SINGLE_NUMBERS[:4] if usual else SINGLE_NUMBERS),
        rng.choice((b"",) * 6 + (b"l", b"\0")),
    )
    put = Put(
        rng.choice(SINGLE_KEYS), rng.choice((b"", b"v")), rng.choice((0,) * 8 + SINGLE_NUMBERS[:8]), False,
        rng.random() < 0.1, rng.random() < 0.1,
    )  # fmt: skip
    success: list[Any] = [put if usual else rng.choice((put, *SINGLE_OPS))]
    failure: list[Any] = [RangeRequest(b"k") if usual else rng.choice((put, *SINGLE_OPS))]
    branches = [branch if rng.random() < 0.9 else rng.choice(([], branch * 2)) for branch in (success, failure)]
    return Txn((compare,) * rng.choice((1,) * 8 + (0, 2)), *map(tuple, branches))


def test_what_is_found_right_in_one_look_is_right_in_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(txn: Txn) -> tuple[str, bool]:
        try:
            validate(txn)
        except InvalidRequest as error:
            return str(error), False
        return "", txn.plain

    rng = random.Random(7)
    txns = [drawn_single(rng) for _ in range(4000)]
    single = [txn_rules.is_single(txn) for txn in txns]
    found = [outcome(txn) for txn in txns]
    assert 200 < sum(single) < 3500 and len({text for text, _ in found}) > 8
    assert [txn.single for txn in txns] == single
    monkeypatch.setattr(txn_rules, "is_single", lambda txn: False)
    for one_look, txn, before in zip(single, txns, found, strict=True):
        after = outcome(Txn(txn.compare, txn.success, txn.failure))
        assert before == after, txn
        assert not one_look or after == ("", True), txn


def test_a_txn_that_is_made_as_single_is_one() -> None:
    made = txn_rules.replacing(KeyValue(b"k", b"v", 3, 7, 2, 5), b"w")
    assert made == Txn((Compare(b"k", "MOD", "=", 7),), (Put(b"k", b"w", 5),), (RangeRequest(b"k"),))
    namespace = KeyValue(b"n", b"v", 3, 4, 1, 0)
    alone, guarded = (txn_rules.creating(b"k", b"w", 5, guard) for guard in (None, namespace))
    absent, puts, read = Compare(b"k", "CREATE", "=", 0), (Put(b"k", b"w", 5),), RangeRequest(b"k")
    assert alone == Txn((absent,), puts, (read,))
    assert guarded == Txn((absent, Compare(b"n", "MOD", "=", 4)), puts, (read, RangeRequest(b"n")))
    for each in (made, alone, guarded):
        assert each.plain and each.single and txn_rules.is_single(each)
        assert pack(each) == pack(Txn(each.compare, each.success, each.failure))


def test_a_txn_has_a_depth_a_width_and_a_number_of_operations_in_all() -> None:
    validate(edges.deep_txn(126, Put(b"a", b"")))
    for txn in (edges.deep_txn(129), Txn(success=tuple(Put(b"%d" % at, b"") for at in range(129)))):
        with pytest.raises(InvalidRequest, match=TOO_MANY_OPS):
            validate(txn)
    wide = Txn(success=tuple(edges.wide_txn(40, 60, b"%d" % at) for at in range(8)))
    with pytest.raises(InvalidRequest, match=f"{TOO_MANY_OPS}: more than {TXN_OPS_TOTAL}"):
        validate(wide)


def test_a_where_has_limits_that_its_refusal_states() -> None:
    with pytest.raises(InvalidRequest, match="at most 64 comparisons, this one 65"):
        validate(RangeRequest(b"a", where=Where((Comparison("x", "exists"),) * 65)))
    with pytest.raises(InvalidRequest, match="1025 values, the limit is 1024"):
        validate(RangeRequest(b"a", where=Where((Comparison("x", "in", ("1",) * 1025),))))
    long = Where((Comparison("x", "=", ("1" * WHERE_CHARS_MAX,)),))
    with pytest.raises(InvalidRequest, match=f"at most {WHERE_CHARS_MAX} characters"):
        validate(RangeRequest(b"a", where=long))
    with pytest.raises(InvalidRequest, match=f"at most {WHERE_CHARS_MAX} characters"):
        WatchHub(StateMachine()).add(b"a", b"", 0, print, long)


def test_texts_of_declarations_have_a_limit() -> None:
    for field in (FieldSpec("x" * 1025, "int", "path@1"), FieldSpec("x", "int", "path@1", {"path": "y" * 1025})):
        with pytest.raises(InvalidRequest, match="at most 1024 characters, this one 1025"):
            validate(DeclareFields(FieldSet("pods", b"/", (field,))))


def test_what_cannot_be_packed_is_refused_with_a_reason() -> None:
    for command in (Put(b"a", b"", lease=2**64), DeclareFields(FieldSet("\ud800", b"/", ()))):
        with pytest.raises(InvalidRequest, match="cannot be sent"):
            pack(command)


@pytest.mark.parametrize("shape", ["flat", "chain", "deletes"])
def test_what_a_nested_txn_costs_grows_with_its_bytes(shape: str) -> None:
    def made(size: int) -> Txn:
        if shape == "flat":
            return edges.wide_txn(size, 60)
        if shape == "deletes":
            return Txn(success=(*(_deletes(at, 60) for at in range(size)), edges.wide_txn(size, 60, b"z")))
        txn = edges.wide_txn(size, 30)
        for at in range(30):
            txn = Txn(success=(DeleteRange(b"c%d" % at), txn))
        return txn

    def costs(size: int) -> int:
        data = pack(made(size))

        def all_of_it() -> None:
            command = unpack(data)
            validate(command)
            StateMachine().apply(command)

        return work(all_of_it)

    costs(2)
    small, large = costs(8), costs(32)
    assert large < 4 * 1.6 * small, (small, large)


def _deletes(at: int, count: int) -> Txn:
    return Txn(success=tuple(DeleteRange(b"d/%d/%d" % (at, each)) for each in range(count)))


def test_overlaps_are_still_found_in_large_txns() -> None:
    wide = edges.wide_txn(50, 60)
    validate(wide)
    for op in (Put(b"k/49/59", b""), Put(b"k/0/0", b""), DeleteRange(b"k/30", b"k/31")):
        with pytest.raises(InvalidRequest, match=DUPLICATE_KEY):
            validate(Txn(success=(*wide.success, op)))
    validate(Txn(success=(*wide.success, Put(b"l", b""), DeleteRange(b"m", b"n"))))
