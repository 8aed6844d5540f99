"""Snapshot files apart from a running store: verified, and made into the folder of a new member."""

import json
from pathlib import Path

import pytest

from minikube_py.cli import main as cli
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.store_snapshots import NewMember, expected_members, restore, verify
from minikube_py.env import Rng, SystemDisk
from minikube_py.errors import Corruption
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import LeaseGrant, Put, Txn
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex, SnapshotMeta, Term
from minikube_py.store.data_dir import DataDir
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import Member, Membership
from minikube_py.store.replica import Replica
from minikube_py.store.snapshot_transfer import head_of
from minikube_py.wal.snapshot import SnapshotWriter

KEYS = 1200


@pytest.fixture
def state() -> StateMachine:
    made = StateMachine()
    made.apply(LeaseGrant(7, 60))
    for number in range(KEYS):
        made.apply(Txn((), (Put(f"/key/{number:05d}".encode(), f"value {number}".encode()),), ()))
    return made


@pytest.fixture
def saved(state: StateMachine, tmp_path: Path) -> Path:
    """As member 2 of three would have written it after entry 5,000 of term 3."""
    members = Membership.of(Member(NodeId(id), f"store-{id}", f"h{id}:2391", f"h{id}:2390") for id in (1, 2, 3))
    meta = SnapshotMeta(LogIndex(5000), Term(3), Configuration(frozenset(map(NodeId, (1, 2, 3)))))
    writer = SnapshotWriter(head_of(99, 2, meta, members.to_plain()))
    data = writer.head_bytes + b"".join(writer.chunk(records) for records in records_of(state) if records)
    path = tmp_path / "backup.snap"
    path.write_bytes(data + writer.end())
    return path


def replica_of(folder: Path) -> Replica:
    rng = Rng(1)
    replica = Replica(LogFiles(SystemDisk(folder / "store"), rng), rng)
    replica.open()
    while (turn := replica.turn()) is not None:
        if turn.sync is not None:
            turn.sync()
            replica.synced()
    return replica


def test_verify_tells_what_is_in_it(state: StateMachine, saved: Path) -> None:
    report = verify(saved)
    assert (report.head.index, report.head.term, report.head.cluster_id, report.head.member_id) == (5000, 3, 99, 2)
    assert (report.revision, report.keys, report.leases) == (state.revision, KEYS, 1)
    assert report.hash == state.hash(state.revision)
    assert report.size_bytes == saved.stat().st_size
    assert [member.name for member in report.membership.members] == ["store-1", "store-2", "store-3"]


def test_a_restored_member_leads_a_new_cluster_and_holds_the_same(
    state: StateMachine, saved: Path, tmp_path: Path
) -> None:
    initial = (("a", "ha:2391"), ("b", "hb:2391"), ("c", "hc:2391"))
    new = NewMember("a", "ha:2391", "ha:2390", expected_members(initial, "a"))
    cluster_id, member_id = restore(saved, tmp_path / "new", new, Rng(5))
    assert cluster_id not in (0, 99) and member_id not in (0, 1, 2, 3)
    replica = replica_of(tmp_path / "new")
    assert replica.leading and replica.alone
    assert (replica.cluster_id, replica.member_id) == (cluster_id, member_id)
    assert replica.state.hash(state.revision) == state.hash(state.revision)
    assert [(each.name, each.peer, each.client) for each in replica.membership.members] == [("a", "ha:2391", "ha:2390")]
    assert [(each.name, each.peer) for each in replica.membership.expected] == [("b", "hb:2391"), ("c", "hc:2391")]

    wrote: list[object] = []
    put = Txn((), (Put(b"/after", b"x"),), ())
    from minikube_py.mvcc.codec import pack

    replica.propose(put, pack(put), lambda result, error: wrote.append(error or result))
    while (turn := replica.turn()) is not None:
        if turn.sync is not None:
            turn.sync()
            replica.synced()
    assert wrote and replica.state.revision == state.revision + 1
    replica.files.close()
    again = replica_of(tmp_path / "new")
    assert again.state.revision == state.revision + 1 and again.leading
    again.files.close()


def test_a_folder_with_a_member_is_not_touched(saved: Path, tmp_path: Path) -> None:
    restore(saved, tmp_path / "new", NewMember(), Rng(5))
    before = {path: path.read_bytes() for path in (tmp_path / "new" / "store").iterdir()}
    with pytest.raises(SetupError, match="holds a store member already"):
        restore(saved, tmp_path / "new", NewMember(), Rng(6))
    assert {path: path.read_bytes() for path in (tmp_path / "new" / "store").iterdir()} == before


def test_a_folder_in_use_is_refused(saved: Path, tmp_path: Path) -> None:
    with DataDir(tmp_path / "new"), pytest.raises(Exception, match="in use by process"):
        restore(saved, tmp_path / "new", NewMember(), Rng(5))


@pytest.mark.parametrize("place", [0, 100, 0.5, -1], ids=["first byte", "head", "middle", "last byte"])
@pytest.mark.parametrize("how", ["flipped", "cut", "appended"])
def test_damage_is_found_and_nothing_is_made_of_it(saved: Path, tmp_path: Path, place: float, how: str) -> None:
    data = bytearray(saved.read_bytes())
    offset = int(len(data) * place) if isinstance(place, float) else place % len(data)
    if how == "flipped":
        data[offset] ^= 1
    elif how == "cut":
        del data[offset:]
    else:
        data += b"\0"
    saved.write_bytes(data)
    with pytest.raises(Corruption, match=r"backup\.snap"):
        verify(saved)
    with pytest.raises(Corruption):
        restore(saved, tmp_path / "new", NewMember(), Rng(5))
    assert not (tmp_path / "new").exists()


def test_from_the_command_line(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "snapshot", "verify", str(saved)]) == 0
    out = capsys.readouterr().out
    assert "is whole" in out and f"{KEYS:,} keys" in out and "entry 5,000 of term 3" in out
    assert cli.main(["store", "snapshot", "verify", str(saved), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["keys"] == KEYS and [each["name"] for each in told["members"]] == ["store-1", "store-2", "store-3"]
    command = ["store", "snapshot", "restore", str(saved), "--data-dir", str(tmp_path / "d"), "--json"]
    assert cli.main(command) == 0
    cluster = json.loads(capsys.readouterr().out)["cluster"]
    replica = replica_of(tmp_path / "d")
    assert f"{replica.cluster_id:x}" == cluster
    replica.files.close()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["verify", "/nowhere"], cli.USAGE, "argument FILE: /nowhere: no such file", id="absent"),
        pytest.param(["verify", "/tmp"], cli.USAGE, "argument FILE: /tmp: not a regular file", id="a folder"),
        pytest.param(["verify", __file__], cli.DAMAGED, "the snapshot's header is unreadable", id="something else"),
        pytest.param(
            ["restore", __file__, "--data-dir", "/y", "--initial-cluster", "a=h:1"], cli.USAGE, "--name", id="no name"
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["store", "snapshot", *arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
