# ruff: noqa: E501
"""Large answers are those that would have been given at once, and made in steps; what looks at too much is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from virtual_time import run_virtually

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.etcd import large
from minikube_py.etcd.answers import delete_response, range_response, txn_response
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.messages import WHOLE_BY_NAME, pb
from minikube_py.etcd.pieces import message_of
from minikube_py.etcd.proto_json import write
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeleteRange,
    DeleteResult,
    Put,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.store import paging

COUNT = 25
ALL = RangeRequest(b"k", b"l")


def header(revision: int) -> Any:
    return pb.ResponseHeader(revision=revision)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> StateMachine:
    monkeypatch.setattr(paging, "PAGE", 4)
    monkeypatch.setattr(large, "SLICE", 3)
    state = StateMachine()
    for number in range(COUNT):
        state.apply(Put(b"k%02d" % number, b"v%d" % number))
    return state


class Member:
    """Reads in steps of a few keys alone."""

    def __init__(self, state: StateMachine) -> None:
        self.state = state

    def read(self, asked: RangeRequest) -> RangeResult:
        found = self.state.range(asked)
        assert len(found.kvs) <= paging.PAGE
        return found


def while_others_write(state: StateMachine, reading: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    async def read() -> Any:
        task = asyncio.ensure_future(reading(Member(state)))
        await asyncio.sleep(0)
        # Among what was read and what comes.
        for key in (b"k001", b"k20", b"k24a"):
            state.apply(Put(key, b"later"))
        state.apply(DeleteRange(b"k22"))
        return await task

    return run_virtually(read)


SHAPES: list[dict[str, Any]] = [
    {}, {"revision": 10}, {"revision": 26}, {"revision": 30}, {"keys_only": True}, {"count_only": True}, {"count_only": True, "revision": 12},
    {"sort_order": "DESCEND"}, {"sort_order": "DESCEND", "revision": 20}, {"sort_order": "ASCEND"}, {"min_mod_revision": 9},
    {"max_create_revision": 9, "keys_only": True}, {"sort_order": "DESCEND", "max_mod_revision": 20, "revision": 28},
    *({"sort_target": target, "sort_order": order, "keys_only": keys_only} for target in ("VERSION", "CREATE", "MOD", "VALUE") for order in ("NONE", "ASCEND", "DESCEND") for keys_only in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 7, 8, 24, 25, 26, -1, (1 << 63) - 1])
@pytest.mark.parametrize("more", SHAPES)
def test_pages_are_the_range_at_one_revision(state: StateMachine, limit: int, more: dict[str, Any]) -> None:
    for key, value in ((b"k03", b"v1"), (b"k11", b"v20"), (b"k03", b"v9"), (b"k19", b"v1")):
        state.apply(Put(key, value))
    state.apply(DeleteRange(b"k07"))
    asked = ALL._replace(limit=limit, **more)
    expected = state.range(asked)
    assert while_others_write(state, lambda member: paging.read(member, asked)) == expected


def test_a_page_that_is_compacted_meanwhile_ends_the_range(state: StateMachine) -> None:
    async def read() -> None:
        reading = asyncio.ensure_future(paging.read(Member(state), ALL))
        await asyncio.sleep(0)
        for _ in range(3):
            state.apply(Put(b"k", b""))
        state.apply(Compact(state.revision))
        with pytest.raises(Compacted):
            await reading

    run_virtually(read)


@pytest.mark.parametrize("version", [0, 1])
def test_a_txn_that_reads_much_reads_it_in_pages(state: StateMachine, version: int) -> None:
    compare = (Compare(b"k00", "VERSION", "=", version),)
    txn = Txn(compare, (ALL, RangeRequest(b"k03"), ALL._replace(revision=9)), (ALL._replace(sort_order="DESCEND"),))
    expected = state.read_txn(txn)
    assert while_others_write(state, lambda member: large.read_txn(member, txn)) == expected
    late = Txn((), (ALL, ALL._replace(revision=state.revision + 5)), ())
    with pytest.raises(FutureRevision):
        while_others_write(state, lambda member: large.read_txn(member, late))


def test_slices_are_the_whole_answer(state: StateMachine) -> None:
    found = state.range(ALL)
    data = run_virtually(partial(large.range_bytes, header, found))
    assert run_virtually(partial(message_of, "RangeResponse", data)) == range_response(header, found)
    inner = Txn((), (ALL, Put(b"a", b"b", prev_kv=True)), ())
    result = state.apply(Txn((), (ALL._replace(limit=7), inner, DeleteRange(b"k1", b"k2", True), Put(b"z", b"")), ()))
    assert type(result) is TxnResult
    expected = txn_response(result)
    expected.header.CopyFrom(header(9))
    # A message within is bytes here, and those may have another order.
    made, whole = run_virtually(partial(large.txn_bytes, header(9), result)), WHOLE_BY_NAME["TxnResponse"]
    assert made.size_bytes == len(data := b"".join(made.pieces))
    assert whole.FromString(data) == whole.FromString(expected.SerializeToString())
    deleted = result.responses[2]
    assert type(deleted) is DeleteResult
    made = run_virtually(partial(large.delete_bytes, header, deleted))
    assert run_virtually(partial(message_of, "DeleteRangeResponse", made)) == delete_response(header, deleted)


def test_a_txn_looks_at_so_many_keys_and_no_more(state: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "TXN_KEYS_MAX", 100)
    compare = Compare(b"k", "VERSION", ">", 0, b"l")
    single = (RangeRequest(b"k00"), Put(b"a", b""))
    for txn in (Txn((), (ALL,) * 3, ()), Txn((compare,) * 3, (), ()), Txn((), single * 60, ())):
        large.check_cost(txn, state.index)
    for txn in (Txn((), (ALL,) * 4, ()), Txn((compare,) * 2, (ALL,), (ALL,)), Txn((), (Txn((), (ALL,) * 4, ()),), ())):
        with pytest.raises(Refused, match="look at more than 100 keys"):
            large.check_cost(txn, state.index)


def test_json_is_written_in_steps() -> None:
    kvs = [pb.KeyValue(key=b"\xff", value=b"v", mod_revision=1 << 60) for _ in range(1000)]
    writing, steps = write(pb.RangeResponse(header=header(3), kvs=kvs, more=True)), 0
    while True:
        try:
            next(writing)
        except StopIteration as ended:
            found = json.loads(ended.value)
            break
        steps += 1
    assert steps == 4 and found["more"] is True and found["header"] == {"revision": "3"}
    assert found["kvs"][999] == {"key": "/w==", "value": "dg==", "mod_revision": str(1 << 60)}
