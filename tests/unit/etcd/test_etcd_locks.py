"""Election and Lock: whom a change wakes, and what observers get."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from virtual_time import LoopClock

from minikube_py.etcd.errors import Refused
from minikube_py.etcd.locks import Locks, as_client
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import Node
from minikube_py.mvcc.types import DeleteRange, LeaseGrant, LeaseRevoke, Put, RangeRequest
from minikube_py.sim.disk import SimDisk
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig

NAME = b"n"
LEASES = range(1, 4)


class Counted(Node):
    """Counts confirmed reads, each of which an owner, a waiter or an observer makes once per change that wakes it."""

    confirmations = 0

    async def confirmed(self) -> None:
        self.confirmations += 1
        await super().confirmed()


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Counted]:
    member = StoreMember(SimDisk(random.Random(1)), LoopClock(), random.Random(2), MemberConfig(fsync="inline"))
    await member.start()
    try:
        yield Counted(member)
    finally:
        await member.stop()


async def settled() -> None:
    """Everything that is woken by now has run, in virtual time."""
    await asyncio.sleep(1)


def lease_of(key: bytes) -> int:
    return int(key.rpartition(b"/")[2], 16)


def standing(on: Node) -> int:
    return on.member.read(RangeRequest(NAME + b"/", NAME + b"0")).count


async def test_a_lock_that_is_passed_on_wakes_one_waiter() -> None:
    waiters = 60
    async with node() as on:
        locks = Locks(on)
        first = (await locks.lock(pb.LockRequest(name=NAME))).key
        tasks = [asyncio.create_task(locks.lock(pb.LockRequest(name=NAME))) for _ in range(waiters)]
        await settled()
        assert standing(on) == waiters + 1 and not any(task.done() for task in tasks)
        joined, on.confirmations = on.confirmations, 0
        await on.command(DeleteRange(first))
        for _ in range(waiters):
            await settled()
            (owner,) = [task for task in tasks if task.done()]
            tasks.remove(owner)
            await locks.unlock(pb.UnlockRequest(key=owner.result().key))
        # Once that nobody is before it any more, and once that its own key still stands.
        assert (joined, on.confirmations) == (waiters, 2 * waiters)
        assert standing(on) == 0 and on.watch_bytes == 0


async def test_whoever_ends_in_the_middle_of_the_line_gives_way_to_nobody() -> None:
    async with node() as on:
        locks = Locks(on)
        for lease in LEASES:
            await on.command(LeaseGrant(lease, 600))
        first, *others = [pb.LockRequest(name=NAME, lease=lease) for lease in LEASES]
        await locks.lock(first)
        tasks = []
        for request in others:
            tasks.append(asyncio.create_task(locks.lock(request)))
            await settled()
        tasks[0].cancel()
        await settled()
        assert standing(on) == 2 and not tasks[1].done()
        await on.command(LeaseRevoke(LEASES[0]))
        assert (await tasks[1]).key == NAME + b"/3"


async def test_who_takes_a_lock_again_writes_nothing_over_its_key() -> None:
    async with node() as on:
        locks = Locks(on)
        await on.command(LeaseGrant(1, 600))
        request = pb.LockRequest(name=NAME, lease=1)
        key = (await locks.lock(request)).key
        await on.command(Put(key, b"a note", 1))
        assert (await locks.lock(request)).key == key
        found = on.member.state.get(key)
        assert found is not None and found.value == b"a note"


@pytest.mark.parametrize("expired", [False, True])
async def test_an_observer_is_told_each_value_and_each_leader_however_old_its_key(expired: bool) -> None:
    async with node() as on:
        locks, told = Locks(on), list[tuple[bytes, bytes]]()

        async def observe() -> None:
            async for answer in locks.observe(pb.LeaderRequest(name=NAME)):
                told.append((answer.kv.key, answer.kv.value))

        observing = asyncio.create_task(observe())
        for lease in LEASES:
            await on.command(LeaseGrant(lease, 600))
        await settled()
        campaigns = []
        for lease in LEASES[:2]:
            request = pb.CampaignRequest(name=NAME, lease=lease, value=b"of %d" % lease)
            campaigns.append(asyncio.create_task(locks.campaign(request)))
            await settled()
        leader = campaigns[0].result().leader
        values = [b"%d" % number for number in range(30)]
        await asyncio.gather(*[locks.proclaim(pb.ProclaimRequest(leader=leader, value=value)) for value in values])
        await on.command(LeaseRevoke(leader.lease) if expired else DeleteRange(leader.key))
        await settled()
        first, second = NAME + b"/1", NAME + b"/2"
        assert told == [(first, b"of 1"), *[(first, value) for value in values], (second, b"of 2")]
        await locks.resign(pb.ResignRequest(leader=(await campaigns[1]).leader))
        await settled()
        await locks.campaign(pb.CampaignRequest(name=NAME, lease=3, value=b"of 3"))
        await settled()
        assert told[-1] == (NAME + b"/3", b"of 3") and len(told) == len(values) + 3
        observing.cancel()
        await asyncio.wait([observing])
        assert on.watch_bytes == 0


async def test_a_leader_is_named_and_its_lease_is_the_sessions() -> None:
    async with node() as on:
        locks = Locks(on)
        for call in (locks.proclaim, locks.resign):
            kind = pb.ProclaimRequest if call == locks.proclaim else pb.ResignRequest
            with pytest.raises(Refused, match='"leader" field must be provided'):
                await as_client(call)(kind())
        with pytest.raises(Refused, match="requested lease not found"):
            await as_client(locks.campaign)(pb.CampaignRequest(name=NAME, lease=99))
        won: Any = await locks.campaign(pb.CampaignRequest(name=NAME))
        assert lease_of(won.leader.key) == won.leader.lease
        del_lease = pb.LeaderKey(name=NAME, key=won.leader.key, rev=won.leader.rev)
        await locks.proclaim(pb.ProclaimRequest(leader=del_lease, value=b"v"))
        found = on.member.state.get(won.leader.key)
        assert found is not None and found.lease not in (0, won.leader.lease)
