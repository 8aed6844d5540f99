"""Membership, claim by claim of the thesis' chapter 4, and of the paper's section 6.

One thing is as in etcd-io/raft and not as in the thesis: a configuration is in force once its entry is applied.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
from raft_lone import PLAIN, Lone, of
from raft_rules import is_quorum, subsets
from raft_scenes import change, configured, rounds, slowest, waiting

from minikube_py.raft.codec import decode_change
from minikube_py.raft.configuration import ChangeRefused, ChangeType, ConfChange, Configuration
from minikube_py.raft.message import EntryKind, MessageType
from minikube_py.raft.ready import ProposalDropped, UnknownPeer

TICKS = 10
ADD, REMOVE, LEARNER = ChangeType.ADD_VOTER, ChangeType.REMOVE, ChangeType.ADD_LEARNER
APPEND, HEARTBEAT = MessageType.APPEND, MessageType.HEARTBEAT

# 4.1 One change at a time (and 6 of the paper)


def test_single_changes_always_overlap():
    """4.1: any majority of the old configuration overlaps with any majority of the new one, if one server differs."""
    for size in range(1, 6):
        old = Configuration(frozenset(range(1, size + 1)))
        for new in (
            Configuration(old.voters | {9}),
            *(Configuration(old.voters - {one}) for one in old.voters if size > 1),
        ):
            everyone = sorted(old.voters | new.voters)
            for first, second in product(subsets(everyone), repeat=2):
                if is_quorum(old, first) and is_quorum(new, second):
                    assert first & second


@pytest.mark.parametrize("second", [(ADD, 5), (REMOVE, 2), (LEARNER, 6)], ids=["add", "remove", "learner"])
def test_a_change_waits_for_the_one_before(second):
    """4.1: a second change may not begin before the first is committed (here: applied)."""
    lone = Lone(**PLAIN).lead()
    lone.raft.propose_change(change((ADD, 4)))
    lone.run()
    with pytest.raises(ProposalDropped, match="change"):
        lone.raft.propose_change(change(second))
    lone.acknowledge(2)
    assert lone.raft.configuration.voters == {1, 2, 3, 4}
    lone.raft.propose_change(change(second))


def test_a_new_leader_makes_no_change_before_it_has_committed_in_its_own_term():
    """4.1 and Ongaro's note of 2015 on single-server changes: a leader must commit an entry of its term first, or an
    older, uncommitted change may still come to pass beside its own."""
    lone = Lone(log=[1, 1], term=1, commit=1, **PLAIN)
    lone.elect()
    with pytest.raises(ProposalDropped, match="change"):
        lone.raft.propose_change(change((ADD, 4)))
    lone.acknowledge(2)
    lone.raft.propose_change(change((ADD, 4)))


def test_a_change_is_an_entry_of_the_log_and_in_force_once_applied():
    """4.1: changes go as special entries of the log. Here (as in etcd-io/raft) they count when they are applied."""
    lone = Lone(**PLAIN).lead()
    index = lone.raft.propose_change(change((ADD, 4), context=b"name"))
    sent = lone.run()
    (entry,) = of(sent, APPEND)[0].entries
    assert entry.kind == EntryKind.CHANGE and decode_change(entry.data) == change((ADD, 4), context=b"name")
    assert lone.raft.configuration.voters == {1, 2, 3}
    lone.acknowledge(2, index=index)
    assert lone.applied[-1] == entry
    assert lone.raft.configuration.voters == {1, 2, 3, 4}
    beats = of(lone.tick(), HEARTBEAT, APPEND)
    assert 4 in {message.to for message in beats}


def test_an_entry_with_a_context_alone_changes_nobody():
    """Ours: the driver's records about members travel as such entries; Raft's configuration stays."""
    lone = Lone(**PLAIN).lead()
    before = lone.raft.configuration
    lone.raft.propose_change(ConfChange(context=b"an address"))
    lone.run()
    lone.acknowledge(2)
    assert lone.applied[-1].kind == EntryKind.CHANGE and lone.raft.configuration == before


def test_a_restart_does_not_forget_which_changes_are_settled():
    """4.1: majorities overlap only from one configuration to the next. A member that has two changes in its log must
    not go by the configuration before both: that there is a second one says that the first is committed.

    Node 2 was away while 4 and 5 became voters; it catches up and crashes, and what it heard of commits is lost.
    1, 4 and 5 go on without it; 2 and 3 are a majority of the members before both changes, and must elect nobody."""
    world = waiting(3, (4, 5), pre_vote=False, check_quorum=False)
    world.elect(1)
    configured(world, 1, change((LEARNER, 4)), change((LEARNER, 5)))
    for id in world.members:
        world.take_snapshot(id)
    world.partition((1, 3, 4, 5), (2,))
    configured(world, 1, change((ADD, 4)), change((ADD, 5)))
    world.partition((1, 2, 4, 5), (3,))
    rounds(world, 3, 1)
    assert world[2].log.last_index == world[1].log.last_index
    world.crash(2)
    assert world.propose(1, b"acknowledged") is not None
    world.settle()
    assert world[1].configuration.voters == {1, 2, 3, 4, 5} and world.members[1].state[-1].data == b"acknowledged"
    world.partition((1, 4, 5), (2, 3))
    world.restart(2)
    world.campaign(2)
    world.settle()
    assert world[2].role != "LEADER"
    assert world[2].configuration.votes(4), "the first of the two is in force"


IMPOSSIBLE = [
    ("the last voter goes", (1,), (), change((REMOVE, 1))),
    ("the last voter becomes a learner", (1,), (), change((LEARNER, 1))),
    ("leaves what is not joint", (1, 2, 3), (), ConfChange(leave_joint=True)),
    ("no such id", (1, 2, 3), (), change((ADD, 0))),
]


@pytest.mark.parametrize(
    ("voters", "learners", "wrong"), [case[1:] for case in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE]
)
def test_impossible_changes_harm_nobody(voters, learners, wrong):
    """4.1: what cannot be is refused before it is in the log, or changes nothing where it is applied."""
    lone = Lone(voters=voters, learners=learners, **PLAIN).lead()
    before = lone.raft.configuration
    with suppress(ProposalDropped, ChangeRefused):
        lone.raft.propose_change(wrong)
    lone.run()
    lone.acknowledge()
    assert lone.raft.configuration == before and lone.raft.role == "LEADER"
    assert lone.raft.propose(b"goes on")


def test_one_to_three_and_back():
    """4.1 and 4.4: an administrator grows and shrinks a cluster under way, one server at a time."""
    world = waiting(1, (2, 3))
    world.elect(1)
    configured(world, 1, change((LEARNER, 2)), change((ADD, 2)), change((LEARNER, 3)), change((ADD, 3)))
    assert {world[id].configuration for id in (1, 2, 3)} == {Configuration(frozenset((1, 2, 3)))}
    world.crash(3)
    assert world.propose(1, b"x") is not None
    world.settle()
    assert world.members[2].state[-1].data == b"x"
    world.restart(3)
    rounds(world, 3)
    configured(world, 1, change((REMOVE, 2)), change((REMOVE, 3)))
    assert world[1].configuration == Configuration(frozenset((1,)))
    world.propose(1, b"alone")
    world.work(1)
    assert world.members[1].state[-1].data == b"alone"


# 4.2.1 Catching up new servers


def test_a_new_server_gets_the_log_as_a_learner():
    """4.2.1: the leader replicates entries to it, but it is not yet counted for voting or commitment."""
    world = waiting(3, (4,))
    world.elect(1)
    for number in range(5):
        world.propose(1, b"%d" % number)
    world.settle()
    configured(world, 1, change((LEARNER, 4)))
    assert world[1].configuration == Configuration(frozenset((1, 2, 3)), learners=frozenset((4,)))
    assert world.members[4].state[-5:] == world.members[1].state[-5:]
    world.crash(2)
    world.crash(3)
    index = world.propose(1, b"no")
    world.settle()
    assert world[1].log.committed < index, "two of three voters are gone; the learner does not replace them"


def test_a_learner_never_stands_for_election():
    """4.2.1: a non-voting member starts no elections, whatever it does not hear."""
    lone = Lone(voters=(2, 3), learners=(1,), term=3)
    assert lone.tick(10 * TICKS) == []
    assert (lone.raft.role, lone.raft.term) == ("FOLLOWER", 3)
    lone.campaign()
    assert (lone.raft.role, lone.raft.term) == ("FOLLOWER", 3)


def test_who_is_in_no_configuration_keeps_quiet():
    """4.2.1 and 4.2.3: a server that waits to be added, or was removed, starts no elections."""
    lone = Lone(voters=(), id=4)
    assert lone.tick(10 * TICKS) == []
    assert (lone.raft.role, lone.raft.term) == ("FOLLOWER", 0)


def test_a_learner_that_is_promoted_votes_and_stands():
    """4.2.1: once it has caught up it becomes a full member."""
    world = waiting(3, (4,))
    world.elect(1)
    configured(world, 1, change((LEARNER, 4)), change((ADD, 4)))
    assert world[4].configuration == Configuration(frozenset((1, 2, 3, 4)))
    world.crash(3)
    world.call(1, lambda raft: raft.transfer(4))
    world.settle()
    assert world[4].role == "LEADER", "with its own vote and those of 1 and 2, of four"


def test_a_leader_sends_to_a_learner_even_where_nobody_acknowledges():
    """4.2.1: a slow or dead learner costs the others nothing."""
    lone = Lone(learners=(4,), **PLAIN).lead()
    for number in range(30):
        lone.raft.propose(b"%d" % number)
        lone.run()
        lone.acknowledge(2, 3)
    assert lone.raft.log.committed == 31


# 4.2.2 Removing the current leader


def test_a_leader_that_removes_itself_steps_down_and_the_others_go_on():
    """4.2.2: a leader that is removed steps down once the change is committed."""
    world = waiting(3)
    world.elect(1)
    world.call(1, lambda raft: raft.propose_change(change((REMOVE, 1))))
    world.settle()
    assert world[1].role == "FOLLOWER"
    with pytest.raises(ProposalDropped):
        world[1].propose(b"x")
    rounds(world, 3 * TICKS)
    leader = world.leader()
    assert leader is not None and leader.id in (2, 3)
    assert leader.up.configuration == Configuration(frozenset((2, 3)))
    term = leader.up.term
    rounds(world, 6 * TICKS)
    assert world.leader() is leader and leader.up.term == term, "who was removed disturbs nobody"


def test_a_leader_on_its_way_out_of_a_joint_configuration_does_not_count_itself():
    """4.2.2 and 6: while it manages the change, a leader outside the new configuration is no part of its majority."""
    lone = Lone(voters=(2, 3), outgoing=(1, 2), log=[1], commit=1, term=1, **PLAIN)
    lone.elect()
    index = lone.raft.log.last_index
    lone.acknowledge(2, index=index)
    assert lone.raft.log.committed < index, "of the new half (2, 3) only one has it"
    lone.acknowledge(3, index=index)
    assert lone.raft.log.committed >= index


def test_a_removed_voter_is_not_counted_any_more():
    """4.1: with the change in force, majorities are those of the new configuration."""
    lone = Lone(voters=(1, 2, 3, 4, 5), **PLAIN).lead()
    for gone in (5, 4):
        lone.raft.propose_change(change((REMOVE, gone)))
        lone.run()
        lone.acknowledge(2, 3)
    assert lone.raft.configuration.voters == {1, 2, 3}
    index = lone.raft.propose(b"x")
    lone.run()
    for sender in (4, 5):
        with suppress(UnknownPeer):
            lone.step(MessageType.APPEND_REPLY, sender, index=index)
    assert lone.raft.log.committed < index
    lone.acknowledge(2)
    assert lone.raft.log.committed == index


def test_a_removal_may_commit_what_waited():
    """4.1: entries that a majority of the smaller cluster has are committed as soon as it is in force."""
    lone = Lone(voters=(1, 2, 3, 4), **PLAIN).lead()
    lone.raft.propose_change(change((REMOVE, 4)))
    waits = lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(2, index=waits)
    lone.acknowledge(3, index=waits - 1)
    assert lone.raft.configuration.voters == {1, 2, 3}
    assert lone.raft.log.committed == waits and lone.applied[-1].data == b"x"


# 4.2.3 Disruptive servers


@pytest.mark.parametrize("pre_vote", [False, True], ids=["check quorum alone", "with pre-vote"])
def test_who_hears_from_a_leader_does_not_listen_to_candidates(pre_vote):
    """4.2.3 and 6: a vote request within the minimum election timeout of hearing from a leader is disregarded: no vote,
    and no change of term."""
    lone = Lone(term=3, log=[1], pre_vote=pre_vote, check_quorum=True)
    lone.step(HEARTBEAT, 2)
    lone.tick(TICKS - 1)
    sent = lone.step(MessageType.VOTE, 3, term=9, index=5, log_term=5)
    assert (lone.raft.term, lone.raft.vote, lone.raft.leader) == (3, 0, 2)
    assert all(message.reject for message in of(sent, MessageType.VOTE_REPLY))


def test_after_the_minimum_timeout_candidates_are_heard():
    """4.2.3: only within the minimum election timeout; after it a request is treated as ever."""
    lone = Lone(term=3, log=[1], rng=slowest())
    lone.step(HEARTBEAT, 2)
    lone.tick(TICKS)
    assert lone.raft.role == "FOLLOWER"
    (reply,) = lone.step(MessageType.VOTE, 3, term=9, index=5, log_term=5)
    assert not reply.reject and (lone.raft.term, lone.raft.vote) == (9, 3)


@pytest.mark.parametrize("pre_vote", [False, True], ids=["check quorum alone", "with pre-vote"])
def test_a_removed_server_does_not_disturb_the_rest(pre_vote):
    """4.2.3: a removed server that has not heard of it times out, and again, and must not depose the leader."""
    world = waiting(4, pre_vote=pre_vote)
    world.elect(1)
    world.partition((1, 2, 3), (4,))
    configured(world, 1, change((REMOVE, 4)))
    world.heal()
    term = world[1].term
    rounds(world, 8 * TICKS)
    assert (world[1].role, world[1].term) == ("LEADER", term)
    assert {world[id].term for id in (1, 2, 3)} == {term}


# 4.3 Joint consensus (and 6 of the paper)


def test_several_changes_go_through_a_joint_configuration():
    """4.3: the cluster first goes to C(old,new), in which both majorities are needed, and leaves it when committed."""
    world = waiting(3, (4, 5))
    world.elect(1)
    configured(world, 1, change((LEARNER, 4)), change((LEARNER, 5)))
    world.call(1, lambda raft: raft.propose_change(change((ADD, 4), (ADD, 5), (REMOVE, 2), (REMOVE, 3))))
    rounds(world, 3)
    assert world[1].configuration == Configuration(frozenset((1, 4, 5)))
    seen = [world.laws.configurations[index] for index in sorted(world.laws.configurations)]
    assert Configuration(frozenset((1, 4, 5)), frozenset((1, 2, 3)), auto_leave=True) in seen


JOINT_COMMITS = [
    # who acknowledges besides leader 1, committed; voters (1, 4, 5), outgoing (1, 2, 3)
    ((), False),
    ((2,), False),
    ((2, 3), False),
    ((4,), False),
    ((4, 5), False),
    ((2, 4), True),
    ((3, 5), True),
    ((2, 3, 4, 5), True),
]


@pytest.mark.parametrize(("who", "committed"), JOINT_COMMITS)
def test_joint_commitment_needs_both_majorities(who, committed):
    """4.3 and 6: agreement (for elections and entry commitment) requires separate majorities from both."""
    lone = Lone(voters=(1, 4, 5), outgoing=(1, 2, 3), log=[1], commit=1, **PLAIN)
    lone.elect()
    index = lone.raft.log.last_index
    if who:
        lone.acknowledge(*who, index=index)
    assert (lone.raft.log.committed >= index) == committed


@pytest.mark.parametrize("pre", [False, True], ids=["vote", "pre-vote"])
@pytest.mark.parametrize(("who", "elected"), JOINT_COMMITS)
def test_joint_elections_need_both_majorities(who, elected, pre):
    """4.3 and 6: any server from either may serve as leader, with majorities of both."""
    lone = Lone(voters=(1, 4, 5), outgoing=(1, 2, 3), log=[1], commit=1, pre_vote=pre, check_quorum=False)
    sent = lone.campaign()
    assert sorted(m.to for m in of(sent, MessageType.VOTE, MessageType.PRE_VOTE)) == [2, 3, 4, 5]
    for sender in who:
        if pre:
            lone.step(MessageType.PRE_VOTE_REPLY, sender, term=lone.raft.term + (lone.raft.role == "PRE_CANDIDATE"))
        else:
            lone.step(MessageType.VOTE_REPLY, sender)
    assert (lone.raft.role == ("CANDIDATE" if pre else "LEADER")) == elected


def test_in_a_joint_configuration_entries_go_to_both():
    """6: log entries are replicated to all servers in both configurations."""
    lone = Lone(voters=(1, 4, 5), outgoing=(1, 2, 3), learners=(6,), log=[1], commit=1, **PLAIN)
    lone.elect()
    lone.acknowledge()
    lone.raft.propose(b"x")
    assert sorted(message.to for message in of(lone.run(), APPEND)) == [2, 3, 4, 5, 6]


def test_a_joint_configuration_is_left_before_the_next_change():
    """4.3: a configuration change may not begin while another is under way."""
    lone = Lone(voters=(1, 4, 5), outgoing=(1, 2, 3), log=[1], commit=1, **PLAIN)
    lone.elect()
    lone.acknowledge()
    with pytest.raises((ProposalDropped, ChangeRefused)):
        lone.raft.propose_change(change((ADD, 6)))
    lone.raft.propose_change(ConfChange(leave_joint=True))
    lone.run()
    lone.acknowledge()
    assert lone.raft.configuration == Configuration(frozenset((1, 4, 5)))
    lone.raft.propose_change(change((ADD, 6)))


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_new_leader_finishes_what_the_old_one_began(dies):
    """4.3 and 6: if the leader fails in the joint configuration, the next one takes the cluster out of it."""
    world = waiting(3, (4, 5))
    world.elect(1)
    configured(world, 1, change((LEARNER, 4)), change((LEARNER, 5)))
    world.call(1, lambda raft: raft.propose_change(change((ADD, 4), (ADD, 5), (REMOVE, 1))))
    if dies == "after":
        while not world[1].configuration.outgoing:
            for member in world.up():
                world.work(member.id)
            world.deliver()
    else:
        world.work(1)
        for _ in range(len(world.links)):
            world.deliver()
        for id in (2, 3, 4, 5):
            world.work(id)
    world.crash(1)
    rounds(world, 5 * TICKS)
    leader = world.leader()
    assert leader is not None and leader.id != 1
    assert leader.up.configuration == Configuration(frozenset((2, 3, 4, 5)))
    assert world.propose(leader.id, b"x") is not None
    world.settle()
    assert {world.members[id].state[-1].data for id in (2, 3, 4, 5)} == {b"x"}


def test_a_voter_becomes_a_learner_only_when_the_joint_configuration_is_left():
    """4.3: nobody is voter of one half and learner of the other; who is to become one waits."""
    world = waiting(3)
    world.elect(1)
    world.call(1, lambda raft: raft.propose_change(change((LEARNER, 2), (LEARNER, 3))))
    world.settle()
    rounds(world, 2)
    seen = [world.laws.configurations[index] for index in sorted(world.laws.configurations)]
    joint = Configuration(frozenset((1,)), frozenset((1, 2, 3)), learners_next=frozenset((2, 3)), auto_leave=True)
    assert seen[-2:] == [joint, Configuration(frozenset((1,)), learners=frozenset((2, 3)))]
    assert world[2].configuration == seen[-1]


def test_whoever_is_removed_no_longer_counts_as_far_apart():
    lone = Lone(voters=(1, 2, 3), **PLAIN).lead()
    lone.raft.apart = {2: 7, 3: 7}
    lone.raft.propose_change(change((REMOVE, 3)))
    lone.run()
    lone.acknowledge(2)
    assert lone.raft.configuration.voters == {1, 2} and set(lone.raft.apart) <= {2}
