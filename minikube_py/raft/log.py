"""Raft's view of the log: the entries in memory after the snapshot, and how far it is durable, committed and
applied."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter

from minikube_py.raft.message import Entry, EntryKind, LogIndex, Term
from minikube_py.raft.ready import SafetyViolated

START = LogIndex(0)
BEFORE_ALL = Term(0)
NORMAL = int(EntryKind.NORMAL)
CHANGE = int(EntryKind.CHANGE)
ENTRY_BYTES = 16
"""Overhead counted for each entry in addition to its data, so that empty ones are bounded too."""
PIECE_ENTRIES = 1024
_new = tuple.__new__
_term_of = itemgetter(0)


class LogCompacted(Exception):
    """The entry was dropped after a snapshot."""


class Write:
    """The write of one Ready: the hard state of `term`, with its `commit`, and the log up to `last`. `index` is the
    last entry still valid: entries replaced meanwhile will not be durable there."""

    __slots__ = ("commit", "index", "last", "term")

    def __init__(self, term: Term, last: LogIndex, commit: LogIndex = START) -> None:
        self.term = term
        self.index = self.last = last
        self.commit = commit


class RaftLog:
    """Entries (offset, last]; `offset` and `offset_term` are of the last one dropped.

    offset <= applied <= delivered <= committed, and delivered <= stable. `handed` is how far entries were given out for
    writing, `stable` how far they are known to be durable, `noted` the commit in the durable hard state, `delivered`
    how far given out to be applied; `in_flight` are the writes that were handed out and are not durable yet, oldest
    first; `changes` the indexes above `applied` of the entries that change the configuration."""

    __slots__ = (
        "_entries",
        "applied",
        "changes",
        "committed",
        "delivered",
        "handed",
        "in_flight",
        "noted",
        "offset",
        "offset_term",
        "stable",
    )

    def __init__(self, offset: LogIndex = START, offset_term: Term = BEFORE_ALL, entries: Iterable[Entry] = ()) -> None:
        self.offset = offset
        self.offset_term = offset_term
        self._entries = list(entries)
        self.applied = self.delivered = self.committed = self.noted = offset
        self.handed = self.stable = self.last_index
        self.in_flight: deque[Write] = deque()
        self.changes = [entry.index for entry in self._entries if entry.kind == CHANGE]
        self._settle_changes()

    @property
    def last_index(self) -> LogIndex:
        return self.offset + len(self._entries)  # type: ignore[return-value]

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

    def matches(self, index: LogIndex, term: Term) -> bool:
        """Whether entry `index` is here (or was the last one dropped) with that term."""
        return self.offset <= index <= self.last_index and self.term(index) == term

    def agreement(self, index: LogIndex, term: Term) -> tuple[LogIndex, Term]:
        """The last index not above `index` whose term is not above `term`: all entries between were written by leaders
        unknown to the other log. Returns it and its term; (index, 0) beyond this log.

        Source: etcd-io/raft's findConflictByTerm; the thesis, 5.3 of the paper's last paragraphs."""
        index = min(index, self.last_index)
        if index < self.offset:
            return index, BEFORE_ALL
        place = bisect_right(self._entries, term, 0, index - self.offset, key=_term_of)
        found = LogIndex(self.offset + place)
        if place == 0 and self.offset_term > term:
            return LogIndex(max(self.offset - 1, 0)), BEFORE_ALL
        return found, self.term(found)

    def append(self, term: Term, data: bytes) -> LogIndex:
        # Runs once per proposal: NewType and NamedTuple constructors would dominate its cost.
        entries = self._entries
        index = self.offset + len(entries) + 1
        entries.append(_new(Entry, (term, index, data, NORMAL)))
        return index  # type: ignore[return-value]

    def append_change(self, term: Term, data: bytes) -> LogIndex:
        index = LogIndex(self.last_index + 1)
        self._entries.append(Entry(term, index, data, CHANGE))
        self.changes.append(index)
        return index

    def accept(self, entries: Sequence[Entry]) -> None:
        """Appends a leader's entries, whose predecessor matches: existing ones stay, conflicting ones are replaced with
        all after them. Raises: SafetyViolated."""
        if not entries:
            return
        last = self.last_index
        skip = 0
        if entries[0].index <= last:
            for entry in entries:
                if entry.index > last:
                    break
                # Below the offset all entries are applied, hence identical.
                if entry.index > self.offset and self.term(entry.index) != entry.term:
                    self._truncate(entry.index)
                    break
                skip += 1
            entries = entries[skip:]
        self._entries.extend(entries)
        self.changes.extend([entry.index for entry in entries if entry.kind == CHANGE])
        self._settle_changes()

    def hand_out(self) -> Sequence[Entry]:
        """The entries not yet handed out for writing."""
        entries = self._entries[self.handed - self.offset :]
        self.handed = self.last_index
        return entries

    def deliver(self, bytes_max: int) -> Sequence[Entry]:
        """The next entries to apply, committed and durable here, up to a number of bytes and at least one; only up to
        the next configuration change, until its commit is recorded."""
        until = min(self.committed, self.stable)
        if (change := self.unnoted_change()) is not None:
            until = LogIndex(change - 1)
        if until <= self.delivered:
            return []
        entries = self.cut(self.delivered, until, bytes_max)[0]
        self.delivered = entries[-1].index
        return entries

    def unnoted_change(self) -> LogIndex | None:
        """The next configuration change to apply, if a restart might not know that it is committed: if all members that
        applied it forgot that, they would need the previous majority, which may no longer exist."""
        if not self.changes:
            return None
        known, until = max(self.delivered, self.noted), min(self.committed, self.stable)
        return next((change for change in self.changes if known < change <= until), None)

    def cut(self, after: LogIndex, until: LogIndex, bytes_max: int) -> tuple[Sequence[Entry], int]:
        """Entries (after, until] up to a number of bytes, at least one; and their size. Raises: LogCompacted."""
        if after >= until:
            return [], 0
        taken: Sequence[Entry] = []
        size = 0
        while after < until:
            piece = self.slice(after, min(until, LogIndex(after + PIECE_ENTRIES)))
            sizes = [len(entry[2]) for entry in piece]
            piece_size = sum(sizes) + ENTRY_BYTES * len(sizes)
            if size + piece_size > bytes_max:
                count = 0
                while count < len(sizes) and (size + sizes[count] + ENTRY_BYTES <= bytes_max or not (taken or count)):
                    size += sizes[count] + ENTRY_BYTES
                    count += 1
                return [*taken, *piece[:count]], size
            size += piece_size
            taken = [*taken, *piece] if taken else piece
            after = LogIndex(after + len(piece))
        return taken, size

    def slice(self, after: LogIndex, until: LogIndex) -> Sequence[Entry]:
        """Entries (after, until]. Raises: LogCompacted."""
        if after < self.offset:
            raise LogCompacted(f"entry {after + 1} was compacted; the log begins after {self.offset}")
        return self._entries[after - self.offset : until - self.offset]

    def persisted(self, write: Write) -> None:
        """The oldest write in flight is durable."""
        if write.index > self.stable:
            self.stable = write.index
        if write.commit > self.noted:
            self.noted = write.commit

    def compact(self, index: LogIndex) -> None:
        """Drops entries up to `index`, which must be applied."""
        if index <= self.offset:
            return
        assert index <= self.applied, "only applied entries may be discarded"
        self.offset_term = self.term(index)
        del self._entries[: index - self.offset]
        self.offset = index

    def restore(self, index: LogIndex, term: Term) -> None:
        """Starts again after a snapshot newer than everything committed here."""
        self._entries.clear()
        self.changes.clear()
        self.offset = self.applied = self.delivered = self.committed = self.handed = self.stable = self.noted = index
        self.offset_term = term
        for write in self.in_flight:
            write.index = START

    def _settle_changes(self) -> None:
        """A change is proposed once the previous one is applied, so all in the log but the last are committed. Nothing
        else proves that: the commit index is not durable by itself, and a member that restarts with a configuration two
        changes old could be elected by a majority disjoint from the newest one (the thesis, 4.1)."""
        if len(self.changes) > 1:
            self.committed = max(self.committed, self.changes[-2])

    def _truncate(self, first: LogIndex) -> None:
        if first <= self.committed:
            raise SafetyViolated(f"entry {first} is committed here, but a leader has another entry there")
        before = LogIndex(first - 1)
        del self._entries[before - self.offset :]
        self.handed = min(self.handed, before)
        self.stable = min(self.stable, before)
        while self.changes and self.changes[-1] >= first:
            self.changes.pop()
        # A write in flight does not cover the entries that will replace it.
        for write in self.in_flight:
            write.index = min(write.index, before)
