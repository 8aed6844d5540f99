"""Claims of Ongaro's thesis ("Consensus: bridging theory and practice"), and of the paper's section 8.

3.10 leadership transfer; 4.4 and 6.2 availability; 6.4 reads; 9.6 pre-vote; 10.2 writing and sending at once. Chapter 4
is in test_raft_membership.py.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations

import pytest
from raft_lone import ME, PLAIN, Lone, entries, of
from raft_scenes import change, configured, rounds, slowest, waiting
from raft_world import Envelope, World, cluster, entries_of

from minikube_py.raft.configuration import ChangeType, Configuration
from minikube_py.raft.message import Entry, HardState, Message, MessageType, SnapshotMeta
from minikube_py.raft.node import RaftConfig
from minikube_py.raft.ready import ProposalDropped, ReadState

TICKS = 10
ADD, REMOVE, LEARNER = ChangeType.ADD_VOTER, ChangeType.REMOVE, ChangeType.ADD_LEARNER
APPEND, HEARTBEAT, HEARTBEAT_REPLY = MessageType.APPEND, MessageType.HEARTBEAT, MessageType.HEARTBEAT_REPLY

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
    with suppress(ProposalDropped, ValueError):
        lone.raft.transfer(to)
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
    assert world.members[1].reads == [ReadState(None, b"stale")], "it is answered that nothing is known"


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
    """9.6: a pre-vote is no promise; it is given to any number, here one after the other (ADR 0207)."""
    lone = Lone(voters=(1, 2, 3, 4), term=3)
    for sender in (2, 3, 4):
        lone.tick(TICKS // 3)
        assert [reply.reject for reply in lone.step(MessageType.PRE_VOTE, sender, term=4)] == [False]


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
