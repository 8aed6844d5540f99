"""The asking of the others: what it says meanwhile, when it asks again, and what it never takes back."""

from __future__ import annotations

import asyncio
import random

import pytest
from manual_clock import ManualClock

from minikube_py.errors import InvalidRequest, OutcomeUnknown, Unavailable
from minikube_py.raft.configuration import NodeId
from minikube_py.store.bootstrap import Answer, Enter, Form, Intent, cluster_id_of, parse_initial_cluster
from minikube_py.store.discovery import ROUND_S_MAX, BootstrapRefused, Discovery
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership

ONE, TWO, THREE, FOUR = (Member(NodeId(i), f"store-{i}", f"h{i}:2380") for i in (1, 2, 3, 4))
INITIAL = parse_initial_cluster("store-1=h1:2380,store-2=h2:2380,store-3=h3:2380")
ALL = (ONE, TWO, THREE)
CLUSTER = cluster_id_of(ALL)
STANDING = Membership.of(ALL)
EXPECTING = STANDING.apply(MemberChange(ChangeKind.EXPECT, name="store-4"))
JOIN = MemberChange(ChangeKind.JOIN, FOUR.id, FOUR.name, FOUR.peer, FOUR.client)
JOINED = EXPECTING.apply(JOIN)
WITH_FOUR = parse_initial_cluster("store-1=h1:2380,store-4=h4:2380")


class Others:
    """discovery.Asker: `answers` by address; an exception is raised."""

    def __init__(self, **answers) -> None:
        self.answers = {f"{name}:2380": answer for name, answer in answers.items()}
        self.asked: list[str] = []
        self.joins: list[tuple[str, int, MemberChange]] = []
        self.join_error: Exception | None = None
        self.after_join: dict = {}

    async def who(self, address: str) -> Answer:
        self.asked.append(address)
        answer = self.answers.get(address, Unavailable(f"{address}: connection refused"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def join(self, address: str, cluster_id: int, change: MemberChange) -> None:
        self.joins.append((address, cluster_id, change))
        if self.join_error is not None:
            raise self.join_error
        self.answers |= self.after_join


def new(member: Member, seen=ALL) -> Answer:
    return Answer(member, initial=INITIAL, seen=seen)


def begun(member: Member, membership=STANDING, leader: int = 1) -> Answer:
    return Answer(member, CLUSTER, membership, NodeId(leader), 9)


class Run:
    def __init__(self, me: Member, others: Others, initial=INITIAL) -> None:
        self.clock = ManualClock()
        self.said: list[str] = []
        self.discovery = Discovery(Intent(me, initial), others, self.clock, random.Random(1), self.said.append)
        self.task = asyncio.get_running_loop().create_task(self.discovery.run())

    async def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            await self.clock.advance(ROUND_S_MAX)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_forms_once_all_agree():
    others = Others(h2=new(TWO, (TWO,)))
    run = Run(ONE, others)
    await run.rounds()
    assert run.discovery.who() == Answer(ONE, initial=INITIAL, seen=(ONE, TWO))
    others.answers |= {"h3:2380": new(THREE)}
    await run.rounds()
    assert run.discovery.who().seen == ALL and not run.task.done()
    others.answers |= {"h2:2380": new(TWO)}
    await run.rounds()
    assert run.task.result() == Form(CLUSTER, ALL)
    assert run.discovery.who().seen == ALL, "what was said stays until another answers in its place"
    assert run.said == [
        "waiting for store-3 (h3:2380) to answer; h3:2380: connection refused",
        "waiting for store-2 to hear from all members",
    ]


async def test_one_that_does_not_answer_any_more_does_not_count():
    others = Others(h2=new(TWO), h3=new(THREE, (ONE, THREE)))
    run = Run(ONE, others)
    await run.rounds()
    others.answers = {"h3:2380": new(THREE)}
    await run.rounds(3)
    assert not run.task.done() and run.discovery.who().seen == (ONE, THREE)
    await run.end()


async def test_who_knows_of_a_cluster_counts_for_no_other():
    others = Others(h1=begun(ONE, leader=0))
    run = Run(FOUR, others, WITH_FOUR)
    others.answers = {"h1:2380": begun(ONE, EXPECTING, leader=0)}
    await run.rounds()
    assert run.discovery.who().seen == ()
    others.answers = {"h1:2380": Answer(ONE, initial=WITH_FOUR, seen=(FOUR, ONE))}
    await run.rounds(3)
    assert run.discovery.who().seen == (), "it may be about to enter the one that it knows of"
    await run.end()


async def test_asks_those_whom_a_member_names():
    others = Others(h1=begun(ONE, EXPECTING, leader=3))
    run = Run(FOUR, others, WITH_FOUR)
    await run.rounds(2)
    assert {"h2:2380", "h3:2380"} <= set(others.asked) and "h4:2380" not in others.asked
    await run.end()


async def test_joins_through_the_leader_and_enters():
    others = Others(h1=begun(ONE, EXPECTING, leader=2), h2=begun(TWO, EXPECTING, leader=2))
    others.after_join = {"h2:2380": begun(TWO, JOINED, leader=2)}
    run = Run(FOUR, others, WITH_FOUR)
    await run.rounds(2)
    assert run.task.result() == Enter(CLUSTER, JOINED)
    assert others.joins == [("h2:2380", CLUSTER, JOIN)]
    assert run.said == [f"asking store-2 (h2:2380), which leads, to let store-4 join cluster {CLUSTER:x}"]


@pytest.mark.parametrize(
    "error", [Unavailable("h2:2380: does not lead"), OutcomeUnknown("lost")], ids=lambda error: type(error).__name__
)
async def test_a_join_whose_outcome_is_not_known_is_looked_for_and_asked_again(error):
    others = Others(h1=begun(ONE, EXPECTING, leader=2), h2=begun(TWO, EXPECTING, leader=2))
    others.join_error = error
    run = Run(FOUR, others, WITH_FOUR)
    await run.rounds(2)
    assert len(others.joins) >= 2 and not run.task.done()
    others.answers |= {"h2:2380": begun(TWO, JOINED, leader=2)}
    await run.rounds()
    assert run.task.result() == Enter(CLUSTER, JOINED)


async def test_a_join_that_the_leader_does_not_want():
    others = Others(h1=begun(ONE, EXPECTING))
    others.join_error = InvalidRequest("no member 'store-4' is expected")
    run = Run(FOUR, others, WITH_FOUR)
    await run.rounds()
    with pytest.raises(BootstrapRefused, match=f"cluster {CLUSTER:x}: no member 'store-4' is expected"):
        run.task.result()


async def test_what_a_leader_knows_is_not_yet_a_refusal():
    """It may have been elected just now, or be deposed: what it says when asked to let this member join is the last."""
    others = Others(h1=begun(ONE))
    others.join_error = Unavailable("h1:2380: does not lead")
    run = Run(FOUR, others, WITH_FOUR)
    await run.rounds(3)
    assert len(others.joins) >= 2 and not run.task.done()
    others.answers = {"h1:2380": begun(ONE, JOINED)}
    await run.rounds()
    assert run.task.result() == Enter(CLUSTER, JOINED)


async def test_says_each_thing_once():
    others = Others()
    run = Run(ONE, others)
    await run.rounds(10)
    assert len(run.said) == 1
    others.answers = {"h2:2380": Unavailable("h2:2380: the token is wrong")}
    await run.rounds(5)
    assert len(run.said) == 2 and "h2:2380: the token is wrong" in run.said[1]
    await run.end()


async def test_the_pace():
    others = Others()
    run = Run(ONE, others)
    await run.clock.advance(100.0)
    rounds = len(others.asked) / 2
    assert 100 <= rounds <= 100 / (ROUND_S_MAX / 2) + 20
    await run.end()
