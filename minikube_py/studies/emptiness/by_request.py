"""Fronts that learn from the requests that were asked: from all nodes at once, or from what is opened anyway.

Shards do not have to be read in order to tell what a request finds in them: until one was opened in vain it may pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import LOW, IntArray, Point
from minikube_py.studies.emptiness.table import COUNT_BITS, Table

NEVER: Final = np.iinfo(np.int64).max
"""An amount that no request asks for."""


class ByRequest(Table):
    """One bit for each distinct request and shard: whether some node of the shard has all that it asks for. Exact.

    Nodes that fit are counted, so that a change looks at the requests and at no other node. A request that is not known
    is compared with all nodes and learned; `most` are held, and one more takes the place of the one asked longest ago.
    The requests are one table for all shards, in which an amount of 0 stands for none."""

    front = "by-request"
    bound = 0.0

    def __init__(self, points: IntArray, shards: int, most: int = 1024) -> None:
        super().__init__(points, shards)
        if most < 1:
            raise InvalidRequest(f"most is {most}: it must be 1 at least")
        self.most = most
        # Of the `_count[0]` requests held; `_asked` has for each when it was asked, by the number `_count[1]`.
        self._rows: IntArray = np.full((most, self.dimensions), LOW, dtype=np.int64)
        self._fitting: IntArray = np.zeros((most, shards), dtype=np.int64)
        self._asked: IntArray = np.zeros(most, dtype=np.int64)
        self._count: IntArray = np.zeros(2, dtype=np.int64)
        self._place: dict[bytes, int] = {}

    def passing(self, asked: IntArray) -> Bools:
        wanted = np.maximum(asked, LOW, order="C")
        says: Bools = np.zeros((len(wanted), self.shards), dtype=np.bool_)
        # Of so few, none takes another's place.
        for start in range(0, len(wanted), self.most):
            part = wanted[start : start + self.most]
            keys = [row.tobytes() for row in part]
            for number, key in enumerate(keys):
                if key not in self._place:
                    self._put_row(self._free(), key, part[number])
                self._count[1] += 1
                self._asked[self._place[key]] = self._count[1]
            says[start : start + self.most] = self._fitting[[self._place[key] for key in keys]] > 0
        return says

    def _free(self) -> int:
        held = int(self._count[0])
        if held < self.most:
            self._count[0] += 1
            return held
        oldest = int(self._asked.argmin())
        del self._place[self._rows[oldest].tobytes()]
        return oldest

    def _put_row(self, place: int, key: bytes, row: IntArray) -> None:
        self._place[key] = place
        self._rows[place] = row
        fits = np.flatnonzero((self.points >= row).all(axis=1))
        self._fitting[place] = np.bincount(fits % self.shards, minlength=self.shards)
        self.rows_read += len(self.points)
        self.visited[:] = True

    def put(self, slot: int, point: Point) -> None:
        new = np.array(point, dtype=np.int64)
        held = int(self._count[0])
        rows = self._rows[:held]
        before, after = ((rows <= each).all(axis=1).astype(np.int64) for each in (self.points[slot], new))
        self._fitting[:held, slot % self.shards] += after - before
        self.points[slot] = new

    def table_bytes(self) -> int:
        held = int(self._count[0])
        highest = self._rows[:held].max(axis=0, initial=1)
        return (held * sum(int(value).bit_length() for value in highest) + 7) // 8

    def size_bytes(self) -> int:
        return self.table_bytes() + (int(self._count[0]) * self.shards + 7) // 8

    def held_bytes(self) -> int:
        return self.table_bytes() + int(self._count[0]) * self.shards * COUNT_BITS // 8


class LazyByRequest(ByRequest):
    """One bit for each distinct request and shard, which is 0 if the shard was read and has had no room for it since.

    No shard is read in order to learn: a new request passes, unless one that asks for no more of anything is known to
    fail. Whoever opens a shard in vain compares all requests with the nodes that were read; a change sets bits of those
    that the node now fits, and clears none."""

    front = "by-request-lazy"
    bound = 1.0

    def begin(self, known: IntArray) -> None:
        """Learns requests that are known when it is built."""
        self.passing(known)
        for shard in range(self.shards):
            self._compare(shard)

    def _put_row(self, place: int, key: bytes, row: IntArray) -> None:
        held = int(self._count[0])
        smaller: Bools = np.asarray((self._rows[:held] <= row).all(axis=1))
        smaller[place] = False  # A request that was there before, or none.
        self._place[key] = place
        self._rows[place] = row
        self._fitting[place] = self._fitting[:held][smaller].all(axis=0)

    def in_vain(self, shard: int, asked: IntArray) -> None:
        self._compare(shard)

    def _compare(self, shard: int) -> None:
        """A bit that is 0 is right."""
        _, points = self.read(shard)
        places = np.flatnonzero(self._fitting[: int(self._count[0]), shard])
        rows = self._rows[places]
        fits = np.ones((len(places), len(points)), dtype=np.bool_)
        for dimension in np.flatnonzero((rows > LOW).any(axis=0)).tolist():
            fits &= points[:, dimension] >= rows[:, dimension, None]
        self._fitting[places, shard] = fits.any(axis=1)

    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = point
        held = int(self._count[0])
        fits: Bools = np.asarray((self._rows[:held] <= self.points[slot]).all(axis=1))
        self._fitting[:held, slot % self.shards] |= fits

    def held_bytes(self) -> int:
        return self.size_bytes()


class Refused(Table):
    """For each shard the smallest requests that found no room in it: it has none for one that asks for as much.

    It reads no nodes: it only learns that a shard was opened in vain. A node that a change gives room for such
    a request ends that. At most `most` are held for a shard; one more takes the place of the oldest."""

    front = "refused"
    bound = 1.0

    def __init__(self, points: IntArray, shards: int, most: int = 64) -> None:
        super().__init__(points, shards)
        if most < 1:
            raise InvalidRequest(f"most is {most}: it must be 1 at least")
        self._rows: IntArray = np.full((shards, most, self.dimensions), NEVER, dtype=np.int64)
        self._learned: IntArray = np.zeros((shards, most), dtype=np.int64)
        self._used = 1
        """Places beyond have never held anything in any shard."""

    def passing(self, asked: IntArray) -> Bools:
        wanted = np.maximum(asked, LOW)
        smaller: Bools = np.asarray((self._rows[None, :, : self._used] <= wanted[:, None, None]).all(axis=3))
        return np.asarray(~smaller.any(axis=2))

    def in_vain(self, shard: int, asked: IntArray) -> None:
        self._hold(shard, np.maximum(asked, LOW))

    def _hold(self, shard: int, row: IntArray) -> int:
        """Its place. Those that ask for as much are held no longer."""
        rows, learned = self._rows[shard], self._learned[shard]
        rows[(rows >= row).all(axis=1)] = NEVER
        learned[rows[:, 0] == NEVER] = 0
        place = int(learned.argmin())
        rows[place], learned[place] = row, learned.max() + 1
        self._used = max(self._used, place + 1)
        return place

    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = point
        rows = self._rows[slot % self.shards, : self._used]
        rows[(rows <= self.points[slot]).all(axis=1)] = NEVER

    def size_bytes(self) -> int:
        return (int(np.count_nonzero(self._rows[:, : self._used, 0] != NEVER)) * self.point_bits + 7) // 8


class Reasons(Refused):
    """For each shard the least amounts that no node of it has all of: why requests found no room in it.

    Whoever opens a shard in vain has its nodes, and lowers the request's amounts as far as still no node has them all
    (a learned no-good: Dechter, Learning while searching in constraint-satisfaction problems, AAAI 1986). When a node
    comes to have all of them, one is raised above what it has, while the reason is still one for the request that found
    it: no node is read for that, but upkeep needs these requests, too."""

    front = "reasons"

    def __init__(self, points: IntArray, shards: int, most: int = 64) -> None:
        super().__init__(points, shards, most)
        self._requests: IntArray = np.full_like(self._rows, LOW)

    def in_vain(self, shard: int, asked: IntArray) -> None:
        request = np.maximum(asked, LOW)
        place = self._hold(shard, least(self.read(shard)[1], request))
        self._requests[shard, place] = request

    def put(self, slot: int, point: Point) -> None:
        self.points[slot] = new = np.array(point, dtype=np.int64)
        shard = slot % self.shards
        rows = self._rows[shard, : self._used]
        for place in np.flatnonzero((rows <= new).all(axis=1)).tolist():
            lacked = np.flatnonzero(self._requests[shard, place] > new)
            if len(lacked):
                rows[place, lacked[0]] = new[lacked[0]] + 1
            else:
                rows[place] = NEVER

    def held_bytes(self) -> int:
        return 2 * self.size_bytes()


def least(points: IntArray, row: IntArray) -> IntArray:
    """Amounts of at most `row`, of which none can be lowered: no point has all of them, as none has all of `row`.

    An amount that is the only one that few points lack goes first."""
    asked = np.flatnonzero(row > LOW)
    have, amounts = points.T[asked], row[asked]
    lacks: Bools = np.asarray(have < amounts[:, None])
    number = lacks.sum(axis=0)
    found = row.copy()
    for each in np.argsort((lacks & (number == 1)).sum(axis=1), kind="stable").tolist():
        # Points that lack no other amount must still lack this one.
        alone = have[each, number == lacks[each]]
        amount = int(alone.max()) + 1 if len(alone) else LOW
        found[asked[each]] = amount
        if amount < amounts[each]:
            still = have[each] < amount
            number -= lacks[each] ^ still
            lacks[each] = still
    return found
