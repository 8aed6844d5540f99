"""What receivers raise, and what is no valid entry: it ends nobody but whoever is at fault."""

from __future__ import annotations

import msgpack
import pytest
from replica_net import Outcome, ReplicaNet

from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put, RangeRequest, Txn, WatchBatch


def test_a_sink_that_raises_loses_its_watch_and_nobody_else_anything():
    net = ReplicaNet(members=1)
    net.settle()
    told: list[WatchBatch] = []
    others: list[WatchBatch] = []

    def sink(batch: WatchBatch) -> None:
        told.append(batch)
        raise KeyError("a bug")

    broken = net[1].hub.add(b"/", b"0", 0, sink)
    net[1].hub.add(b"/", b"0", 0, others.append)
    outcomes = [net.propose(net[1], Put(b"/a", b"v")) for _ in range(2)]
    net.settle()
    assert all(outcome.done for outcome in outcomes) and not net.nodes[1].failed
    assert broken.cancelled and [type(batch.error) for batch in told] == [type(None), Unavailable]
    assert sum(len(batch.events) for batch in others) == 2
    assert net[1].hub.in_vain == 2 and "a bug" in net[1].hub.last_in_vain


def test_a_reply_or_a_read_that_raises_is_counted_and_stops_nobody():
    net = ReplicaNet()
    leader = net.leader()

    def bad(*outcome: object) -> None:
        raise KeyError("a bug")

    leader.propose(Put(b"/a", b"v"), pack(Put(b"/a", b"v")), bad)
    leader.read(bad)
    after = net.propose(leader, Put(b"/b", b"v"))
    net.settle()
    net.tick(2)
    assert after.done and leader.tell.in_vain == 2 and "a bug" in leader.tell.last
    net.assert_alike()


def test_what_is_not_valid_is_refused_before_the_log():
    net = ReplicaNet()
    leader = net.leader()
    before = leader.raft.log.last_index
    for command in (Put(b"/a", b"v", lease=1 << 63), Put(b"", b"v"), Txn(success=(RangeRequest(b"a", limit=1 << 63),))):
        with pytest.raises(InvalidRequest):
            leader.propose(command, pack(command), Outcome())
    assert leader.raft.log.last_index == before


def test_an_entry_that_is_no_command_is_passed_over_alike():
    net = ReplicaNet()
    leader = net.leader()
    leader.raft.propose(b"no command")
    leader.raft.propose(msgpack.packb((1, [1, b"key", "no bytes"])))
    after = net.propose(leader, Put(b"/b", b"v"))
    net.settle()
    assert after.done
    net.assert_alike()


def test_a_committed_entry_of_a_later_version_ends_the_member_and_says_what_helps():
    net = ReplicaNet(members=1)
    leader = net.leader()
    leader.raft.propose(msgpack.packb((1, [99, "of a later version"])))
    net.settle()
    failed = net.nodes[1].failed
    assert "cannot apply entry 3: no message has the tag 99. A later version wrote it" in failed
    assert "start with --rejoin" in failed and "minikube-py store salvage its folder --to DIR2" in failed
