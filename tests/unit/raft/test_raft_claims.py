"""A member's message that says what cannot be changes nothing: but for a heartbeat right after a start, no single frame
ends a member."""

from __future__ import annotations

import pytest
from raft_net import Net

from minikube_py.raft.configuration import Change, ChangeType, ConfChange
from minikube_py.raft.message import Entry, Message, MessageType
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


def replies(raft):
    return [each for each in raft.ready().messages if each.type == APPEND_REPLY]


def test_a_denial_lasts_until_entries_fit_up_to_the_commit():
    """Not when the leader goes on to send what follows: it learns what is missing here."""
    net = led()
    for data in (b"a", b"b", b"c"):
        net.propose(1, data)
    two = net[2].raft
    assert (two.log.committed, two.log.last_index) == (5, 5)
    with pytest.raises(LogDenied):
        two.step(Message(APPEND, 1, 2, two.term, 1, 5, 5))
    for _ in range(2):
        unchanged(two, Message(APPEND, 1, 2, two.term, 9, 30, 5), LogDenied, "another log")
        unchanged(two, Message(HEARTBEAT, 1, 2, two.term, commit=5), LogDenied, "another log")
    assert two.leader == 0 and {(each.index, each.reject) for each in replies(two)} == {(30, True)}
    # What fits below the commit is acknowledged, and no more.
    entries = net[1].raft.log.slice(2, 5)
    unchanged(two, Message(APPEND, 1, 2, two.term, 2, 2, 5, entries[:1]), LogDenied, "another log")
    assert [(each.index, each.reject) for each in replies(two)] == [(3, False)]
    two.step(Message(APPEND, 1, 2, two.term, 2, 2, 5, entries))
    assert two.leader == 1
    net.propose(1, b"d")
    assert net.applied(2)[-1:] == [b"d"]


def test_entries_that_contradict_committed_ones_are_not_acknowledged():
    net = led()
    for data in (b"a", b"b", b"c"):
        net.propose(1, data)
    two = net[2].raft
    other = [Entry(1, index, b"other", 0) for index in (3, 4, 5)]
    unchanged(two, Message(APPEND, 1, 2, two.term, 2, 2, 5, other), LogDenied, "entry 3 of term 2 is committed here")
    assert not replies(two)


def test_a_learner_that_followed_a_false_leader_finds_the_true_one():
    net = led()
    net.add(4)
    net.change(1, ConfChange((Change(ChangeType.ADD_LEARNER, 4),)))
    four = net[4].raft
    assert four.leader == 1
    net.isolate(4)
    for _ in range(3 * TICKS):
        four.tick()
    assert four.leader == 0
    four.step(Message(HEARTBEAT, 3, 4, four.term))
    unchanged(four, Message(HEARTBEAT, 1, 4, four.term), ClaimRefused, "which node 3 leads")
    for _ in range(3 * TICKS):
        four.tick()
    net.heal()
    net.propose(1, b"x")
    assert four.leader == 1 and net.applied(4)[-1:] == [b"x"]


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


def test_entries_that_were_lost_are_noticed_also_where_an_append_comes_before_the_heartbeat():
    """An append that does not fit shows no more than who leads: what was acknowledged in this term may be gone."""
    net = led()
    for data in (b"a", b"b", b"c", b"d"):
        net.propose(1, data)
    net.crash(2)
    disk = net[2].disk
    disk.entries, disk.hard_state = disk.entries[:2], disk.hard_state._replace(commit=2)
    net[2].up = True
    net[2].start()
    two = net[2].raft
    last = two.log.last_index
    two.step(Message(APPEND, 1, 2, two.term, two.term, 6, 6, [Entry(two.term, 7, b"e")]))
    assert two.leader == 1 and two.log.last_index == last < 6
    with pytest.raises(AcknowledgedLost, match="acknowledged entries are lost"):
        two.step(Message(HEARTBEAT, 1, 2, two.term, commit=6))


def test_a_leader_is_denied_too_at_the_last_entry_that_a_snapshot_replaced():
    net = led()
    for data in (b"a", b"b", b"c"):
        net.propose(1, data)
    two = net[2].raft
    two.compact(two.log.applied)
    index = two.log.offset
    assert index == two.log.committed > 0
    unchanged(two, Message(APPEND, 1, 2, two.term, 1, index, index), LogDenied, f"entry {index} of term 2 is committed")


def test_a_denial_lasts_while_entries_fit_to_one_before_the_commit():
    net = led()
    for data in (b"a", b"b"):
        net.propose(1, data)
    two = net[2].raft
    commit, term = two.log.committed, two.term
    unchanged(two, Message(APPEND, 1, 2, term, 1, commit, commit), LogDenied, "is committed here")
    unchanged(two, Message(APPEND, 1, 2, term, term, commit - 1, commit), LogDenied, "another log")
    unchanged(two, Message(HEARTBEAT, 1, 2, term), LogDenied, "another log")
    two.step(Message(APPEND, 1, 2, term, term, commit, commit))
    two.step(Message(HEARTBEAT, 1, 2, term))
    assert two.leader == 1
