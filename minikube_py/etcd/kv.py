"""KV: converts requests to the store's form, and answers to etcd's.

Requests that are invalid in any state are refused here, in etcd's order (api/v3rpc/key.go); the store checks the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final, NamedTuple, cast

from minikube_py.etcd.answers import delete_response, in_parts, kvs_of, put_response, range_answer, range_response
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import (
    EMPTY_KEY,
    INVALID_SORT,
    KEY_NOT_FOUND,
    LEASE_PROVIDED,
    TOO_MANY_OPS,
    VALUE_PROVIDED,
    Refused,
)
from minikube_py.etcd.large import (
    SLICE,
    check_cost,
    delete_bytes,
    is_small_txn,
    range_bytes,
    read_txn,
    txn_bytes,
    txn_whole,
)
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node, Reply, Soon
from minikube_py.etcd.pieces import is_small as is_small_answer
from minikube_py.etcd.wire import read
from minikube_py.mvcc.alarms import KINDS
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeleteRange,
    DeleteResult,
    Op,
    Put,
    PutResult,
    RangeRequest,
    Txn,
    TxnResult,
)
from minikube_py.store.paging import is_small
from minikube_py.store.paging import read as read_range

OPS_MAX: Final = 128
NESTED_MAX: Final = 4_096
"""Nesting depth of txns. etcd bounds it only by the size of the request."""
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
        self.soon: dict[str, Soon] = {
            "KV/Range": self._range_soon,
            "KV/Put": self._put_soon,
            "KV/DeleteRange": self._delete_soon,
            "KV/Txn": self._txn_soon,
        }
        """For the methods that seldom need a task."""

    # -- without a task ------------------------------------------------------------------------------------------------

    def _range_soon(self, request: Any, reply: Reply) -> bool:
        member = self._node.member
        if member.state.auth.enabled:
            return False
        asked = range_of(request)
        if request.serializable or member.readable:
            return self._read(asked, reply)
        if member.replica.leader() is None:
            return False

        def read() -> None:
            if member.state.auth.enabled or not self._read(asked, reply):
                reply.later()

        self._node.when_confirmed(reply, read)
        return True

    def _read(self, asked: RangeRequest, reply: Reply) -> bool:
        """Whether it is small enough for one step. Raises: RequestError."""
        member = self._node.member
        if not is_small(member.state, asked):
            return False
        result, header = member.read(asked), self._node.header
        if not is_small_answer(result.kvs, SLICE):
            reply.slowly(range_bytes, header, result)
        else:
            reply.done(range_answer(header, result))
        return True

    def _put_soon(self, request: Any, reply: Reply) -> bool:
        return self._node.propose(put_of(request), reply, self._put_done)

    def _put_done(self, result: PutResult, reply: Reply) -> None:
        reply.done(put_response(self._node.header, result))

    def _delete_soon(self, request: Any, reply: Reply) -> bool:
        return self._node.propose(delete_of(request), reply, self._delete_done)

    def _delete_done(self, result: DeleteResult, reply: Reply) -> None:
        if not is_small_answer(result.prev_kvs, SLICE):
            reply.slowly(delete_bytes, self._node.header, result)
        else:
            reply.done(delete_response(self._node.header, result))

    def _txn_soon(self, request: Any, reply: Reply) -> bool:
        """Read-only ones are left to a task."""
        if self._node.guard.auth.enabled:
            return False
        txn = txn_of(tree_of(request), OPS_MAX)
        check_cost(txn, self._node.member.state.index)
        return not reads_only(txn) and self._node.propose(txn, reply, self._txn_done)

    def _txn_done(self, result: TxnResult, reply: Reply) -> None:
        header = self._node.header(result.revision)
        if not is_small_txn(result):
            reply.slowly(txn_bytes, header, result)
        else:
            reply.done(txn_whole(header, result))

    # -- with one ------------------------------------------------------------------------------------------------------

    async def range(self, request: Any) -> Any:
        asked, guard = range_of(request), self._node.guard
        if not request.serializable:
            await self._node.confirmed()
        if not guard.auth.enabled:
            return await range_bytes(self._node.header, await read_range(self._node.member, asked))
        who = await guard.read(asked.key, asked.range_end)
        result = await read_range(self._node.member, asked)
        guard.unchanged(who)
        return await range_bytes(self._node.header, result)

    async def range_stream(self, request: Any) -> AsyncGenerator[Any, None]:
        """Only the last part has header, count and more."""
        asked = range_of(request)
        if request.sort_order and (request.sort_order, request.sort_target) != (1, 0):
            raise Refused(StatusCode.UNIMPLEMENTED, "RangeStream does not support custom sort orders")
        if any((request.min_mod_revision, request.max_mod_revision)) or any(
            (request.min_create_revision, request.max_create_revision)
        ):
            raise Refused(StatusCode.UNIMPLEMENTED, "RangeStream does not support revision filters")
        if not request.serializable:
            await self._node.confirmed()
        who = await self._node.guard.read(asked.key, asked.range_end)
        result = await read_range(self._node.member, asked)
        self._node.guard.unchanged(who)
        parts = list(in_parts(result.kvs))
        for part in parts[:-1]:
            yield pb.RangeStreamResponse(range_response=pb.RangeResponse(kvs=kvs_of(part)))
        last = result._replace(kvs=parts[-1])
        yield pb.RangeStreamResponse(range_response=range_response(self._node.header, last))

    async def put(self, request: Any) -> Any:
        return put_response(self._node.header, cast(PutResult, await self._node.command(put_of(request))))

    async def delete_range(self, request: Any) -> Any:
        return await delete_bytes(self._node.header, cast(DeleteResult, await self._node.command(delete_of(request))))

    async def txn(self, request: Any) -> Any:
        """A read-only one does not use the log."""
        tree = tree_of(request)
        txn = txn_of(tree, OPS_MAX)
        try:
            check_cost(txn, self._node.member.state.index)
        except Refused:
            await self._node.guard.allowed(txn)
            raise
        if reads_only(txn):
            # As in etcd, whatever it compares; but etcd counts no txn with one in it as a read.
            if tree.nested or not all(read.serializable for read in reads_of(tree)):
                await self._node.confirmed()
            who = await self._node.guard.read_txn(txn)
            result = await read_txn(self._node.member, txn)
            self._node.guard.unchanged(who)
        else:
            result = cast(TxnResult, await self._node.command(txn))
        return await txn_bytes(self._node.header(result.revision), result)

    async def compact(self, request: Any) -> Any:
        """`physical`: returns when compacted history uses no memory any more."""
        await self._node.guard.admin()
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
    """A txn's message with its nested ones, in the order of their ops."""

    request: Any
    nested: tuple[Tree, ...]


def tree_of(request: Any) -> Tree:
    """Like Go, parses all of its bytes before any check; but a txn that is too wide or too deep is refused without
    that. Raises: Refused."""
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
    """A result or target unknown to etcd always holds or compares nothing with nothing.

    Raises: Refused."""
    key, end, result, target = request.key, request.range_end, request.result, request.target
    if not key:
        raise Refused(*EMPTY_KEY)
    if not 0 <= target < len(COMPARED):
        # Equal, to any value.
        return Compare(key, "VERSION", "<" if result in (1, 2, 3) else ">", -1 if result not in (1, 2, 3) else 0, end)
    name, field = COMPARED[target]
    if not 0 <= result < len(OPERATORS):
        return Compare(key, "VERSION", ">", 0 if name == "VALUE" else -1, end)
    return Compare(key, name, OPERATORS[result], getattr(request, field), end)  # type: ignore[arg-type]


def reads_only(txn: Txn) -> bool:
    """In both branches, and in all nested txns."""
    return all(type(op) is RangeRequest or (type(op) is Txn and reads_only(op)) for op in (*txn.success, *txn.failure))


def reads_of(tree: Tree) -> Iterator[Any]:
    for op in (*tree.request.success, *tree.request.failure):
        if op.WhichOneof("request") == "request_range":
            yield op.request_range
    for each in tree.nested:
        yield from reads_of(each)
