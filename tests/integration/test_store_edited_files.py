"""Somebody edits the files of one of three members: the other two go on; the odd one is alike again, or stands aside
and says what to do."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from disk_damage import DAMAGES, damage
from patience import until
from ports import free_ports

from minikube_py.control_plane.linked_member import LinkedMember, PeerPort
from minikube_py.control_plane.store_salvage import look, write
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.errors import Corruption, MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.mvcc.types import Put
from minikube_py.raft.codec import encode_change
from minikube_py.raft.message import TERM_MAX, EntryKind
from minikube_py.store import discovery
from minikube_py.store.bootstrap import parse_initial_cluster
from minikube_py.store.log_files import LogFiles
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.member_status import status_of
from minikube_py.store.membership import DIFFERS, ChangeKind, MemberChange, Membership
from minikube_py.store.salvage import Salvaged
from minikube_py.wal.record import RecordType, decode_record, encode_record
from minikube_py.wal.recovery import read_segment
from minikube_py.wal.segment import HEAD_BYTES, decode_head, segment_sequence
from minikube_py.wal.snapshot import SnapshotHead, SnapshotWriter, read_snapshot, snapshot_index

CONFIG = MemberConfig(segment_bytes=16 << 10, snapshot_log_bytes=20 << 10, reserve_bytes=0)
SIZE = 3


class Trio:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(range(1, SIZE + 1), free_ports(SIZE)))
        self.members: dict[int, LinkedMember] = {}
        self.ended: dict[int, list[str]] = {number: [] for number in self.ports}
        self.names = ",".join(f"store-{number}=127.0.0.1:{port}" for number, port in self.ports.items())

    def files(self, number: int) -> Path:
        return self.folder / str(number)

    async def start(self, number: int, *, rejoin: bool = False) -> LinkedMember:
        address = f"127.0.0.1:{self.ports[number]}"
        port = PeerPort("127.0.0.1", self.ports[number], "token", parse_initial_cluster(self.names), rejoin)
        ended = self.ended[number]
        linked = LinkedMember(
            SystemDisk(self.files(number)), SystemClock(), random.Random(), port, name=f"store-{number}",
            peer=address, client=address, fatal=ended.append, removed=ended.append, say=lambda _: None, config=CONFIG,
        )  # fmt: skip
        self.members[number] = linked
        try:
            await linked.start()
        except MinikubeError:
            await self.stop(number)
            raise
        return linked

    async def stop(self, number: int) -> None:
        await self.members.pop(number).stop()

    async def put(self, count: int) -> None:
        for number in range(count):
            await until(lambda number=number: self._put(b"/k/%d" % number))

    async def _put(self, key: bytes) -> bool:
        for linked in list(self.members.values()):
            member = linked.member
            if member.opened and not member.failed and member.replica.leading:
                try:
                    await member.storage.txn((), (Put(key, bytes(200)),))
                except (Unavailable, OutcomeUnknown):
                    continue
                return True
        return False

    def leader(self) -> int:
        return next(number for number, linked in self.members.items() if linked.member.replica.leading)

    def alike(self) -> bool:
        states = [linked.member.state for linked in self.members.values()]
        return len({(state.revision, state.hash()) for state in states}) == 1


class Edited:
    """`own`: the member's files; `other`: those of one that runs; `backup`: its own, of a while ago."""

    def __init__(self, own: Path, other: Path, backup: Path, rng: random.Random) -> None:
        self.own, self.other, self.backup, self.rng = own, other, backup, rng

    def others_folder(self) -> None:
        shutil.rmtree(self.own)
        shutil.copytree(self.other, self.own)

    def others_log(self) -> None:
        """But its own identity."""
        identity = (self.own / "identity").read_bytes()
        self.others_folder()
        (self.own / "identity").write_bytes(identity)

    def others_identity(self) -> None:
        shutil.copy(self.other / "identity", self.own / "identity")

    def old_backup(self) -> None:
        shutil.rmtree(self.own)
        shutil.copytree(self.backup, self.own)

    def old_segment(self) -> None:
        """The newest of the backup, and none behind it."""
        old = max(self.backup.glob("wal-*.log"))
        for path in self.own.glob("wal-*.log"):
            if path.name > old.name:
                path.unlink()
        shutil.copy(old, self.own / old.name)

    def no_log(self) -> None:
        for path in self.own.iterdir():
            if path.name != "identity":
                path.unlink()

    def no_identity(self) -> None:
        (self.own / "identity").unlink()

    def damaged(self) -> None:
        """One to three of what disks and editors do, anywhere."""
        image = {path.name: bytearray(path.read_bytes()) for path in self.own.iterdir()}
        for _ in range(self.rng.randrange(1, 4)):
            names = [name for name in image if segment_sequence(name) is not None or snapshot_index(name) is not None]
            if names:
                name, other = self.rng.choice(names), self.rng.choice(names)
                written = len(image[name].rstrip(b"\0"))
                damage(image, name, other, self.rng.choice(DAMAGES), self.rng.randrange(max(1, written)))
        for path in self.own.iterdir():
            path.unlink()
        for name, data in image.items():
            (self.own / name).write_bytes(data)


EDITS: dict[str, tuple[Callable[[Edited], None], str]] = {
    "others_folder": (Edited.others_folder, "one folder was copied over the other"),
    "others_log": (Edited.others_log, "files of two members are in"),
    "others_identity": (Edited.others_identity, "files of two members are in"),
    "old_backup": (Edited.old_backup, "is an older copy, or was truncated: this log ends at entry"),
    "old_segment": (Edited.old_segment, ""),
    "no_log": (Edited.no_log, "under this id it must not vote again"),
    "no_identity": (Edited.no_identity, "alike"),
    **{f"damaged_{seed}": (Edited.damaged, "") for seed in range(6)},
}


def append(folder: Path, *records: tuple[RecordType, list[Any]]) -> None:
    """Appends valid records to the log, as an editor might who knows the format. Entries take the place of those that
    have their indexes."""
    path = max(folder.glob("wal-*.log"))
    data = bytearray(path.read_bytes())
    head, end = decode_head(path.name, bytes(data)), HEAD_BYTES
    while (record := decode_record(bytes(data), end, head.seed)) is not None:
        end = record.end
    for type, payload in records:
        new = encode_record(type, msgpack.packb(payload), seed=head.seed, offset=end, synced=end)
        data[end : end + len(new)] = new
        end += len(new)
    path.write_bytes(data)


def last_entry(folder: Path) -> tuple[int, int]:
    """Its term and index. Only of a log of one segment."""
    [path] = folder.glob("wal-*.log")
    data = path.read_bytes()
    records = read_segment(path.name, data, decode_head(path.name, data), None)
    runs = [msgpack.unpackb(each.payload) for each in records if each.type == RecordType.ENTRIES]
    term, first, datas = runs[-1][:3]
    return term, first + len(datas) - 1


def set_term(folder: Path, term: int) -> None:
    append(folder, (RecordType.HARD_STATE, [term, 0, 0]))


LATER = msgpack.packb((1, [250, "of a later version"]))
ENTRIES = {
    "a command of a later version": (LATER, EntryKind.NORMAL, "no message has the tag 250"),
    "no change of members": (b"junk", EntryKind.CHANGE, "a change of members"),
}


@pytest.mark.parametrize("place", ["after all", "in place of the last one", "in place of a committed one"])
@pytest.mark.parametrize("name", ENTRIES)
async def test_an_entry_in_one_members_file_that_nobody_can_apply_ends_no_cluster(
    name: str, place: str, tmp_path: Path
):
    data, kind, why = ENTRIES[name]
    trio = Trio(tmp_path)
    await asyncio.gather(*map(trio.start, trio.ports))
    try:
        await trio.put(5)
        await until(trio.alike)
        odd = trio.leader()
        for number in list(trio.members):
            await trio.stop(number)
        term, last = last_entry(trio.files(odd))
        index = last + (place == "after all")
        commit = index if place == "in place of a committed one" else index - 1
        append(
            trio.files(odd),
            (RecordType.ENTRIES, [term, index, [data], kind]),
            (RecordType.HARD_STATE, [term, 0, commit]),
        )
        skipped = commit == index and kind == EntryKind.CHANGE
        said: list[str] = []

        async def start(number: int) -> None:
            try:
                await trio.start(number)
            except MinikubeError as refusal:
                said.append(str(refusal))

        await asyncio.gather(*map(start, trio.ports))
        await trio.put(10)
        if skipped:
            said += status_of(trio.members[odd].member)["warnings"]
        elif commit == index:
            await until(lambda: bool(trio.ended[odd]))
            said += trio.ended[odd]
        await asyncio.gather(*(trio.stop(number) for number in list(trio.members) if number == odd))
        others = [trio.members[number].member for number in trio.ports if number != odd]
        assert not any(member.failed for member in others)
        [text] = dict.fromkeys(said)
        assert f"entry {index}" in text and why in text and "--rejoin" in text
        assert skipped or f"minikube-py store salvage {trio.files(odd)} --to" in text
        shutil.rmtree(trio.files(odd))
        trio.files(odd).mkdir()
        await trio.start(odd, rejoin=True)
        await trio.put(10)
        await until(trio.alike)
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def stopped_alike(trio: Trio) -> int:
    """The hash of what the three held."""
    await asyncio.gather(*map(trio.start, trio.ports))
    try:
        await trio.put(5)
        await until(trio.alike)
        return trio.members[1].member.state.hash()
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def started_from_salvage(trio: Trio, folder: Path, hash: int) -> Salvaged:
    """What was salvaged of the first member, on which one member starts and holds what the three held."""
    salvaged = look(trio.files(1))
    assert salvaged is not None
    write(salvaged, folder, random.Random(1))
    member = StoreMember(SystemDisk(folder / "store"), SystemClock(), random.Random(), config=CONFIG)
    await member.start()
    try:
        assert member.state.hash() == hash
    finally:
        await member.stop()
    return salvaged


async def test_members_that_all_hold_such_an_entry_are_repaired_by_salvage(tmp_path: Path):
    trio = Trio(tmp_path)
    hash = await stopped_alike(trio)
    for number in trio.ports:
        term, last = last_entry(trio.files(number))
        append(trio.files(number), (RecordType.ENTRIES, [term, last + 1, [LATER]]))
        with pytest.raises(MinikubeError, match=r"store salvage .* start one member on it"):
            await trio.start(number)
    await started_from_salvage(trio, tmp_path / "new", hash)


@pytest.mark.parametrize("term", [2**40, TERM_MAX - 1, TERM_MAX, 2**63 - 1])
async def test_a_term_in_one_members_file_leads_nobody_to_it(term: int, tmp_path: Path):
    trio = Trio(tmp_path)
    await asyncio.gather(*map(trio.start, trio.ports))
    try:
        await trio.put(5)
        odd, (first, second) = 3, (1, 2)
        await trio.stop(odd)
        set_term(trio.files(odd), term)
        if term >= TERM_MAX:
            with pytest.raises(MinikubeError, match=f"term {term:,} is beyond .*--rejoin"):
                await trio.start(odd)
        else:
            id = (await trio.start(odd)).member.member_id
            others = [trio.members[number].member for number in (first, second)]
            await until(lambda: any(each.raft.apart for each in others))
            told = " ".join(text for each in others for text in status_of(each)["warnings"])
            assert f"member {id:x} is in term " in told and "--rejoin" in told
            await trio.put(5)
            await trio.stop(odd)
        await trio.put(5)
        shutil.rmtree(trio.files(odd))
        trio.files(odd).mkdir()
        await trio.start(odd, rejoin=True)
        await until(trio.alike)
        assert max(linked.member.raft.term for linked in trio.members.values()) < 1000
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def test_members_that_all_have_such_a_term_are_repaired_by_salvage(tmp_path: Path):
    trio = Trio(tmp_path)
    hash = await stopped_alike(trio)
    for number in trio.ports:
        set_term(trio.files(number), 2**63 - 1)
    with pytest.raises(MinikubeError, match="beyond"):
        await trio.start(1)
    assert (await started_from_salvage(trio, tmp_path / "new", hash)).whole


@pytest.mark.parametrize(("name", "leads"), [*((name, False) for name in EDITS), ("old_backup", True)])
async def test_two_go_on_and_the_odd_one_is_alike_again_or_says_what_to_do(name: str, leads: bool, tmp_path: Path):
    edit, expected = EDITS[name]
    trio = Trio(tmp_path)
    for number in trio.ports:
        trio.files(number).mkdir()
    await asyncio.gather(*map(trio.start, trio.ports))
    try:
        await trio.put(40)
        first = trio.leader()
        odd = first if leads else next(number for number in trio.ports if number != first)
        other = next(number for number in trio.ports if number != odd)
        await trio.stop(odd)
        shutil.copytree(trio.files(odd), tmp_path / "backup")
        await trio.start(odd)
        await trio.put(150)
        await until(trio.alike)
        id = trio.members[odd].member.member_id
        await trio.stop(odd)
        edit(Edited(trio.files(odd), trio.files(other), tmp_path / "backup", random.Random(name)))
        try:
            await trio.start(odd)
        except MinikubeError as refusal:
            said = str(refusal)
        else:
            await trio.put(10)
            assert trio.members[odd].member.member_id == id
            await until(lambda: bool(trio.ended[odd]) or trio.alike())
            said = " ".join(trio.ended[odd]) or "alike"
            if trio.ended[odd]:
                await trio.stop(odd)
        assert expected in said
        await trio.put(10)
        if odd not in trio.members:
            assert ("--rejoin" in said and str(trio.files(odd)) in said) or "under this id" in said
            shutil.rmtree(trio.files(odd))
            trio.files(odd).mkdir()
            await trio.start(odd, rejoin=True)
        await trio.put(10)
        await until(trio.alike)
    finally:
        for number in list(trio.members):
            await trio.stop(number)


@pytest.mark.parametrize("rejoin", [False, True])
@pytest.mark.parametrize("name", ["", "other"])
async def test_another_clusters_folder_is_refused(name: str, rejoin: bool, tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    lone = StoreMember(SystemDisk(trio.files(3)), SystemClock(), random.Random(1), config=CONFIG)
    await lone.start()
    await lone.change_members(MemberChange(ChangeKind.UPDATE, lone.member_id, name))
    await lone.stop()
    with pytest.raises(Corruption, match="it is another cluster's folder") as refused:
        await trio.start(3, rejoin=rejoin)
    said = str(refused.value)
    assert str(trio.files(3)) in said and "names store-1, store-2, store-3" in said and "an empty one with" in said
    trio.names = f"{name or 'any'}=127.0.0.1:{trio.ports[3]}"
    await trio.start(3)
    await trio.stop(3)


def newest_snapshot(folder: Path) -> Path:
    return max(folder.glob("snapshot-*.snap"))


def with_head(folder: Path, change: Callable[[SnapshotHead], dict[str, Any]]) -> Path:
    """The newest snapshot with another head, as an editor writes it who makes all checksums again."""
    path = newest_snapshot(folder)
    head, chunks = read_snapshot(path.name, path.read_bytes())
    writer = SnapshotWriter(head._replace(**change(head)))
    path.write_bytes(b"".join([writer.head_bytes, *map(writer.chunk, chunks), writer.end()]))
    return path


def own_member(head: SnapshotHead) -> list[Any]:
    return [[each for each in head.members[0] if each[0] == head.member_id], [], []]


def own_voter(head: SnapshotHead) -> list[Any]:
    return [[head.member_id], [], [], [], False]


HEADS: dict[str, Callable[[SnapshotHead], dict[str, Any]]] = {
    "members are no record": lambda head: {"members": ["x"]},
    "no members": lambda head: {"members": None},
    "itself the only member": lambda head: {"members": own_member(head)},
    "itself the only voter": lambda head: {"configuration": own_voter(head)},
    "another voter": lambda head: {"configuration": [[1], [], [], [], False]},
    "no configuration": lambda head: {"configuration": "x"},
}


async def filled(trio: Trio) -> int:
    """Each has two snapshots. Returns a follower, stopped."""
    for number in trio.ports:
        trio.files(number).mkdir()
    await asyncio.gather(*map(trio.start, trio.ports))
    await trio.put(250)
    await until(trio.alike)
    odd = next(number for number in trio.ports if number != trio.leader())
    await trio.stop(odd)
    return odd


async def rejoined(trio: Trio, odd: int) -> None:
    shutil.rmtree(trio.files(odd))
    trio.files(odd).mkdir()
    await trio.start(odd, rejoin=True)
    await trio.put(5)
    await until(trio.alike)


@pytest.mark.parametrize("name", HEADS)
async def test_a_snapshot_whose_members_and_voters_differ_counts_as_damaged(name: str, tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    try:
        odd = await filled(trio)
        path = with_head(trio.files(odd), HEADS[name])
        linked = await trio.start(odd)
        [warning] = status_of(linked.member)["warnings"]
        assert f"{path.name}: damaged at offset 0: a snapshot's" in warning
        await trio.put(5)
        await until(trio.alike)
        assert linked.member.raft.configuration == trio.members[trio.leader()].member.raft.configuration
        await trio.stop(odd)
        for each in trio.files(odd).glob("wal-*.log"):
            each.unlink()
        with_head(trio.files(odd), HEADS[name])
        with pytest.raises(Corruption, match=r"damaged at offset 0: .*--rejoin.*salvage"):
            await trio.start(odd)
        await rejoined(trio, odd)
    finally:
        for number in list(trio.members):
            await trio.stop(number)


def alone_in_snapshot(folder: Path) -> None:
    with_head(folder, lambda head: {"configuration": own_voter(head), "members": own_member(head)})


def alone_in_a_marked_one(folder: Path) -> None:
    with_head(folder, lambda head: {"configuration": own_voter(head), "members": [*head.members, DIFFERS]})


def alone_by_its_log(folder: Path) -> None:
    """Entries that remove the other two, committed by its own word."""
    files = LogFiles(SystemDisk(folder), random.Random(1))
    loaded = files.load()
    assert loaded.snapshot is not None
    head, log = loaded.snapshot.head, loaded.log
    members = Membership.from_plain(head.members)
    removals = []
    for other in members.members:
        if other.id != head.member_id:
            change = MemberChange(ChangeKind.REMOVE, other.id)
            removals.append(encode_change(members.conf_change(change)))
            members = members.apply(change)
    term, index = log.state.term, head.index + len(log.entries) + 1
    append(
        folder,
        (RecordType.ENTRIES, [term, index, removals, EntryKind.CHANGE]),
        (RecordType.HARD_STATE, [term, 0, index + 1]),
    )


@pytest.mark.parametrize("edit", [alone_in_snapshot, alone_in_a_marked_one, alone_by_its_log])
async def test_who_is_the_only_voter_by_its_files_asks_the_others_before_it_leads(
    edit: Callable[[Path], None], tmp_path: Path
) -> None:
    trio = Trio(tmp_path)
    try:
        odd = await filled(trio)
        edit(trio.files(odd))
        # Two have committed as much as the third could know.
        await trio.put(5)
        with pytest.raises(Corruption, match=f"has store-{odd} as the only voter of cluster") as refused:
            await trio.start(odd)
        said = str(refused.value)
        assert str(newest_snapshot(trio.files(odd))) in said and "knows store-" in said and "--rejoin" in said
        await trio.put(5)
        await rejoined(trio, odd)
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def test_where_nobody_answers_it_leads_and_all_say_later_that_they_are_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "QUESTION_S", 0.2)
    trio = Trio(tmp_path)
    try:
        odd = await filled(trio)
        alone_in_snapshot(trio.files(odd))
        for number in list(trio.members):
            await trio.stop(number)
        linked = await trio.start(odd)
        assert linked.member.replica.leading
        await trio.put(400)
        await asyncio.gather(*[trio.start(number) for number in trio.ports if number != odd])

        def told(number: int) -> str:
            return " ".join(status_of(trio.members[number].member)["warnings"])

        own = f"member {linked.member.member_id:x} says that it is of this cluster, and does not know this one"
        await until(lambda: all(own in told(number) for number in trio.ports if number != odd))
        assert "is unknown here" in told(odd) and "--rejoin" in told(odd)
        await trio.stop(odd)
        await rejoined(trio, odd)
        await until(lambda: not any(own in told(number) for number in trio.ports))
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def test_the_last_voter_leads_though_a_removed_member_that_lags_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "QUESTION_S", 0.2)
    trio = Trio(tmp_path)
    try:
        lagging = await filled(trio)
        last = trio.leader()
        member = trio.members[last].member
        for number in trio.ports:
            if number != last:
                named = member.membership.named(f"store-{number}")
                assert named is not None
                await member.change_members(MemberChange(ChangeKind.REMOVE, named.id))
        await trio.put(5)
        for number in list(trio.members):
            await trio.stop(number)
        await trio.start(lagging)
        assert len(trio.members[lagging].member.membership.members) == SIZE
        linked = await trio.start(last)
        await until(lambda: bool(linked.member.replica.leading))
        await until(lambda: bool(trio.ended[lagging]))
        assert "was removed" in trio.ended[lagging][0]
    finally:
        for number in list(trio.members):
            await trio.stop(number)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
async def test_an_identity_that_is_no_file_is_a_refusal_with_advice(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    member = StoreMember(SystemDisk(tmp_path), SystemClock(), random.Random(1), config=CONFIG)
    await member.start()
    await member.stop()
    identity = tmp_path / "identity"
    identity.unlink()
    make(identity)
    again = StoreMember(SystemDisk(tmp_path), SystemClock(), random.Random(1), config=CONFIG)
    with pytest.raises(Corruption, match=f"{identity}: not a file .*remove it if the log .* is intact.*--rejoin"):
        await again.start()
