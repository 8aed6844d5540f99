"""Whatever happened to a file of a store's folder, salvage brings back what checksums vouch for, and names the rest."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minikube_py.cli import main as cli
from minikube_py.control_plane.exit_codes import DAMAGED
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compare, DeleteRange, LeaseGrant, Put, Txn
from minikube_py.sim.disk import SimDisk
from minikube_py.store.data_dir import DataDir
from minikube_py.store.log_files import LogFiles
from minikube_py.store.replica import Replica, ReplicaConfig
from minikube_py.store.salvage import salvage
from minikube_py.wal.segment import segment_sequence
from minikube_py.wal.snapshot import snapshot_index

CONFIG = ReplicaConfig(snapshot_log_bytes=1 << 30)


def settle(replica: Replica) -> None:
    while (turn := replica.turn()) is not None:
        if turn.sync is not None:
            turn.sync()
            replica.synced()


def run(steps) -> None:
    for sync in steps:
        if sync is not None:
            sync()


def a_store(disk, seed: int, snapshots: int) -> list[int]:
    """Writes to a store of one member, and takes snapshots. Returns its digest at each of its revisions from 2 on."""
    rng = random.Random(seed)
    replica = Replica(LogFiles(disk, rng, 16 << 10), rng, CONFIG)
    replica.open()
    settle(replica)
    hashes: list[int] = []
    for round in range(snapshots + 1):
        for i in range(rng.randrange(3, 25)):
            key = b"/%d" % rng.randrange(12)
            command = rng.choice((
                Put(key, bytes(rng.choice((5, 900)))),
                Put(key, b"%d" % i),
                Txn((Compare(key, "VERSION", "=", 0),), (Put(key, b"new"),), (DeleteRange(key),)),
                LeaseGrant(rng.randrange(1, 9), 60),
            ))
            before = replica.state.revision
            replica.propose(command, pack(command), lambda result, error: None)
            settle(replica)
            if replica.state.revision > before:
                hashes.append(replica.state.hash(replica.state.revision))
        run(replica.files.upkeep())
        if round < snapshots:
            run(replica.take_snapshot())
    replica.close()
    return hashes


@functools.cache
def stored(seed: int, snapshots: int) -> tuple[dict[str, bytes], tuple[int, ...]]:
    disk = SimDisk()
    hashes = a_store(disk, seed, snapshots)
    return {name: bytes(data) for name, data in disk.image().items()}, tuple(hashes)


def salvaged_from(image: dict[str, bytes]):
    return salvage(sorted(image), lambda name: bytes(image[name]))


@pytest.mark.parametrize("snapshots", [0, 1, 2, 4])
def test_of_a_sound_folder_everything_is_had(snapshots):
    image, hashes = stored(5, snapshots)
    found = salvaged_from(image)
    assert found.whole and found.losses == [] and found.state.hash(found.state.revision) == hashes[-1]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(0, 4, "swap", 2, 3, 0.0)
@given(
    st.integers(0, 8), st.integers(0, 4), st.sampled_from(("flip", "cut", "zero", "swap", "lose")), st.integers(0, 20),
    st.integers(0, 20), st.floats(0, 1),
)  # fmt: skip
def test_what_is_had_was_so_once_and_what_is_missing_is_named(seed, snapshots, how, first, second, place):
    image, hashes = stored(seed, snapshots)
    damaged = {name: bytearray(data) for name, data in image.items()}
    names = sorted(name for name in image if segment_sequence(name) is not None or snapshot_index(name) is not None)
    name, other = names[first % len(names)], names[second % len(names)]
    written = len(image[name].rstrip(b"\0"))
    offset = int(place * (written - 1))
    if how == "flip":
        damaged[name][offset] ^= 1 << (offset % 8)
    elif how == "cut":
        del damaged[name][offset:]
    elif how == "zero":
        damaged[name][offset : offset + 512] = bytes(len(damaged[name][offset : offset + 512]))
    elif how == "swap":
        damaged[name], damaged[other] = damaged[other], damaged[name]
    else:
        del damaged[name]
    found = salvaged_from(damaged)
    if found is None:
        assert sum(map(len, damaged.values())) == 0 or snapshots == 0 or how == "swap"
        return
    if found.exact:
        standing = found.state.revision
        assert standing == 1 or found.state.hash(standing) == hashes[standing - 2], "never a state that was not"
    else:
        assert found.losses
    complete = found.exact and found.state.revision == len(hashes) + 1
    # A loss of the last record with all behind it is what no checksum can show.
    end_gone = how in ("zero", "lose", "cut") and name == max(filter(segment_sequence, names))
    assert complete or not found.whole or end_gone
    again = StateMachine.restore(found.state.snapshot())
    assert again.hash() == found.state.hash()


def test_a_broken_chunk_of_the_only_snapshot_costs_its_keys_alone(tmp_path):
    disk = SimDisk()
    rng = random.Random(1)
    replica = Replica(LogFiles(disk, rng, 16 << 10), rng, CONFIG)
    replica.open()
    settle(replica)
    for i in range(1500):
        replica.propose(Put(b"/%04d" % i, b"%d" % i), pack(Put(b"/%04d" % i, b"%d" % i)), lambda result, error: None)
    settle(replica)
    for _ in range(2):
        run(replica.take_snapshot())
        replica.propose(Put(b"/late", b"1"), pack(Put(b"/late", b"1")), lambda result, error: None)
        settle(replica)
    image = {name: bytearray(data) for name, data in disk.image().items()}
    snapshots = sorted(name for name in image if snapshot_index(name) is not None)
    del image[snapshots[0]]
    newest = image[snapshots[1]]
    newest[newest.index(b"/0700")] ^= 1
    found = salvaged_from(image)
    assert not found.exact and not found.whole
    assert 990 <= len(found.state.index.current) < 1500 and found.state.index.current[b"/0001"].value == b"1"
    assert b"/0700" not in found.state.index.current and b"/late" in found.state.index.current
    [loss] = [loss for loss in found.losses if loss.file == snapshots[1]]
    assert loss.offset <= newest.index(b"/0699") < loss.offset + loss.size_bytes


def test_the_command_makes_a_folder_that_starts_and_leaves_the_old_one_alone(tmp_path: Path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    with DataDir(old) as held:
        assert cli.main(["store", "salvage", str(old)]) == 1
        assert "in use by process" in capsys.readouterr().err
        hashes = a_store(held.disk(), 3, 2)
    last = max((old / "store").glob("wal-*"))
    data = bytearray(last.read_bytes())
    start = len(data.rstrip(b"\0")) // 2 + 2048
    data[start] ^= 1
    last.write_bytes(data)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.rglob("*") if path.is_file()}
    assert cli.main(["store", "salvage", str(old), "--to", str(new), "--json"]) == DAMAGED
    told = json.loads(capsys.readouterr().out)
    assert told["losses"][0]["file"] == last.name and told["exact"] and not told["whole"]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.rglob("*") if path.is_file()} == before
    rng = random.Random(9)
    replica = Replica(LogFiles(DataDir(new).disk(), rng), rng, CONFIG)
    replica.open()
    settle(replica)
    assert replica.state.hash(told["revision"]) == hashes[told["revision"] - 2]
    replica.close()
    assert cli.main(["store", "salvage", str(old), "--to", str(new)]) == 1
    assert cli.main(["store", "salvage", str(old)]) == DAMAGED
    said = capsys.readouterr().out
    assert f"lost: {last.name} at offset" in said and "salvaged: revision" in said
    assert cli.main(["store", "salvage", str(tmp_path / "nowhere")]) == 1
