"""Messages as bytes: round trips, and refusal of everything else."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py import errors
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.codec import Message, pack, unpack, unpack_any
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    CloseSession,
    Compact,
    CompactResult,
    Compare,
    DeclareFields,
    DeleteRange,
    DeleteResult,
    Event,
    InSession,
    KeyValue,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    OpenSession,
    Put,
    PutResult,
    QueryStats,
    RangeRequest,
    RangeResult,
    SessionResult,
    Txn,
    TxnResult,
    WatchBatch,
)

KV = KeyValue(b"k", b"v", 1, 2, 3, 4)
WHERE = Where((Comparison("free.cpu", ">=", ("4",)), Comparison("a", "in", ("x", "y")), Comparison("b", "exists")))
MESSAGES: list[Message] = [
    Put(b"k", b"v", 3, True, False, True),
    DeleteRange(b"k", b"l", True),
    LeaseGrant(1, 2),
    LeaseRevoke(1),
    LeaseCheckpoint(1, 2),
    Compact(9),
    DeclareFields(NODES),
    DeclareFields(PODS),
    OpenSession(7),
    InSession(3, 2, 1, Put(b"k", b"v", 3, True, False, True)),
    InSession(3, 2, 1, Txn((Compare(b"k", "MOD", "=", 0),), (Put(b"k", b""),))),
    CloseSession(3),
    SessionResult(4, 3),
    RangeRequest(
        b"k", b"l", 5, where=WHERE, order="ANY", fields=("free.cpu",), sort_target="MOD", sort_order="DESCEND"
    ),
    Txn(
        (Compare(b"k", "VALUE", "!=", b"v", b"l"), Compare(b"k", "MOD", "=", 0)),
        (Put(b"k", b""), Txn((), (RangeRequest(b"a"),))),
    ),
    PutResult(3, KV),
    PutResult(3),
    DeleteResult(3, 1, (KV,)),
    TxnResult(3, True, (PutResult(3), RangeResult([KV], 1, False, 3), TxnResult(3, False))),
    LeaseResult(3, 1, 60),
    CompactResult(3),
    RangeResult([KV], 7, True, 3, [(1, "x", None)], QueryStats("columns", 5, 0)),
    Event("PUT", KV, None),
    Event("DELETE", KV, KV),
    WatchBatch([Event("PUT", KV, KV)], 4),
]
COMMANDS = [
    message
    for message in MESSAGES
    if type(message).__name__ in ("Put", "DeleteRange", "Txn", "LeaseGrant", "DeclareFields")
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trips(message: Message) -> None:
    assert unpack_any(pack(message)) == message


@pytest.mark.parametrize(
    "error",
    [
        errors.Compacted(3, 5),
        errors.FutureRevision(9, 5),
        errors.LeaseNotFound(),
        errors.LeaseExists(),
        errors.InvalidRequest("text"),
        errors.Unavailable("text"),
        errors.OutcomeUnknown("text"),
        errors.RequestTooLarge(5, 3),
        errors.NotLeader(),
        errors.NotLeader(7, "store-1:2379"),
        errors.SessionExpired("text"),
        errors.FieldsRedeclared("text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_kind_words_and_figures(error: errors.MinikubeError) -> None:
    for message in (unpack_any(pack(error)), unpack_any(pack(WatchBatch((), 3, error)))):
        read = message.error if isinstance(message, WatchBatch) else message
        assert (type(read), str(read), vars(read)) == (type(error), str(error), vars(error))


def deep(levels: int) -> bytes:
    plain: Any = [3, [], [[1, b"k", b"v"]], []]
    for _ in range(levels):
        plain = [3, [], [plain], []]
    return bytes(msgpack.packb([1, plain]))


BAD = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "a number": msgpack.packb(7),
    "another version": msgpack.packb([2, [1, b"k", b"v"]]),
    "unknown tag": msgpack.packb([1, [77]]),
    "no tag": msgpack.packb([1, []]),
    "text as a key": msgpack.packb([1, [1, "k", b"v"]]),
    "a float lease": msgpack.packb([1, [1, b"k", b"v", 1.5]]),
    "a bool lease": msgpack.packb([1, [1, b"k", b"v", True]]),
    "too many fields": msgpack.packb([1, [1, b"k", b"v", 0, False, False, False, 1]]),
    "too few fields": msgpack.packb([1, [1, b"k"]]),
    "a result for a command": msgpack.packb([1, [20, 3, None]]),
    "a command that is no op": msgpack.packb([1, [3, [], [[7, 5]], []]]),
    "a compare of wrong shape": msgpack.packb([1, [3, [[b"k"]], [], []]]),
    "no kind of field": msgpack.packb([1, [8, ["x", b"/x/", [["a", "what", "path@1", {}, None]], []]]]),
    "txns in txns": deep(200),
    "txns beyond any depth": b"\x92\x01" + b"\x94\x03\x90\x91" * 3000,
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_command_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        unpack(BAD[name])


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 40), st.floats(), st.binary(max_size=3), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    tag=st.integers(0, 10),
    fields=st.lists(PLAIN, max_size=7),
    seed=st.sampled_from(COMMANDS),
    at=st.integers(0, 5),
    value=PLAIN,
)
def test_apply_never_meets_what_it_cannot_take(tag: int, fields: list[Any], seed: Message, at: int, value: Any) -> None:
    """Random shapes, and good commands with one field replaced: refused on reading, or a RequestError, or done."""
    near = msgpack.unpackb(pack(seed))[1]
    if at < len(near):
        near[at] = value
    for plain in ([tag, *fields], near):
        state = StateMachine()
        try:
            state.apply(unpack(msgpack.packb([1, plain])))
        except errors.RequestError:
            continue
