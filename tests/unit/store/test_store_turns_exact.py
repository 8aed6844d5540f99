"""A member's turns: what goes out before a sync and what behind it, how long one may be, when more is waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from replica_net import ReplicaNet
from virtual_time import LoopClock

from minikube_py.errors import RequestTooLarge
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put
from minikube_py.store import upkeep
from minikube_py.store.applying import Failed
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.store.turns import GATHER_MIN, GATHER_S, Turns

# -- turns -------------------------------------------------------------------------------------------------------------


class Replica:
    """Turns as the test has them: each is (messages, sync, entries), None where there is nothing to do."""

    def __init__(self) -> None:
        self.alone, self.syncing, self.unfinished, self.waiting = False, False, False, 0
        self.turns: list[Any] = []
        self.turned = 0
        self.after: list[Any] = []
        self.files: Any = SimpleNamespace(disk=SimpleNamespace(folder="/data"))
        self.cost_s = 0.0
        self.loop: Any = asyncio.get_running_loop()

    def turn(self) -> Any:
        self.turned += 1
        self.loop.charge(self.cost_s)
        step = self.turns.pop(0) if self.turns else None
        if isinstance(step, Exception):
            raise step
        return step

    def synced(self) -> list[Any]:
        return self.after


def turning() -> tuple[Replica, Turns, list[Any], list[str]]:
    replica, told, failures = Replica(), [], []
    fsync: Any = SimpleNamespace(run=lambda sync, done: told.append(("sync", sync, done)))
    turns = Turns(replica, fsync, LoopClock(), lambda: told.append("turned"), failures.append)  # type: ignore[arg-type]
    turns.begin(SimpleNamespace(send=lambda messages: told.append(("send", messages))))  # type: ignore[arg-type]
    return replica, turns, told, failures


async def test_a_turn_sends_before_it_syncs_and_the_next_one_follows_the_sync() -> None:
    replica, turns, told, failures = turning()
    replica.turns = [(["m1"], "sync 1", 3), (["m2"], None, 0)]
    turns.soon()
    turns.soon()
    await asyncio.sleep(0)
    assert [each[:2] if type(each) is tuple else each for each in told] == [
        ("send", ["m1"]), "turned", ("sync", "sync 1"), ("send", ["m2"]), "turned",
    ]  # fmt: skip
    assert turns.batches.count == 1 and turns.batches.sum == 3 and not turns.due
    done = told[2][2]
    told.clear()
    replica.after, replica.turns = ["after"], [(["m3"], None, 0)]
    done(None)
    assert told == [("send", ["after"]), ("send", ["m3"]), "turned"]
    done(OSError(5, "an error"))
    assert failures == ["cannot sync the log: an error (/data)"]
    turns.stop()
    told.clear()
    done(None)
    assert told == [] and failures == ["cannot sync the log: an error (/data)"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(Failed("cannot apply entry 7"), "cannot apply entry 7"), (ValueError("x"), "cannot continue: ValueError: x (")],
)  # fmt: skip
async def test_a_turn_that_fails_ends_the_member(error: Exception, said: str) -> None:
    replica, turns, told, failures = turning()
    replica.turns = [error]
    turns.soon()
    await asyncio.sleep(0)
    assert [each.startswith(said) for each in failures] == [True]

    def synced() -> Any:
        raise error

    replica.synced = synced  # type: ignore[method-assign]
    turns._synced(None)
    assert len(failures) == 2 and failures[1].startswith(said) and "turned" not in told


@pytest.mark.parametrize("alone", [False, True])
async def test_after_20_ms_others_have_their_turn(alone: bool) -> None:
    replica, turns, told, _ = turning()
    replica.alone, replica.cost_s = alone, 0.0105
    replica.turns = [([], None, 0)] * 6
    turns.soon()
    counts = []
    for _ in range(5):
        await asyncio.sleep(0)
        counts.append(replica.turned)
    assert counts[0] == (7 if alone else 2) and counts[-1] == 7
    assert told.count("turned") == (1 if alone else 4)


async def test_what_is_not_finished_comes_in_the_next_turn_of_the_loop() -> None:
    replica, turns, _, _ = turning()
    replica.unfinished = True
    turns.soon()
    await asyncio.sleep(0)
    assert turns.due and replica.turned == 1
    replica.unfinished = False
    await asyncio.sleep(0)
    assert not turns.due and replica.turned == 2


async def test_many_proposals_are_waited_for_while_they_double_and_not_for_long() -> None:
    assert (GATHER_MIN, GATHER_S) == (16, 0.001)

    async def gathered(waiting: list[int], charge_s: float = 0.0) -> int:
        """After how many turns of the loop the turn comes, if so many proposals wait in each."""
        replica, turns, _, _ = turning()
        turns.gather()
        for at, count in enumerate([*waiting, *[waiting[-1]] * 5], 1):
            replica.waiting = count
            replica.loop.charge(charge_s)
            await asyncio.sleep(0)
            if replica.turned:
                return at
        raise AssertionError("the turn never comes")

    assert await gathered([15]) == 1
    assert await gathered([16]) == 2
    assert await gathered([16, 31]) == 2
    assert await gathered([16, 32, 64, 127]) == 4
    assert await gathered([16, 32, 64, 128], 0.0006) == 2, "over a millisecond has passed"


async def test_settling_ends_when_nothing_is_under_way_or_the_member_stopped() -> None:
    replica, turns, told, _ = turning()
    replica.syncing = True
    settling = asyncio.ensure_future(turns.settle())
    await asyncio.sleep(1.0)
    assert not settling.done()
    replica.syncing = False
    turns._turn()
    await asyncio.sleep(0)
    assert settling.done()
    replica.syncing = True
    settling = asyncio.ensure_future(turns.settle())
    await asyncio.sleep(1.0)
    turns.stop()
    await settling
    assert upkeep.PROPOSE == 0 and told


# -- the replica's own -------------------------------------------------------------------------------------------------


def test_a_request_may_be_as_large_as_the_limit_and_no_larger() -> None:
    net = ReplicaNet(members=1, config=ReplicaConfig(request_bytes_max=100))
    net.settle()
    room = 100 - len(pack(Put(b"/a", b"")))
    assert len(pack(Put(b"/a", bytes(room)))) == 100
    fits = net.propose(net[1], Put(b"/a", bytes(room)))
    with pytest.raises(RequestTooLarge):
        net.propose(net[1], Put(b"/a", bytes(room + 1)))
    net.settle()
    assert fits.done


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyError("a bug"), "cannot continue: KeyError: 'a bug'"), (OSError(5, "an error"), "cannot write the log")],
)
def test_a_replica_that_failed_in_a_turn_says_why_and_has_no_other(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = ReplicaNet(members=1)
    net.settle()

    def fails() -> Any:
        raise error

    monkeypatch.setattr(net[1], "_work", fails)
    with pytest.raises(Failed, match=said):
        net[1].turn()
    assert net[1].failure.startswith(said) and net[1].turn() is None
