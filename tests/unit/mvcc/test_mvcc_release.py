"""What deletions need passes where there is no room: it may rewrite what stands, and add a little, within bounds."""

from __future__ import annotations

import pytest

from minikube_py.errors import InvalidRequest, LeaseNotFound, NoSpace, Unavailable
from minikube_py.mvcc import alarms
from minikube_py.mvcc.alarms import GROWTH_BYTES_MAX, NOSPACE, grows
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, Compare, DeleteRange, InSession, OpenSession, Put, Release, SetAlarm, Txn
from minikube_py.mvcc.validate import require_known, validate
from minikube_py.mvcc.versions import RELEASES


def full(**values: bytes) -> StateMachine:
    state = StateMachine()
    for key, value in values.items():
        state.apply(Put(b"/" + key.encode(), value))
    state.apply(SetAlarm(True, 7, NOSPACE))
    return state


def rewrite(key: bytes, value: bytes, revision: int = 0) -> Release:
    compare = (Compare(key, "MOD", "=", revision),) if revision else ()
    return Release(Txn(compare, (Put(key, value),)))


def test_a_release_rewrites_what_stands_and_makes_nothing_new():
    state = full(a=b"1")
    with pytest.raises(NoSpace):
        state.apply(Put(b"/a", b"2"))
    assert state.apply(rewrite(b"/a", b"2")).succeeded and state.index.current[b"/a"].value == b"2"
    before = state.hash()
    for refused in (rewrite(b"/new", b""), rewrite(b"/a", bytes(GROWTH_BYTES_MAX + 2))):
        with pytest.raises(NoSpace, match="etcdserver: mvcc: database space exceeded: alarm NOSPACE of member 7; a d"):
            state.apply(refused)
    assert state.hash() == before
    assert state.apply(rewrite(b"/a", bytes(GROWTH_BYTES_MAX + 1))).succeeded
    # Only what runs counts.
    assert not state.apply(rewrite(b"/a", bytes(9 << 20), revision=1)).succeeded


def test_what_releases_write_is_bounded_until_history_is_compacted(monkeypatch):
    monkeypatch.setattr(alarms, "REWRITTEN_BYTES_MAX", 1000)
    state = full(a=bytes(300))
    for i in range(3):
        state.apply(rewrite(b"/a", b"%d" % i + bytes(299)))
    with pytest.raises(NoSpace, match="1,000 bytes between two compactions of history"):
        state.apply(rewrite(b"/a", bytes(300)))
    state.apply(DeleteRange(b"/gone"))
    state.apply(Compact(state.revision))
    assert state.apply(rewrite(b"/a", bytes(300))).succeeded


def test_what_releases_add_is_bounded_until_there_is_room(monkeypatch):
    monkeypatch.setattr(alarms, "GROWN_BYTES_MAX", 100)
    state = full(a=b"", b=b"")
    state.apply(rewrite(b"/a", bytes(60)))
    with pytest.raises(NoSpace, match="100 bytes to what stands until there is room"):
        state.apply(rewrite(b"/b", bytes(60)))
    state.apply(rewrite(b"/a", b""))
    assert state.apply(rewrite(b"/b", bytes(60))).succeeded
    state.apply(SetAlarm(False, 7, NOSPACE))
    assert (state.alarms.rewritten_bytes, state.alarms.grown_bytes) == (0, 0)
    assert state.apply(rewrite(b"/new", bytes(9000))).succeeded, "without an alarm it is its txn"


def test_what_was_used_is_in_snapshots_and_in_the_digest_and_refusals_count_nothing():
    state, other = full(a=b"1"), full(a=b"1")
    state.apply(rewrite(b"/a", b"22"))
    assert (state.alarms.rewritten_bytes, state.alarms.grown_bytes) == (4, 1)
    with pytest.raises(LeaseNotFound):
        state.apply(Release(Txn((), (Put(b"/a", b"333", lease=9),))))
    assert (state.alarms.rewritten_bytes, state.alarms.grown_bytes) == (4, 1)
    again = restore(records(state))
    assert (again.alarms.rewritten_bytes, again.alarms.grown_bytes) == (4, 1)
    assert again.hash() == state.hash()
    other.apply(Release(Txn((), (Put(b"/a", b"22"),))))
    assert other.hash() == state.hash()


def test_it_travels_in_sessions_and_is_held_back_from_earlier_releases():
    release = rewrite(b"/a", b"2")
    in_session = InSession(1, 1, 1, release)
    for command in (release, in_session):
        assert unpack(pack(command)) == command
        validate(command)
        assert not grows(command)
        require_known(command, RELEASES)
        with pytest.raises(Unavailable, match="Release needs version 3"):
            require_known(command, RELEASES - 1)
    with pytest.raises(InvalidRequest, match="key is not provided"):
        validate(Release(Txn((), (Put(b"", b""),))))
    state = full(a=b"1")
    session = state.apply(OpenSession(1)).id
    assert state.apply(InSession(session, 1, 1, release)) == state.apply(InSession(session, 1, 1, release))
    assert state.alarms.rewritten_bytes == 3
