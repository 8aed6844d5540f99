"""The store's answers as etcd's messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from minikube_py.api.protobuf_writing import varint
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.types import DeleteResult, KeyValue, PutResult, RangeResult, TxnResult
from minikube_py.store.protocol import split

MESSAGES_MAX: Final = 8
"""Up to this many keys become message objects; more are written as bytes."""
STREAM_BYTES: Final = 1 << 20
"""Approximate size of one part of a RangeStream."""


def kv_of(kv: KeyValue) -> Any:
    key, value, create_revision, mod_revision, version, lease = kv
    return pb.KeyValue(
        key=key,
        value=value,
        create_revision=create_revision,
        mod_revision=mod_revision,
        version=version,
        lease=lease,
    )


def kvs_of(kvs: Iterable[KeyValue]) -> list[Any]:
    return [kv_of(kv) for kv in kvs]


def kv_bytes(kv: KeyValue) -> bytes:
    """In the encoding of protobuf's runtime, which takes four times as long."""
    key, value, create_revision, mod_revision, version, lease = kv
    fields = [b"\n", varint(len(key)), key]
    for tag, whole in ((b"\x10", create_revision), (b"\x18", mod_revision), (b"\x20", version)):
        if whole:
            fields += (tag, varint(whole))
    if value:
        fields += (b"\x2a", varint(len(value)), value)
    if lease:
        fields += (b"\x30", varint(lease))
    return b"".join(fields)


def kvs_bytes(number: int, kvs: Iterable[KeyValue]) -> bytes:
    """The repeated field of that number."""
    mark, parts = varint(number << 3 | 2), list[bytes]()
    for made in map(kv_bytes, kvs):
        parts += (mark, varint(len(made)), made)
    return b"".join(parts)


def in_parts(kvs: list[KeyValue]) -> Iterator[list[KeyValue]]:
    """At least one, which may be empty."""
    sizes = (len(kv.key) + len(kv.value) for kv in kvs)
    return (kvs[start:stop] for start, stop in [*split(kvs, sizes, STREAM_BYTES)] or [(0, 0)])


def bare_header(revision: int) -> Any:
    """Header of an answer within a txn's answer."""
    return pb.ResponseHeader(revision=revision)


def range_response(header: Any, result: RangeResult) -> Any:
    return pb.RangeResponse(
        header=header(result.revision), kvs=kvs_of(result.kvs), more=result.more, count=result.count
    )


def range_answer(header: Any, result: RangeResult) -> Any:
    """The message, or its bytes."""
    if len(result.kvs) <= MESSAGES_MAX:
        return range_response(header, result)
    head = range_response(header, result._replace(kvs=[])).SerializeToString()
    return head + kvs_bytes(2, result.kvs)


def put_response(header: Any, result: PutResult) -> Any:
    response = pb.PutResponse(header=header(result.revision))
    if result.prev_kv is not None:
        response.prev_kv.CopyFrom(kv_of(result.prev_kv))
    return response


def delete_response(header: Any, result: DeleteResult) -> Any:
    return pb.DeleteRangeResponse(
        header=header(result.revision), deleted=result.deleted, prev_kvs=kvs_of(result.prev_kvs)
    )


def txn_response(result: TxnResult) -> Any:
    """With an empty header, as in a nested txn."""
    return pb.TxnResponse(
        header=pb.ResponseHeader(),
        succeeded=result.succeeded,
        responses=[_op_response(each) for each in result.responses],
    )


def _op_response(result: Any) -> Any:
    if type(result) is PutResult:
        return pb.ResponseOp(response_put=put_response(bare_header, result))
    if type(result) is DeleteResult:
        return pb.ResponseOp(response_delete_range=delete_response(bare_header, result))
    if type(result) is TxnResult:
        return pb.ResponseOp(response_txn=txn_response(result).SerializeToString())
    return pb.ResponseOp(response_range=range_response(bare_header, result))
