"""The same probes three times: in Python, in numpy, and compiled by numba (extra `compiled`), to separate results from
Python's constant factors.

The loops are written once, over flat arrays, and compiled where numba is installed. A joint bitset checks whether any
cell from the thresholds' steps on is set; a Bloom filter is probed for each value of [a, capacity].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def first_fit(points: Ints, lows: Ints) -> int:
    """The first row with every value at its threshold or above, -1 if there is none."""
    rows, dimensions = points.shape
    for row in range(rows):
        fits = True
        for each in range(dimensions):
            if points[row, each] < lows[each]:
                fits = False
                break
        if fits:
            return row
    return -1


def tree_first(tree: Ints, leaves: int, lows: Ints) -> int:
    """The first fitting leaf of a max-tree in heap order (root 1, leaves from `leaves` on), -1 if there is none."""
    dimensions = tree.shape[1]
    node = 1
    while node > 0:
        fits = True
        for each in range(dimensions):
            if tree[node, each] < lows[each]:
                fits = False
                break
        if fits:
            if node >= leaves:
                return node - leaves
            node = 2 * node
            continue
        # The next subtree to the right; past the last one there is none.
        while node & 1:
            node >>= 1
            if node <= 1:
                return -1
        node += 1
        if node == 1:
            return -1
    return -1


def max_vector(highs: Ints, lows: Ints) -> int:
    """How many shards (rows of `highs`) may match."""
    shards, dimensions = highs.shape
    opened = 0
    for shard in range(shards):
        fits = 1
        for each in range(dimensions):
            if highs[shard, each] < lows[each]:
                fits = 0
                break
        opened += fits
    return opened


def joint(cells: Words, steps: Ints, masks: Words, highs: Ints, lows: Ints) -> int:
    """How many shards may match. `cells`: shards x words; `masks`, cells from a step on: resources x steps x words."""
    shards, words = cells.shape
    dimensions = len(steps)
    opened = 0
    for shard in range(shards):
        fits = 1
        for each in range(dimensions):
            if highs[shard, each] < lows[each]:
                fits = 0
                break
        if fits:
            fits = 0
            for word in range(words):
                left = cells[shard, word]
                for each in range(dimensions):
                    left &= masks[each, steps[each], word]
                if left:
                    fits = 1
                    break
        opened += fits
    return opened


def bloom(bits: npt.NDArray[np.uint8], places: npt.NDArray[np.int32], lows: Ints, capacity: int) -> int:
    """How many shards may match. `bits`: shards x resources x size. `places`: value x hash, the same for all shards."""
    shards, dimensions, _ = bits.shape
    hashes = places.shape[1]
    opened = 0
    for shard in range(shards):
        fits = 1
        for each in range(dimensions):
            if lows[each] <= 0:
                continue
            held = 0
            for value in range(lows[each], capacity + 1):
                held = 1
                for number in range(hashes):
                    if not bits[shard, each, places[value, number]]:
                        held = 0
                        break
                if held:
                    break
            if not held:
                fits = 0
                break
        opened += fits
    return opened


def np_first_fit(points: Ints, lows: Ints) -> int:
    mask = points[:, 0] >= lows[0]
    for each in range(1, points.shape[1]):
        mask &= points[:, each] >= lows[each]
    place = int(mask.argmax())
    return place if mask[place] else -1


def np_max_vector(highs: Ints, lows: Ints) -> int:
    return int(np.count_nonzero((highs >= lows).all(axis=1)))


def np_joint(cells: Words, steps: Ints, masks: Words, highs: Ints, lows: Ints) -> int:
    wanted = masks[0, steps[0]].copy()
    for each in range(1, len(steps)):
        wanted &= masks[each, steps[each]]
    fits = (highs >= lows).all(axis=1) & (cells & wanted).any(axis=1)
    return int(np.count_nonzero(fits))


def np_bloom(bits: npt.NDArray[np.uint8], places: npt.NDArray[np.int32], lows: Ints, capacity: int) -> int:
    fits = np.ones(len(bits), dtype=np.bool_)
    for each, low in enumerate(lows.tolist()):
        if low > 0:
            left = np.flatnonzero(fits)
            if not len(left):
                return 0
            rows = bits[left, each]
            held = rows[:, places[low : capacity + 1, 0]].astype(np.bool_)
            for number in range(1, places.shape[1]):
                held &= rows[:, places[low : capacity + 1, number]].astype(np.bool_)
            fits[left] = held.any(axis=1)
    return int(np.count_nonzero(fits))


@dataclass(frozen=True, slots=True)
class Probes:
    """One implementation of all probes; `tree_first` is None if a loop cannot be written that way."""

    name: str
    first_fit: Callable[..., int]
    tree_first: Callable[..., int] | None
    max_vector: Callable[..., int]
    joint: Callable[..., int]
    bloom: Callable[..., int]


PYTHON = Probes("python", first_fit, tree_first, max_vector, joint, bloom)
NUMPY = Probes("numpy", np_first_fit, None, np_max_vector, np_joint, np_bloom)


def compiled() -> Probes | None:
    """None without numba. Compiling takes a few seconds at the first call of each."""
    try:
        import numba
    except ImportError:
        return None
    jit: Any = numba.njit(nogil=True)
    return Probes("compiled", jit(first_fit), jit(tree_first), jit(max_vector), jit(joint), jit(bloom))
