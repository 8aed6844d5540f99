"""Members that differ in what is no key - leases, users, sessions, fields, rules, what is compacted - find out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import msgpack
import pytest
from member_net import PLAIN, MemberNet
from patience import until

from minikube_py.env import at_once
from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.fields.builtin import NODES
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import rest_hash
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    ChangeAuth,
    Command,
    DeclareFields,
    LeaseCheckpoint,
    LeaseGrant,
    OpenSession,
    Put,
)
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.hash_check import ASKED, SAID, Revisions
from minikube_py.store.member import StoreMember

CHECKED = dataclasses.replace(PLAIN, check_s=1.0)
PASSED_S = 300.0
"""Virtual time: who can hash no key is waited for 30 s, at each comparison."""


def longer_lease(state: StateMachine) -> None:
    state.lessor.by_id[5] = dataclasses.replace(state.lessor.by_id[5], ttl_s=8_000_000_000)


def another_password(state: StateMachine) -> None:
    state.auth.users["u"] = state.auth.users["u"]._replace(password=b"other")


def forgotten_session(state: StateMachine) -> None:
    state.sessions.close(next(iter(state.sessions.by_id)))


def other_rules(state: StateMachine) -> None:
    """Not lower ones: a leader would raise them again."""
    state.version += 1


def forgotten_fields(state: StateMachine) -> None:
    del state.tables.declared["nodes"]


async def with_a_rest(net: MemberNet) -> StoreMember:
    """The leader of three that have leases, users, sessions and fields."""
    await net.form(3)
    leader = await net.settled()
    for command in (
        OpenSession(1), LeaseGrant(5, 1000), DeclareFields(NODES), ChangeAuth("user add", "u", secret=b"x"),
    ):  # fmt: skip
        await proposed(leader, command)
    await net.put(b"/a")
    await net.alike()
    return leader


async def proposed(member: StoreMember, command: Command) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    member.propose(command, pack(command), lambda *_: done.set_result(None), own=True)
    await done


async def busy(leader: StoreMember) -> None:
    for number in range(2000):
        with contextlib.suppress(Unavailable, OutcomeUnknown):
            await leader.storage.txn((), (Put(b"/busy/%d" % (number % 9), b"v"),))


def compacted(state: StateMachine) -> None:
    """More than there is: then no revision can be hashed, and nobody gets a hash of keys."""
    state.compact_revision = 1 << 50


REST = [compacted, longer_lease, another_password, forgotten_session, other_rules, forgotten_fields]


@pytest.mark.parametrize("change", REST)
@pytest.mark.parametrize(("odd", "loaded"), [("leader", False), ("follower", False), ("follower", True)])
async def test_a_member_whose_other_state_was_changed_stands_aside(tmp_path, change, odd, loaded):
    net = MemberNet(tmp_path, CHECKED)
    try:
        leader = await with_a_rest(net)
        id = leader.member_id if odd == "leader" else net.others(leader)[0]
        at_work = asyncio.ensure_future(busy(leader)) if loaded else None
        change(net[id].state)
        await until(lambda: bool(net.fatal[id]), within_s=PASSED_S)
        assert "differ from the majority's" in net.fatal[id][0]
        assert not any(net.fatal[each] for each in net.members if each != id)
        if odd == "follower":
            assert leader.upkeep.hash_check.difference.startswith("members hold different leases, users")
        if at_work is not None:
            at_work.cancel()
    finally:
        await net.stop()


@pytest.mark.parametrize("change", REST)
async def test_nobody_is_judged_by_what_an_earlier_release_does_not_say(tmp_path, change):
    """One of three answers for its keys alone: of the other two nobody knows which is right."""
    net = MemberNet(tmp_path, CHECKED)
    try:
        leader = await with_a_rest(net)
        earlier, odd = net.others(leader)
        net.arrives = lambda message: None if message.sender == earlier and about_the_rest(message) else message
        change(net[odd].state)
        check = leader.upkeep.hash_check
        seen = check.checks
        await until(lambda: check.checks > seen + 3, within_s=PASSED_S)
        assert check.mismatches == 0 and sorted(check._rests) == sorted({leader.member_id, odd})
        assert not any(net.fatal.values())
    finally:
        await net.stop()


def about_the_rest(message: Message) -> bool:
    if message.type != MessageType.TELL:
        return False
    kind, *numbers = msgpack.unpackb(message.context)
    return kind == SAID and numbers[0] < 0


async def test_what_an_earlier_release_asks_or_hears_of_the_rest_it_can_take(tmp_path):
    """The answer to a question without an entry is one; the answer about the rest is one to no question there."""
    net = MemberNet(tmp_path, PLAIN)
    try:
        leader = await with_a_rest(net)
        told: list[list[int]] = []
        other = net[net.others(leader)[0]]
        other.tell = lambda to, words: told.append(msgpack.unpackb(words))
        other.upkeep.hash_check.heard(leader.member_id, ASKED, [7, leader.state.revision])
        await until(lambda: len(told) == 1)
        number = other.raft.log.applied << 20 | 7
        other.upkeep.hash_check.heard(leader.member_id, ASKED, [number, leader.state.revision])
        await until(lambda: len(told) == 3)
        assert [answer[:2] for answer in told] == [[SAID, 7], [SAID, -number], [SAID, number]]
        assert told[1][2] == rest_hash(leader.state)
    finally:
        await net.stop()


def test_the_rest_is_taken_after_the_entry_that_is_wanted_and_no_other():
    state, revisions = StateMachine(), Revisions()
    revisions.want(state, 5, 6)
    assert revisions.before_pause(7, 4) == 4 and revisions.rest() is None, "it is too late to ask"
    revisions.want(state, 5, 5)
    assert revisions.rest() is not None and revisions.rest() is None
    revisions.want(state, 8, 5)
    assert [revisions.before_pause(first, 4) for first in (6, 8, 5, 9)] == [3, 1, 4, 4]
    revisions.reached(state, 7)
    state.apply(LeaseGrant(5, 60))
    taken = rest_hash(state)
    revisions.reached(state, 8)
    state.apply(LeaseCheckpoint(5, 30))
    state.apply(LeaseGrant(6, 60))
    assert at_once(revisions.rest()) == taken != rest_hash(state)
    assert revisions.before_pause(6, 4) == 4
