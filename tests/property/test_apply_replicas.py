"""One and three members under what anyone may send, and under entries that an earlier release let into its log.

All live, agree, come back the same from log and snapshot; and what indexes answer is what the objects say.
"""

from __future__ import annotations

from typing import Any

import edges
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replica_net import Outcome, ReplicaNet

from minikube_py.errors import Compacted, InvalidRequest, MinikubeError
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import read_where, readings_of
from minikube_py.mvcc.codec import NewerMessage, pack, unpack
from minikube_py.mvcc.scanned import Scanned
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import DeclareFields, RangeRequest, prefix_end

HISTORIES = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
ENTRIES = st.lists(st.tuples(st.sampled_from(["send", "send", "raw"]), edges.packed | edges.hostile_bytes), max_size=14)


def send(net: ReplicaNet, how: str, data: bytes) -> None:
    """ "raw": straight into the log, as a release without validation would have; but for what a later one wrote."""
    leader = net.leader()
    try:
        command = unpack(data)
    except NewerMessage:
        return
    except InvalidRequest:
        command = None
    try:
        if how == "raw":
            leader.raft.propose(data)
        elif command is not None:
            leader.propose(command, data, Outcome())
    except MinikubeError:
        return
    net.settle()


def agree(state: StateMachine, where: Any, at: int) -> None:
    for field_set in (NODES, PODS):
        declared = state.tables.effective.get(field_set.name)
        prefix = field_set.prefix
        try:
            fields = [comparison.field for comparison in where.comparisons]
            request = RangeRequest(prefix, prefix_end(prefix), where=where, revision=at)
            answered = state.range(request)
            query, _ = state.tables.covering(prefix, prefix_end(prefix), fields)
        except (InvalidRequest, Compacted):
            continue
        assert declared is not None
        revision = at or state.revision
        scanned = Scanned.of(state, query, state.index.range_at(prefix, prefix_end(prefix), revision), revision)
        expected = scanned.answer(read_where(where, readings_of(query, fields)), 0)
        assert [kv.key for kv in answered.kvs] == expected.keys and answered.count == expected.count


@HISTORIES
@given(st.sampled_from([1, 3]), ENTRIES, st.lists(edges.wheres, max_size=4), st.integers(0, 30))
def test_members_live_agree_and_come_back(
    members: int, entries: list[tuple[str, bytes]], wheres: list[Any], back: int
) -> None:
    net = ReplicaNet(members=members)
    for field_set in (NODES, PODS):
        send(net, "send", pack(DeclareFields(field_set)))
    for how, data in entries:
        send(net, how, data)
    net.tick(3)
    assert [node.failed for node in net.nodes.values()] == [""] * members
    net.assert_alike()
    state = net.leader().state
    for where in wheres:
        agree(state, where, 0)
        agree(state, where, max(1, state.revision - back))
    digests = {net[id].state.hash() for id in net.nodes}
    revision = state.revision
    for node in net.nodes.values():
        node.crash(power=False)
    for node in net.nodes.values():
        node.start()
    net.leader()
    net.settle()
    net.tick(3)
    assert {net[id].state.hash() for id in net.nodes} == digests and net.leader().state.revision == revision
    assert [node.failed for node in net.nodes.values()] == [""] * members
