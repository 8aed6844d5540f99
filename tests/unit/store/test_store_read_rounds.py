"""Reads that share questions: who is answered by what, and who is not."""

from __future__ import annotations

from minikube_py.raft.ready import ReadState
from minikube_py.store.read_rounds import ReadRounds


def reads(count: int) -> tuple[ReadRounds, list]:
    rounds = ReadRounds(seed=7)
    dones = [lambda error, i=i: None for i in range(count)]
    for done in dones:
        rounds.add(done, tick=0)
    return rounds, dones


def test_all_that_wait_share_a_question_and_are_answered_at_its_index():
    rounds, dones = reads(3)
    assert rounds.pending and rounds.size == 3
    context = rounds.ask()
    assert not rounds.pending
    rounds.answered(ReadState(10, context))
    assert rounds.ready(9) == [] and rounds.size == 3
    assert rounds.ready(10) == dones and rounds.size == 0


def test_those_that_come_later_wait_for_a_question_of_their_own():
    rounds, (early,) = reads(1)
    first = rounds.ask()
    rounds.add(late := lambda error: None, tick=1)
    second = rounds.ask()
    assert first != second
    rounds.answered(ReadState(5, first))
    assert rounds.ready(100) == [early]
    rounds.answered(ReadState(6, second))
    assert rounds.ready(100) == [late]


def test_answers_may_come_in_any_order_and_an_unknown_one_says_nothing():
    rounds, (first_read,) = reads(1)
    first = rounds.ask()
    rounds.add(second_read := lambda error: None, tick=0)
    second = rounds.ask()
    rounds.answered(ReadState(8, second))
    rounds.answered(ReadState(8, b"another life's"))
    assert rounds.ready(8) == [second_read]
    rounds.answered(ReadState(7, first))
    rounds.answered(ReadState(7, first))
    assert rounds.ready(8) == [first_read]


def test_contexts_of_two_lives_differ():
    assert ReadRounds(1).ask() != ReadRounds(2).ask()


def test_without_an_answer_it_is_asked_again_but_not_before_the_next_tick():
    rounds, dones = reads(2)
    context = rounds.ask()
    rounds.answered(ReadState(None, context))
    assert not rounds.pending, "whoever was asked knows no more now: asking again at once would go on forever"
    assert rounds.expired(tick=1, wait_ticks=10) == []
    assert rounds.pending
    rounds.answered(ReadState(4, rounds.ask()))
    assert rounds.ready(4) == dones


def test_who_waits_too_long_without_anyone_to_ask_is_given_up():
    rounds, (old,) = reads(1)
    rounds.add(young := lambda error: None, tick=8)
    assert rounds.expired(tick=10, wait_ticks=10) == []
    assert rounds.expired(tick=11, wait_ticks=10) == [old]
    assert rounds.size == 1
    rounds.answered(ReadState(1, rounds.ask()))
    assert rounds.expired(tick=100, wait_ticks=10) == [], "it has its answer, and waits for the state only"
    assert rounds.ready(1) == [young]


def test_in_the_end_all_are_taken():
    rounds, (first,) = reads(1)
    rounds.answered(ReadState(50, rounds.ask()))
    rounds.add(second := lambda error: None, tick=0)
    rounds.answered(ReadState(None, rounds.ask()))
    rounds.add(third := lambda error: None, tick=0)
    context = rounds.ask()
    rounds.add(fourth := lambda error: None, tick=0)
    assert rounds.take_all() == [first, third, second, fourth]
    assert rounds.size == 0
    rounds.answered(ReadState(1, context))
    assert rounds.ready(100) == []
