"""The baseline: every point is examined, one by one, in Python.

Others are compared with it in speed and in their answers. O(rows) per query, O(1) per change; with a limit it stops
once enough points are found."""

from __future__ import annotations

from minikube_py.index.structure import NOTHING, Box, Found, Point
from minikube_py.index.structures.boxes import asked_of, found_of
from minikube_py.index.structures.options import check_dimensions, check_slot

_SLOT_BYTES = 110
"""An entry of a dict that is two thirds full, a small int, and a tuple's share of a header."""
_COORDINATE_BYTES = 40
"""A pointer and an int."""


class Scan:
    structure = "scan"

    def __init__(self, dimensions: int) -> None:
        self._dimensions = check_dimensions(self.structure, dimensions)
        self._points: dict[int, Point] = {}

    def put(self, slot: int, point: Point) -> None:
        check_slot(slot)
        self._points[slot] = point

    def remove(self, slot: int) -> None:
        self._points.pop(slot, None)

    def find(self, box: Box, limit: int = 0) -> Found:
        asked = asked_of(box)
        if asked is None:
            return NOTHING
        slots: list[int] = []
        examined = 0
        for slot, point in self._points.items():
            examined += 1
            for dimension, low, high in asked:
                if not low <= point[dimension] <= high:
                    break
            else:
                slots.append(slot)
                if len(slots) == limit:
                    break
        return found_of(slots, examined == len(self._points), examined)

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        return len(self._points) * (_SLOT_BYTES + _COORDINATE_BYTES * self._dimensions)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """`tests/bench/bench_structures.py`: 0.12 us per point (more once they outgrow the cache)."""
        looked_at = min(rows, limit / share) if limit and share else rows
        return 1.5 + 0.12 * looked_at
