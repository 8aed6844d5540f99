"""KV: what a request asks, in the store's words, and its answer in etcd's.

What is wrong whatever the state is refused here, in etcd's order (api/v3rpc/key.go); the store looks at the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final, NamedTuple, cast

from grpc import StatusCode

from minikube_py.etcd.errors import (
    EMPTY_KEY,
    INVALID_SORT,
    KEY_NOT_FOUND,
    LEASE_PROVIDED,
    TOO_MANY_OPS,
    VALUE_PROVIDED,
    Refused,
)
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.etcd.wire import read
from minikube_py.mvcc.alarms import KINDS
from minikube_py.mvcc.types import (
    Compact,
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
from minikube_py.store.protocol import split

OPS_MAX: Final = 128
NESTED_MAX: Final = 4_096
"""Txns within one. etcd bounds them by the size of the request alone."""
STREAM_BYTES: Final = 1 << 20
"""About so many of a RangeStream are in one part."""
ORDERS: Final = ("NONE", "ASCEND", "DESCEND")
TARGETS: Final = ("KEY", "VERSION", "CREATE", "MOD", "VALUE")
OPERATORS: Final = ("=", ">", "<", "!=")
ALARMS: Final = ("", *KINDS)
COMPARED: Final = (
    ("VERSION", "version"),
    ("CREATE", "create_revision"),
    ("MOD", "mod_revision"),
    ("VALUE", "value"),
    ("LEASE", "lease"),
)


class KV:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def range(self, request: Any) -> Any:
        asked = range_of(request)
        if not request.serializable:
            await self._node.confirmed()
        return range_response(self._node.header, self._node.member.read(asked))

    async def range_stream(self, request: Any) -> AsyncIterator[Any]:
        """The last part alone has header, count and more."""
        asked = range_of(request)
        if request.sort_order and (request.sort_order, request.sort_target) != (1, 0):
            raise Refused(StatusCode.UNIMPLEMENTED, "RangeStream does not support custom sort orders")
        if any((request.min_mod_revision, request.max_mod_revision)) or any(
            (request.min_create_revision, request.max_create_revision)
        ):
            raise Refused(StatusCode.UNIMPLEMENTED, "RangeStream does not support revision filters")
        if not request.serializable:
            await self._node.confirmed()
        result = self._node.member.read(asked)
        parts = list(in_parts(result.kvs))
        for part in parts[:-1]:
            yield pb.RangeStreamResponse(range_response=pb.RangeResponse(kvs=kvs_of(part)))
        last = result._replace(kvs=parts[-1])
        yield pb.RangeStreamResponse(range_response=range_response(self._node.header, last))

    async def put(self, request: Any) -> Any:
        return put_response(self._node.header, cast(PutResult, await self._node.command(put_of(request))))

    async def delete_range(self, request: Any) -> Any:
        return delete_response(self._node.header, cast(DeleteResult, await self._node.command(delete_of(request))))

    async def txn(self, request: Any) -> Any:
        """One that only reads goes through no log."""
        tree = tree_of(request)
        txn = txn_of(tree, OPS_MAX)
        if reads_only(txn):
            if not all(read.serializable for read in reads_of(tree)) or txn.compare:
                await self._node.confirmed()
            result = self._node.member.state.read_txn(txn)
        else:
            result = cast(TxnResult, await self._node.command(txn))
        response = txn_response(result)
        response.header.CopyFrom(self._node.header(result.revision))
        return response

    async def compact(self, request: Any) -> Any:
        """`physical`: returns when what is compacted takes no memory any more."""
        result = await self._node.command(Compact(request.revision))
        if request.physical:
            await self._node.trimmed()
        return pb.CompactionResponse(header=self._node.header(result.revision))


# -- requests ----------------------------------------------------------------------------------------------------------


def range_of(request: Any) -> RangeRequest:
    """Raises: Refused."""
    if not request.key:
        raise Refused(*EMPTY_KEY)
    order, target = request.sort_order, request.sort_target
    if not (0 <= order < len(ORDERS) and 0 <= target < len(TARGETS)):
        raise Refused(*INVALID_SORT)
    return RangeRequest(
        request.key,
        request.range_end,
        request.limit,
        request.revision,
        request.keys_only,
        request.count_only,
        sort_target=TARGETS[target],  # type: ignore[arg-type]
        sort_order=ORDERS[order],  # type: ignore[arg-type]
        min_mod_revision=request.min_mod_revision,
        max_mod_revision=request.max_mod_revision,
        min_create_revision=request.min_create_revision,
        max_create_revision=request.max_create_revision,
    )


def put_of(request: Any) -> Put:
    """Raises: Refused."""
    if not request.key:
        raise Refused(*EMPTY_KEY)
    if request.ignore_value and request.value:
        raise Refused(*VALUE_PROVIDED)
    if request.ignore_lease and request.lease:
        raise Refused(*LEASE_PROVIDED)
    return Put(request.key, request.value, request.lease, request.prev_kv, request.ignore_value, request.ignore_lease)


def delete_of(request: Any) -> DeleteRange:
    """Raises: Refused."""
    if not request.key:
        raise Refused(*EMPTY_KEY)
    return DeleteRange(request.key, request.range_end, request.prev_kv)


class Tree(NamedTuple):
    """A txn's message with those nested in it, in the order of their ops."""

    request: Any
    nested: tuple[Tree, ...]


def tree_of(request: Any) -> Tree:
    """All of its bytes are read before anything is judged, as Go does; but not those of what is too wide or too deep,
    which is refused for that. Raises: Refused."""
    left = NESTED_MAX

    def grown(request: Any, levels: int) -> Tree:
        nonlocal left
        if not levels or max(len(request.success), len(request.failure)) > OPS_MAX:
            return Tree(request, ())
        ops = (*request.success, *request.failure)
        inner = [op.request_txn for op in ops if op.WhichOneof("request") == "request_txn"]
        left -= len(inner)
        if left < 0:
            raise Refused(*TOO_MANY_OPS)
        return Tree(request, tuple([grown(read(pb.TxnRequest, data), levels - 1) for data in inner]))

    return grown(request, OPS_MAX)


def txn_of(tree: Tree, budget: int) -> Txn:
    """Raises: Refused."""
    request = tree.request
    used = max(len(request.compare), len(request.success), len(request.failure))
    if used > budget:
        raise Refused(*TOO_MANY_OPS)
    nested = iter(tree.nested)
    compares = tuple([compare_of(each) for each in request.compare])
    success = tuple([op_of(each, budget - used, nested) for each in request.success])
    return Txn(compares, success, tuple([op_of(each, budget - used, nested) for each in request.failure]))


def op_of(request: Any, budget: int, nested: Iterator[Tree]) -> Op:
    """Raises: Refused."""
    chosen = request.WhichOneof("request")
    if chosen == "request_range":
        return range_of(request.request_range)
    if chosen == "request_put":
        return put_of(request.request_put)
    if chosen == "request_delete_range":
        return delete_of(request.request_delete_range)
    if chosen == "request_txn":
        return txn_of(next(nested), budget)
    raise Refused(*KEY_NOT_FOUND)


def compare_of(request: Any) -> Compare:
    """A result or target that etcd does not know either holds always or compares nothing with nothing.

    Raises: Refused."""
    key, end, result, target = request.key, request.range_end, request.result, request.target
    if not key:
        raise Refused(*EMPTY_KEY)
    if not 0 <= target < len(COMPARED):
        # Equal, to whatever is there.
        return Compare(key, "VERSION", "<" if result in (1, 2, 3) else ">", -1 if result not in (1, 2, 3) else 0, end)
    name, field = COMPARED[target]
    if not 0 <= result < len(OPERATORS):
        return Compare(key, "VERSION", ">", 0 if name == "VALUE" else -1, end)
    return Compare(key, name, OPERATORS[result], getattr(request, field), end)  # type: ignore[arg-type]


def reads_only(txn: Txn) -> bool:
    """In both branches, and in all nested ones."""
    return all(type(op) is RangeRequest or (type(op) is Txn and reads_only(op)) for op in (*txn.success, *txn.failure))


def reads_of(tree: Tree) -> Iterator[Any]:
    for op in (*tree.request.success, *tree.request.failure):
        if op.WhichOneof("request") == "request_range":
            yield op.request_range
    for each in tree.nested:
        yield from reads_of(each)


# -- answers -----------------------------------------------------------------------------------------------------------


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


def in_parts(kvs: list[KeyValue]) -> Iterator[list[KeyValue]]:
    """At least one, which may be empty."""
    sizes = (len(kv.key) + len(kv.value) for kv in kvs)
    return (kvs[start:stop] for start, stop in [*split(kvs, sizes, STREAM_BYTES)] or [(0, 0)])


def bare_header(revision: int) -> Any:
    """Of an answer within a txn's."""
    return pb.ResponseHeader(revision=revision)


def range_response(header: Any, result: RangeResult) -> Any:
    return pb.RangeResponse(
        header=header(result.revision), kvs=kvs_of(result.kvs), more=result.more, count=result.count
    )


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
    """With an empty header, as that of a nested txn is."""
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
