"""The log, claim by claim of the Raft paper (extended version): 5.3, 5.4.2, 5.4.3, 5.5, 7, and the same in the thesis.

Where the paper's leader sends one request at a time, ours sends ahead (thesis, 10.2.1); the claims are the same.
"""

from __future__ import annotations

from itertools import product

import pytest
from raft_lone import PLAIN, Lone, entries, of
from raft_world import World, cluster, entries_of

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import Entry, HardState, Message, MessageType, SnapshotMeta

THREE = Configuration(frozenset((1, 2, 3)))
APPEND, APPEND_REPLY = MessageType.APPEND, MessageType.APPEND_REPLY


def append(
    lone: Lone, terms: list[int], *, after: tuple[int, int] = (0, 0), commit: int = 0, **fields
) -> list[Message]:
    """Steps an APPEND from node 2; `after` is (index, term) of the entry before."""
    index, log_term = after
    return lone.step(
        APPEND, 2, index=index, log_term=log_term, entries=entries(terms, after=index), commit=commit, **fields
    )


def follower(log: list[int], **fields) -> Lone:
    return Lone(**{"log": log, "term": max([*log, 1]), **PLAIN, **fields})


# 5.3 Log replication: the leader


def test_a_proposal_is_appended_and_sent_to_all_in_parallel():
    """5.3: the leader appends the command to its log as a new entry, then sends it to each of the other servers."""
    lone = Lone(voters=(1, 2, 3, 4, 5), learners=(6,), **PLAIN).lead()
    assert lone.raft.propose(b"x") == 2
    sent = of(lone.run(), APPEND)
    assert sorted(message.to for message in sent) == [2, 3, 4, 5, 6]
    for message in sent:
        assert (message.term, message.index, message.log_term) == (1, 1, 1)
        assert list(message.entries) == [Entry(1, 2, b"x")]


def test_an_entry_holds_its_term_and_index():
    """5.3: each log entry stores a command along with the term in which the leader received it, and its index."""
    lone = Lone(log=(1, 1), **PLAIN).lead()
    lone.raft.propose(b"x")
    assert lone.log[2:] == [Entry(2, 3, b""), Entry(2, 4, b"x")]


COMMITS = [
    # cluster size, who acknowledges besides the leader, committed
    (1, (), True),
    (2, (), False),
    (2, (2,), True),
    (3, (), False),
    (3, (2,), True),
    (3, (2, 3), True),
    (4, (2,), False),
    (4, (2, 3), True),
    (5, (2,), False),
    (5, (2, 3), True),
    (5, (4, 5), True),
    (5, (2, 3, 4, 5), True),
    (7, (2, 3), False),
    (7, (2, 3, 4), True),
]


@pytest.mark.parametrize(("size", "who", "committed"), COMMITS)
def test_an_entry_is_committed_once_it_is_on_a_majority(size, who, committed):
    """5.3: a log entry is committed once the leader that created it has replicated it on a majority of the servers."""
    lone = Lone(voters=range(1, size + 1), **PLAIN).lead()
    index = lone.raft.propose(b"x")
    lone.run()
    if who:
        lone.acknowledge(*who)
    assert (lone.raft.log.committed >= index) == committed
    assert (Entry(1, index, b"x") in lone.applied) == committed


def test_a_learners_copy_commits_nothing():
    """4.2.1 of the thesis: new servers that do not vote yet are not counted towards majorities."""
    lone = Lone(voters=(1, 2, 3), learners=(4, 5), **PLAIN).lead()
    index = lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(4, 5)
    assert lone.raft.log.committed < index
    lone.acknowledge(2)
    assert lone.raft.log.committed == index


def test_an_acknowledgement_of_less_commits_only_that():
    """5.3: matchIndex is what is known to be replicated, per server; a late acknowledgement takes nothing back."""
    lone = Lone(voters=(1, 2, 3), **PLAIN).lead()
    for _ in range(4):
        lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(2, index=3)
    assert lone.raft.log.committed == 3
    lone.acknowledge(2, index=2)
    lone.acknowledge(3, index=1)
    assert lone.raft.log.committed == 3
    lone.acknowledge(3, index=5)
    assert lone.raft.log.committed == 5


@pytest.mark.parametrize("log", [[2], [1, 2], [1, 1], [1, 2, 2], [2, 2, 2]])
def test_to_commit_an_entry_commits_all_before_it(log):
    """5.3: this also commits all preceding entries in the leader's log, including those of previous leaders."""
    lone = Lone(log=log, term=2, **PLAIN).lead()
    assert lone.raft.term == 3
    assert lone.applied == [*entries(log), Entry(3, len(log) + 1, b"")]


def test_the_leader_tells_how_far_it_has_committed():
    """5.3: it includes the highest index it knows to be committed in what it sends, so that the others find out."""
    lone = Lone(**PLAIN).lead()
    index = lone.raft.propose(b"x")
    lone.run()
    sent = lone.acknowledge(2)
    assert {(message.to, message.commit) for message in of(sent, APPEND)} >= {(2, index)}
    beats = of(lone.tick(), MessageType.HEARTBEAT)
    assert {beat.to: beat.commit for beat in beats} == {2: index, 3: 1}, "node 3 is known to have one entry only"


def test_a_heartbeat_never_tells_more_than_its_receiver_is_known_to_have():
    """5.3: a follower may trust a commit index: the leader sends only what the follower's log agrees with."""
    lone = Lone(log=(1, 1, 1), commit=3, **PLAIN)
    lone.elect()
    lone.acknowledge(2)
    assert lone.raft.log.committed == 4
    beats = of(lone.tick(), MessageType.HEARTBEAT)
    assert {beat.to: beat.commit for beat in beats} == {2: 4, 3: 0}


def test_the_leader_sends_again_until_all_have_it():
    """5.3: if messages are lost it retries indefinitely, even after it has answered the client."""
    lone = Lone(**PLAIN).lead()
    lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(2)
    assert lone.raft.log.committed == 2
    for _ in range(5):
        lone.raft.report(3, False)
        lone.tick()
        sent = lone.step(MessageType.HEARTBEAT_REPLY, 3)
        assert [entry.data for message in of(sent, APPEND) for entry in message.entries][-1:] == [b"x"]
    lone.acknowledge(3)
    lone.tick()
    assert of(lone.step(MessageType.HEARTBEAT_REPLY, 3), APPEND) == []


def test_a_message_lost_in_silence_is_noticed():
    """5.3: nobody reports the loss; that the heartbeats' answers do not reach the log's end is enough."""
    world = cluster(3)
    world.elect(1)
    world.partition((1, 2), (3,))
    world.propose(1, b"x")
    world.settle()
    world.heal()
    for _ in range(3):
        world.tick(1)
        world.settle()
    assert entries_of(world[3]) == entries_of(world[1])
    assert world[3].log.committed == 2


def test_a_slow_follower_holds_up_nobody():
    """2 and 5.3: a command completes as soon as a majority has answered."""
    world = cluster(5)
    world.elect(1)
    world.partition((1, 2, 3), (4,), (5,))
    for number in range(20):
        world.propose(1, b"%d" % number)
        world.settle()
    assert {world[id].log.applied for id in (1, 2, 3)} == {21}
    assert {world[id].log.applied for id in (4, 5)} == {1}


@pytest.mark.parametrize("other", [[], [1], [1, 1, 1], [1, 3, 3, 3]])
def test_a_leader_only_appends(other):
    """5.3 (leader append-only): a leader never overwrites or deletes entries in its log."""
    lone = Lone(log=[1, 2, 2], **PLAIN).lead()
    before = lone.log
    append(lone, other, term=2)
    lone.step(APPEND_REPLY, 2, index=3, reject=True, hint=0)
    lone.raft.propose(b"x")
    lone.run()
    assert lone.log[: len(before)] == before


# 5.3 Log replication: the followers


CONSISTENCY = [
    # the follower's log, (index, term) of the entry before, accepted
    ("nothing before", [1, 2], (0, 0), True),
    ("the same", [1, 2], (2, 2), True),
    ("the same in the middle", [1, 1, 2], (2, 1), True),
    ("another term", [1, 2], (2, 3), False),
    ("beyond the end", [1, 2], (3, 3), False),
    ("far beyond the end", [1, 2], (90, 3), False),
    ("another term in the middle", [1, 1, 2], (2, 2), False),
    ("empty log", [], (1, 1), False),
]


@pytest.mark.parametrize(
    ("log", "before", "accepted"), [case[1:] for case in CONSISTENCY], ids=[c[0] for c in CONSISTENCY]
)
def test_a_follower_refuses_what_does_not_follow_its_log(log, before, accepted):
    """5.3: if it has no entry with that index and term in its log, it refuses the new entries."""
    lone = follower(log, term=3)
    had = lone.log
    (reply,) = append(lone, [3], after=before)
    assert (reply.type, reply.to, reply.term, reply.reject) == (APPEND_REPLY, 2, 3, not accepted)
    if accepted:
        assert reply.index == before[0] + 1 and lone.terms == [*log[: before[0]], 3]
    else:
        assert reply.index == before[0] and lone.log == had
        place, term = reply.hint, reply.log_term
        assert place <= before[0] and (place, term) != before, "it says where the logs may still agree"
        assert place == 0 or log[place - 1] == term


APPENDS = [
    # own log, (index, term) before, new terms; the log and what is written of it
    ("append at the end", [1, 2], (2, 2), [3, 3], [1, 2, 3, 3], [3, 3]),
    ("append to nothing", [], (0, 0), [1], [1], [1]),
    ("conflict at the first", [1, 2], (0, 0), [3, 4], [3, 4], [3, 4]),
    ("conflict at the second", [1, 2], (1, 1), [3, 4], [1, 3, 4], [3, 4]),
    ("conflict, shorter", [1, 2, 2, 2], (1, 1), [3], [1, 3], [3]),
    ("partly there already", [1, 2], (0, 0), [1, 2, 3], [1, 2, 3], [3]),
    ("all there already", [1, 2], (0, 0), [1, 2], [1, 2], []),
    ("a first part, late", [1, 2, 2], (0, 0), [1], [1, 2, 2], []),
    ("nothing, in the middle", [1, 2, 2], (1, 1), [], [1, 2, 2], []),
    ("there, then a conflict", [1, 2, 2, 2], (0, 0), [1, 2, 3], [1, 2, 3], [3]),
]


@pytest.mark.parametrize(
    ("log", "before", "new", "after", "written"), [case[1:] for case in APPENDS], ids=[case[0] for case in APPENDS]
)
def test_only_conflicting_entries_are_deleted(log, before, new, after, written):
    """5.3 and figure 2: an entry that conflicts is deleted with all that follow it; what is there already stays, and so
    does what follows it: the message may be an old one."""
    lone = follower(log, term=4)
    lone.readies.clear()
    (reply,) = append(lone, new, after=before)
    assert not reply.reject and reply.index == before[0] + len(new)
    assert lone.terms == after
    assert [entry.term for ready in lone.readies for entry in ready.entries] == written


def test_the_same_request_twice_does_nothing_more():
    """5.5: Raft RPCs are idempotent: a follower ignores entries that are already present in its log."""
    lone = follower([1], term=2)
    first = append(lone, [2, 2], after=(1, 1), commit=2)
    log, applied = lone.log, list(lone.applied)
    lone.readies.clear()
    (again,) = append(lone, [2, 2], after=(1, 1), commit=2)
    assert not again.reject and lone.raft.log.committed <= again.index <= first[0].index
    assert (lone.log, lone.applied) == (log, applied)
    assert not any(ready.entries or ready.committed or ready.hard_state for ready in lone.readies)


def test_an_acknowledgement_waits_until_the_entries_are_durable():
    """5.3 and figure 2: log[] is updated on stable storage before responding."""
    lone = follower([1], term=1)
    lone.raft.step(Message(APPEND, 2, 1, 1, 1, 1, 0, entries([1, 1], after=1)))
    ready = lone.ready()
    assert [entry.index for entry in ready.entries] == [2, 3]
    assert not ready.messages
    assert [(message.type, message.index) for message in ready.messages_after] == [(APPEND_REPLY, 3)]


def test_a_follower_applies_what_it_learns_to_be_committed_in_log_order():
    """5.3: once a follower learns that an entry is committed it applies it, in log order, each once."""
    lone = follower([])
    append(lone, [1, 1, 1])
    assert lone.applied == []
    append(lone, [], after=(3, 1), commit=2)
    assert lone.applied == entries([1, 1])
    lone.step(MessageType.HEARTBEAT, 2, commit=3)
    assert lone.applied == entries([1, 1, 1])


FOLLOWER_COMMITS = [
    # own log, before, new terms, leader's commit, commit after
    ("less than there is", [1, 1], (2, 1), [1], 1, 1),
    ("exactly", [1, 1], (2, 1), [1], 3, 3),
    ("more than was sent", [1, 1], (2, 1), [1], 9, 3),
    ("its own tail is not confirmed", [1, 1, 1], (1, 1), [], 3, 1),
    ("its own tail beyond what was sent is not confirmed", [1, 1, 1, 1], (1, 1), [1], 4, 2),
    ("refused, so nothing", [1, 1], (3, 1), [1], 3, 0),
]


@pytest.mark.parametrize(
    ("log", "before", "new", "told", "commit"),
    [case[1:] for case in FOLLOWER_COMMITS],
    ids=[c[0] for c in FOLLOWER_COMMITS],
)
def test_a_follower_commits_no_further_than_its_log_is_known_to_agree(log, before, new, told, commit):
    """Figure 2: commitIndex = min(leaderCommit, index of last new entry); what lies beyond may yet conflict."""
    lone = follower(log, term=2)
    append(lone, new, after=before, commit=told)
    assert lone.raft.log.committed == commit


FIGURE_7 = {
    "leader": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("scenario", "abcdef")
@pytest.mark.parametrize("knobs", [PLAIN, {}], ids=["plain", "pre-vote"])
def test_the_logs_of_figure_7_become_the_leaders(scenario, knobs):
    """5.3, figure 7: the leader finds the last place where the logs agree, and overwrites what follows in theirs."""
    world = World()
    for id, name in ((1, "leader"), (2, scenario)):
        world.add(id, THREE, entries=entries(FIGURE_7[name]), hard_state=HardState(7), **knobs)
    world.add(3, THREE, hard_state=HardState(7), **knobs)
    world.elect(1)
    for _ in range(2):
        world.tick(1)
        world.settle()
    expected = [*FIGURE_7["leader"], 8]
    for id in (1, 2, 3):
        assert [entry.term for entry in entries_of(world[id])] == expected
        assert world[id].log.committed == len(expected)


BACKTRACKING = [
    # own log, the follower's log
    ("follower is short", [1] * 40, [1] * 3),
    ("follower has a long tail of an older term", [1, 1, 5, 5, 5, 5, 5, 5], [1, 1] + [3] * 40),
    ("follower has many terms", [1] + [9] * 20, [1] + [n for term in range(2, 8) for n in (term,) * 3]),
    ("leader has many terms", [1] + [n for term in (2, 4, 5, 6, 7, 8) for n in (term,) * 3], [1] + [3] * 30),
    ("nothing in common", [4] * 30, [2] * 30),
]


@pytest.mark.parametrize(("own", "other"), [case[1:] for case in BACKTRACKING], ids=[case[0] for case in BACKTRACKING])
def test_backtracking_takes_one_refusal_a_term_not_one_an_entry(own, other):
    """5.3: when refusing, the follower may tell the term of the conflicting entry; one refusal a term is enough."""
    world = World()
    for id, terms in ((1, own), (2, other)):
        world.add(id, Configuration(frozenset((1, 2))), entries=entries(terms), hard_state=HardState(9), **PLAIN)
    refusals = 0
    world.campaign(1)
    for _ in range(400):
        for id in (1, 2):
            world.work(id)
        if not world.links:
            break
        refusals += world.links[0].message.type == APPEND_REPLY and world.links[0].message.reject
        world.deliver()
    assert entries_of(world[2]) == entries_of(world[1]) and world[1].role == "LEADER"
    assert refusals <= 1 + min(len(set(own)), len(set(other)))


def test_a_late_refusal_moves_nothing_back():
    """5.3: nextIndex is never moved beneath what is known to match."""
    lone = Lone(**PLAIN).lead()
    for _ in range(3):
        lone.raft.propose(b"x")
    lone.run()
    lone.acknowledge(2, index=3)
    sent = lone.step(APPEND_REPLY, 2, index=1, reject=True, hint=0)
    assert all(message.index >= 3 for message in of(sent, APPEND) if message.to == 2)
    lone.raft.report(2, False)
    sent = lone.step(MessageType.HEARTBEAT_REPLY, 2)
    assert {message.index for message in of(sent, APPEND)} == {3}


# 5.4.2 Committing entries from previous terms


@pytest.mark.parametrize("old", [1, 2, 3])
def test_entries_of_previous_terms_are_not_committed_by_counting(old):
    """5.4.2: only entries of the leader's current term are committed by counting replicas."""
    lone = Lone(log=[1] * (old - 1) + [2], term=2, **PLAIN)
    lone.elect()
    lone.acknowledge(index=old)
    assert lone.raft.log.committed == 0, "on all three, and yet not committed"
    lone.acknowledge(2, index=old + 1)
    assert lone.raft.log.committed == old + 1


def test_figure_8():
    """5.4.2, figure 8: an entry of term 2 on a majority is overwritten by S5; had S1 committed it, it would be lost."""
    five = Configuration(frozenset(range(1, 6)))
    world = World()
    one, two = [1], [1, 2]
    # (a), (b): S1 led term 2 and reached S2; S5 led term 3 and has an entry of its own; S1 comes back.
    logs = {1: two, 2: two, 3: one, 4: one, 5: [1, 3]}
    for id, terms in logs.items():
        term, vote = (3, 5) if id in (3, 4, 5) else (2, 1)
        world.add(id, five, entries=entries(terms), hard_state=HardState(term, vote, 1), **PLAIN)
    # (c): S1 leads term 4 with S2 and S3; the entry of term 2 reaches S3: a majority has it, with no entry of term 4.
    world.partition((1, 2, 3), (4,), (5,))
    world.campaign(1)
    for id in (1, 2, 3):
        world.work(id)
    while world[1].role != "LEADER":
        world.campaign(1)
        world.settle(only=lambda message: message.type != APPEND)
    _replicate_without_the_last(world)
    assert {id: world.members[id].disk.term(2) for id in (1, 2, 3)} == {1: 2, 2: 2, 3: 2}
    assert world[1].log.committed == 1, "counting replicas would commit it"
    # (d): S1 goes down; S5 is elected by S3, S4 and itself, and overwrites it everywhere.
    world.crash(1)
    world.heal()
    while world[5].role != "LEADER":
        world.campaign(5)
        world.settle()
    for _ in range(3):
        world.tick(5)
        world.settle()
    assert [entry.term for entry in entries_of(world[5])][:2] == [1, 3]
    assert {world.members[id].disk.term(2) for id in (2, 3, 4, 5)} == {3}
    assert world[5].log.committed == 3


def _replicate_without_the_last(world: World) -> None:
    """Delivers S1's appends with the entry that opens its term cut off: it has not reached S2 and S3."""
    world.tick(1)
    for _ in range(30):
        for id in (1, 2, 3):
            world.work(id)
        if not world.links:
            return
        envelope = world.links[0]
        kept = tuple(entry for entry in envelope.message.entries if entry.term < world[1].term)
        world.links[0] = envelope._replace(message=envelope.message._replace(entries=kept))
        world.deliver()


@pytest.mark.parametrize("stands", [2, 3])
def test_a_later_leader_has_all_that_was_committed(stands):
    """5.4.3 (leader completeness): if an entry is committed in a term, it is in the logs of all later leaders."""
    world = cluster(3, **PLAIN)
    world.elect(1)
    world.partition((1, 2), (3,))
    for number in range(5):
        world.propose(1, b"%d" % number)
    world.settle()
    committed = entries_of(world[1])
    assert world[1].log.committed == 6
    world.crash(1)
    world.heal()
    world.campaign(stands)
    world.settle()
    if stands == 3:
        assert world[3].role != "LEADER", "it lacks what was committed"
        world.campaign(2)
        world.settle()
    assert world[2].role == "LEADER"
    assert entries_of(world[2])[:6] == committed
    assert entries_of(world[3])[:6] == committed


# 5.5 Follower and candidate crashes


@pytest.mark.parametrize("down", [2, 3])
def test_what_a_crashed_follower_missed_reaches_it_after_its_restart(down):
    """5.5: requests to a crashed server are retried until it is back, and complete then."""
    world = cluster(3)
    world.elect(1)
    world.crash(down)
    for number in range(30):
        world.propose(1, b"%d" % number)
        world.settle()
    world.restart(down)
    for _ in range(3):
        world.tick(1)
        world.settle()
    assert world.members[down].state == world.members[1].state
    assert len(world.members[down].state) == 31


def test_a_crash_before_the_answer_makes_the_same_request_harmless():
    """5.5: a server that crashes after it did what was asked and before it answered gets the same request again."""
    world = cluster(3)
    world.elect(1)
    world.propose(1, b"x")
    world.work(1)
    (position,) = [n for n, envelope in enumerate(world.links) if envelope.message.to == 2]
    again = world.links[position]
    world.deliver(position)
    world.turn(2)
    world.crash(2, kept=world.unsynced(2))
    world.restart(2)
    assert world[2].log.last_index == 2
    world.links.append(again)
    world.settle()
    assert world.members[2].state == world.members[1].state


# 7 Log compaction


def leader_with_snapshot() -> Lone:
    """It has compacted its log up to entry 5, and has just been elected."""
    lone = Lone(log=[1, 1], offset=5, offset_term=1, **PLAIN)
    lone.raft.snapshot_taken(SnapshotMeta(5, 1, THREE))
    lone.elect()
    return lone


def test_a_follower_that_needs_what_was_discarded_gets_the_snapshot():
    """7: the leader must send snapshots to followers that lag behind what it has discarded."""
    lone = leader_with_snapshot()
    sent = lone.step(APPEND_REPLY, 2, index=7, reject=True, hint=3, log_term=1)
    (message,) = of(sent, MessageType.SNAPSHOT)
    assert (message.to, message.term, message.snapshot) == (2, lone.raft.term, SnapshotMeta(5, 1, THREE))
    for _ in range(3):
        sent = lone.tick() + lone.step(MessageType.HEARTBEAT_REPLY, 2)
        assert of(sent, MessageType.SNAPSHOT, APPEND) == [], "one at a time, and nothing that it could not take"


@pytest.mark.parametrize("whole", [True, False], ids=["arrived", "lost"])
def test_after_a_snapshot_the_log_goes_on_or_it_is_sent_again(whole):
    """7: after the snapshot the follower has all that it holds; a lost one is sent again."""
    lone = leader_with_snapshot()
    lone.step(APPEND_REPLY, 2, index=7, reject=True, hint=3, log_term=1)
    lone.raft.report(2, True, snapshot=whole)
    sent = lone.run()
    if whole:
        sent += lone.step(APPEND_REPLY, 2, index=5)
    sent += lone.tick() + lone.step(MessageType.HEARTBEAT_REPLY, 2)
    if whole:
        assert [entry.index for message in of(sent, APPEND) if message.to == 2 for entry in message.entries] == [
            6,
            7,
            8,
        ]
        assert of(sent, MessageType.SNAPSHOT) == []
    else:
        sent += lone.step(APPEND_REPLY, 2, index=5, reject=True, hint=3, log_term=1)
        assert [message.snapshot.index for message in of(sent, MessageType.SNAPSHOT)] == [5]


def snapshot_message(index: int, term: int, configuration: Configuration = THREE, **fields) -> dict:
    return {"snapshot": SnapshotMeta(index, term, configuration), **fields}


@pytest.mark.parametrize("log", [[], [1, 1], [1, 1, 1, 2, 2, 2]], ids=["empty", "shorter", "conflicting"])
def test_a_snapshot_that_is_ahead_takes_the_logs_place(log):
    """7: usually the snapshot has what is not in the log yet; then the follower discards its entire log."""
    lone = follower(log, term=4)
    lone.raft.step(Message(MessageType.SNAPSHOT, 2, 1, 4, **snapshot_message(6, 3)))
    ready = lone.ready()
    assert ready.snapshot == SnapshotMeta(6, 3, THREE) and ready.must_sync and not ready.entries
    assert of(ready.messages, APPEND_REPLY) == []
    lone.persist(ready)
    sent = [*ready.messages_after, *lone.run()]
    assert [(message.to, message.index, message.reject) for message in of(sent, APPEND_REPLY)] == [(2, 6, False)]
    log_after = lone.raft.log
    assert (log_after.offset, log_after.offset_term, log_after.last_index) == (6, 3, 6)
    assert (log_after.committed, log_after.applied) == (6, 6)
    (reply,) = append(lone, [4], after=(6, 3), commit=7)
    assert not reply.reject and lone.applied == entries([4], after=6)


def test_a_snapshot_of_a_first_part_of_the_log_deletes_nothing_after_it():
    """7: entries that follow the snapshot are retained: they may have been acknowledged, and so be committed."""
    lone = follower([1, 1, 1, 2, 2], term=2, commit=1)
    lone.step(MessageType.SNAPSHOT, 2, **snapshot_message(3, 1))
    assert lone.raft.log.last_index == 5 and lone.raft.log.last_term == 2
    assert lone.raft.log.committed >= 3, "what is in a snapshot is committed"


@pytest.mark.parametrize("index", [1, 2, 3])
def test_a_snapshot_of_what_is_committed_here_is_not_installed(index):
    """7: a snapshot over newer state would take it back; the answer tells what is here."""
    lone = follower([1, 1, 1], term=2, commit=3)
    lone.readies.clear()
    sent = lone.step(MessageType.SNAPSHOT, 2, **snapshot_message(index, 1))
    assert [ready.snapshot for ready in lone.readies if ready.snapshot] == []
    assert (lone.raft.log.last_index, lone.raft.log.committed) == (3, 3)
    assert [(message.index, message.reject) for message in of(sent, APPEND_REPLY)] == [(3, False)]


def test_a_snapshot_brings_the_configuration():
    """7: the snapshot includes the latest configuration in the log as of its last entry (and 6)."""
    wider = Configuration(frozenset((1, 2, 3, 4)), learners=frozenset((5,)))
    lone = follower([1], term=2)
    lone.step(MessageType.SNAPSHOT, 2, **snapshot_message(6, 2, wider))
    assert lone.raft.configuration == wider
    lone.elect()
    assert lone.raft.role == "LEADER"
    asked = of(lone.sent, MessageType.VOTE)
    assert sorted(message.to for message in asked) == [2, 3, 4]


def test_the_log_is_forgotten_and_what_was_forgotten_is_still_known_by_its_end():
    """7: snapshots hold index and term of the last entry they replace, for the check of the first entry after it."""
    world = cluster(3)
    world.elect(1)
    for number in range(10):
        world.propose(1, b"%d" % number)
    world.settle()
    for id in (1, 2, 3):
        world.take_snapshot(id)
        assert (world[id].log.offset, world[id].log.offset_term) == (11, 1)
    world.propose(1, b"after")
    world.settle()
    assert {len(world.members[id].state) for id in (1, 2, 3)} == {12}
    for id in (1, 2, 3):
        world.crash(id)
        world.restart(id)
    world.elect(2)
    assert {len(world.members[id].state) for id in (1, 2, 3)} == {13}


@pytest.mark.parametrize(("lag", "compacted"), list(product((0, 3, 9), (0, 4, 8))))
def test_who_was_away_catches_up_by_log_or_snapshot(lag, compacted):
    """7: whatever part of the log was discarded meanwhile, the follower ends with the same state."""
    world = cluster(3)
    world.elect(1)
    for number in range(9):
        if number == lag:
            world.crash(3)
        world.propose(1, b"%d" % number)
        world.settle()
    if lag == 9:
        world.crash(3)
    if compacted:
        world.take_snapshot(1, compact=compacted)
    world.restart(3)
    for _ in range(4):
        world.tick(1)
        world.settle()
    assert world.members[3].state == world.members[1].state
    assert [entry.data for entry in world.members[3].state] == [b"", *(b"%d" % number for number in range(9))]
