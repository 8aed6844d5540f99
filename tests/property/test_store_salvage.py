"""Whatever happened to a file of a store's folder, salvage brings back what checksums vouch for, and names the rest."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from disk_damage import DAMAGES, damage
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minikube_py.cli import main as cli
from minikube_py.control_plane.exit_codes import DAMAGED
from minikube_py.errors import Corruption
from minikube_py.mvcc.auth import READWRITE, ROOT
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.snapshot import restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    Compare,
    DeleteRange,
    KeyValue,
    LeaseGrant,
    LeaseRevoke,
    Put,
    RaiseVersion,
    RangeRequest,
    Txn,
    bare,
)
from minikube_py.mvcc.versions import LATEST
from minikube_py.sim.disk import SimDisk
from minikube_py.store.data_dir import DataDir
from minikube_py.store.identity import LogLost
from minikube_py.store.log_files import LogFiles
from minikube_py.store.replica import Replica
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.store.salvage import salvage
from minikube_py.wal.record import RecordType, decode_record, find_records
from minikube_py.wal.segment import HEAD_BYTES, decode_head, segment_sequence
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


class Written(NamedTuple):
    """A store's true history: `hashes[r - 2]` at revision r; by key, who wrote what: the entry's index, and the value
    (None: deleted). `granted`: each role that a user ever had, and ("", "disabled") where authentication ended."""

    hashes: list[int]
    writes: dict[bytes, list[tuple[int, bytes | None]]]
    granted: set[tuple[str, str]]


def a_command(rng: random.Random, replica: Replica, value: bytes):
    """As an API server's: most are bound to the revision that their client read, which may be too old."""
    key = b"/%d" % rng.randrange(12)
    standing = replica.state.index.current.get(key)
    read = standing.mod_revision if standing else 0
    if rng.random() < 0.15:
        read = max(0, read - rng.randrange(1, 6))
    unchanged = (Compare(key, "MOD", "=", read),)
    auth = replica.state.auth
    if auth.enabled and rng.random() < 0.1:
        name, role = rng.choice(("m", "n")), rng.choice(("r", "s", ROOT))
        action = rng.choice(("user grant-role", "user grant-role", "user revoke-role", "user delete", "disable"))
        return AsUser(rng.choice((ROOT, "m", "n")), auth.revision, ChangeAuth(action, name, role))
    command = rng.choice(
        (
            Put(key, value),
            Txn(unchanged, (Put(key, value),)),
            Txn(unchanged, (Put(key, value),), (RangeRequest(key),)),
            Txn(unchanged, (DeleteRange(key),)),
            Txn((Compare(key, "VERSION", "=", 0),), (Put(key, value),)),
            DeleteRange(key),
            LeaseGrant(rng.randrange(1, 9), 60),
            LeaseRevoke(rng.randrange(1, 9)),
            Put(key, value, lease=rng.randrange(1, 9)),
        )
    )
    if not auth.enabled or type(command) is LeaseGrant:
        return command
    return AsUser(rng.choice((ROOT, ROOT, "m", "m", "n", "")), auth.revision - (rng.random() < 0.1), command)


USERS = (
    *(ChangeAuth("user add", name, secret=b"hash") for name in (ROOT, "m", "n")),
    *(ChangeAuth("role add", role) for role in ("r", "s")), ChangeAuth("user grant-role", ROOT, ROOT),
    ChangeAuth("role grant-permission", "r", "", READWRITE, b"/0", b"/6"),
    ChangeAuth("role grant-permission", "s", "", READWRITE, b"/4", b"/9"), ChangeAuth("user grant-role", "m", "r"),
    ChangeAuth("enable"),
)  # fmt: skip
"""m may write half of the keys."""


def a_store(disk, seed: int, snapshots: int) -> Written:
    """Writes to a store of one member, and takes snapshots. No value is written twice."""
    rng = random.Random(seed)
    replica = Replica(LogFiles(disk, rng, 16 << 10), rng, CONFIG)
    replica.open()
    settle(replica)
    hashes: list[int] = []
    writes: dict[bytes, list[tuple[int, bytes | None]]] = {}
    granted: set[tuple[str, str]] = set()
    if seed % 2:
        replica.raft.propose(pack(RaiseVersion(LATEST)))
        settle(replica)
    for command in USERS if seed % 2 else ():
        replica.propose(command, pack(command), lambda result, error: None)
        settle(replica)
    for round in range(snapshots + 1):
        for i in range(rng.randrange(3, 40)):
            value = b"%d.%d " % (round, i) + bytes(rng.choice((0, 5, 900)))
            command = a_command(rng, replica, value)
            before = replica.state.revision
            replica.propose(command, pack(command), lambda result, error: None)
            settle(replica)
            granted |= pairs(replica.state)
            if replica.state.revision > before:
                hashes.append(replica.state.hash(replica.state.revision))
                for kind, kv, _ in replica.state.log.at(replica.state.revision):
                    writes.setdefault(kv.key, []).append(
                        (replica.raft.status().applied, kv.value if kind == "PUT" else None)
                    )
        run(replica.files.upkeep())
        if round < snapshots:
            run(replica.take_snapshot())
    replica.close()
    return Written(hashes, writes, granted)


def pairs(state: StateMachine) -> set[tuple[str, str]]:
    auth = state.auth
    found = {(name, role) for name, user in auth.users.items() for role in user.roles}
    return found | ({("", "disabled")} if auth.used and not auth.enabled else set())


@functools.cache
def stored(seed: int, snapshots: int) -> tuple[dict[str, bytes], Written]:
    disk = SimDisk()
    written = a_store(disk, seed, snapshots)
    return {name: bytes(data) for name, data in disk.image().items()}, written


def salvaged_from(image: dict[str, bytes]):
    return salvage(sorted(image), lambda name: bytes(image[name]))


@pytest.mark.parametrize("snapshots", [0, 1, 2, 4])
def test_of_a_sound_folder_everything_is_had(snapshots):
    image, written = stored(5, snapshots)
    found = salvaged_from(image)
    assert found.whole and found.losses == [] and found.state.hash(found.state.revision) == written.hashes[-1]


class Damage(NamedTuple):
    """`first` and `second` choose files, `place` is where in what was written, `in_head` in its first bytes instead."""

    how: str
    first: int
    second: int = 0
    place: float = 0.0
    in_head: bool = False

    def do(self, image: dict[str, bytearray]) -> tuple[str, int]:
        """Which file, and from which offset on."""
        names = sorted(name for name in image if segment_sequence(name) is not None or snapshot_index(name) is not None)
        if not names:
            return "", 0
        name, other = names[self.first % len(names)], names[self.second % len(names)]
        written = len(image[name].rstrip(b"\0"))
        offset = int(self.place * max(0, min(written, 60) if self.in_head else written - 1))
        damage(image, name, other, self.how, offset)
        return name, offset


damages = st.lists(
    st.builds(
        Damage, st.sampled_from(DAMAGES), st.integers(0, 20), st.integers(0, 20), st.floats(0, 1), st.booleans()
    ),
    min_size=1, max_size=3,
)  # fmt: skip


def judge(found, written: Written, damaged: dict[str, bytearray]) -> None:
    """Nothing false comes back, and everything that is sound does."""
    standing = found.exact.revision
    assert standing == 1 or found.exact.hash(standing) == written.hashes[standing - 2], "never a state that was not"
    assumed = {index for first, last in found.assumed for index in range(first, last + 1)}
    guessed = {key for index in assumed for key in _keys(found.log.entries[index])}
    for key, kv in found.state.index.current.items():
        true = [value for _, value in written.writes.get(key, [])]
        assert kv.value in true or key in guessed, f"{key} had never this value"
    gone = [(gap.first, gap.last) for gap in found.gaps]
    for key, history in written.writes.items():
        index, value = history[-1]
        if found.partial or any(first <= index <= last for first, last in gone) or index > found.reached:
            continue
        kv = found.state.index.current.get(key)
        # Somebody's condition may hold by what is known, and not have held, or the other way round.
        if index in assumed or key in guessed:
            continue
        assert (kv.value if kv else None) == value, f"{key}: what entry {index} wrote is sound"
    assert {each for each in pairs(found.state) if each[0]} <= written.granted, "a role that nobody ever granted"
    uncertain = found.users_lost or found.users_unsure or found.unsure_changes
    log = found.log.entries.values()
    shown = any(each.data and not each.kind and type(unpack(each.data)) is AsUser for each in log)
    opened = written.granted and ("", "disabled") not in written.granted and not found.state.auth.enabled
    assert not (opened and shown) or uncertain, "authentication has ended in silence"
    if not (uncertain or found.gaps):
        assert found.state.auth.records() == found.exact.auth.records()
    again = restore(records_of(found.state))
    assert again.hash() == found.state.hash()


def has_sound_parts(image: dict[str, bytes], damaged: dict[str, bytearray]) -> bool:
    """By the seeds that the segments had; a record alone, whose segment's head is gone, cannot vouch for itself."""
    seeds = {decode_head(name, data).seed for name, data in image.items() if segment_sequence(name) is not None}
    for data in damaged.values():
        for seed in (0, *seeds):
            types = [record.type for record in find_records(bytes(data), 0, seed)]
            headed = decode_record(bytes(data), 0, 0) is not None
            if RecordType.SNAPSHOT_CHUNK in types or (RecordType.ENTRIES in types and (headed or len(types) > 1)):
                return True
    return False


def _keys(entry) -> set[bytes]:
    command = bare(unpack(entry.data))
    ops = command.success if type(command) is Txn else (command,)
    return {op.key for op in ops if type(op) in (Put, DeleteRange)}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(0, 4, [Damage("swap", 2, 3)])
@example(1, 0, [Damage("flip", 0, in_head=True)])
@given(st.integers(0, 8), st.integers(0, 4), damages)
def test_whatever_checksums_vouch_for_comes_back_and_nothing_else(seed, snapshots, done):
    image, written = stored(seed, snapshots)
    damaged = {name: bytearray(data) for name, data in image.items()}
    touched = [damage.do(damaged) for damage in done]
    found = salvaged_from(damaged)
    if found is None:
        assert not has_sound_parts(image, damaged), "there is something to be had"
        return
    judge(found, written, damaged)
    complete = found.state is found.exact and found.state.revision == len(written.hashes) + 1
    # A loss of the last record with all behind it is what no checksum can show.
    newest = max(name for name in image if segment_sequence(name) is not None)
    end_gone = any(damage.how != "swap" and name == newest for damage, (name, _) in zip(done, touched))
    assert complete or not found.whole or end_gone


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 8), st.integers(0, 4), st.integers(0, 20), st.floats(0, 1), st.booleans())
def test_a_byte_that_changed_is_named_with_its_file_and_place(seed, snapshots, first, place, in_head):
    image, written = stored(seed, snapshots)
    damaged = {name: bytearray(data) for name, data in image.items()}
    name, offset = Damage("flip", first, 0, place, in_head).do(damaged)
    found = salvaged_from(damaged)
    if found is None:
        return
    judge(found, written, damaged)
    named = [loss for loss in found.losses if loss.file == name and 0 <= offset - loss.offset < loss.size_bytes]
    padding = segment_sequence(name) is not None and not image[name][offset : max(offset, HEAD_BYTES)].strip(b"\0")
    assert named or found.log.torn_bytes or (padding and offset < HEAD_BYTES)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 8), st.integers(0, 4), damages)
def test_a_start_has_all_or_says_which_file_and_what_to_type(seed, snapshots, done):
    image, written = stored(seed, snapshots)
    damaged = {name: bytearray(data) for name, data in image.items()}
    touched = [damage.do(damaged) for damage in done]
    rng = random.Random(1)
    replica = Replica(LogFiles(SimDisk.from_image(damaged), rng, 16 << 10), rng, CONFIG)
    try:
        replica.open()
    except LogLost as refusal:
        assert "--rejoin" in str(refusal)
    except Corruption as refusal:
        text = str(refusal)
        assert "minikube-py store salvage" in text and "--rejoin" in text
        assert any(f"{name}: damaged at offset" in text for name in image) or "there is no log" in text
    else:
        settle(replica)
        newest = max(name for name in image if segment_sequence(name) is not None)
        end_gone = any(damage.how != "swap" and name == newest for damage, (name, _) in zip(done, touched))
        complete = replica.state.revision == len(written.hashes) + 1
        assert complete or end_gone, "something is gone, and nobody says so"
        if replica.state.revision > 1:
            assert replica.state.hash(replica.state.revision) == written.hashes[replica.state.revision - 2]
        replica.close()


@settings(max_examples=100, deadline=None)
@example(41030, 0.546875, 2)
@given(st.integers(0, 1 << 30), st.floats(0, 1), st.integers(1, 4))
def test_behind_a_gap_updates_bound_to_what_their_client_read_come_back_at_their_revisions(seed, place, broken):
    """The most usual damage: some records of the log of a control plane, all whose writes name what they replace.

    A key whose deletion is lost, and which was made again, is left out: that its maker saw none could be a refusal."""
    rng = random.Random(seed)
    disk = SimDisk()
    replica = Replica(LogFiles(disk, rng, 64 << 10), rng, CONFIG)
    replica.open()
    settle(replica)
    deleted: dict[int, bytes] = {}
    for i in range(120):
        key = b"/%d" % rng.randrange(12)
        standing = replica.state.index.current.get(key)
        unchanged = (Compare(key, "MOD", "=", standing.mod_revision if standing else 0),)
        op = DeleteRange(key) if standing and rng.random() < 0.2 else Put(key, b"%d" % i)
        command = Txn(unchanged, (op,))
        replica.propose(command, pack(command), lambda result, error: None)
        settle(replica)
        if isinstance(op, DeleteRange):
            deleted[replica.state.revision] = key
    [name] = [name for name in disk.image() if segment_sequence(name) is not None]
    data = bytearray(disk.image()[name])
    records = list(find_records(bytes(data), HEAD_BYTES, decode_head(name, bytes(data)).seed))
    first = int(place * (len(records) // 2))
    for record in records[first : first + broken]:
        data[record.offset] ^= 1
    found = salvaged_from({**disk.image(), name: bytes(data)})
    behind = found.gaps[-1].revision if found.gaps else 0
    unsure = {deleted.get(at) for gap in found.gaps for at in range(gap.after + 1, gap.revision + 1)}

    def behind_gaps(state: StateMachine) -> dict[bytes, KeyValue]:
        return {key: kv for key, kv in state.index.current.items() if kv.mod_revision > behind and key not in unsure}

    truth, had = behind_gaps(replica.state), behind_gaps(found.state)
    assert found.state.revision == replica.state.revision
    assert {key: (kv.value, kv.mod_revision) for key, kv in had.items()} == {
        key: (kv.value, kv.mod_revision) for key, kv in truth.items()
    }
    assert found.losses
    # A record of terms and commits alone holds no entry.
    assert found.whole is (set(found.log.entries) == set(range(1, replica.raft.log.last_index + 1)))


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
    assert found.state is not found.exact and not found.whole
    assert 990 <= len(found.state.index.current) < 1500 and found.state.index.current[b"/0001"].value == b"1"
    assert b"/0700" not in found.state.index.current and b"/late" in found.state.index.current
    [loss] = [loss for loss in found.losses if loss.file == snapshots[1]]
    assert loss.offset <= newest.index(b"/0699") < loss.offset + loss.size_bytes


def test_the_command_makes_a_folder_that_starts_and_leaves_the_old_one_alone(tmp_path: Path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    with DataDir(old) as held:
        assert cli.main(["store", "salvage", str(old)]) == 1
        assert "in use by process" in capsys.readouterr().err
        hashes = a_store(held.disk(), 3, 2).hashes
    last = max((old / "store").glob("wal-*"))
    data = bytearray(last.read_bytes())
    start = len(data.rstrip(b"\0")) // 2 + 2048
    data[start] ^= 1
    last.write_bytes(data)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.rglob("*") if path.is_file()}
    assert cli.main(["store", "salvage", str(old), "--to", str(new), "--exact", "--json"]) == DAMAGED
    told = json.loads(capsys.readouterr().out)
    [loss] = told["losses"]
    assert loss["file"] == last.name and loss["entries"] and not told["whole"]
    exact = told["exact"]
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.rglob("*") if path.is_file()} == before
    rng = random.Random(9)
    replica = Replica(LogFiles(DataDir(new).disk(), rng), rng, CONFIG)
    replica.open()
    settle(replica)
    assert replica.state.hash(exact["revision"]) == hashes[exact["revision"] - 2]
    replica.close()
    assert cli.main(["store", "salvage", str(old), "--to", str(new)]) == 1
    assert cli.main(["store", "salvage", str(old), "--to", str(tmp_path / "all"), "--json"]) == DAMAGED
    told = json.loads(capsys.readouterr().out)
    replica = Replica(LogFiles(DataDir(tmp_path / "all").disk(), rng), rng, CONFIG)
    replica.open()
    settle(replica)
    assert (replica.state.revision, len(replica.state.index.current)) == (told["revision"], told["keys"])
    replica.close()
    assert cli.main(["store", "salvage", str(old)]) == DAMAGED
    said = capsys.readouterr().out
    assert f"lost: {last.name} at offset" in said and "recovered: revision" in said
    assert cli.main(["store", "salvage", str(tmp_path / "nowhere")]) == 1
