"""A snapshot on its way: in pieces, interrupted and resumed, and each way in which it differs from what was sent."""

from __future__ import annotations

import random

import msgpack
import pytest

from minikube_py.errors import Corruption
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import SnapshotMeta
from minikube_py.sim.disk import SimDisk
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.store.membership import Member, Membership, members_of, meta_of
from minikube_py.store.snapshot_transfer import (
    SNAPSHOT_BYTES_MAX,
    IncomingSnapshot,
    SnapshotOffer,
    SnapshotSource,
    TransferRefused,
    head_of,
)
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter

CLUSTER = 5
META = SnapshotMeta(40, 3, Configuration(frozenset((1, 2)), learners=frozenset((3,))))
MEMBERS = Membership.of((Member(1, "a"), Member(2, "b"), Member(3, "c", learner=True)))


def opened(member: int) -> LogFiles:
    files = LogFiles(SimDisk(), random.Random(member), 64 << 10)
    files.begin(files.load(), Origin(CLUSTER, member))
    return files


def with_snapshot(keys: int = 2000) -> tuple[LogFiles, StateMachine]:
    files, state = opened(1), StateMachine()
    for i in range(keys):
        state.apply(Put(b"/%d" % i, b"%d" % i))
    writer = SnapshotWriter(head_of(CLUSTER, 1, META, MEMBERS.to_plain()))
    data = b"".join([writer.head_bytes, *(writer.chunk(records) for records in records_of(state)), writer.end()])
    file = files.write_snapshot(META.index)
    file.write_at(0, data)
    file.sync()
    for sync in files.finish_snapshot(SnapshotFile(writer.head, writer.size_bytes, writer.sha256())):
        if sync is not None:
            sync()
    return files, state


def receive(incoming: IncomingSnapshot, source: SnapshotSource, chunk_bytes: int = 5000) -> int:
    """The number of syncs that were asked for."""
    syncs = 0
    while incoming.offset < incoming.offer.size_bytes:
        sync = incoming.write(incoming.offset, source.read(incoming.offset, chunk_bytes))
        if sync is not None:
            sync()
            syncs += 1
    return syncs


def finish(incoming: IncomingSnapshot) -> int:
    """The number of steps."""
    steps = 0
    for sync in incoming.finish():
        steps += 1
        if sync is not None:
            sync()
    return steps


def test_what_is_sent_arrives_and_becomes_a_state():
    files, state = with_snapshot()
    source = SnapshotSource(files)
    assert source.offer.meta == META
    target = opened(2)
    incoming = IncomingSnapshot(target, source.offer, CLUSTER)
    receive(incoming, source)
    assert not incoming.complete
    assert finish(incoming) > 5, "slice by slice"
    assert incoming.complete and not incoming.closed
    _, file, restored = incoming.result()
    assert restored.hash() == state.hash() and incoming.closed
    assert file.sha256 == source.offer.sha256 and meta_of(file.head) == META
    with pytest.raises(TransferRefused, match="has ended"):
        incoming.write(0, b"x")


def test_it_is_synced_little_by_little(monkeypatch):
    monkeypatch.setattr("minikube_py.store.snapshot_transfer.SYNC_BYTES", 10_000)
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    incoming = IncomingSnapshot(opened(2), source.offer, CLUSTER)
    assert receive(incoming, source) == source.offer.size_bytes // 10_000 == 3


@pytest.mark.parametrize("at_the_end", [False, True], ids=["on the way", "at the end"])
def test_what_could_not_be_synced_comes_again(monkeypatch, at_the_end):
    """A sync that fails once and then says that all is well must not make what came count as durable."""
    monkeypatch.setattr("minikube_py.store.snapshot_transfer.SYNC_BYTES", 1 << 20 if at_the_end else 10_000)
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    target = opened(2)
    incoming = IncomingSnapshot(target, source.offer, CLUSTER)
    file = incoming._file
    assert file is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(file), "sync", failing_sync)
        with pytest.raises(OSError, match="could not sync"):
            receive(incoming, source)
            finish(incoming)
    assert incoming.closed and not incoming.complete
    again = IncomingSnapshot(target, source.offer, CLUSTER)
    assert again.offset == 0
    receive(again, source)
    finish(again)
    assert again.complete


def failing_sync(file: object) -> None:
    raise OSError(5, "the disk could not sync")


REFUSED_BYTES = [
    ("a gap", lambda offset, data: (offset + 1, data)),
    ("again", lambda offset, data: (offset - 1, data)),
    ("nothing", lambda offset, data: (offset, b"")),
    ("too much", lambda offset, data: (offset, data + bytes(1 << 20))),
]


@pytest.mark.parametrize("spoil", [case[1] for case in REFUSED_BYTES], ids=[case[0] for case in REFUSED_BYTES])
def test_bytes_that_are_not_those_asked_for_are_refused(spoil):
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    incoming = IncomingSnapshot(opened(2), source.offer, CLUSTER)
    incoming.write(0, source.read(0, 100))
    with pytest.raises(TransferRefused, match="expected are those from 100"):
        incoming.write(*spoil(100, source.read(100, 100)))
    assert incoming.offset == 100
    receive(incoming, source)
    finish(incoming)


def test_a_transfer_that_is_not_whole_is_not_finished():
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    incoming = IncomingSnapshot(opened(2), source.offer, CLUSTER)
    incoming.write(0, source.read(0, 100))
    with pytest.raises(TransferRefused, match="100 of"):
        finish(incoming)


def test_a_snapshot_of_rules_that_are_not_known_here_is_refused_by_name(monkeypatch):
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    incoming = IncomingSnapshot(opened(2), source.offer, CLUSTER)
    receive(incoming, source)
    monkeypatch.setattr("minikube_py.mvcc.snapshot.LATEST", 0)
    with pytest.raises(TransferRefused, match="start this member with the release that the others run"):
        finish(incoming)
    assert incoming.closed


def test_a_snapshot_beyond_all_measure_is_refused_before_it_fills_the_disk():
    with pytest.raises(TransferRefused, match=str(SNAPSHOT_BYTES_MAX)):
        IncomingSnapshot(opened(2), SnapshotOffer(META, SNAPSHOT_BYTES_MAX + 1, bytes(32)), CLUSTER)


@pytest.mark.parametrize("at", [5, 100, 5000, -5])
def test_a_byte_that_changed_on_the_way_is_found(at):
    files, _ = with_snapshot()
    source = SnapshotSource(files)
    data = bytearray(source.read(0, source.offer.size_bytes))
    data[at] ^= 8
    target = opened(2)
    incoming = IncomingSnapshot(target, source.offer, CLUSTER)
    incoming.write(0, bytes(data))
    with pytest.raises(TransferRefused, match="differs from what was sent"):
        finish(incoming)
    assert incoming.closed and not incoming.complete
    again = IncomingSnapshot(target, source.offer, CLUSTER)
    receive(again, source)
    finish(again)
    assert again.complete


NOT_AS_ANNOUNCED = [
    ("another hash", lambda offer: offer._replace(sha256=bytes(32)), CLUSTER, "its hash"),
    ("another index", lambda offer: offer._replace(meta=META._replace(index=41)), CLUSTER, "index, term"),
    ("another configuration", lambda o: o._replace(meta=META._replace(configuration=Configuration(frozenset((1,))))),
     CLUSTER, "index, term"),
    ("another cluster", lambda offer: offer, 6, "of cluster 5, this is 6"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "cluster", "message"),
    [case[1:] for case in NOT_AS_ANNOUNCED],
    ids=[case[0] for case in NOT_AS_ANNOUNCED],
)
def test_a_whole_file_that_is_not_as_announced_is_refused(change, cluster, message):
    files, _ = with_snapshot(10)
    source = SnapshotSource(files)
    incoming = IncomingSnapshot(opened(2), change(source.offer), cluster)
    receive(incoming, source)
    with pytest.raises(TransferRefused, match=message):
        finish(incoming)


def test_each_transfer_has_a_file_of_its_own_and_gives_its_room_back():
    target = opened(2)
    files, _ = with_snapshot(10)
    source = SnapshotSource(files)
    before = set(target.disk.names())
    first = IncomingSnapshot(target, source.offer, CLUSTER)
    first.write(0, source.read(0, 50))
    (own,) = set(target.disk.names()) - before
    second = IncomingSnapshot(target, source.offer, CLUSTER)
    assert second.offset == 0 and target.disk.open(own).read_all() == source.read(0, 50)
    first.discard()
    receive(second, source)
    finish(second)
    part, _, _ = second.result()
    second.discard()
    assert set(target.disk.names()) == {*before, part} and part != own, "what is handed over is not taken away"


def test_the_head_of_a_file_from_before_there_were_several_names_its_writer():
    assert meta_of(SnapshotHead(CLUSTER, 9, 40, 3)).configuration == Configuration(frozenset((9,)))
    with pytest.raises(Corruption, match="configuration cannot be decoded"):
        meta_of(SnapshotHead(CLUSTER, 9, 40, 3, [["x"]], []))


def test_a_record_of_other_members_than_in_its_configuration_is_refused_unless_it_is_marked():
    alone = Membership.of((Member(1, "a"),))
    joint = Configuration(frozenset((1, 4)), frozenset((1, 2)), frozenset((3,)))
    for members, configuration, agree in (
        (MEMBERS, META.configuration, True),
        (MEMBERS, joint, False),
        (Membership.of((*MEMBERS.members[::2], Member(4, "d"))), joint, True),
        (alone, META.configuration, False),
        (MEMBERS, Configuration(frozenset((1, 2, 3))), False),
        (alone, Configuration(frozenset((1,)), frozenset((1, 3)), frozenset(), frozenset((3,)), True), False),
    ):
        meta = META._replace(configuration=configuration)
        assert members.agrees(configuration) == agree
        assert members_of(plain(head_of(CLUSTER, 1, meta, members.beside(configuration)))) == members
        if not agree:
            with pytest.raises(Corruption, match=r"names the members 1.*, and its voters are 1"):
                members_of(plain(head_of(CLUSTER, 1, meta, members.to_plain())))
    for wrong in (["x"], [], "x", [[], [], [], "x"], [*MEMBERS.to_plain(), True]):
        with pytest.raises(Corruption, match="cannot be decoded"):
            members_of(SnapshotHead(CLUSTER, 1, 40, 3, [[1], [], [], [], False], wrong))


def plain(head: SnapshotHead) -> SnapshotHead:
    """As it is read."""
    return SnapshotHead(*msgpack.unpackb(msgpack.packb(head)))
