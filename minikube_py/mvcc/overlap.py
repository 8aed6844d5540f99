"""Whether the puts and deletes of a txn overlap, which etcd refuses: near-linear in the txn's bytes.

The rules are etcd's (v3rpc/key.go, checkRequestIntervals): a key is put once at most, the two branches of one nested
txn exclude each other, and a deleted key is not put. The compared pairs are etcd's, even where surprising: a nested
txn's puts are compared with preceding puts and with the deletes beside it, not with the deletes of later nested txns.
When two sets are merged, the smaller is iterated, so each key is moved log(n) times at most."""

from __future__ import annotations

from sortedcontainers import SortedList, SortedSet

from minikube_py.mvcc.types import DeleteRange, Op, Put, Txn


class Overlap(Exception):
    """Two of the operations touch the same key."""


class Cover:
    """The union of half-open ranges, as disjoint ranges in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: SortedList = SortedList()
        self._ends: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: bytes, end: bytes) -> None:
        """An empty range adds nothing."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        place = starts.bisect_right(start)
        if place and ends[starts[place - 1]] >= start:
            place -= 1
            start = starts[place]
        while place < len(starts) and starts[place] <= end:
            end = max(end, ends.pop(starts.pop(place)))
        starts.add(start)
        ends[start] = end

    def holds(self, key: bytes) -> bool:
        place = self._starts.bisect_right(key)
        return place > 0 and key < self._ends[self._starts[place - 1]]

    def touches(self, keys: SortedSet) -> bool:
        """Whether one of `keys` is in one of the ranges."""
        if len(keys) <= len(self):
            return any(map(self.holds, keys))
        for start, end in self._ends.items():
            place = keys.bisect_left(start)
            if place < len(keys) and keys[place] < end:
                return True
        return False

    def united(self, other: Cover) -> Cover:
        """Merges both into the larger one; the other must not be used any more."""
        large, small = (self, other) if len(self) >= len(other) else (other, self)
        for start, end in small._ends.items():
            large.add(start, end)
        return large


class Footprint:
    """The keys put and the ranges deleted by some operations."""

    __slots__ = ("deletes", "puts")

    def __init__(self) -> None:
        self.puts: SortedSet = SortedSet()
        self.deletes = Cover()

    def require_apart(self, keys: SortedSet) -> None:
        """Raises: Overlap if one of `keys` is already put or deleted."""
        large, small = (keys, self.puts) if len(keys) >= len(self.puts) else (self.puts, keys)
        if not large.isdisjoint(small) or (self.deletes and self.deletes.touches(keys)):
            raise Overlap

    def put(self, key: bytes) -> None:
        if key in self.puts or (self.deletes and self.deletes.holds(key)):
            raise Overlap
        self.puts.add(key)


def _united(one: SortedSet, other: SortedSet) -> SortedSet:
    large, small = (one, other) if len(one) >= len(other) else (other, one)
    large.update(small)
    return large


def check_overlap(ops: tuple[Op, ...]) -> None:
    """Raises: Overlap."""
    kinds = set(map(type, ops))
    if Txn not in kinds and DeleteRange not in kinds:
        keys = [op.key for op in ops if type(op) is Put]
        if len(set(keys)) < len(keys):
            raise Overlap
    else:
        _footprint(ops)


def _footprint(ops: tuple[Op, ...]) -> Footprint:
    whole = Footprint()
    for op in ops:
        if type(op) is DeleteRange:
            # As in etcd: here, unlike in deletes, a `range_end` of b"\0" means only that key.
            whole.deletes.add(op.key, op.range_end or op.key + b"\0")
    for op in ops:
        if type(op) is not Txn:
            continue
        then, other = _footprint(op.success), _footprint(op.failure)
        # The branches exclude each other, so a key put in both is put once.
        puts = _united(then.puts, other.puts)
        whole.require_apart(puts)
        whole.puts = _united(whole.puts, puts)
        whole.deletes = whole.deletes.united(then.deletes.united(other.deletes))
    for op in ops:
        if type(op) is Put:
            whole.put(op.key)
    return whole
