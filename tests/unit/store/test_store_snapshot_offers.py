"""What Raft has accepted, or is being verified, is not replaced by another offer under its feet."""

from __future__ import annotations

import pytest
from replica_net import ReplicaNet
from test_store_replica import fall_behind

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType, Term
from minikube_py.store.snapshot_transfer import TransferRefused


def test_a_snapshot_that_raft_accepted_is_not_replaced_by_another_offer():
    """The disk is busy when the first one is accepted, which is put in force only when that sync has ended. Until
    then a second offer, of a file that another member wrote, is refused."""
    net = ReplicaNet()
    behind = fall_behind(net)
    leader, node = net.leader(), net.nodes[behind]
    other = next(id for id in net.nodes if id not in (behind, leader.member_id))
    source = leader.snapshot_source()
    assert source is not None and node.replica is not None
    node.slow = True
    # Something to be synced, that keeps the disk busy: a later term.
    term = leader.raft.term
    node.replica.receive(Message(MessageType.HEARTBEAT, NodeId(other), NodeId(behind), Term(term + 1)))
    node.work()
    assert node.replica.syncing
    incoming = node.replica.incoming_snapshot(source.offer)
    while incoming.offset < source.offer.size_bytes:
        incoming.write(incoming.offset, source.read(incoming.offset))
    for sync in incoming.finish():
        if sync is not None:
            sync()
    snapshot = Message(MessageType.SNAPSHOT, NodeId(other), NodeId(behind), Term(term + 1), snapshot=source.offer.meta)
    node.replica.receive(snapshot)
    node.work()
    assert node.replica.syncing and node.replica.raft.accepted_snapshot == source.offer.meta
    for offer in (source.offer._replace(sha256=bytes(32)), source.offer):
        with pytest.raises(TransferRefused, match="about to be installed; offer it later"):
            node.replica.incoming_snapshot(offer)
    node.slow = False
    node.work()
    assert not node.failed and node.replica.raft.accepted_snapshot is None
    assert node.replica.files.snapshot.head.index == source.offer.meta.index
    source.close()
    net.heal()
    net.tick(30)
    net.put(b"/more")
    net.assert_alike()


def test_a_snapshot_that_another_offer_replaces_while_it_is_verified_is_refused():
    net = ReplicaNet()
    behind = fall_behind(net)
    source = net.leader().snapshot_source()
    incoming = net[behind].incoming_snapshot(source.offer)
    while incoming.offset < source.offer.size_bytes:
        incoming.write(incoming.offset, source.read(incoming.offset))
    steps = incoming.finish()
    next(steps)()
    net[behind].incoming_snapshot(source.offer._replace(sha256=bytes(32)))
    with pytest.raises(TransferRefused, match="it was replaced by another offer"):
        list(steps)
    source.close()
