"""A member's identity: drawn once, durable before it is spoken, never used again without its log."""

from __future__ import annotations

import random

import pytest

from minikube_py.errors import Corruption
from minikube_py.raft.configuration import NodeId
from minikube_py.sim.disk import SimDisk
from minikube_py.store.identity import (
    IDENTITY_NAME,
    Identity,
    LogLost,
    confirm_identity,
    decode_identity,
    encode_identity,
    has_log,
    load_identity,
    own_identity,
)
from minikube_py.wal.segment import segment_name
from minikube_py.wal.snapshot import snapshot_name

CLUSTER = 0xC1


def test_drawn_once_and_found_again():
    disk, rng = SimDisk(), random.Random(1)
    drawn = own_identity(disk, rng)
    assert drawn.id > 0 and drawn.cluster_id == 0
    assert own_identity(disk, rng) == drawn == load_identity(disk)
    assert own_identity(SimDisk(), rng).id != drawn.id


def test_confirmed_once_it_has_a_log():
    disk, rng = SimDisk(), random.Random(1)
    drawn = own_identity(disk, rng)
    assert confirm_identity(disk, drawn.id, CLUSTER) == (drawn.id, CLUSTER)
    assert confirm_identity(disk, drawn.id, CLUSTER) == (drawn.id, CLUSTER)
    assert disk.names() == [IDENTITY_NAME]


def test_a_folder_from_before_identities_gets_one():
    disk = SimDisk()
    assert confirm_identity(disk, NodeId(7), CLUSTER) == (7, CLUSTER)
    assert load_identity(disk) == (7, CLUSTER)


def test_a_lost_log_is_noticed_and_rejoin_draws_another_id():
    disk, rng = SimDisk(), random.Random(1)
    first = own_identity(disk, rng)
    confirm_identity(disk, first.id, CLUSTER)
    with pytest.raises(LogLost, match=f"member {first.id:x} is gone.*cluster c1.*--rejoin"):
        own_identity(disk, rng)
    second = own_identity(disk, rng, rejoin=True)
    assert second.id != first.id and second.cluster_id == 0
    assert own_identity(disk, rng, rejoin=True) == second, "one that has not begun stays"


@pytest.mark.parametrize(
    ("id", "cluster_id"), [(8, CLUSTER), (7, CLUSTER + 1), (8, CLUSTER + 1)], ids=["id", "cluster", "both"]
)
def test_a_log_of_somebody_else(id, cluster_id):
    disk = SimDisk()
    confirm_identity(disk, NodeId(7), CLUSTER)
    with pytest.raises(Corruption, match=rf"names member 7 of cluster c1, but .* of member {id:x} of"):
        confirm_identity(disk, NodeId(id), cluster_id)
    assert load_identity(disk) == (7, CLUSTER)


def test_a_log_of_somebody_else_beside_one_that_has_not_begun():
    disk = SimDisk()
    drawn = own_identity(disk, random.Random(1))
    with pytest.raises(Corruption, match="not in a cluster yet"):
        confirm_identity(disk, NodeId(drawn.id + 1), CLUSTER)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], False),
        ([IDENTITY_NAME], False),
        ([IDENTITY_NAME + ".part", "spare.part", "snapshot-00000000000000000001.snap.part", "lock"], False),
        ([segment_name(3)], True),
        ([snapshot_name(3)], True),
    ],
    ids=["empty", "identity", "unfinished files", "log", "snapshot"],
)
def test_has_log(names, expected):
    assert has_log(SimDisk.from_image(dict.fromkeys(names, bytearray(b"x")))) is expected


@pytest.mark.parametrize("identity", [Identity(NodeId(1)), Identity(NodeId((1 << 63) - 1), (1 << 63) - 1)])
def test_every_changed_byte_is_noticed(identity):
    data = encode_identity(identity)
    assert decode_identity(data) == identity
    damaged = [data[:end] for end in range(len(data))] + [data + b"\n", data + b"0" * 300]
    for place, byte in enumerate(data):
        damaged += [data[:place] + bytes((other,)) + data[place + 1 :] for other in (0, byte ^ 1, byte ^ 0x20, 0xFF)]
    for one in damaged:
        if one != data:
            with pytest.raises(Corruption, match="identity: damaged"):
                decode_identity(one)


NOBODYS = encode_identity(Identity(NodeId(0)))


@pytest.mark.parametrize("data", [NOBODYS, b"minikube-py-member 1 -1 0 00000000\n", b"\xff" * 9])
def test_what_is_no_identity(data):
    with pytest.raises(Corruption):
        decode_identity(data)


@pytest.mark.parametrize("seed", range(40))
def test_power_cuts(seed):
    """What was returned is there at each later start; what begun once never looks as if it had not."""
    rng = random.Random(seed)
    for cut in range(1, 12):
        disk = SimDisk()
        spoken: Identity | None = None
        for _ in range(3):
            disk.cut_after(cut)
            try:
                found = own_identity(disk, rng) if spoken is None or not spoken.cluster_id else load_identity(disk)
                assert spoken is None or found == spoken
                spoken = found
                spoken = confirm_identity(disk, spoken.id, CLUSTER)
            except OSError:
                assert not disk.powered
            except LogLost as lost:
                # The cut fell between the name and the sync of its folder: it had begun, and nobody was answered.
                assert spoken is not None and lost.identity == (spoken.id, CLUSTER)
                spoken = lost.identity
            disk = disk.crash(rng)
        assert spoken is None or spoken.cluster_id == 0 or load_identity(disk) == spoken
    assert spoken is not None and spoken.cluster_id == CLUSTER, "with enough operations it comes to the end"


@pytest.mark.parametrize("seed", range(40))
def test_killed_in_between_then_a_power_cut(seed):
    rng = random.Random(seed)
    for cut in range(1, 8):
        disk = SimDisk()
        disk.cut_after(cut)
        try:
            own_identity(disk, rng)
        except OSError:
            disk = disk.killed()
            spoken = own_identity(disk, rng)
            assert load_identity(disk.crash(rng)) == spoken


def test_a_disk_that_lies_about_syncs_is_noticed():
    lost = 0
    for seed in range(30):
        disk = SimDisk()
        disk.lies_about_sync = True
        own_identity(disk, random.Random(seed))
        try:
            lost += load_identity(disk.crash(random.Random(seed))) is None
        except Corruption:
            lost += 1
    assert lost
