"""Zones that record, beside their maxima, which combinations of values they contain.

Each dimension is cut into buckets by quantiles; a cell is one bucket of each dimension, and every zone has a bitset of
the cells in which it has a point, kept exact by a count for each cell. A query opens a zone only if one of those cells
intersects the box. So a zone in which no single point has all the greatest values is skipped too, up to a cell's width,
and highs prune as well as lows.

Source: a joint histogram reduced to emptiness. Of zones of 1,024 slots without a match, with negatively correlated
dimensions (-0.8), maxima alone open 0.44 in vain, cells of 8 x 8 x 8 buckets 0.05 (the project's first measurements).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minikube_py.errors import InvalidRequest
from minikube_py.index.structure import MISSING, IntArray, Point
from minikube_py.index.structures.boxes import Asked
from minikube_py.index.structures.options import check_dimensions, within
from minikube_py.index.structures.thresholds import Buckets
from minikube_py.index.structures.zones import Zones

CELLS_LIMIT = 4096
"""The most cells per zone: with their counts, 66 bytes per slot in zones of 256."""
_USUAL_CELLS = 512


class JointZones(Zones):
    """`grid`: buckets per dimension; each further dimension multiplies the cells. 0: the most that keep the cells
    within 512; beyond nine dimensions, two for each of the first nine."""

    structure = "joint-zones"

    def __init__(self, dimensions: int, zone_slots: int = 256, grid: int = 0) -> None:
        check_dimensions(self.structure, dimensions)
        within(self.structure, "grid", grid, 0, 64)
        self._joint = dimensions if grid else min(dimensions, _USUAL_CELLS.bit_length() - 1)
        self._grid = grid or max(one for one in range(2, 65) if one**self._joint <= _USUAL_CELLS)
        if self._grid == 1 or self._grid**self._joint > CELLS_LIMIT:
            fitting = [str(one) for one in range(2, 65) if one**dimensions <= CELLS_LIMIT]
            takes = f"{fitting[0]} to {fitting[-1]}, or 0" if fitting else "only 0"
            raise InvalidRequest(
                f"structure {self.structure}: grid is {grid}; with {dimensions} dimensions it takes {takes}"
            )
        self._words = -(-(self._grid**self._joint) // 64)
        # The stride of a dimension's bucket in a cell's number, and by bucket the cells that are not above it.
        self._strides = [self._grid**dimension for dimension in range(self._joint)]
        self._up_to = [self._cells_up_to(stride) for stride in self._strides]
        super().__init__(dimensions, zone_slots)

    def size_bytes(self) -> int:
        return super().size_bytes() + self._bits.nbytes + self._counts.nbytes

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 8 us more than the maxima alone, and 40 ns per zone whose bitset is
        read."""
        zones = rows >> self._shift
        return super().cost_us(rows, share, limit) + 8.0 + 0.04 * min(zones, 2 * rows * share)

    def _promising(self, asked: Asked, zones: int) -> IntArray:
        promising = super()._promising(asked, zones)
        cells = -1
        for dimension, low, high in asked:
            if dimension < self._joint:
                place = self._buckets[dimension].place
                first, last, up_to = _bucket(place(low)), _bucket(place(high)), self._up_to[dimension]
                cells &= up_to[last] & ~up_to[first - 1] if first else up_to[last]
        if cells < 0 or not len(promising):
            return promising
        wanted = np.frombuffer(cells.to_bytes(self._words * 8, "little"), dtype=np.uint64)
        kept: IntArray = promising[(self._bits[promising] & wanted).any(axis=1)]
        return kept

    def _move(self, slot: int, before: Point, after: Point) -> None:
        super()._move(slot, before, after)
        zone = slot >> self._shift
        left = entered = 0
        crowded = False
        # A point without any value is in no cell: it is in no constrained box.
        counted = before != self._vacant
        counts = after != self._vacant
        self._rows += counts - counted
        for buckets, stride, old, new in zip(self._buckets, self._strides, before, after):
            old_place, new_place = buckets.place(old), buckets.place(new)
            left += _bucket(old_place) * stride
            entered += _bucket(new_place) * stride
            if old_place != new_place:
                buckets.leave(old_place)
                crowded |= buckets.enter(new_place, self._rows)
        if crowded:
            self._build_cells()
        elif left != entered or counted != counts:
            if counted:
                self._count(zone, left, -1)
            if counts:
                self._count(zone, entered, 1)

    def _count(self, zone: int, cell: int, change: int) -> None:
        """Adds or removes a point in a cell; the bit says whether there is any."""
        at = zone * self._words * 64 + cell
        count = self._count_cells[at] = self._count_cells[at] + change
        word, bit = zone * self._words + (cell >> 6), 1 << (cell & 63)
        if not count:
            self._bit_cells[word] &= ~bit
        elif count == change:
            self._bit_cells[word] |= bit

    def _build(self) -> None:
        super()._build()
        self._build_cells()

    def _build_cells(self) -> None:
        """Chooses new buckets, and counts all points."""
        columns = [column[: self._columns.end] for column in self._columns.values]
        self._buckets = [Buckets(column, self._grid) for column in columns[: self._joint]]
        slots = np.flatnonzero(np.any([column != MISSING for column in columns], axis=0))
        self._rows = len(slots)
        cells = (slots >> self._shift) * (self._words * 64)
        for column, buckets, stride in zip(columns, self._buckets, self._strides):
            cells += np.maximum(buckets.places(column[slots]) - 1, 0) * stride
        size = (self._capacity >> self._shift) * self._words * 64
        self._counts: npt.NDArray[np.uint32] = np.bincount(cells, minlength=size).astype(np.uint32)
        packed = np.packbits(self._counts > 0, bitorder="little").view(np.uint64)
        self._bits: npt.NDArray[np.uint64] = packed.reshape(-1, self._words)
        self._count_cells = self._counts.data
        self._bit_cells = packed.data

    def _cells_up_to(self, stride: int) -> list[int]:
        """For each bucket of the dimension with this stride, the bitset of the cells not above it."""
        cells = np.arange(self._words * 64)
        buckets = cells // stride % self._grid
        within_grid = cells < self._grid**self._joint
        masks = [np.packbits((buckets <= bucket) & within_grid, bitorder="little") for bucket in range(self._grid)]
        return [int.from_bytes(mask.tobytes(), "little") for mask in masks]


def _bucket(place: int) -> int:
    """The bucket of a value after `place` thresholds; missing values share the first."""
    return place - 1 if place else 0
