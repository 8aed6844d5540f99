"""A cluster of one seed: its nodes' free amounts, their changes, and the pods' requests.

As registered (docs/studies/bloom.md, "Workload"): shares of Beta(1, u/(1-u)) joined by a Gaussian copula, updates that
preserve the distribution, and half of the thresholds just above a stored value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from minikube_py.index.structure import HIGH, MISSING, Box, IntArray
from minikube_py.lab.study.design import Design, Levels

Floats = npt.NDArray[np.float64]
Update = tuple[int, tuple[int, ...]]
SYNTHETIC: Final = ("capacity", "drift", "menu_halvings", "snapped_share", "unasked_share", "recent_requests")
"""What a cluster reads of the design besides levels."""
LEAST_TAIL: Final = 1e-9
SHARD_VARIANCE: Final = 0.5


def normal_tail(z: Floats) -> Floats:
    """P(Z > z), to within 1.5e-7. Source: Abramowitz and Stegun 7.1.26."""
    x = np.abs(z) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 0.5 * poly * np.exp(-x * x)
    tail: Floats = np.where(z >= 0, upper, 1.0 - upper)
    clipped: Floats = np.clip(tail, LEAST_TAIL, 1.0)
    return clipped


def joined(rng: np.random.Generator, rows: int, dimensions: int, correlation: float) -> Floats:
    """`rows` standard Gaussian vectors; a negative correlation inverts every other resource."""
    strength = abs(correlation)
    common = rng.standard_normal((rows, 1))
    if correlation < 0:
        common = common * np.where(np.arange(dimensions) % 2, -1.0, 1.0)
    made: Floats = np.sqrt(strength) * common + np.sqrt(1.0 - strength) * rng.standard_normal((rows, dimensions))
    return made


class Cluster:
    """`points`: the free amounts now, one row per node; node i is in slot i. `change` advances it."""

    def __init__(self, design: Design, levels: Levels, seed: int) -> None:
        self.nodes, self.dimensions = int(levels["n"]), int(levels["d"])
        self.shards = min(int(levels["shards"]), self.nodes)
        self.correlation, self.utilisation = float(levels["correlation"]), float(levels["utilisation"])
        self.repetition = float(levels["repetition"])
        self._raw = design.raw
        self.capacity = int(design.raw["capacity"])
        # Parts of the seed: the same nodes for all requests, the same requests for all changes.
        self._rng_nodes, self._rng_requests, self._rng_updates = (
            np.random.default_rng([seed, word, self.nodes, self.dimensions]) for word in range(3)
        )
        self._own = joined(self._rng_nodes, self.nodes, self.dimensions, self.correlation)
        self._shared: Floats | None = None
        if levels["placement"] == "clustered":
            by_shard = joined(self._rng_nodes, self.shards, self.dimensions, self.correlation)
            self._shared = np.sqrt(SHARD_VARIANCE) * by_shard[np.arange(self.nodes) % self.shards]
        self.points = self._free(np.arange(self.nodes), self._own)
        self._recent: list[tuple[int, ...]] = []

    def _free(self, slots: IntArray, own: Floats) -> IntArray:
        z = own if self._shared is None else self._shared[slots] + np.sqrt(1.0 - SHARD_VARIANCE) * own
        mean = 1.0 - self.utilisation
        share = 1.0 - normal_tail(z) ** (mean / self.utilisation)
        return np.minimum(np.floor(share * self.capacity), self.capacity).astype(np.int64)

    def change(self, count: int) -> list[Update]:
        """`count` nodes, some perhaps repeatedly, get a new free vector; `points` includes the last one."""
        drift = float(self._raw["drift"])
        updates: list[Update] = []
        slots = self._rng_updates.integers(self.nodes, size=count)
        steps = joined(self._rng_updates, count, self.dimensions, self.correlation)
        for run in _without_repeats(slots):
            chosen = slots[run]
            self._own[chosen] = drift * self._own[chosen] + np.sqrt(1.0 - drift * drift) * steps[run]
            self.points[chosen] = self._free(chosen, self._own[chosen])
            updates.extend(zip(chosen.tolist(), map(tuple, self.points[chosen].tolist())))
        return updates

    def requests(self, count: int) -> list[tuple[int, ...]]:
        """Thresholds, MISSING for unrequested resources; snapped ones relate to the current points."""
        rng, raw = self._rng_requests, self._raw
        columns = [np.unique(self.points[:, each]) for each in range(self.dimensions)]
        made: list[tuple[int, ...]] = []
        for _ in range(count):
            if self._recent and rng.random() < self.repetition:
                made.append(self._recent[int(rng.integers(len(self._recent)))])
                continue
            sizes = self.capacity / 2.0 ** rng.uniform(1.0, raw["menu_halvings"], self.dimensions)
            snapped = rng.random() < raw["snapped_share"]
            asked = rng.random(self.dimensions) >= raw["unasked_share"]
            if not asked.any():
                asked[int(rng.integers(self.dimensions))] = True
            thresholds = [
                self._threshold(columns[each], int(sizes[each]), snapped) if asked[each] else MISSING
                for each in range(self.dimensions)
            ]
            made.append(tuple(thresholds))
            self._recent = [*self._recent[-raw["recent_requests"] + 1 :], made[-1]]
        return made

    def _threshold(self, stored: IntArray, size: int, snapped: bool) -> int:
        if not snapped:
            return size
        place = int(np.searchsorted(stored, size))
        return min(self.capacity, int(stored[place]) + 1) if place < len(stored) else size


def _without_repeats(slots: IntArray) -> Iterator[slice]:
    """Runs of `slots` without repetitions, so that each is one numpy step."""
    start = 0
    seen: set[int] = set()
    for place, slot in enumerate(slots.tolist()):
        if slot in seen:
            yield slice(start, place)
            start, seen = place, set()
        seen.add(slot)
    if start < len(slots):
        yield slice(start, len(slots))


def boxes(requests: Sequence[tuple[int, ...]], high: int = HIGH) -> list[Box]:
    """Half-lines up to `high`; an unrequested resource matches everything."""
    return [Box(lows, tuple(HIGH if low == MISSING else high for low in lows)) for lows in requests]


def matching(points: IntArray, box: Box) -> IntArray:
    """The slots in `box`, by brute force."""
    mask = np.ones(len(points), dtype=np.bool_)
    for column, low, high in zip(points.T, box.lows, box.highs):
        if low != MISSING:
            mask &= column >= low
        if high != HIGH:
            mask &= column <= high
    return np.flatnonzero(mask)


class RangeCluster:
    """One-dimensional keys, uniform over a universe, and short ranges: the block `ranges`."""

    def __init__(self, levels: Levels, seed: int) -> None:
        self.nodes, self.dimensions, self.shards = int(levels["n"]), 1, int(levels["shards"])
        self.universe, self.length = int(levels["universe"]), int(levels["length"])
        self._rng_requests, self._rng_updates, keys = (
            np.random.default_rng([seed, word, self.nodes, self.universe]) for word in range(3)
        )
        self.points: IntArray = keys.integers(self.universe, size=(self.nodes, 1))

    def change(self, count: int) -> list[Update]:
        slots = self._rng_updates.integers(self.nodes, size=count)
        keys = self._rng_updates.integers(self.universe, size=count)
        for slot, key in zip(slots.tolist(), keys.tolist()):
            self.points[slot, 0] = key
        return [(slot, (key,)) for slot, key in zip(slots.tolist(), keys.tolist())]

    def ranges(self, count: int) -> list[Box]:
        """Half start anywhere, half just above an existing key."""
        rng = self._rng_requests
        anywhere = rng.integers(self.universe, size=count)
        behind = self.points[rng.integers(self.nodes, size=count), 0] + 1
        lows = np.where(rng.random(count) < 0.5, anywhere, behind)
        return [Box((low,), (low + self.length - 1,)) for low in lows.tolist()]
