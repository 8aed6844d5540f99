"""Bounds the total that the ranges and compares of one txn may read, before the first of them runs.

A txn of a few kilobytes can request the whole store thousands of times. One range may be of any size, as in a plain
range request; the total of the others is bounded. The result depends on the state alone, so every member refuses the
same."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc.key_index import KeyIndex, end_of
from minikube_py.mvcc.reads import LIMIT_REACHABLE, fetch_limit
from minikube_py.mvcc.types import DeleteRange, Op, Put, RangeRequest, Txn

KEYS_MAX: Final = 1 << 20
BYTES_MAX: Final = 64 << 20
"""In addition to what the largest range of the txn reads."""
DELETED_MAX: Final = 10_000


def check_compares(txn: Txn, index: KeyIndex) -> None:
    """For all branches, whichever runs. Raises: InvalidRequest."""
    for each in txn.compare:
        if each.range_end:
            break
    else:
        if Txn not in map(type, txn.success) and Txn not in map(type, txn.failure):
            return
    _require(_compared(txn, index), KEYS_MAX, "keys", "compares")


def check_reads(ops: Sequence[Op], index: KeyIndex, died: Callable[[], int]) -> None:
    """For the branches that will run, whose revisions are retained. `died`: how many deletions of keys are retained.
    Raises: InvalidRequest."""
    if len(ops) < 2:
        return
    ranges = [op for op in ops if type(op) is RangeRequest]
    if len(ranges) < 2:
        return
    past = any(request.revision > 0 and request.range_end for request in ranges)
    bounds = _Bounds(ops, index, died() if past else 0)
    keys = [bounds.keys(request) for request in ranges]
    _require(sum(keys) - max(keys), KEYS_MAX, "keys", "ranges")
    sizes = [bounds.size_bytes(request) for request in ranges]
    _require(sum(sizes) - max(sizes), BYTES_MAX, "bytes", "ranges")


def check_deletions(txn: Txn, index: KeyIndex) -> None:
    """For all branches. Called by the proposer, not by apply: an earlier log may hold more. A plain deletion is
    prepared in slices (`ahead`) and needs no bound. Raises: InvalidRequest."""
    if txn.single:
        return
    keys, waiting = 0, [txn]
    for each in waiting:
        for op in (*each.success, *each.failure):
            if type(op) is Txn:
                waiting.append(op)
            elif type(op) is DeleteRange and op.range_end:
                keys += index.count(op.key, op.range_end)
    if keys > DELETED_MAX:
        raise InvalidRequest(
            f"the deletions of one txn end {keys} keys, the limit is {DELETED_MAX}: delete them each by itself"
        )


class _Bounds:
    """Upper bounds of what each range of `ops` reads, whichever of the other ops run before it."""

    def __init__(self, ops: Sequence[Op], index: KeyIndex, died: int) -> None:
        puts = sorted([(op.key, len(op.key) + len(op.value)) for op in ops if type(op) is Put])
        self._put_keys = [key for key, _ in puts]
        self._put_bytes = list(accumulate([size_bytes for _, size_bytes in puts], initial=0))
        self._deleted = sum([index.count(op.key, op.range_end) for op in ops if type(op) is DeleteRange])
        self._index = index
        self._died = died

    def keys(self, request: RangeRequest) -> int:
        if request.revision > 0:
            # A past state is a subset of all keys that exist or existed since; do not use the untrimmed history, which
            # differs by member.
            return self._index.count(request.key, request.range_end) + self._died if request.range_end else 1
        low, high = self._puts(request)
        count = self._index.count(request.key, request.range_end) + high - low
        limit = self._limit(request)
        return min(count, limit) if limit else count

    def size_bytes(self, request: RangeRequest) -> int:
        """Bytes of keys and values."""
        key, range_end, revision = request.key, request.range_end, request.revision
        if request.count_only:
            return 0
        if revision > 0:
            kvs, size_bytes = self._index.range_at(key, range_end, revision, self._limit(request)), 0
        else:
            low, high = self._puts(request)
            size_bytes = self._put_bytes[high] - self._put_bytes[low]
            kvs = self._index.range(key, range_end, self._limit(request))
        if request.keys_only:
            return size_bytes + sum([len(kv.key) for kv in kvs])
        return size_bytes + sum([len(kv.key) + len(kv.value) for kv in kvs])

    def _limit(self, request: RangeRequest) -> int:
        """Deletes in the txn make room for as many other keys."""
        limit = fetch_limit(request)
        return limit + self._deleted if 0 < limit < LIMIT_REACHABLE else 0

    def _puts(self, request: RangeRequest) -> tuple[int, int]:
        """The txn's own puts that the range can see."""
        low = bisect_left(self._put_keys, request.key)
        if not request.range_end:
            return low, bisect_right(self._put_keys, request.key)
        end = end_of(request.range_end)
        return low, max(low, len(self._put_keys) if end is None else bisect_left(self._put_keys, end))


def _compared(txn: Txn, index: KeyIndex) -> int:
    keys = sum([index.count(each.key, each.range_end) for each in txn.compare if each.range_end])
    for branch in (txn.success, txn.failure):
        for op in branch:
            if type(op) is Txn:
                keys += _compared(op, index)
    return keys


def _require(wanted: int, limit: int, unit: str, what: str) -> None:
    if wanted > limit:
        raise InvalidRequest(
            f"the {what} of one txn read {wanted} {unit} together, the limit is {limit}: send several, or read less"
        )
