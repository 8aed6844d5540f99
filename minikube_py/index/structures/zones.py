"""Zones of some hundred neighbouring slots, and the greatest value of each dimension in each zone.

A query compares the maxima of all zones in numpy, and scans the slots of those with enough in every dimension. That may
be a false positive, since no single point need have all the greatest values; `Found` counts these. Highs prune nothing.

Source: zone maps, or small materialized aggregates (Moerkotte, VLDB 1998)."""

from __future__ import annotations

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, NO_SLOTS, NOTHING, Box, Found, IntArray, Point
from minikube_py.index.structures.boxes import Asked, asked_of
from minikube_py.index.structures.columns import Columns, Mask
from minikube_py.index.structures.options import check_dimensions, within


class Zones:
    """`zone_slots`: slots per zone, rounded up to a power of two."""

    structure = "zones"

    def __init__(self, dimensions: int, zone_slots: int = 256) -> None:
        self._columns = Columns(check_dimensions(self.structure, dimensions))
        within(self.structure, "zone_slots", zone_slots, 16, 1 << 16)
        self._shift = (zone_slots - 1).bit_length()
        self._columns.reserve(1 << self._shift)
        self._vacant = (MISSING,) * dimensions
        self._build()

    def put(self, slot: int, point: Point) -> None:
        columns = self._columns
        before = columns.point(slot) if columns.has(slot) else self._vacant
        columns.put(slot, point)
        if columns.capacity != self._capacity:
            self._build()
        else:
            self._move(slot, before, point)

    def remove(self, slot: int) -> None:
        if self._columns.has(slot):
            before = self._columns.point(slot)
            self._columns.remove(slot)
            self._move(slot, before, self._vacant)

    def load(self, slots: IntArray, points: IntArray) -> None:
        self._columns.load(slots, points)
        self._build()

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        if not asked:
            return self._columns.scan(asked, limit)
        zones = -(-self._columns.end >> self._shift)
        promising = self._promising(asked, zones)
        pieces: list[IntArray] = []
        first = count = fruitful = 0
        # The rarer the matches, the more zones are opened at once.
        step = 1 if limit else len(promising)
        while first < len(promising):
            opened = promising[first : first + step]
            slots = self._among_zones(asked, opened)
            if len(slots):
                # They are in order.
                fruitful += 1 + int(np.count_nonzero(np.diff(slots >> self._shift)))
            pieces.append(slots)
            count += len(slots)
            first += len(opened)
            if limit and count >= limit:
                break
            step *= 4
        complete = not limit or (count <= limit and first == len(promising))
        slots = np.concatenate(pieces) if pieces else NO_SLOTS
        return Found(
            slots if complete else slots[:limit],
            complete,
            examined=zones + (first << self._shift),
            shards=first,
            pruned=zones - len(promising),
            false_positives=first - fruitful,
        )

    def may_match(self, box: Box) -> bool:
        """By the maxima alone, without opening a zone."""
        asked = asked_of(box)
        return asked is not None and len(self._promising(asked, -(-self._columns.end >> self._shift))) > 0

    def size_bytes(self) -> int:
        return self._columns.size_bytes() + sum(maxima.nbytes for maxima in self._maxima)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 6 us to compare the maxima, 9 us per batch of opened zones, and 0.8 ns per
        slot in them. At least one, and five per zone with a match are assumed to be opened."""
        slots = 1 << self._shift
        opened = min(rows, max(slots, 5 * slots * rows * share))
        if limit and share:
            opened = min(opened, max(slots, limit / share))
        times = (int(opened) >> self._shift).bit_length() // 2 + 1 if limit else 1
        return 6.0 + 0.0015 * (rows >> self._shift) + 9.0 * times + 0.0008 * opened

    def _promising(self, asked: Asked, zones: int) -> IntArray:
        """Those of the first `zones` zones that may have a point in the box."""
        promising = np.ones(zones, dtype=np.bool_)
        for dimension, low, _ in asked:
            promising &= self._maxima[dimension][:zones] >= low
        numbers: IntArray = np.flatnonzero(promising)
        return numbers

    def _among_zones(self, asked: Asked, zones: IntArray) -> IntArray:
        """The slots of some zones that are in the box."""
        first, after = int(zones[0]), int(zones[-1]) + 1
        if len(zones) * 2 > after - first:
            # Scanning the slots between as well is cheaper than gathering these; none of them is in the box.
            return self._columns.among_range(asked, first << self._shift, after << self._shift)
        inside: Mask | None = None
        for dimension, low, high in asked:
            cells = self._columns.values[dimension].reshape(-1, 1 << self._shift).take(zones, axis=0)
            one: Mask = cells >= low
            if high != HIGH:
                one &= cells <= high
            inside = one if inside is None else np.logical_and(inside, one, out=inside)
        assert inside is not None
        places = np.flatnonzero(inside)
        slots: IntArray = (zones[places >> self._shift] << self._shift) + (places & ((1 << self._shift) - 1))
        return slots

    def _move(self, slot: int, before: Point, after: Point) -> None:
        """Updates the maxima of a zone in which a point has changed."""
        zone = slot >> self._shift
        for dimension, (maxima, old, new) in enumerate(zip(self._cells, before, after)):
            greatest = maxima[zone]
            if new >= greatest:
                maxima[zone] = new
            elif old == greatest:
                start = zone << self._shift
                maxima[zone] = int(self._columns.values[dimension][start : start + (1 << self._shift)].max())

    def _build(self) -> None:
        self._capacity = self._columns.capacity
        zones = [column.reshape(-1, 1 << self._shift) for column in self._columns.values]
        self._maxima: list[IntArray] = [zone.max(axis=1) for zone in zones]
        self._cells = [maxima.data for maxima in self._maxima]
