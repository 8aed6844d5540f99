"""The constrained dimensions of a box."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, Box, Found, Point

Asked = list[tuple[int, int, int]]
"""(dimension, low, high) of each dimension that is not MISSING..HIGH."""


def asked_of(box: Box) -> Asked | None:
    """None if the box is empty: some low is above its high."""
    asked = []
    for dimension, (low, high) in enumerate(zip(box.lows, box.highs)):
        if low > high:
            return None
        if low != MISSING or high != HIGH:
            asked.append((dimension, low, high))
    return asked


def lies_in(point: Point, asked: Asked) -> bool:
    # A generator would take three times as long.
    for dimension, low, high in asked:  # noqa: SIM110
        if not low <= point[dimension] <= high:
            return False
    return True


def found_of(slots: Sequence[int], complete: bool, examined: int) -> Found:
    return Found(np.array(slots, dtype=np.int64), complete, examined)
