"""Classifies store calls: point get or range, create or update, and the API parts used. Pure.

The terms are those of the published measurement of Kubernetes' calls to etcd (etcd PRs 20482 and 20567), where
available.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from minikube_py.api.registry import REGISTRY
from minikube_py.mvcc.types import FROM_KEY, Compare, DeleteRange, Op, Put, RangeRequest, Txn
from minikube_py.store.storage import Storage

REGISTRY_ROOT: Final = b"/registry/"
EVERYTHING: Final = "(all keys)"
NO_OBJECT: Final = "(no object)"
_PREFIXES: Final = {resource.prefix: resource.plural for resource in REGISTRY.kinds if resource.stored}


class Shape(NamedTuple):
    """`operation` is the store's term (range, txn, watch, ...); `text` adds detail. `parts`: names from `ALL_PARTS`."""

    operation: str
    text: str
    parts: tuple[str, ...] = ()


def resource_of(key: bytes) -> str:
    """The plural of the objects under `key`, or a description for other keys."""
    if key in (b"", b"\0"):
        return EVERYTHING
    if key == REGISTRY_ROOT:
        return NO_OBJECT
    pieces = key.split(b"/")
    for depth in (3, 4):
        found = _PREFIXES.get(b"/".join(pieces[:depth]) + b"/")
        if found is not None:
            return found
    return pieces[2].decode(errors="replace") if key.startswith(REGISTRY_ROOT) else key.decode(errors="replace")


def name_of(key: bytes) -> str:
    """`namespace/name` or `name` of the object at `key`; empty for other keys."""
    pieces = key.split(b"/")
    for depth in (3, 4):
        if b"/".join(pieces[:depth]) + b"/" in _PREFIXES:
            return b"/".join(pieces[depth:]).decode(errors="replace")
    return ""


def range_shape(request: RangeRequest) -> Shape:
    if request.key == REGISTRY_ROOT and not request.range_end and not request.revision:
        text = "point get, of the revision alone"
    else:
        text = "many keys" if request.range_end else "point get"
        if request.where is not None:
            text += " by an index"
        elif request.fields:
            text += " of declared fields"
        if request.count_only:
            text += ", count only"
        if request.limit:
            text += ", with limit"
        if request.revision:
            text += ", at a revision"
    return Shape("range", text, tuple(_request_parts(request)))


def _request_parts(request: RangeRequest) -> Iterator[str]:
    defaults = RangeRequest(b"")
    for field, value, usual in zip(RangeRequest._fields, request, defaults):
        if field != "key" and value != usual:
            yield f"RangeRequest.{field}"


def txn_shape(compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op], purpose: str = "") -> Shape:
    """`purpose`: the caller's intent, where the txn does not show it: a bind is an update of a pod."""
    kind = _txn_kind(compare, success)
    text = f"{kind}: {purpose}" if purpose and kind == "update" else kind
    return Shape("txn", text, tuple(dict.fromkeys(_txn_parts(compare, success, failure))))


def _txn_kind(compare: Sequence[Compare], success: Sequence[Op]) -> str:
    first = success[0] if success else None
    guard = compare[0] if compare else None
    if isinstance(first, Put):
        if guard is None:
            return "put without a condition"
        if guard.target in ("CREATE", "MOD") and guard.operand == 0:
            return "create"
        return "update" if guard.target == "MOD" else "put under another condition"
    if isinstance(first, DeleteRange):
        return "delete" if guard is not None and guard.target == "MOD" else "delete under another condition"
    return "reads only"


def _txn_parts(compare: Iterable[Compare], success: Iterable[Op], failure: Iterable[Op]) -> Iterator[str]:
    for each in compare:
        yield f"Compare {each.target} {each.op}"
        if each.range_end:
            yield "Compare.range_end"
    for branch, ops in (("success", success), ("failure", failure)):
        for op in ops:
            yield f"Txn.{branch}: {_op_name(op)}"
            yield from _op_parts(op)


def _op_name(op: Op) -> str:
    return "range" if isinstance(op, RangeRequest) else type(op).__name__


def _op_parts(op: Op) -> Iterator[str]:
    if isinstance(op, RangeRequest):
        yield from _request_parts(op)
    elif isinstance(op, Put):
        yield from (f"Put.{flag}" for flag in _PUT_FLAGS if getattr(op, flag))
    elif isinstance(op, DeleteRange):
        yield from (f"DeleteRange.{flag}" for flag in _DELETE_FLAGS if getattr(op, flag))
    else:
        yield from _txn_parts(op.compare, op.success, op.failure)


def watch_shape(key: bytes, range_end: bytes, start_revision: int, indexed: bool) -> Shape:
    text = "one key" if not range_end else "all keys" if range_end == FROM_KEY else "many keys"
    if indexed:
        text += " by an index"
    parts = ["watch.where"] if indexed else []
    if start_revision:
        text += ", from a revision"
        parts.append("watch.start_revision")
    if range_end:
        parts.append("watch.range_end")
    return Shape("watch", text, tuple(parts))


_NO_CALLS: Final = ("close", "metrics", "revision")
_PUT_FLAGS: Final = ("lease", "prev_kv", "ignore_value", "ignore_lease")
_DELETE_FLAGS: Final = ("range_end", "prev_kv")


def all_parts() -> dict[str, tuple[str, ...]]:
    """Every part of the store's API that a call can use, by group; derived from the types, so it is complete."""
    hints: dict[str, Any] = get_type_hints(Compare)
    compares = [f"Compare {t} {op}" for t in get_args(hints["target"]) for op in get_args(hints["op"])]
    ops = [each.__name__ if each is not RangeRequest else "range" for each in (RangeRequest, Put, DeleteRange, Txn)]
    methods = [name for name in vars(Storage) if not name.startswith("_") and name not in _NO_CALLS]
    return {
        "operations": tuple(methods),
        "parts of a range": tuple(f"RangeRequest.{field}" for field in RangeRequest._fields if field != "key"),
        "parts of a txn": (
            *(f"Txn.{branch}: {op}" for branch in ("success", "failure") for op in ops),
            *(f"Put.{flag}" for flag in _PUT_FLAGS),
            *(f"DeleteRange.{flag}" for flag in _DELETE_FLAGS),
        ),
        "compares": (*compares, "Compare.range_end"),
        "parts of a watch": ("watch.start_revision", "watch.range_end", "watch.where"),
    }
