"""What salvage concludes from what is left: it depends on what was written, not on the order of a txn's conditions, and
what does not read proves nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compare, DeleteRange, KeyValue, Put, Txn
from minikube_py.raft.codec import encode_change
from minikube_py.raft.configuration import ConfChange, NodeId
from minikube_py.store.behind_gaps import BehindGaps, _revisions_made
from minikube_py.store.membership import ChangeKind, Member, MemberChange, encode_member_change
from minikube_py.store.salvage import CHANGE, _alone
from minikube_py.wal.recovery import LogEntry, SavedState
from minikube_py.wal.salvage import FoundLog

KNOWN = 10
CONDITIONS = (
    Compare(b"/a", "MOD", "=", KNOWN + 4),
    Compare(b"/b", "CREATE", "=", KNOWN + 7),
    Compare(b"/c", "VERSION", "=", 3),
    Compare(b"/d", "MOD", "<", KNOWN + 30),
    Compare(b"/e", "MOD", "=", KNOWN),
)


@pytest.mark.parametrize("missing", [0, 3, 7, 40])
def test_how_many_revisions_a_gap_made_depends_on_no_order_of_conditions(missing: int) -> None:
    found = set()
    for conditions in itertools.permutations(CONDITIONS):
        commands = [(30, Put(b"/a", b"1")), (31, Txn(conditions, (Put(b"/f", b"1"), DeleteRange(b"/b"))))]
        found.add(tuple(_revisions_made(commands, KNOWN, missing)))
    [revisions] = found
    assert revisions[0] >= 6, "the condition on /b names a revision that the gap and one write made"


@given(st.permutations(range(12)), st.integers(0, 4), st.integers(0, 12))
def test_the_six_counts_that_most_conditions_name_are_tried_first(named: list[int], least: int, missing: int) -> None:
    """Then the largest that may be, and the six below it; none that an earlier condition shows to be too small."""
    commands: list[tuple[int, Any]] = [(30, Put(b"/a", b"1"))]
    if least:
        commands.insert(0, (29, Txn((Compare(b"/z", "CREATE", "=", KNOWN + least),), ())))
    for place, made in enumerate(named):
        condition = Compare(b"/a", "MOD", "=", KNOWN + made + 1)
        commands += [(31, Txn((condition,), ()))] * (len(named) - place)
    most = max(least, missing)
    possible = [made for made in named if least <= made <= most][:6]
    tried = _revisions_made(commands, KNOWN, missing)
    assert tried[: len(possible)] == possible and len(set(tried)) == len(tried)
    assert set(tried) == {*possible, *range(max(least, most - 6), most + 1)}


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("stands", [None, 4, 9])
@pytest.mark.parametrize("at", [29, 30, 31])
@pytest.mark.parametrize("named", range(12))
def test_a_later_condition_on_a_key_decides_what_an_earlier_one_saw(
    named: int, at: int, stands: int | None, answer: bool
) -> None:
    """Of entry 30, at revision 9: who names revision 10 read what it wrote, who names what stands read that."""
    rest = BehindGaps(StateMachine())
    rest.revision, rest._index, rest._named = 9, 30, {b"/a": [(at, named)]}
    if stands is not None:
        rest.current[b"/a"] = KeyValue(b"/a", b"v", 1, stands, 2, 0)
    expected = answer
    if at > 30 and named == 10:
        expected = True
    elif at > 30 and named and named == stands:
        expected = False
    assert rest._guess(b"/a", answer) is expected
    assert rest._guess(b"/b", answer) is answer, "nothing names it"


def log_of(*datas: bytes) -> FoundLog:
    entries = {index: LogEntry(1, index, data, CHANGE) for index, data in enumerate(datas, start=1)}
    return FoundLog(entries, set(), SavedState(1, 0, 0), [], 0)


def change_of(*members: Member, kind: ChangeKind = ChangeKind.BOOTSTRAP) -> bytes:
    return encode_change(ConfChange(context=encode_member_change(MemberChange(kind, members=members))))


ONE = Member(NodeId(1), "m1")
OTHER = Member(NodeId(2), "m2")


def test_a_store_is_alone_where_all_changes_read_and_name_nobody_else() -> None:
    assert _alone([], log_of()) and _alone([], log_of(change_of(ONE)))


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"\x93\x01", change_of(ONE)[:-1]),
        *(change_of(ONE, OTHER), change_of(kind=ChangeKind.EXPECT), bytes(40)),
    ],
    ids=["empty", "no msgpack", "cut at its head", "cut at its end", "two members", "another comes", "zeros"],
)
def test_a_change_that_does_not_read_or_names_others_ends_that(data: bytes) -> None:
    assert not _alone([], log_of(change_of(ONE), data))
