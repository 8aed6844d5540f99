"""Checks of a txn before anything is written, and evaluation of compares. Rules and messages are etcd's.

Source: etcd server/etcdserver/api/v3rpc/key.go (requests), server/etcdserver/txn (compares, the chosen path). `check`
needs no state and gives the same answer on every member; `path` runs all compares, nested ones too, against the state
before the txn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from minikube_py.errors import InvalidRequest, shown
from minikube_py.index.declared import INDEXES_PREFIX
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.overlap import Overlap, check_overlap
from minikube_py.mvcc.types import Compare, DeleteRange, KeyValue, Op, Put, RangeRequest, Txn

MAX_TXN_OPS: Final = 128

EMPTY_KEY: Final = "etcdserver: key is not provided"
KEY_NOT_FOUND: Final = "etcdserver: key not found"
DUPLICATE_KEY: Final = "etcdserver: duplicate key given in txn request"
TOO_MANY_OPS: Final = "etcdserver: too many operations in txn request"

RESERVED: Final = f"keys under {INDEXES_PREFIX.decode()} are written only by declaring and dropping indexes"

_FIELD: Final = {"VALUE": 1, "CREATE": 2, "MOD": 3, "VERSION": 4, "LEASE": 5}
_NUMBERS: Final = frozenset(_FIELD) - {"VALUE"}
_OPERATORS: Final = frozenset({"=", "!=", "<", ">"})
_SINGLE_MAX: Final = 4
_ONE_KEY: Final = RangeRequest(b"")[1:]
_INT64_MAX: Final = (1 << 63) - 1
_new = tuple.__new__
# The constructor of a frozen dataclass takes as long as packing the whole txn.
_set_compare, _set_success, _set_failure, _set_plain, _set_single = [
    Txn.__dict__[name].__set__ for name in ("compare", "success", "failure", "plain", "single")
]
_ABSENT = KeyValue(b"", b"", 0, 0, 0, 0)


class Path(NamedTuple):
    """The branch a txn takes, and those of its nested txns in order of their ops."""

    succeeded: bool
    nested: tuple[Path, ...]


_DONE, _NOT_DONE = Path(True, ()), Path(False, ())


def is_single(txn: Txn) -> bool:
    """Whether it is one put under compares of numbers, with reads of one key each in the other branch, all valid and in
    bounds. One quick check for nearly every write of an API server: of an object, and of one in a namespace."""
    compares, reads = txn.compare, txn.failure
    if len(txn.success) != 1 or not (0 < len(compares) <= _SINGLE_MAX and 0 < len(reads) <= _SINGLE_MAX):
        return False
    put = txn.success[0]
    if type(put) is not Put:
        return False
    for read in reads:
        if type(read) is not RangeRequest or not read.key or read[1:] != _ONE_KEY:
            return False
    for key, target, operator, operand, range_end in compares:
        if not key or range_end or target not in _NUMBERS or operator not in _OPERATORS:
            return False
        if type(operand) is not int or not 0 <= operand <= _INT64_MAX:
            return False
    put_key, _, lease, _, ignore_value, ignore_lease = put
    if not put_key or ignore_value or ignore_lease or put_key.startswith(INDEXES_PREFIX):
        return False
    return 0 <= lease <= _INT64_MAX


def mark_single(txn: Txn) -> bool:
    """`is_single`, recorded if it holds."""
    if not is_single(txn):
        return False
    object.__setattr__(txn, "plain", True)
    object.__setattr__(txn, "single", True)
    return True


def replacing(kv: KeyValue, value: bytes) -> Txn:
    """Puts `value` if the key is still as in `kv`, which was read from a store."""
    key, _, _, revision, _, lease = kv
    return _single((_new(Compare, (key, "MOD", "=", revision, b"")),), key, value, lease, (_read(key),))


def creating(key: bytes, value: bytes, lease: int, guard: KeyValue | None) -> Txn:
    """Puts `value` if `key`, of an object, is absent, and `guard` as it was read."""
    absent: Compare = _new(Compare, (key, "CREATE", "=", 0, b""))
    if guard is None:
        return _single((absent,), key, value, lease, (_read(key),))
    compare = absent, _new(Compare, (guard.key, "MOD", "=", guard.mod_revision, b""))
    return _single(compare, key, value, lease, (_read(key), _read(guard.key)))


def _read(key: bytes) -> RangeRequest:
    read: RangeRequest = _new(RangeRequest, (key, *_ONE_KEY))
    return read


def _single(
    compare: tuple[Compare, ...], key: bytes, value: bytes, lease: int, failure: tuple[RangeRequest, ...]
) -> Txn:
    """Valid, and marked as single without a check."""
    txn = object.__new__(Txn)
    _set_compare(txn, compare)
    _set_success(txn, (_new(Put, (key, value, lease, False, False, False)),))
    _set_failure(txn, failure)
    _set_plain(txn, True)
    _set_single(txn, True)
    return txn


def check(request: Put | DeleteRange | RangeRequest | Txn) -> None:
    """Raises: InvalidRequest if the request is invalid in any state."""
    if type(request) is not Txn:
        _check_op(request, MAX_TXN_OPS)
        return
    if mark_single(request):
        return
    plain = _check_txn(request, MAX_TXN_OPS)
    try:
        for branch in (request.success, request.failure):
            if len(branch) > 1 or (branch and type(branch[0]) is Txn):
                check_overlap(branch)
    except Overlap:
        raise InvalidRequest(DUPLICATE_KEY) from None
    if plain:
        object.__setattr__(request, "plain", True)


def _check_txn(txn: Txn, budget: int) -> bool:
    if (used := max(len(txn.compare), len(txn.success), len(txn.failure))) > budget:
        raise InvalidRequest(TOO_MANY_OPS)
    plain = True
    for key, target, operator, operand, range_end in txn.compare:
        if not key:
            raise InvalidRequest(EMPTY_KEY)
        if target not in _FIELD or operator not in _OPERATORS:
            raise InvalidRequest(f"a compare has no target {shown(target)} with operator {shown(operator)}")
        if type(operand) is not (bytes if target == "VALUE" else int):
            raise InvalidRequest(f"a compare of {target} with a {type(operand).__name__}")
        plain = plain and not range_end
    for op in (*txn.success, *txn.failure):
        _check_op(op, budget - used)
        plain = plain and type(op) is not Txn
        if type(op) is RangeRequest and (op.where is not None or op.fields):
            raise InvalidRequest("a range with a where or with fields cannot be part of a txn")
    return plain


def _check_op(op: Op, budget: int) -> None:
    if type(op) is Txn:
        _check_txn(op, budget)
    elif not op.key:  # type: ignore[union-attr]
        raise InvalidRequest(EMPTY_KEY)
    elif type(op) is Put:
        if op.key.startswith(INDEXES_PREFIX):
            raise InvalidRequest(RESERVED)
        if op.ignore_value and op.value:
            raise InvalidRequest("etcdserver: value is provided")
        if op.ignore_lease and op.lease:
            raise InvalidRequest("etcdserver: lease is provided")


def path(txn: Txn, index: KeyIndex) -> Path:
    """Runs the compares of `txn` and of nested txns on the branches taken."""
    succeeded = True
    for compare in txn.compare:
        if not holds(compare, index):
            succeeded = False
            break
    if txn.plain:
        return _DONE if succeeded else _NOT_DONE
    ops = txn.success if succeeded else txn.failure
    return Path(succeeded, tuple([path(op, index) for op in ops if type(op) is Txn]))


def taken(txn: Txn, chosen: Path) -> Iterator[Op]:
    """All leaf ops that will run, in order."""
    nested = iter(chosen.nested)
    for op in txn.success if chosen.succeeded else txn.failure:
        if type(op) is Txn:
            yield from taken(op, next(nested))
        else:
            yield op


def holds(compare: Compare, index: KeyIndex) -> bool:
    """A missing key compares as zeros, except that its VALUE compares false; all keys of a range must agree."""
    key, target, op, operand, range_end = compare
    if not range_end:
        kv = index.current.get(key)
        if kv is None:
            return target != "VALUE" and _compare(_ABSENT, target, op, operand)
        return _compare(kv, target, op, operand)
    kvs = index.range(key, range_end)
    if not kvs:
        return target != "VALUE" and _compare(_ABSENT, target, op, operand)
    return all(_compare(kv, target, op, operand) for kv in kvs)


def _compare(kv: KeyValue, target: str, op: str, operand: int | bytes) -> bool:
    actual = kv[_FIELD[target]]
    if op == "=":
        return actual == operand
    if op == "!=":
        return actual != operand
    if op == "<":
        return actual < operand  # type: ignore[operator]
    return actual > operand  # type: ignore[operator]
