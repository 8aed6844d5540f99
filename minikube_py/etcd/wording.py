"""Converts the store's requests to etcd's messages, and etcd's answers to the store's, for clients of an etcd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.errors import InvalidRequest
from minikube_py.etcd.keys import Keys
from minikube_py.etcd.kv import COMPARED, OPERATORS, ORDERS, TARGETS
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    DeleteResult,
    KeyValue,
    Op,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)

_COMPARED: Final = {name: (number, field) for number, (name, field) in enumerate(COMPARED)}


class Wording:
    """With keys under a prefix."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys

    def range(self, request: RangeRequest) -> Any:
        """Raises: InvalidRequest for what etcd cannot express."""
        if request.where is not None or request.fields:
            raise InvalidRequest("etcd knows keys, and no fields of objects")
        out = self.keys.out
        return pb.RangeRequest(
            key=out(request.key),
            range_end=out(request.range_end),
            limit=request.limit,
            revision=request.revision,
            sort_order=ORDERS.index(request.sort_order),
            sort_target=TARGETS.index(request.sort_target),
            keys_only=request.keys_only,
            count_only=request.count_only,
            min_mod_revision=request.min_mod_revision,
            max_mod_revision=request.max_mod_revision,
            min_create_revision=request.min_create_revision,
            max_create_revision=request.max_create_revision,
        )

    def txn(self, txn: Txn) -> Any:
        return pb.TxnRequest(
            compare=[self._compare(each) for each in txn.compare],
            success=[self._op(each) for each in txn.success],
            failure=[self._op(each) for each in txn.failure],
        )

    def _compare(self, compare: Compare) -> Any:
        out = self.keys.out
        target, field = _COMPARED[compare.target]
        found = pb.Compare(
            result=OPERATORS.index(compare.op),
            target=target,
            key=out(compare.key),
            range_end=out(compare.range_end),
        )
        setattr(found, field, compare.operand)
        return found

    def _op(self, op: Op) -> Any:
        out = self.keys.out
        if type(op) is Put:
            return pb.RequestOp(
                request_put=pb.PutRequest(
                    key=out(op.key),
                    value=op.value,
                    lease=op.lease,
                    prev_kv=op.prev_kv,
                    ignore_value=op.ignore_value,
                    ignore_lease=op.ignore_lease,
                )
            )
        if type(op) is DeleteRange:
            delete = pb.DeleteRangeRequest(key=out(op.key), range_end=out(op.range_end), prev_kv=op.prev_kv)
            return pb.RequestOp(request_delete_range=delete)
        if type(op) is RangeRequest:
            return pb.RequestOp(request_range=self.range(op))
        assert type(op) is Txn
        return pb.RequestOp(request_txn=self.txn(op).SerializeToString())

    # -- answers -------------------------------------------------------------------------------------------------------

    def kv(self, kv: Any) -> KeyValue:
        key = self.keys.back(kv.key)
        return KeyValue(key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)

    def kvs(self, kvs: Sequence[Any]) -> list[KeyValue]:
        """Only our keys."""
        return [kv for kv in map(self.kv, kvs) if kv.key]

    def ranged(self, answer: Any, revision: int) -> RangeResult:
        return RangeResult(self.kvs(answer.kvs), answer.count, answer.more, revision)

    def done(self, answer: Any, revision: int) -> TxnResult:
        """`revision`: of the header. Each part's is the one after it, as in our store: within a txn etcd reports none
        for nested txns."""
        result, _ = self._run(answer, revision, revision)
        wrote = any(map(_writes, result.responses))
        return result if not wrote else self._run(answer, revision, revision - 1)[0]

    def _run(self, answer: Any, revision: int, now: int) -> tuple[TxnResult, int]:
        """`now`: the revision before it ran; returns the one after."""
        responses: list[PutResult | DeleteResult | RangeResult | TxnResult] = []
        for each in answer.responses:
            chosen = each.WhichOneof("response")
            if chosen == "response_range":
                responses.append(self.ranged(each.response_range, now))
            elif chosen == "response_put":
                put, now = each.response_put, revision
                responses.append(PutResult(now, self.kv(put.prev_kv) if put.HasField("prev_kv") else None))
            elif chosen == "response_delete_range":
                delete = each.response_delete_range
                now = revision if delete.deleted else now
                responses.append(DeleteResult(now, delete.deleted, tuple(self.kvs(delete.prev_kvs))))
            else:
                nested, now = self._run(pb.TxnResponse.FromString(each.response_txn), revision, now)
                responses.append(nested)
        return TxnResult(now, answer.succeeded, tuple(responses)), now


def _writes(result: PutResult | DeleteResult | RangeResult | TxnResult) -> bool:
    if type(result) is TxnResult:
        return any(map(_writes, result.responses))
    return type(result) is PutResult or (type(result) is DeleteResult and result.deleted > 0)
