"""A table that is to take another's place, built a slice at a time beside running writes.

It begins with the objects as they stood at the oldest retained revision, takes in the log from there, and follows the
writes once it has caught up; so it answers at every retained revision when it is put in. A compaction that passes by
where it has come ends it: what it would read next is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from minikube_py.fields.spec import FieldSet
from minikube_py.index.table import Table
from minikube_py.mvcc.decoding import changes_of, decode
from minikube_py.mvcc.types import KeyValue, prefix_end

if TYPE_CHECKING:
    from minikube_py.mvcc.state import StateMachine

FIRST_REVISION: Final = 1
READ_KEYS: Final = 500


def oldest_revision(state: StateMachine) -> int:
    """The oldest one at which questions are answered."""
    return max(state.compact_revision, FIRST_REVISION)


class Successor:
    """`table` is complete when `caught_up`."""

    def __init__(self, state: StateMachine, field_set: FieldSet) -> None:
        self.table = Table(field_set, oldest_revision(state))
        self.position = oldest_revision(state)
        """The revision up to which it has read."""
        self.caught_up = False
        self.objects = 0
        self._expected = max(1, sum(state.index.count(prefix, prefix_end(prefix)) for prefix in self.table.prefixes))
        self._standing = self._read(state)

    @property
    def progress(self) -> float:
        """0 to 1, of the objects it begins with."""
        return 1.0 if self.caught_up else min(0.99, self.objects / self._expected)

    def _read(self, state: StateMachine) -> Iterator[KeyValue | None]:
        """The objects as they stood at the oldest revision; None between two blocks of them."""
        oldest = self.position
        for prefix in self.table.prefixes:
            start, end = prefix, prefix_end(prefix)
            while True:
                kvs = state.index.range_at(start, end, oldest, READ_KEYS)
                yield from kvs
                if len(kvs) < READ_KEYS:
                    break
                start = kvs[-1].key + b"\0"
                yield None

    def step(self, state: StateMachine, objects: int) -> bool:
        """Takes in about `objects` more; True once it has caught up."""
        taken: list[KeyValue] = []
        for kv in self._standing:
            if kv is not None:
                taken.append(kv)
                if len(taken) >= objects:
                    break
        if taken:
            self.objects += len(taken)
            self.table.load((kv.key, decode(kv.value)) for kv in taken)
            if len(taken) >= objects:
                return False
        left = objects - len(taken)
        for events in state.log.between(self.position, state.revision):
            if left <= 0:
                return False
            self.position = events[0].kv.mod_revision
            changes = changes_of(events, self.table.prefixes)
            left -= 1 + len(changes)
            if changes:
                self.table.apply(self.position, changes)
        self.position = state.revision
        self.caught_up = True
        return True

    def compact(self, revision: int) -> bool:
        """False: it cannot go on from where it is."""
        if not self.caught_up and self.position < revision:
            return False
        self.table.index.compact(revision)
        return True
