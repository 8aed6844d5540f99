"""The fronts of the study `emptiness`: exact ones, summaries of several sizes, and both bounds.

All of them read the same table of nodes, are queried in numpy batches, and count alike: a stored value takes the bits
of its dimension's maximum, and each node that an update rereads is one row read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.front import Bools, holding
from minikube_py.index.filters.hashing import mix, mix_many, salt
from minikube_py.index.structure import LOW, MISSING, IntArray, Point
from minikube_py.studies.emptiness.by_request import ByRequest, LazyByRequest, Reasons, Refused
from minikube_py.studies.emptiness.table import COUNT_BITS, Table, around

SLOT_BITS: Final = 32
BLOCK: Final = 4096
MOST_CELLS: Final = 1 << 16
KEY_BITS: Final = 16
LEAST_SIDE: Final = 0.02
"""Added to each side of a box, as a share of the largest value, so that those without extent in a dimension differ."""
VOLUME_MAX: Final = 1e300
"""Of many dimensions in which values have risen far above the largest: more would not be a number."""


class Oracle(Table):
    """Exact answers by checking every node: not a front, but the upper limit of one."""

    front = "oracle"
    bound = 0.0

    def passing(self, asked: IntArray) -> Bools:
        return holding(self.points, self.shards, asked)


class Copied(Table):
    """All nodes once more, in columns as `index.structures.columns` has them and in order of shards: exact, and no
    summary. A search compares blocks of whole shards until one has room."""

    front = "copy"
    bound = 0.0

    def __init__(self, points: IntArray, shards: int) -> None:
        super().__init__(points, shards)
        self._rows = -(-len(points) // shards)
        """Of a shard; the last of some is vacant."""
        self._columns: IntArray = np.full((self.dimensions, shards * self._rows), MISSING, dtype=np.int64)
        slots = np.arange(len(points))
        self._columns[:, slots % shards * self._rows + slots // shards] = self.points.T

    def passing(self, asked: IntArray) -> Bools:
        says: Bools = np.zeros((len(asked), self.shards), dtype=np.bool_)
        for row, request in zip(says, asked):
            row[self._fit(request, 0, self._columns.shape[1]) // self._rows] = True
        return says

    def ask(self, asked: IntArray, start: int = 0) -> Iterator[int]:
        middle, end = start * self._rows, self._columns.shape[1]
        step = self._rows * -(-BLOCK // self._rows)
        for low, high in ((middle, end), (0, middle)):
            for begin in range(low, high, step):
                fits = self._fit(asked, begin, min(begin + step, high))
                while len(fits):
                    yield (shard := int(fits[0]) // self._rows)
                    fits = fits[np.searchsorted(fits, (shard + 1) * self._rows) :]

    def _fit(self, request: IntArray, begin: int, end: int) -> IntArray:
        fits: Bools = self._columns[0, begin:end] >= LOW
        for dimension, low in enumerate(request.tolist()):
            if low > LOW:
                fits &= self._columns[dimension, begin:end] >= low
        return np.flatnonzero(fits) + begin

    def put(self, slot: int, point: Point) -> None:
        super().put(slot, point)
        self._columns[:, slot % self.shards * self._rows + slot // self.shards] = point

    def size_bytes(self) -> int:
        return (len(self.points) * self.point_bits + 7) // 8


class Skyband(Table):
    """The nodes of a shard that fewer than k others dominate.

    Undominated nodes (k = 1: the skyline, or Pareto front) answer exactly whether some node has everything requested;
    the others are spares for when one fills up. A member that leaves may have hidden nodes that are not kept, so each
    departure uses up one of the k; then the shard is read again. Nothing else reads it. Equal nodes count as dominated
    by the first of them.
    Source: Papadias et al., Progressive skyline computation in database systems, TODS 2005."""

    front = "skyband"
    bound = 0.0

    def __init__(self, points: IntArray, shards: int, k: int = 4) -> None:
        super().__init__(points, shards)
        if k < 1:
            raise InvalidRequest(f"k is {k}: it must be 1 at least")
        self.k = k
        # Padded with values that no request finds.
        self._kept: IntArray = np.full((shards, 4, self.dimensions), MISSING, dtype=np.int64)
        self._slots: IntArray = np.full((shards, 4), -1, dtype=np.int64)
        self._sure: list[int] = [k] * shards
        for shard in range(shards):
            self._build(shard)
        self.rows_read = 0

    def passing(self, asked: IntArray) -> Bools:
        return reached(self._kept, asked)

    def put(self, slot: int, point: Point) -> None:
        shard = slot % self.shards
        old, new = self.points[slot].copy(), np.array(point, dtype=np.int64)
        self.points[slot] = new
        members = self._slots[shard]
        place = np.flatnonzero(members == slot)
        if len(place):
            if not (new >= old).all():
                # The nodes that it hid are known nowhere else.
                self._sure[shard] -= 1
                if not self._sure[shard]:
                    self._build(shard)
                    return
            members[place] = -1
            self._kept[shard, place] = MISSING
        kept = self._kept[shard]
        above = (kept >= new).all(axis=1) & ((kept > new).any(axis=1) | (members < slot)) & (members >= 0)
        if np.count_nonzero(above) >= self._sure[shard]:
            return
        self._add(shard, slot, new)
        self._prune(shard)

    def _add(self, shard: int, slot: int, point: IntArray) -> None:
        free = np.flatnonzero(self._slots[shard] < 0)
        if not len(free):
            self._widen()
            free = np.flatnonzero(self._slots[shard] < 0)
        self._slots[shard, free[0]] = slot
        self._kept[shard, free[0]] = point

    def _widen(self) -> None:
        self._kept = np.concatenate([self._kept, np.full_like(self._kept, MISSING)], axis=1)
        self._slots = np.concatenate([self._slots, np.full_like(self._slots, -1)], axis=1)

    def _prune(self, shard: int) -> None:
        """Nodes that k members dominate are hidden for good."""
        there = np.flatnonzero(self._slots[shard] >= 0)
        keep = band(self._kept[shard, there], self._slots[shard, there], self.k)
        gone = there[~keep]
        self._slots[shard, gone] = -1
        self._kept[shard, gone] = MISSING

    def _build(self, shard: int) -> None:
        slots, points = self.read(shard)
        chosen = _candidates(points, slots, self.k)
        chosen = chosen[band(points[chosen], slots[chosen], self.k)]
        while len(chosen) > self._slots.shape[1]:
            self._widen()
        self._slots[shard], self._kept[shard] = -1, MISSING
        self._slots[shard, : len(chosen)], self._kept[shard, : len(chosen)] = slots[chosen], points[chosen]
        self._sure[shard] = self.k

    def members(self) -> int:
        return int(np.count_nonzero(self._slots >= 0))

    def size_bytes(self) -> int:
        return (self.members() * self.point_bits + 7) // 8

    def held_bytes(self) -> int:
        return (self.members() * (self.point_bits + SLOT_BITS) + 7) // 8


def reached(rows: IntArray, asked: IntArray) -> Bools:
    """Requests x shards: whether one of a shard's rows has everything requested. `rows`: shards x rows x dimensions."""
    wanted = np.maximum(asked, LOW)
    fits: Bools = np.any(np.all(rows[None] >= wanted[:, None, None], axis=3), axis=2)
    return fits


def band(points: IntArray, slots: IntArray, k: int) -> Bools:
    """Which of `points` fewer than `k` others dominate; among equal ones the lower slot dominates."""
    over = (points[:, None] >= points[None]).all(axis=2)
    # Mutual domination: equal.
    over &= ~over.T | (slots[:, None] < slots[None])
    np.fill_diagonal(over, False)
    few: Bools = over.sum(axis=0) < k
    return few


def _candidates(points: IntArray, slots: IntArray, k: int) -> IntArray:
    """Rows that may belong to the band: slices by falling sums, minus those that earlier kept rows exclude."""
    order = np.lexsort((slots, -points.astype(np.float64).sum(axis=1)))
    kept: IntArray = order[:0]
    for start in range(0, len(order), 64):
        rows = np.concatenate([kept, order[start : start + 64]])
        kept = rows[band(points[rows], slots[rows], k)]
    return kept


class Skyline(Skyband):
    """The exact front with the fewest points."""

    front = "skyline"

    def __init__(self, points: IntArray, shards: int) -> None:
        super().__init__(points, shards, 1)


class RepairedSkyline(Skyline):
    """A skyline whose members stay as they were when their nodes lose something: upper bounds, which rule out no node
    that fits. They are formed again when their shard was opened in vain, from the nodes that were read there."""

    front = "skyline-repaired"
    bound = 1.0

    def in_vain(self, shard: int, asked: IntArray) -> None:
        self._build(shard)

    def put(self, slot: int, point: Point) -> None:
        shard = slot % self.shards
        new = np.array(point, dtype=np.int64)
        self.points[slot] = new
        if not (self._kept[shard] >= new).all(axis=1).any():
            self._add(shard, slot, new)
            self._prune(shard)


class DirtySkyline(RepairedSkyline):
    """The exact one: a member that loses something marks its shard, which is formed again when one of its upper bounds
    would let a request through."""

    front = "skyline-dirty"
    bound = 0.0

    def put(self, slot: int, point: Point) -> None:
        shard = slot % self.shards
        if (self._slots[shard] == slot).any() and (self.points[slot] > point).any():
            self._sure[shard] = 0
        super().put(slot, point)

    def passing(self, asked: IntArray) -> Bools:
        says = super().passing(asked)
        for shard in np.flatnonzero(says.any(axis=0)).tolist():
            if not self._sure[shard]:
                says[:, shard] = self._again(shard, asked)
        return says

    def ask(self, asked: IntArray, start: int = 0) -> Iterator[int]:
        for shard in around(reached(self._kept, asked[None])[0], start):
            if self._sure[shard] or self._again(shard, asked[None])[0]:
                yield shard

    def _again(self, shard: int, asked: IntArray) -> Bools:
        self._build(shard)
        return reached(self._kept[shard : shard + 1], asked)[:, 0]


class KeptSkyline(Copied):
    """The exact one, kept up by what a change can alter: where a member loses something, only nodes below what it had
    can come in. Columns hold all nodes, and the first of them members alone."""

    front = "skyline-kept"

    def __init__(self, points: IntArray, shards: int) -> None:
        super().__init__(points, shards)
        self._member: Bools = np.zeros((shards, self._rows), dtype=np.bool_)
        for shard in range(shards):
            nodes = self.points[shard::shards]
            rows = _candidates(nodes, np.arange(len(nodes)), 1)
            self._member[shard, rows] = True
            self._show(shard, nodes)

    def put(self, slot: int, point: Point) -> None:
        shard, row = slot % self.shards, slot // self.shards
        nodes = self.points[shard :: self.shards]
        member, old = self._member[shard, : len(nodes)], nodes[row].copy()
        super().put(slot, point)
        new, lost = nodes[row], member[row] and bool((nodes[row] < old).any())
        member[row] = False
        rows = np.array([row])
        if lost:
            self.rows_read += len(nodes)
            below: Bools = np.asarray((nodes <= old).all(axis=1) & ~member)
            below[row] = True
            rows = np.flatnonzero(below)
        rows = rows[~(nodes[member][None] >= nodes[rows][:, None]).all(axis=2).any(axis=1)]
        rows = rows[band(nodes[rows], rows, 1)]
        if row in rows:
            member &= ~(nodes <= new).all(axis=1)
        member[rows] = True
        self._show(shard, nodes)

    def _show(self, shard: int, nodes: IntArray) -> None:
        first = shard * self._rows
        here = self._member[shard, : len(nodes)]
        self._columns[0, first : first + len(nodes)] = np.where(here, nodes[:, 0], MISSING)

    def size_bytes(self) -> int:
        return (int(np.count_nonzero(self._member)) * self.point_bits + 7) // 8

    def held_bytes(self) -> int:
        return (int(np.count_nonzero(self._member)) * (self.point_bits + SLOT_BITS) + 7) // 8


class BoundedSkyline(Table):
    """At most k vectors for each shard: its skyline, of which two are merged into their maximum until k are left; those
    whose maximum has the least volume beyond the sum of theirs. Each node is under one of the k.

    A node that rises above all is added, and two are merged as before. If one loses a value that a vector above it
    has, the shard is read again, and the vectors are formed again; other losses leave them as they are. A volume is of
    values as shares of the largest at build time. Of equal merges the first is made, in the order of falling sums."""

    front = "bounded-skyline"

    def __init__(self, points: IntArray, shards: int, k: int = 4) -> None:
        super().__init__(points, shards)
        if k < 1:
            raise InvalidRequest(f"k is {k}: it must be 1 at least")
        self.k = k
        self._scale = self.points.max(axis=0, initial=1).astype(np.float64)
        self._rows: IntArray = np.full((shards, k, self.dimensions), MISSING, dtype=np.int64)
        for shard in range(shards):
            self._build(shard)
        self.rows_read = 0

    def passing(self, asked: IntArray) -> Bools:
        return reached(self._rows, asked)

    def put(self, slot: int, point: Point) -> None:
        shard = slot % self.shards
        old, new = self.points[slot].copy(), np.array(point, dtype=np.int64)
        self.points[slot] = new
        rows = self._rows[shard]
        above = (rows >= old).all(axis=1)
        if ((rows[above] == old) & (new < old)).any():
            self._build(shard)
        elif not (rows >= new).all(axis=1).any():
            self._form(shard, np.concatenate([new[None], rows[~(new >= rows).all(axis=1)]]))

    def _build(self, shard: int) -> None:
        slots, points = self.read(shard)
        self._form(shard, points[_candidates(points, slots, 1)])

    def _form(self, shard: int, vectors: IntArray) -> None:
        while len(vectors) > self.k:
            both = np.maximum(vectors[:, None], vectors[None])
            alone = self._volumes(vectors)
            added = self._volumes(both) - alone[:, None] - alone[None]
            added[np.tril_indices(len(vectors))] = np.inf
            first, second = divmod(int(added.argmin()), len(vectors))
            merged = both[first, second]
            # Nodes under others that the merged one is above are under it.
            vectors = np.concatenate([vectors[~(merged >= vectors).all(axis=1)], merged[None]])
        self._rows[shard] = MISSING
        self._rows[shard, : len(vectors)] = vectors

    def _volumes(self, vectors: IntArray) -> Any:
        with np.errstate(over="ignore"):
            return np.minimum((vectors / self._scale + LEAST_SIDE).prod(axis=-1), VOLUME_MAX)

    def size_bytes(self) -> int:
        return (int(np.count_nonzero(self._rows[:, :, 0] != MISSING)) * self.point_bits + 7) // 8


class MaxVectors(Table):
    """The maximum of each dimension, for each of k groups of a shard's nodes. Groups are formed at build time from
    similar nodes, by their first principal component, and stay. When a maximum leaves, the new one is searched."""

    front = "max-vectors"

    def __init__(self, points: IntArray, shards: int, k: int = 1, repairs: int = 1) -> None:
        super().__init__(points, shards)
        if k < 1:
            raise InvalidRequest(f"k is {k}: it must be 1 at least")
        self.k, self._repairs = k, repairs
        self._group: IntArray = np.zeros(len(points), dtype=np.int64)
        self._highs: IntArray = np.full((shards, k, self.dimensions), MISSING, dtype=np.int64)
        self._departed = [0] * shards
        for shard in range(shards):
            slots, there = self.read(shard)
            if k > 1 and len(there) > 1:
                centred = (there - there.mean(axis=0)) / np.maximum(there.std(axis=0), 1e-9)
                axis = np.linalg.svd(centred, full_matrices=False)[2][0]
                self._group[slots[np.argsort(centred @ axis, kind="stable")]] = np.arange(len(slots)) * k // len(slots)
            np.maximum.at(self._highs[shard], self._group[slots], there)
        self.rows_read = 0

    def passing(self, asked: IntArray) -> Bools:
        return reached(self._highs, asked)

    def put(self, slot: int, point: Point) -> None:
        shard, group = slot % self.shards, self._group[slot]
        old, new = self.points[slot].copy(), np.array(point, dtype=np.int64)
        self.points[slot] = new
        highs = self._highs[shard, group]
        left = (old == highs) & (new < old)
        np.maximum(highs, new, out=highs)
        self._departed[shard] += 1
        rows = -(-len(self.points) // self.shards)
        if (self._repairs and left.any()) or (not self._repairs and self._departed[shard] > max(8, rows // 4)):
            self._look_again(shard)

    def _look_again(self, shard: int) -> None:
        slots, points = self.read(shard)
        self._highs[shard] = MISSING
        np.maximum.at(self._highs[shard], self._group[slots], points)
        self._departed[shard] = 0

    def size_bytes(self) -> int:
        return (self.shards * self.k * self.point_bits + 7) // 8

    def held_bytes(self) -> int:
        groups = len(self.points) * max(0, self.k - 1).bit_length()
        return self.size_bytes() + (groups + 7) // 8


class JointCells(MaxVectors):
    """Whether any node lies in a cell of a grid over all dimensions, one bit per cell; plus the max vector, to refine
    the outermost cells. With fewer `bits` than cells they share bits by a hash. Cells are counted, so nodes can leave.
    Steps are even between 0 and the maximum at build time."""

    front = "joint"

    def __init__(self, points: IntArray, shards: int, steps: int = 8, bits: int = 0) -> None:
        cells = steps**points.shape[1]
        if steps < 2 or cells > MOST_CELLS:
            asked = f"{steps} steps of {points.shape[1]} dimensions"
            raise InvalidRequest(f"{asked}: 2 steps at least, {MOST_CELLS} cells at most")
        super().__init__(points, shards)
        self.steps, self.bits = steps, bits or cells
        self._width = np.maximum(1, -(-(self.points.max(axis=0, initial=0) + 1) // steps))
        self._place: IntArray = np.arange(cells)
        if self.bits < cells:
            self._place = np.array([mix(cell) % self.bits for cell in range(cells)], dtype=np.int64)
        self._order = np.argsort(self._place, kind="stable")
        self._used, self._starts = np.unique(self._place[self._order], return_index=True)
        self._counts: IntArray = np.zeros((shards, self.bits), dtype=np.int64)
        np.add.at(self._counts, (np.arange(len(points)) % shards, self._place[self._cells(self.points)]), 1)

    def _cells(self, points: IntArray) -> IntArray:
        steps = np.clip(points // self._width, 0, self.steps - 1)
        cell: IntArray = np.zeros(len(points), dtype=np.int64)
        for dimension in range(self.dimensions):
            cell = cell * self.steps + steps[:, dimension]
        return cell

    def passing(self, asked: IntArray) -> Bools:
        least = np.clip(asked // self._width, 0, self.steps - 1)
        reached = np.ones((len(asked), 1), dtype=np.bool_)
        for dimension in range(self.dimensions):
            of_one = np.arange(self.steps) >= least[:, dimension, None]
            reached = (reached[:, :, None] & of_one[:, None]).reshape(len(asked), -1)
        by_bit, there = (each.astype(np.float32) for each in (self._bits_reached(reached), self._there()))
        fits: Bools = (by_bit @ there.T > 0) & super().passing(asked)
        return fits

    def _bits_reached(self, cells: Bools) -> Bools:
        by_bit = np.zeros((len(cells), self.bits), dtype=np.bool_)
        by_bit[:, self._used] = np.logical_or.reduceat(cells[:, self._order], self._starts, axis=1)
        return by_bit

    def _there(self) -> Bools:
        return self._counts > 0

    def _places_of(self, points: IntArray) -> IntArray:
        return self._place[self._cells(points)]

    def put(self, slot: int, point: Point) -> None:
        old = self.points[slot : slot + 1].copy()
        super().put(slot, point)
        shard = slot % self.shards
        # Layers may share a bit.
        np.subtract.at(self._counts[shard], self._places_of(old), 1)
        np.add.at(self._counts[shard], self._places_of(self.points[slot : slot + 1]), 1)

    def size_bytes(self) -> int:
        return super().size_bytes() + self.shards * self.bits // 8

    def held_bytes(self) -> int:
        return super().size_bytes() + self.shards * self.bits * COUNT_BITS // 8


class RangeFilter(JointCells):
    """Whether any node lies in a cell of a fine grid, by a Bloom filter of the cells' keys that keeps their order.

    A key is the steps of all dimensions, concatenated, of 16 bits together. In each layer, of `delta` bits, a prefix of
    the key sets a bit of a word: the word is hashed from the prefix but for its last `delta - 1` bits, which choose the
    bit. A cell counts as used if its bit of every layer is set. All cells of a request are asked for, so that no
    interval of a coarser layer lets through more. Bits are counted, so nodes can leave.
    Source: prefix hashing and piecewise-monotone hash functions of bloomRF (Moessner et al., EDBT 2023); the key of
    several dimensions is ours."""

    front = "range-filter"

    def __init__(self, points: IntArray, shards: int, bits_a_node: int = 16, delta: int = 4) -> None:
        precision = KEY_BITS // max(1, points.shape[1])
        if bits_a_node < 1 or not 2 <= delta <= KEY_BITS or not precision:
            asked = f"{bits_a_node} bits a node, {points.shape[1]} dimensions, delta {delta}"
            raise InvalidRequest(f"{asked}: 1 bit at least, {KEY_BITS} dimensions at most, delta from 2 to {KEY_BITS}")
        word = 1 << (delta - 1)
        words = -(-bits_a_node * -(-len(points) // max(1, shards)) // word)
        super().__init__(points, shards, 1 << precision)
        self.bits = words * word
        keys = np.arange(self.steps**self.dimensions, dtype=np.uint64)
        layers = []
        for layer, shift in enumerate(range(0, precision * self.dimensions, delta)):
            hashed = mix_many((keys >> np.uint64(shift + delta - 1)) + np.uint64(salt(layer))) % np.uint64(words)
            bit = (keys >> np.uint64(shift)) & np.uint64(word - 1)
            layers.append((hashed * np.uint64(word) + bit).astype(np.int64))
        self._layers: IntArray = np.array(layers)
        self._counts = np.zeros((shards, self.bits), dtype=np.int64)
        for places in self._layers:
            np.add.at(self._counts, (np.arange(len(points)) % shards, places[self._cells(self.points)]), 1)

    def _there(self) -> Bools:
        used: Bools = np.logical_and.reduce([(self._counts > 0)[:, places] for places in self._layers])
        return used

    def _bits_reached(self, cells: Bools) -> Bools:
        return cells

    def _places_of(self, points: IntArray) -> IntArray:
        return self._layers[:, self._cells(points)[0]]


FRONTS: Final[Mapping[str, tuple[type[Any], Mapping[str, int]]]] = {
    "none": (Table, {}),
    "oracle": (Oracle, {}),
    "copy": (Copied, {}),
    "max-vector": (MaxVectors, {"repairs": 0}),
    "repairing-max": (MaxVectors, {}),
    "max-vectors-2": (MaxVectors, {"k": 2}),
    "max-vectors-4": (MaxVectors, {"k": 4}),
    "max-vectors-8": (MaxVectors, {"k": 8}),
    "max-vectors-16": (MaxVectors, {"k": 16}),
    "joint-4": (JointCells, {"steps": 4}),
    "joint-8": (JointCells, {"steps": 8}),
    "hashed-8": (JointCells, {"steps": 8, "bits": 256}),
    "range-filter-8": (RangeFilter, {"bits_a_node": 8}),
    "range-filter-16": (RangeFilter, {"bits_a_node": 16}),
    "range-filter-32": (RangeFilter, {"bits_a_node": 32}),
    "skyline": (Skyline, {}),
    "skyline-dirty": (DirtySkyline, {}),
    "skyline-kept": (KeptSkyline, {}),
    "skyline-repaired": (RepairedSkyline, {}),
    "skyband-2": (Skyband, {"k": 2}),
    "skyband-4": (Skyband, {"k": 4}),
    "bounded-skyline-2": (BoundedSkyline, {"k": 2}),
    "bounded-skyline-4": (BoundedSkyline, {"k": 4}),
    "bounded-skyline-8": (BoundedSkyline, {"k": 8}),
    "by-request": (ByRequest, {}),
    "by-request-32": (ByRequest, {"most": 32}),
    "by-request-lazy": (LazyByRequest, {}),
    "refused": (Refused, {}),
    "reasons": (Reasons, {}),
}
"""By name: the class and its options. tests/unit/lab_study/test_compiled_fronts.py names those without loops."""
