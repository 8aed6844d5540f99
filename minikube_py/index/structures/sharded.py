"""Points in shards, each behind a filter or summary: the benefit of a filter when opening a shard is expensive.

A query opens the shards whose filter answers "perhaps", in order, until it has enough. The reader determines the cost
of opening (`structures.shard_reader`): a memory access, optionally `open_cost_us` more, a file's, or another member's.

Placement of a point: by `slot` modulo the number of shards, so that each shard is a sample of all; or, with
`placing="sorted"`, by a k-d tree of the points at the last arrangement, so that a shard's points are similar. The tree
is built when points are loaded, and again after as many changes as there were points (at least ARRANGE_AT_LEAST).

Rebuilding of a filter: one without deletion still answers "perhaps" for removed points, and one sized for n points errs
more with each further one. Both are counted per shard; once either exceeds `rebuild_percent` of the points it was built
from, and REBUILD_AT_LEAST, the shard is read and its filter rebuilt from its contents, as compaction does for a filter
in front of a stored run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.always import Always
from minikube_py.index.filters.catalogue import Option, summary_of
from minikube_py.index.filters.contract import Forgetting, Summary
from minikube_py.index.filters.hashing import Bools
from minikube_py.index.filters.max_vector import MaxVector
from minikube_py.index.structure import HIGH, MISSING, Box, Found, IntArray, Point
from minikube_py.index.structures.options import check_dimensions, check_slot, within
from minikube_py.index.structures.shard_reader import ChargedShards, Ledger, MemoryShards, ShardReader

REBUILD_AT_LEAST = 8
ARRANGE_AT_LEAST = 1024
BOUNDS_AT_LEAST = 8
"""From this many shards on, their bounds are compared at once before any other filter is probed."""
NEVER_OUTGROWN = frozenset({"max-vector", "oracle", "always"})
"""Summaries that are as good after many insertions as when built."""


class Split(NamedTuple):
    """Points with `dimension` below `cut` go to `below`, others to `above`: a split, or a shard's number."""

    dimension: int
    cut: int
    below: Split | int
    above: Split | int


class Sharded:
    """`Structure`, `Loading`, `Estimating`. `filter`: a name of `filters.catalogue`; `filter_options`: its options as
    text, such as "buckets=16,spacing=quantile". `ledger` counts what was done.

    Raises: InvalidRequest for an unknown filter or an option out of bounds."""

    structure = "sharded"

    def __init__(
        self,
        dimensions: int,
        shards: int = 16,
        filter: str = "max-vector",
        bits_per_key: int = 16,
        open_cost_us: int = 0,
        rebuild_percent: int = 25,
        placing: str = "slot",
        filter_options: str = "",
    ) -> None:
        check_dimensions(self.structure, dimensions)
        for option, value, low, high in (
            ("shards", shards, 1, 1 << 16),
            ("open_cost_us", open_cost_us, 0, 10_000_000),
            ("rebuild_percent", rebuild_percent, 1, 1000),
        ):
            within(self.structure, option, value, low, high)
        if placing not in ("slot", "sorted"):
            raise InvalidRequest(f'placing is "{placing}": it must be "slot" or "sorted"')
        self.ledger = Ledger()
        self.filter = filter
        self._dimensions, self._shards = dimensions, shards
        self._bits_per_key, self._options = bits_per_key, parse_options(filter_options)
        self._rebuild_share = rebuild_percent / 100
        self._sorted = placing == "sorted"
        self._open_cost_us = open_cost_us
        self.reader = self._charged(MemoryShards(dimensions), None)
        empty: IntArray = np.empty((0, dimensions), dtype=np.int64)
        self._summaries: list[Summary] = [self._summary(empty) for _ in range(shards)]
        self._bounds = bounds_of(self._summaries) if shards >= BOUNDS_AT_LEAST else None
        self._blind = isinstance(self._summaries[0], Always)
        self._forgets = isinstance(self._summaries[0], Forgetting) and not self._blind
        self._live = [0] * shards
        self._built_from = [0] * shards
        self._departed = [0] * shards
        self._added = [0] * shards
        self._shard_of: list[int] = []
        self._tree: Split | int | None = None
        self._changes = self._arrange_after = 0

    @classmethod
    def over(
        cls,
        reader: ShardReader,
        dimensions: int,
        wait: Callable[[float], None] | None = None,
        **options: int | str,
    ) -> Sharded:
        """With shards kept by `reader`, which must be empty. `wait` is called with the seconds of `open_cost_us` to
        wait, which are otherwise only counted."""
        build: Any = cls
        made: Sharded = build(dimensions, **options)
        made.reader = made._charged(reader, wait)
        return made

    def _charged(self, reader: ShardReader, wait: Callable[[float], None] | None) -> ShardReader:
        return ChargedShards(reader, self._open_cost_us, self.ledger, wait) if self._open_cost_us else reader

    def _summary(self, points: IntArray) -> Summary:
        return summary_of(self.filter, points, self._bits_per_key, **self._options)

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, slot: int, point: Point) -> None:
        old = self._shard_of[slot] if 0 <= slot < len(self._shard_of) else -1
        shard = self._route(slot, point)
        if old == shard:
            self._leave(slot, shard, stays=True)
        elif old >= 0:
            self.remove(slot)
            # That may have redistributed all points.
            shard = self._route(slot, point)
        shards = self._shard_of
        if not 0 <= slot < len(shards):
            check_slot(slot)
            shards.extend([-1] * (slot + 1 - len(shards)))
        self.reader.put(shard, slot, point)
        self._summaries[shard].put(point)
        if self._bounds is not None:
            self._bounds.changed.add(shard)
        if old != shard:
            shards[slot] = shard
            self._live[shard] += 1
        self._added[shard] += 1
        self._tend(shard)

    def remove(self, slot: int) -> None:
        shard = self._shard_of[slot] if 0 <= slot < len(self._shard_of) else -1
        if shard >= 0:
            self._leave(slot, shard, stays=False)
            self._shard_of[slot] = -1
            self._live[shard] -= 1
            self._tend(shard)

    def _leave(self, slot: int, shard: int, stays: bool) -> None:
        """Removes the point of `slot` from the shard; another replaces it if it `stays`."""
        if self._forgets:
            summary = cast(Forgetting, self._summaries[shard])
            summary.remove(self.reader.point(shard, slot))
            self._added[shard] -= 1
        else:
            self._departed[shard] += 1
        if not stays:
            self.reader.remove(shard, slot)

    def _tend(self, shard: int) -> None:
        """Rebuilds the shard's filter if the module's rule requires it."""
        self._changes += 1
        if self._sorted and self._changes > max(ARRANGE_AT_LEAST, self._arrange_after):
            self.arrange()
            return
        if self._blind:
            return
        grown = 0 if self.filter in NEVER_OUTGROWN else self._added[shard]
        if max(self._departed[shard], grown) > max(REBUILD_AT_LEAST, self._rebuild_share * self._built_from[shard]):
            self._rebuild(shard, self.reader.contents(shard)[1])
            self.ledger.rebuilds += 1
            self.ledger.rebuilt_points += self._live[shard]

    def _rebuild(self, shard: int, points: IntArray) -> None:
        self._summaries[shard] = self._summary(points)
        if self._bounds is not None:
            self._bounds.changed.add(shard)
        self._built_from[shard] = len(points)
        self._departed[shard] = self._added[shard] = 0

    def load(self, slots: IntArray, points: IntArray) -> None:
        if len(slots):
            self._shard_of = [-1] * (int(slots.max()) + 1)
        if self._sorted:
            self._tree, order = lay(points, self._shards)
        else:
            order = [np.flatnonzero(slots % self._shards == shard) for shard in range(self._shards)]
        for shard, rows in enumerate(order):
            self.reader.fill(shard, slots[rows], points[rows])
            self._rebuild(shard, points[rows])
            self._live[shard] = len(rows)
            for slot in slots[rows].tolist():
                self._shard_of[slot] = shard
        self._changes, self._arrange_after = 0, len(slots)

    def arrange(self) -> None:
        """Redistributes all points to the shards."""
        contents = [self.reader.contents(shard) for shard in range(self._shards)]
        slots = np.concatenate([slots for slots, _ in contents])
        self.ledger.arranged_points += len(slots)
        self.load(slots, np.concatenate([points for _, points in contents]))

    def _route(self, slot: int, point: Point) -> int:
        node = self._tree
        if node is None:
            return slot % self._shards
        while not isinstance(node, int):
            node = node.below if point[node.dimension] < node.cut else node.above
        return node

    # -- reading ---------------------------------------------------------------------------------------------------

    def find(self, box: Box, limit: int = 0) -> Found:
        pieces: list[IntArray] = []
        found = examined = opened = false_positives = 0
        complete, passed = True, self._shards
        for shard in self._candidates(box):
            if limit and found == limit:
                complete, passed = False, shard
                break
            read = self.reader.find(shard, box, limit - found if limit else 0)
            opened += 1
            examined += read.examined
            if len(read.slots):
                pieces.append(read.slots)
                found += len(read.slots)
            else:
                false_positives += 1
            complete = complete and read.complete
        pruned = self._shards - self._live[:passed].count(0) - (self._shards - passed) - opened
        ledger = self.ledger
        ledger.questions += 1
        ledger.probed += opened + pruned
        ledger.opened += opened
        ledger.pruned += pruned
        ledger.false_positives += false_positives
        slots = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        return Found(slots, complete, examined + opened + pruned, opened, pruned, false_positives)

    def _candidates(self, box: Box) -> Iterator[int]:
        """The shards that may have a match, in order."""
        live, summaries = self._live, self._summaries
        if self._bounds is None:
            for shard, summary in enumerate(summaries):
                if live[shard] and summary.may_match(box):
                    yield shard
            return
        exact = self._bounds.are_all
        for shard in self._bounds.passing(box, summaries):
            if live[shard] and (exact or summaries[shard].may_match(box)):
                yield shard

    def may_match(self, box: Box) -> bool:
        return next(self._candidates(box), None) is not None

    # -- sizes and costs -------------------------------------------------------------------------------------------

    def filter_bits(self) -> int:
        """The size of all filters together."""
        return sum(summary.size_bits() for summary in self._summaries)

    def size_bytes(self) -> int:
        return self.filter_bits() // 8 + self.reader.size_bytes() + 8 * len(self._shard_of)

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """As if points were placed at random and no filter erred: about 1 us per filter, 6 per shard, 0.003 per row."""
        in_shard = max(1.0, rows / self._shards)
        holds: float = 1 - (1 - share) ** in_shard
        probed = float(self._shards)
        if limit and share > 0:
            probed = min(probed, max(1.0, limit / (share * in_shard)))
        opened = probed * holds
        return probed + opened * (6 + self._open_cost_us + 0.003 * in_shard * self._dimensions)


class BoundsTable:
    """The least and the greatest values of many summaries, compared with a box at once."""

    def __init__(self, shards: int, dimensions: int, are_all: bool) -> None:
        self._lows: IntArray = np.full((dimensions, shards), HIGH, dtype=np.int64)
        self._highs: IntArray = np.full((dimensions, shards), MISSING, dtype=np.int64)
        self.changed: set[int] = set()
        self.are_all = are_all
        """The summaries consist only of bounds."""

    def passing(self, box: Box, summaries: list[Summary]) -> list[int]:
        for shard in self.changed:
            summary = summaries[shard]
            bounds = summary if isinstance(summary, MaxVector) else cast(Any, summary).bounds
            self._lows[:, shard] = bounds.lows
            self._highs[:, shard] = bounds.highs
        self.changed.clear()
        if box.empty:
            return []
        mask: Bools | None = None
        for dimension, (low, high) in enumerate(zip(box.lows, box.highs)):
            if low != MISSING:
                test = self._highs[dimension] >= low
                mask = test if mask is None else mask & test
            if high != HIGH:
                test = self._lows[dimension] <= high
                mask = test if mask is None else mask & test
        if mask is None:
            return list(range(self._lows.shape[1]))
        passing: list[int] = np.flatnonzero(mask).tolist()
        return passing


def bounds_of(summaries: list[Summary]) -> BoundsTable | None:
    """A table for summaries that contain or are a max vector; None for others."""
    first: Any = summaries[0]
    bounds = first if isinstance(first, MaxVector) else getattr(first, "bounds", None)
    if bounds is None or not getattr(first, "clip", True):
        return None
    return BoundsTable(len(summaries), len(bounds.lows), first is bounds)


def lay(points: IntArray, shards: int) -> tuple[Split | int, list[IntArray]]:
    """A k-d tree with `shards` leaves of about equally many points, and the rows of each leaf."""
    order: list[IntArray] = []
    dimensions = points.shape[1]

    def split(rows: IntArray, leaves: int, depth: int) -> Split | int:
        if leaves == 1:
            order.append(rows)
            return len(order) - 1
        left = leaves // 2
        for dimension in [(depth + turn) % dimensions for turn in range(dimensions)]:
            values = points[rows, dimension]
            if len(values) and values.min() < values.max():
                break
        else:
            dimension, values = depth % dimensions, points[rows, depth % dimensions]
        place = len(values) * left // leaves
        cut = int(np.partition(values, place)[place]) if len(values) else 0
        below = values < cut
        first = split(rows[below], left, dimension + 1)
        return Split(dimension, cut, first, split(rows[~below], leaves - left, dimension + 1))

    return split(np.arange(len(points)), shards, 0), order


def parse_options(text: str) -> dict[str, Option]:
    """From "name=value,...": values as ints, else as numbers, else as text. Raises: InvalidRequest for other texts."""
    options: dict[str, Option] = {}
    for part in filter(str.strip, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip().isidentifier():
            raise InvalidRequest(f'filter_options is "{text}": it must read name=value,name=value')
        options[name.strip()] = _value(value.strip())
    return options


def _value(text: str) -> Option:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
