"""A table that will replace another, built in slices beside running writes.

It starts with the objects at the oldest retained revision, reads the log from there, and follows the writes once it has
caught up; so it answers at every retained revision from its installation on. A compaction that overtakes it ends it,
because its next input is gone."""

from __future__ import annotations

from typing import Final

from minikube_py.fields.spec import FieldSet
from minikube_py.index.table import Table
from minikube_py.mvcc.decoding import changes_of, decode
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.types import prefix_end

FIRST_REVISION: Final = 1
PAGE_KEYS: Final = 256
ABSENT_PER_OBJECT: Final = 16
"""Skipping this many keys without an object takes as long as decoding one object."""


def oldest_revision(view: View) -> int:
    """The oldest revision that can be queried."""
    return max(view.compact_revision, FIRST_REVISION)


class Successor:
    """`table` is complete when `caught_up`."""

    def __init__(self, view: View, field_set: FieldSet) -> None:
        self.table = Table(field_set, oldest_revision(view))
        self.position = oldest_revision(view)
        """The revision up to which it has read."""
        self.caught_up = False
        self.objects = 0
        self._expected = max(1, sum(view.index.count(prefix, prefix_end(prefix)) for prefix in self.table.prefixes))
        self._left = list(self.table.prefixes)
        """Prefixes whose objects are still to be read; the first one from `_start` on."""
        self._start = self._left[0]

    @property
    def progress(self) -> float:
        """0 to 1, of the objects it starts with."""
        return 1.0 if self.caught_up else min(0.99, self.objects / self._expected)

    def step(self, view: View, objects: int) -> bool:
        """Reads about `objects` more; True once it has caught up."""
        if self._left:
            self._read(view, objects)
            return False
        left = objects
        for events in view.log.between(self.position, view.revision):
            if left <= 0:
                return False
            self.position = events[0].kv.mod_revision
            changes = changes_of(events, self.table.prefixes)
            left -= 1 + len(changes)
            if changes:
                self.table.apply(self.position, changes)
        self.position = view.revision
        self.caught_up = True
        return True

    def _read(self, view: View, objects: int) -> None:
        """The next objects at the oldest revision. Keys that did not exist then cost little."""
        budget = objects * ABSENT_PER_OBJECT
        while budget > 0 and self._left:
            keys = min(PAGE_KEYS, max(1, budget // ABSENT_PER_OBJECT))
            kvs, following = view.index.page_at(self._start, prefix_end(self._left[0]), self.position, keys)
            budget -= keys + len(kvs) * ABSENT_PER_OBJECT
            self.objects += len(kvs)
            self.table.load((kv.key, decode(kv.value)) for kv in kvs)
            if following is None:
                del self._left[0]
                following = self._left[0] if self._left else b""
            self._start = following

    def compact(self, revision: int) -> bool:
        """False: it cannot continue."""
        if not self.caught_up and self.position < revision:
            return False
        self.table.index.compact(revision)
        return True
