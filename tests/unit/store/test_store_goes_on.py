"""What has failed, stopped or waited once does not end what comes after it: comparisons, slices of a turn, writes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from fake_store import fake_store
from member_net import PLAIN, MemberNet, three
from patience import until
from virtual_time import LoopClock

from minikube_py.mvcc.types import Alarm, Put
from minikube_py.store import turns
from minikube_py.store.client import StoreClient
from minikube_py.store.hash_check import CORRUPT

CHECKED = dataclasses.replace(PLAIN, check_s=1.0)


async def test_whoever_leads_again_compares_again(tmp_path: Path) -> None:
    async with three(tmp_path, CHECKED) as net:
        await net.put(b"/a")
        for id in (1, 2, 3, 1):
            await net.moved(id)
            check = net[id].upkeep.hash_check
            before = check.checks
            await until(lambda check=check, before=before: check.checks > before + 1)
            assert check.mismatches == 0
            # Those that do not lead ask nobody, and will again.
            waiting = {other: net[other].upkeep.hash_check.checks for other in net.others(net[id])}
            await asyncio.sleep(3 * CHECKED.check_s)
            assert waiting == {other: net[other].upkeep.hash_check.checks for other in waiting}


async def test_each_comparison_that_differs_counts_once(tmp_path: Path) -> None:
    net = MemberNet(tmp_path, CHECKED)
    await net.form(2)
    try:
        leader = await net.settled()
        await net.put(b"/a")
        await net.alike()
        index = net[net.others(leader)[0]].state.index
        index.current[b"/a"] = index.current[b"/a"]._replace(value=b"tampered")
        check = leader.upkeep.hash_check
        while Alarm(0, CORRUPT) not in leader.state.alarms.raised:
            assert check.mismatches <= check.checks
            await asyncio.sleep(0.05)
        assert check.mismatches == 2, "the second one confirms the first"
    finally:
        await net.stop()


async def write_times(folder: Path, turn_s: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each of some writes takes, in virtual time."""
    monkeypatch.setattr(turns, "TURN_S", turn_s)
    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with three(folder) as net:
        storage = (await net.leader()).storage
        for at in range(20):
            began_s = loop.time()
            await asyncio.gather(*(storage.txn((), (Put(b"/%d" % each, b"v"),)) for each in range(at)))
            took.append(loop.time() - began_s)
    return took


async def test_a_turn_that_is_cut_short_goes_on_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the next message or tick: others had their turn, and then it is this one's."""
    whole = await write_times(tmp_path / "whole", 1000.0, monkeypatch)
    sliced = await write_times(tmp_path / "sliced", -1.0, monkeypatch)
    assert sum(sliced) <= sum(whole) + PLAIN.tick_s


@pytest.mark.parametrize("given_up", [{0}, {2}, {0, 1, 4}, {1, 3, 5}])
async def test_writes_that_nobody_waits_for_delay_no_others_when_the_leader_changes(given_up: set[int]) -> None:
    async with fake_store() as store:
        client = StoreClient(store.endpoints(), LoopClock(), random.Random(1))
        await client.start()
        try:
            await client.txn((), (Put(b"/warm", b"v"),))
            fate: Any = "never answered"
            store.fate = lambda: fate
            writes = [asyncio.ensure_future(client.txn((), (Put(b"/%d" % at, b"v"),))) for at in range(6)]
            commands = store.commands
            await until(lambda: store.commands == commands + len(writes))
            for at in given_up:
                writes[at].cancel()
            fate = "done"
            store.elect(store.leader % 3 + 1)
            began_s = asyncio.get_running_loop().time()
            for at, write in enumerate(writes):
                if at not in given_up:
                    await write
            assert asyncio.get_running_loop().time() - began_s < 2.0
            assert all(store.state.get(b"/%d" % at) is not None for at in range(6) if at not in given_up)
        finally:
            await client.close()


async def test_a_member_whose_watchers_cannot_catch_up_does_not_go_on_as_if_they_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(tmp_path) as net:
        await net.put(b"/a")
        leader = await net.leader()

        def fails(*_: Any) -> int:
            raise KeyError("a bug")

        monkeypatch.setattr(leader.replica.hub, "catch_up", fails)
        leader.storage.watch(b"/a", b"", 1, lambda batch: None)
        await until(lambda: bool(net.fatal[leader.member_id]))
        assert net.fatal[leader.member_id][0].startswith("cannot continue: KeyError: 'a bug'")
        monkeypatch.undo()
        assert leader.failed and leader.replica.failure
