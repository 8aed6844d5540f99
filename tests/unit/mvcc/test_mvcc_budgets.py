"""What the ranges of one txn answer is bounded, whatever they name, and every member draws the same line."""

from __future__ import annotations

import random

import pytest

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, DeleteRange, Op, Put, RangeRequest, RangeResult, Txn, TxnResult
from minikube_py.mvcc.validate import INT64_MAX, validate

BIG = bytes(1 << 20)


def nested(op: Op, depth: int, width: int) -> Txn:
    txn = Txn(success=(op,) * width)
    for _ in range(depth - 1):
        txn = Txn(success=(txn,) * width)
    return txn


def ranges(result: TxnResult) -> list[int]:
    """The bytes of each range's answer."""
    found: list[int] = []
    for each in result.responses:
        if isinstance(each, TxnResult):
            found += ranges(each)
        elif isinstance(each, RangeResult):
            found.append(sum(len(kv.key) + len(kv.value) for kv in each.kvs))
    return found


@pytest.mark.parametrize(
    "request_",
    [RangeRequest(b"k"), RangeRequest(b"k", revision=2), RangeRequest(b"a", b"z", revision=2)],
    ids=["one key", "one key of the past", "a range of the past"],
)
def test_many_small_requests_cannot_ask_for_gigabytes(request_: RangeRequest) -> None:
    state = StateMachine()
    state.apply(Put(b"k", BIG))
    if request_.revision:
        state.apply(Put(b"k", b""))
    txn = nested(request_, 3, 12)
    validate(txn)
    with pytest.raises(InvalidRequest, match="bytes together, the limit is 67108864"):
        state.apply(unpack(pack(txn)))


def test_what_the_txn_itself_puts_and_deletes_is_counted() -> None:
    state = StateMachine()
    asks = nested(RangeRequest(b"a", b"z", limit=1), 2, 50)
    with pytest.raises(InvalidRequest, match="bytes together"):
        state.apply(Txn(success=(Put(b"k", BIG), asks)))
    state.apply(Txn(success=(Put(b"a", b""), Put(b"b", b""), Put(b"k", BIG))))
    with pytest.raises(InvalidRequest, match="bytes together"):
        state.apply(Txn(success=(DeleteRange(b"a", b"c"), asks)))


def test_long_keys_count_even_without_their_values() -> None:
    state = StateMachine()
    state.apply(Put(BIG, b""))
    with pytest.raises(InvalidRequest, match="bytes together"):
        state.apply(nested(RangeRequest(b"\0", b"\0", keys_only=True), 2, 20))


def test_the_largest_limit_is_none() -> None:
    state = StateMachine()
    state.apply(Put(b"k", b"v"))
    for revision in (0, 2):
        asked = RangeRequest(b"a", b"z", limit=INT64_MAX, revision=revision)
        assert len(ranges(state.apply(Txn(success=(asked, asked))))) == 2  # type: ignore[arg-type]


def drawn(rng: random.Random, revision: int) -> Txn:
    def key() -> bytes:
        return b"k%d" % rng.randrange(8)

    keys = rng.sample(range(8), rng.randrange(3))
    ops: list[Op] = [Put(b"k%d" % at, bytes(rng.randrange(60))) for at in keys]
    if not ops and rng.random() < 0.5:
        ops.append(DeleteRange(key(), b"z"))
    for _ in range(rng.randrange(6)):
        asked = RangeRequest(
            key(), rng.choice([b"", b"z", b"\0"]), limit=rng.randrange(3), keys_only=rng.random() < 0.2,
            revision=rng.randint(1, revision) if rng.random() < 0.4 else 0,
        )  # fmt: skip
        ops.append(Txn(success=(asked,)) if rng.random() < 0.3 else asked)
    return Txn(success=tuple(rng.sample(ops, len(ops))))


def test_no_txn_that_is_taken_answers_more_and_members_that_trimmed_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.mvcc.budgets.BYTES_MAX", 100)
    monkeypatch.setattr("minikube_py.mvcc.budgets.KEYS_MAX", 12)
    rng = random.Random(1)
    taken = refused = 0
    for _ in range(60):
        eager, lazy = StateMachine(), StateMachine()
        monkeypatch.setattr(lazy, "trim", lambda budget: 0)
        for _ in range(40):
            txn = drawn(rng, eager.revision)
            command = Compact(eager.revision) if rng.random() < 0.1 and eager.revision else txn
            answers = []
            for state in (eager, lazy):
                try:
                    answers.append((state.apply(command), ""))
                except MinikubeError as error:
                    answers.append((None, str(error)))
            assert answers[0] == answers[1]
            result, why = answers[0]
            if isinstance(result, TxnResult):
                sizes = ranges(result)
                taken += len(sizes) > 1
                assert not sizes or sum(sizes) - max(sizes) <= 100
            refused += "together" in why
    assert taken > 100 and refused > 100
