"""Loops over rows that are compared with a request or with each other: skylines and skybands.

Each is what the numpy front of its name does, in the same order, so that sums and ties come out alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import MISSING, IntArray
from minikube_py.studies.emptiness.fronts import LEAST_SIDE, VOLUME_MAX

Jit = Callable[[Any], Any]
Ask = Callable[[IntArray, Bools], Any]
Take = Callable[[IntArray, IntArray], Any]


class Loops(NamedTuple):
    """How a compiled front is asked, how it takes in changes (it returns how many nodes were read), what it does with a
    shard that was opened in vain, and how a search finds the next shard that passes, from one shard up to another, or
    -1; None for nothing, and for asking all shards at once."""

    ask: Ask
    take: Take
    in_vain: Callable[[int, IntArray], None] | None = None
    find: Callable[[IntArray, int, int], int] | None = None


Form = Callable[[Any, Jit], Loops]


# -- rows that are compared ------------------------------------------------------------------------------------


@cache
def reach_of(jit: Jit) -> Any:
    def reach(rows: Any, stride: Any, step: Any, counts: Any, asked: Any, says: Any) -> None:
        """Whether one of a shard's rows has all that is asked; they begin at shard * stride, and lie `step` apart."""
        for request in range(len(asked)):
            for shard in range(len(counts)):
                found = False
                for number in range(counts[shard]):
                    row = shard * stride + number * step
                    found = True
                    for each in range(asked.shape[1]):
                        if rows[row, each] < asked[request, each]:
                            found = False
                            break
                    if found:
                        break
                says[request, shard] = found

    return jit(reach)


@cache
def store_of(jit: Jit) -> Any:
    def store(points: Any, slots: Any, news: Any) -> Any:
        for change in range(len(slots)):
            for each in range(points.shape[1]):
                points[slots[change], each] = news[change, each]
        return 0

    return jit(store)


# -- skybands --------------------------------------------------------------------------------------------------


@cache
def _over(jit: Jit) -> Any:
    def over(rows: Any, row: Any, slot: Any, others: Any, other: Any, other_slot: Any) -> Any:
        """Whether a row dominates another; of equal ones the lower slot does."""
        more = slot < other_slot
        for each in range(rows.shape[1]):
            if rows[row, each] < others[other, each]:
                return False
            more |= rows[row, each] > others[other, each]
        return more

    return jit(over)


@cache
def _insert(jit: Jit) -> Any:
    over = _over(jit)

    def insert(
        points: Any, slot: Any, kept: Any, members: Any, counts: Any, shard: Any, width: Any, most: Any, k: Any
    ) -> None:
        """Adds a node that fewer than `most` members dominate, and drops members that `k` then do."""
        first = shard * width
        above = 0
        for row in range(first, first + counts[shard]):
            above += over(kept, row, members[row], points, slot, slot)
            if above >= most:
                return
        end = first + counts[shard]
        kept[end] = points[slot]
        members[end] = slot
        row = first
        while row < end:
            hidden = 0
            if over(kept, end, slot, kept, row, members[row]):
                for other in range(first, end + 1):
                    hidden += other != row and over(kept, other, members[other], kept, row, members[row])
            if hidden >= k:
                # The last two move up: the new one stays behind the others.
                kept[row], members[row] = kept[end - 1], members[end - 1]
                kept[end - 1], members[end - 1] = kept[end], members[end]
                members[end] = -1
                end -= 1
            else:
                row += 1
        counts[shard] = end + 1 - first

    return jit(insert)


@cache
def _build(jit: Jit) -> Any:
    insert = _insert(jit)

    def build(points: Any, shards: Any, kept: Any, members: Any, counts: Any, shard: Any, width: Any, k: Any) -> Any:
        members[shard * width : shard * width + counts[shard]] = -1
        counts[shard] = 0
        read = 0
        for slot in range(shard, len(points), shards):
            insert(points, slot, kept, members, counts, shard, width, k, k)
            read += 1
        return read

    return jit(build)


@cache
def _band(jit: Jit) -> Any:
    insert, build = _insert(jit), _build(jit)

    def band(points: Any, kept: Any, members: Any, counts: Any, sure: Any, k: Any, slots: Any, news: Any) -> Any:
        shards = len(counts)
        width = len(kept) // shards
        read = 0
        for change in range(len(slots)):
            slot = slots[change]
            shard = slot % shards
            lost = False
            for each in range(points.shape[1]):
                lost |= news[change, each] < points[slot, each]
                points[slot, each] = news[change, each]
            last = shard * width + counts[shard] - 1
            place = shard * width
            while place <= last and members[place] != slot:
                place += 1
            if place <= last:
                if lost:
                    sure[shard] -= 1
                    if sure[shard] == 0:
                        read += build(points, shards, kept, members, counts, shard, width, k)
                        sure[shard] = k
                        continue
                kept[place], members[place] = kept[last], members[last]
                members[last] = -1
                counts[shard] -= 1
            insert(points, slot, kept, members, counts, shard, width, sure[shard], k)
        return read

    return jit(band)


def _gathered(held: Any) -> IntArray:
    """Puts the members of each shard first, with room for all its nodes; returns how many they are."""
    shards, width = held.shards, -(-len(held.points) // held.shards)
    counts: IntArray = (held._slots >= 0).sum(axis=1)
    kept: IntArray = np.full((shards, width, held.dimensions), MISSING, dtype=np.int64)
    members: IntArray = np.full((shards, width), -1, dtype=np.int64)
    for shard in range(shards):
        there = held._slots[shard] >= 0
        kept[shard, : counts[shard]] = held._kept[shard, there]
        members[shard, : counts[shard]] = held._slots[shard, there]
    held._kept, held._slots = kept, members
    return counts


def skyband(held: Any, jit: Jit) -> Loops:
    reach, band = reach_of(jit), _band(jit)
    counts, sure = _gathered(held), np.array(held._sure, dtype=np.int64)
    rows, slots_of = held._kept.reshape(-1, held.dimensions), held._slots.reshape(-1)
    width = held._slots.shape[1]
    return Loops(
        lambda asked, says: reach(rows, width, 1, counts, asked, says),
        lambda slots, news: band(held.points, rows, slots_of, counts, sure, held.k, slots, news),
    )


# -- a skyline that waits --------------------------------------------------------------------------------------


@cache
def _bounds(jit: Jit) -> Any:
    insert = _insert(jit)

    def bounds(points: Any, kept: Any, members: Any, counts: Any, slots: Any, news: Any, start: Any) -> Any:
        """Takes in changes from `start` on, up to one for which its shard has no place left; returns which that is."""
        shards = len(counts)
        width = len(kept) // shards
        for change in range(start, len(slots)):
            slot = slots[change]
            shard = slot % shards
            under = False
            for row in range(shard * width, shard * width + counts[shard]):
                under = True
                for each in range(points.shape[1]):
                    under &= kept[row, each] >= news[change, each]
                if under:
                    break
            if not under and counts[shard] == width:
                return change
            points[slot] = news[change]
            if not under:
                insert(points, slot, kept, members, counts, shard, width, 1, 1)
        return len(slots)

    return jit(bounds)


def repaired_skyline(held: Any, jit: Jit) -> Loops:
    """Bounds of nodes that lost something stay, so that a shard may have more of them than nodes."""
    reach, bounds, build = reach_of(jit), _bounds(jit), _build(jit)
    counts = _gathered(held)

    def ask(asked: IntArray, says: Bools) -> None:
        reach(held._kept.reshape(-1, held.dimensions), held._kept.shape[1], 1, counts, asked, says)

    def take(slots: IntArray, news: IntArray) -> int:
        done = 0
        while True:
            rows = held._kept.reshape(-1, held.dimensions)
            done = bounds(held.points, rows, held._slots.reshape(-1), counts, slots, news, done)
            if done == len(slots):
                return 0
            held._widen()

    def in_vain(shard: int, asked: IntArray) -> None:
        rows, width = held._kept.reshape(-1, held.dimensions), held._slots.shape[1]
        slots_of = held._slots.reshape(-1)
        held.rows_read += int(build(held.points, held.shards, rows, slots_of, counts, shard, width, 1))
        held.visited[shard] = True

    return Loops(ask, take, in_vain)


# -- a bounded skyline -----------------------------------------------------------------------------------------


@cache
def _volume(jit: Jit) -> Any:
    def volume(one: Any, other: Any, scale: Any) -> Any:
        """Of the maximum of two vectors."""
        product = 1.0
        for each in range(len(scale)):
            product *= max(one[each], other[each]) / scale[each] + LEAST_SIDE
        return min(product, VOLUME_MAX)

    return jit(volume)


@cache
def _merge(jit: Jit) -> Any:
    volume = _volume(jit)

    def partner(
        work: Any, dead: Any, alone: Any, row: Any, start: Any, end: Any, scale: Any, added: Any, by: Any
    ) -> None:
        """Looks from `start` on for the vector with which `row` adds the least volume; of equal ones the first."""
        for other in range(start, end):
            if not dead[other]:
                more = volume(work[row], work[other], scale) - alone[row] - alone[other]
                if more < added[row]:
                    added[row], by[row] = more, other

    partner = jit(partner)

    def merge(work: Any, count: Any, k: Any, scale: Any, rows: Any) -> None:
        """Merges the first `count` vectors of `work` into k, and writes them to `rows`."""
        dead = np.zeros(len(work), dtype=np.bool_)
        alone, added = np.zeros(len(work)), np.full(len(work), np.inf)
        by = np.full(len(work), -1)
        for row in range(count):
            alone[row] = volume(work[row], work[row], scale)
        live = count
        if live > k:
            for row in range(count):
                partner(work, dead, alone, row, row + 1, count, scale, added, by)
        while live > k:
            first = -1
            for row in range(count):
                if not dead[row] and by[row] >= 0 and (first < 0 or added[row] < added[first]):
                    first = row
            new = count
            for each in range(work.shape[1]):
                work[new, each] = max(work[first, each], work[by[first], each])
            alone[new] = volume(work[new], work[new], scale)
            count += 1
            live += 1
            for row in range(new):
                under = not dead[row]
                for each in range(work.shape[1]):
                    under &= work[new, each] >= work[row, each]
                if under:
                    dead[row] = True
                    live -= 1
            for row in range(new):
                if dead[row]:
                    continue
                if by[row] >= 0 and dead[by[row]]:
                    added[row], by[row] = np.inf, -1
                    partner(work, dead, alone, row, row + 1, count, scale, added, by)
                else:
                    partner(work, dead, alone, row, new, count, scale, added, by)
        place = 0
        for row in range(count):
            if not dead[row]:
                rows[place] = work[row]
                place += 1
        rows[place:] = MISSING

    return jit(merge)


@cache
def _undominated(jit: Jit) -> Any:
    over = _over(jit)

    def undominated(points: Any, shard: Any, shards: Any, work: Any, slots: Any) -> Any:
        """Writes a shard's skyline to `work`, by falling sums; returns how many nodes it has. All are read."""
        sums = -points[shard::shards].astype(np.float64).sum(axis=1)
        count = 0
        for number in np.argsort(sums, kind="mergesort"):
            slot = shard + number * shards
            work[count], slots[count] = points[slot], slot
            hidden = False
            for row in range(count):
                hidden |= over(work, row, slots[row], work, count, slot)
            if hidden:
                continue
            place = 0
            for row in range(count):
                if not over(work, count, slot, work, row, slots[row]):
                    work[place], slots[place] = work[row], slots[row]
                    place += 1
            work[place], slots[place] = points[slot], slot
            count = place + 1
        return count

    return jit(undominated)


@cache
def _bound(jit: Jit) -> Any:
    merge, undominated = _merge(jit), _undominated(jit)

    def bound(points: Any, rows: Any, k: Any, scale: Any, work: Any, members: Any, slots: Any, news: Any) -> Any:
        shards = len(rows) // k
        read = 0
        for change in range(len(slots)):
            slot = slots[change]
            shard = slot % shards
            first = shard * k
            lost = under = False
            for row in range(first, first + k):
                above, left, covers = True, False, True
                for each in range(points.shape[1]):
                    above &= rows[row, each] >= points[slot, each]
                    left |= rows[row, each] == points[slot, each] and news[change, each] < points[slot, each]
                    covers &= rows[row, each] >= news[change, each]
                lost |= above and left
                under |= covers
            points[slot] = news[change]
            if lost:
                count = undominated(points, shard, shards, work, members)
                read += (len(points) - shard + shards - 1) // shards
                merge(work, count, k, scale, rows[first : first + k])
            elif not under:
                work[0] = news[change]
                count = 1
                for row in range(first, first + k):
                    hidden = True
                    for each in range(points.shape[1]):
                        hidden &= news[change, each] >= rows[row, each]
                    if not hidden:
                        work[count] = rows[row]
                        count += 1
                merge(work, count, k, scale, rows[first : first + k])
        return read

    return jit(bound)


def bounded_skyline(held: Any, jit: Jit) -> Loops:
    reach, bound = reach_of(jit), _bound(jit)
    rows, counts = held._rows.reshape(-1, held.dimensions), np.full(held.shards, held.k)
    # A merge adds one vector for at least two that it ends.
    most = 2 * max(held.k + 1, -(-len(held.points) // held.shards))
    work: IntArray = np.zeros((most, held.dimensions), dtype=np.int64)
    members: IntArray = np.zeros(most, dtype=np.int64)
    return Loops(
        lambda asked, says: reach(rows, held.k, 1, counts, asked, says),
        lambda slots, news: bound(held.points, rows, held.k, held._scale, work, members, slots, news),
    )
