"""Is a history of single keys linearizable? Each key is a register with compare-and-swap and delete.

Depth-first over the orders that real time allows, never visiting the same (set of operations done, value) twice.
Source: Wing and Gong, Testing and verifying concurrent objects, 1993; Lowe, Testing for linearizability, 2017. The cost
grows with the number of operations that overlap on one key: about eight are fine; beyond the budget it is undecided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, cast

from minikube_py.mvcc.types import Compare, DeleteRange, DeleteResult, Put, RangeRequest, RangeResult, Txn, TxnResult
from minikube_py.sim.checkers.model import parts_of, within
from minikube_py.sim.checkers.verdict import OK, Verdict, undecided, violation, worst
from minikube_py.sim.history import NEVER_US, Operation

STEPS_MAX: Final = 200_000

Value = bytes | None
"""A register's content; None: the key does not exist."""


class RegisterOp(NamedTuple):
    """The effect of one operation on its register. `known`: its answer arrived, with `seen`: the value read; whether
    the swap succeeded; whether there was a key to delete. A swap writes `value` if the content is `expected`."""

    kind: Literal["read", "write", "delete", "swap"]
    call_us: int
    return_us: int
    value: Value = None
    expected: Value = None
    known: bool = True
    seen: Value | bool = None

    def then(self, content: Value) -> tuple[bool, Value]:
        """Whether the answer fits a register with `content`, and its content afterwards."""
        if self.kind == "write":
            return True, self.value
        if self.kind == "read":
            return content == self.seen, content
        if self.kind == "delete":
            return not self.known or self.seen == (content is not None), None
        swaps = content == self.expected
        return not self.known or self.seen == swaps, self.value if swaps else content


def check(operations: Iterable[Operation], steps_max: int = STEPS_MAX) -> Verdict:
    """Checks each key used only by single-key requests; others are left to `transactions`."""
    by_key: dict[bytes, list[Operation]] = {}
    excluded: list[tuple[bytes, bytes]] = []
    for operation in operations:
        if operation.status == "refused" or operation.serializable:
            continue
        touched, excludes = _touched(operation)
        excluded += excludes
        if touched is not None:
            by_key.setdefault(touched, []).append(operation)
    return worst(
        check_register(key, [register_op(each) for each in by_key[key]], steps_max)
        for key in sorted(by_key)
        if not any(within(key, *interval) for interval in excluded)
    )


Intervals = list[tuple[bytes, bytes]]


def _touched(operation: Operation) -> tuple[bytes | None, Intervals]:
    """The single key that the operation uses as a register; or the keys it writes in other ways."""
    request = operation.request
    if isinstance(request, RangeRequest):
        plain = request == RangeRequest(request.key)
        return (request.key, []) if plain and operation.status == "done" else (None, [])
    if isinstance(request, Put) and request == Put(request.key, request.value):
        return request.key, []
    if isinstance(request, DeleteRange) and not request.range_end:
        return request.key, []
    if isinstance(request, Txn) and (swap := _swap(request)) is not None:
        return swap[0], []
    # An expiring lease deletes its keys; but a put with a lease already excludes its key.
    return None, _written(request)


def _swap(txn: Txn) -> tuple[bytes, Value, bytes] | None:
    """(key, expected, value) of a compare-and-swap of one key, None for any other txn."""
    if len(txn.compare) != 1 or len(txn.success) != 1 or any(type(op) is not RangeRequest for op in txn.failure):
        return None
    compare, put = txn.compare[0], txn.success[0]
    if type(put) is not Put or put != Put(compare.key, put.value) or compare.range_end:
        return None
    if compare.op == "=" and compare.target == "VALUE":
        return compare.key, cast(bytes, compare.operand), put.value
    absent = compare in (Compare(compare.key, "VERSION", "=", 0), Compare(compare.key, "CREATE", "=", 0))
    absent = absent or compare == Compare(compare.key, "MOD", "=", 0)
    return (compare.key, None, put.value) if absent else None


def _written(request: object) -> Intervals:
    parts = list(parts_of(request))
    deleted = [(part.key, part.range_end) for part in parts if isinstance(part, DeleteRange)]
    return [*deleted, *((part.key, b"") for part in parts if isinstance(part, Put))]


def register_op(operation: Operation) -> RegisterOp:
    """`operation` must use one key as a register."""
    request, result, call_us = operation.request, operation.result, operation.call_us
    known = operation.status == "done"
    return_us = operation.return_us if known and operation.return_us is not None else NEVER_US
    if isinstance(request, RangeRequest):
        assert isinstance(result, RangeResult)
        return RegisterOp("read", call_us, return_us, seen=result.kvs[0].value if result.kvs else None)
    if isinstance(request, Put):
        return RegisterOp("write", call_us, return_us, request.value, known=known)
    if isinstance(request, DeleteRange):
        deleted = isinstance(result, DeleteResult) and result.deleted > 0
        return RegisterOp("delete", call_us, return_us, known=known, seen=deleted)
    assert isinstance(request, Txn)
    swap = _swap(request)
    assert swap is not None
    swapped = isinstance(result, TxnResult) and result.succeeded
    return RegisterOp("swap", call_us, return_us, swap[2], swap[1], known, swapped)


class _Order:
    """The remaining calls and returns, in order of time, as a doubly linked list over positions; 0 is the head.

    At equal times calls precede returns, so that the operations overlap."""

    def __init__(self, ops: Sequence[RegisterOp]) -> None:
        moments = [(op.call_us, 0, number) for number, op in enumerate(ops)]
        moments += [(op.return_us, 1, number) for number, op in enumerate(ops) if op.return_us < NEVER_US]
        moments.sort()
        self.op = [-1, *(number for _, _, number in moments)]
        self.is_call = [False, *(kind == 0 for _, kind, _ in moments)]
        self.next = [*range(1, len(self.op)), 0]
        self.previous = [len(self.op) - 1, *range(len(self.op) - 1)]
        self.return_at = {number: at for at, (_, kind, number) in enumerate(moments, 1) if kind == 1}

    def take(self, at: int) -> None:
        """Removes the call at `at` and its return."""
        self._unlink(at)
        if (other := self.return_at.get(self.op[at])) is not None:
            self._unlink(other)

    def put_back(self, at: int) -> None:
        """The inverse of the last `take`."""
        if (other := self.return_at.get(self.op[at])) is not None:
            self._link(other)
        self._link(at)

    def _unlink(self, at: int) -> None:
        self.next[self.previous[at]] = self.next[at]
        self.previous[self.next[at]] = self.previous[at]

    def _link(self, at: int) -> None:
        self.next[self.previous[at]] = at
        self.previous[self.next[at]] = at


def check_register(key: bytes, ops: Sequence[RegisterOp], steps_max: int = STEPS_MAX) -> Verdict:
    """Whether `ops`, all on the initially absent `key`, can have happened one after another."""
    order = _Order(ops)
    remaining = sum(op.known for op in ops)
    content: Value = None
    done = 0
    visited: set[tuple[int, Value]] = set()
    taken: list[tuple[int, Value]] = []
    farthest = 0
    at = order.next[0]
    for _ in range(steps_max):
        if not remaining:
            return OK
        op = ops[order.op[at]]
        if at and order.is_call[at]:
            fits, after = op.then(content)
            state = (done | 1 << order.op[at], after)
            if fits and state not in visited:
                visited.add(state)
                taken.append((at, content))
                order.take(at)
                done, content = state
                remaining -= op.known
                at = order.next[0]
            else:
                at = order.next[at]
            continue
        # The next operation to return does not fit: backtrack.
        farthest = max(farthest, len(taken))
        if not taken:
            return violation(_not_linearizable(key, ops, farthest))
        at, content = taken.pop()
        order.put_back(at)
        done ^= 1 << order.op[at]
        remaining += ops[order.op[at]].known
        at = order.next[at]
    return undecided(f"{key!r}: {len(ops)} operations, not decided in {steps_max} steps")


def _not_linearizable(key: bytes, ops: Sequence[RegisterOp], farthest: int) -> str:
    shown = "".join(f"\n  {op}" for op in sorted(ops, key=lambda op: op.call_us)[:60])
    return f"{key!r}: its {len(ops)} operations are not linearizable; at most {farthest} fit in one order:{shown}"
