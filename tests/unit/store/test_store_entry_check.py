"""What a member cannot apply enters no log; what everybody skips stops nobody, in a snapshot, a learner and a joint
configuration alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replica_net import CLUSTER, Outcome, ReplicaNet

from minikube_py.errors import Corruption, InvalidRequest
from minikube_py.mvcc.codec import NewerMessage, pack, unpack
from minikube_py.mvcc.types import Put, RaiseVersion
from minikube_py.mvcc.versions import LATEST
from minikube_py.raft.codec import Malformed, decode_change, encode_change
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration, NodeId, changed
from minikube_py.raft.message import Entry, EntryKind, LogIndex, Message, MessageType, Term
from minikube_py.store import recovery, releases
from minikube_py.store.membership import (
    ChangeKind,
    Member,
    MemberChange,
    Membership,
    decode_member_change,
    encode_member_change,
)
from minikube_py.store.releases import EntryCheck, Inapplicable, Refusals, applied_change
from minikube_py.store.replica_config import Bootstrap

JUNK = msgpack.packb([[[0, 12345]], False, b"junk"])
CHANGES = {
    "no bytes of a change": b"junk",
    "a context that is no change": JUNK,
    "no voter is left": encode_change(ConfChange(tuple(Change(ChangeType.REMOVE, NodeId(id)) for id in (1, 2, 3)))),
    "a configuration is left that is not joint": encode_change(ConfChange(leave_joint=True)),
}
LATER = {
    "a tag": msgpack.packb((1, [250, 1])),
    "a tag within a txn": msgpack.packb((1, [3, [], [[250, 1]], []])),
    "a version of a message": msgpack.packb((9, [1, b"k", b"v"])),
    "a version of the rules": pack(RaiseVersion(LATEST + 1)),
}


def forged(net: ReplicaNet, to: int, data: bytes, kind: int, *, committed: bool) -> Message:
    """As from a new leader, a follower's: one entry behind the last."""
    leader, log = net.leader(), net[to].raft.log
    sender = next(NodeId(id) for id in net.nodes if id not in (to, leader.member_id))
    term, index = Term(leader.raft.term + 1), LogIndex(log.last_index + 1)
    return Message(
        MessageType.APPEND, sender, NodeId(to), term, log.last_term, log.last_index, LogIndex(index * committed),
        [Entry(term, index, data, kind)],
    )  # fmt: skip


@pytest.mark.parametrize("data", LATER.values(), ids=LATER)
@pytest.mark.parametrize("committed", [False, True])
def test_an_entry_of_a_later_version_in_a_message_is_not_taken(data: bytes, committed: bool) -> None:
    net = ReplicaNet()
    leader = net.leader()
    told: list[str] = []
    to = next(id for id in net.nodes if id != leader.member_id)
    net[to].refusals.listener = told.append
    before = net[to].raft.log.last_index, net[to].raft.term
    for _ in range(2):
        net[to].receive(forged(net, to, data, EntryKind.NORMAL, committed=committed))
    assert (net[to].raft.log.last_index, net[to].raft.term) == before
    assert net[to].refusals.count == 2 and len(told) == 1 and "cannot apply entry" in told[0]
    after = net.propose(leader, Put(b"/a", b"v"))
    net.settle()
    assert after.done and not any(node.failed for node in net.nodes.values())
    net.assert_alike()


@pytest.mark.parametrize("data", CHANGES.values(), ids=CHANGES)
def test_a_committed_change_that_nobody_can_apply_is_skipped_by_all(data: bytes) -> None:
    net = ReplicaNet()
    leader = net.leader()
    before = leader.membership, leader.raft.configuration
    for id in net.nodes:
        net[id].receive(forged(net, id, data, EntryKind.CHANGE, committed=True))
    for _ in range(60):
        net.tick()
    after = net.propose(net.leader(), Put(b"/a", b"v"))
    net.settle()
    assert after.done and not any(node.failed for node in net.nodes.values())
    assert all((net[id].membership, net[id].raft.configuration) == before for id in net.nodes)
    net.assert_alike()


def test_what_follows_a_skipped_change_is_alike_in_a_snapshot_a_learner_and_after_a_restart() -> None:
    net = ReplicaNet()
    net.leader()
    for id in net.nodes:
        net[id].receive(forged(net, id, b"junk", EntryKind.CHANGE, committed=True))
    assert net.put(b"/a").done
    assert all("a change of members, was skipped" in net[id].refusals.skipped for id in net.nodes)
    assert net.change(ChangeKind.EXPECT, name="store-4", learner=True).done
    net.snapshot(net.leader().member_id)
    net.add(4, None)
    net.nodes[4].bootstrap = Bootstrap(CLUSTER, NodeId(4))
    net.nodes[4].start()
    assert net.change(ChangeKind.JOIN, id=NodeId(4), name="store-4").done and net.put(b"/b").done
    net.assert_alike()
    for id, node in net.nodes.items():
        node.crash(power=False)
        assert node.start().member_id == id
    assert net.put(b"/c").done
    net.assert_alike()


def test_who_proposed_a_change_that_was_skipped_is_told() -> None:
    net = ReplicaNet(members=1)
    leader = net.leader()
    outcome = Outcome()
    index = leader.raft.propose_change(ConfChange(context=b"junk"))
    leader._waiting.append((index, None, outcome))
    net.settle()
    assert isinstance(outcome.error, InvalidRequest) and f"entry {index}, a change of members" in str(outcome.error)


def test_a_change_that_nobody_could_read_is_not_proposed() -> None:
    net = ReplicaNet()
    leader = net.leader()
    before = leader.raft.log.last_index
    with pytest.raises(InvalidRequest):
        leader.propose_change(MemberChange(ChangeKind.EXPECT, name="x" * 300), Outcome())
    assert leader.raft.log.last_index == before


@pytest.mark.parametrize("committed", [False, True])
def test_bytes_that_are_no_change_pass_only_as_committed_and_later_kinds_never(committed: bool) -> None:
    check, commit = EntryCheck(), 5 * committed
    later = encode_change(ConfChange(context=msgpack.packb([99, 0, "", "", "", False, False, []])))
    with pytest.raises(Inapplicable, match="kind 99"):
        check.admit([Entry(Term(1), LogIndex(5), later, EntryKind.CHANGE)], commit)
    junk = Entry(Term(1), LogIndex(5), b"junk", EntryKind.CHANGE)
    if committed:
        check.admit([junk], commit)
    else:
        with pytest.raises(Inapplicable, match="cannot apply entry 5, a change of members"):
            check.admit([junk], commit)


def test_what_is_applied_is_not_kept_and_what_is_kept_is_counted_as_it_is_decoded() -> None:
    check, data = EntryCheck(), pack(Put(b"k", b"v" * 1000))
    check.admit([Entry(Term(1), LogIndex(index), data) for index in range(1, 9)], 0, applied=5)
    assert sorted(check._commands) == [6, 7, 8] and check._size_bytes > 3 * 10 * len(data)
    check.forget()
    assert (check._commands, check._size_bytes) == ({}, 0)


def test_a_committed_change_of_a_later_kind_is_never_skipped() -> None:
    fields = [0, "", "", "", False, False, []]
    for later in ([99, *fields], [2, *fields, 1, 5]):
        context = msgpack.packb(later)
        entry = Entry(Term(1), LogIndex(5), encode_change(ConfChange(context=context)), EntryKind.CHANGE)
        with pytest.raises(Inapplicable, match="cannot apply entry 5: not a change of members of this release"):
            applied_change(entry, RECORDS[0], RECORDS[0].configuration())
    junk = Entry(Term(1), LogIndex(5), b"junk", EntryKind.CHANGE)
    skipped = applied_change(junk, RECORDS[0], RECORDS[0].configuration())
    assert isinstance(skipped, str) and "was skipped" in skipped


def test_a_member_that_applies_a_joint_change_and_its_leave_at_once_leaves_too() -> None:
    """Whether the second one fits depends on the first one."""
    net = ReplicaNet()
    leader = net.leader()
    gone, other = (id for id in net.nodes if id != leader.member_id)
    net.isolate(gone)
    net.add(9, None)
    net.nodes[9].bootstrap = Bootstrap(CLUSTER, NodeId(9))
    net.nodes[9].start()
    assert net.change(ChangeKind.JOIN, id=NodeId(9), name=f"store-{gone}", rejoin=True).done and net.put(b"/a").done
    net.tick(3)
    before = net[other].membership, net[other].raft.configuration
    assert not before[1].joint and not before[1].contains(NodeId(gone))
    net.nodes[other].crash(power=False)
    net.nodes[other].start()
    net.until(lambda: net[other].raft.log.applied >= leader.raft.log.applied)
    assert (net[other].membership, net[other].raft.configuration) == before and not net[other].refusals.told()


def loaded(entry: Entry, *, commit: int, snapshot: int) -> Any:
    """What `_check_entries` reads of a folder: one entry, the saved commit, the index of the snapshot."""
    log = SimpleNamespace(entries=[entry], state=SimpleNamespace(commit=commit), joined=True)
    newest = SimpleNamespace(head=SimpleNamespace(index=snapshot)) if snapshot else None
    return SimpleNamespace(log=log, snapshot=newest)


@pytest.mark.parametrize(("commit", "snapshot"), [(4, 0), (0, 4), (2, 4), (4, 2)])
def test_a_start_checks_what_may_not_be_committed_from_the_first_such_entry_on(commit: int, snapshot: int) -> None:
    """Behind the saved commit and the snapshot alike; up to them everybody skips what nobody can read."""
    files: Any = SimpleNamespace(disk=SimpleNamespace(path="/data"))

    def junk(index: int) -> Entry:
        return Entry(Term(1), LogIndex(index), b"junk", EntryKind.CHANGE)

    recovery._check_entries(files, loaded(junk(4), commit=commit, snapshot=snapshot))
    with pytest.raises(Corruption, match="cannot apply entry 5, a change of members"):
        recovery._check_entries(files, loaded(junk(5), commit=commit, snapshot=snapshot))


# -- laws

ENTRIES = st.lists(st.tuples(st.integers(1, 6), st.one_of(edges.packed, edges.hostile_bytes)), max_size=12)


def direct(data: bytes) -> object:
    """The command, or the kind of what is raised."""
    try:
        return unpack(data)
    except InvalidRequest as error:
        return type(error)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ENTRIES, st.integers(0, 2000))
def test_a_command_is_what_its_bytes_say_whatever_arrived_before(entries: list[tuple[int, bytes]], room: int) -> None:
    """Also where an index is taken again, and where there is no room to keep it."""
    check = EntryCheck()
    before, releases.AHEAD_BYTES_MAX = releases.AHEAD_BYTES_MAX, room
    try:
        taken = {}
        for index, data in entries:
            try:
                check.admit([Entry(Term(1), LogIndex(index), data)], 0)
            except Inapplicable:
                assert direct(data) not in (InvalidRequest,)
                continue
            taken[index] = data
            largest = max(releases._size_bytes(data) for _, data in entries)
            assert check._size_bytes <= room + largest
        for index, data in taken.items():
            if not data:
                continue
            try:
                found: object = check.command(index, data)
            except InvalidRequest as error:
                found = type(error)
            assert repr(found) == repr(direct(data))
        left = sum(releases._size_bytes(data) for data, _ in check._commands.values())
        assert check._size_bytes == left
    finally:
        releases.AHEAD_BYTES_MAX = before


THREE = tuple(Member(NodeId(id), f"store-{id}", f"h{id}:1") for id in (1, 2, 3))
LEARNER = Member(NodeId(4), "store-4", "h4:1", learner=True)
RECORDS = [Membership.of(THREE), Membership.of((*THREE, LEARNER))]
JOINT = changed(
    RECORDS[0].configuration(), ConfChange((Change(0, NodeId(5)), Change(ChangeType.REMOVE, NodeId(1))))
)
CONTEXTS = st.sampled_from(
    [b"", b"junk", msgpack.packb([99, 0, "", "", "", False, False, []])]
    + [
        encode_member_change(MemberChange(kind, id=NodeId(id), name=f"store-{id}"))
        for kind in ChangeKind
        for id in (0, 1, 4, 9)
    ]
)
STEPS = st.lists(st.builds(Change, st.sampled_from([0, 1, 2]), st.integers(1, 5)), max_size=3)
READABLE = st.builds(lambda steps, leave, context: encode_change(ConfChange(tuple(steps), leave, context)),
                     STEPS, st.booleans(), CONTEXTS)


def later(data: bytes) -> bool:
    """Whether a later version may know this change."""
    try:
        change = decode_change(data)
        if change.context:
            decode_member_change(change.context)
    except NewerMessage:
        return True
    except (Malformed, InvalidRequest):
        pass
    return False


@settings(max_examples=200, deadline=None)
@given(READABLE | edges.hostile_bytes, st.sampled_from(RECORDS), st.sampled_from(["own", "joint"]))
def test_what_is_skipped_is_exactly_what_earlier_releases_ended_at(data: bytes, record: Membership, of: str) -> None:
    """So no state of theirs is beyond one, and no version of the rules is needed."""
    configuration: Configuration = record.configuration() if of == "own" else JOINT

    def earlier() -> Membership | None:
        """As they applied it: the record, then Raft's configuration. None: they ended."""
        try:
            change = decode_change(data)
            after = record.apply(decode_member_change(change.context)) if change.context else record
            changed(configuration, change)
        except Exception:
            return None
        return after

    try:
        after = applied_change(Entry(Term(1), LogIndex(7), data, EntryKind.CHANGE), record, configuration)
    except Inapplicable:
        assert earlier() is None and later(data)
        return
    assert not later(data)
    assert (after if isinstance(after, Membership) else None) == earlier()


def test_refusals_are_counted_by_member_and_said_once() -> None:
    refusals = Refusals()
    said: list[str] = []
    refusals.listener = said.append
    members = Configuration(frozenset({NodeId(1), NodeId(2)}))
    for _ in range(3):
        refusals.refuse(NodeId(2), "it cannot be", members)
    refusals.refuse(NodeId(9), "nobody's", members)
    assert refusals.count == 4 and said == ["a message of member 2 was refused: it cannot be"]
    assert refusals.told() == ["3 messages of member 2 refused, the latest because it cannot be"]
    refusals.refuse(NodeId(1), "it cannot be", Configuration(frozenset({NodeId(1)})))
    assert refusals.told() == ["1 message of member 1 refused, the latest because it cannot be"]


# -- releases beside each other


@pytest.mark.parametrize("seed", range(4))
def test_members_that_end_at_a_junk_change_are_alike_once_they_run_this_release(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of an earlier release ends at the entry; the others go on, and it does once it is upgraded."""
    net = ReplicaNet(seed)
    net.leader()
    old = net[1 + seed % 3]
    with monkeypatch.context() as patch:
        patch.setattr(old, "_apply_change", lambda entry: decode_change(entry.data))
        for id in net.nodes:
            net[id].receive(forged(net, id, b"junk", EntryKind.CHANGE, committed=True))
        net.settle()
        assert "a change of the configuration is not msgpack" in net.nodes[old.member_id].failed
    # A forged message may be of a later term than the leader's, which ends it: then the first outcome is unknown.
    assert any(net.put(b"/a").done for _ in range(2))
    assert not any(node.failed for id, node in net.nodes.items() if id != old.member_id)
    net.nodes[old.member_id].crash(power=False)
    net.nodes[old.member_id].start()
    assert net.put(b"/b").done
    net.assert_alike()
