"""The model of a client keeps the rules of the real one: what is sent again, what is not, and how requests end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikube_py.errors import (
    Compacted,
    LeaseNotFound,
    NotLeader,
    OutcomeUnknown,
    SessionExpired,
    Unavailable,
)
from minikube_py.mvcc.types import (
    Event,
    InSession,
    KeyValue,
    OpenSession,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    SessionResult,
    WatchBatch,
)
from minikube_py.sim.clients import ATTEMPT_US, ClientOptions, SimClient, WatchClient
from minikube_py.sim.history import History
from minikube_py.sim.steps import Steps

PUT = Put(b"a", b"1")
GET = RangeRequest(b"a")
SESSION = 77


class Script:
    """Members that answer what they are told to, one answer a request; None: never."""

    def __init__(self, steps: Steps, answers: list[Any]) -> None:
        self.steps = steps
        self.answers = answers
        self.asked: list[tuple[int, Any]] = []
        self.sinks: list[tuple[int, int, Any]] = []

    def places(self) -> list[int]:
        return [0, 1, 2]

    def place_of(self, member_id: int) -> int | None:
        return {10: 0, 11: 1, 12: 2}.get(member_id)

    def request(self, client, place, request, serializable, answer) -> None:
        if isinstance(request, OpenSession):
            self.steps.after(5, answer, SessionResult(1, SESSION), None)
            return
        self.asked.append((place, request))
        if not self.answers:
            return
        told = self.answers.pop(0)
        if type(told) is tuple:
            delay_us, told = told
        else:
            delay_us = 5
        if isinstance(told, Exception):
            self.steps.after(delay_us, answer, None, told)
        elif told is not None:
            self.steps.after(delay_us, answer, told, None)

    def watch(self, client, place, watch, start_revision, sink):
        self.sinks.append((place, start_revision, sink))
        return self

    def cancel(self) -> None:
        pass


def asked(request, answers, *, sessions=True, seed=1, s=8.0):
    """The operation that `request` ends as, and what was sent for it."""
    steps, history = Steps(), History()
    script = Script(steps, list(answers))
    client = SimClient(1, steps, random.Random(seed), script, history, ClientOptions(sessions=sessions, depth=1))
    client.workload.draw = lambda: (request, False)
    client.go_on(1)
    steps.run(round(s * 1e6))
    client.give_up()
    [operation] = history.operations
    return operation, script.asked


DONE = PutResult(2)


def test_what_is_answered_is_done():
    operation, sent = asked(PUT, [DONE])
    assert operation.status == "done" and operation.result == DONE and operation.return_us > operation.call_us
    assert [request for _, request in sent] == [InSession(SESSION, 1, 1, PUT)]


@pytest.mark.parametrize("lost", [OutcomeUnknown("leadership changed"), None], ids=["unknown", "silence"])
def test_in_a_session_a_lost_answer_is_asked_for_again_under_the_same_number(lost):
    operation, sent = asked(PUT, [lost, lost, DONE])
    assert operation.status == "done" and len(sent) == 3
    assert {request for _, request in sent} == {InSession(SESSION, 1, 1, PUT)}


@pytest.mark.parametrize("lost", [OutcomeUnknown("leadership changed"), None], ids=["unknown", "silence"])
def test_without_a_session_a_write_is_never_sent_again_once_its_end_is_unknown(lost):
    operation, sent = asked(PUT, [lost, DONE], sessions=False)
    assert operation.status == "unknown" and operation.return_us is None and [one for _, one in sent] == [PUT]


def test_what_was_not_taken_is_sent_again_also_without_a_session():
    operation, sent = asked(PUT, [Unavailable("busy"), NotLeader(12), DONE], sessions=False)
    assert operation.status == "done" and len(sent) == 3 and sent[2][0] == 2, "it follows the leader"


def test_what_was_never_taken_is_refused_in_the_end():
    operation, sent = asked(PUT, [Unavailable("no leader")] * 500)
    assert operation.status == "refused" and operation.error is None and len(sent) > 20


def test_once_unknown_always_unknown():
    operation, _ = asked(PUT, [OutcomeUnknown("lost"), *[Unavailable("no leader")] * 500])
    assert operation.status == "unknown"


def test_a_refusal_is_one():
    operation, sent = asked(PUT, [LeaseNotFound()])
    assert operation.status == "refused" and isinstance(operation.error, LeaseNotFound) and len(sent) == 1


def test_an_expired_session_is_unknown_and_not_sent_again():
    operation, sent = asked(PUT, [SessionExpired("gone"), DONE])
    assert operation.status == "unknown" and len(sent) == 1


def test_reads_are_sent_again():
    found = RangeResult([], 0, False, 1)
    operation, sent = asked(GET, [None, OutcomeUnknown("lost"), NotLeader(11), found], sessions=False)
    assert operation.status == "done" and operation.result == found
    assert [request for _, request in sent] == [GET] * 4


def test_a_late_answer_counts_and_a_late_refusal_to_take_does_not():
    operation, sent = asked(PUT, [(ATTEMPT_US + 10_000, DONE)])
    assert operation.status == "done" and operation.return_us - operation.call_us > ATTEMPT_US
    operation, sent = asked(PUT, [(ATTEMPT_US + 70_000, NotLeader(11)), (200_000, DONE)])
    assert operation.status == "done" and len(sent) == 2


# -- watches -----------------------------------------------------------------------------------------------------------


def watching(start=2):
    steps, history = Steps(), History()
    script = Script(steps, [])
    return steps, script, history, WatchClient(
        5, steps, random.Random(3), script, history, (b"a", b"", None), start, restless=0.0
    )


def event(revision):
    return Event("PUT", KeyValue(b"a", b"v", 2, revision, revision - 1, 0), None)


def test_a_watch_that_breaks_goes_on_after_what_it_saw():
    steps, script, history, _ = watching()
    script.sinks[0][2](WatchBatch([event(3)], 4))
    script.sinks[0][2](None)
    steps.run(1_000_000)
    assert script.sinks[1][1] == 5
    script.sinks[0][2](WatchBatch([event(5)], 5))
    [watch] = history.watches
    assert [part.start_revision for part in watch.parts] == [2, 5] and not watch.parts[1].deliveries
    assert len(watch.parts[0].deliveries) == 1, "a stream that broke says nothing any more"


def test_a_watch_that_saw_nothing_begins_again():
    steps, script, _, _ = watching()
    script.sinks[0][2](None)
    steps.run(1_000_000)
    assert script.sinks[1][1] == 2


def test_a_watch_left_behind_by_a_compaction_is_another():
    steps, script, history, _ = watching()
    script.sinks[0][2](WatchBatch((), 0, Compacted(2, 9)))
    steps.run(1_000_000)
    assert [watch.live for watch in history.watches] == [False, True] and script.sinks[1][1] == 10


def test_a_watch_that_the_store_ends_goes_on_elsewhere():
    steps, script, history, _ = watching()
    script.sinks[0][2](WatchBatch([event(3)], 3))
    script.sinks[0][2](WatchBatch((), 3, Unavailable("stopping")))
    steps.run(1_000_000)
    assert len(history.watches) == 1 and script.sinks[1][1] == 4
