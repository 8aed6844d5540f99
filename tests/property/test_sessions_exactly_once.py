"""Exactly once: whatever is sent again, late, out of order, to whichever member, over snapshots and expiries.

Two members apply one log; one of them is now and then replaced by what its snapshot gives. Each request's effect shows
how often it was executed, and its first reply is the only one it ever gets.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikube_py.errors import MinikubeError, RequestError, SessionExpired
from minikube_py.mvcc import sessions
from minikube_py.mvcc.codec import pack, to_plain, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    CloseSession,
    Command,
    Compact,
    Compare,
    InSession,
    LeaseGrant,
    OpenSession,
    Put,
    RangeRequest,
    Txn,
)

ENTRIES, OPEN_MAX, KEPT, SWEEP = 40, 4, 6, 4
KINDS = ("put", "create", "grant", "leased", "past")
STEPS = st.tuples(
    st.sampled_from(["send", "send", "newest", "newest", "any", "any", "any", "give up"]),
    st.integers(0, 99),
    st.integers(0, 999),
)


@pytest.fixture(autouse=True, scope="module")
def small_bounds():
    """So that all of them are met within a short history."""
    patch = pytest.MonkeyPatch()
    patch.setattr(sessions, "SESSION_ENTRIES", ENTRIES)
    patch.setattr(sessions, "SESSIONS_MAX", OPEN_MAX)
    patch.setattr(sessions, "KEPT_MAX", KEPT)
    patch.setattr(sessions, "SWEEP_ENTRIES", SWEEP)
    patch.setattr(sessions, "KEPT_BYTES_MAX", 150)
    yield
    patch.undo()


class Client:
    """One that numbers its requests and remembers which were answered; `sent` is all that may still arrive."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.next = 1
        self.answered: set[int] = set()
        self.sent: list[InSession] = []
        self.first: dict[int, Any] = {}
        self.floor = 1

    @property
    def lowest(self) -> int:
        return next(n for n in range(1, self.next + 1) if n not in self.answered)


class ExactlyOnce(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.members = [StateMachine(), StateMachine()]
        self.clients: list[Client] = []
        self.opened = 0
        self.fills = 0
        self.uses: list[int] = []
        self.both(Put(b"fill", b"x" * 50))
        for _ in range(3):
            self.open()

    def _used(self, session: int) -> None:
        if session in self.uses:
            self.uses.remove(session)
        self.uses.append(session)

    def both(self, command: Command) -> Any:
        """The answer as plain data, or the refusal; the same from both."""
        data, answers = pack(command), []
        for member in self.members:
            before = member.revision
            try:
                answers.append(to_plain(member.apply(unpack(data))))
            except (RequestError, SessionExpired) as error:
                answers.append(to_plain(error))
                assert member.revision == before
        assert answers[0] == answers[1]
        return answers[0]

    @rule()
    def open(self) -> None:
        self.opened += 1
        self._take(self.opened)

    @rule(pick=st.integers(0, 99))
    def open_again(self, pick: int) -> None:
        """The answer to the first opening was lost, perhaps, or this is another client of that name."""
        self._take(1 + pick % self.opened)

    def _take(self, number: int) -> None:
        before = list(self.members[0].sessions.by_id)
        _, _, session = self.both(OpenSession(number))
        self._used(session)
        assert session not in [client.session for client in self.clients]
        self.clients.append(Client(session))
        if len(before) == OPEN_MAX:
            ended = min(before, key=self.uses.index)
            assert ended not in self.members[0].sessions.by_id

    @rule(steps=st.lists(STEPS, min_size=1, max_size=25))
    def traffic(self, steps: list[tuple[str, int, int]]) -> None:
        for step, pick, more in steps:
            client = self._pick(pick)
            if step == "send":
                self._send(client, KINDS[more % len(KINDS)], more % 3)
            elif step == "give up" and client.lowest < client.next:
                client.answered.add(client.lowest)
            elif step == "newest" and client.sent:
                self._arrive(client, client.sent[-1], more % 3 > 0)
            elif step == "any" and client.sent:
                self._arrive(client, client.sent[more % len(client.sent)], more % 2 > 0)

    def _pick(self, pick: int) -> Client:
        """Mostly one of the few that are in use."""
        return self.clients[-1 - pick % 2] if pick < 80 else self.clients[pick % len(self.clients)]

    def _send(self, client: Client, kind: str, behind: int) -> None:
        """A new request; it is on its way, and may arrive never, once or often."""
        sequence, client.next = client.next, client.next + 1
        key = b"%d/%d" % (client.session, sequence)
        commands: dict[str, Command] = {
            "put": Put(key, b"v"),
            "create": Txn((Compare(key, "CREATE", "=", 0),), (Put(key, b"v"),), (RangeRequest(key),)),
            "grant": LeaseGrant(500, 60),
            # Refused at first; a second execution could succeed.
            "leased": Put(key, b"v", 500),
            "past": Txn((), (Put(key, b"v"), RangeRequest(b"fill", revision=max(1, self.members[0].revision - 2)))),
        }
        acknowledged = max(1, client.lowest - behind)
        client.sent.append(InSession(client.session, sequence, acknowledged, commands[kind]))  # type: ignore[arg-type]

    def _arrive(self, client: Client, request: InSession, heard: bool) -> None:
        """Perhaps not for the first time; its answer is heard or lost."""
        sequence = request.sequence
        known = client.session in self.members[0].sessions.by_id
        kept = len(self.members[0].sessions.by_id[client.session].replies) if known else 0
        floor = max(client.floor, request.acknowledged) if known else client.floor
        answer = self.both(request)
        if known:
            self._used(client.session)
        if answer[:2] == (32, "SessionExpired"):
            unkept = "too large" in answer[2]
            assert not known or sequence < floor or (unkept and sequence in client.first)
        elif answer[:2] == (32, "InvalidRequest") and "keeps at most" in answer[2]:
            assert kept >= KEPT and sequence not in client.first
        else:
            assert known and sequence >= floor
            assert client.first.setdefault(sequence, answer) == answer
            if heard:
                client.answered.add(sequence)
        client.floor = floor

    @precondition(lambda self: self.fills < 200)
    @rule(count=st.integers(1, 12))
    def others_write(self, count: int) -> None:
        for _ in range(count):
            self.fills += 1
            self.both(Put(b"fill", b"x" * 50))

    @rule(pick=st.integers(60, 99))
    def close(self, pick: int) -> None:
        client = self._pick(pick)
        self.both(CloseSession(client.session))
        assert client.session not in self.members[0].sessions.by_id

    @rule()
    def compact(self) -> None:
        self.both(Compact(self.members[0].revision))

    @rule(more=st.integers(0, 3))
    def restore(self, more: int) -> None:
        """A member goes on from its snapshot, which later commands do not disturb."""
        slices = records(self.members[1])
        digest = self.members[1].hash()
        for _ in range(more):
            self.members[1].apply(Put(b"fill", b""))
        restored = restore(msgpack.unpackb(msgpack.packb(records)) for records in slices)
        assert restored.hash() == digest
        self.members[1] = restored

    @invariant()
    def members_agree(self) -> None:
        if hasattr(self, "members"):
            one, other = self.members
            assert one.hash() == other.hash()
            assert list(one.sessions.by_id) == list(other.sessions.by_id)
            assert one.sessions.kept_bytes == other.sessions.kept_bytes == self.held()

    def held(self) -> int:
        open_sessions = self.members[0].sessions.by_id.values()
        return sum(sessions.held_bytes(reply) for session in open_sessions for reply in session.replies.values())

    @invariant()
    def nothing_was_executed_twice(self) -> None:
        if hasattr(self, "members"):
            for kv in self.members[0].range(RangeRequest(b"0", b":")).kvs:
                assert kv.version == 1, kv

    @invariant()
    def sessions_end_in_time_and_not_before(self) -> None:
        if hasattr(self, "members"):
            kept = self.members[0].sessions
            assert len(kept.by_id) <= OPEN_MAX
            for session in kept.by_id.values():
                assert kept.count - session.used < ENTRIES + SWEEP
                assert len(session.replies) <= KEPT


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=100, stateful_step_count=25)


def test_a_session_in_use_outlives_any_number_of_entries() -> None:
    state = StateMachine()
    session = state.apply(OpenSession(1)).id  # type: ignore[union-attr]
    for sequence in range(1, 50):
        for _ in range(ENTRIES - 2):
            state.apply(Put(b"fill", b""))
        state.apply(InSession(session, sequence, sequence, Put(b"k", b"")))
    assert state.get(b"k").version == 49  # type: ignore[union-attr]


def test_errors_are_fresh_each_time() -> None:
    """An exception that is kept and raised again would hold on to the frames of all who ever asked."""
    state = StateMachine()
    session = state.apply(OpenSession(1)).id  # type: ignore[union-attr]
    raised: list[MinikubeError] = []
    for _ in range(3):
        with pytest.raises(RequestError) as refused:
            state.apply(InSession(session, 1, 1, Put(b"k", b"", 77)))
        raised.append(refused.value)
    assert len({id(error) for error in raised}) == 3
