"""Shapes: recurring boxes, each with its cached slots, updated by the changes since.

Every change is recorded in a journal. When a box is queried again, only the slots recorded since are examined: those
now in it are added to its result, those no longer in it removed. So a box that never recurs costs only memory, and one
that recurs costs the changes in between, if any. The structure behind answers for a new box, for one that missed too
many changes, and for a limit that the cached slots do not fill.

Limits: the `shapes` boxes used last are kept, each with at most `members` slots (a larger result is kept in part, for
queries with a limit), and 4,096 to 8,192 journal entries; at 100 bytes per member that is 26 MB for 256 shapes of
1,024.

Source: equivalence classes of requests (Verma et al., "Large-scale cluster management at Google with Borg", 2015, 3.4)
and the cached evaluation of Protean (Hadary et al., OSDI 2020); here the journal makes them exact."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

import numpy as np

from minikube_py.errors import InvalidRequest
from minikube_py.index import catalogue
from minikube_py.index.structure import Box, Estimating, Found, IntArray, Point, load
from minikube_py.index.structures.boxes import Asked, asked_of, lies_in
from minikube_py.index.structures.columns import Columns
from minikube_py.index.structures.options import check_dimensions, within

_JOURNAL_NOTES = 4096
_REPLAY_NOTES = 256
"""More changes than this are not replayed: querying the structure behind is cheaper. Less than the journal's minimum,
so that those are all in it."""
_ONE_BY_ONE = 8
"""Fewer changes than this are examined faster without numpy."""
_RESERVE = 4
"""A query with a limit requests this many times as many, so that some may leave before the next request."""
_MEMBER_BYTES = 100


class _Shape:
    """`members`: slots in the box, all of them if `complete`, in order of entry. `seen`: how many journal entries are
    applied. `answer`: the last one, while no member enters or leaves."""

    __slots__ = ("answer", "answer_limit", "complete", "members", "seen")

    def __init__(self, members: dict[int, None], complete: bool, seen: int) -> None:
        self.members, self.complete, self.seen = members, complete, seen
        self.answer: Found | None = None
        self.answer_limit = 0


class Shapes:
    """`behind`: the structure that answers new queries. `shapes`, `members`: see the module."""

    structure = "shapes"

    def __init__(self, dimensions: int, behind: str = "columns", shapes: int = 256, members: int = 1024) -> None:
        check_dimensions(self.structure, dimensions)
        self._shapes_limit = within(self.structure, "shapes", shapes, 1, 1 << 16)
        self._members_limit = within(self.structure, "members", members, 1, 1 << 20)
        if behind == self.structure:
            raise InvalidRequest(f"structure {self.structure}: behind is {behind!r}; it takes any other structure")
        self._behind = catalogue.build(behind, dimensions, {})
        # Needed for each query, and a protocol check takes longer than most answers.
        self._estimating = self._behind if isinstance(self._behind, Estimating) else None
        # The current points, for the journal.
        self._columns = self._behind if isinstance(self._behind, Columns) else Columns(dimensions)
        self._known: OrderedDict[Box, _Shape] = OrderedDict()
        self._journal: list[int] = []
        self._forgotten = 0
        self._asked = self._hits = 0

    def put(self, slot: int, point: Point) -> None:
        if self._columns is not self._behind:
            self._columns.put(slot, point)
        self._behind.put(slot, point)
        self._note(slot)

    def remove(self, slot: int) -> None:
        if self._columns.has(slot):
            if self._columns is not self._behind:
                self._columns.remove(slot)
            self._behind.remove(slot)
            self._note(slot)

    def load(self, slots: IntArray, points: IntArray) -> None:
        load(self._behind, slots, points)
        if self._columns is not self._behind:
            self._columns.load(slots, points)
        self._known.clear()

    def find(self, box: Box, limit: int = 0) -> Found:
        self._asked += 1
        shape = self._known.get(box)
        if shape is not None:
            self._known.move_to_end(box)
            replayed = self._replay(box, shape)
            if replayed >= 0 and (shape.complete or 0 < limit <= len(shape.members)):
                self._hits += 1
                return self._answer(shape, limit, replayed)
        asked_for = max(limit, min(limit * _RESERVE, self._members_limit))
        found = self._behind.find(box, asked_for)
        slots = found.slots[: self._members_limit].tolist()
        complete = found.complete and len(slots) == len(found.slots)
        self._known[box] = _Shape(dict.fromkeys(slots), complete, self._forgotten + len(self._journal))
        if len(self._known) > self._shapes_limit:
            self._known.popitem(last=False)
        if limit and len(found.slots) > limit:
            return found._replace(slots=found.slots[:limit], complete=False)
        return found

    def may_match(self, box: Box) -> bool:
        return len(self.find(box, 1).slots) > 0

    def size_bytes(self) -> int:
        members = sum(len(shape.members) for shape in self._known.values())
        own = 0 if self._columns is self._behind else self._columns.size_bytes()
        kept = len(self._known) * 600 + members * _MEMBER_BYTES + len(self._journal) * 8
        return self._behind.size_bytes() + own + kept

    def cost_us(self, rows: int, share: float, limit: int) -> float:
        """By the share of queries so far with a known shape, initially half: 0.6 us for those, and 5 us more than the
        structure behind for others (`tests/bench/bench_structures.py`)."""
        behind = 100.0 if self._estimating is None else self._estimating.cost_us(rows, share, limit)
        known = (self._hits + 1) / (self._asked + 2)
        return 0.6 * known + (1 - known) * (behind + 5.0)

    def _note(self, slot: int) -> None:
        if not self._known:
            return
        self._journal.append(slot)
        if len(self._journal) > 2 * _JOURNAL_NOTES:
            del self._journal[:_JOURNAL_NOTES]
            self._forgotten += _JOURNAL_NOTES

    def _replay(self, box: Box, shape: _Shape) -> int:
        """Applies the changes since the shape was last queried: how many slots were examined, -1 if too many."""
        first = shape.seen - self._forgotten
        notes = len(self._journal) - first
        if notes == 0:
            return 0
        asked = asked_of(box)
        if notes > _REPLAY_NOTES or asked is None:
            return -1
        members = shape.members
        noted = set(self._journal[first:])
        inside = self._inside(asked, noted)
        gone, new = (noted - inside) & members.keys(), inside - members.keys()
        for slot in gone:
            del members[slot]
        for slot in new:
            if len(members) >= self._members_limit:
                shape.complete = False
                break
            members[slot] = None
        if gone or new:
            shape.answer = None
        shape.seen += notes
        return len(noted)

    def _inside(self, asked: Asked, slots: set[int]) -> set[int]:
        """Those of `slots` whose points are in the box."""
        columns = self._columns
        if len(slots) < _ONE_BY_ONE:
            return {slot for slot in slots if columns.has(slot) and lies_in(columns.point(slot), asked)}
        there = np.fromiter(slots, dtype=np.int64, count=len(slots))
        there = there[there < columns.end]
        return set(columns.among(asked, there[columns.taken[there]]).tolist())

    def _answer(self, shape: _Shape, limit: int, examined: int) -> Found:
        answer = shape.answer
        if answer is None or shape.answer_limit != limit:
            members = shape.members
            count = min(limit, len(members)) if limit else len(members)
            slots = np.fromiter(islice(members, count), dtype=np.int64, count=count)
            # One array shared by all callers.
            slots.flags.writeable = False
            shape.answer = answer = Found(slots, shape.complete and count == len(members), 0)
            shape.answer_limit = limit
        return answer._replace(examined=examined) if examined else answer
