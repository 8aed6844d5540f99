"""Members of several releases in one store: which rules of apply hold, and from when on."""

from __future__ import annotations

from dataclasses import replace

import edges
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replica_net import SMALL, Outcome, ReplicaNet

from minikube_py.errors import InvalidRequest, LeaseNotFound, MinikubeError, Unavailable
from minikube_py.fields.builtin import NODES, PODS, former
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    Command,
    Compare,
    DeclareFields,
    InSession,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RaiseVersion,
    RangeRequest,
    SessionResult,
    SetAlarm,
    Txn,
)
from minikube_py.mvcc.versions import FIRST, LATEST, TooNew

EARLIER = replace(SMALL, version=FIRST)
HISTORIES = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def versions(net: ReplicaNet) -> list[int]:
    return [node.replica.state.version for node in net.nodes.values() if node.replica is not None]


def upgrade(net: ReplicaNet, id: int) -> None:
    net.config = SMALL
    net.nodes[id].crash(power=False)
    net.nodes[id].start()
    net.settle()


def send(net: ReplicaNet, data: bytes) -> None:
    """As the server does; what is refused there never comes to the log."""
    try:
        leader = net.leader()
        leader.propose(unpack(data), data, Outcome())
    except MinikubeError:
        pass
    net.settle()


@pytest.mark.parametrize("members", [1, 3])
def test_members_of_this_release_follow_its_rules_from_the_first_command_on(members: int) -> None:
    net = ReplicaNet(members=members)
    net.leader()
    net.settle()
    net.tick(3)
    assert versions(net) == [LATEST] * members
    declared = net.propose(net.leader(), DeclareFields(NODES))
    net.settle()
    assert declared.done


def test_the_rules_change_once_all_members_know_them() -> None:
    net = ReplicaNet(config=EARLIER)
    net.leader()
    for id in (1, 2):
        upgrade(net, id)
        net.tick(30)
        assert versions(net) == [FIRST] * 3, "one of them is of an earlier release"
        refused = net.propose(net.leader(), DeclareFields(NODES))
        taken = net.propose(net.leader(), DeclareFields(former(NODES)))
        net.settle()
        assert isinstance(refused.error, InvalidRequest) and taken.done
        assert "pod_requests@2" not in str(refused.error).partition("known:")[2], "the words are replicated too"
    upgrade(net, 3)
    net.tick(30)
    assert versions(net) == [LATEST] * 3
    taken = net.propose(net.leader(), DeclareFields(NODES))
    net.settle()
    assert taken.done
    net.assert_alike()


@HISTORIES
@given(st.lists(edges.packed, max_size=8), st.lists(edges.packed, max_size=8), st.lists(edges.packed, max_size=8))
def test_members_of_two_releases_come_to_one_hash(before: list[bytes], mixed: list[bytes], after: list[bytes]) -> None:
    net = ReplicaNet(config=EARLIER)
    for command in (DeclareFields(former(NODES)), DeclareFields(former(PODS))):
        send(net, pack(command))
    for data in before:
        send(net, data)
    upgrade(net, 1)
    upgrade(net, 2)
    for data in mixed:
        send(net, data)
    net.tick(3)
    assert versions(net) == [FIRST] * 3 and not any(node.failed for node in net.nodes.values())
    net.assert_alike()
    upgrade(net, 3)
    net.tick(30)
    assert versions(net) == [LATEST] * 3
    send(net, pack(DeclareFields(NODES)))
    for data in after:
        send(net, data)
    net.tick(3)
    net.assert_alike()
    hashes = {net[id].state.hash() for id in (1, 2, 3)}
    for id in (1, 2, 3):
        upgrade(net, id)
    net.tick(30)
    assert {net[id].state.hash() for id in (1, 2, 3)} == hashes, "after a restart, from log or snapshot"


def test_what_an_earlier_release_cannot_read_is_not_sent_while_one_takes_part() -> None:
    net = ReplicaNet(config=EARLIER)
    leader = net.leader()
    opened = net.propose(leader, OpenSession(1))
    net.settle()
    assert opened.done and isinstance(opened.result, SessionResult)
    for command in (
        LeaseRevoke(5, 7),
        InSession(opened.result.id, 1, 1, LeaseRevoke(5, 7)),
        SetAlarm(False, 1, "NOSPACE"),
    ):
        with pytest.raises(Unavailable, match="needs version 2 of the rules of apply, the store follows 1"):
            net.propose(leader, command)
    for command in (ChangeAuth("user add", "u"), InSession(opened.result.id, 1, 1, AsUser("", 0, Put(b"a", b"v")))):
        with pytest.raises(Unavailable, match="needs version 4 of the rules of apply, the store follows 1"):
            net.propose(leader, command)
    assert isinstance(net.propose(leader, LeaseRevoke(5)), Outcome)


def test_no_client_raises_the_version() -> None:
    net = ReplicaNet()
    with pytest.raises(InvalidRequest, match="raised by the leader alone"):
        net.leader().propose(RaiseVersion(LATEST), pack(RaiseVersion(LATEST)), Outcome())


def test_a_member_that_does_not_know_the_rules_stops_and_says_so() -> None:
    net = ReplicaNet(members=1)
    leader = net.leader()
    leader.raft.propose(pack(RaiseVersion(LATEST + 1)))
    net.settle()
    assert "start this member with the release that the others run" in net.nodes[leader.member_id].failed


def test_what_an_earlier_release_can_read_is_written_as_it_did() -> None:
    state = StateMachine(FIRST)
    state.apply(LeaseGrant(5, 60))
    [head, lease, *_] = [record for part in records(state) for record in part]
    assert head == [0, 2, 1, -1, 1] and lease == [4, 5, 60, 0]
    assert pack(LeaseRevoke(5)) == b"\x92\x01\x92\x05\x05"
    state.apply(RaiseVersion(LATEST))
    state.apply(LeaseGrant(6, 60))
    slices = list(records(state))
    assert slices[0][0][1] == 3
    restored = restore(slices)
    assert restored.version == LATEST and restored.lessor.by_id[6].granted == state.lessor.by_id[6].granted > 0
    slices[0][0][5] = LATEST + 1
    with pytest.raises(TooNew):
        restore(slices)


def test_a_revoke_sent_again_spares_a_lease_granted_under_the_same_id_since() -> None:
    net = ReplicaNet()
    leader = net.leader()
    net.tick(3)
    first = net.propose(leader, LeaseGrant(5, 60))
    net.settle()
    revoke = leader.state.lessor.revoke_of(5)
    ended = net.propose(leader, revoke)
    again = net.propose(leader, LeaseGrant(5, 60))
    put = net.propose(leader, Put(b"/a", b"v", 5))
    repeated = net.propose(leader, revoke)
    net.settle()
    assert first.done and ended.done and again.done and put.done
    assert isinstance(repeated.error, LeaseNotFound)
    assert leader.state.lease_keys(5) == [b"/a"]
    user = net.propose(leader, LeaseRevoke(5))
    net.settle()
    assert user.done and not leader.state.leases()


@pytest.mark.parametrize(
    "txn",
    [
        Txn(success=(RangeRequest(b"\0", b"\0"),) * 3),
        Txn(success=(Txn(success=(RangeRequest(b"\0", b"\0"),) * 2), RangeRequest(b"a", b"z", revision=3))),
        Txn(compare=(Compare(b"\0", "MOD", ">", 0, b"\0"),) * 3),
    ],
)
def test_the_reads_of_one_txn_have_a_budget(txn: Txn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.mvcc.budgets.KEYS_MAX", 20)
    earlier, now = StateMachine(FIRST), StateMachine()
    for state in (earlier, now):
        for at in range(11):
            state.apply(Put(b"k%d" % at, b""))
    assert earlier.apply(txn)
    with pytest.raises(InvalidRequest, match="the limit is 20"):
        now.apply(txn)
    one: Command = Txn(success=(RangeRequest(b"\0", b"\0"), RangeRequest(b"k1"), RangeRequest(b"\0", b"\0", limit=9)))
    assert now.apply(one)


def test_the_bytes_that_one_txn_reads_have_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikube_py.mvcc.budgets.BYTES_MAX", 1000)
    state = StateMachine()
    state.apply(Put(b"k", b"v" * 600))
    assert state.apply(Txn(success=(RangeRequest(b"a", b"z"), RangeRequest(b"b", b"z"))))
    with pytest.raises(InvalidRequest, match="read 1202 bytes together, the limit is 1000"):
        state.apply(Txn(success=(RangeRequest(b"a", b"z"), RangeRequest(b"b", b"z"), RangeRequest(b"c", b"z"))))
