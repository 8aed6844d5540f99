"""Claims of Ongaro's thesis ("Consensus: bridging theory and practice"), and of the paper's sections 6 and 8.

3.10 leadership transfer; 4 membership; 6.4 reads; 9.6 pre-vote; 10.2 writing and sending at once. Where we follow
etcd-io/raft and not the thesis the docstring says so: a configuration is in force once its entry is applied.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest
from raft_lone import ME, PLAIN, Lone, entries, of
from raft_rules import is_quorum, subsets
from raft_world import NOTHING, Envelope, FixedRng, World, cluster, entries_of

from minikube_py.raft.codec import decode_change
from minikube_py.raft.configuration import Change, ChangeRefused, ChangeType, ConfChange, Configuration
from minikube_py.raft.message import Entry, EntryKind, HardState, Message, MessageType, SnapshotMeta
from minikube_py.raft.ready import ProposalDropped, ReadState

TICKS = 10
ADD, REMOVE, LEARNER = ChangeType.ADD_VOTER, ChangeType.REMOVE, ChangeType.ADD_LEARNER
APPEND, HEARTBEAT, HEARTBEAT_REPLY = MessageType.APPEND, MessageType.HEARTBEAT, MessageType.HEARTBEAT_REPLY


def change(*pairs: tuple[ChangeType, int], **fields) -> ConfChange:
    return ConfChange(tuple(Change(type, node) for type, node in pairs), **fields)


def waiting(size: int = 3, joiners: tuple[int, ...] = (), **knobs) -> World:
    """`size` voters with a snapshot at entry 1; `joiners` have nothing and are in no configuration yet."""
    world = World(seed=1)
    voters = Configuration(frozenset(range(1, size + 1)))
    for id in range(1, size + 1):
        world.add(id, voters, index=1, term=1, **knobs)
    for id in joiners:
        world.add(id, NOTHING, **knobs)
    return world


def rounds(world: World, count: int, *ids: int) -> None:
    for _ in range(count):
        for member in world.up():
            if not ids or member.id in ids:
                world.tick(member.id)
        world.settle()
        world.give_wanted_snapshots()


def configured(world: World, leader: int, *changes: ConfChange) -> None:
    for one in changes:
        world.call(leader, lambda raft, one=one: raft.propose_change(one))
        rounds(world, 5)


# 3.10 Leadership transfer


def test_a_transfer_makes_the_other_the_leader_at_once():
    """3.10: the leader tells the target to stand for election at once, without waiting for a timeout."""
    world = cluster(3)
    world.elect(1)
    world.call(1, lambda raft: raft.transfer(3))
    world.settle()
    assert (world[3].role, world[3].term, world[1].role) == ("LEADER", 2, "FOLLOWER")
    assert {world[id].leader for id in (1, 2, 3)} == {3}


def test_a_transfer_brings_the_target_up_to_date_first():
    """3.10: the prior leader replicates its log to the target before it sends TimeoutNow."""
    lone = Lone(**PLAIN).lead()
    lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(3)
    lone.raft.transfer(2)
    assert of(lone.run(), MessageType.TIMEOUT_NOW) == []
    sent = lone.acknowledge(2)
    assert [message.to for message in of(sent, MessageType.TIMEOUT_NOW)] == [2]


def test_a_target_that_is_up_to_date_is_told_at_once():
    """3.10: with equal logs there is nothing to wait for."""
    lone = Lone(**PLAIN).lead()
    lone.raft.transfer(2)
    assert [message.to for message in of(lone.run(), MessageType.TIMEOUT_NOW)] == [2]


def test_while_leadership_is_given_away_nothing_new_is_taken():
    """3.10: the prior leader stops accepting new client requests."""
    lone = Lone(**PLAIN).lead()
    lone.raft.transfer(2)
    with pytest.raises(ProposalDropped, match="node 2"):
        lone.raft.propose(b"x")
    with pytest.raises(ProposalDropped):
        lone.raft.propose_change(change((LEARNER, 4)))


def test_a_transfer_that_takes_an_election_timeout_is_given_up():
    """3.10: if it does not complete after about an election timeout, the leader takes client requests again."""
    lone = Lone(**PLAIN).lead()
    lone.raft.transfer(2)
    lone.tick(TICKS - 1)
    with pytest.raises(ProposalDropped):
        lone.raft.propose(b"x")
    lone.tick(2)
    assert lone.raft.propose(b"x") == 2 and lone.raft.role == "LEADER"


def test_a_transfer_passes_the_voters_lease_and_the_pre_vote():
    """3.10 and 4.2.3: an election that the leader itself asked for is marked, and not refused for its sake."""
    world = cluster(3)
    world.elect(1)
    rounds(world, 3)
    world.call(1, lambda raft: raft.transfer(2))
    kinds = []
    for _ in range(50):
        for member in world.up():
            world.work(member.id)
        if world.links:
            kinds.append(MessageType(world.links[0].message.type))
            assert kinds[-1] != MessageType.VOTE or world.links[0].message.context == b"transfer"
            world.deliver()
    assert MessageType.PRE_VOTE not in kinds and MessageType.VOTE in kinds
    assert world[2].role == "LEADER"


def test_a_follower_passes_the_wish_on_to_the_leader():
    """3.10: whoever is asked, it is the leader that gives leadership away."""
    world = cluster(3)
    world.elect(1)
    world.call(2, lambda raft: raft.transfer(3))
    world.settle()
    assert world[3].role == "LEADER"


@pytest.mark.parametrize("to", [1, 4, 9], ids=["itself", "a learner", "a stranger"])
def test_leadership_goes_to_voters_only(to):
    """3.10: the target must be able to lead; to give it to itself changes nothing."""
    lone = Lone(learners=(4,), **PLAIN).lead()
    try:
        lone.raft.transfer(to)
    except (ProposalDropped, ValueError):
        pass
    assert of(lone.run(), MessageType.TIMEOUT_NOW) == []
    assert lone.raft.role == "LEADER" and lone.raft.propose(b"x") == 2


def test_a_new_target_takes_the_place_of_the_one_before():
    """3.10: as the operator says last."""
    lone = Lone(voters=(1, 2, 3, 4), **PLAIN).lead()
    lone.raft.propose(b"x")
    lone.run()
    lone.raft.transfer(2)
    lone.raft.transfer(3)
    sent = lone.run() + lone.acknowledge(2)
    assert of(sent, MessageType.TIMEOUT_NOW) == []
    assert [message.to for message in of(lone.acknowledge(3), MessageType.TIMEOUT_NOW)] == [3]


@pytest.mark.parametrize("role", ["learner", "stranger", "removed"])
def test_who_cannot_vote_does_not_stand_even_when_told(role):
    """3.10 and 4.2.1: TimeoutNow makes no leader of one that is no voter."""
    world = waiting(3, (4,))
    world.elect(1)
    if role == "learner":
        configured(world, 1, change((LEARNER, 4)))
    elif role == "removed":
        configured(world, 1, change((LEARNER, 4)), change((ADD, 4)), change((REMOVE, 4)))
    world.links.append(Envelope(Message(MessageType.TIMEOUT_NOW, 1, 4, max(1, world[4].term))))
    world.settle()
    assert world[4].role == "FOLLOWER" and world[4].term <= world[1].term
    assert world[1].role == "LEADER"


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
    try:
        lone.raft.propose_change(wrong)
    except Exception as error:
        assert type(error).__name__ in ("ProposalDropped", "ChangeRefused")
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
        try:
            lone.step(MessageType.APPEND_REPLY, sender, index=index)
        except Exception as error:
            assert type(error).__name__ == "UnknownPeer"
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


def slowest() -> FixedRng:
    """Draws the longest timeout."""
    rng = FixedRng(0)
    rng.value = TICKS - 1
    return rng


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


# 4.4 and 6.2: availability, and leaders that lost their majority


@pytest.mark.parametrize(("size", "down"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_a_cluster_works_while_a_majority_is_up(size, down):
    """2 and 4.4: it is available as long as any majority of the servers are up and can reach each other."""
    for gone in combinations(range(1, size + 1), down):
        world = cluster(size, seed=7)
        for id in gone:
            world.crash(id)
        for _ in range(8 * TICKS):
            rounds(world, 1)
            if (leader := world.leader()) is not None:
                break
        assert leader is not None
        index = world.propose(leader.id, b"x")
        world.settle()
        assert leader.up.log.applied == index


@pytest.mark.parametrize(("size", "down"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_nothing_is_decided_without_a_majority(size, down):
    """2 and 6.2: without a majority there is no new leader, and an old one commits nothing and steps down."""
    world = cluster(size)
    world.elect(1)
    committed = world[1].log.committed
    for id in range(size, size - down, -1):
        world.crash(id)
    world.propose(1, b"x")
    rounds(world, 8 * TICKS)
    assert world.leader() is None
    assert {member.up.log.committed for member in world.up()} == {committed}


def test_a_leader_steps_down_without_an_answer_from_a_majority():
    """6.2: a leader steps down if an election timeout passes without a heartbeat round to a majority."""
    lone = Lone(voters=(1, 2, 3, 4, 5), pre_vote=False).lead()
    for _ in range(3):
        lone.tick(TICKS - 1)
        lone.step(HEARTBEAT_REPLY, 2)
        lone.step(HEARTBEAT_REPLY, 3)
        lone.tick()
    assert lone.raft.role == "LEADER", "with two others it is a majority"
    ticks = 0
    while lone.raft.role == "LEADER" and ticks < 3 * TICKS:
        lone.step(HEARTBEAT_REPLY, 2)
        lone.tick()
        ticks += 1
    assert lone.raft.role == "FOLLOWER" and lone.raft.leader == 0
    assert ticks <= 2 * TICKS
    with pytest.raises(ProposalDropped):
        lone.raft.propose(b"x")


def test_learners_do_not_keep_a_leader_in_office():
    """6.2 and 4.2.1: the majority is one of voters."""
    lone = Lone(voters=(1, 2, 3), learners=(4, 5), pre_vote=False).lead()
    ticks = 0
    while lone.raft.role == "LEADER" and ticks < 3 * TICKS:
        lone.step(HEARTBEAT_REPLY, 4)
        lone.step(HEARTBEAT_REPLY, 5)
        lone.tick()
        ticks += 1
    assert lone.raft.role == "FOLLOWER"
    assert ticks <= 2 * TICKS


def test_a_deposed_leaders_clients_learn_where_to_go():
    """6.2: a server that is not leader tells who is; requests are never lost in silence."""
    world = cluster(3)
    world.elect(1)
    with pytest.raises(ProposalDropped) as refused:
        world[2].propose(b"x")
    assert refused.value.leader == 1
    world.call(1, lambda raft: raft.transfer(2))
    world.settle()
    with pytest.raises(ProposalDropped) as refused:
        world[1].propose(b"x")
    assert refused.value.leader == 2


# 6.4 Linearizable reads (and 8 of the paper)


def test_a_leader_opens_its_term_with_an_entry_of_nothing():
    """8 and 6.4: it commits a blank no-op entry at the start of its term, to know what is committed."""
    lone = Lone(log=[1, 1], commit=1, **PLAIN)
    sent = lone.elect()
    assert lone.log[-1] == Entry(2, 3, b"")
    assert {message.to for message in of(sent, APPEND) if Entry(2, 3, b"") in message.entries} <= {2, 3}
    lone.acknowledge(2)
    assert lone.raft.log.committed == 3


def test_a_read_waits_for_the_terms_first_commit():
    """6.4, step 1: a leader that has not committed an entry of its term does not know the latest commit index."""
    lone = Lone(log=[1, 1], commit=1, **PLAIN)
    lone.elect()
    lone.raft.read_index(b"early")
    lone.run()
    lone.tick(2)
    for sender in (2, 3):
        lone.step(HEARTBEAT_REPLY, sender, context=_asked(lone, sender))
    assert lone.reads == []
    lone.acknowledge(2)
    _answer(lone, 2)
    assert lone.reads == [ReadState(3, b"early")]


def _asked(lone: Lone, peer: int) -> bytes:
    """The context of the last heartbeat to `peer` that had one."""
    contexts = [m.context for m in of(lone.sent, HEARTBEAT) if m.to == peer and m.context]
    return contexts[-1] if contexts else b""


def _answer(lone: Lone, *peers: int) -> list[Message]:
    return [message for peer in peers for message in lone.step(HEARTBEAT_REPLY, peer, context=_asked(lone, peer))]


@pytest.mark.parametrize(("size", "answers"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_read_is_confirmed_by_a_majority(size, answers):
    """6.4, step 3: the leader makes sure that it has not been superseded by a heartbeat round to a majority."""
    lone = Lone(voters=range(1, size + 1), **PLAIN).lead()
    lone.raft.read_index(b"r")
    lone.run()
    for peer in range(2, 2 + answers):
        assert lone.reads == []
        _answer(lone, peer)
    assert lone.reads == [ReadState(lone.raft.log.committed, b"r")]


def test_the_same_peer_twice_and_learners_confirm_nothing():
    """6.4, step 3: a majority of the cluster, each voter once."""
    lone = Lone(voters=(1, 2, 3, 4, 5), learners=(6, 7), **PLAIN).lead()
    lone.raft.read_index(b"r")
    lone.run()
    _answer(lone, 2, 2, 2, 6, 7, 2)
    assert lone.reads == []
    _answer(lone, 3)
    assert lone.reads == [ReadState(1, b"r")]


def test_in_a_joint_configuration_both_majorities_confirm():
    """6.4 and 4.3: what proves that nobody else leads needs both halves."""
    lone = Lone(voters=(1, 4, 5), outgoing=(1, 2, 3), log=[1], commit=1, **PLAIN)
    lone.elect()
    lone.acknowledge()
    lone.raft.read_index(b"r")
    lone.run()
    _answer(lone, 4, 5)
    assert lone.reads == []
    _answer(lone, 2)
    assert [state.context for state in lone.reads] == [b"r"]


def test_answers_to_older_heartbeats_confirm_nothing():
    """6.4 (and etcd#20418): the round must begin after the read did; each attempt has an id of its own."""
    lone = Lone(voters=(1, 2, 3), **PLAIN).lead()
    lone.raft.read_index(b"one")
    lone.run()
    before = _asked(lone, 2)
    assert before
    _answer(lone, 2)
    assert lone.reads == [ReadState(1, b"one")]
    index = lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(2)
    lone.raft.read_index(b"one")
    lone.run()
    assert _asked(lone, 2) != before, "the same read asked again is another attempt"
    lone.step(HEARTBEAT_REPLY, 3, context=before)
    lone.step(HEARTBEAT_REPLY, 3)
    assert lone.reads[1:] == []
    _answer(lone, 3)
    assert lone.reads[1:] == [ReadState(index, b"one")]


def test_the_index_is_that_of_when_the_read_was_asked_or_later():
    """6.4, step 2: readIndex is the commit index at the time the leader took the read; later ones do as well."""
    lone = Lone(**PLAIN).lead()
    for number in range(3):
        lone.raft.propose(b"%d" % number)
    lone.run()
    lone.acknowledge(2)
    lone.raft.read_index(b"r")
    lone.run()
    lone.raft.propose(b"later")
    lone.run()
    _answer(lone, 2)
    (state,) = lone.reads
    assert state.index == 4


def test_one_round_confirms_all_reads_that_wait():
    """6.4: a leader may confirm any number of reads with one round of heartbeats."""
    lone = Lone(**PLAIN).lead()
    for number in range(20):
        lone.raft.read_index(b"r%d" % number)
    beats = of(lone.run(), HEARTBEAT)
    assert len(beats) <= 2 * 20
    _answer(lone, 2)
    assert [state.context for state in lone.reads] == [b"r%d" % number for number in range(20)]
    assert {state.index for state in lone.reads} == {1}


def test_a_superseded_leader_serves_no_reads():
    """6.4: a leader behind a partition cannot know that another has committed since."""
    world = cluster(3, check_quorum=False, pre_vote=False)
    world.elect(1)
    world.partition((1,), (2, 3))
    world.elect(2)
    world.propose(2, b"newer")
    world.settle()
    world.read_index(1, b"stale")
    rounds(world, 3, 1)
    assert world.members[1].reads == []
    world.heal()
    rounds(world, 3, 2)
    assert world[1].role == "FOLLOWER"
    assert world.members[1].reads == [ReadState(None, b"stale")], "it is told that nothing is known"


def test_a_follower_asks_the_leader_for_the_index():
    """6.4: followers serve reads too, at an index that they get from the leader."""
    world = cluster(3)
    world.elect(1)
    for number in range(4):
        world.propose(1, b"%d" % number)
    world.settle()
    world.read_index(2, b"there")
    world.settle()
    assert world.members[2].reads == [ReadState(5, b"there")]
    assert world.members[1].reads == []


def test_a_read_without_a_leader_is_refused():
    """6.4: nobody can say."""
    lone = Lone(term=3)
    with pytest.raises(ProposalDropped):
        lone.raft.read_index(b"r")


def test_a_read_whose_leader_is_gone_is_not_left_waiting():
    """6.4 (and etcd#21399): a read that was on its way to a leader that changed is answered with: ask again."""
    world = cluster(3, seed=2)
    world.elect(1)
    world.cut_off(2, 1)
    world.read_index(2, b"lost")
    world.settle()
    assert world.members[2].reads == []
    world.crash(1)
    rounds(world, 4 * TICKS, 2, 3)
    assert world.leader() is not None and world.leader().id in (2, 3)
    assert world.members[2].reads == [ReadState(None, b"lost")]


# 6.4.1 Leases: only by name


def test_a_lease_answers_reads_without_a_round():
    """6.4.1: with leases, as an option, the leader that has heard from a majority answers at once."""
    lone = Lone(lease_reads=True, rng=slowest())
    lone.tick(TICKS)  # what it may have promised in a life before is over
    lone.lead()
    lone.tick()
    _answer(lone, 2)
    lone.raft.read_index(b"r")
    sent = lone.run()
    assert lone.reads == [ReadState(1, b"r")]
    assert of(sent, HEARTBEAT) == []


def test_a_lease_ends_when_nobody_was_heard_of_for_a_while():
    """6.4.1: the lease lasts less than an election timeout from when the confirmed round began; then it asks again."""
    lone = Lone(lease_reads=True, rng=slowest())
    lone.tick(TICKS)
    lone.lead()
    lone.tick()
    _answer(lone, 2)
    lone.tick(TICKS - 2)
    assert lone.raft.role == "LEADER"
    lone.raft.read_index(b"r")
    lone.run()
    assert lone.reads == []
    _answer(lone, 3)
    assert lone.reads == [ReadState(1, b"r")]


def test_leases_need_the_quorum_to_be_checked():
    """6.4.1: the lease rests on followers that refuse candidates, and on leaders that step down: not without them."""
    from minikube_py.raft.node import RaftConfig

    with pytest.raises(ValueError, match="check_quorum"):
        RaftConfig(id=1, lease_reads=True, check_quorum=False)


def test_leases_are_no_default():
    """6.4.1: leases trust clocks; the default trusts none."""
    lone = Lone().lead()
    lone.raft.read_index(b"r")
    lone.run()
    assert lone.reads == []


# 9.6 Pre-vote


def test_no_term_is_begun_without_a_majority_that_would_vote():
    """9.6: a candidate increments its term only after a majority said that it would vote for it."""
    lone = Lone(voters=(1, 2, 3, 4, 5), term=3, log=[1, 3])
    sent = lone.campaign()
    assert (lone.raft.role, lone.raft.term, lone.raft.vote) == ("PRE_CANDIDATE", 3, 0)
    asked = of(sent, MessageType.PRE_VOTE)
    assert {(m.to, m.term, m.index, m.log_term) for m in asked} == {(id, 4, 2, 3) for id in (2, 3, 4, 5)}
    lone.step(MessageType.PRE_VOTE_REPLY, 2, term=4)
    assert lone.raft.role == "PRE_CANDIDATE"
    sent = lone.step(MessageType.PRE_VOTE_REPLY, 3, term=4)
    assert (lone.raft.role, lone.raft.term, lone.raft.vote) == ("CANDIDATE", 4, ME)
    assert sorted(message.to for message in of(sent, MessageType.VOTE)) == [2, 3, 4, 5]


def test_an_answer_to_an_earlier_poll_counts_for_nothing():
    """9.6: a majority must be willing now. The answer to the poll about term 4 arrives, or arrives again, when term 4
    has begun and failed, and the poll is about term 5."""
    lone = Lone(voters=(1, 2, 3), term=3)
    lone.campaign()
    lone.step(MessageType.PRE_VOTE_REPLY, 2, term=4)
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 4)
    lone.campaign()
    assert (lone.raft.role, lone.raft.term) == ("PRE_CANDIDATE", 4)
    for sender in (2, 3):
        lone.step(MessageType.PRE_VOTE_REPLY, sender, term=4)
    assert (lone.raft.role, lone.raft.term) == ("PRE_CANDIDATE", 4)
    lone.step(MessageType.PRE_VOTE_REPLY, 3, term=5)
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 5)


def test_pre_votes_make_no_leader():
    """9.6: the pre-vote is only a poll; the election that follows needs votes of its own."""
    lone = Lone(voters=(1, 2, 3), term=3)
    lone.campaign()
    lone.step(MessageType.PRE_VOTE_REPLY, 2, term=4)
    lone.step(MessageType.PRE_VOTE_REPLY, 3, term=4)
    assert lone.raft.role == "CANDIDATE"
    lone.step(MessageType.VOTE_REPLY, 3)
    assert lone.raft.role == "LEADER"


def test_a_pre_vote_writes_nothing():
    """9.6: neither who asks nor who answers changes term or vote, so nothing needs to be durable."""
    asks, answers = Lone(term=3), Lone(term=3)
    for lone in (asks, answers):
        lone.readies.clear()
    asks.campaign()
    sent = answers.step(MessageType.PRE_VOTE, 2, term=4)
    assert [(message.to, message.reject, message.term) for message in sent] == [(2, False, 4)]
    for lone in (asks, answers):
        assert not any(ready.hard_state or ready.must_sync for ready in lone.readies)
        assert (lone.raft.term, lone.raft.vote) == (3, 0)


def test_who_would_vote_for_one_would_vote_for_another_too():
    """9.6: a pre-vote is no promise; it is given to any number."""
    lone = Lone(voters=(1, 2, 3, 4), term=3)
    for sender in (2, 3, 4):
        (reply,) = lone.step(MessageType.PRE_VOTE, sender, term=4)
        assert not reply.reject


def test_who_hears_from_a_leader_would_not_vote():
    """9.6 (with 4.2.3): a server grants no pre-vote within the election timeout of hearing from a leader."""
    lone = Lone(term=3)
    lone.step(HEARTBEAT, 2)
    lone.tick(TICKS - 1)
    sent = lone.step(MessageType.PRE_VOTE, 3, term=4, index=9, log_term=3)
    assert all(message.reject for message in of(sent, MessageType.PRE_VOTE_REPLY))
    assert (lone.raft.term, lone.raft.leader) == (3, 2)


def test_a_leader_would_not_vote_for_another():
    """9.6: nor does the leader itself while its majority is with it."""
    lone = Lone().lead()
    sent = lone.step(MessageType.PRE_VOTE, 2, term=lone.raft.term + 1, index=9, log_term=1)
    assert all(message.reject for message in of(sent, MessageType.PRE_VOTE_REPLY))
    assert lone.raft.role == "LEADER"


@pytest.mark.parametrize(("index", "log_term", "granted"), [(2, 3, True), (3, 3, True), (1, 3, False), (9, 1, False)])
def test_a_pre_vote_needs_a_log_as_good(index, log_term, granted):
    """9.6: the log must be up-to-date enough, as for a vote."""
    lone = Lone(term=3, log=[1, 3])
    (reply,) = lone.step(MessageType.PRE_VOTE, 2, term=4, index=index, log_term=log_term)
    assert reply.reject != granted


def test_a_partitioned_server_comes_back_without_a_new_term():
    """9.6: while it is cut off it cannot increase its term, and so deposes nobody when it is back."""
    world = cluster(3, seed=4)
    world.elect(1)
    term = world[1].term
    world.partition((1, 2), (3,))
    rounds(world, 10 * TICKS)
    assert world[3].term == term
    world.heal()
    rounds(world, 3 * TICKS)
    assert (world[1].role, world[1].term) == ("LEADER", term)
    assert world[3].leader == 1 and world[3].role == "FOLLOWER"


def test_without_pre_vote_a_server_that_comes_back_has_a_larger_term():
    """9.6: the same without it, to know that the test before can fail."""
    world = cluster(3, seed=4, **PLAIN)
    world.elect(1)
    world.partition((1, 2), (3,))
    rounds(world, 10 * TICKS)
    assert world[3].term > world[1].term


def test_a_refused_pre_candidate_of_an_old_term_learns_the_new_one():
    """9.6 and 5.1: a refusal carries the voter's term, or who is behind would ask forever."""
    world = World()
    three = Configuration(frozenset((1, 2, 3)))
    for id, term, log in ((1, 2, [1]), (2, 5, [1, 5]), (3, 5, [1, 5])):
        world.add(id, three, entries=entries(log), hard_state=HardState(term))
    world.campaign(1)
    world.settle()
    assert world[1].role == "FOLLOWER" and world[1].term == 5
    world.elect(2)
    assert entries_of(world[1])[:2] == entries([1, 5])


# 10.2.1 Writing to the leader's disk in parallel; 10.2.2 batching and pipelining


def test_the_leader_sends_while_it_writes():
    """10.2.1: the leader may replicate in parallel to writing to its own disk."""
    lone = Lone(**PLAIN).lead()
    lone.raft.propose(b"x")
    ready = lone.ready()
    assert sorted(message.to for message in of(ready.messages, APPEND)) == [2, 3]
    assert of(ready.messages_after, APPEND) == [] and len(ready.entries) == 1


def test_followers_may_commit_before_the_leaders_disk_has_it():
    """10.2.1: if a majority of followers have written it, the entry is committed before the leader's own write ends; it
    is applied here once it is durable here."""
    lone = Lone(voters=(1, 2, 3), **PLAIN).lead()
    index = lone.raft.propose(b"x")
    ready = lone.ready()
    for sender in (2, 3):
        lone.raft.step(Message(MessageType.APPEND_REPLY, sender, ME, lone.raft.term, index=index))
    assert lone.raft.log.committed == index
    meanwhile = lone.ready(can_write=False)
    assert meanwhile.committed == [] or not meanwhile.committed
    lone.persist(ready)
    assert [entry.data for entry in lone.ready().committed] == [b"x"]


def test_the_leader_counts_itself_once_its_disk_has_it():
    """10.2.1: the leader's own copy counts towards the majority when its write is durable, not before."""
    lone = Lone(voters=(1, 2, 3), **PLAIN).lead()
    index = lone.raft.propose(b"x")
    ready = lone.ready()
    lone.raft.step(Message(MessageType.APPEND_REPLY, 2, ME, lone.raft.term, index=index))
    assert lone.raft.log.committed == index - 1
    lone.persist(ready)
    assert lone.raft.log.committed == index


def test_while_the_disk_is_busy_only_what_may_go_goes():
    """10.2.1: heartbeats, commits and retries do not wait for a slow disk; new entries wait for the next write."""
    lone = Lone(voters=(1, 2, 3), learners=(), **PLAIN).lead()
    lone.raft.propose(b"x")
    first = lone.ready()
    lone.raft.propose(b"y")
    lone.raft.tick()
    busy = lone.ready(can_write=False)
    assert not busy.must_sync and not busy.entries and not busy.messages_after
    assert sorted(m.to for m in of(busy.messages, HEARTBEAT)) == [2, 3]
    assert [entry for m in of(busy.messages, APPEND) for entry in m.entries if entry.data == b"y"] == []
    lone.persist(first)
    after = lone.ready()
    assert [entry.data for entry in after.entries] == [b"y"]
    assert {m.to for m in of(after.messages, APPEND) if m.entries[-1].data == b"y"} == {2, 3}


def test_what_arrives_while_the_disk_is_busy_goes_as_one_message_a_peer():
    """10.2.2: requests are batched; one append, one write and one message a peer for all of them."""
    lone = Lone(**PLAIN).lead()
    first = lone.raft.propose(b"first")
    ready = lone.ready()
    for number in range(50):
        lone.raft.propose(b"%d" % number)
    lone.ready(can_write=False)
    lone.persist(ready)
    batch = lone.ready()
    assert len(batch.entries) == 50
    sent = of(batch.messages, APPEND)
    assert sorted(m.to for m in sent) == [2, 3]
    assert {(m.index, len(m.entries)) for m in sent} == {(first, 50)}


def test_appends_are_pipelined_without_waiting_for_answers():
    """10.2.2: the leader sends further entries without waiting for acknowledgements of those before."""
    lone = Lone(**PLAIN).lead()
    sent = []
    for number in range(5):
        lone.raft.propose(b"%d" % number)
        sent += of(lone.run(), APPEND)
    assert [m.index for m in sent if m.to == 2] == [1, 2, 3, 4, 5]


def test_messages_under_way_are_limited_in_number():
    """10.2.2: what is in flight to one peer is bounded, and goes on as answers come."""
    lone = Lone(inflight_messages_max=3, **PLAIN).lead()
    sent = []
    for number in range(10):
        lone.raft.propose(b"%d" % number)
        sent += of(lone.run(), APPEND)
    assert len([m for m in sent if m.to == 2]) == 3
    more = of(lone.acknowledge(2, index=4), APPEND)
    assert [entry.index for m in more if m.to == 2 for entry in m.entries] == list(range(5, 12))


def test_messages_are_limited_in_bytes():
    """10.2.2: one message holds entries up to a limit, and at least one however large."""
    lone = Lone(append_bytes_max=200, inflight_bytes_max=400, **PLAIN).lead()
    for size in (50, 50, 50, 50, 50, 500, 50):
        lone.raft.propose(b"x" * size)
    sent = [m for m in of(lone.run(), APPEND) if m.to == 2]
    for message in sent:
        assert len(message.entries) == 1 or sum(len(entry.data) for entry in message.entries) <= 200
    for _ in range(10):
        done = sent[-1].index + len(sent[-1].entries)
        sent += [m for m in of(lone.acknowledge(2, index=done), APPEND) if m.to == 2 and m.entries]
    indexes = [entry.index for m in sent for entry in m.entries]
    assert indexes == list(range(2, 9))


def test_uncommitted_entries_are_limited_in_bytes_and_one_always_passes():
    """10.2.2 and etcd-io/raft: a leader that commits nothing takes no more than so much."""
    lone = Lone(uncommitted_bytes_max=100, **PLAIN).lead()
    lone.raft.propose(b"x" * 500)
    with pytest.raises(ProposalDropped, match="100"):
        lone.raft.propose(b"y")
    lone.run()
    lone.acknowledge(2)
    lone.raft.propose(b"y")


def test_committed_entries_come_in_pieces():
    """Ours: what one Ready hands out to be applied is bounded, so that a long catch-up blocks nobody."""
    lone = Lone(committed_bytes_max=100, **PLAIN).lead()
    for _ in range(10):
        lone.raft.propose(b"x" * 60)
    lone.run()
    lone.readies.clear()
    lone.acknowledge(2)
    batches = [len(ready.committed) for ready in lone.readies if ready.committed]
    assert sum(batches) == 10 and len(batches) >= 5
    assert [entry.index for entry in lone.applied] == list(range(1, 12))


def test_a_snapshot_meta_of_another_cluster_shape_is_not_taken():
    """7 and 4.2.1: a snapshot that does not contain us is not ours to install; the log stays as it is."""
    lone = Lone(log=[1, 1], term=2, **PLAIN)
    lone.readies.clear()
    lone.step(MessageType.SNAPSHOT, 2, snapshot=SnapshotMeta(9, 2, Configuration(frozenset((2, 3)))))
    assert [ready.snapshot for ready in lone.readies if ready.snapshot] == []
    assert lone.raft.log.last_index == 2
