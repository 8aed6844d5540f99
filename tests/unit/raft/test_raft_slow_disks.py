"""A disk that is slow while leaders change: what was owed to the old leader is not said to the new one.

A follower whose writes are under way owes its leader an acknowledgement until one of them is done. `raft_laws` checks
each message against the logs of both; the tests here bring about the schedules.
"""

from __future__ import annotations

import pytest
from raft_scenes import waiting
from raft_world import WRITES_MAX, World

from minikube_py.raft.message import Message, MessageType

SLOW = 3
OLD, NEW = 1, 2


def deliver_only(world: World, to: int, *types: MessageType) -> None:
    """What is under way to `to`, of these types or all, arrives; everything else is lost."""
    while world.links:
        message = world.links[0].message
        if message.to == to and (not types or message.type in types):
            world.deliver()
        else:
            world.drop()


def owing(entries: int) -> World:
    """Five members; 3's disk syncs nothing any more, and it owes leader 1 an acknowledgement for `entries` entries that
    nobody else has."""
    world = waiting(5, pre_vote=False, check_quorum=False)
    world.elect(OLD)
    world.slow = {SLOW}
    for number in range(entries):
        world.propose(OLD, b"%d" % number)
        world.work(OLD)
        deliver_only(world, SLOW, MessageType.APPEND)
        world.work(SLOW)
    assert len(world.members[SLOW].disk.pending) == min(entries, WRITES_MAX)
    assert world[SLOW].log.last_index == world[OLD].log.last_index > world[NEW].log.last_index
    return world


def elected_without(world: World, *without: int) -> None:
    """2 is made leader, and its first messages as a leader are under way; `without` have heard nothing of it."""
    world.campaign(NEW)
    while world[NEW].role != "LEADER":
        for id in world.members:
            if id not in without:
                world.work(id)
        for _ in range(len(world.links)):
            if world.links[0].message.to in without:
                world.drop()
            else:
                world.deliver()
    world.work(NEW)


def acknowledged(world: World, by: int, to: int) -> list[Message]:
    """Acknowledgements under way."""
    found = [envelope.message for envelope in world.links]
    return [
        each for each in found
        if (each.sender, each.to, each.type, each.reject) == (by, to, MessageType.APPEND_REPLY, False)
    ]  # fmt: skip


@pytest.mark.parametrize("entries", [1, WRITES_MAX, WRITES_MAX + 2])
@pytest.mark.parametrize("first", ["heartbeat", "append", "vote"])
@pytest.mark.parametrize("stands", [False, True])
def test_what_was_owed_to_the_old_leader_is_not_said_to_the_new_one(entries: int, first: str, stands: bool) -> None:
    """`stands`: it is itself a candidate of the term that the other wins."""
    world = owing(entries)
    if stands:
        world.campaign(SLOW)
    if first == "vote":
        world.partition([OLD], [id for id in world.members if id != OLD])
        world.elect(NEW)
    else:
        elected_without(world, OLD, SLOW)
        if first == "heartbeat":
            world.tick(NEW)
            world.work(NEW)
        deliver_only(world, SLOW, MessageType.HEARTBEAT if first == "heartbeat" else MessageType.APPEND)
    assert world[SLOW].leader == NEW
    last = world[NEW].log.last_index
    world.work(SLOW)
    while world.members[SLOW].disk.pending:
        world.sync(SLOW)
        world.work(SLOW)
    assert all(each.index <= last for each in acknowledged(world, SLOW, NEW))
    world.slow = set()
    world.settle()
    world.tick(NEW, 2)
    world.settle()
    assert world[SLOW].log.last_index == world[NEW].log.last_index
    assert world[SLOW].log.committed == world[NEW].log.committed


def test_what_is_owed_within_a_term_is_said_once_the_disk_is_done() -> None:
    world = owing(WRITES_MAX + 2)
    last = world[OLD].log.last_index
    while world.members[SLOW].disk.pending:
        world.sync(SLOW)
        world.work(SLOW)
    assert acknowledged(world, SLOW, OLD)[-1].index == last
