"""The log as Raft sees it: what is in memory after the snapshot, and how far it is durable, committed and applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minikube_py.raft.message import Entry, EntryKind, LogIndex, Term

START = LogIndex(0)
_new = tuple.__new__
BEFORE_ALL = Term(0)
NORMAL = int(EntryKind.NORMAL)


class LogCompacted(Exception):
    """The entry was dropped after a snapshot."""


class RaftLog:
    """Entries (offset, last]; `offset` and `offset_term` are those of the last one dropped.

    offset <= applied <= delivered <= committed, and committed <= stable on one voter. `handed` is how far entries were
    given out for writing, `stable` how far they are known to be durable, `delivered` how far given out to be applied.
    """

    __slots__ = ("_entries", "applied", "committed", "delivered", "handed", "offset", "offset_term", "stable")

    def __init__(self, offset: LogIndex = START, offset_term: Term = BEFORE_ALL, entries: Iterable[Entry] = ()) -> None:
        self.offset = offset
        self.offset_term = offset_term
        self._entries = list(entries)
        self.applied = self.delivered = self.committed = offset
        self.handed = self.stable = self.last_index

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self.offset + len(self._entries))

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self.offset_term

    def term(self, index: LogIndex) -> Term:
        """Raises: LogCompacted below the offset, IndexError above the last entry."""
        if index == self.offset:
            return self.offset_term
        if index < self.offset:
            raise LogCompacted(f"entry {index} was compacted; the log begins after {self.offset}")
        return self._entries[index - self.offset - 1].term

    def append(self, term: Term, data: bytes) -> LogIndex:
        # Once per proposal: NewType and NamedTuple constructors would cost more than all the rest of it.
        entries = self._entries
        index = self.offset + len(entries) + 1
        entries.append(_new(Entry, (term, index, data, NORMAL)))
        return index  # type: ignore[return-value]

    def slice(self, after: LogIndex, until: LogIndex) -> Sequence[Entry]:
        """Entries (after, until]. Raises: LogCompacted."""
        if after < self.offset:
            raise LogCompacted(f"entry {after + 1} was compacted; the log begins after {self.offset}")
        return self._entries[after - self.offset : until - self.offset]

    def compact(self, index: LogIndex) -> None:
        """Drops entries up to `index`, which must be applied."""
        if index <= self.offset:
            return
        assert index <= self.applied, "only what is applied may go"
        self.offset_term = self.term(index)
        del self._entries[: index - self.offset]
        self.offset = index
