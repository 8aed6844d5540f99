"""A structure in use: holds the points of a `ColumnIndex`'s rows and answers queries.

The host is authoritative at every retained revision; the structure holds only the current rows. Row changes are queued
and put into the structure at the next query, or when enough are queued: a row that changes ten times between two
queries is put once. Past states are found in one of two ways:

- Among the candidates of the present, less the rows that have changed since, plus those of them that passed at that
  time, as the host's log says. This costs nothing to keep.
- Where the structure is `Versioned`, in the state it had, if one is to be kept for each of the newest revisions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Comparison, Test, Where, compile_where
from minikube_py.index import catalogue
from minikube_py.index.box import Boxed, boxed
from minikube_py.index.cells import Changed, Mask
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import Answering, IndexStats, Matches, Order, Row, RowChange
from minikube_py.index.structure import NOTHING, Box, Estimating, Found, IntArray, Loading, Structure, Versioned
from minikube_py.own_code import raised

WAITING_MAX: Final = 128
"""How many changed rows are queued before they are put in without a query."""
BEHIND_MAX: Final = 512
"""Without queries nothing is put in. If more rows than this are queued at the next one, they are put in slices, and the
host's columns answer meanwhile."""
FROZEN_MAX: Final = 64
"""States of a `Versioned` structure kept by default; older revisions are found by the log."""
FROZEN_BYTES: Final = 2048
"""Memory counted for each kept state: about the path that a change copies in a tree."""
FIRST_WANTED: Final = 64
"""If tests remain after the box, at least this many candidates are requested at once."""


class HostedIndex(Answering):
    """An `Index` (see the contract) over `fields` of the host's rows. It is complete once `build` returns True, or at
    once with `built`; the host must be changed only by its `apply`, which reports changes here.

    `failed` is called with exceptions of the structure while it handles changes in the background; without `failed`,
    they propagate."""

    def __init__(
        self,
        host: ColumnIndex,
        fields: Iterable[str],
        structure: Structure,
        *,
        built: bool = True,
        frozen_max: int = FROZEN_MAX,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.host = host
        self.field_set = host.field_set
        self.require_retained = host.require_retained
        self.structure = structure
        self.fields = tuple(fields)
        self.ready = False
        self._places = {name: place for place, name in enumerate(self.fields)}
        self._columns = [-1] * len(self.fields)
        self._mask = 1
        self._waiting: set[int] = set()
        self._built_to = 0
        self._build_end = host.slot_end
        self._frozen_max = frozen_max if isinstance(structure, Versioned) else 0
        # Needed for each query, and a protocol check takes longer than most answers.
        self.estimating = structure if isinstance(structure, Estimating) else None
        self._asked = True
        self.wanted = False
        """A query came while more rows were queued than can be put in at once."""
        self._frozen: list[tuple[int, Any]] = []
        self._moved = False
        self._failed = failed
        host.follow(self)
        if built:
            while not self.build(1 << 30):
                pass

    @classmethod
    def alone(
        cls,
        field_set: FieldSet,
        structure: str | Structure,
        fields: Iterable[str],
        oldest_revision: int = 0,
        rows: Iterable[RowChange] = (),
        *,
        frozen_max: int = 1 << 30,
        **options: int | str,
    ) -> HostedIndex:
        """An index with its own host, changed by `apply`; the structure is given by name and options, or as an object.

        Raises: InvalidRequest for an unknown name or option, or an undeclared field."""
        names = tuple(fields)
        compile_where(field_set, Where(tuple([Comparison(name, "exists") for name in names])))
        if isinstance(structure, str):
            structure = catalogue.build(structure, len(names), options)
        return cls(ColumnIndex(field_set, oldest_revision, rows), names, structure, frozen_max=frozen_max)

    # -- building ------------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> float:
        """0 to 1."""
        return 1.0 if self.ready else self._built_to / max(1, self._build_end)

    def build(self, rows: int) -> bool:
        """Adds about `rows` more of the initial rows, then the changes since; True once it has all."""
        if self.ready:
            return True
        start, stop = self._built_to, min(self._built_to + rows, self._build_end)
        if start < stop:
            slots = self.host.live_slots(start, stop)
            structure = self.structure
            if start == 0 and stop == self._build_end and isinstance(structure, Loading):
                structure.load(slots, self.host.points(slots, self._columns))
            else:
                self._put(slots)
            self._built_to = stop
        elif len(self._waiting) > WAITING_MAX:
            self._follow_up(rows)
        if self._built_to == self._build_end and len(self._waiting) <= WAITING_MAX:
            self._follow_up()
            self.ready = True
            self._freeze(self.host.revision)
        return self.ready

    def close(self) -> None:
        """Stops following its host."""
        self.host.unfollow(self)
        self._frozen.clear()
        self._waiting.clear()

    def _put(self, slots: IntArray) -> None:
        put = self.structure.put
        for slot, point in zip(slots.tolist(), self.host.points(slots, self._columns).tolist()):
            put(slot, tuple(point))

    def _follow_up(self, rows: int = 0) -> None:
        """Brings the structure up to date, or puts in `rows` of the queued changes."""
        waiting = self._waiting
        if not waiting:
            return
        if 0 < rows < len(waiting):
            slots = [waiting.pop() for _ in range(rows)]
        else:
            slots = list(waiting)
            waiting.clear()
        host, structure, columns = self.host, self.structure, self._columns
        for slot in slots:
            if host.exists(slot):
                structure.put(slot, host.point(slot, columns))
            else:
                structure.remove(slot)

    @property
    def waiting(self) -> int:
        """Changed rows not yet in the structure."""
        return len(self._waiting)

    @property
    def askable(self) -> bool:
        """It is complete, and the queued rows can be put in at once."""
        if not self.ready:
            return False
        self._asked = True
        if len(self._waiting) > BEHIND_MAX:
            self.wanted = True
            return False
        return True

    def catch_up(self, rows: int) -> None:
        """Puts in about `rows` of the queue, if a query needs it."""
        self._follow_up(rows)
        self.wanted = len(self._waiting) > WAITING_MAX

    def _freeze(self, revision: int) -> None:
        if not self._frozen_max:
            return
        assert isinstance(self.structure, Versioned)
        if self._frozen and self._frozen[-1][0] == revision:
            self._frozen.pop()
        self._frozen.append((revision, self.structure.freeze()))
        self._moved = False
        if len(self._frozen) > 2 * self._frozen_max:
            del self._frozen[: -self._frozen_max]

    # -- notifications by the host
    # -------------------------------------------------------------------------------------------

    def column_added(self, name: str, column: int) -> None:
        place = self._places.get(name)
        if place is not None:
            self._columns[place] = column
            self._mask |= 1 << column

    def row_changed(self, slot: int, columns: int) -> None:
        if columns & self._mask:
            self._moved = True
            self._waiting.add(slot)

    def rows_changed(self, slots: Sequence[int], columns: int) -> None:
        if columns & self._mask:
            self._moved = True
            self._waiting.update(slots)

    def revision_applied(self, revision: int) -> None:
        if not self.ready:
            return
        try:
            if self._frozen_max:
                if self._moved:
                    self._follow_up()
                    self._freeze(revision)
            elif self._asked and len(self._waiting) >= WAITING_MAX:
                self._asked = False
                # After a large deletion the queue exceeds what one step can put in.
                if len(self._waiting) <= BEHIND_MAX:
                    self._follow_up()
                else:
                    self.wanted = True
        except raised() as error:
            if self._failed is None:
                raise
            self._failed(error)

    def rows_compacted(self, revision: int) -> None:
        keep = bisect_right(self._frozen, revision, key=_revision_of) - 1
        if keep > 0:
            del self._frozen[:keep]

    # -- answers -------------------------------------------------------------------------------------------------------

    def boxed(self, tests: tuple[Test, ...]) -> Boxed:
        return boxed(tests, self._places, self.host.code_of)

    def search(self, tests: tuple[Test, ...], revision: int, limit: int = 0, known: Boxed | None = None) -> Found:
        """The slots of the rows that passed `tests` at `revision`: all, or any `limit` of them if that is not 0. The
        revision must be retained, and this index complete. `known`: the output of `boxed` since the last change."""
        box, residual = known or self.boxed(tests)
        if box.empty:
            return NOTHING
        self._follow_up()
        if self.host.unchanged_since(revision):
            return self._present(box, residual, limit)
        frozen = None if residual else self._frozen_at(revision)
        if frozen is not None:
            assert isinstance(self.structure, Versioned)
            return self.structure.find_frozen(frozen[1], box, limit)
        changed = self.host.changed_since(revision, tests)
        assert changed is not None
        return self._past(box, residual, limit, changed)

    def _present(self, box: Box, residual: tuple[Test, ...], limit: int) -> Found:
        if not residual:
            return self.structure.find(box, limit)
        wanted = max(4 * limit, FIRST_WANTED) if limit else 0
        spent = NOTHING
        while True:
            found = self.structure.find(box, wanted)
            passed = found.slots[self.host.passing(residual, found.slots)]
            spent = _spent(spent, found, len(found.slots))
            if found.complete or len(passed) >= limit:
                return _limited(spent, passed, limit)
            wanted *= 8

    def _past(self, box: Box, residual: tuple[Test, ...], limit: int, changed: Changed) -> Found:
        """Unchanged rows, by the structure; the others, by the log."""
        then = changed.slots[changed.held]
        spent = Found(then, True, len(changed.slots))
        if limit and len(then) > limit:
            return _limited(spent, then, limit)
        # As many candidates as have changed since may have to be dropped.
        wanted = limit + len(changed.slots) if limit else 0
        while True:
            found = self.structure.find(box, wanted)
            passed = found.slots[~_among(found.slots, changed.slots)]
            spent = _spent(spent, found, len(passed) if residual else 0)
            if residual:
                passed = passed[self.host.passing(residual, passed)]
            if found.complete or len(then) + len(passed) >= limit:
                return _limited(spent, np.concatenate((then, passed)), limit)
            wanted *= 8

    def _frozen_at(self, revision: int) -> tuple[int, Any] | None:
        place = bisect_right(self._frozen, revision, key=_revision_of) - 1
        return self._frozen[place] if place >= 0 else None

    # -- as an Index ---------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self.host.revision

    @property
    def oldest_revision(self) -> int:
        return self.host.oldest_revision

    def apply(self, revision: int, changes: Iterable[RowChange]) -> list[bytes]:
        return self.host.apply(revision, changes)

    def answer(
        self,
        tests: tuple[Test, ...],
        revision: int,
        limit: int,
        order: Order,
        first: bytes = b"",
        end: bytes | None = None,
        known: Boxed | None = None,
    ) -> Matches:
        """See `Answering`. `known`: as for `search`."""
        anywhere = order == "ANY" and not first and end is None
        # One more than wanted shows whether there is more.
        slots, _, *cost = self.search(tests, revision, limit + 1 if limit and anywhere else 0, known)
        if not anywhere:
            slots, count = self.host.key_order.of_slots(slots, first, end, limit)
            return Matches(self.host.keys_of(slots), count, count > len(slots), *cost)
        if 0 < limit < len(slots):
            return Matches(self.host.keys_of(slots[:limit]), -1, True, *cost)
        return Matches(self.host.keys_of(slots), len(slots), False, *cost)

    def row(self, key: bytes, revision: int) -> Row | None:
        return self.host.row(key, revision)

    def changed(self, after: int, until: int) -> list[tuple[int, bytes]]:
        return self.host.changed(after, until)

    def may_match(self, where: Where, revision: int) -> bool:
        tests = self._compiled(where, revision).tests
        box, _ = self.boxed(tests)
        if box.empty:
            return False
        self._follow_up()
        if self.structure.may_match(box):
            return True
        changed = self.host.changed_since(revision, tests)
        return changed is not None and bool(changed.held.any())

    def compact(self, revision: int) -> None:
        self.host.compact(revision)

    def stats(self) -> IndexStats:
        of_host = self.host.stats()
        size_bytes = of_host.size_bytes + self.size_bytes()
        return replace(of_host, structure=self.structure.structure, size_bytes=size_bytes)

    def size_bytes(self) -> int:
        """Memory beyond its host: the structure, and its kept states."""
        return self.structure.size_bytes() + len(self._frozen) * FROZEN_BYTES + len(self._waiting) * 32


def _revision_of(frozen: tuple[int, Any]) -> int:
    return frozen[0]


def _spent(before: Found, found: Found, tested: int) -> Found:
    """The total cost of `found` and the earlier ones, and the rows tested afterwards."""
    _, _, examined, shards, pruned, false_positives = before
    return Found(
        found.slots,
        found.complete,
        examined + found.examined + tested,
        shards + found.shards,
        pruned + found.pruned,
        false_positives + found.false_positives,
    )


def _limited(spent: Found, slots: IntArray, limit: int) -> Found:
    cut = 0 < limit < len(slots)
    return spent._replace(slots=slots[:limit] if cut else slots, complete=spent.complete and not cut)


def _among(slots: IntArray, others: IntArray) -> Mask:
    """Which of `slots` are in `others`, which is sorted and not empty."""
    places = np.searchsorted(others, slots)
    places[places == len(others)] = 0
    among: Mask = others[places] == slots
    return among
