"""Where a member has no room, whatever grows is refused, and all else goes on; where members differ, they find out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
import random

import pytest
from member_net import PLAIN, MemberNet, refused
from patience import until
from test_store_log_files import append, take_snapshot
from virtual_time import LoopClock, LoopSyncs

from minikube_py.env import SystemDisk, SystemFile
from minikube_py.errors import ClusterCorrupt, InvalidRequest, NoSpace, Unavailable
from minikube_py.mvcc.alarms import CORRUPT, NOSPACE, grows
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Alarm,
    Compact,
    DeleteRange,
    InSession,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RangeRequest,
    SetAlarm,
    Txn,
)
from minikube_py.sim.disk import SimDisk
from minikube_py.store.alarming import stands_aside
from minikube_py.store.folder import FolderLost
from minikube_py.store.hash_check import Revisions, Verdict, judge
from minikube_py.store.log_files import LogFiles
from minikube_py.store.member import StoreMember
from minikube_py.store.spare import SPARE_NAME, Spare

GROWING = [
    Put(b"/b", b"v"),
    Txn((), (DeleteRange(b"/b"),), (Put(b"/c", b"v"),)),
    Txn((), (Txn((), (Put(b"/c", b"v"),)),)),
    LeaseGrant(9, 60),
]
NOT_GROWING = [
    Txn((), (DeleteRange(b"/b"),), (RangeRequest(b"/b"),)),
    DeleteRange(b"/b"),
    LeaseRevoke(5),
    Compact(2),
]


class FullFile(SystemFile):
    def __init__(self, disk: FullDisk, fd: int) -> None:
        super().__init__(fd)
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        if self._disk.full and offset + len(data) > os.fstat(self._fd).st_size:
            # What is there already keeps its room.
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(offset, data)

    def allocate(self, size_bytes: int) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(size_bytes)


class FullDisk(SystemDisk):
    full = False
    free = 1 << 40

    def open(self, name: str, *, create: bool = False) -> FullFile:
        return FullFile(self, super().open(name, create=create)._fd)

    def free_bytes(self) -> int:
        return self.free


# -- the state machine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*GROWING, *NOT_GROWING], ids=str)
def test_under_nospace_only_what_grows_is_refused(command):
    state = StateMachine()
    for each in (Put(b"/a", b"v"), Put(b"/b", b"v"), LeaseGrant(5, 60), SetAlarm(True, 0xA1, NOSPACE)):
        state.apply(unpack(pack(each)))
    before = state.hash()
    assert grows(command) is (command in GROWING)
    if command in GROWING:
        with pytest.raises(NoSpace, match="etcdserver: mvcc: database space exceeded: alarm NOSPACE of member a1"):
            state.apply(command)
        assert state.hash() == before
    else:
        state.apply(command)
    state.apply(SetAlarm(False))
    assert not state.alarms.raised
    state.apply(Put(b"/z", b"v"))


def test_a_refusal_in_a_session_is_kept_and_given_again():
    state = StateMachine()
    session = state.apply(OpenSession(1)).id
    state.apply(SetAlarm(True, 7, NOSPACE))
    put = InSession(session, 1, 1, Put(b"/a", b"v"))
    with pytest.raises(NoSpace):
        state.apply(put)
    state.apply(SetAlarm(False, 7))
    with pytest.raises(NoSpace):
        state.apply(put)
    assert state.apply(InSession(session, 2, 2, Put(b"/a", b"v"))).revision == 2


def test_alarms_survive_snapshots_and_are_part_of_the_digest():
    state = StateMachine()
    without = state.hash()
    state.apply(SetAlarm(True, 7, NOSPACE))
    state.apply(SetAlarm(True, 0, CORRUPT))
    again = restore(records(state))
    assert again.alarms.raised == {Alarm(7, NOSPACE), Alarm(0, CORRUPT)}
    assert again.hash() == state.hash() != without
    for command in (Put(b"/a", b"v"), DeleteRange(b"/a"), LeaseGrant(5, 60)):
        with pytest.raises(ClusterCorrupt, match="etcdserver: corrupt cluster"):
            again.apply(command)
    again.apply(SetAlarm(False, 0, CORRUPT))
    assert again.alarms.raised == {Alarm(7, NOSPACE)}
    again.apply(SetAlarm(False, 7))
    assert again.hash() == without
    with pytest.raises(InvalidRequest, match="'ODD' is unknown"):
        again.apply(SetAlarm(True, 7, "ODD"))


# -- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", ["leader", "follower"])
async def test_a_member_without_room_stops_growth_and_clears_its_alarm_itself(tmp_path, short):
    net = MemberNet(tmp_path)
    disks = {id: FullDisk(tmp_path / str(id)) for id in (1, 2, 3)}
    await net.form(3, disks)
    try:
        leader = await net.settled()
        await net.put(b"/a")
        id = leader.member_id if short == "leader" else net.others(leader)[0]
        disks[id].free = 12_345
        alarm = Alarm(id, NOSPACE)
        await until(lambda: all(alarm in net[each].state.alarms.raised for each in net.members))
        refusal = await refused(leader.storage.txn((), (Put(b"/b", b"v"),)))
        assert isinstance(refusal, NoSpace) and str(refusal).startswith("etcdserver: mvcc: database space exceeded: ")
        if short == "leader":
            assert f"{tmp_path / str(id)} has 12,345 bytes free" in str(refusal)
        assert net[id].status()["shortage"] and net[id].metrics()['minikube_py_store_alarms{kind="NOSPACE"}'] == 1
        deleted = await leader.storage.txn((), (DeleteRange(b"/a"),))
        assert deleted.responses[0].deleted == 1
        disks[id].free = 1 << 40
        await until(lambda: not leader.state.alarms.raised)
        await net.put(b"/b")
        await net.alike()
    finally:
        await net.stop()


async def put(member: StoreMember, key: bytes, value: bytes = b"v") -> None:
    await member.storage.txn((), (Put(key, value),))


async def test_over_its_quota_a_store_takes_deletes_alone_until_it_is_below(tmp_path):
    config = dataclasses.replace(PLAIN, quota_bytes=100_000, retain_s=1.0)
    member = StoreMember(SystemDisk(tmp_path), LoopClock(), random.Random(1), config, syncs=LoopSyncs())
    await member.start()
    for i in range(200):
        try:
            await put(member, b"/%d" % i, bytes(2000))
        except NoSpace as error:
            assert f"the data in {tmp_path} take" in str(error) and "the quota is 100,000" in str(error)
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("no end of it")
    await member.storage.txn((), (DeleteRange(b"/", b"0"),))
    await until(lambda: not member.state.alarms.raised and not member.replica.shortage)
    await put(member, b"/again")
    await member.stop()


async def test_a_snapshot_that_finds_the_disk_full_is_taken_later(tmp_path):
    disk, said = FullDisk(tmp_path), []
    config = dataclasses.replace(PLAIN, segment_bytes=64 << 10, snapshot_log_bytes=32 << 10)
    member = StoreMember(disk, LoopClock(), random.Random(1), config, fatal=said.append, syncs=LoopSyncs())
    member.say = said.append
    await member.start()
    disk.full = True
    with contextlib.suppress(NoSpace):
        for i in range(40):
            await put(member, b"/%d" % (i % 5), bytes(900))
    await until(lambda: any("cannot take a snapshot" in text for text in said))
    [text] = [text for text in said if "cannot take a snapshot" in text][:1]
    assert f"{tmp_path} has" in text and "bytes free" in text and "trying again in" in text
    assert member.status()["snapshot_failure"] and not list(tmp_path.glob("*.snap*"))
    disk.full = False
    await until(lambda: member.snapshotter.metrics("")["snapshots_total"] >= 1)
    assert member.status()["snapshot_failure"] == ""
    await until(lambda: not member.replica.shortage and not member.state.alarms.raised)
    await put(member, b"/end")
    await member.stop()


async def test_a_store_starts_on_a_full_disk_serves_reads_and_takes_deletes(tmp_path):
    config = dataclasses.replace(PLAIN, segment_bytes=64 << 10, snapshot_log_bytes=48 << 10)
    member = StoreMember(SystemDisk(tmp_path), LoopClock(), random.Random(1), config, syncs=LoopSyncs())
    await member.start()
    for i in range(300):
        await put(member, b"/%d" % (i % 50), bytes(900))
        await asyncio.sleep(0.001)
    await until(lambda: not member.replica.files.wants_upkeep and not member.replica.snapshot_due)
    await member.stop()
    disk, said = FullDisk(tmp_path), []
    disk.full, disk.free = True, 0
    for turn in range(3):
        member = StoreMember(disk, LoopClock(), random.Random(turn), config, said.append, syncs=LoopSyncs())
        await member.start()
        await until(lambda member=member: bool(member.replica.shortage))
        assert (await member.storage.range(RangeRequest(b"/", b"0", count_only=True))).count == 50 - 10 * turn
        assert isinstance(await refused(put(member, b"/new")), NoSpace)
        for i in range(10 * turn, 10 * turn + 10):
            await member.storage.txn((), (DeleteRange(b"/%d" % i),))
        await member.stop()
    assert said == []


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("retain_s, segments", [(1.0, 6), (30.0, 6), (30.0, 4)])
async def test_a_small_disk_is_well_again_once_what_was_written_is_not_needed(retain_s, segments, idle):
    """The log alone has filled it, long before a snapshot is due by its size; nobody frees room from outside."""
    disk, said = SimDisk(), []
    config = dataclasses.replace(PLAIN, segment_bytes=64 << 10, snapshot_log_bytes=32 << 20, retain_s=retain_s)
    disk.capacity_bytes = config.reserved_bytes + segments * config.segment_bytes
    member = StoreMember(disk, LoopClock(), random.Random(1), config, said.append, syncs=LoopSyncs())
    await member.start()
    for turn in range(3):
        for i in range(1000):
            try:
                await put(member, b"/%d" % (i % 5), bytes(2000))
            except NoSpace as error:
                assert "bytes free" in str(error) and "clears the alarm when 275,251 are free" in str(error)
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("no end of it")
        for i in range(5):
            await member.storage.txn((), (DeleteRange(b"/%d" % i),))
        for _ in range(120):
            if not member.state.alarms.raised and not member.replica.shortage:
                break
            # A control plane renews its Leases; each snapshot is of what is new.
            if not idle:
                await member.storage.txn((), (DeleteRange(b"/none"),))
            await asyncio.sleep(1.0)
        await put(member, b"/again")
        taken = member.snapshotter.metrics("")["snapshots_total"]
        assert taken <= 8 * (turn + 1), "not one after the other"
    await member.stop()
    assert said == []


async def test_the_next_segment_counts_as_room():
    """Else the alarm would be raised, or stay, only because the log is ready to go on."""
    disk = SimDisk()
    config = dataclasses.replace(PLAIN, segment_bytes=64 << 10)
    disk.capacity_bytes = config.reserved_bytes + config.segment_bytes + (20 << 10)
    member = StoreMember(disk, LoopClock(), random.Random(1), config, syncs=LoopSyncs())
    await member.start()
    await put(member, b"/a", bytes(20_000))
    await until(lambda: SPARE_NAME in disk.names() and not member.replica.files.wants_upkeep)
    assert disk.free_bytes() < config.reserved_bytes
    await asyncio.sleep(5.0)
    assert not member.replica.shortage and not member.state.alarms.raised
    assert member.room.free_bytes == disk.free_bytes() + config.segment_bytes
    await member.stop()


def test_the_last_room_is_that_of_segments_that_nobody_needs():
    """The disk is full to the byte, there is no spare: the log goes on in the room of old segments."""
    disk = SimDisk()
    files = LogFiles(disk, random.Random(1), 32 << 10)
    files.begin(files.load())
    append(files, 1, 60)
    take_snapshot(files, 40)
    take_snapshot(files, 59)
    disk.capacity_bytes = disk.used_bytes()
    append(files, 61, 30)
    with pytest.raises(OSError, match="no space left"):
        append(files, 91, 100)


def test_a_spare_in_preparation_gives_its_room_to_the_log_at_once():
    disk = SimDisk()
    spare = Spare(disk, 32 << 10)
    preparing = spare.prepare()
    sync = next(preparing)
    disk.capacity_bytes = disk.used_bytes()
    assert disk.free_bytes() == 0
    file = spare.take("next", 32 << 10)
    assert disk.names() == ["next"] and disk.free_bytes() == 0
    sync()
    assert next(preparing, "ended") == "ended" and not spare.begun
    file.close()


def recycled(disk: SimDisk) -> Spare:
    disk.open("old", create=True).close()
    disk.sync_folder()
    spare = Spare(disk, 4 << 10)
    assert spare.offer("old")
    return spare


def test_a_failed_sync_of_the_folder_is_never_the_spares_alone():
    disk = SimDisk()
    disk.fail_sync_after(1)
    with pytest.raises(FolderLost):
        for sync in recycled(disk).prepare():
            sync()


def test_a_spare_that_could_not_be_opened_is_made_ready_later():
    disk = SimDisk()
    spare = recycled(disk)
    preparing = spare.prepare()
    next(preparing)()
    with pytest.raises(OSError, match="Too many open files"):
        preparing.throw(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert not spare.begun and disk.names() == [SPARE_NAME]
    for sync in spare.prepare():
        sync()
    assert len(spare.take("next", 4 << 10).read_all()) == 4 << 10 and disk.names() == ["next"]


def test_a_file_without_a_name_keeps_its_room_until_it_is_closed():
    disk = SimDisk()
    one, other = disk.open("a", create=True), disk.open("a")
    one.write_at(0, bytes(100))
    disk.remove("a")
    one.close()
    one.close()
    assert disk.used_bytes() == 100
    other.close()
    assert disk.used_bytes() == 0


async def test_no_client_raises_an_alarm_and_any_may_clear_them(tmp_path):
    net = MemberNet(tmp_path, PLAIN)
    await net.form(1)
    try:
        leader = await net.settled()
        for alarm in (Alarm(leader.member_id, CORRUPT), Alarm(0, CORRUPT), Alarm(7, NOSPACE)):
            with pytest.raises(InvalidRequest, match="raised by the members alone"):
                await leader.storage.command(SetAlarm(True, *alarm))
        await leader.storage.command(SetAlarm(False))
        await net.put(b"/a")
    finally:
        await net.stop()


async def test_alarms_that_call_a_majority_corrupt_end_nobody(tmp_path):
    """As an earlier release took them from clients: the log holds them, and applies them after every start."""
    net = MemberNet(tmp_path, PLAIN)
    await net.form(1)
    try:
        leader = await net.settled()
        leader.raft.propose(pack(SetAlarm(True, leader.member_id, CORRUPT)))
        await net.put(b"/a")
        await until(lambda: bool(leader.state.alarms.raised))
        assert not stands_aside(leader)
        await leader.storage.command(SetAlarm(False))
        assert not leader.state.alarms.raised and not net.fatal[leader.member_id]
    finally:
        await net.stop()


# -- comparing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hashes", "voters", "verdict"),
    [
        ({1: 5, 2: 5, 3: 5}, 3, Verdict()),
        ({1: 5}, 3, Verdict()),
        ({1: 5, 2: 5, 3: 6}, 3, Verdict(odd=(3,))),
        ({1: 6, 2: 5, 3: 5}, 3, Verdict(odd=(1,))),
        ({1: 5, 2: 6}, 3, Verdict(split=True)),
        ({1: 5, 2: 6}, 2, Verdict(split=True)),
        ({1: 5, 2: 6, 3: 7}, 3, Verdict(split=True)),
        ({1: 5, 2: 5, 3: 5, 4: 6, 5: 7}, 5, Verdict(odd=(4, 5))),
        ({1: 5, 2: 5, 9: 6}, 3, Verdict(odd=(9,))),
    ],
)
def test_who_differs_from_a_majority_of_all_voters(hashes, voters, verdict):
    assert judge(hashes, frozenset(range(1, voters + 1))) == verdict


def tamper(member: StoreMember, key: bytes) -> None:
    index = member.state.index
    index.current[key] = index.current[key]._replace(value=b"tampered")


CHECKED = dataclasses.replace(PLAIN, check_s=1.0)


@pytest.mark.parametrize("odd", ["leader", "follower"])
async def test_a_member_whose_state_was_changed_stands_aside_and_stays_so(tmp_path, odd):
    net = MemberNet(tmp_path, CHECKED)
    await net.form(3)
    try:
        leader = await net.settled()
        await net.put(b"/a")
        await net.alike()
        id = leader.member_id if odd == "leader" else net.others(leader)[0]
        tamper(net[id], b"/a")
        await until(lambda: bool(net.fatal[id]))
        assert "differ from the majority's" in net.fatal[id][0] and "--rejoin" in net.fatal[id][0]
        assert str(tmp_path / str(id)) in net.fatal[id][0]
        assert isinstance(await refused(net[id].storage.get(b"/a")), Unavailable)
        aside = net.members.pop(id)
        await net.put(b"/b")
        assert not any(net.fatal[each] for each in net.members)
        await aside.stop()
        net.fatal[id].clear()
        with contextlib.suppress(Unavailable):
            # It may have to hear from the leader what is committed.
            await net.start(id)
        await until(lambda: bool(net.fatal[id]))
        assert "--rejoin" in net.fatal[id][0]
        await net.members.pop(id).stop()
    finally:
        await net.stop()


@pytest.mark.parametrize("odd", ["leader", "follower"])
async def test_a_member_that_refuses_what_others_apply_is_found_by_its_revision(tmp_path, odd):
    """Its files were edited, say. It has all of the entries, and at the revision that it has the same keys."""
    net = MemberNet(tmp_path, CHECKED)
    await net.form(3)
    try:
        leader = await net.settled()
        await net.put(b"/a")
        await net.alike()
        id = leader.member_id if odd == "leader" else net.others(leader)[0]
        net[id].state.alarms.raised.add(Alarm(0, NOSPACE))
        with contextlib.suppress(NoSpace):
            await leader.storage.txn((), (Put(b"/b", b"v"),))
        await until(lambda: all(net[each].state.revision == 3 for each in net.others(net[id])))
        assert net[id].state.revision == 2
        await until(lambda: bool(net.fatal[id]))
        assert "differ from the majority's" in net.fatal[id][0]
        assert not any(net.fatal[each] for each in net.members if each != id)
        if odd == "follower":
            [warning] = [text for text in leader.status()["warnings"] if "hold different data at revision 3" in text]
            assert f"{id:x}: " in warning and "minikube-py store hash" in warning
    finally:
        await net.stop()


@pytest.mark.parametrize("lag", [False, True])
async def test_a_member_that_is_slow_does_not_differ(tmp_path, lag):
    net = MemberNet(tmp_path, CHECKED)
    await net.form(3)
    try:
        leader = await net.settled()
        slow = net.others(leader)[0]
        if lag:
            # It gets entries in every other second, and is asked about some that it does not have.
            net.arrives = lambda message: (
                None if message.to == slow and message.entries and int(net.clock.monotonic_s()) % 2 else message
            )
        for i in range(300):
            await put(leader, b"/%d" % i)
            await asyncio.sleep(0.02)
        assert leader.upkeep.hash_check.checks > 3 and leader.upkeep.hash_check.mismatches == 0
        assert lag or len(leader.upkeep.hash_check._rests) == 3
        state, log = net[slow].state, net[slow].raft.log
        assert net[slow].replica.revisions.after(state, log.applied) == state.revision
    finally:
        await net.stop()


def test_what_revision_an_entry_came_to():
    state, revisions = StateMachine(), Revisions()
    assert revisions.after(state, 5) is None
    revisions.begin(state, 4)
    for entry in (6, 7, 9):
        revisions.changed(entry, state.apply(Put(b"/a", b"v")).revision)
    found = {entry: revisions.after(state, entry) for entry in range(3, 11)}
    assert found == {3: None, 4: 1, 5: 1, 6: 2, 7: 3, 8: 3, 9: 4, 10: 4}
    revisions.begin(state, 9)
    assert revisions.after(state, 8) == 3
    assert revisions.after(StateMachine(), 9) is None
    revisions.begin(replaced := StateMachine(), 20)
    assert (revisions.after(replaced, 19), revisions.after(replaced, 20), revisions.after(state, 8)) == (None, 1, None)


async def test_where_no_majority_agrees_nothing_is_written(tmp_path):
    net = MemberNet(tmp_path, CHECKED)
    await net.form(2)
    try:
        leader = await net.settled()
        await net.put(b"/a")
        await net.alike()
        tamper(net[net.others(leader)[0]], b"/a")
        await until(lambda: Alarm(0, CORRUPT) in leader.state.alarms.raised)
        assert isinstance(await refused(leader.storage.txn((), (DeleteRange(b"/a"),))), ClusterCorrupt)
        assert (await leader.storage.get(b"/a"))[0].value == b"v"
        assert not any(net.fatal.values())
    finally:
        await net.stop()
