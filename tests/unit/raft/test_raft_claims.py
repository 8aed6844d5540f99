"""A member's message that says what cannot be changes nothing: no single frame ends a member."""

from __future__ import annotations

import pytest
from raft_net import Net

from minikube_py.raft.message import Message, MessageType
from minikube_py.raft.ready import AcknowledgedLost, ClaimRefused, LogDenied

APPEND, APPEND_REPLY, HEARTBEAT = MessageType.APPEND, MessageType.APPEND_REPLY, MessageType.HEARTBEAT
TICKS = 10


def led() -> Net:
    net = Net((1, 2, 3))
    net.elect(1)
    assert net.leader() == 1
    return net


def peer(net: Net, leader: int, node: int):
    return next(one for one in net[leader].raft.status().peers if one.id == node)


def unchanged(raft, message, error, match):
    """The message is refused, and leaves term, vote, role and log as they were."""
    before = raft.term, raft.vote, raft.role, raft.log.last_index, raft.log.committed
    with pytest.raises(error, match=match):
        raft.step(message)
    assert (raft.term, raft.vote, raft.role, raft.log.last_index, raft.log.committed) == before


def test_a_heartbeat_about_entries_that_are_gone_stops_the_member():
    net = led()
    net.crash(2)
    net.restart(2)
    two = net[2].raft
    with pytest.raises(AcknowledgedLost, match="acknowledged entries are lost"):
        two.step(Message(HEARTBEAT, 1, 2, two.term, commit=9))


def test_a_heartbeat_is_not_believed_about_what_this_member_knows_it_never_had():
    """Its log fitted what the leader of this term sent; and of a later term it knows all of itself."""
    net = led()
    two = net[2].raft
    for term in (two.term, two.term + 1):
        unchanged(two, Message(HEARTBEAT, 1, 2, term, commit=9), ClaimRefused, "it acknowledged none beyond 2")
    assert two.leader == 1
    net.crash(2)
    net.restart(2)
    net.tick(1, 1)
    assert net[2].raft.leader == 1
    unchanged(
        net[2].raft, Message(HEARTBEAT, 1, 2, net[1].raft.term + 1, commit=9), ClaimRefused, "none beyond 2"
    )
    net.propose(1, b"x")
    assert net.applied(2)[-1:] == [b"x"]


@pytest.mark.parametrize("index", [2, 3], ids=["below the commit", "at it"])
@pytest.mark.parametrize("later", [0, 1], ids=["this term", "a later one"])
def test_a_leader_that_denies_what_is_committed_is_not_followed_until_its_entries_fit(index, later):
    net = led()
    net.propose(1, b"x")
    two = net[2].raft
    term = two.term + later
    unchanged(two, Message(APPEND, 1, 2, term, 1, index, 3), LogDenied, f"entry {index} of term 2 is committed here")
    assert two.leader == 0, "what it confirms to readers is not true here"
    unchanged(two, Message(HEARTBEAT, 1, 2, term), LogDenied, "another log")
    assert two.leader == 0
    two.step(Message(APPEND, 1, 2, two.term, 2, 3, 3))
    two.step(Message(HEARTBEAT, 1, 2, two.term))
    assert two.leader == 1
    net.propose(1, b"y")
    assert net.applied(2)[-1:] == [b"y"]


def test_who_is_denied_stands_only_once_the_other_is_silent():
    net = led()
    net.propose(1, b"x")
    two = net[2].raft
    for _ in range(3 * TICKS):
        with pytest.raises(LogDenied):
            two.step(Message(APPEND, 1, 2, two.term, 1, 3, 3))
        two.tick()
    assert two.role == "FOLLOWER" and two.leader == 0
    for _ in range(2 * TICKS):
        two.tick()
    assert two.role == "PRE_CANDIDATE"
    two.step(Message(HEARTBEAT, 1, 2, two.term))
    assert two.leader == 1


def test_a_second_leader_of_a_term_is_not_believed():
    net = led()
    for node in (1, 2):
        leader = net[node].raft.leader
        unchanged(net[node].raft, Message(HEARTBEAT, 3, node, 2), ClaimRefused, "which node 1 leads")
        assert net[node].raft.leader == leader == 1
    net.propose(1, b"x")
    assert [net.applied(node) for node in (1, 2, 3)] == [[b"x"]] * 3


def test_an_acknowledgement_of_what_was_never_sent_is_not_believed():
    net = led()
    before = peer(net, 1, 2)
    unchanged(net[1].raft, Message(APPEND_REPLY, 2, 1, 2, index=50), ClaimRefused, "acknowledges entry 50")
    assert peer(net, 1, 2) == before
