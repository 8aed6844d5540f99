"""One voter, claim by claim of the paper and of the Ready contract."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.log import LogCompacted, RaftLog
from minikube_py.raft.message import (
    TERM_MAX,
    TERMS_APART_MAX,
    Entry,
    HardState,
    Message,
    MessageType,
    SnapshotMeta,
)
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import ProposalDropped, ReadState, TermUnbelievable, UnknownPeer

ME = 7


UNBORN = HardState()


def make(entries=(), hard_state=UNBORN, seed=1, **config) -> Raft:
    alone = Configuration(frozenset((ME,)))
    return Raft(RaftConfig(ME, **config), RaftLog(entries=entries), hard_state, alone, Random(seed))


def elect(raft: Raft) -> None:
    """Election of one, by the contract: what is to be durable is said to be, then the rest follows."""
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.persisted(raft.term, 0)
    assert raft.role == "LEADER"
    ready = raft.ready()
    raft.persisted(raft.term, ready.entries[-1].index)
    raft.ready()
    raft.applied(raft.log.committed)


def test_a_vote_counts_only_once_it_is_durable():
    raft = make()
    raft.step(Message(MessageType.HUP, ME, ME))
    assert raft.role == "CANDIDATE"
    ready = raft.ready()
    assert ready.hard_state == HardState(1, ME, 0) and ready.entries == []
    assert raft.role == "CANDIDATE", "not leader before the vote is on disk"
    raft.persisted(1, 0)
    assert raft.role == "LEADER" and raft.leader == ME


def test_an_acknowledgement_of_an_older_term_elects_nobody():
    raft = make(hard_state=HardState(4, ME, 0))
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.tick()
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.persisted(5, 0)
    assert raft.role == "CANDIDATE" and raft.term == 6
    raft.persisted(6, 0)
    assert raft.role == "LEADER" and raft.term == 6


@pytest.mark.parametrize("seed", range(5))
def test_election_starts_after_one_to_two_timeouts_and_in_a_new_term(seed):
    raft = make(hard_state=HardState(3, ME, 0), election_ticks=3, seed=seed)
    waited = 0
    while raft.role == "FOLLOWER":
        assert raft.ready().hard_state is None
        raft.tick()
        waited += 1
    assert 3 <= waited < 6
    assert raft.role == "CANDIDATE" and raft.ready().hard_state == HardState(4, ME, 0)


@pytest.mark.parametrize("election_ticks", [3, 5, 10, 50])
@pytest.mark.parametrize("seed", range(5))
def test_one_whose_polls_get_nowhere_soon_grants_the_poll_of_an_equal_with_a_smaller_id(election_ticks, seed):
    """Both poll and ask again each tick, as members without a leader do; nobody answers the larger one."""
    voters = Configuration(frozenset((1, 2, ME)))
    raft = Raft(RaftConfig(ME, election_ticks=election_ticks), RaftLog(), UNBORN, voters, Random(seed))
    granted = []
    for _ in range(20 * election_ticks):
        raft.tick()
        if raft.role == "FOLLOWER":
            continue
        raft.ready()
        raft.step(Message(MessageType.PRE_VOTE, 1, ME, term=raft.term + 1))
        [reply] = [each for each in raft.ready().messages if each.type == MessageType.PRE_VOTE_REPLY]
        granted.append(not reply.reject)
    assert granted[:1] == [False] and any(granted)


def test_an_election_timeout_without_a_random_part_is_refused():
    for ticks in (1, 2):
        with pytest.raises(ValueError, match=f"election_ticks is at least 3, not {ticks}"):
            RaftConfig(ME, election_ticks=ticks)
    drawn = {make(election_ticks=3, seed=seed)._elections.timeout for seed in range(20)}
    assert drawn == {3, 4}


def test_a_leader_keeps_its_term_through_ticks_and_calls_to_elect():
    raft = make(election_ticks=3)
    elect(raft)
    for _ in range(5):
        raft.tick()
    raft.step(Message(MessageType.HUP, ME, ME))
    assert (raft.role, raft.term) == ("LEADER", 1)


def test_a_leader_opens_its_term_with_an_empty_entry():
    raft = make()
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.persisted(1, 0)
    assert raft.ready().entries == [Entry(1, 1, b"")]


def test_entries_commit_when_durable_not_before():
    raft = make()
    elect(raft)
    assert raft.propose(b"a") == 2
    assert raft.propose(b"b") == 3
    ready = raft.ready()
    assert ready.entries == [Entry(1, 2, b"a"), Entry(1, 3, b"b")]
    assert ready.committed == []
    assert raft.ready().committed == []
    raft.persisted(1, 3)
    assert raft.ready().committed == [Entry(1, 2, b"a"), Entry(1, 3, b"b")]


def test_ready_hands_out_nothing_twice():
    raft = make()
    elect(raft)
    raft.propose(b"a")
    assert len(raft.ready().entries) == 1
    assert not any(raft.ready())
    raft.persisted(1, 2)
    assert len(raft.ready().committed) == 1
    assert not any(raft.ready())


def test_what_arrives_during_a_sync_is_the_next_batch():
    raft = make()
    elect(raft)
    raft.propose(b"a")
    raft.ready()
    raft.propose(b"b")
    raft.persisted(1, 2)
    ready = raft.ready()
    assert [entry.data for entry in ready.entries] == [b"b"]
    assert [entry.data for entry in ready.committed] == [b"a"]


def test_entries_of_former_terms_commit_only_beneath_one_of_the_leaders_own():
    """Figure 8 and 5.4.2: after a restart the old tail is not committed by its mere presence."""
    old = [Entry(1, 1, b""), Entry(1, 2, b"kept")]
    raft = make(old, HardState(1, ME, 1))
    assert raft.ready().committed == [old[0]]
    raft.applied(1)
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.persisted(2, 2)
    assert raft.role == "LEADER" and raft.log.committed == 1
    assert raft.ready().entries == [Entry(2, 3, b"")]
    raft.persisted(2, 3)
    assert [entry.index for entry in raft.ready().committed] == [2, 3]


def test_no_leader_takes_no_proposals_and_no_reads():
    raft = make()
    with pytest.raises(ProposalDropped):
        raft.propose(b"x")
    with pytest.raises(ProposalDropped):
        raft.read_index(b"r")


def test_uncommitted_bytes_are_limited_and_given_back():
    raft = make(uncommitted_bytes_max=10)
    elect(raft)
    raft.propose(b"x" * 8)
    with pytest.raises(ProposalDropped, match="10 bytes"):
        raft.propose(b"y" * 3)
    raft.ready()
    raft.persisted(1, 2)
    raft.propose(b"y" * 3)


def test_one_proposal_above_the_limit_passes_alone():
    raft = make(uncommitted_bytes_max=10)
    elect(raft)
    assert raft.propose(b"z" * 50) == 2


def test_reads_wait_for_an_entry_of_the_leaders_own_term():
    raft = make([Entry(1, 1, b"")], HardState(1, ME, 1))
    raft.step(Message(MessageType.HUP, ME, ME))
    raft.ready()
    raft.persisted(2, 1)
    raft.read_index(b"early")
    assert raft.ready().read_states == []
    raft.persisted(2, 2)
    assert raft.ready().read_states == [ReadState(2, b"early")]
    raft.read_index(b"now")
    assert raft.ready().read_states == [ReadState(2, b"now")]


def test_a_stranger_is_refused():
    with pytest.raises(UnknownPeer, match=f"node {99:x} is"):
        make().step(Message(MessageType.APPEND_REPLY, 99, ME, 1, index=1))


@pytest.mark.parametrize("type", [each for each in MessageType if each not in (MessageType.HUP, MessageType.TELL)])
def test_no_message_leads_a_member_to_a_term_that_no_election_led_to(type):
    both = Configuration(frozenset((ME, 8)))
    snapshot = SnapshotMeta(9, 5, both) if type == MessageType.SNAPSHOT else None
    for own in (5, 5 + TERMS_APART_MAX, TERM_MAX):
        for term in (own - TERMS_APART_MAX - 1, own + TERMS_APART_MAX + 1, TERM_MAX + 1, 2**63 - 1):
            raft = Raft(RaftConfig(ME), RaftLog(), HardState(own), both, Random(1))
            if term < 0:
                continue
            with pytest.raises(TermUnbelievable):
                raft.step(Message(type, 8, ME, term, snapshot=snapshot))
            ready = raft.ready()
            assert (raft.term, ready.must_sync, list(ready.messages)) == (own, False, [])
            assert raft.apart == {8: term}
            raft.step(Message(MessageType.HEARTBEAT_REPLY, 8, ME, own))
            assert raft.apart == {}


def test_a_member_that_knows_no_term_takes_its_clusters():
    both = Configuration(frozenset((ME, 8)))
    for term, expected in ((TERM_MAX, TERM_MAX), (TERM_MAX + 1, 0)):
        raft = Raft(RaftConfig(ME), RaftLog(), UNBORN, both, Random(1))
        with suppress(TermUnbelievable):
            raft.step(Message(MessageType.HEARTBEAT, 8, ME, term))
        assert raft.term == expected
    raft = Raft(RaftConfig(ME), RaftLog(), HardState(1), both, Random(1))
    raft.step(Message(MessageType.HEARTBEAT, 8, ME, 1 + TERMS_APART_MAX))
    assert raft.term == 1 + TERMS_APART_MAX


def test_nobody_else_speaks_for_this_node():
    raft = make()
    elect(raft)
    raft.propose(b"a")
    raft.ready()
    with pytest.raises(UnknownPeer, match="from node 7 to node 7"):
        raft.step(Message(MessageType.APPEND_REPLY, ME, ME, 1, index=2))
    assert raft.log.committed == 1


def test_what_members_tell_each_other_beside_raft_changes_nothing_here():
    both = Configuration(frozenset((ME, 8)))
    raft = Raft(RaftConfig(ME), RaftLog(), UNBORN, both, Random(1))
    with pytest.raises(ValueError, match="does not belong to Raft"):
        raft.step(Message(MessageType.TELL, 8, ME, 9, context=b"x"))
    assert raft.term == 0


def test_a_commit_beyond_the_log_is_refused():
    with pytest.raises(ValueError, match="beyond"):
        make([], HardState(1, ME, 5))


def test_the_log_forgets_what_is_applied():
    raft = make()
    elect(raft)
    for _ in range(100):
        index = raft.propose(b"x")
        raft.ready()
        raft.persisted(1, index)
        raft.ready()
        raft.applied(index)
        raft.compact(index)
    assert raft.log.offset == raft.log.last_index == 101
    assert raft.log.term(101) == 1
    with pytest.raises(LogCompacted):
        raft.log.term(100)
    with pytest.raises(LogCompacted):
        raft.log.slice(50, 101)
