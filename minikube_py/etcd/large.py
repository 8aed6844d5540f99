"""Answers with many keys: read in pages at one revision, and written in slices, between the loop's other work.

The repeated fields of a protobuf message may be split over its bytes, so each slice is a separate message."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from minikube_py.api.protobuf_writing import sized
from minikube_py.errors import FutureRevision
from minikube_py.etcd.answers import bare_header, delete_response, kvs_bytes, put_response, range_response, txn_response
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.reads import fetch_limit
from minikube_py.mvcc.types import DeleteResult, KeyValue, PutResult, RangeRequest, RangeResult, Txn, TxnResult
from minikube_py.store.member import StoreMember
from minikube_py.store.paging import is_small, read

SLICE: Final = 1_000
"""Keys written in one step; fewer are written at once."""
TXN_KEYS_MAX: Final = 50_000
"""Keys that the ranges and compares of one txn examine in addition to the largest range."""
COUNT_COSTS: Final = 50
"""Keys that could be read in the time of counting a range's."""


async def read_txn(member: StoreMember, txn: Txn) -> TxnResult:
    """As `member.state.read_txn`. One without nested txns compares in one step, and reads pages at that revision.

    Raises: as that."""
    state, ranges = member.state, [op for op in (*txn.success, *txn.failure) if type(op) is RangeRequest]
    if len(ranges) < len(txn.success) + len(txn.failure) or all(is_small(state, each) for each in ranges):
        return state.read_txn(txn)
    compared = state.read_txn(Txn(txn.compare))
    found = []
    for asked in ranges[: len(txn.success)] if compared.succeeded else ranges[len(txn.success) :]:
        at = asked.revision if asked.revision > 0 else compared.revision
        if at > compared.revision:
            raise FutureRevision(at, compared.revision)
        page = await read(member, asked._replace(revision=at))
        found.append(page._replace(revision=compared.revision))
    return compared._replace(responses=tuple(found))


def check_cost(txn: Txn, index: KeyIndex) -> None:
    """The cost of its compares and both branches: a txn runs in one step, on every member. Raises: Refused."""
    total = largest = 0
    for key, range_end, limit in _ranges(txn):
        keys = max(index.count(key, range_end), COUNT_COSTS)
        keys = min(keys, max(limit, COUNT_COSTS)) if limit else keys
        total, largest = total + keys, max(largest, keys)
        if total - largest > TXN_KEYS_MAX:
            text = f"the ranges of one txn look at more than {TXN_KEYS_MAX:,} keys beside the largest"
            raise Refused(StatusCode.INVALID_ARGUMENT, f"etcdserver: {text}: send several, or read less")


def _ranges(txn: Txn) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, end and the limit of fetched keys, 0: all."""
    for compare in txn.compare:
        if compare.range_end:
            yield compare.key, compare.range_end, 0
    for op in (*txn.success, *txn.failure):
        if type(op) is Txn:
            yield from _ranges(op)
        elif type(op) is RangeRequest and op.range_end:
            yield op.key, op.range_end, 1 if op.count_only and op.revision <= 0 else fetch_limit(op)


# -- answers -----------------------------------------------------------------------------------------------------------


async def _kvs(number: int, head: Any, kvs: Sequence[KeyValue]) -> bytes:
    """`head` with `kvs` in the field of that number."""
    parts = [head.SerializeToString()]
    for start in range(0, len(kvs), SLICE):
        parts.append(kvs_bytes(number, kvs[start : start + SLICE]))
        await asyncio.sleep(0)
    return b"".join(parts)


async def range_bytes(header: Any, result: RangeResult) -> Any:
    if len(result.kvs) <= SLICE:
        return range_response(header, result)
    return await _kvs(2, range_response(header, result._replace(kvs=[])), result.kvs)


async def delete_bytes(header: Any, result: DeleteResult) -> Any:
    if len(result.prev_kvs) <= SLICE:
        return delete_response(header, result)
    return await _kvs(3, delete_response(header, result._replace(prev_kvs=())), result.prev_kvs)


async def txn_bytes(header: Any, result: TxnResult) -> Any:
    if txn_size(result) <= SLICE:
        return txn_whole(header, result)
    parts = [pb.TxnResponse(header=header, succeeded=result.succeeded).SerializeToString()]
    for each in result.responses:
        # Fields of ResponseOp and TxnResponse; repeated fields and alternatives are preceded by their size.
        if type(each) is RangeResult:
            kind, made = 1, _bytes(await range_bytes(bare_header, each))
        elif type(each) is DeleteResult:
            kind, made = 3, _bytes(await delete_bytes(bare_header, each))
        elif type(each) is TxnResult:
            kind, made = 4, _bytes(await txn_bytes(pb.ResponseHeader(), each))
        else:
            kind, made = 2, put_response(bare_header, cast(PutResult, each)).SerializeToString()
        parts.append(sized(3, sized(kind, made)))
    return b"".join(parts)


def txn_whole(header: Any, result: TxnResult) -> Any:
    response = txn_response(result)
    response.header.CopyFrom(header)
    return response


def txn_size(result: TxnResult) -> int:
    """Number of keys in it."""
    sizes = {RangeResult: "kvs", DeleteResult: "prev_kvs"}
    return sum(
        [
            txn_size(each) if type(each) is TxnResult else len(getattr(each, sizes.get(type(each), ""), ()))
            for each in result.responses
        ]
    )


def _bytes(made: Any) -> bytes:
    return made if type(made) is bytes else bytes(made.SerializeToString())
