"""What a history does and sees between its faults: it asks until it is answered, and compares a member's lives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikube_py.mvcc.types import Compact, RangeRequest
from minikube_py.raft.log import RaftLog, Write
from minikube_py.raft.message import Entry, LogIndex, Term
from minikube_py.sim.history import Operation
from minikube_py.sim.loop import SimFailure
from minikube_py.sim.run import TRIES, Run, drawn_options
from minikube_py.sim.step_checks import StepChecks

WANTED = RangeRequest(b"\0", b"\0")


def asked(answers: list[list[Operation]]) -> int:
    """How often the story asks for WANTED where these come of its tries."""
    run = Run(drawn_options(0))
    tries = 0

    async def until(*_: Any) -> None:
        nonlocal tries
        run.recorder.history.operations.extend(answers[min(tries, len(answers) - 1)])
        tries += 1

    run._until = until  # type: ignore[method-assign, assignment]
    coroutine = run._have(WANTED, 1.0, "answer")
    with pytest.raises(StopIteration):
        coroutine.send(None)
    return tries


def test_what_must_be_done_is_asked_for_until_it_is():
    done, died = Operation(1, 1, 2, WANTED, "done"), Operation(1, 1, None, WANTED, "unknown")
    other = Operation(2, 3, 4, Compact(1), "done")
    assert asked([[done]]) == asked([[done, other]]) == 1
    assert asked([[died], [other, done]]) == 2
    assert asked([[died, other], [], [done]]) == 3, "what another asked for counts for nothing (history 544)"
    with pytest.raises(SimFailure, match=f"not done in {TRIES} tries"):
        asked([[other]])


def member(log: RaftLog, id: int = 1) -> Any:
    replica = SimpleNamespace(files=SimpleNamespace(snapshot=None))
    return SimpleNamespace(member_id=id, raft=SimpleNamespace(log=log), state=None, replica=replica)


def a_log(*terms: int, offset: int = 0, offset_term: int = 0) -> RaftLog:
    entries = [Entry(Term(term), LogIndex(offset + place), b"") for place, term in enumerate(terms, start=1)]
    return RaftLog(LogIndex(offset), Term(offset_term), entries)


def lives(before: RaftLog, after: RaftLog, *, id: int = 1) -> str:
    checks = StepChecks((), lambda look: None)
    checks.opened(member(after), member(before, id))
    return checks.problem


def test_a_start_keeps_what_was_durable():
    before = a_log(1, 1, 2)
    assert not lives(before, a_log(1, 1, 2))
    assert not lives(before, a_log(1, 1, 2, 2)), "what was written and not synced may be there"
    assert not lives(before, a_log(3, offset=5, offset_term=2)), "a snapshot holds it"
    assert "ends with entry 2 of term 1" in lives(before, a_log(1, 1))
    assert "up to entry 3 of term 2" in lives(before, a_log(1, 1, 1))
    assert not lives(before, a_log(1), id=2), "another member's disk"


def test_what_was_on_its_way_to_the_disk_may_be_lost():
    before = a_log(1, 1)
    before.append(Term(1), b"")
    before.hand_out()
    before.in_flight.append(Write(Term(1), LogIndex(3)))
    assert not lives(before, a_log(1, 1))
    before.persisted(before.in_flight.popleft())
    assert "up to entry 3 of term 1" in lives(before, a_log(1, 1))


def test_a_snapshot_that_is_not_in_force_yet_may_be_lost():
    before = a_log(1, 1)
    before.restore(LogIndex(9), Term(4))
    before.in_flight.append(Write(Term(4), LogIndex(9)))
    assert not lives(before, a_log(1, 1))
    before.in_flight.clear()
    assert "up to entry 9 of term 4" in lives(before, a_log(1, 1))


def test_a_write_never_makes_durable_what_replaced_it():
    before = a_log(1)
    before.stable = LogIndex(2)
    assert "up to entry 2 of term 0" in lives(before, a_log(1))
