"""Several replicas, wired by hand: one test for each thing a member promises beside the others."""

from __future__ import annotations

import dataclasses

import pytest
from replica_net import ALL, CLUSTER, SMALL, Outcome, ReplicaNet

from minikube_py.errors import (
    Compacted,
    Corruption,
    InvalidRequest,
    NotLeader,
    OutcomeUnknown,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Compact, LeaseGrant, LeaseRevoke, Put, WatchBatch
from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import Message, MessageType
from minikube_py.sim.disk import SimDisk
from minikube_py.store.membership import ChangeKind, Member, MemberChange
from minikube_py.store.replica_config import Bootstrap, ReplicaConfig

EXPECT, JOIN, PROMOTE, REMOVE, UPDATE = list(ChangeKind)[1:]


def others(net: ReplicaNet, replica) -> list[int]:
    return [id for id in net.nodes if id != replica.member_id]


def joiner(id: int) -> Bootstrap:
    return Bootstrap(CLUSTER, id)


# -- writes -----------------------------------------------------------------------------------------------------------


def test_three_members_apply_the_same_and_hash_alike():
    net = ReplicaNet()
    for i in range(50):
        assert net.put(b"/k/%d" % (i % 7), b"%d" % i).result.revision == i + 2
    net.assert_alike()
    assert net.contents(1) == net.contents(2) == net.contents(3)


def test_all_proposals_of_a_turn_are_one_write_and_one_message_per_peer():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(5)
    sent = []
    net.drop = lambda message: bool(message.entries and sent.append(message))
    outcomes = [net.propose(leader, Put(b"/%d" % i, b"v")) for i in range(200)]
    turn = leader.turn()
    assert turn.entries == 200 and turn.sync is not None
    assert sorted(message.to for message in turn.messages if message.entries) == others(net, leader)
    net.send(turn.messages)
    turn.sync()
    net.send(leader.synced())
    net.settle()
    assert all(outcome.done for outcome in outcomes)
    assert len(sent) == 2


def test_only_what_is_durable_at_a_majority_is_answered():
    net = ReplicaNet()
    leader = net.leader()
    for id in others(net, leader):
        net.nodes[id].slow = True
    outcome = net.propose(leader, Put(b"/a", b"v"))
    net.settle()
    assert not outcome.ended
    net.nodes[others(net, leader)[0]].slow = False
    net.settle()
    assert outcome.done


def test_heartbeats_and_applies_go_on_while_the_leaders_disk_is_slow():
    net = ReplicaNet()
    leader = net.leader()
    first = net.propose(leader, Put(b"/first", b"v"))
    net.settle()
    net.nodes[leader.member_id].slow = True
    second = net.propose(leader, Put(b"/second", b"v"))
    net.tick(60)
    assert first.done and not second.ended, "the second is not durable here, though both others have it"
    assert net.leader() is leader
    net.nodes[leader.member_id].slow = False
    net.settle()
    assert second.done
    net.assert_alike()


def test_who_does_not_lead_says_who_does():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(5)
    follower = net[others(net, leader)[0]]
    with pytest.raises(NotLeader) as refusal:
        net.propose(follower, Put(b"/a", b"v"))
    assert refusal.value.leader_id == leader.member_id
    assert refusal.value.address == f"h{leader.member_id}:2"
    net.isolate(follower.member_id)
    net.tick(30)
    with pytest.raises(NotLeader) as refusal:
        net.propose(follower, Put(b"/a", b"v"))
    assert refusal.value.leader_id == 0


def test_too_large_a_request_is_refused():
    net = ReplicaNet(members=1, config=ReplicaConfig(request_bytes_max=100))
    net.settle()
    with pytest.raises(RequestTooLarge):
        net.propose(net[1], Put(b"/a", bytes(101)))


def test_a_proposal_that_was_overwritten_ends_as_unknown_and_never_happened():
    net = ReplicaNet()
    old = net.leader()
    net.isolate(old.member_id)
    lost = [net.propose(old, Put(b"/lost/%d" % i, b"v")) for i in range(3)]
    net.settle()
    new = net.leader(of=tuple(others(net, old)))
    kept = net.propose(new, Put(b"/kept", b"v"))
    net.settle()
    assert kept.done and not any(outcome.ended for outcome in lost)
    net.heal()
    net.tick(10)
    assert all(isinstance(outcome.error, OutcomeUnknown) for outcome in lost)
    net.assert_alike()
    assert b"/lost/0" not in net.contents(old.member_id) and b"/kept" in net.contents(old.member_id)


def test_a_leader_that_hears_from_no_majority_gives_up_what_waits():
    net = ReplicaNet()
    old = net.leader()
    net.isolate(old.member_id)
    outcome = net.propose(old, Put(b"/a", b"v"))
    net.tick(25)
    assert isinstance(outcome.error, OutcomeUnknown) and not old.leading
    assert old.waiting == 0


def test_an_unknown_one_may_have_happened():
    net = ReplicaNet()
    old = net.leader()
    one, other = others(net, old)
    # The entry reaches the others, and no answer comes back.
    net.cut |= {(one, old.member_id), (other, old.member_id)}
    outcome = net.propose(old, Put(b"/a", b"v"))
    net.settle()
    net.isolate(old.member_id)
    net.leader(of=(one, other))
    net.tick(25)
    assert isinstance(outcome.error, OutcomeUnknown)
    net.heal()
    net.assert_alike()
    assert net.contents(old.member_id) == {b"/a": b"v"}


def test_a_leader_that_crashes_in_the_midst_of_a_batch_loses_nothing_it_answered():
    for seed in range(10):
        net = ReplicaNet(seed)
        done: dict[bytes, bytes] = {}
        for turn in range(5):
            leader = net.leader()
            keys = [b"/%d/%d" % (turn, i) for i in range(20)]
            outcomes = {key: net.propose(leader, Put(key, key)) for key in keys}
            for _ in range(net.rng.randrange(6)):
                for node in net.nodes.values():
                    if net.rng.random() < 0.7:
                        node.work()
                for _ in range(net.rng.randrange(4)):
                    if net.queue:
                        net.deliver(net.queue.popleft())
            done |= {key: key for key, outcome in outcomes.items() if outcome.done}
            net.nodes[leader.member_id].crash()
            assert all(outcome.ended is outcome.done for outcome in outcomes.values())
            net.leader(of=tuple(others(net, leader)))
            net.nodes[leader.member_id].start()
        net.put(b"/last")
        net.assert_alike()
        assert done.items() <= net.contents(1).items()


# -- reads ------------------------------------------------------------------------------------------------------------


def test_a_read_sees_what_was_acknowledged_whoever_is_asked():
    net = ReplicaNet()
    net.put(b"/a", b"1")
    for id in net.nodes:
        outcome = Outcome()
        net[id].read(outcome.read)
        net.settle()
        assert outcome.done and net[id].state.get(b"/a").value == b"1"


def test_reads_of_one_turn_share_one_round():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(5)
    outcomes = [Outcome() for _ in range(100)]
    asked = []
    net.drop = lambda message: bool(message.type == MessageType.HEARTBEAT and asked.append(message))
    for outcome in outcomes:
        leader.read(outcome.read)
    net.settle()
    assert all(outcome.done for outcome in outcomes) and len(asked) == 2


def test_a_leader_that_was_deposed_unknowingly_answers_no_read():
    net = ReplicaNet()
    old = net.leader()
    net.isolate(old.member_id)
    outcome = Outcome()
    old.read(outcome.read)
    net.settle()
    new = net.leader(of=tuple(others(net, old)))
    net.propose(new, Put(b"/new", b"v"))
    net.settle()
    assert not outcome.ended
    net.heal()
    net.tick(10)
    assert outcome.done and old.state.get(b"/new") is not None, "asked again, of the new leader"


def test_a_read_without_any_leader_is_refused_in_the_end():
    net = ReplicaNet(config=dataclasses.replace(SMALL, read_ticks=40))
    net.leader()
    net.isolate(1, 2, 3)
    net.isolate(1)
    net.isolate(2)
    net.isolate(3)
    outcome = Outcome()
    net[1].read(outcome.read)
    net.tick(30)
    assert not outcome.ended
    net.tick(40)
    assert isinstance(outcome.error, Unavailable) and net[1].waiting_reads == 0


def test_a_serializable_read_is_local_and_may_be_old():
    net = ReplicaNet()
    leader = net.leader()
    follower = net[others(net, leader)[0]]
    net.isolate(follower.member_id)
    net.propose(leader, Put(b"/a", b"v"))
    net.settle()
    outcome = Outcome()
    follower.read(outcome.read, linearizable=False)
    assert outcome.done and follower.state.get(b"/a") is None


def test_a_sole_voter_reads_at_once_but_not_before_it_has_applied_its_log():
    net = ReplicaNet(members=1)
    early = Outcome()
    net[1].read(early.read)
    assert not early.ended
    net.settle()
    assert early.done
    net.put(b"/a")
    net.nodes[1].crash()
    again = net.nodes[1].start()
    outcome = Outcome()
    again.read(outcome.read)
    assert not outcome.ended
    net.settle()
    assert outcome.done and again.state.get(b"/a") is not None
    now = Outcome()
    again.read(now.read)
    assert now.done


# -- snapshots --------------------------------------------------------------------------------------------------------


def fall_behind(net: ReplicaNet, writes: int = 60) -> int:
    """A follower that lacks what the others have forgotten."""
    leader = net.leader()
    behind = others(net, leader)[0]
    net.isolate(behind)
    for i in range(writes):
        net.put(b"/k/%d" % i, bytes(50))
    for id in net.nodes:
        if id != behind:
            net.snapshot(id)
    assert leader.raft.log.offset > net[behind].raft.log.last_index
    return behind


def test_a_follower_that_lacks_what_is_forgotten_gets_the_snapshot():
    net = ReplicaNet()
    behind = fall_behind(net)
    old = net[behind].state
    net.heal()
    net.tick(10)
    net.assert_alike()
    assert net[behind].state is not old
    assert net[behind].files.snapshot[1:] == net.leader().files.snapshot[1:], "the same file"
    for i in range(5):
        net.put(b"/more/%d" % i)
    net.nodes[behind].crash()
    net.nodes[behind].start()
    net.assert_alike()


def test_a_read_waits_until_the_snapshot_it_needs_is_in_force():
    net = ReplicaNet()
    behind = fall_behind(net)
    net.heal()
    held = []
    net.drop = lambda message: message.type == MessageType.SNAPSHOT and not held.append(message)
    net.until(lambda: bool(held))
    newest = net.contents(net.leader().member_id)
    seen = []
    net[behind].read(lambda error: seen.append((error, net.contents(behind))))
    net.settle()
    assert not seen, "its index is known, and beyond what is applied here"
    net.drop = lambda message: False
    net.deliver(held[0])
    net.settle()
    assert seen == [(None, newest)]


def test_a_follower_that_is_a_little_behind_gets_entries():
    net = ReplicaNet(config=dataclasses.replace(SMALL, tail_entries_max=100))
    leader = net.leader()
    behind = others(net, leader)[0]
    net.isolate(behind)
    for i in range(60):
        net.put(b"/k/%d" % i)
    net.snapshot(leader.member_id)
    old = net[behind].state
    net.heal()
    net.tick(10)
    net.assert_alike()
    assert net[behind].state is old


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (ReplicaConfig(tail_entries_max=7), range(7, 8)),
        (ReplicaConfig(tail_entries_max=1000, tail_bytes_max=10_000), range(7, 10)),
        (ReplicaConfig(tail_entries_max=0), range(1)),
    ],
    ids=["entries", "bytes", "none"],
)
def test_the_log_behind_a_snapshot_is_bounded(config, kept):
    net = ReplicaNet(config=config)
    leader = net.leader()
    for i in range(30):
        net.put(b"/%d" % i, bytes(1000))
    net.snapshot(leader.member_id)
    log = leader.raft.log
    assert leader.files.snapshot.head.index - log.offset in kept


def test_alone_nothing_of_the_log_is_kept_in_memory():
    net = ReplicaNet(members=1)
    for i in range(30):
        net.put(b"/%d" % i)
    assert net[1].raft.log.offset == net[1].raft.log.applied


def test_a_transfer_that_breaks_off_goes_on_where_it_was():
    net = ReplicaNet()
    behind = fall_behind(net)
    source = net.leader().snapshot_source()
    incoming = net[behind].incoming_snapshot(source.offer)
    incoming.write(0, source.read(0, 1000))
    again = net[behind].incoming_snapshot(source.offer)
    assert again is incoming and again.offset == 1000
    other = net[behind].incoming_snapshot(source.offer._replace(sha256=bytes(32)))
    assert other.offset == 0 and incoming.closed


def test_a_snapshot_may_be_replaced_while_it_is_sent():
    net = ReplicaNet()
    behind = fall_behind(net)
    leader = net.leader()
    source = leader.snapshot_source()
    first = source.read(0, 100)
    net.put(b"/more")
    net.snapshot(leader.member_id)
    assert leader.files.snapshot.head.index > source.offer.meta.index
    incoming = net[behind].incoming_snapshot(source.offer)
    incoming.write(0, first)
    while incoming.offset < source.offer.size_bytes:
        incoming.write(incoming.offset, source.read(incoming.offset))
    for sync in incoming.finish():
        if sync is not None:
            sync()
    assert incoming.complete
    net.heal()
    net.tick(10)
    net.assert_alike()


def test_a_snapshot_that_is_announced_and_not_here_changes_nothing():
    net = ReplicaNet()
    behind = fall_behind(net)
    leader, target = net.leader(), net[behind]
    meta = leader.raft.latest_snapshot
    before = target.raft.log.last_index
    announced = Message(MessageType.SNAPSHOT, leader.member_id, target.member_id, leader.raft.term, snapshot=meta)
    for whole in (False, True):
        if whole:
            source = leader.snapshot_source()
            incoming = target.incoming_snapshot(source.offer)
            incoming.write(0, source.read(0, source.offer.size_bytes))
            assert not incoming.complete, "the bytes are here, and not verified"
        target.receive(announced)
        net.nodes[behind].work()
        assert not net.nodes[behind].failed and target.raft.log.last_index == before
    net.heal()
    net.tick(10)
    net.assert_alike()


def test_watchers_go_on_over_an_installed_snapshot_without_gap_or_double():
    net = ReplicaNet()
    net.put(b"/w/0")
    behind = others(net, net.leader())[0]
    hub = net[behind].hub
    seen: list[int] = []
    hub.add(b"/", b"0", 0, lambda batch: seen.extend(event.kv.mod_revision for event in batch.events))
    net.put(b"/w/1")
    assert seen == [3]
    leader = net.leader()
    net.isolate(behind)
    for i in range(30):
        net.put(b"/w/%d" % i)
    net.snapshot(leader.member_id)
    net.heal()
    net.tick(10)
    assert net[behind].hub is hub and net[behind].state.revision == 33
    assert seen == [3] and hub.behind == 1, "it reads the log a budget at a time"
    while hub.catch_up(budget=7):
        pass
    net.put(b"/w/last")
    assert seen == list(range(3, 35))


def test_a_watcher_whose_history_is_gone_with_the_snapshot_is_told():
    net = ReplicaNet()
    leader = net.leader()
    behind = others(net, leader)[0]
    seen: list[WatchBatch] = []
    net[behind].hub.add(b"/", b"0", 0, seen.append)
    net.put(b"/a")
    net.isolate(behind)
    for i in range(30):
        net.put(b"/w/%d" % i)
    net.propose(leader, Compact(20))
    net.settle()
    net.snapshot(leader.member_id)
    net.heal()
    net.tick(10)
    net[behind].hub.catch_up()
    assert isinstance(seen[-1].error, Compacted) and seen[-1].revision == 2


# -- members ----------------------------------------------------------------------------------------------------------


def test_a_member_is_added_promoted_and_removed():
    net = ReplicaNet()
    for i in range(20):
        net.put(b"/k/%d" % i)
    assert net.change(EXPECT, name="store-4", peer="h4:1", client="h4:2").done
    assert net.change(JOIN, id=4, name="store-4").done
    net.add(4, joiner(4)).start()
    net.until(lambda: net[4].raft.log.applied == net.leader().raft.log.applied)
    assert net[4].raft.configuration == Configuration(frozenset((1, 2, 3)), learners=frozenset((4,)))
    assert net[4].membership.get(4).learner and not net[4].leading
    assert net.change(PROMOTE, id=4).done
    net.assert_alike()
    assert 4 in net[4].raft.configuration.voters
    gone = others(net, net.leader())[0]
    assert net.change(REMOVE, id=gone).done
    net.tick(5)
    assert net[gone].removed and not net[gone].leading
    net.assert_alike(*others(net, net[gone]))
    # Restarted it may have forgotten that its removal is committed; it disturbs nobody.
    term = net.leader().raft.term
    net.nodes[gone].crash()
    net.nodes[gone].start()
    net.tick(100)
    assert net.leader(of=tuple(others(net, net[gone]))).raft.term == term


def test_a_leader_that_is_removed_leads_until_that_is_settled_and_then_others_do():
    net = ReplicaNet()
    old = net.leader()
    assert net.change(REMOVE, id=old.member_id).done
    assert old.removed and not old.leading
    new = net.leader(of=tuple(others(net, old)))
    outcome = net.propose(new, Put(b"/a", b"v"))
    net.settle()
    assert outcome.done


def test_a_wiped_member_comes_back_under_a_new_id_through_a_snapshot():
    net = ReplicaNet()
    for i in range(20):
        net.put(b"/k/%d" % i)
    wiped = others(net, net.leader())[0]
    name = net[wiped].membership.get(wiped).name
    net.nodes[wiped].crash()
    del net.nodes[wiped]
    assert net.change(JOIN, id=9, name=name, rejoin=True).done
    net.tick(5)
    leader = net.leader()
    assert leader.raft.configuration == Configuration(frozenset({1, 2, 3} - {wiped}), learners=frozenset((9,))), (
        "the joint configuration was left by itself"
    )
    net.add(9, joiner(9)).start()
    net.until(lambda: net[9].raft.log.applied == leader.raft.log.applied)
    assert net.change(PROMOTE, id=9).done
    net.assert_alike()
    assert net.contents(9)[b"/k/7"] == b"v"
    assert leader.membership.named(name) == Member(9, name, f"h{wiped}:1", f"h{wiped}:2")
    # It counts now: with one of the old ones away the cluster goes on.
    net.nodes[others(net, leader)[0]].crash()
    assert net.put(b"/after").done


def test_a_joiner_that_restarts_before_it_heard_anything_does_not_found_a_cluster():
    net = ReplicaNet()
    node = net.add(4, joiner(4))
    replica = node.start()
    for _ in range(3):
        for _ in range(50):
            replica.tick()
            node.work()
        assert not replica.leading and replica.raft.term == 0 and not replica.membership.members
        node.crash()
        replica = node.start()
        assert (replica.cluster_id, replica.member_id) == (CLUSTER, 4)


def test_one_member_grows_to_three():
    net = ReplicaNet(members=1)
    for i in range(10):
        net.put(b"/k/%d" % i)
    for id in (2, 3):
        name = f"store-{id}"
        assert net.change(EXPECT, name=name).done and net.change(JOIN, id=id, name=name).done
        net.add(id, joiner(id)).start()
        net.until(lambda id=id: net[id].raft.log.applied == net[1].raft.log.applied)
        assert net.change(PROMOTE, id=id).done
    net.nodes[1].crash()
    assert net.leader(of=(2, 3)).member_id != 1
    net.nodes[1].start()
    assert net.put(b"/after").done
    net.assert_alike()


def test_whoever_joins_gets_a_snapshot_also_where_the_log_reaches_back_to_its_first_entry():
    """A sole member that never took one lets another in and is killed: its log alone does not say who founded it."""
    net = ReplicaNet(members=0)
    node = net.add(1, None)
    node.start()
    net.settle()
    id = node.id = net[1].member_id
    net.nodes[id] = net.nodes.pop(1)
    net.propose(net[id], Put(b"/a", b"v"))
    for change in (MemberChange(EXPECT, name="second"), MemberChange(JOIN, 4, "second")):
        outcome = Outcome()
        net[id].propose_change(change, outcome)
        net.settle()
        assert outcome.done
    assert net[id].files.snapshot is None
    node.crash(power=False)
    node.start()
    net.settle()
    assert net[id].leading and net[id].raft.log.offset >= 1
    net.add(4, Bootstrap(net[id].cluster_id, 4)).start()
    net.until(lambda: net[4].raft.log.applied == net[id].raft.log.applied)
    assert net[4].membership == net[id].membership and net[4].membership.get(id) is not None
    net.assert_alike()


def test_a_log_from_before_there_were_several_is_that_of_a_member_alone():
    net = ReplicaNet(members=0)
    node = net.add(1, None)
    node.start()
    net.settle()
    node.id = net[1].member_id
    assert net[1].leading and [member.name for member in net[1].membership.members] == [""]
    net.put(b"/a")
    node.crash()
    node.start()
    net.settle()
    assert net[1].leading and net.contents(1) == {b"/a": b"v"}


REFUSALS = [
    ("promote a voter", MemberChange(PROMOTE, 2), InvalidRequest, "votes already"),
    ("join unexpected", MemberChange(JOIN, 8, "eve"), InvalidRequest, "announce it first"),
    ("update a stranger", MemberChange(UPDATE, 8), InvalidRequest, "no member 8"),
]


@pytest.mark.parametrize(
    ("change", "error", "message"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_a_change_that_does_not_fit_is_refused_before_it_is_proposed(change, error, message):
    net = ReplicaNet()
    leader = net.leader()
    last = leader.raft.log.last_index
    with pytest.raises(error, match=message):
        leader.propose_change(change, Outcome())
    assert leader.raft.log.last_index == last
    with pytest.raises(NotLeader):
        net[others(net, leader)[0]].propose_change(change, Outcome())


def test_one_change_at_a_time():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(3)
    first = Outcome()
    leader.propose_change(MemberChange(EXPECT, name="d"), first)
    with pytest.raises(Unavailable, match="one at a time"):
        leader.propose_change(MemberChange(EXPECT, name="e"), Outcome())
    net.settle()
    assert first.done and leader.membership.expecting("d") is not None
    net.assert_alike()


def test_members_survive_snapshots_and_restarts():
    net = ReplicaNet()
    assert net.change(EXPECT, name="d", peer="d:1", learner=True).done
    assert net.change(UPDATE, id=2, client="new:2").done
    membership = net.leader().membership
    for id in (1, 2, 3):
        net.snapshot(id)
        net.nodes[id].crash()
    for id in (1, 2, 3):
        assert net.nodes[id].start().membership == membership
    net.leader()
    net.assert_alike()


def test_leadership_is_handed_over():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(3)
    heir = others(net, leader)[0]
    outcome = net.propose(leader, Put(b"/a", b"v"))
    leader.transfer(heir)
    with pytest.raises(Unavailable, match="being transferred"):
        net.propose(leader, Put(b"/b", b"v"))
    net.settle()
    assert net[heir].leading and not leader.leading and outcome.done
    leader.transfer(leader.member_id)
    net.settle()
    assert leader.leading, "a follower asks for it too"


# -- failing ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_ends_one_member_and_the_cluster_goes_on():
    net = ReplicaNet()
    leader = net.leader()
    net.put(b"/a")
    disk = net.nodes[leader.member_id].disk
    disk.capacity_bytes = disk.used_bytes()
    disk.fail_sync_after(0)
    outcome = net.propose(leader, Put(b"/b", b"v"))
    net.settle()
    assert isinstance(outcome.error, OutcomeUnknown)
    assert net.nodes[leader.member_id].failed and leader.failure
    with pytest.raises(Unavailable, match="has failed"):
        net.propose(leader, Put(b"/c", b"v"))
    read = Outcome()
    leader.read(read.read)
    assert isinstance(read.error, Unavailable)
    new = net.leader(of=tuple(others(net, leader)))
    outcome = net.propose(new, Put(b"/c", b"v"))
    net.settle()
    assert outcome.done


def test_a_write_that_does_not_fit_the_disk_ends_the_member():
    net = ReplicaNet(segment_bytes=32 << 10)
    leader = net.leader()
    follower = net.nodes[others(net, leader)[0]]
    follower.disk.capacity_bytes = follower.disk.used_bytes()
    for i in range(60):
        net.put(b"/%d" % i, bytes(1000))
    assert "cannot write the log" in follower.failed and "no space" in follower.failed
    assert len(net.contents(leader.member_id)) == 60


def test_a_member_whose_log_was_rolled_back_is_found_out():
    """An acknowledged log that is gone is no crash: the leader's words cannot be true beside it, and it must end."""
    net = ReplicaNet()
    leader = net.leader()
    victim = others(net, leader)[0]
    net.put(b"/a")
    net.settle()
    node = net.nodes[victim]
    old = {name: bytes(data) for name, data in node.disk.image().items()}
    for i in range(5):
        net.put(b"/%d" % i)
    net.tick(5)
    node.crash()
    node.disk = type(node.disk).from_image({name: bytearray(data) for name, data in old.items()})
    node.start()
    net.tick(5)
    assert "is an older copy, or was truncated" in node.failed


@pytest.mark.parametrize("members", [1, 3])
def test_what_was_acknowledged_is_missed_when_it_rots(members):
    """Without something written behind it, a broken record at the log's end looks like one that was never finished."""
    net = ReplicaNet(members=members)
    net.leader()
    assert net.put(b"/acknowledged").done
    for node in list(net.nodes.values()):
        node.crash(power=False)
        image = node.disk.image()
        [log] = [content for name, content in image.items() if name.startswith("wal-")]
        assert log.count(b"/acknowledged") == 1
        log[log.index(b"/acknowledged")] ^= 1
        node.disk = SimDisk.from_image(image)
        with pytest.raises(Corruption, match="durable when the one at"):
            node.start()


def test_a_leader_that_is_removed_tells_who_waits():
    net = ReplicaNet()
    leader = net.leader()
    net.tick(3)
    removed = Outcome()
    leader.propose_change(MemberChange(REMOVE, leader.member_id), removed)
    last = leader.raft.log.last_index
    # What the others have of the write that follows, it does not hear of.
    net.drop = lambda message: message.type == MessageType.APPEND_REPLY and message.index > last
    for _ in range(2):
        for node in net.nodes.values():
            node.work()
        while net.queue and net.queue[0].to != leader.member_id:
            net.deliver(net.queue.popleft())
    written = net.propose(leader, Put(b"/a", b"v"))
    net.settle()
    assert removed.done and not leader.leading
    assert isinstance(written.error, OutcomeUnknown), "without waiting for another tick or message"


# -- leases -----------------------------------------------------------------------------------------------------------


def test_the_listener_hears_of_each_lease_on_every_member():
    net = ReplicaNet()
    heard: dict[int, list[tuple[int, int]]] = {id: [] for id in net.nodes}
    for id in net.nodes:
        net[id].lease_listener = lambda lease, id=id: heard[id].append((lease.id, lease.ttl_s))
    leader = net.leader()
    for command in (LeaseGrant(5, 60), LeaseGrant(5, 60), LeaseRevoke(5), LeaseRevoke(5)):
        net.propose(leader, command)
    net.settle()
    net.tick(5)
    assert all(each == [(5, 60), (5, 0)] for each in heard.values())


def test_the_packed_command_is_what_the_others_apply():
    net = ReplicaNet()
    leader = net.leader()
    outcome = Outcome()
    leader.propose(Put(b"/a", b"v"), pack(Put(b"/a", b"v")), outcome)
    net.settle()
    assert outcome.done and leader.state.range(ALL).count == 1
    net.assert_alike()
