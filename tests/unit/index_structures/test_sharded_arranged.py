"""Shards by a tree of their points: every point is in one shard, also where a change has all dealt out again."""

from __future__ import annotations

import random

import numpy as np

from minikube_py.index.structure import HIGH, MISSING, Box, Point
from minikube_py.index.structures.sharded import ARRANGE_AT_LEAST, Sharded


def test_a_point_is_in_one_shard_whatever_is_arranged_meanwhile() -> None:
    rng = random.Random(1)
    structure = Sharded(1, shards=3, placing="sorted")
    points: dict[int, Point] = {slot: (rng.randrange(100),) for slot in range(40)}
    structure.load(np.arange(40), np.array(list(points.values()), dtype=np.int64))
    anything = Box((MISSING,), (HIGH,))
    for change in range(6 * ARRANGE_AT_LEAST):
        slot = rng.randrange(60)
        points[slot] = (rng.randrange(100),)
        structure.put(slot, points[slot])
        if change % 16 == 0:
            assert sorted(structure.find(anything).slots.tolist()) == sorted(points)
            low = rng.randrange(100)
            wanted = sorted(slot for slot, (value,) in points.items() if value >= low)
            assert sorted(structure.find(Box((low,), (HIGH,))).slots.tolist()) == wanted
