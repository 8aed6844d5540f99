"""A box that comes again: what has changed since is looked at one by one, at once, or not at all."""

from __future__ import annotations

import random

import pytest

from minikube_py.index.structure import HIGH, MISSING, Box, Point
from minikube_py.index.structures import shapes
from minikube_py.index.structures.shapes import Shapes

ROWS = 600
BOX = Box((5, MISSING), (HIGH, HIGH))
ALL = Box((MISSING, MISSING), (HIGH, HIGH))


@pytest.mark.parametrize("box", [BOX, ALL], ids=["half", "all"])
@pytest.mark.parametrize("behind", ["columns", "max-tree"])
@pytest.mark.parametrize("changes", [1, shapes._ONE_BY_ONE - 1, shapes._ONE_BY_ONE, 100, shapes._REPLAY_NOTES + 1])
def test_what_has_changed_since_is_taken_in(changes: int, behind: str, box: Box) -> None:
    rng = random.Random(changes)
    structure = Shapes(2, behind=behind)
    points: dict[int, Point] = {}
    for slot in range(ROWS):
        points[slot] = (rng.randrange(10), rng.randrange(10))
        structure.put(slot, points[slot])
    for _ in range(20):
        found = structure.find(box)
        assert sorted(found.slots.tolist()) == sorted(slot for slot, point in points.items() if box.holds(point))
        for slot in rng.sample(range(ROWS + 50), changes):
            if slot in points and rng.random() < 0.3:
                del points[slot]
                structure.remove(slot)
            else:
                points[slot] = (rng.randrange(10), MISSING if rng.random() < 0.1 else rng.randrange(10))
                structure.put(slot, points[slot])


def test_what_is_looked_at_is_what_has_changed() -> None:
    structure = Shapes(1)
    for slot in range(ROWS):
        structure.put(slot, (slot,))
    box = Box((ROWS - 3,), (HIGH,))
    assert structure.find(box).examined == ROWS
    for slot in range(20):
        structure.put(slot, (ROWS + slot,))
    found = structure.find(box)
    assert (len(found.slots), found.examined) == (23, 20)
    assert structure.find(box).examined == 0
