"""Several members in one loop: what the shell around a replica adds - time, threads, leases, handing over."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno

import pytest
from member_net import CLUSTER, PLAIN, MemberNet, refused, three
from patience import until
from virtual_time import LoopSyncs

from minikube_py.env import SystemDisk, SystemFile
from minikube_py.errors import (
    Compacted,
    Corruption,
    InvalidRequest,
    LeaseNotFound,
    NotLeader,
    OutcomeUnknown,
    Unavailable,
)
from minikube_py.mvcc.types import Put, RangeRequest, WatchBatch
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.replica_config import Bootstrap

ALL = RangeRequest(b"\0", b"\0")


class FillingFile(SystemFile):
    def __init__(self, disk: FillingDisk, fd: int) -> None:
        super().__init__(fd)
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(offset, data)


class FillingDisk(SystemDisk):
    full = False

    def open(self, name: str, *, create: bool = False) -> FillingFile:
        return FillingFile(self, super().open(name, create=create)._fd)


async def test_writes_and_reads_through_three_members(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        await asyncio.gather(*(net.put(b"/k/%d" % i, b"%d" % i) for i in range(50)))
        for id in net.members:
            assert (await net[id].storage.range(ALL)).count == 50
            assert (await net[id].storage.get(b"/k/7"))[0].value == b"7"
        follower = net[net.others(leader)[0]]
        refusal = await refused(follower.storage.txn((), (Put(b"/a", b"v"),)))
        assert isinstance(refusal, NotLeader) and refusal.leader_id == leader.member_id
        assert refusal.address == f"h{leader.member_id}:2"
        await net.alike()


async def test_watches_are_served_by_every_member(tmp_path):
    async with three(tmp_path) as net:
        seen: dict[int, list[int]] = {id: [] for id in net.members}
        for id in net.members:

            def sink(batch: WatchBatch, id=id) -> None:
                seen[id] += [event.kv.mod_revision for event in batch.events]

            net[id].watch(b"/", b"0", 0, sink)
        revisions = [await net.put(b"/%d" % i) for i in range(20)]
        await until(lambda: all(revisions == each for each in seen.values()))


async def test_who_leads_others_syncs_in_a_thread_and_the_rest_where_it_is_fast(tmp_path):
    async with three(tmp_path) as net:
        for _ in range(2):
            leader = await net.leader()
            modes = {id: net.syncs[id].mode for id in net.members}
            assert modes == {id: "thread" if id == leader.member_id else "auto" for id in net.members}
            other = next(id for id in net.members if id != leader.member_id)
            await leader.transfer(net[other].member_id)
    alone = MemberNet(tmp_path / "alone")
    await alone.form(1)
    await alone.put(b"/a")
    assert alone.syncs[1].mode == "auto" and alone[1].readable
    await alone.stop()


async def test_no_sync_of_a_leader_is_on_its_loop_not_even_the_first(tmp_path, monkeypatch):
    net = MemberNet(tmp_path)
    modes: list[tuple[int, str]] = []

    class Noting(LoopSyncs):
        def run(self, sync, done):
            leads = [member for member in net.members.values() if member._fsync is self and member.replica.leading]
            modes.extend((member.replica.leading, self.mode) for member in leads)
            super().run(sync, done)

    monkeypatch.setattr("member_net.LoopSyncs", Noting)
    await net.form()
    try:
        for _ in range(3):
            leader = await net.settled()
            await net.put(b"/a")
            await leader.transfer(net.others(leader)[0])
        assert len({term for term, _ in modes}) >= 3 and {mode for _, mode in modes} == {"thread"}, modes
    finally:
        await net.stop()


async def test_a_slow_disk_does_not_cost_a_leader_its_office(tmp_path):
    """Its syncs take longer than an election timeout."""
    async with three(tmp_path) as net:
        leader = await net.leader()
        await net.put(b"/a")
        term = leader.raft.term
        net.syncs[leader.member_id].sync_s = 4 * leader.config.election_ticks * leader.config.tick_s
        await net.put(b"/b")
        await net.put(b"/c")
        assert leader.replica.leading == term


async def test_a_full_disk_ends_one_member_and_the_others_go_on(tmp_path):
    net = MemberNet(tmp_path)
    disks = {id: FillingDisk(tmp_path / str(id)) for id in (1, 2, 3)}
    await net.form(3, disks)
    leader = await net.settled()
    await net.put(b"/a")
    disks[leader.member_id].full = True
    refusal = await refused(leader.storage.txn((), (Put(b"/b", b"v"),)))
    assert isinstance(refusal, OutcomeUnknown)
    assert "No space left" in net.fatal[leader.member_id][0] and len(net.fatal[leader.member_id]) == 1
    del net.members[leader.member_id]
    await net.put(b"/c")
    assert not any(net.fatal[id] for id in net.members)
    await net.stop()
    await leader.stop()


async def test_a_killed_leader_costs_less_than_a_second(tmp_path):
    """In virtual time; tests/sim/test_sim_elections.py asks how much less, on machines of their own."""
    waited_s: list[float] = []
    async with three(tmp_path) as net:
        for _ in range(3):
            leader = await net.settled()
            await net.put(b"/before")
            killed_s = net.clock.monotonic_s()
            net.kill(leader.member_id)
            await net.put(b"/after")
            waited_s.append(net.clock.monotonic_s() - killed_s)
            await net.start(leader.member_id)
    assert max(waited_s) < 1, waited_s


async def test_a_leader_that_stops_hands_over_and_nobody_waits_for_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("minikube_py.store.leadership.HAND_OVER_S", 30.0)
    async with three(tmp_path) as net:
        leader = await net.leader()
        await net.put(b"/a")
        id, term = leader.member_id, leader.raft.term
        writes = [asyncio.ensure_future(leader.storage.txn((), (Put(b"/%d" % i, b"v"),))) for i in range(20)]
        await asyncio.sleep(0)
        await net[id].stop()
        assert all([(await write).succeeded for write in writes]), "what was proposed before is done"
        del net.members[id]
        successor = await net.leader()
        assert successor.raft.term == term + 1
        assert isinstance(await refused(leader.storage.txn((), (Put(b"/late", b"v"),))), Unavailable)


async def test_one_that_has_stopped_hears_nothing_any_more(tmp_path):
    """Its links end after it: what they still bring must not be written to closed files."""
    async with three(tmp_path) as net:
        leader = await net.leader()
        stopping = net[net.others(leader)[0]]
        writes = [asyncio.create_task(net.put(b"/k/%d" % number)) for number in range(200)]
        await stopping.stop()
        files = stopping.replica.files.written_bytes
        await asyncio.gather(*writes)
        await net.put(b"/k/last")
        stopping.report(leader.member_id, False)
        await asyncio.sleep(0.01)
        assert stopping.replica.files.written_bytes == files
        assert net.fatal[stopping.member_id] == []
        del net.members[stopping.member_id]


async def test_the_last_one_stops_without_anyone_to_hand_over_to(tmp_path):
    net = MemberNet(tmp_path)
    await net.form()
    leader = await net.settled()
    for id in net.others(leader):
        net.kill(id)
    began_s = net.clock.monotonic_s()
    await net.stop()
    assert net.clock.monotonic_s() - began_s < 10


async def test_leadership_is_given_on_demand(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        await net.put(b"/a")
        heir = net.others(leader)[0]
        await net.moved(heir)
        await net.moved(leader.member_id)
        await net.settled()
        net.isolate(heir)
        with pytest.raises(Unavailable, match="did not take over"):
            await leader.transfer(heir)
        with pytest.raises(Unavailable, match="not a voter"):
            await leader.transfer(55)


# -- leases -----------------------------------------------------------------------------------------------------------


async def test_only_the_leader_ends_leases_and_a_new_one_gives_each_its_full_time(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        lease = await leader.storage.lease_grant(20)
        granted_s = net.clock.monotonic_s()
        await leader.storage.txn((), (Put(b"/leased", b"v", lease.id),))
        for id in net.others(leader):
            assert len(net[id].lessor) == 0 and isinstance(
                await refused(net[id].storage.lease_keep_alive(lease.id)), NotLeader
            )
        await net.clock.sleep(8)
        net.kill(leader.member_id)
        successor = await net.leader()
        took_over_s = net.clock.monotonic_s()
        assert took_over_s - granted_s < 20
        await until(lambda: len(successor.lessor) == 1)
        assert await successor.storage.lease_keep_alive(lease.id) == 20
        renewed_s = net.clock.monotonic_s()
        await until(lambda: successor.state.get(b"/leased") is None)
        assert net.clock.monotonic_s() - renewed_s >= 20
        assert await successor.storage.lease_keep_alive(lease.id) == 0


async def test_a_lease_lives_its_full_time_under_a_new_leader_though_nobody_renews_it(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        lease = await leader.storage.lease_grant(20)
        await leader.storage.txn((), (Put(b"/leased", b"v", lease.id),))
        await net.clock.sleep(8)
        heir = net.others(leader)[0]
        # It began to lead before anyone could see that it did.
        before_s = net.clock.monotonic_s()
        await net.moved(heir)
        await until(lambda: net[heir].state.get(b"/leased") is None)
        assert net.clock.monotonic_s() - before_s >= 20


async def test_a_deposed_leader_promises_no_lease(tmp_path):
    async with three(tmp_path) as net:
        old = await net.leader()
        lease = await old.storage.lease_grant(600)
        net.isolate(old.member_id)
        asked = asyncio.ensure_future(old.storage.lease_keep_alive(lease.id))
        await net.leader(but=old.member_id)
        await until(lambda: not old.replica.leading)
        # Cleared at the end of the turn in which it learns that.
        await until(lambda: len(old.lessor) == 0)
        net.heal()
        assert isinstance(await refused(asked), NotLeader)


async def test_a_renewal_of_an_unknown_lease_is_none(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        assert await leader.storage.lease_keep_alive(77) == 0
        assert isinstance(await refused(leader.storage.lease_revoke(77)), LeaseNotFound)


# -- members ----------------------------------------------------------------------------------------------------------


async def test_a_learner_that_is_to_vote_is_promoted_by_itself(tmp_path):
    async with three(tmp_path) as net:
        for i in range(30):
            await net.put(b"/k/%d" % i)
        leader = await net.leader()
        await leader.change_members(MemberChange(ChangeKind.EXPECT, name="store-4"))
        await leader.change_members(MemberChange(ChangeKind.JOIN, 4, "store-4", "h4:1", "h4:2"))
        assert net.links[leader.member_id].members[-1].id == 4
        await net.start(4, Bootstrap(CLUSTER, 4))
        await until(lambda: 4 in leader.raft.configuration.voters)
        await net.alike()
        assert not net[4].membership.get(4).learner
        assert [member["name"] for member in net[4].status()["members"]] == [f"store-{i}" for i in (1, 2, 3, 4)]


async def test_a_learner_stays_one_if_it_was_expected_as_one(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        await leader.change_members(MemberChange(ChangeKind.EXPECT, name="store-4", learner=True))
        await leader.change_members(MemberChange(ChangeKind.JOIN, 4, "store-4"))
        assert isinstance(await refused(leader.change_members(MemberChange(ChangeKind.PROMOTE, 4))), Unavailable)
        await net.start(4, Bootstrap(CLUSTER, 4))
        await until(lambda: net[4].raft.log.applied == leader.raft.log.applied)
        await net.clock.sleep(2)
        assert 4 in leader.raft.configuration.learners
        await leader.change_members(MemberChange(ChangeKind.PROMOTE, 4))
        assert 4 in leader.raft.configuration.voters


async def test_a_removed_member_stops_serving_and_says_why(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        gone = net.others(leader)[0]
        seen: list[WatchBatch] = []
        net[gone].watch(b"/", b"0", 0, seen.append)
        await leader.change_members(MemberChange(ChangeKind.REMOVE, gone))
        await until(lambda: bool(net.removed[gone]))
        assert net.removed[gone] == [f"member {gone:x} was removed from the cluster"] and not net.fatal[gone]
        assert isinstance(seen[-1].error, Unavailable) and "was removed" in str(seen[-1].error)
        assert isinstance(await refused(net[gone].storage.range(ALL)), Unavailable)
        assert gone in net.links[leader.member_id].removed
        await net.put(b"/after")
        await net[gone].stop()
        del net.members[gone]


async def test_one_that_is_told_of_its_removal_stops_too(tmp_path):
    async with three(tmp_path) as net:
        net[2].expelled("the others do not know it any more")
        net[2].expelled("again")
        assert net.removed[2] == ["the others do not know it any more"]
        await net[2].stop()
        del net.members[2]


async def test_a_change_that_does_not_fit_is_refused(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        await net.put(b"/a")
        refusal = await refused(leader.change_members(MemberChange(ChangeKind.JOIN, 8, "eve")))
        assert isinstance(refusal, InvalidRequest) and "store member add" in str(refusal)
        follower = net[net.others(leader)[0]]
        assert isinstance(await refused(follower.change_members(MemberChange(ChangeKind.EXPECT, name="d"))), NotLeader)


EXPECT = MemberChange(ChangeKind.EXPECT, name="store-4")
JOIN = MemberChange(ChangeKind.JOIN, 4, "store-4", "h4:1", "h4:2")


@contextlib.asynccontextmanager
async def led_by_one_that_has_much_to_apply(tmp_path, *changes):
    """The new leader, which holds `changes`, does not know that the last is committed, and hears no acknowledgement."""
    votes = (MessageType.PRE_VOTE_REPLY, MessageType.VOTE_REPLY)
    async with three(tmp_path) as net:
        old = await net.leader()
        heir, _ = net.others(old)
        committed = old.raft.log.committed

        def untold(message: Message) -> Message:
            return message._replace(commit=min(committed, message.commit)) if message.to == heir else message

        def votes_alone(message: Message) -> Message | None:
            if message.to != heir:
                return message
            return message._replace(commit=0, hint=0) if message.type in votes else None

        net.arrives = untold
        for change in changes:
            await old.change_members(change)
        last = old.raft.log.last_index
        await until(lambda: net[heir].raft.log.last_index == last)
        net.kill(old.member_id)
        net.arrives = votes_alone
        await until(lambda: bool(net[heir].replica.leading))
        assert net[heir].raft.log.applied < last
        yield net, net[heir]


FITS_AFTERWARDS = [
    pytest.param((EXPECT,), JOIN, id="who is expected joins"),
    pytest.param((EXPECT, JOIN), MemberChange(ChangeKind.REMOVE, 4), id="a member is removed"),
    pytest.param((EXPECT, JOIN), MemberChange(ChangeKind.REMOVE, name="store-4"), id="by its name"),
    pytest.param((EXPECT, JOIN), MemberChange(ChangeKind.UPDATE, 4, peer="h9:1"), id="its address is another"),
]


@pytest.mark.parametrize(("before", "change"), FITS_AFTERWARDS)
async def test_a_new_leader_refuses_no_change_by_what_it_has_yet_to_apply(tmp_path, before, change):
    async with led_by_one_that_has_much_to_apply(tmp_path, *before) as (net, heir):
        asked = asyncio.ensure_future(heir.change_members(change))
        await net.clock.sleep(heir.config.tick_s)
        assert not asked.done() and heir.replica.leading
        net.heal()
        await asked
        assert heir.membership.configuration() == heir.raft.configuration


@pytest.mark.parametrize(("before", "change"), FITS_AFTERWARDS)
async def test_nor_does_one_that_was_deposed_and_does_not_know(tmp_path, before, change):
    async with three(tmp_path) as net:
        old = await net.leader()
        net.isolate(old.member_id)
        old.config = dataclasses.replace(old.config, tick_s=20.0)  # It is slow to notice.
        new = await net.leader(but=old.member_id)
        for each in before:
            await new.change_members(each)
        asked = asyncio.ensure_future(old.change_members(change))
        await net.clock.sleep(1)
        assert not asked.done() and old.replica.leading
        net.heal()
        assert isinstance(await refused(asked), NotLeader)


async def test_a_leader_that_is_confirmed_refuses_what_does_not_fit_in_the_end(tmp_path):
    async with led_by_one_that_has_much_to_apply(tmp_path, EXPECT, JOIN) as (net, heir):
        asked = asyncio.ensure_future(heir.change_members(EXPECT))
        await net.clock.sleep(heir.config.tick_s)
        net.heal()
        refusal = await refused(asked)
        assert isinstance(refusal, InvalidRequest) and "member 'store-4' exists already" in str(refusal)


async def test_nobody_is_removed_whose_going_leaves_no_majority(tmp_path):
    async with three(tmp_path) as net:
        leader = await net.leader()
        await net.put(b"/a")
        dead, alive = net.others(leader)
        net.kill(dead)
        await until(lambda: not any(peer.active for peer in leader.raft.status().peers if peer.id == dead))
        remove = MemberChange(ChangeKind.REMOVE, alive)
        refusal = await refused(leader.change_members(remove))
        assert isinstance(refusal, Unavailable) and "1 of 2 voters are reachable" in str(refusal)
        await leader.change_members(MemberChange(ChangeKind.REMOVE, dead))
        assert leader.raft.configuration.voters == {leader.member_id, alive}


async def test_a_start_that_failed_can_be_stopped(tmp_path):
    net = MemberNet(tmp_path)
    await net.form(1)
    await net.stop()
    [log] = (tmp_path / "1").glob("wal-*.log")
    log.write_bytes(b"nonsense")
    with pytest.raises(Corruption):
        await net.start(1)
    await net.stop()
    assert not net.fatal[1]


# -- snapshots --------------------------------------------------------------------------------------------------------


async def test_a_member_that_was_away_for_long_gets_a_snapshot_while_all_serve(tmp_path):
    config = dataclasses.replace(PLAIN, segment_bytes=64 << 10, snapshot_log_bytes=64 << 10, tail_entries_max=1)
    async with three(tmp_path, config) as net:
        leader = await net.leader()
        away = net.others(leader)[0]
        seen: list[WatchBatch] = []
        net[away].watch(b"/k/", b"/k0", 0, seen.append)
        net.isolate(away)
        for i in range(600):
            await net.put(b"/k/%d" % (i % 50), b"%d" % i + bytes(500))
        await until(lambda: leader.raft.log.offset > net[away].raft.log.last_index)
        net.heal()
        await net.alike()
        revisions = [event.kv.mod_revision for batch in seen for event in batch.events]
        await until(lambda: net[away].replica.hub.behind == 0)
        revisions = [event.kv.mod_revision for batch in seen for event in batch.events]
        assert isinstance(seen[-1].error, Compacted) or revisions == list(range(2, 602))
        await net.put(b"/k/last")
        await net.alike()


async def test_a_snapshot_to_be_kept_holds_all_that_was_applied(tmp_path):
    async with three(tmp_path) as net:
        await net.put(b"/a")
        leader = await net.leader()
        applied = leader.raft.log.applied
        source = await leader.fresh_snapshot()
        assert source.offer.meta.index >= applied
        again = await leader.fresh_snapshot()
        assert again.offer == source.offer or leader.raft.log.applied > applied
        source.close()
        again.close()


async def test_status(tmp_path):
    async with three(tmp_path) as net:
        await net.put(b"/a")
        leader = await net.leader()
        await until(lambda: all(peer["match"] == leader.raft.log.last_index for peer in leader.status()["peers"]))
        status = leader.status()
        assert status["role"] == "LEADER" and status["leader"] == leader.member_id
        assert status["member"]["name"] == f"store-{leader.member_id}"
        assert [peer["state"] for peer in status["peers"]] == ["replicate", "replicate"]
        assert status["commit"] == status["applied"] == status["last_index"] and status["revision"] == 2
        follower = net[net.others(leader)[0]].status()
        assert follower["role"] == "FOLLOWER" and follower["peers"] == []
        promised = {"term", "compact_revision", "size_bytes", "snapshot_index", "snapshot_age_s", "version"}
        assert promised <= set(follower)
        assert net[1].metrics()["minikube_py_store_raft_term"] == leader.raft.term
