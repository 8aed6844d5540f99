"""Without a leader, nobody waits longer than needed: what a member does before a whole timeout has passed again."""

from __future__ import annotations

import pytest
from raft_lone import Lone, of
from raft_scenes import slowest

from minikube_py.raft.message import MessageType

HEARTBEAT, PRE_VOTE, VOTE = MessageType.HEARTBEAT, MessageType.PRE_VOTE, MessageType.VOTE
TICKS = 10
SPREAD = TICKS * 2 // 5 + 1


def follower(**knobs: object) -> Lone:
    """Of 2, in term 3; it draws the longest timeouts."""
    lone = Lone(term=3, log=[1], rng=slowest(), **knobs)
    lone.step(HEARTBEAT, 2)
    return lone


def test_whose_leaders_process_has_ended_stands_after_the_random_part_of_a_timeout():
    lone = follower()
    lone.raft.gone(3)
    lone.tick(SPREAD)
    assert lone.raft.role == "FOLLOWER", "that was not the leader"
    lone.raft.gone(2)
    assert lone.raft.role == "FOLLOWER" and lone.raft.leader == 2, "others may not know yet"
    lone.tick(SPREAD + 1)
    assert lone.raft.role == "PRE_CANDIDATE"


@pytest.mark.parametrize("heartbeat_ticks", [1, 3])
def test_a_leader_that_lives_is_heard_before_anybody_stands_or_is_told_to(heartbeat_ticks):
    """All followers lose their connections to it at once; the quickest stood, and the others granted that."""
    lone = Lone(term=3, log=[1], heartbeat_ticks=heartbeat_ticks)
    lone.step(HEARTBEAT, 2)
    for _ in range(5):
        lone.raft.gone(2)
        lone.tick(heartbeat_ticks)
        assert lone.raft.role == "FOLLOWER"
        assert not of(lone.step(PRE_VOTE, 3, term=4, index=1, log_term=1), MessageType.PRE_VOTE_REPLY)
        lone.step(HEARTBEAT, 2)
    assert lone.raft.term == 3


def test_one_that_hears_no_answers_is_told_once_and_holds_nobody_up():
    lone = follower()
    lone.tick(TICKS)
    for _ in range(2 * TICKS):
        lone.step(PRE_VOTE, 3, term=4, index=1, log_term=1)
        lone.tick(1)
    assert lone.raft.role == "PRE_CANDIDATE"


def test_whose_leader_is_gone_may_be_told_otherwise_by_the_leader():
    lone = follower()
    lone.raft.gone(2)
    lone.step(HEARTBEAT, 2)
    lone.tick(SPREAD)
    assert (lone.raft.role, lone.raft.leader) == ("FOLLOWER", 2)


def test_whose_leader_is_gone_keeps_its_promise_to_it():
    lone = follower(lease_reads=True)
    lone.raft.gone(2)
    lone.tick(TICKS - 1)
    assert lone.raft.role == "FOLLOWER"
    lone.tick(1)
    assert lone.raft.role == "PRE_CANDIDATE"


@pytest.mark.parametrize(
    ("sender", "term", "voted"), [(3, 4, True), (3, 5, False), (2, 4, False)], ids=["told", "other term", "other"]
)
def test_who_was_told_to_stand_gets_the_vote_though_the_leaders_last_words_come_late(sender, term, voted):
    lone = follower()
    lone.tick(TICKS)
    (told,) = of(lone.step(PRE_VOTE, 3, term=4, index=1, log_term=1), MessageType.PRE_VOTE_REPLY)
    assert not told.reject
    lone.step(HEARTBEAT, 2)
    answers = of(lone.step(VOTE, sender, term=term, index=1, log_term=1), MessageType.VOTE_REPLY)
    assert [answer.reject for answer in answers] == ([False] if voted else [])
    assert (lone.raft.term, lone.raft.vote) == ((4, 3) if voted else (3, 0))


def test_a_promise_to_a_leader_that_reads_by_lease_outlasts_that():
    lone = follower(lease_reads=True)
    lone.tick(TICKS)
    lone.step(PRE_VOTE, 3, term=4, index=1, log_term=1)
    lone.step(HEARTBEAT, 2)
    assert lone.step(VOTE, 3, term=4, index=1, log_term=1) == []
    assert lone.raft.term == 3


def test_a_promise_outlasts_the_term_that_another_message_began():
    """A vote that is asked for again is of the voter's own term by then; a leader that still read by lease did not know
    of the new one."""
    lone = follower(lease_reads=True)
    lone.step(MessageType.PRE_VOTE_REPLY, 3, term=4, reject=True)
    assert lone.raft.term == 4
    assert of(lone.step(VOTE, 3, term=4, index=1, log_term=1), MessageType.VOTE_REPLY) == []
    lone.tick(TICKS)
    (answer,) = of(lone.step(VOTE, 3, term=4, index=1, log_term=1), MessageType.VOTE_REPLY)
    assert not answer.reject and lone.raft.vote == 3


def candidate() -> Lone:
    lone = Lone(term=3, log=[1], rng=slowest())
    lone.campaign()
    lone.step(MessageType.PRE_VOTE_REPLY, 2, term=4)
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 4)
    return lone


def test_a_candidate_asks_again_who_has_not_answered():
    lone = candidate()
    assert sorted(message.to for message in of(lone.tick(), VOTE)) == [2, 3]
    lone.step(MessageType.VOTE_REPLY, 2, term=4, reject=True)
    assert [message.to for message in of(lone.tick(), VOTE)] == [3]


def test_who_loses_to_another_candidate_stands_again_after_the_random_part_of_a_timeout():
    lone = candidate()
    for voter in (2, 3):
        lone.step(MessageType.VOTE_REPLY, voter, term=4, reject=True)
    assert lone.raft.role == "FOLLOWER"
    lone.tick(SPREAD)
    assert lone.raft.role == "PRE_CANDIDATE"


def test_who_told_one_to_stand_neither_tells_another_nor_stands_for_a_third_of_a_timeout():
    lone = Lone((1, 2, 3, 4, 5), term=3, log=[1], rng=slowest())
    lone.step(HEARTBEAT, 2)
    lone.tick(TICKS + SPREAD - 2)
    good = {"term": 4, "index": 1, "log_term": 1}
    assert [reply.reject for reply in lone.step(PRE_VOTE, 3, **good)] == [False]
    assert lone.step(PRE_VOTE, 4, **good) == []
    assert [reply.reject for reply in lone.step(PRE_VOTE, 3, **good)] == [False], "again, if it asks again"
    lone.tick(TICKS // 3 - 1)
    assert lone.step(PRE_VOTE, 4, **good) == [] and lone.raft.role == "FOLLOWER"
    (reply,) = of(lone.step(VOTE, 4, **good), MessageType.VOTE_REPLY)
    assert not reply.reject, "one that has entered the term is heard"


def test_after_that_it_tells_others_and_stands():
    for asked in (True, False):
        lone = follower()
        lone.tick(TICKS)
        lone.step(PRE_VOTE, 2, term=4, index=1, log_term=1)
        lone.tick(TICKS // 3)
        if asked:
            assert [reply.reject for reply in lone.step(PRE_VOTE, 3, term=4, index=1, log_term=1)] == [False]
        else:
            lone.tick(SPREAD)
            assert lone.raft.role == "PRE_CANDIDATE"
