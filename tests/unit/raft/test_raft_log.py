"""The log in memory: what agrees, what is durable, what may be handed out."""

from __future__ import annotations

import pytest

from minikube_py.raft.log import ENTRY_BYTES, LogCompacted, RaftLog, Write
from minikube_py.raft.message import Entry, EntryKind
from minikube_py.raft.ready import SafetyViolated


def entries(terms, after=0, size=0) -> list[Entry]:
    return [Entry(term, index, bytes(size)) for index, term in enumerate(terms, after + 1)]


def change(term, index) -> Entry:
    return Entry(term, index, b"", EntryKind.CHANGE)


def log_of(terms, offset=0, offset_term=0, **marks) -> RaftLog:
    log = RaftLog(offset, offset_term, entries(terms, offset))
    for name, value in marks.items():
        setattr(log, name, value)
    return log


AGREEMENT = [
    # terms, offset, offset's term, asked index and term -> where the logs may agree, and the term there
    ("the place itself", [1, 1, 2], 0, 0, (3, 2), (3, 2)),
    ("own terms are newer", [1, 1, 4, 4, 4], 0, 0, (5, 3), (2, 1)),
    ("own terms are older: the same place may do", [1, 1, 2], 0, 0, (3, 5), (3, 2)),
    ("beyond the end", [1, 1], 0, 0, (9, 1), (2, 1)),
    ("nothing agrees", [3, 3, 3], 0, 0, (3, 2), (0, 0)),
    ("down to the offset", [5, 5], 10, 2, (12, 3), (10, 2)),
    ("below the offset nothing is known", [5, 5], 10, 4, (12, 3), (9, 0)),
    ("asked below the offset", [5], 10, 4, (7, 3), (7, 0)),
    ("an empty log", [], 0, 0, (4, 2), (0, 0)),
]


@pytest.mark.parametrize(
    ("terms", "offset", "offset_term", "asked", "found"),
    [case[1:] for case in AGREEMENT],
    ids=[case[0] for case in AGREEMENT],
)
def test_where_logs_may_agree(terms, offset, offset_term, asked, found):
    assert log_of(terms, offset, offset_term).agreement(*asked) == found


ACCEPTED = [
    ("behind the end", [1, 1], entries([2, 2], 2), [1, 1, 2, 2]),
    ("all here already", [1, 1, 1], entries([1, 1], 0), [1, 1, 1]),
    ("some here already", [1, 1], entries([1, 2], 1), [1, 1, 2]),
    ("in place of others", [1, 1, 2, 2], entries([3], 2), [1, 1, 3]),
    ("the first agrees, the second does not", [1, 1, 2, 2], entries([1, 3, 3], 1), [1, 1, 3, 3]),
    ("nothing", [1], [], [1]),
]


@pytest.mark.parametrize(("own", "given", "after"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_a_leaders_entries(own, given, after):
    log = log_of(own)
    log.accept(given)
    assert [entry.term for entry in log.slice(0, log.last_index)] == after


def test_entries_below_the_offset_are_taken_as_known():
    log = log_of([4], offset=10, offset_term=3)
    log.accept(entries([3, 3, 4, 4], 8))
    assert [entry.index for entry in log.slice(10, 12)] == [11, 12]


def test_what_is_committed_is_never_replaced():
    log = log_of([1, 1], committed=2)
    with pytest.raises(SafetyViolated, match="entry 2"):
        log.accept(entries([3], 1))


def test_a_replaced_tail_is_not_durable_by_the_write_that_had_it():
    log = log_of([1])
    log.accept(entries([1, 1, 1], 1))
    assert len(log.hand_out()) == 3
    first = Write(1, 4)
    log.in_flight.append(first)
    log.accept(entries([2], 2))
    assert log.handed == 2 and first.index == 2
    assert [entry.term for entry in log.hand_out()] == [2]
    log.in_flight.append(Write(2, 3))
    log.persisted(log.in_flight.popleft())
    assert log.stable == 2, "the old entry 3 is on disk, not the one in its place"
    log.persisted(log.in_flight.popleft())
    assert log.stable == 3


def test_a_durable_tail_that_is_replaced_is_durable_no_more():
    log = log_of([1, 1, 1])
    assert log.stable == 3
    log.accept(entries([2], 1))
    assert (log.stable, log.handed, log.last_index) == (1, 1, 2)


def test_a_snapshot_ends_all_writes_before_it():
    log = log_of([1])
    log.accept(entries([1, 1], 1))
    log.hand_out()
    log.in_flight.append(Write(1, 3))
    log.restore(10, 2)
    log.persisted(log.in_flight.popleft())
    assert (log.stable, log.offset, log.last_index, log.applied, log.term(10)) == (10, 10, 10, 10, 2)
    log.accept(entries([2], 10))
    assert log.stable == 10


def test_to_apply_is_handed_out_what_is_committed_and_durable():
    log = log_of([1, 1])
    log.accept(entries([1, 1], 2))
    log.committed = 4
    assert [entry.index for entry in log.deliver(1000)] == [1, 2]
    assert log.deliver(1000) == []
    log.stable = 3
    assert [entry.index for entry in log.deliver(1000)] == [3]


@pytest.mark.parametrize(("room", "counts"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_to_apply_is_handed_out_in_pieces(room, counts):
    log = RaftLog(0, 0, entries([1] * 5, size=100))
    log.committed = 5
    taken = []
    while piece := log.deliver(room * (100 + ENTRY_BYTES)):
        taken.append(len(piece))
    assert taken == counts


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("size", [0, 7, 1000])
@pytest.mark.parametrize("bytes_max", [1, 1 << 14, 1 << 20])
def test_cuts_are_as_long_as_may_be(count, size, bytes_max):
    log = RaftLog(5, 1, entries([1] * count, 5, size))
    taken, size_bytes = log.cut(5, log.last_index, bytes_max)
    each = size + ENTRY_BYTES
    assert list(taken) == list(log.slice(5, 5 + min(count, max(bytes_max // each, 1))))
    assert size_bytes == each * len(taken)


def test_what_was_compacted_is_not_there():
    log = log_of([1, 1, 2], committed=3, delivered=3, applied=2)
    log.compact(2)
    assert (log.offset, log.offset_term, log.term(2), log.term(3)) == (2, 1, 1, 2)
    for ask in (lambda: log.term(1), lambda: log.slice(1, 3), lambda: log.cut(0, 3, 100)):
        with pytest.raises(LogCompacted, match="after 2"):
            ask()
    assert log.matches(2, 1) and not log.matches(1, 1) and not log.matches(4, 2)


def test_changes_are_remembered_until_applied_or_replaced():
    log = RaftLog(0, 0, [change(1, 1), *entries([1], 1)])
    assert log.changes == [1] and log.committed == 0
    log.append(1, b"")
    assert log.append_change(1, b"") == 4
    assert log.changes == [1, 4]
    log.accept([change(2, 3)])
    assert log.changes == [1, 3]
    assert log.committed == 1, "the second says that the first is committed"
    log.restore(10, 2)
    assert log.changes == []


def test_a_log_with_two_changes_says_that_the_first_is_committed():
    log = RaftLog(0, 0, [*entries([1]), change(1, 2), change(1, 3), *entries([1], 3)])
    assert log.committed == 2
