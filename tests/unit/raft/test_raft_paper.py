"""Elections, claim by claim of the Raft paper (Ongaro and Ousterhout, extended version): 5.1, 5.2, 5.4.1, 5.6.

The claims about the log are in test_raft_paper_log.py, those of the thesis in test_raft_thesis.py.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from itertools import product

import pytest
from raft_lone import ME, PLAIN, Lone, entries, of
from raft_world import World, cluster

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import HardState, Message, MessageType
from minikube_py.raft.node import RaftConfig
from minikube_py.raft.ready import UnknownPeer

TICKS = 10
THREE = Configuration(frozenset((1, 2, 3)))
HUP = Message(MessageType.HUP, ME, ME)
VOTE = Message(MessageType.VOTE, 2, ME)
GRANT = Message(MessageType.VOTE_REPLY, 2, ME)


def follower(**fields) -> Lone:
    return Lone(**{"term": 3, **PLAIN, **fields})


def candidate(**fields) -> Lone:
    lone = Lone(**{"term": 2, **PLAIN, **fields})
    lone.campaign()
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 3)
    return lone


def leader(**fields) -> Lone:
    lone = Lone(**{"term": 2, **PLAIN, **fields}).lead()
    assert lone.raft.term == 3
    return lone


ROLES = {"follower": follower, "candidate": candidate, "leader": leader}
OF_THE_LEADER = (MessageType.APPEND, MessageType.HEARTBEAT)
REPLIES = (MessageType.VOTE_REPLY, MessageType.APPEND_REPLY, MessageType.HEARTBEAT_REPLY)

# 5.1 Terms


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("type", [*OF_THE_LEADER, *REPLIES, MessageType.VOTE], ids=lambda type: type.name)
def test_a_larger_term_is_taken_over_and_makes_a_follower(role, type):
    """5.1: whoever sees a larger term than its own goes to that term; candidates and leaders become followers."""
    lone = ROLES[role]()
    lone.step(type, 2, term=7)
    assert (lone.raft.role, lone.raft.term) == ("FOLLOWER", 7)
    assert lone.raft.leader == (2 if type in OF_THE_LEADER else 0)


@pytest.mark.parametrize("role", ROLES)
def test_a_larger_term_is_durable_before_anything_is_said_in_it(role):
    """5.1 and figure 2: currentTerm is updated on stable storage before responding."""
    lone = ROLES[role]()
    lone.readies.clear()
    sent = lone.step(MessageType.VOTE, 2, term=7, index=99, log_term=6)
    saved = [ready.hard_state for ready in lone.readies if ready.hard_state is not None]
    assert [(state.term, state.vote) for state in saved] == [(7, 2)]
    assert [(message.to, message.reject) for message in of(sent, MessageType.VOTE_REPLY)] == [(2, False)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("checked", [False, True], ids=["plain", "pre-vote and quorum checked"])
@pytest.mark.parametrize(
    "type", [*OF_THE_LEADER, *REPLIES, MessageType.VOTE, MessageType.SNAPSHOT], ids=lambda type: type.name
)
def test_a_request_of_a_stale_term_is_refused(role, type, checked):
    """5.1: what comes with a stale term changes nothing, and is never answered with consent."""
    lone = ROLES[role](
        log=(1, 1), **({"pre_vote": True, "check_quorum": True} if checked and role != "candidate" else {})
    )
    before = (lone.raft.role, lone.raft.term, lone.raft.vote, lone.raft.leader, lone.raft.log.committed, lone.log)
    sent = lone.step(type, 2, term=1, index=2, log_term=1, commit=2)
    assert (
        lone.raft.role, lone.raft.term, lone.raft.vote, lone.raft.leader, lone.raft.log.committed, lone.log
    ) == before  # fmt: skip
    for message in sent:
        assert message.term == lone.raft.term and message.to == 2
        assert message.reject or (message.type == MessageType.APPEND_REPLY and message.index <= lone.raft.log.committed)


def test_terms_only_grow_and_each_election_takes_a_new_one():
    """5.1: time is divided into terms, numbered with consecutive integers; each begins with an election."""
    lone = Lone(**PLAIN)
    seen = []
    for _ in range(5 * TICKS):
        lone.tick()
        seen.append(lone.raft.term)
    assert sorted(set(seen)) == list(range(max(seen) + 1)) and seen == sorted(seen)
    assert max(seen) >= 3


# 5.2 Leader election


def test_servers_start_as_followers():
    """5.2: when servers start up, they begin as followers, of nobody yet."""
    lone = Lone(term=4, vote=2)
    assert (lone.raft.role, lone.raft.term, lone.raft.vote, lone.raft.leader) == ("FOLLOWER", 4, 2, 0)


@pytest.mark.parametrize("heartbeat_ticks", [1, 2, 3])
def test_a_leader_sends_heartbeats_to_all_at_every_interval(heartbeat_ticks):
    """5.2: leaders send periodic heartbeats to all followers in order to maintain their authority."""
    lone = Lone(voters=(1, 2, 3, 4), learners=(5,), heartbeat_ticks=heartbeat_ticks, **PLAIN).lead()
    for _ in range(3):
        quiet = [message for _ in range(heartbeat_ticks - 1) for message in lone.tick()]
        assert of(quiet, MessageType.HEARTBEAT) == []
        beats = of(lone.tick(), MessageType.HEARTBEAT)
        assert sorted(beat.to for beat in beats) == [2, 3, 4, 5]
        assert {beat.term for beat in beats} == {lone.raft.term}


@pytest.mark.parametrize("type", OF_THE_LEADER, ids=lambda type: type.name)
def test_a_follower_stays_one_as_long_as_it_hears_of_the_leader(type):
    """5.2: a server remains in follower state as long as it receives valid RPCs from a leader."""
    lone = Lone(term=1, **PLAIN)
    for _ in range(5):
        lone.tick(TICKS - 1)
        lone.step(type, 2)
        assert (lone.raft.role, lone.raft.term) == ("FOLLOWER", 1)
    lone.tick(TICKS)
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 2)


@pytest.mark.parametrize("type", OF_THE_LEADER, ids=lambda type: type.name)
def test_a_deposed_leader_keeps_nobody_from_an_election(type):
    """5.2: only valid RPCs from a leader reset the election timer, not those of a stale term."""
    lone = Lone(term=3, **PLAIN)
    lone.tick(TICKS - 1)
    lone.step(type, 2, term=2)
    lone.tick()
    assert lone.raft.role == "CANDIDATE"


@pytest.mark.parametrize("term", [2, 3], ids=["of its term", "of a later term"])
def test_to_grant_a_vote_resets_the_timer_to_refuse_one_does_not(term):
    """5.2 and figure 2 (followers): a follower that grants its vote waits again before it stands itself."""
    granting, refusing = Lone(term=2, log=(1,), **PLAIN), Lone(term=2, log=(1,), **PLAIN)
    for lone, last in ((granting, 1), (refusing, 0)):
        lone.tick(TICKS - 1)
        lone.step(MessageType.VOTE, 2, term=term, index=last, log_term=last)
        lone.tick()
    assert granting.raft.role == "FOLLOWER"
    assert refusing.raft.role == "CANDIDATE"


@pytest.mark.parametrize("role", ["follower", "candidate"])
def test_who_hears_of_no_leader_stands_for_election(role):
    """5.2: after an election timeout it increments its term, votes for itself, and asks all others in parallel."""
    lone = ROLES[role](voters=(1, 2, 3, 4, 5), log=(1, 2))
    term = lone.raft.term
    sent = []
    while lone.raft.term == term:
        sent = lone.tick()
    assert (lone.raft.role, lone.raft.term, lone.raft.vote) == ("CANDIDATE", term + 1, ME)
    asked = of(sent, MessageType.VOTE)
    assert sorted(message.to for message in asked) == [2, 3, 4, 5]
    assert {(message.term, message.index, message.log_term) for message in asked} == {(term + 1, 2, 2)}


def test_a_candidates_own_vote_is_durable_before_it_asks_or_counts_it():
    """5.2 and figure 2: votedFor is on stable storage before anybody may count it, the candidate itself included."""
    lone = Lone(term=1, **PLAIN)
    lone.raft.step(HUP)
    ready = lone.ready()
    assert ready.hard_state == HardState(2, ME, 0)
    assert of(ready.messages, MessageType.VOTE) == []
    assert sorted(message.to for message in of(ready.messages_after, MessageType.VOTE)) == [2, 3]
    lone.raft.step(GRANT._replace(sender=2, term=2))
    assert lone.raft.role == "CANDIDATE", "the other's vote is one of three, its own does not count yet"
    lone.persist(ready)
    assert lone.raft.role == "LEADER"


ELECTIONS = [
    # voters, granted by, refused by, role after
    (1, (), (), "LEADER"),
    (2, (), (), "CANDIDATE"),
    (2, (2,), (), "LEADER"),
    (3, (), (), "CANDIDATE"),
    (3, (2,), (), "LEADER"),
    (3, (2, 3), (), "LEADER"),
    (3, (2,), (3,), "LEADER"),
    (3, (3,), (2,), "LEADER"),
    (4, (2,), (), "CANDIDATE"),
    (4, (2, 3), (), "LEADER"),
    (5, (2,), (), "CANDIDATE"),
    (5, (2, 3), (), "LEADER"),
    (5, (2, 3), (4, 5), "LEADER"),
    (5, (2,), (3, 4), "CANDIDATE"),
    (7, (2, 3), (4, 5, 6), "CANDIDATE"),
    (7, (2, 3, 4), (5, 6, 7), "LEADER"),
]


@pytest.mark.parametrize(("size", "granted", "refused", "role"), ELECTIONS)
def test_a_majority_of_the_whole_cluster_wins(size, granted, refused, role):
    """5.2: a candidate wins with votes from a majority of the servers in the full cluster, for the same term."""
    lone = Lone(voters=range(1, size + 1), term=4, **PLAIN)
    lone.campaign()
    for sender in refused:
        lone.step(MessageType.VOTE_REPLY, sender, reject=True, term=5)
    for sender in granted:
        lone.step(MessageType.VOTE_REPLY, sender, term=5)
    assert lone.raft.role == role and lone.raft.term == 5


@pytest.mark.parametrize("size", [3, 5])
def test_a_vote_counts_once_and_only_in_its_own_term(size):
    """5.2: a majority for the same term; the same voter again, or a vote of the term before, adds nothing."""
    lone = Lone(voters=range(1, 6), term=4, **PLAIN)
    lone.campaign()
    for _ in range(5):
        lone.step(MessageType.VOTE_REPLY, 2, term=5)
    for sender in (3, 4, 5):
        lone.step(MessageType.VOTE_REPLY, sender, term=4)
    assert lone.raft.role == "CANDIDATE"
    lone.step(MessageType.VOTE_REPLY, size, term=5)
    assert lone.raft.role == "LEADER"


@pytest.mark.parametrize("outsider", [4, 9], ids=["learner", "stranger"])
def test_who_is_no_voter_does_not_elect(outsider):
    """5.2 and 6: only the configuration's voters make the majority."""
    lone = Lone(voters=(1, 2, 3), learners=(4,), term=4, **PLAIN)
    lone.campaign()
    with suppress(UnknownPeer):
        lone.step(MessageType.VOTE_REPLY, outsider, term=5)
    assert lone.raft.role == "CANDIDATE"


VOTES = [(vote, asks) for vote, asks in product((0, 2, 3), (2, 3))]


@pytest.mark.parametrize(("vote", "asks"), VOTES)
def test_one_vote_a_term_first_come_first_served(vote, asks):
    """5.2: each server votes for at most one candidate in a given term, and says the same again when asked again."""
    lone = Lone(term=5, vote=vote, **PLAIN)
    for _ in range(2):
        (reply,) = lone.step(MessageType.VOTE, asks, term=5)
        assert (reply.type, reply.to, reply.term) == (MessageType.VOTE_REPLY, asks, 5)
        assert reply.reject == (vote not in (0, asks))
    assert lone.raft.vote == (vote or asks)


def test_a_vote_is_not_forgotten_by_meeting_a_leader_or_by_a_restart():
    """5.2 and figure 2: votedFor is persistent; it is cleared by a new term and by nothing else."""
    lone = Lone(term=5, **PLAIN)
    lone.step(MessageType.VOTE, 2, term=5)
    lone.step(MessageType.APPEND, 3, term=5)
    assert lone.raft.leader == 3 and lone.raft.vote == 2
    for one in (lone, Lone(term=5, vote=lone.raft.vote, **PLAIN)):
        (reply,) = one.step(MessageType.VOTE, 3, term=5)
        assert (reply.type, reply.reject) == (MessageType.VOTE_REPLY, True)


def test_a_vote_is_durable_before_it_is_told():
    """5.2 and figure 2: the voter answers after its vote is on stable storage."""
    lone = Lone(term=5, **PLAIN)
    lone.raft.step(VOTE._replace(sender=2, term=6, index=4, log_term=4))
    ready = lone.ready()
    assert ready.hard_state == HardState(6, 2, 0)
    assert not ready.messages
    assert [(message.type, message.reject) for message in ready.messages_after] == [(MessageType.VOTE_REPLY, False)]


def test_a_winner_tells_everybody_at_once():
    """5.2: once a candidate wins it becomes leader, and sends to all others to prevent new elections."""
    lone = Lone(voters=(1, 2, 3, 4, 5), **PLAIN)
    lone.campaign()
    lone.step(MessageType.VOTE_REPLY, 2)
    sent = lone.step(MessageType.VOTE_REPLY, 3)
    assert lone.raft.role == "LEADER" and lone.raft.leader == ME
    assert sorted({message.to for message in of(sent, *OF_THE_LEADER)}) == [2, 3, 4, 5]


@pytest.mark.parametrize("type", OF_THE_LEADER, ids=lambda type: type.name)
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_candidate_yields_to_a_leader_of_its_term_or_a_later_one(type, ahead):
    """5.2: a candidate that hears of a leader whose term is at least its own returns to follower state."""
    lone = candidate()
    lone.step(type, 2, term=3 + ahead)
    assert (lone.raft.role, lone.raft.term, lone.raft.leader) == ("FOLLOWER", 3 + ahead, 2)


def test_a_candidate_without_a_majority_tries_again_in_a_new_term():
    """5.2: when votes are split each candidate times out and starts a new election by incrementing its term."""
    lone = candidate()
    lone.step(MessageType.VOTE_REPLY, 2, reject=True)
    lone.tick(TICKS - 1)
    assert lone.raft.term == 3
    sent = lone.tick()
    assert (lone.raft.role, lone.raft.term) == ("CANDIDATE", 4)
    assert sorted(message.to for message in of(sent, MessageType.VOTE)) == [2, 3]


@pytest.mark.parametrize("role", ["follower", "candidate"])
def test_election_timeouts_are_spread_over_an_interval(role):
    """5.2: timeouts are chosen at random from a fixed interval, and again for each election: up to 1.4 T here for those
    that follow, below 2 T for those that stand."""
    seen: Counter[int] = Counter()
    lone = Lone(rng=random.Random(5), **PLAIN)
    for _ in range(400):
        if role == "follower":
            lone.step(MessageType.HEARTBEAT, 2, term=lone.raft.term + 1)
        term, ticks = lone.raft.term, 0
        while lone.raft.term == term:
            lone.tick()
            ticks += 1
        seen[ticks] += 1
    assert set(seen) == set(range(TICKS, TICKS + TICKS * 2 // 5 + 1 if role == "follower" else 2 * TICKS))
    assert max(seen.values()) < 4 * min(seen.values()), seen


@pytest.mark.parametrize("size", [3, 5])
def test_spread_timeouts_make_split_votes_rare(size):
    """5.2: in most cases only a single server times out, and wins before any other does."""
    firsts = 0
    for seed in range(60):
        world = cluster(size, seed=seed, **PLAIN)
        while world.leader() is None:
            for id in list(world.members):
                world.tick(id)
            world.settle()
        firsts += world.leader().up.term == 1
    assert firsts >= 45, firsts


def test_at_most_one_leader_in_a_term():
    """5.2 (election safety): two candidates of one term cannot both win, whatever order their messages take."""
    for order in product((1, 2), repeat=4):
        world = cluster(4, **PLAIN)
        for id in (1, 2):
            world.campaign(id)
            world.work(id)
        for wanted in order:
            position = next((n for n, one in enumerate(world.links) if one.message.sender == wanted), None)
            if position is not None:
                target = world.deliver(position).to
                world.work(target)
        world.settle()
        leaders = [(member.up.term, member.id) for member in world.up() if member.up.role == "LEADER"]
        assert len(dict(leaders)) == len(leaders)


# 5.4.1 Election restriction

LOGS = [
    # own log's terms, the candidate's last (term, index), granted
    ("both empty", (), (0, 0), True),
    ("own empty", (), (1, 1), True),
    ("same", (1,), (1, 1), True),
    ("candidate's is empty", (1,), (0, 0), False),
    ("same term, longer", (1,), (1, 2), True),
    ("same term, shorter", (1, 1), (1, 1), False),
    ("later term, same length", (1,), (2, 1), True),
    ("later term, shorter", (1, 1), (2, 1), True),
    ("earlier term, same length", (2,), (1, 1), False),
    ("earlier term, longer", (2,), (1, 2), False),
    ("later term, much shorter", (1, 1, 1, 2), (3, 1), True),
    ("earlier term, much longer", (1, 3), (2, 9), False),
]


@pytest.mark.parametrize(("log", "last", "granted"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS])
@pytest.mark.parametrize("pre", [False, True], ids=["vote", "pre-vote"])
def test_a_voter_refuses_whose_log_is_behind_its_own(log, last, granted, pre):
    """5.4.1: of two logs the one with the later last term is more up-to-date, with equal terms the longer one."""
    lone = Lone(term=5, log=log, pre_vote=pre, check_quorum=False)
    asked, answered = (
        (MessageType.PRE_VOTE, MessageType.PRE_VOTE_REPLY) if pre else (MessageType.VOTE, MessageType.VOTE_REPLY)
    )
    (reply,) = lone.step(asked, 2, term=6, log_term=last[0], index=last[1])
    assert (reply.type, reply.to) == (answered, 2)
    assert reply.reject != granted
    assert lone.raft.vote == (2 if granted and not pre else 0)


@pytest.mark.parametrize("terms", [(1,), (1, 1), (1, 2, 2)])
def test_a_candidate_tells_the_last_entry_of_its_log(terms):
    """5.4.1: the vote request tells index and term of the candidate's last entry; a compacted log's too."""
    for lone in (Lone(log=terms, **PLAIN), Lone(offset=len(terms), offset_term=terms[-1], **PLAIN)):
        asked = of(lone.campaign(), MessageType.VOTE)
        assert {(one.index, one.log_term) for one in asked} == {(len(terms), terms[-1])}
        assert sorted(one.to for one in asked) == [2, 3]


@pytest.mark.parametrize("lengths", list(product(range(4), repeat=3)))
def test_who_lacks_a_committed_entry_is_not_elected(lengths):
    """5.4.1: a candidate wins only where its log is as up-to-date as a majority's: it has all committed entries.

    Entries of one term; what a majority has may be committed, so whoever has less must lose, and the others may win."""
    maybe_committed = sorted(lengths)[1]
    for stands in (1, 2, 3):
        world = World()
        for id, length in enumerate(lengths, start=1):
            world.add(id, THREE, entries=entries([1] * length), hard_state=HardState(1), **PLAIN)
        world.campaign(stands)
        for _ in range(4):
            for id in (1, 2, 3):
                world.work(id)
            while world.links and world.leader() is None:
                world.deliver()
        assert (world[stands].role == "LEADER") == (lengths[stands - 1] >= maybe_committed)


# 5.6 Timing


@pytest.mark.parametrize(
    "knobs",
    [
        {"election_ticks": 4, "heartbeat_ticks": 4},
        {"election_ticks": 3, "heartbeat_ticks": 5},
        {"heartbeat_ticks": 0},
        {"election_ticks": 0},
    ],
)
def test_heartbeats_must_be_more_frequent_than_elections(knobs):
    """5.6: broadcast time must be well below the election timeout, or no leader stays one."""
    with pytest.raises(ValueError, match="ticks"):
        RaftConfig(id=1, **knobs)


def test_a_leader_that_keeps_talking_stays_the_leader():
    """5.6: with heartbeats below the election timeout there is one leader for good."""
    world = cluster(5, seed=3)
    for _ in range(60):
        for id in list(world.members):
            world.tick(id)
        world.settle()
    first = world.leader()
    assert first is not None
    term = first.up.term
    for _ in range(300):
        for id in list(world.members):
            world.tick(id)
        world.settle()
    assert world.leader() is first and first.up.term == term
