"""What salvage concludes from what is left: it depends on what was written, not on the order of a txn's conditions, and
what does not read proves nothing."""

from __future__ import annotations

import itertools

import pytest

from minikube_py.mvcc.types import Compare, DeleteRange, Put, Txn
from minikube_py.raft.codec import encode_change
from minikube_py.raft.configuration import ConfChange, NodeId
from minikube_py.store.behind_gaps import _revisions_made
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
