"""What the ranges and compares of one txn may read, all together: bounded before the first of them runs.

A txn of a few kilobytes can ask for the whole store thousands of times. One range may be as large as it likes, as a
range request by itself may; what the others add to the largest is bounded. Depends on the state alone, so that every
member refuses the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.reads import fetch_limit
from minikube_py.mvcc.types import Op, RangeRequest, Txn

KEYS_MAX: Final = 1 << 20
BYTES_MAX: Final = 64 << 20
"""Beside what the largest range of the txn reads."""


def check_compares(txn: Txn, index: KeyIndex) -> None:
    """Of all branches, whichever will be taken. Raises: InvalidRequest."""
    for each in txn.compare:
        if each.range_end:
            break
    else:
        if Txn not in map(type, txn.success) and Txn not in map(type, txn.failure):
            return
    _require(_compared(txn, index), KEYS_MAX, "keys", "compares")


def check_reads(ops: Sequence[Op], index: KeyIndex) -> None:
    """Of the branches that will run. Raises: InvalidRequest."""
    if len(ops) < 2:
        return
    ranges = [op for op in ops if type(op) is RangeRequest and (op.range_end or op.revision)]
    if len(ranges) < 2:
        return
    keys = [_keys(request, index) for request in ranges]
    _require(sum(keys) - max(keys), KEYS_MAX, "keys", "ranges")
    sizes = [_size_bytes(request, index) for request in ranges]
    _require(sum(sizes) - max(sizes), BYTES_MAX, "bytes", "ranges")


def _compared(txn: Txn, index: KeyIndex) -> int:
    keys = sum([index.count(each.key, each.range_end) for each in txn.compare if each.range_end])
    for branch in (txn.success, txn.failure):
        for op in branch:
            if type(op) is Txn:
                keys += _compared(op, index)
    return keys


def _keys(request: RangeRequest, index: KeyIndex) -> int:
    if request.revision > 0:
        # What stood then is found among all that stands or stood since.
        return len(index.live) + len(index.dead)
    count = index.count(request.key, request.range_end)
    limit = fetch_limit(request)
    return min(count, limit) if limit else count


def _size_bytes(request: RangeRequest, index: KeyIndex) -> int:
    if request.count_only or request.keys_only:
        return 0
    return sum([len(kv.value) for kv in index.range(request.key, request.range_end, fetch_limit(request))])


def _require(wanted: int, limit: int, unit: str, what: str) -> None:
    if wanted > limit:
        raise InvalidRequest(
            f"the {what} of one txn read {wanted} {unit} together, the limit is {limit}: send several, or read less"
        )
