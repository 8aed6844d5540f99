"""The retained events by revision: the source of watches, reads of the past and snapshots.

Every revision after the first retained one has at least one event, so a revision finds its events by subtraction."""

from __future__ import annotations

from itertools import chain
from typing import Final, Protocol

from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.types import Event

Events = tuple[Event, ...]
EVENT_BYTES: Final = 200
"""Memory of one event beyond the versions it refers to."""


class EventLog:
    """`first` is the oldest retained revision; earlier ones are compacted."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._entries: list[Events] = []
        # Trimming the front of a list moves all of it, so trim only when a quarter is obsolete.
        self._gone = 0
        self._count = 0

    @property
    def last(self) -> int:
        """The newest revision; `first - 1` if there is none."""
        return self.first + len(self._entries) - self._gone - 1

    @property
    def size_bytes(self) -> int:
        return self._count * EVENT_BYTES

    def append(self, events: Events) -> None:
        """The events of revision `last + 1`."""
        self._entries.append(events)
        self._count += len(events)

    def at(self, revision: int) -> Events:
        return self._entries[revision - self.first + self._gone]

    def between(self, after: int, until: int) -> list[Events]:
        """Per revision in (after, until], in order. `after` must be retained or directly precede the first retained
        one."""
        offset = self._gone - self.first + 1
        return self._entries[max(after + offset, self._gone) : max(until + offset, self._gone)]

    def flat(self, after: int, until: int) -> list[Event]:
        return list(chain.from_iterable(self.between(after, until)))

    def trim(self, revision: int) -> None:
        """Drops the revisions below `revision`."""
        drop = min(revision, self.last + 1) - self.first
        if drop <= 0:
            return
        for place in range(self._gone, self._gone + drop):
            self._count -= len(self._entries[place])
            self._entries[place] = ()
        self._gone += drop
        self.first += drop
        if self._gone > 1024 and self._gone * 4 > len(self._entries):
            del self._entries[: self._gone]
            self._gone = 0


class View(Protocol):
    """What the parts of a state machine may read of it, and not change."""

    @property
    def revision(self) -> int: ...
    @property
    def compact_revision(self) -> int: ...
    @property
    def index(self) -> KeyIndex: ...
    @property
    def log(self) -> EventLog: ...
    def require_retained(self, revision: int) -> None: ...
