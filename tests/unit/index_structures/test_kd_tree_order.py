"""When a k-d tree orders its points again: when questions pay for a decayed order, and not before."""

from __future__ import annotations

import random

import numpy as np

from minikube_py.index.structure import HIGH, Box, Point
from minikube_py.index.structures.kd_tree import KdTree

ROWS = 4000


class Drifting:
    """A tree over two dimensions that disagree: the maxima of any mixture promise what no point has."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = KdTree(2)
        self.points = [self.drawn() for _ in range(ROWS)]

    def drawn(self) -> Point:
        first = self.rng.randrange(10_000)
        return first, 10_000 - first + self.rng.randrange(100)

    def load(self) -> None:
        self.tree.load(np.arange(ROWS, dtype=np.int64), np.array(self.points, dtype=np.int64))

    def put_all(self) -> None:
        for slot, point in enumerate(self.points):
            self.tree.put(slot, point)

    def move(self, puts: int) -> None:
        for _ in range(puts):
            slot = self.rng.randrange(ROWS)
            self.points[slot] = self.drawn()
            self.tree.put(slot, self.points[slot])

    def put_again(self, puts: int) -> None:
        """Changes nothing, but gives an order that has begun the time to end."""
        for slot in range(puts):
            self.tree.put(slot, self.points[slot])

    def mean_examined(self, questions: int = 50) -> float:
        examined = 0
        for _ in range(questions):
            first = self.rng.randrange(1000, 9000)
            found = self.tree.find(Box((first, 10_200 - first), (HIGH, HIGH)), 10)
            assert len(found.slots) == 0
            examined += found.examined
        return examined / questions


def test_questions_that_pay_for_decay_have_it_mended() -> None:
    drifting = Drifting(5)
    drifting.load()
    fresh = drifting.mean_examined()
    drifting.move(ROWS // 5)
    assert drifting.mean_examined() > 10 * fresh
    drifting.mean_examined(1000)
    drifting.put_again(100)
    assert drifting.mean_examined() < 2 * fresh


def test_who_asks_nothing_pays_for_no_order() -> None:
    drifting = Drifting(6)
    drifting.load()
    order = drifting.tree._tree
    drifting.move(2 * ROWS)
    assert drifting.tree._tree is order


def test_points_that_came_one_by_one_are_ordered_too() -> None:
    loaded, put = Drifting(7), Drifting(7)
    loaded.load()
    put.put_all()
    put.mean_examined(1000)
    put.put_again(100)
    assert put.mean_examined() < 2 * loaded.mean_examined()
