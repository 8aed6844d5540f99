"""Where implementations of Raft went wrong before: what is durable, what is committed, who votes, who is a member."""

from __future__ import annotations

from collections import Counter

import pytest
from raft_net import Net

from minikube_py.raft.configuration import Change, ChangeRefused, ChangeType, ConfChange, Configuration
from minikube_py.raft.log import RaftLog, Write
from minikube_py.raft.message import Entry, HardState, Message, MessageType, SnapshotMeta
from minikube_py.raft.ready import ProposalDropped, ReadState, UnknownPeer

ADD, REMOVE, LEARN = ChangeType.ADD_VOTER, ChangeType.REMOVE, ChangeType.ADD_LEARNER
APPEND, APPEND_REPLY, HEARTBEAT = MessageType.APPEND, MessageType.APPEND_REPLY, MessageType.HEARTBEAT
TICKS = 10


def change(*pairs, **fields) -> ConfChange:
    return ConfChange(tuple(Change(type, node) for type, node in pairs), **fields)


def led(voters=(1, 2, 3), by=1, **config) -> Net:
    net = Net(voters, **config)
    if config.get("lease_reads"):
        # Elections wait out the leases that voters may have granted in an earlier life, but for those called for.
        net[by].raft.step(Message(MessageType.TIMEOUT_NOW, max(voters), by, 1))
        net.settle()
    else:
        net.elect(by)
    assert net.leader() == by
    return net


def roles(net: Net) -> dict[int, str]:
    return {node.id: node.raft.role for node in net.up}


def peer(net: Net, leader: int, node: int):
    return next(one for one in net[leader].raft.status().peers if one.id == node)


# What is durable


def test_a_follower_acknowledges_only_what_is_durable():
    net = led()
    net.isolate(3)
    net.hold_disk(2)
    index = net.propose(1, b"x")
    assert net[1].raft.log.committed < index and net[2].raft.log.last_index == index
    net.release_disk(2)
    net.settle()
    assert net[1].raft.log.committed == index


def test_the_leaders_own_entries_count_once_durable():
    net = led()
    net.hold_disk(1)
    net.isolate(3)
    index = net.propose(1, b"x")
    assert peer(net, 1, 2).match == index, "the peer has it while the leader's own disk is still busy"
    assert net[1].raft.log.committed < index
    net.release_disk(1)
    net.settle()
    assert net[1].raft.log.committed == index


def test_a_majority_of_others_commits_before_the_leaders_disk_and_is_applied_there_after():
    net = led()
    net.hold_disk(1)
    index = net.propose(1, b"x")
    assert net[1].raft.log.committed == index
    assert net.applied(2) == [b"x"] and net.applied(1) == [], "what is applied here must be durable here"
    net.release_disk(1)
    net.settle()
    assert net.applied(1) == [b"x"]


def test_heartbeats_and_commits_flow_while_the_disk_is_busy():
    net = led()
    net.hold_disk(1)
    net.propose(1, b"x")
    net.propose(1, b"y")
    assert net[1].raft.log.committed == 3, "y waits for the disk, and is not sent before it is written"
    net.tick(4 * TICKS, 1)
    assert net.leader() == 1
    assert net.applied(2) == [b"x"]


def test_one_append_a_peer_for_all_that_is_written_together():
    net = led()
    for number in range(50):
        net[1].raft.propose(b"%d" % number)
    net.work(1)
    sent = [message for message in net.mail if message.type == APPEND]
    assert [(message.to, len(message.entries)) for message in sent] == [(2, 50), (3, 50)]
    assert sent[0].entries is sent[1].entries


def test_one_reply_for_all_that_was_written_together():
    net = led()
    net.hold_disk(2)
    for number in range(5):
        net.propose(1, b"%d" % number)
    net.release_disk(2)
    assert [message.index for message in net.mail if message.type == APPEND_REPLY] == [3]
    net.deliver()
    net.work(2)
    assert [message.index for message in net.mail if message.type == APPEND_REPLY] == [7]


def test_a_write_on_its_way_attests_nothing_of_what_replaced_it():
    net = led()
    net.cut(1, 3)
    net.hold_disk(2)
    for data in (b"a", b"b"):
        net[1].raft.propose(data)
    net.work(1)
    net.deliver()
    net.work(2)
    assert net[2].raft.log.last_index == 4 and net[2].disk.written
    net.crash(1)
    term = net[2].raft.term + 1
    two = net[2].raft
    two.step(Message(APPEND, 3, 2, term, 2, 2, 2, [Entry(term, 3, b"other")]))
    net[2].disk.held = False
    net[2].sync()
    assert (two.log.stable, two.log.last_index) == (2, 3)
    net.work(2)
    assert two.log.stable == 3


def test_a_commit_is_written_down_only_for_entries_that_are_durable():
    net = Net((1, 2, 3))
    two = net[2].raft
    two.step(Message(APPEND, 1, 2, 2, 1, 1, 3, [Entry(2, 2, b"a"), Entry(2, 3, b"b")]))
    assert two.log.committed == 3
    ready = two.ready()
    assert ready.hard_state == HardState(2, 0, 1), "torn, this write must not leave a commit beyond the log"
    assert ready.committed == []
    two.persisted(2, 3)
    assert [entry.index for entry in two.ready().committed] == [2, 3] and two.hard_state().commit == 3


def test_durability_is_told_in_order_and_once():
    net = led((1,))
    raft = net[1].raft
    with pytest.raises(ValueError, match="nothing was handed out"):
        raft.persisted(raft.term, 1)
    raft.propose(b"x")
    raft.ready()
    for term, index in ((raft.term + 1, 3), (raft.term, 4)):
        with pytest.raises(ValueError, match="what was handed out first"):
            raft.persisted(term, index)
    raft.persisted(raft.term, 3)
    with pytest.raises(ValueError, match="last one given out"):
        raft.applied(4)


def test_what_promises_nothing_new_waits_for_no_write():
    """A second reply about entries that are durable is no reason to sync."""
    net = led()
    two = net[2].raft
    two.step(Message(APPEND, 1, 2, two.term, two.term, 2, 2))
    ready = two.ready()
    assert not ready.must_sync
    assert [(message.type, message.index) for message in ready.messages] == [(APPEND_REPLY, 2)]


# What is committed


def test_a_heartbeat_tells_no_more_than_the_peer_has():
    net = led()
    net.isolate(3)
    net.propose(1, b"x")
    net[1].raft.tick()
    net.work(1)
    assert {message.to: message.commit for message in net.mail if message.type == HEARTBEAT} == {2: 3, 3: 2}


def test_an_append_below_the_commit_is_answered_with_it():
    net = led()
    net.propose(1, b"x")
    two = net[2].raft
    two.step(Message(APPEND, 1, 2, two.term, 1, 1, 3, [Entry(2, 2, b"")]))
    replies = two.ready().messages
    assert [(message.type, message.index, message.reject) for message in replies] == [(APPEND_REPLY, 3, False)]
    assert two.log.last_index == 3


def test_followers_learn_at_once_what_is_committed():
    """A last entry does not wait for a heartbeat to be applied everywhere."""
    net = led()
    net.propose(1, b"last")
    assert [net.applied(node) for node in (1, 2, 3)] == [[b"last"]] * 3


# Loss


@pytest.mark.parametrize("lost", [APPEND, APPEND_REPLY], ids=lambda type: type.name)
def test_one_heartbeat_repairs_what_was_lost(lost):
    net = led()
    net.drop = lambda message: message.type == lost
    for number in range(5):
        net.propose(1, b"%d" % number)
    net.drop = lambda message: False
    assert net[1].raft.log.committed == 2
    net.tick(1, 1)
    assert [len(net.applied(node)) for node in (1, 2, 3)] == [5, 5, 5]


def test_an_append_that_went_missing_among_others_is_sent_again():
    net = led()
    skip = Counter()

    def second_of_each(message):
        if message.type == APPEND and message.entries:
            skip[message.to] += 1
            return skip[message.to] == 2
        return False

    net.drop = second_of_each
    for number in range(4):
        net[1].raft.propose(b"%d" % number)
        net.work(1)
    net.settle()
    assert [net.applied(node) for node in (1, 2, 3)] == [[b"0", b"1", b"2", b"3"]] * 3


def test_no_more_is_under_way_than_the_limits_say():
    net = led(inflight_messages_max=3, append_bytes_max=100)
    net.isolate(2)
    for number in range(40):
        net[1].raft.propose(b"%02d" % number + bytes(60))
    net.work(1)
    sent = Counter(message.to for message in net.mail if message.type == APPEND)
    assert sent == {2: 3, 3: 3}
    net.settle()
    assert len(net.applied(3)) == 40
    net.tick(5, 1)
    assert peer(net, 1, 2).inflight_messages <= 3
    net.heal()
    net.tick(1, 1)
    assert len(net.applied(2)) == 40


def test_a_link_reported_as_lost_is_probed_with_one_message():
    net = led()
    net[1].raft.report(2, reachable=False)
    assert peer(net, 1, 2).state == "probe"
    for number in range(3):
        net[1].raft.propose(b"%d" % number)
        net.work(1)
    assert [message.to for message in net.mail if message.type == APPEND] == [2, 3, 3, 3]
    net.settle()
    assert peer(net, 1, 2).state == "replicate" and len(net.applied(2)) == 3


# Snapshots


def behind(keep: int = 0, **config) -> Net:
    """3 is cut off, and what it needs is gone from the leader's log but for the last `keep` entries."""
    net = led(**config)
    net.isolate(3)
    for number in range(10):
        net.propose(1, b"%d" % number)
    net.snapshot(1, keep)
    net.heal()
    return net


def test_who_needs_what_is_gone_gets_a_snapshot():
    net = behind()
    net.tick(2, 1)
    assert net[3].raft.log.offset == 12 and net.applied(3) == net.applied(1)
    assert peer(net, 1, 3).state == "replicate"
    net.propose(1, b"on")
    assert net.applied(3)[-1] == b"on"


def test_who_finds_it_in_the_tail_gets_entries():
    net = behind(keep=10)
    net.drop = lambda message: message.type == MessageType.SNAPSHOT
    net.tick(2, 1)
    assert net.applied(3) == net.applied(1) and net[3].raft.log.offset == 1


def test_a_snapshot_under_way_is_sent_once_and_given_up_after_a_time():
    net = behind(snapshot_ticks=5)
    sent = []
    one = net[1].raft
    for _ in range(3):
        one.step(Message(MessageType.HEARTBEAT_REPLY, 3, 1, one.term))
        one.step(Message(APPEND_REPLY, 3, 1, one.term, reject=True, index=12, hint=2, log_term=2))
        sent += [message for message in one.ready().messages if message.type == MessageType.SNAPSHOT]
    assert len(sent) == 1 and peer(net, 1, 3).state == "snapshot"
    for _ in range(4):
        one.tick()
    one.report(3, reachable=True)
    one.tick()
    assert peer(net, 1, 3).state == "snapshot", "it was heard that it goes on"
    for _ in range(4):
        one.tick()
    assert peer(net, 1, 3).state == "probe"


@pytest.mark.parametrize(("well", "next"), [(True, 13), (False, 3)])
def test_how_a_snapshot_ended_is_reported(well, next):
    net = behind()
    net.drop = lambda message: message.sender == 3
    net[1].raft.step(Message(APPEND_REPLY, 3, 1, 2, reject=True, index=11, hint=2, log_term=2))
    net.work(1)
    assert peer(net, 1, 3).state == "snapshot"
    net[1].raft.report(3, reachable=True, snapshot=well)
    assert (peer(net, 1, 3).state, peer(net, 1, 3).next) == ("probe", next)


SNAPSHOTS = [
    ("older than what is committed", SnapshotMeta(2, 2, Configuration(frozenset((1, 2, 3)))), 3),
    ("without this member", SnapshotMeta(50, 2, Configuration(frozenset((1, 3)))), 3),
]


@pytest.mark.parametrize(("meta", "answer"), [case[1:] for case in SNAPSHOTS], ids=[case[0] for case in SNAPSHOTS])
def test_snapshots_that_are_not_taken_are_answered_with_the_commit(meta, answer):
    net = led()
    net.propose(1, b"x")
    two = net[2].raft
    two.step(Message(MessageType.SNAPSHOT, 1, 2, two.term, snapshot=meta))
    ready = two.ready()
    assert ready.snapshot is None and not ready.must_sync
    assert [(message.type, message.index) for message in ready.messages] == [(APPEND_REPLY, answer)]


def test_a_snapshot_of_what_is_here_already_only_commits_it():
    net = led()
    two = net[2].raft
    two.step(Message(APPEND, 1, 2, 2, 2, 2, 2, [Entry(2, 3, b"a"), Entry(2, 4, b"b")]))
    two.step(Message(MessageType.SNAPSHOT, 1, 2, 2, snapshot=SnapshotMeta(3, 2, two.configuration)))
    assert two.log.committed == 3 and two.log.last_index == 4 and two.ready().snapshot is None


def test_a_snapshot_is_taken_over_only_when_the_driver_can_write():
    """Until then `applied` and the configuration are those of the state that the driver has."""
    net = Net((1, 2, 3))
    two = net[2].raft
    after = Configuration(frozenset((1, 2)))
    two.step(Message(MessageType.SNAPSHOT, 1, 2, 2, snapshot=SnapshotMeta(9, 2, after)))
    ready = two.ready(can_write=False)
    assert ready.snapshot is None and two.log.applied == 1 and two.configuration.voters == {1, 2, 3}
    two.step(Message(MessageType.HUP, 2, 2))
    assert two.role == "FOLLOWER", "who votes is in the snapshot"
    ready = two.ready()
    assert ready.snapshot.index == 9 and two.log.applied == 9 and two.configuration == after
    assert [(message.type, message.index) for message in ready.messages_after] == [(APPEND_REPLY, 9)]
    assert two.ready() == two.ready(can_write=False), "nothing twice"


def test_a_snapshot_that_does_not_contain_the_peer_is_not_sent_to_it():
    """One from before it joined would be of no use to it: a newer one is wanted."""
    net = Net((1, 2), joining=(3,))
    net.elect(1)
    sent = []
    net.drop = lambda message: message.type == MessageType.SNAPSHOT and sent.append(message.snapshot)
    net.change(1, change((LEARN, 3)))
    assert [meta.configuration.contains(3) for meta in sent] == [True], "taken after it joined"
    assert net[3].raft.configuration == sent[0].configuration and not net[1].raft.snapshot_wanted


def test_nobody_silent_is_sent_a_snapshot():
    net = behind()
    net.isolate(3)
    net[1].raft.transfer(2)
    net.settle()
    net.snapshot(2)
    net.tick(30, 2)
    assert net.leader() == 2 and peer(net, 2, 3).state == "probe"


# Who votes


def test_a_member_that_was_cut_off_disturbs_nobody():
    net = led()
    net.isolate(3)
    net.tick(5 * TICKS)
    term = net[1].raft.term
    assert net[3].raft.term == term and net[3].raft.role == "PRE_CANDIDATE"
    net.heal()
    net.tick(3)
    assert roles(net) == {1: "LEADER", 2: "FOLLOWER", 3: "FOLLOWER"} and net[1].raft.term == term


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_member_that_got_ahead_while_cut_off_comes_back(pre_vote):
    """Its term is above the leader's, it heeds no older leader and gets no votes: the leader must learn of it."""
    net = led(pre_vote=pre_vote)
    net.isolate(3)
    three = net[3].raft
    three.step(Message(MessageType.VOTE_REPLY, 2, 3, 7, reject=True))
    net.settle()
    assert three.term == 7
    net.heal()
    net.tick(6 * TICKS)
    leader = net.leader()
    net.propose(leader, b"again")
    assert [net.applied(node) for node in (1, 2, 3)] == [[b"again"]] * 3


def test_a_vote_asked_for_while_a_leader_is_heard_is_not_answered():
    net = led()
    two = net[2].raft
    for context, term in ((b"", 2), (b"transfer", 9)):
        two.step(Message(MessageType.VOTE, 3, 2, 9, 9, 90, context=context))
        assert two.term == term


def test_without_check_quorum_only_the_pre_vote_heeds_the_leader():
    net = led(check_quorum=False)
    two = net[2].raft
    two.step(Message(MessageType.PRE_VOTE, 3, 2, 9, 9, 90))
    assert two.ready() == net[2].raft.ready() and two.term == 2
    two.step(Message(MessageType.VOTE, 3, 2, 9, 9, 90))
    assert two.term == 9 and two.vote == 3


def test_a_refused_candidate_does_not_keep_others_from_standing():
    net = Net((1, 2, 3), pre_vote=False, check_quorum=False)
    two = net[2].raft
    ticks = 0
    while two.role == "FOLLOWER":
        two.tick()
        two.step(Message(MessageType.VOTE, 3, 2, 2 + ticks, 0, 0))
        ticks += 1
        assert ticks <= 2 * TICKS


def test_a_pre_vote_that_found_a_voter_in_its_lease_is_asked_again():
    """Voters hear of the leader for the last time a tick apart; that must not cost a whole timeout."""
    net = led()
    net.crash(1)
    two, three = net[2].raft, net[3].raft
    while two.role == "FOLLOWER" and two.term == 2:
        two.tick()
    net.settle()
    assert two.role == "PRE_CANDIDATE", "3 has not missed the leader yet"
    for _ in range(TICKS):
        if three.role == "FOLLOWER":
            three.tick()
    two.tick()
    net.settle()
    assert net.leader() == 2


def test_who_has_a_change_to_apply_does_not_stand():
    net = led()
    one = net[1].raft
    one.propose_change(change((REMOVE, 3)))
    net.work(1)
    net.deliver()
    net.work(2, 3)
    two = net[2].raft
    two.step(Message(HEARTBEAT, 1, 2, 2, commit=3))
    assert two.log.committed == 3 and two.configuration.voters == {1, 2, 3}
    two.step(Message(MessageType.TIMEOUT_NOW, 1, 2, 2))
    assert two.role == "FOLLOWER"
    net.work(2)
    assert two.configuration.voters == {1, 2, 3}, "before that it is committed is durable"
    net.work(2)
    assert two.configuration.voters == {1, 2}
    two.step(Message(MessageType.TIMEOUT_NOW, 1, 2, 2))
    assert two.role == "CANDIDATE"


def test_a_change_is_in_force_only_once_it_is_noted_that_it_is_committed():
    """Else all who put it in force could forget that at once, and go by a majority that is there no more."""
    log = RaftLog(entries=[Entry(1, 1, b"a", 0), Entry(1, 2, b"c", 1), Entry(1, 3, b"b", 0), Entry(1, 4, b"c", 1)])
    log.committed = 4
    assert [entry.index for entry in log.deliver(1 << 20)] == [1]
    assert log.unnoted_change() == 2 and not log.deliver(1 << 20)
    log.persisted(Write(1, 4, 2))
    assert [entry.index for entry in log.deliver(1 << 20)] == [2, 3]
    assert log.unnoted_change() == 4 and not log.deliver(1 << 20)
    log.persisted(Write(1, 4, 4))
    assert [entry.index for entry in log.deliver(1 << 20)] == [4]


def test_one_who_is_in_no_configuration_keeps_quiet():
    net = Net((1,), joining=(2,))
    net.tick(5 * TICKS, 2)
    net.elect(2)
    assert net[2].raft.role == "FOLLOWER" and net[2].raft.term == 0


# Members


def test_from_one_to_three_and_back():
    net = led((1,))
    net.propose(1, b"alone")
    for node in (2, 3):
        net.add(node)
        net.change(1, change((LEARN, node)))
        net.tick(2)
        net.change(1, change((ADD, node)))
    assert net[3].raft.configuration == Configuration(frozenset((1, 2, 3)))
    net.crash(1)
    net.tick(5 * TICKS)
    leader = net.leader()
    assert leader in (2, 3)
    net.propose(leader, b"without the first")
    net.restart(1)
    net.tick(3)
    for node in sorted({1, 2, 3} - {leader}):
        net.change(leader, change((REMOVE, node)))
    assert net[leader].raft.configuration == Configuration(frozenset((leader,)))
    net.isolate(leader)
    net.propose(leader, b"alone again")
    assert net.applied(leader) == [b"alone", b"without the first", b"alone again"]
    assert net.read(leader, b"r")[0].index == net[leader].raft.log.committed


def test_a_learner_counts_for_nothing_until_it_is_promoted():
    net = Net((1, 2), learners=(3,))
    net.elect(1)
    net.isolate(2)
    index = net.propose(1, b"x")
    assert net[1].raft.log.committed < index and peer(net, 1, 3).match == index and peer(net, 1, 3).learner
    net.heal()
    net.tick(2)
    net.change(1, change((ADD, 3)))
    net.isolate(2)
    index = net.propose(1, b"y")
    assert net[1].raft.log.committed == index
    net.heal()
    net[1].raft.transfer(3)
    net.tick(2)
    assert net.leader() == 3


def test_learners_keep_no_leader_in_office():
    net = Net((1, 2, 3), learners=(4, 5))
    net.elect(1)
    net.cut(1, 2)
    net.cut(1, 3)
    net.tick(2 * TICKS, 1)
    assert net[1].raft.role != "LEADER"


def test_a_new_voter_does_not_cost_the_leader_its_quorum():
    net = led((1,))
    net.add(2)
    net.isolate(2)
    for _ in range(TICKS - 1):
        net[1].raft.tick()
    net.change(1, change((ADD, 2)))
    net.tick(1, 1)
    assert net[1].raft.role == "LEADER"


def test_a_leader_commits_its_own_removal_and_steps_down():
    net = led()
    index = net.change(1, change((REMOVE, 1)))
    assert net[1].raft.role == "FOLLOWER" and net[1].raft.log.committed == index
    assert {net[node].raft.log.applied for node in (2, 3)} == {index}, "the others know of it at once"
    with pytest.raises(ProposalDropped):
        net[1].raft.propose(b"x")
    net.tick(5 * TICKS)
    assert net.leader() in (2, 3) and net[1].raft.role == "FOLLOWER"


def test_a_removed_member_hears_of_it():
    net = led()
    net.change(1, change((REMOVE, 3)))
    assert not net[3].raft.configuration.contains(3)
    net.tick(5 * TICKS)
    assert net.leader() == 1 and net[1].raft.term == 2
    with pytest.raises(UnknownPeer, match="node 3 is not a member"):
        net[1].raft.step(Message(APPEND_REPLY, 3, 1, 2))


def test_a_demoted_leader_holds_up_nobody_who_still_needs_its_vote():
    """1 is the only one to know that its demotion is committed; it leads no more, and its log is the longer one."""
    net = led((1, 2))
    one, two = net[1].raft, net[2].raft
    one.propose_change(change((LEARN, 1), (ADD, 2)))
    while not (one.configuration.joint and two.configuration.joint):
        net.work()
        net.deliver()
    net.work(1)
    one.propose(b"never committed")
    net.deliver()
    net.work(2)
    net.deliver()
    net.work(1)
    net.work(1)
    net.mail.clear()
    assert one.configuration.learners == {1} and one.role == "FOLLOWER" and two.configuration.joint
    assert one.log.last_index > two.log.last_index
    net.tick(4 * TICKS)
    assert net.leader() == 2
    net.propose(2, b"on")
    assert net.applied(1) == net.applied(2) == [b"on"]


def test_several_changes_go_by_a_joint_configuration_that_is_left_by_itself():
    net = led(joining=(4, 5))
    one = net[1].raft
    one.propose_change(change((REMOVE, 2), (REMOVE, 3), (ADD, 4), (ADD, 5)))
    seen = set()
    for _ in range(40):
        net.work()
        net.deliver()
        seen.add((one.configuration.voters, one.configuration.outgoing))
    net.tick(2)
    old, new = frozenset((1, 2, 3)), frozenset((1, 4, 5))
    assert seen == {(old, frozenset()), (new, old), (new, frozenset())}
    assert net[5].raft.configuration == Configuration(new)


def test_one_change_at_a_time():
    net = led()
    one = net[1].raft
    one.propose_change(change((REMOVE, 3)))
    with pytest.raises(ProposalDropped, match="not applied yet"):
        one.propose_change(change((REMOVE, 2)))
    net.settle()
    with pytest.raises(ChangeRefused, match="not joint"):
        one.propose_change(ConfChange(leave_joint=True))
    one.propose_change(change((REMOVE, 2)))


def test_a_new_leader_takes_no_change_before_it_knows_of_the_last():
    net = led()
    net.hold_disk(1)
    net.hold_disk(3)
    net[1].raft.propose_change(change((REMOVE, 3)))
    net.work()
    net.deliver()
    net.crash(1)
    net.release_disk(3)
    net[2].raft.step(Message(MessageType.TIMEOUT_NOW, 1, 2, 2))
    for _ in range(20):
        if net[2].raft.role == "LEADER":
            break
        net.work(2, 3)
        net.deliver()
    assert net[2].raft.log.changes == [3]
    with pytest.raises(ProposalDropped, match="not applied yet"):
        net[2].raft.propose_change(change((LEARN, 4)))
    net.settle()
    assert net[2].raft.configuration.voters == {1, 2}


# Transfer


def test_a_transfer_passes_pre_vote_and_leases_and_brings_the_log_along():
    net = led()
    net.cut(1, 3)
    net.propose(1, b"x")
    net.heal()
    net[1].raft.transfer(3)
    with pytest.raises(ProposalDropped, match="transferred to node 3"):
        net[1].raft.propose(b"y")
    net.tick(1, 1)
    assert net.leader() == 3 and net[3].raft.term == 3 and net.applied(3) == [b"x"]


def test_a_follower_passes_the_wish_on():
    net = led()
    net[2].raft.transfer(3)
    net.settle()
    assert net.leader() == 3


def test_a_transfer_that_does_not_come_about_ends_after_an_election_timeout():
    net = led()
    net.isolate(3)
    net[1].raft.transfer(3)
    net.tick(TICKS - 1, 1)
    assert net[1].raft.status().transferee == 3
    net.tick(1, 1)
    assert net[1].raft.status().transferee == 0
    net.propose(1, b"on")
    assert net.applied(1) == [b"on"]


def test_who_cannot_lead_is_given_no_leadership():
    net = Net((1, 2), learners=(3,))
    net.elect(1)
    for node in (3, 9):
        with pytest.raises(ProposalDropped, match=f"node {node} is not a voter"):
            net[1].raft.transfer(node)
        net[1].raft.step(Message(MessageType.TRANSFER, 2, 1, 2, hint=node))
        assert net[1].raft.status().transferee == 0
    net[1].raft.transfer(1)
    net.propose(1, b"still here")


# Reads


def test_a_read_waits_until_the_leader_has_committed_in_its_term():
    net = Net((1, 2, 3))
    one = net[1].raft
    net.drop = lambda message: message.type == APPEND
    net.elect(1)
    assert one.role == "LEADER" and net.read(1, b"early") == []
    net.drop = lambda message: False
    net.tick(1, 1)
    assert net[1].read_states == [ReadState(2, b"early")]


def test_reads_share_a_round_and_what_comes_meanwhile_is_the_next():
    net = led()
    one = net[1].raft
    for name in (b"a", b"b"):
        one.read_index(name)
    net.work(1)
    one.read_index(b"c")
    net.work(1)
    assert [message.type for message in net.mail] == [HEARTBEAT] * 2, "one round under way"
    net.deliver()
    net.work(2)
    net.deliver(1)
    net.work(1)
    assert [state.context for state in net[1].read_states] == [b"a", b"b"]
    net.settle()
    assert [state.context for state in net[1].read_states] == [b"a", b"b", b"c"]


def test_an_answer_to_an_attempt_before_confirms_nothing_after_it():
    net = led()
    one = net[1].raft
    net.isolate(1)
    one.read_index(b"a")
    net.work(1)
    first = {message.context for message in net.mail if message.type == HEARTBEAT}
    net.settle()
    one.tick()
    net.work(1)
    second = {message.context for message in net.mail if message.type == HEARTBEAT}
    assert len(first) == len(second) == 1 and first != second, "a fresh id for each attempt"
    net.settle()
    one.step(Message(MessageType.HEARTBEAT_REPLY, 2, 1, 2, context=(99).to_bytes(8, "big")))
    one.step(Message(MessageType.HEARTBEAT_REPLY, 2, 1, 2, context=b"x"))
    one.step(Message(MessageType.HEARTBEAT_REPLY, 2, 1, 1, context=first.pop()))
    assert one.ready().read_states == []
    one.step(Message(MessageType.HEARTBEAT_REPLY, 2, 1, 2, context=second.pop()))
    assert one.ready().read_states == [ReadState(2, b"a")]


def test_reads_of_a_leader_that_steps_down_are_failed():
    net = led()
    net.isolate(1)
    assert net.read(1, b"a") == []
    net[1].raft.step(Message(MessageType.VOTE, 2, 1, 9, 9, 9, context=b"transfer"))
    assert net[1].raft.ready().read_states == [ReadState(None, b"a")]


def test_reads_of_a_follower_whose_leader_goes_are_failed():
    net = led()
    net.cut(2, 1)
    assert net.read(2, b"a") == []
    net[2].raft.step(Message(HEARTBEAT, 3, 2, 9))
    assert net[2].raft.ready().read_states == [ReadState(None, b"a")]
    with pytest.raises(ProposalDropped, match="no leader"):
        Net((1, 2, 3))[1].raft.read_index(b"b")


def test_a_forwarded_read_that_gets_lost_is_given_up():
    net = led()
    net.drop = lambda message: message.type == MessageType.READ_INDEX
    assert net.read(2, b"a") == []
    net.tick(TICKS)
    assert net[2].read_states == [ReadState(None, b"a")]


def test_a_late_answer_to_an_earlier_life_is_not_taken_for_one_to_this():
    net = led()
    net.drop = lambda message: message.type == MessageType.READ_INDEX_REPLY
    late = []
    net.drop = lambda message: message.type == MessageType.READ_INDEX_REPLY and not late.append(message)
    net.read(2, b"a")
    net.propose(1, b"x")
    net.crash(2)
    net.restart(2)
    net.tick(1, 1)
    net[2].raft.read_index(b"a")
    net.work(2)
    net[2].raft.step(late[0])
    assert net[2].raft.ready().read_states == []
    net.drop = lambda message: False
    net.settle()
    assert net[2].read_states == [ReadState(3, b"a")]


def test_who_does_not_lead_says_so_to_a_forwarded_read():
    net = led()
    two = net[2].raft
    two.step(Message(MessageType.READ_INDEX, 3, 2, 2, context=b"q"))
    reply = two.ready().messages[0]
    assert (reply.type, reply.reject, reply.context) == (MessageType.READ_INDEX_REPLY, True, b"q")


def test_reads_are_bounded():
    net = led(reads_max=3)
    net.isolate(1)
    net.isolate(2)
    for node in (1, 2):
        for _ in range(3):
            net[node].raft.read_index(b"r")
        with pytest.raises(ProposalDropped, match="over 3 reads"):
            net[node].raft.read_index(b"r")


def test_leases_answer_at_once_until_a_majority_is_silent_for_half_a_timeout():
    net = led(lease_reads=True)
    one = net[1].raft
    net.tick(1, 1)
    one.read_index(b"a")
    assert one.ready().messages == [] and one.read_states == []
    net.isolate(1)
    net.tick(TICKS // 2 - 1, 1)
    assert net.read(1, b"b") == [ReadState(2, b"b")]
    net.tick(1, 1)
    assert net.read(1, b"c") == []


def test_a_lease_ends_when_another_is_called_to_lead():
    net = led(lease_reads=True)
    net.tick(1, 1)
    net.drop = lambda message: message.type == MessageType.TIMEOUT_NOW
    net[1].raft.transfer(2)
    net.tick(TICKS)
    net.isolate(1)
    assert net.read(1, b"a") == [], "the call may still be under way"


def test_a_lease_that_was_granted_outlasts_a_larger_term():
    """Or a voter that hears of a term would be free to elect another while the leader still reads by its lease."""
    net = led(lease_reads=True)
    net.tick(1)
    two = net[2].raft
    two.step(Message(MessageType.VOTE_REPLY, 3, 2, 8, reject=True))
    assert two.term == 8
    two.step(Message(MessageType.HUP, 2, 2))
    assert two.role == "FOLLOWER"
    for ticks in range(TICKS + 1):
        two.step(Message(MessageType.VOTE, 3, 2, 9, 9, 9))
        assert two.term == (8 if ticks < TICKS else 9)
        two.tick()


def test_a_voter_that_restarts_keeps_the_lease_it_may_have_granted():
    net = led(lease_reads=True)
    net.crash(2)
    net.restart(2)
    two = net[2].raft
    for ticks in range(TICKS + 1):
        two.step(Message(MessageType.VOTE, 3, 2, 9, 9, 9))
        assert two.term == (2 if ticks < TICKS else 9)
        two.tick()
