"""While a member makes a large deletion ready, others are served: their reads, their writes and heartbeats."""

from __future__ import annotations

import pytest
from replica_net import ReplicaNet

from minikube_py.errors import InvalidRequest
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.ahead import KEYS_PER_SLICE, LARGE_KEYS
from minikube_py.mvcc.budgets import DELETED_MAX
from minikube_py.mvcc.types import DeclareFields, DeleteRange, Put, RangeRequest, Txn, prefix_end
from minikube_py.store.replica import Replica

EVERYTHING = RangeRequest(b"/k/", b"/k0", count_only=True)


def filled(members: int, keys: int) -> ReplicaNet:
    net = ReplicaNet(members=members, segment_bytes=1 << 20)
    leader = net.leader()
    for number in range(keys):
        net.propose(leader, Put(b"/k/%06d" % number, b"v"))
        if number % 100 == 0:
            net.settle()
    net.settle()
    return net


def step(net: ReplicaNet, leader: Replica) -> None:
    """One turn of the leader, and all of the others'."""
    node = net.nodes[leader.member_id]
    if node.sync is not None:
        sync, node.sync = node.sync.sync, None
        sync()
        net.send(leader.synced())
    turn = leader.turn()
    if turn is not None:
        net.send(turn.messages)
        node.sync = turn if turn.sync is not None else None
    for other in net.nodes.values():
        if other is not node:
            other.work()
    while net.queue:
        net.deliver(net.queue.popleft())


@pytest.mark.parametrize("members", [1, 3])
def test_reads_and_writes_come_between_the_slices_of_a_deletion(members: int) -> None:
    keys = LARGE_KEYS + 3 * KEYS_PER_SLICE
    net = filled(members, keys)
    leader = net.leader()
    before = net.propose(leader, Put(b"/before", b"v"))
    deletion = net.propose(leader, DeleteRange(b"/k/", b"/k0"))
    after = net.propose(leader, Put(b"/k/after", b"v"))
    for _ in range(1000):
        if before.done:
            break
        step(net, leader)
    slices, applied = 0, leader.raft.log.last_index - 2
    while not deletion.ended:
        assert leader.unfinished and not after.ended
        assert leader.raft.log.applied == applied, "it is not applied before it is"
        assert leader.state.range(EVERYTHING).count == keys, "all of it, until none of it"
        told: list[object] = []
        leader.read(told.append, linearizable=False)
        assert told == [None], "a read waits for nothing"
        leader.tick()
        turn = leader.turn()
        assert turn is None or turn.sync is None
        if turn is not None:
            net.send(turn.messages)
        slices += 1
    assert slices >= keys // KEYS_PER_SLICE - 1
    net.settle()
    assert deletion.result.deleted == keys and after.done
    assert leader.state.range(EVERYTHING).count == 1
    net.assert_alike()


def test_a_txn_that_deletes_more_than_its_bound_never_reaches_the_log() -> None:
    net = filled(1, DELETED_MAX + 1)
    leader = net.leader()
    index = leader.raft.log.last_index
    with pytest.raises(InvalidRequest, match=f"the limit is {DELETED_MAX}"):
        net.propose(leader, Txn(success=(DeleteRange(b"/k/", b"/k0"),)))
    assert leader.raft.log.last_index == index
    assert net.propose(leader, DeleteRange(b"/k/", b"/k0")) is not None
    net.settle()
    assert leader.state.range(EVERYTHING).count == 0


@pytest.mark.parametrize("turns", [2, 7, 9])
def test_a_member_that_ends_between_the_slices_has_the_same_rows_after_its_start(turns: int) -> None:
    """Of rows and sums, too, nothing is kept that a start would not make again."""
    pods, net = LARGE_KEYS + 10, ReplicaNet(members=3, segment_bytes=1 << 20)
    leader = net.leader()
    for field_set in (NODES, PODS):
        net.propose(leader, DeclareFields(field_set))
    for number in range(50):
        net.propose(leader, Put(NODES.prefix + b"n%d" % number, b'{"status":{"allocatable":{"cpu":"9","pods":"99"}}}'))
    for number in range(pods):
        net.propose(leader, Put(PODS.prefix + b"d/%06d" % number, b'{"spec":{"nodeName":"n%d"}}' % (number % 60)))
        if number % 100 == 0:
            net.settle()
    net.settle()
    deletion = net.propose(leader, DeleteRange(PODS.prefix, prefix_end(PODS.prefix)))
    while not leader.unfinished:
        step(net, leader)
    for _ in range(turns):
        leader.turn()
    assert not deletion.ended
    node = net.nodes[leader.member_id]
    node.crash(power=False)
    node.start()
    for _ in range(100):
        net.tick()
    net.assert_alike()
    assert len({net[id].state.hash() for id in net.nodes}) == 1
    free = Where((Comparison("free.pods", "=", ("99",)),))
    for id in net.nodes:
        state = net[id].state
        assert state.range(RangeRequest(PODS.prefix, prefix_end(PODS.prefix), count_only=True)).count == 0
        assert len(state.range(RangeRequest(NODES.prefix, prefix_end(NODES.prefix), where=free)).kvs) == 50
