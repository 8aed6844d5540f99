"""Large answers: read in pages at one revision, and written in pieces, between the loop's other work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, cast

from minikube_py.api.protobuf_writing import varint
from minikube_py.errors import FutureRevision
from minikube_py.etcd.answers import bare_header, delete_response, put_response, range_response, txn_response
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.messages import pb
from minikube_py.etcd.pieces import Pieces, kvs_pieces
from minikube_py.etcd.pieces import is_small as is_small_answer
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.reads import fetch_limit
from minikube_py.mvcc.types import DeleteResult, KeyValue, PutResult, RangeRequest, RangeResult, Txn, TxnResult
from minikube_py.store.member import StoreMember
from minikube_py.store.paging import is_small, read

SLICE: Final = 1_000
"""Keys written in one step, if their values are small."""
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


async def range_bytes(header: Any, result: RangeResult) -> Any:
    if is_small_answer(result.kvs, SLICE):
        return range_response(header, result)
    return await kvs_pieces(2, range_response(header, result._replace(kvs=[])), result.kvs)


async def delete_bytes(header: Any, result: DeleteResult) -> Any:
    if is_small_answer(result.prev_kvs, SLICE):
        return delete_response(header, result)
    return await kvs_pieces(3, delete_response(header, result._replace(prev_kvs=())), result.prev_kvs)


async def txn_bytes(header: Any, result: TxnResult) -> Any:
    if is_small_txn(result):
        return txn_whole(header, result)
    first = pb.TxnResponse(header=header, succeeded=result.succeeded).SerializeToString()
    size_bytes, parts = len(first), list[Iterable[bytes]]([(first,)])
    for each in result.responses:
        # Fields of ResponseOp and TxnResponse; repeated fields and alternatives are preceded by their size.
        if type(each) is RangeResult:
            kind, made = 1, _pieces(await range_bytes(bare_header, each))
        elif type(each) is DeleteResult:
            kind, made = 3, _pieces(await delete_bytes(bare_header, each))
        elif type(each) is TxnResult:
            kind, made = 4, _pieces(await txn_bytes(pb.ResponseHeader(), each))
        else:
            kind, made = 2, _pieces(put_response(bare_header, cast(PutResult, each)))
        before = varint(kind << 3 | 2) + varint(made.size_bytes)
        before = b"\x1a" + varint(len(before) + made.size_bytes) + before
        size_bytes += len(before) + made.size_bytes
        parts += ((before,), made.pieces)
    return Pieces(size_bytes, chain.from_iterable(parts))


def txn_whole(header: Any, result: TxnResult) -> Any:
    response = txn_response(result)
    response.header.CopyFrom(header)
    return response


def is_small_txn(result: TxnResult) -> bool:
    return is_small_answer(list(_kvs_of(result)), SLICE)


def _kvs_of(result: TxnResult) -> Iterator[KeyValue]:
    for each in result.responses:
        if type(each) is TxnResult:
            yield from _kvs_of(each)
        elif type(each) is RangeResult:
            yield from each.kvs
        elif type(each) is DeleteResult:
            yield from each.prev_kvs


def _pieces(made: Any) -> Pieces:
    if type(made) is Pieces:
        return made
    data = made.SerializeToString()
    return Pieces(len(data), (data,))
