"""The keys of a host's rows in order, updated lazily by the next query in key order.

Queries for any matches do not need it, and most changes leave the keys unchanged. So adding a key or freeing its slot
only records it, in `added` or `removed`; a few such keys are inserted and removed singly, many are merged. The order
holds the keys of all slots in use, including deleted objects that are not compacted yet."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from minikube_py.index.cells import Cells, Mask

SPARSE_SHARE: Final = 16
"""If fewer than one row in this many matches, sort the matches; else walk the key order in blocks."""


class KeyOrder:
    """Over the `slots` of the keys and the `keys` of the slots, which belong to the host and are not changed here."""

    __slots__ = ("_keys", "_rank", "_slots", "_sorted_keys", "_sorted_slots", "added", "removed")

    def __init__(self, slots: dict[bytes, int], keys: list[bytes]) -> None:
        self._slots = slots
        self._keys = keys
        self._sorted_keys: list[bytes] = []
        self._sorted_slots: Cells = np.empty(0, dtype=np.int64)
        self._rank: Cells = np.empty(0, dtype=np.int64)
        # Replaced by new lists once merged, so callers must not keep references.
        self.added: list[bytes] = []
        self.removed: list[bytes] = []

    def dispose(self, keys: int) -> None:
        """Frees `keys` of its entries; it must not be used any more."""
        del self._sorted_keys[-keys:]

    def between(self, first: bytes, end: bytes | None) -> Cells:
        """The slots whose keys are in [first, end), by key."""
        self._sort()
        low = bisect_left(self._sorted_keys, first)
        high = len(self._sorted_keys) if end is None else max(low, bisect_left(self._sorted_keys, end))
        return self._sorted_slots[low:high]

    def of_mask(self, mask: Mask, first: bytes, end: bytes | None, limit: int) -> tuple[Cells, int]:
        """The slots that are true in `mask` and whose keys are in [first, end), by key, at most `limit` of them
        (0: all); and how many there are without the limit."""
        within = self.between(first, end)
        if first or end is not None:
            found = within[mask[within]]
            return (found[:limit] if limit else found), len(found)
        count = int(np.count_nonzero(mask))
        return self._first_of(mask, count, limit), count

    def of_slots(self, slots: Cells, first: bytes, end: bytes | None, limit: int = 0) -> tuple[Cells, int]:
        """The same for the distinct `slots`."""
        self._sort()
        ranks = self._rank[slots]
        if first:
            ranks = ranks[ranks >= bisect_left(self._sorted_keys, first)]
        if end is not None:
            ranks = ranks[ranks < bisect_left(self._sorted_keys, end)]
        count = len(ranks)
        if 0 < limit < count:
            ranks = np.partition(ranks, limit)[:limit]
        ranks.sort()
        return self._sorted_slots[ranks], count

    def _first_of(self, mask: Mask, count: int, limit: int) -> Cells:
        """The slots of the first `limit` (0: all) of all `count` matches."""
        wanted = min(limit or count, count)
        if wanted == 0:
            return np.empty(0, dtype=np.int64)
        if wanted == count or count * SPARSE_SHARE < len(self._keys):
            return self._sorted_slots[np.sort(self._rank[np.flatnonzero(mask)])[:wanted]]
        pieces = []
        block, start = max(256, wanted * 2), 0
        while wanted > 0 and start < len(self._sorted_slots):
            slots = self._sorted_slots[start : start + block]
            piece = slots[mask[slots]][:wanted]
            pieces.append(piece)
            wanted -= len(piece)
            start += block
        return np.concatenate(pieces)

    def _sort(self) -> None:
        """Updates the order: a few keys are inserted and removed singly, many are merged."""
        if (len(self.added) + len(self.removed)) * 50 > len(self._sorted_keys):
            # Timsort merges the sorted run and the added keys in linear time.
            self._sorted_keys = sorted(self._slots)
            slots = self._slots
            self._sorted_slots = np.fromiter((slots[key] for key in self._sorted_keys), np.int64, len(slots))
        elif self.added or self.removed:
            self._take_out(self.removed)
            # A key may have been added, freed and added again since.
            added = sorted({key for key in self.added if key in self._slots})
            places = [bisect_left(self._sorted_keys, key) for key in added]
            self._sorted_slots = np.insert(self._sorted_slots, places, [self._slots[key] for key in added])
            for offset, (place, key) in enumerate(zip(places, added)):
                self._sorted_keys.insert(place + offset, key)
        else:
            return
        self.added = []
        self.removed = []
        self._rank = np.full(len(self._keys), -1, dtype=np.int64)
        self._rank[self._sorted_slots] = np.arange(len(self._sorted_slots))

    def _take_out(self, removed: list[bytes]) -> None:
        order = self._sorted_keys
        places = {place for key in removed if order[(place := bisect_left(order, key)) : place + 1] == [key]}
        if places:
            self._sorted_slots = np.delete(self._sorted_slots, sorted(places))
            for place in sorted(places, reverse=True):
                del order[place]
