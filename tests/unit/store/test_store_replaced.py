"""A member whose place another takes: it votes until no half of a joint configuration needs it, and is not replaced
while it is in touch. What a member tells of others changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from member_net import CLUSTER, MemberNet, refused, three
from patience import until
from virtual_time import run_virtually

from minikube_py.errors import MinikubeError, NoSpace, Unavailable
from minikube_py.mvcc.alarms import KINDS, NOSPACE
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Alarm, Put, SetAlarm
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.member_status import status_of
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.replica_config import Bootstrap


async def replaced(net: MemberNet, leader, old: int) -> None:
    """Without the leader's check of who is in touch, as earlier leaders did."""
    ended: asyncio.Future[MinikubeError | None] = asyncio.get_running_loop().create_future()
    name = leader.membership.get(NodeId(old)).name
    change = MemberChange(ChangeKind.JOIN, NodeId(9), name, "h9:1", "h9:2", rejoin=True)
    leader.propose_change(change, lambda result, error: ended.set_result(error))
    assert await ended is None


@pytest.mark.parametrize("size", [2, 3, 4])
async def test_a_replaced_member_votes_until_the_joint_configuration_is_left(tmp_path: Path, size: int) -> None:
    net = MemberNet(tmp_path)
    await net.form(size)
    leader = await net.settled()
    others = net.others(leader)
    old = others[0]
    if size == 4:
        net.kill(others[-1])  # Now every vote counts.
    try:
        await replaced(net, leader, old)
        await until(lambda: bool(net.removed[old]))
        assert "was removed" in net.removed[old][0]
        assert not leader.raft.configuration.contains(NodeId(old)) and not leader.raft.configuration.joint
        if size == 2:
            assert await net.put(b"/after")
    finally:
        net.members.pop(old, None)
        await net.stop()


async def test_a_replaced_member_that_starts_in_the_joint_configuration_serves_it(tmp_path: Path) -> None:
    net = MemberNet(tmp_path)
    await net.form(2)
    leader = await net.settled()
    [old] = net.others(leader)
    try:
        replica = net[old].replica
        net.arrives = lambda message: message if message.sender != old or not replica.raft.configuration.joint else None
        await replaced(net, leader, old)
        await until(lambda: replica.raft.configuration.joint)
        net.kill(old)
        net.heal()
        await net.start(old)
        await until(lambda: not leader.raft.configuration.joint)
        assert await net.put(b"/after")
    finally:
        net.members.pop(old, None)
        await net.stop()


async def test_links_stay_with_those_that_still_vote(tmp_path: Path) -> None:
    """Also where their addresses are not known any more."""
    async with three(tmp_path) as net:
        leader = await net.leader()
        old = net.others(leader)[0]
        seen: list[tuple[set[int], tuple[NodeId, ...], bool]] = []
        links = net.links[leader.member_id]
        update = links.update

        def noted(members, removed) -> None:
            update(members, removed)
            seen.append(({each.id for each in members}, tuple(removed), leader.raft.configuration.joint))

        links.update = noted  # type: ignore[method-assign]
        await replaced(net, leader, old)
        await until(lambda: bool(seen) and not seen[-1][2] and old in seen[-1][1])
        assert all(old in members and old not in removed for members, removed, joint in seen if joint)
        assert seen[0][2] and old not in seen[-1][0]
        record, configuration = leader.membership, leader.raft.configuration
        voting = configuration._replace(outgoing=frozenset({NodeId(old), *configuration.voters}))
        members, removed = record.reached(voting, ())
        assert [each.peer for each in members if each.id == old] == [""] and old not in removed
        net.members.pop(old)


async def test_a_member_in_touch_is_not_replaced_and_a_silent_one_is(tmp_path: Path) -> None:
    async with three(tmp_path) as net:
        leader = await net.leader()
        old = net.others(leader)[0]
        change = MemberChange(
            ChangeKind.JOIN, NodeId(9), leader.membership.get(NodeId(old)).name, "h9:1", "h9:2", rejoin=True
        )
        refusal = await refused(leader.change_members(change))
        assert isinstance(refusal, Unavailable) and "is in touch" in str(refusal) and "end its process" in str(refusal)
        own = MemberChange(ChangeKind.JOIN, NodeId(9), leader.membership.get(leader.member_id).name, rejoin=True)
        assert "is in touch" in str(await refused(leader.change_members(own)))
        assert not net.removed[old] and leader.membership.get(NodeId(9)) is None
        net.kill(old)
        await leader.change_members(change)
        assert leader.membership.get(NodeId(9)) is not None
        await net.start(9, Bootstrap(CLUSTER, NodeId(9)))
        await until(lambda: NodeId(9) in leader.raft.configuration.voters)
        assert await net.put(b"/after")


# -- what a member tells


def told(net: MemberNet, sender: int, to: int, words: bytes) -> None:
    net[to].receive(Message(MessageType.TELL, NodeId(sender), NodeId(to), context=words))


def asks(on: bool, member: int, kind: str) -> bytes:
    return msgpack.packb((0, pack(SetAlarm(on, member, kind))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("about", ["another", "all", "nobody", "itself"])
async def test_a_member_asks_for_an_alarm_of_its_own_disk_alone(tmp_path: Path, kind: str, about: str) -> None:
    async with three(tmp_path) as net:
        leader = await net.settled()
        sender, victim = net.others(leader)
        member = {"another": victim, "all": 0, "nobody": 77, "itself": sender}[about]
        told(net, sender, leader.member_id, asks(True, member, kind))
        raised = {Alarm(member, kind)} if (about, kind) == ("itself", NOSPACE) else set()
        await until(lambda: leader.state.alarms.raised == raised)
        await until(lambda: not leader.state.alarms.raised)  # Its own disk has room, so it is cleared again.
        await net.put(b"/a")
        refusals = status_of(leader)["warnings"]
        if raised:
            assert refusals == []
        else:
            assert leader.state.alarms.raised == set() and leader.replica.refusals.count == 1
            assert f"of member {sender:x} refused" in refusals[0] and "of itself alone" in refusals[0]
            assert leader.metrics()["minikube_py_store_raft_messages_refused_total"] == 1
        assert not any(net.fatal.values())


WORDS = st.one_of(
    st.tuples(st.booleans(), st.sampled_from([0, 1, 2, 3, 77, 1 << 62]), st.sampled_from([*KINDS])).map(
        lambda drawn: asks(*drawn)
    ),
    st.binary(max_size=20),
    st.lists(st.integers(-3, 4) | st.none() | st.binary(max_size=4), max_size=4).map(msgpack.packb),
    st.just(msgpack.packb((0, pack(Put(b"/told", b"v"))))),
)
JOINS = st.builds(
    MemberChange, st.just(ChangeKind.JOIN), st.sampled_from([NodeId(id) for id in (0, 1, 2, 3, 9)]),
    st.sampled_from(["store-1", "store-2", "store-3", "store-9", ""]), rejoin=st.booleans(),
)  # fmt: skip
DRAWN = st.tuples(st.integers(1, 3), st.integers(1, 3), WORDS | JOINS)


@settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@example([(sender, to, asks(True, sender, NOSPACE)) for sender in (1, 2, 3) for to in (1, 2, 3)])
@given(st.lists(DRAWN, min_size=1, max_size=6))
def test_whatever_members_tell_or_ask_to_join_nobody_ends_and_all_serve(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, bytes | MemberChange]]
) -> None:
    async def story() -> None:
        async with three(tmp_path_factory.mktemp("told")) as net:
            leader = await net.settled()
            for sender, to, words in drawn:
                if isinstance(words, MemberChange):
                    with pytest.raises(MinikubeError):
                        await asyncio.wait_for(leader.change_members(words), 20)
                        raise MinikubeError("it was the member of that name already")
                elif sender != to:
                    told(net, sender, to, words)

            async def serves() -> bool:
                with contextlib.suppress(NoSpace):  # A member clears the alarm of its own disk, which has room.
                    return bool(await net.put(b"/after"))
                return False

            await until(serves)
            await until(lambda: not leader.state.alarms.raised)
            await net.alike()
            assert not any(net.fatal.values()) and not any(net.removed.values())
            assert await leader.storage.get(b"/told") == await leader.storage.get(b"/none")

    run_virtually(story)
