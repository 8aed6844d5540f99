"""Somebody edits what is no key in the snapshots of one of three members, and makes the checksums again: it starts, and
the leader's comparison names it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_store_edited_files import Trio

from minikube_py.mvcc import snapshot
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import ChangeAuth, Command, LeaseGrant, OpenSession
from minikube_py.store.hash_check import Verdict
from minikube_py.store.member import StoreMember
from minikube_py.wal.snapshot import SnapshotWriter, read_snapshot

Change = Callable[[list[Any]], None]


def longer_lease(record: list[Any]) -> None:
    if record[0] == snapshot.LEASE:
        record[2] = 8_000_000_000


def another_password(record: list[Any]) -> None:
    if record[0] == snapshot.USERS_AND_ROLES:
        record[3][0][2] = b"another"


def acknowledged_more(record: list[Any]) -> None:
    if record[0] == snapshot.SESSION:
        record[4] += 1


async def done(member: StoreMember, command: Command) -> None:
    applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    member.propose(command, pack(command), lambda *_: applied.set_result(None), own=True)
    await applied


def edit(folder: Path, change: Change) -> int:
    """All snapshots; returns how many records differ now."""
    changed = 0
    for path in folder.glob("snapshot-*.snap"):
        head, chunks = read_snapshot(path.name, path.read_bytes())
        writer, slices = SnapshotWriter(head), []
        for records in chunks:
            before = repr(records)
            for record in records:
                change(record)
            changed += repr(records) != before
            slices.append(writer.chunk(records))
        path.write_bytes(b"".join([writer.head_bytes, *slices, writer.end()]))
    return changed


@pytest.mark.parametrize("change", [longer_lease, another_password, acknowledged_more])
async def test_what_is_no_key_in_an_edited_folder_is_found_by_the_leader(change: Change, tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    try:
        for number in trio.ports:
            trio.files(number).mkdir()
        await asyncio.gather(*map(trio.start, trio.ports))
        await trio.put(1)
        leader = trio.members[trio.leader()].member
        for command in (LeaseGrant(5, 1000), ChangeAuth("user add", "ann", secret=b"hash"), OpenSession(7)):
            await done(leader, command)
        await trio.put(250)
        await until(trio.alike)
        odd = next(number for number in trio.ports if number != trio.leader())
        await trio.stop(odd)
        assert edit(trio.files(odd), change) == len(list(trio.files(odd).glob("snapshot-*.snap"))) == 2
        edited = (await trio.start(odd)).member
        await trio.put(1)
        members = [linked.member for linked in trio.members.values()]
        await until(lambda: len({(each.raft.log.applied, each.state.revision) for each in members}) == 1)
        check = trio.members[trio.leader()].member.upkeep.hash_check
        await until(lambda: _found(check, edited.member_id))
        assert "leases, users, sessions" in check.difference and edited.replica.files.warnings == ()
    finally:
        for number in list(trio.members):
            await trio.stop(number)


async def _found(check: Any, odd: int) -> bool:
    return bool(await check._compare() == Verdict((odd,)))
