"""Sessions: what is kept, for how long, within which bounds, and the error when one is hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from minikube_py.errors import InvalidRequest, LeaseNotFound, SessionExpired
from minikube_py.mvcc import sessions
from minikube_py.mvcc.codec import pack, unpack, unpack_any
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    CloseSession,
    Command,
    Compare,
    DeleteRange,
    InSession,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    OpenSession,
    Put,
    RangeRequest,
    SessionResult,
    Txn,
)
from minikube_py.mvcc.versions import FIRST

ABSENT = Compare(b"k", "CREATE", "=", 0)


def opened(state: StateMachine, client: int = 7) -> int:
    result = state.apply(OpenSession(client))
    assert isinstance(result, SessionResult)
    return result.id


def fill(state: StateMachine, count: int) -> None:
    for _ in range(count):
        state.apply(Put(b"fill", b""))


ONCE: list[tuple[str, Command]] = [
    ("a put", Put(b"k", b"v")),
    ("a create whose second execution would be refused", Txn((ABSENT,), (Put(b"k", b"v"),), (RangeRequest(b"k"),))),
    ("a delete with what it deleted", DeleteRange(b"old", prev_kv=True)),
    ("a grant", LeaseGrant(5, 60)),
    ("a revoke", LeaseRevoke(9)),
]


@pytest.mark.parametrize("command", [case[1] for case in ONCE], ids=[case[0] for case in ONCE])
def test_sent_again_it_is_not_executed_again(command: Any) -> None:
    state = StateMachine()
    state.apply(LeaseGrant(9, 60))
    state.apply(Put(b"old", b"1"))
    request = unpack(pack(InSession(opened(state), 1, 1, command)))
    first = state.apply(request)
    digest, revision = state.hash(state.revision), state.revision
    for _ in range(2):
        assert state.apply(request) == first
        assert (state.hash(state.revision), state.revision, state.last_events) == (digest, revision, [])
        assert state.last_lease is None


def test_a_refusal_is_kept_as_a_refusal() -> None:
    state = StateMachine()
    request = InSession(opened(state), 1, 1, Put(b"k", b"v", 5))
    for _ in range(2):
        with pytest.raises(LeaseNotFound):
            state.apply(request)
        # By now it would be allowed; but it was refused.
        if 5 not in state.lessor.by_id:
            state.apply(LeaseGrant(5, 60))
    assert state.get(b"k") is None


def test_whoever_keeps_time_learns_of_leases_within_sessions() -> None:
    state = StateMachine()
    session = opened(state)
    state.apply(InSession(session, 1, 1, LeaseGrant(5, 60)))
    assert state.last_lease == LeaseResult(1, 5, 60)
    state.apply(InSession(session, 2, 1, Put(b"k", b"", 5)))
    assert state.last_lease is None
    state.apply(InSession(session, 3, 1, LeaseRevoke(5)))
    assert state.last_lease == LeaseResult(3, 5, 0)


def test_every_opening_is_another_session_and_a_closed_one_never_comes_back() -> None:
    """Also for clients that call themselves alike, as two with generators of one seed would."""
    state = StateMachine()
    first, second = opened(state), opened(state)
    state.apply(InSession(first, 1, 1, Put(b"k", b"v")))
    state.apply(InSession(second, 1, 1, Put(b"other", b"v")))
    assert state.get(b"other") is not None
    for _ in range(2):
        assert state.apply(CloseSession(first)) == SessionResult(3, first)
    assert opened(state) not in (first, second)
    with pytest.raises(SessionExpired, match=f"session {first} is not open"):
        state.apply(InSession(first, 1, 1, Put(b"k", b"again")))


def test_what_was_acknowledged_is_forgotten_and_never_executed() -> None:
    state = StateMachine()
    session = opened(state)
    for sequence in (1, 2, 3):
        state.apply(InSession(session, sequence, 1, Put(b"k%d" % sequence, b"")))
    # 4 never arrived; its client has given it up.
    state.apply(InSession(session, 5, 5, Put(b"k5", b"")))
    assert list(state.sessions.by_id[session].replies) == [5]
    for sequence in (1, 3, 4):
        with pytest.raises(SessionExpired, match=f"request {sequence} of session {session} was acknowledged"):
            state.apply(InSession(session, sequence, 1, Put(b"k%d" % sequence, b"")))
    assert state.get(b"k4") is None


@pytest.mark.parametrize("jump", [1, 1 << 62], ids=["by one", "by very many"])
def test_acknowledging_takes_no_longer_than_what_it_forgets(jump: int) -> None:
    state = StateMachine()
    session = opened(state)
    state.apply(InSession(session, 1, 1, Put(b"k", b"")))
    state.apply(InSession(session, 1 + jump, 1 + jump, Put(b"k", b"")))
    assert list(state.sessions.by_id[session].replies) == [1 + jump]


WRONG: list[tuple[str, Callable[[int], Command], str]] = [
    ("nothing below 1", lambda s: InSession(s, 0, 0, Put(b"k", b"")), "sequence 0 acknowledges 0: use 1 to 1"),
    ("beyond itself", lambda s: InSession(s, 3, 4, Put(b"k", b"")), "sequence 3 acknowledges 4: use 1 to 3"),
    ("a session in a session", lambda s: InSession(s, 1, 1, InSession(s, 1, 1, Put(b"k", b""))), "cannot be sent in"),  # type: ignore[arg-type]
    ("an opening in a session", lambda s: InSession(s, 1, 1, OpenSession(1)), "OpenSession cannot be sent"),  # type: ignore[arg-type]
    ("a closing in a session", lambda s: InSession(s, 1, 1, CloseSession(s)), "CloseSession cannot be sent"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_makes_no_sense_is_refused(make: Callable[[int], Command], message: str) -> None:
    state = StateMachine()
    session = opened(state)
    with pytest.raises(InvalidRequest, match=message):
        state.apply(make(session))
    assert state.get(b"k") is None
    state.apply(InSession(session, 1, 1, Put(b"k", b"v")))


NOT_IN_SESSION = [
    ("a session", [1, [11, 1, 1, 1, [11, 1, 1, 1, [1, b"k", b""]]]]),
    ("an opening", [1, [11, 1, 1, 1, [10, 1]]]),
    ("a read", [1, [11, 1, 1, 1, [9, b"k", b"", 0, 0, False, False, None, "KEY", [], "KEY", "NONE", 0, 0, 0, 0]]]),
    ("nothing", [1, [11, 1, 1, 1]]),
    ("an id as text", [1, [11, "1", 1, 1, [1, b"k", b""]]]),
]


@pytest.mark.parametrize("plain", [case[1] for case in NOT_IN_SESSION], ids=[case[0] for case in NOT_IN_SESSION])
def test_only_commands_are_read_in_a_session(plain: Any) -> None:
    with pytest.raises(InvalidRequest):
        unpack(msgpack.packb(plain))


def test_a_session_without_use_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSION_ENTRIES", 50)
    monkeypatch.setattr(sessions, "SWEEP_ENTRIES", 1)
    state = StateMachine()
    idle, busy = opened(state, 1), opened(state, 2)
    for sequence in range(1, 5):
        fill(state, 24)
        state.apply(InSession(busy, sequence, sequence, Put(b"k", b"")))
    with pytest.raises(SessionExpired, match="after 50 entries without use"):
        state.apply(InSession(idle, 1, 1, Put(b"k", b"")))
    assert list(state.sessions.by_id) == [busy]


def test_too_many_sessions_end_the_least_recently_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    state = StateMachine()
    first, second, third = (opened(state, client) for client in (1, 2, 3))
    state.apply(InSession(first, 1, 1, Put(b"k", b"")))
    fourth = opened(state, 4)
    assert list(state.sessions.by_id) == [third, first, fourth]
    with pytest.raises(SessionExpired, match="3 others were used since"):
        state.apply(InSession(second, 1, 1, Put(b"k", b"")))


def test_a_client_that_never_acknowledges_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_MAX", 3)
    state = StateMachine()
    session = opened(state)
    for sequence in (1, 2, 3):
        state.apply(InSession(session, sequence, 1, Put(b"k", b"")))
    with pytest.raises(InvalidRequest, match="keeps at most 3 replies"):
        state.apply(InSession(session, 4, 1, Put(b"k", b"")))
    assert state.apply(InSession(session, 2, 1, Put(b"k", b""))).revision == 3
    assert state.apply(InSession(session, 4, 2, Put(b"k", b""))).revision == 5


def test_a_reply_too_large_to_keep_is_not_executed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT_BYTES_MAX", 2500)
    state = StateMachine()
    session = opened(state)
    state.apply(Put(b"large", bytes(1000)))
    for sequence in (1, 2, 3):
        state.apply(InSession(session, sequence, 1, Txn((), (RangeRequest(b"large"), Put(b"k%d" % sequence, b"")))))
    assert state.sessions.kept_bytes == 2 * 1045
    assert state.apply(InSession(session, 2, 1, Txn())).revision == 4
    with pytest.raises(SessionExpired, match="request 3 was executed, but its reply was too large"):
        state.apply(InSession(session, 3, 1, Txn((), (Put(b"k3", b"again"),))))
    assert state.get(b"k3").version == 1  # type: ignore[union-attr]
    restored = restore(records(state))
    assert restored.hash() == state.hash()
    state.apply(InSession(session, 4, 4, Put(b"k", b"")))
    assert state.sessions.kept_bytes == 0
    restored.apply(CloseSession(session))
    assert restored.sessions.kept_bytes == 0


def test_a_snapshot_of_before_sessions_is_read() -> None:
    state = StateMachine(FIRST)
    fill(state, 3)
    [head, *rest] = [record for slice in records(state) for record in slice]
    assert head[1] == 2
    restored = restore([[[0, 1, *head[2:4]], *rest]])
    assert restored.hash() == state.hash() and restored.sessions.count == 0


def test_results_travel() -> None:
    assert unpack_any(pack(SessionResult(3, 9))) == SessionResult(3, 9)
    assert unpack(pack(CloseSession(3))) == CloseSession(3)
