"""What members hold: agreement while they run, equality and durability afterwards."""

from __future__ import annotations

import dataclasses

import pytest
from correct_history import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.mvcc.types import KeyValue, Put, PutResult, RangeRequest, RangeResult
from minikube_py.sim.checkers import transactions
from minikube_py.sim.checkers.convergence import Agreement, LogEnd, MemberView, check_durability, check_members
from minikube_py.sim.checkers.model import ANY_KEY
from minikube_py.sim.history import History, Operation

KV = KeyValue(b"a", b"1", 2, 2, 1, 0)
VIEW = MemberView(1, 9, 3, -1, {1: 10, 2: 20, 3: 30}, (KV,), ((7, 5),), ((1, 4),))


def test_members_that_are_alike_pass():
    assert check_members([VIEW, dataclasses.replace(VIEW, member=2, hashes={2: 20, 3: 30})]).ok
    assert not check_members([]).ok


@pytest.mark.parametrize(
    "change, said",
    [
        ({"applied": 8}, "applied differs"),
        ({"revision": 4}, "revision differs"),
        ({"compact_revision": 2}, "compact_revision differs"),
        ({"hashes": {2: 21, 3: 30}}, "hash of revision 2"),
        ({"kvs": (KV._replace(value=b"x"),)}, "key-values differ"),
        ({"leases": ()}, "leases differs"),
        ({"sessions": ((1, 5),)}, "sessions differs"),
    ],
)
def test_members_that_are_not_are_found(change, said):
    found = check_members([VIEW, dataclasses.replace(VIEW, member=2, **change)])
    assert found.outcome == "violation" and said in found.text


def put(revision, key, value):
    return Operation(1, revision * 10, revision * 10 + 5, Put(key, value), "done", PutResult(revision))


def test_a_lost_write_is_found():
    history = History([put(2, b"a", b"1"), put(3, b"b", b"1")])
    checked = transactions.check(history)
    kvs = tuple(checked.model.standing(*ANY_KEY, 3))
    whole = MemberView(1, 4, 3, -1, {}, kvs)
    assert check_durability(checked, [whole]).ok
    lost = check_durability(checked, [whole, dataclasses.replace(whole, member=2, revision=2, kvs=kvs[:1])])
    assert "ends at revision 2" in lost.text and "value=b'1'" in lost.text
    assert "the last one seen is" in check_durability(checked, [dataclasses.replace(whole, revision=4)]).text
    assert check_durability(checked, [dataclasses.replace(whole, kvs=kvs[1:])]).outcome == "violation"


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_what_a_right_store_holds_passes(seed):
    recorder = Recorder(seed)
    checked = transactions.check(recorder.run())
    state = recorder.state
    held = tuple(state.range(RangeRequest(b"\0", b"\0")).kvs)
    view = MemberView(1, 0, state.revision, state.compact_revision, {}, held)
    assert check_durability(checked, [view]).ok
    if held:
        found = check_durability(checked, [dataclasses.replace(view, kvs=held[1:])])
        assert found.outcome == "violation"


def test_agreement_passes_what_is_right():
    run = Agreement()
    run.leads(1, 1)
    run.leads(1, 1)
    run.leads(2, 2, {0: 0, 1: 1, 2: 2})
    for member in (1, 2):
        run.committed(member, 1, 1, 77)
        run.stands_at(member, 2, 1)
        run.applied(member, 1, 2)
    run.promised(1, 1)
    run.voted(1, 2, 2)
    run.voted(1, 2, 2)
    run.restarted(1)
    run.stands_at(1, 1, 0)
    run.leads(2, 3, {1: 1, 2: 2, 3: 3})
    run.leads(1, 4, {2: 2, 3: 3})
    assert run.verdict().ok and run.last_index == 1 and run.leaders == {1: 1, 2: 2, 3: 2, 4: 1}


def test_who_was_elected_in_an_earlier_term_and_learns_of_it_late_may_lack_what_is_committed():
    run = Agreement()
    run.leads(1, 3)
    run.committed(1, 2, 3, 77)
    run.leads(2, 2, {2: 2})
    assert run.verdict().ok, run.problem
    run.leads(2, 4, {2: 2})
    assert "leads term 4 and has one of term 2" in run.problem


def two_leaders(run):
    run.leads(1, 4)
    run.leads(2, 4)


def other_content(run):
    run.committed(1, 5, 2, 77)
    run.committed(2, 5, 2, 78)


def other_term(run):
    run.committed(1, 5, 2, 77)
    run.committed(2, 5, 3, 77)


def term_back(run):
    run.stands_at(1, 4, 0)
    run.stands_at(1, 3, 0)


def promise_forgotten(run):
    run.promised(1, 4)
    run.restarted(1)
    run.stands_at(1, 3, 0)


def another_state(run):
    run.applied(1, 7, 5)
    run.applied(2, 7, 6)


def leader_without(run):
    run.committed(1, 5, 2, 77)
    run.leads(2, 3, {3: 1, 4: 2})


def leader_with_another(run):
    run.committed(1, 5, 2, 77)
    run.leads(2, 4, {4: 1, 5: 3})


def two_votes(run):
    run.voted(1, 4, 2)
    run.restarted(1)
    run.voted(1, 4, 3)


def vote_forgotten(run):
    run.voted(1, 4, 2)
    run.stands_at(1, 4, 0, 2)
    run.restarted(1)
    run.stands_at(1, 4, 0, 0)


def durable_and_gone(run):
    run.restarted(1)
    run.keeps(1, (3, 9), (3, 9), there=True)
    run.keeps(1, (3, 9), (3, 8), there=False)


def counted_of_an_older_term(run):
    run.counts(1, 4, 6, 4)
    run.counts(1, 5, 7, 4)


def commit_back(run):
    run.stands_at(1, 4, 7)
    run.stands_at(1, 4, 6)


@pytest.mark.parametrize(
    "break_it, said",
    [
        (two_leaders, "both lead term 4"),
        (counted_of_an_older_term, "leads term 5 and counts entry 7 of term 4"),
        (vote_forgotten, "voted for 2 in term 4, and has forgotten it"),
        (durable_and_gone, "up to entry 9 of term 3, and started again without that: its log ends with entry 8"),
        (other_content, "other content"),
        (other_term, "entry 5 was committed with term 2"),
        (term_back, "from term 4 to 3"),
        (promise_forgotten, "from term 4 to 3"),
        (two_votes, "voted twice in term 4"),
        (another_state, "after entry 7 the state of member 1 is at revision 5"),
        (leader_without, "leader completeness: entry 5 of term 2"),
        (leader_with_another, "has one of term 3 in its place"),
        (commit_back, "from commit 7 to 6"),
    ],
)
def test_agreement_finds_what_is_wrong(break_it, said):
    run = Agreement()
    break_it(run)
    run.leads(9, 99)
    assert run.verdict().outcome == "violation" and said in run.verdict().text


A, B, C, D, E = range(1, 6)
FIVE = ((A, B, C, D, E),)


def log(last, *, durable=None, has=False):
    return LogEnd(durable or last, last, has, has and durable is None)


DECIDED = {
    "a majority has it": (FIVE, {A: log((4, 3), has=True), B: log((4, 3), has=True), C: log((4, 3), has=True),
                                 D: log((2, 2)), E: log((3, 2))}),
    "those without it are behind": (FIVE[:1], {A: log((4, 3), has=True), B: log((4, 3), has=True),
                                               C: log((4, 3), has=True), D: log((4, 2)), E: log((4, 1))}),
    "in both halves of a joint configuration": (((A, B, C), (A, D, E)), {
        A: log((4, 3), has=True), B: log((4, 3), has=True), C: log((1, 1)), D: log((4, 3), has=True), E: log((1, 1))}),
    "whose data is lost does not vote": (((A, B, C),), {A: log((4, 3), has=True), B: log((1, 1))}),
}  # fmt: skip
UNDECIDED = {
    "a minority has it": (FIVE, {A: log((4, 3), has=True), B: log((4, 3), has=True), C: log((4, 2)), D: log((4, 2)),
                                 E: log((4, 2))}),
    "figure 8: of an older term, and one of a newer term can still win": (FIVE, {
        A: log((4, 3), durable=(2, 2), has=True), B: log((2, 2), has=True), C: log((2, 2), has=True), D: log((1, 1)),
        E: log((3, 2))}),
    "a majority has it, and would lose it with its power": (((A, B, C),), {
        A: log((4, 3), has=True), B: log((4, 3), durable=(4, 2), has=True), C: log((4, 2))}),
    "all have it, and a majority would lose it with its power": (((A, B, C),), {
        A: log((4, 3), has=True), B: log((4, 3), durable=(4, 2), has=True),
        C: log((4, 3), durable=(4, 2), has=True)}),
    "a majority of one half only": (((A, B, C), (A, D, E)), {
        A: log((4, 3), has=True), B: log((4, 2)), C: log((4, 2)), D: log((4, 2)), E: log((4, 2))}),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_what_is_decided_may_count_as_committed(name):
    groups, logs = DECIDED[name]
    run = Agreement()
    run.decides(A, 2, 2, logs, groups)
    assert run.verdict().ok, run.problem


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_not_decided_yet_may_not(name):
    groups, logs = UNDECIDED[name]
    run = Agreement()
    run.decides(A, 2, 2, logs, groups)
    assert "elected without it" in run.problem


def test_a_read_alone_shows_what_was_lost():
    read = Operation(2, 90, 95, RangeRequest(b"a"), "done", RangeResult([], 0, False, 2))
    assert not transactions.check(History([put(2, b"a", b"1"), read])).verdict.ok
