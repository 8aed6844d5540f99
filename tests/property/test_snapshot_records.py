"""A snapshot whose checksums hold, and whose records somebody edited: what a start makes of it.

What is taken is a state that gives the same records again, and that applies whatever comes; anything else is refused in
words of the store's own, with file and offset, or does without that file where the one before it is whole."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from collections import Counter
from functools import cache
from typing import Any

import edges
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikube_py.env import File
from minikube_py.errors import Corruption, InvalidRequest, RequestError, SessionExpired
from minikube_py.fields.builtin import NODES
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import HEAD, LEASE, Unfit, restore
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    ChangeAuth,
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RangeRequest,
    SetAlarm,
    Txn,
)
from minikube_py.mvcc.versions import TooNew
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, HardState, LogIndex, SnapshotMeta, Term
from minikube_py.sim.disk import SimDisk
from minikube_py.store.folder import Steps
from minikube_py.store.log_files import LogFiles, Origin, SnapshotFile
from minikube_py.store.membership import Member, Membership
from minikube_py.store.recovery import recover
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, TransferRefused, head_of
from minikube_py.wal.snapshot import SnapshotWriter, snapshot_name

CLUSTER, OWN = 5, NodeId(7)
MEMBERS = Membership.of((Member(OWN, "store-0", "h:1", "h:2"),))
USERS = [
    ChangeAuth("role add", "r"), ChangeAuth("role grant-permission", "r", kind=2, key=b"/a", range_end=b"/b"),
    ChangeAuth("role add", "root"), ChangeAuth("user add", "root", secret=b"x"),
    ChangeAuth("user grant-role", "root", "root"), ChangeAuth("user add", "u", secret=b"y"),
    ChangeAuth("user grant-role", "u", "r"),
]  # fmt: skip
INDEX = IndexSpec("by-cpu", "nodes", ("allocatable.cpu",), "KdTree")
COMMANDS: list[Any] = [
    DeclareFields(NODES), DeclareIndex(INDEX), *USERS, OpenSession(3), OpenSession(4),
    LeaseGrant(11, 60), LeaseGrant(12, 90), Put(b"/a/1", b"v", 11), Put(b"/a/2", b"w", 12), Put(b"/b", b"x"),
    InSession(10, 1, 1, Txn((), (Put(b"/s", b"1"), RangeRequest(b"/a", b"/b")))),
    InSession(10, 2, 1, Put(b"/t", b"1", 999)), InSession(11, 1, 1, DeleteRange(b"/b", b"", True)),
    Txn((), (Put(b"/x", b"1"), Put(b"/y", b"2"))), Compact(7), Put(b"/a/1", b"v2", 11), DeleteRange(b"/y"),
    Put(b"/y", b"3"), SetAlarm(True, 9, "NOSPACE"),
]  # fmt: skip
FIRST_AT, NEWEST_AT = 12, len(COMMANDS)
LATER = [
    DeleteRange(b"/x"), LeaseRevoke(12), DropIndex("by-cpu"), SetAlarm(False), LeaseGrant(13, 9), Put(b"/n", b"1", 13),
]  # fmt: skip


def apply(state: StateMachine, command: Any) -> None:
    with contextlib.suppress(RequestError, SessionExpired):
        state.apply(command)


def after(commands: int) -> StateMachine:
    state = StateMachine()
    for command in COMMANDS[:commands]:
        apply(state, command)
    return state


@cache
def packed(commands: int) -> bytes:
    """The records of a snapshot after so many commands."""
    found: bytes = msgpack.packb([record for each in records_of(after(commands)) for record in each])
    return found


def plain(commands: int = NEWEST_AT) -> list[Any]:
    return list(msgpack.unpackb(packed(commands), strict_map_key=False))


NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 8, 11, -1, 5000, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=2) | st.binary(max_size=3) | st.floats(0, 2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


@st.composite
def edited(draw: st.DrawFn, commands: int = NEWEST_AT) -> list[Any]:
    """The records of a whole snapshot after one to three changes."""
    records = plain(commands)
    for _ in range(draw(st.integers(1, 3))):
        if not records:
            break
        at = draw(st.integers(0, len(records) - 1))
        other = draw(st.integers(0, len(records) - 1))
        what = draw(st.sampled_from(["drop", "double", "swap", "move", "part", "part", "part", "value"]))
        if what == "drop":
            del records[at]
        elif what == "double":
            records.insert(other, copy.deepcopy(records[at]))
        elif what == "swap":
            records[at], records[other] = records[other], records[at]
        elif what == "move":
            records.insert(other, records.pop(at))
        elif what == "value":
            records[at] = draw(VALUES)
        else:
            edit_part(draw, records[at])
    return records


def edit_part(draw: st.DrawFn, record: Any) -> None:
    """One part of a record, at any depth: another value, one more, one less, or one of its neighbours'."""
    places = [(record, at) for at in range(len(record))] if isinstance(record, list) else []
    for parent, at in places:
        if isinstance(parent[at], list):
            places.extend((parent[at], inner) for inner in range(len(parent[at])))
    if not places:
        return
    parent, at = draw(st.sampled_from(places))
    what = draw(st.sampled_from(["set", "set", "set", "near", "drop", "add", "copy"]))
    if what == "set":
        parent[at] = draw(VALUES)
    elif what == "near" and type(parent[at]) is int:
        parent[at] += draw(st.sampled_from([-1, 1]))
    elif what == "drop":
        del parent[at]
    elif what == "add":
        parent.insert(at, draw(VALUES))
    else:
        parent[at] = copy.deepcopy(draw(st.sampled_from(parent)))


PYTHON = re.compile(r"\b[A-Z]\w+(Error|Exception)\b|object is not|unpack|NoneType|out of range|unhashable|argument")


def says_what_is_wrong(error: Exception) -> None:
    assert not PYTHON.search(str(error)), error


def canonical(records: list[Any]) -> Counter[bytes]:
    """In any order; a head and a lease may leave out what is 0."""
    sizes = {HEAD: 8, LEASE: 5}
    whole = [[*each, 0, 0][: sizes[each[0]]] if each[0] in sizes else each for each in records]
    return Counter(map(msgpack.packb, whole))


EDITS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EDITS
@given(edited(), st.lists(edges.packed, max_size=4))
def test_what_is_taken_gives_the_same_records_and_applies_what_comes(records: list[Any], log: list[bytes]) -> None:
    try:
        state = restore([records])
    except (Unfit, TooNew) as error:
        says_what_is_wrong(error)
        return
    assert canonical([each for slice_ in records_of(state) for each in slice_]) == canonical(records)
    for data in log:
        with contextlib.suppress(InvalidRequest):
            apply(state, unpack(data))
    for command in [*LATER, *COMMANDS]:
        apply(state, command)
    while state.build_indexes(100):
        pass
    assert restore(list(records_of(state))).hash() == state.hash()


# -- in a folder -------------------------------------------------------------------------------------------------------


def snapshot(index: int, records: list[Any]) -> tuple[bytes, SnapshotFile]:
    meta = SnapshotMeta(LogIndex(index), Term(1), MEMBERS.configuration())
    writer = SnapshotWriter(head_of(CLUSTER, OWN, meta, MEMBERS.to_plain()))
    data = writer.head_bytes + b"".join([writer.chunk(records[at : at + 5]) for at in range(0, len(records), 5)])
    data += writer.end()
    return data, SnapshotFile(writer.head, writer.size_bytes, writer.sha256())


def folder(first: list[Any], newest: list[Any]) -> SimDisk:
    """One snapshot with which the log begins, and one at its end."""
    disk = SimDisk(random.Random(1))
    files = LogFiles(disk, random.Random(2), 64 << 10)
    files.begin(files.load(), Origin(CLUSTER, OWN))
    data, made = snapshot(FIRST_AT, first)
    part, file = files.write_incoming()
    written(file, data)
    files.install_snapshot(part, made, HardState(Term(1), OWN, LogIndex(FIRST_AT)))
    files.sync()
    run(files.upkeep())
    entries = [Entry(Term(1), LogIndex(at), pack(each)) for at, each in enumerate(COMMANDS, 1)][FIRST_AT:]
    files.write(entries, HardState(Term(1), OWN, LogIndex(NEWEST_AT)))
    files.sync()
    data, made = snapshot(NEWEST_AT, newest)
    written(files.write_snapshot(NEWEST_AT), data)
    run(files.finish_snapshot(made))
    files.close()
    return disk


def written(file: File, data: bytes) -> None:
    file.write_at(0, data)
    file.sync()
    file.close()


def run(steps: Steps) -> None:
    for sync in steps:
        if sync is not None:
            sync()


def started(disk: SimDisk) -> tuple[StateMachine, tuple[str, ...]]:
    files = LogFiles(disk, random.Random(3), 64 << 10)
    try:
        found = recover(files, random.Random(4), None)
        for entry in found.entries:
            apply(found.state, unpack(entry.data))
        return found.state, files.warnings
    finally:
        if hasattr(files, "_current"):
            files.close()


@EDITS
@given(edited())
def test_a_start_does_without_a_newest_snapshot_whose_records_do_not_fit(records: list[Any]) -> None:
    try:
        state, warnings = started(folder(plain(FIRST_AT), records))
    except TooNew:
        return
    if not warnings:
        assert canonical(records) == canonical([each for slice_ in records_of(state) for each in slice_])
        return
    [warning] = warnings
    assert state.hash() == after(NEWEST_AT).hash() and state.version == after(NEWEST_AT).version
    assert warning.startswith(f"{snapshot_name(NEWEST_AT)}: damaged at offset ") and "nothing is lost" in warning
    says_what_is_wrong(Corruption(warning))


@EDITS
@given(edited(FIRST_AT), edited())
def test_where_none_fits_a_start_refuses_with_file_offset_and_what_to_do(first: list[Any], newest: list[Any]) -> None:
    for records in (first, newest):
        records.insert(1, [LEASE, 12, "60"])
    disk = folder(first, newest)
    with pytest.raises((Corruption, TooNew)) as refused:
        started(disk)
    says_what_is_wrong(refused.value)
    if refused.type is Corruption:
        text = str(refused.value)
        assert text.startswith(f"{snapshot_name(NEWEST_AT)}: damaged at offset "), text
        assert "--rejoin" in text and "store salvage" in text


@EDITS
@given(edited())
def test_a_received_snapshot_whose_records_do_not_fit_is_refused_and_deleted(records: list[Any]) -> None:
    data, made = snapshot(NEWEST_AT, records)
    disk = SimDisk(random.Random(1))
    files = LogFiles(disk, random.Random(2), 64 << 10)
    files.begin(files.load(), Origin(CLUSTER, NodeId(8), joined=True))
    meta = SnapshotMeta(LogIndex(NEWEST_AT), Term(1), MEMBERS.configuration())
    incoming = IncomingSnapshot(files, SnapshotOffer(meta, made.size_bytes, made.sha256), CLUSTER)
    incoming.write(0, data)
    names = disk.names()
    try:
        run(incoming.finish())
    except TransferRefused as refused:
        says_what_is_wrong(refused)
        assert incoming.closed and len(disk.names()) == len(names) - 1
    else:
        assert incoming.complete
        incoming.close()
    files.close()
