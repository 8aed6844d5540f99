"""Two API servers on three members of a real etcd that are killed, stopped and left without a quorum: what users were
answered, and what watches told, is judged by the checkers of the store's histories.

`make test` plays one seed; `make torture-etcd` others (RUNS=n)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from api_load import ApiLoad, now_us
from api_records import OTHERS, PREFIX
from bench_etcd_killed import MEMBERS, Members
from etcd_api import Caller
from patience import eventually, patience, until
from store_cluster import Role, make_secrets

from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig
from minikube_py.etcd.messages import pb
from minikube_py.mvcc.types import Event, KeyValue, WatchBatch
from minikube_py.sim.checkers.verdict import Verdict
from minikube_py.sim.history import Delivery
from minikube_py.sim.judge import judge

pytestmark = pytest.mark.original
RUNS = int(os.environ.get("MINIKUBE_PY_TORTURE_ETCD", "0"))
API_SERVERS = 2
STEP = 40
END = b"~end"


class NoStore:
    """In the place of our own store's members, which the load watches; here etcd is read at the end."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def watch(self, *_: Any) -> None: ...


class EtcdLoad(ApiLoad):
    """`ApiLoad` on a real etcd."""

    def __init__(self, access: list[ClusterAccess], rng: random.Random) -> None:
        self._begin(access, rng, 3, 0.02)
        self._client = NoStore()  # type: ignore[assignment]

    async def judged(self, place: str) -> dict[str, Verdict]:
        """As `finish`. `place`: a member that is up."""
        await self.stop_users()
        for session in self._sessions:
            while (await self._list(session, OTHERS)).status != 200:
                self._check()
        told = await asyncio.to_thread(everything, place)
        self.store = [Delivery(now_us(), WatchBatch(tuple(events), at)) for at, events in sorted(told.items())]
        last = max(at for at, events in told.items() if any(each.kv.key.startswith(PREFIX) for each in events))

        async def all_is_seen() -> bool:
            self._check()
            return all(watch.version >= last for watch in self.watches)

        await until(all_is_seen, "what happened has been seen by all")
        return await asyncio.to_thread(judge, self.record.history(), ())


def everything(place: str) -> dict[int, list[Event]]:
    """All events that an etcd has had, by revision."""
    caller, told = Caller(place), defaultdict[int, list[Event]](list)
    stream = caller.stream("Watch/Watch")
    eventually(lambda: caller.call("KV/Put", pb.PutRequest(key=END))[0] == "ok", "etcd accepts a write")
    asked = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=1, prev_kv=True)
    stream.send(pb.WatchRequest(create_request=asked))
    while True:
        for each in stream.next().get("events", ()):
            kv = as_kv(each["kv"])
            prev = as_kv(each["prev_kv"]) if "prev_kv" in each else None
            told[kv.mod_revision].append(Event("DELETE" if each.get("type") else "PUT", kv, prev))
            if kv.key == END:
                stream.close()
                caller.close()
                return told


def as_kv(told: dict[str, Any]) -> KeyValue:
    numbers = [told.get(name, 0) for name in ("create_revision", "mod_revision", "version", "lease")]
    return KeyValue(told["key"], told.get("value", b""), *numbers)


@dataclasses.dataclass
class Story:
    members: Members
    load: EtcdLoad
    rng: random.Random

    async def leader(self) -> int:
        return await asyncio.to_thread(self.members.leader)

    async def back(self, *killed: int) -> None:
        for at in killed:
            self.members.start(at)
        for at in killed:
            await asyncio.to_thread(eventually, lambda at=at: self.members.healthy(at), f"m{at} is back")
        await self.load.progress(STEP)


async def kill_the_leader(story: Story) -> None:
    at = await story.leader()
    story.members.kill(at)
    await story.load.progress(STEP)
    await story.back(at)


async def stop_the_leader(story: Story) -> None:
    await stop(story, await story.leader())


async def stop_a_follower(story: Story) -> None:
    await stop(story, (await story.leader() + story.rng.choice((1, 2))) % MEMBERS)


async def stop(story: Story, at: int) -> None:
    story.members.send(at, signal.SIGSTOP)
    await story.load.progress(STEP)
    story.members.send(at, signal.SIGCONT)
    await story.back()


async def kill_all(story: Story) -> None:
    for at in range(MEMBERS):
        story.members.kill(at)
    await story.back(*range(MEMBERS))


async def no_quorum(story: Story) -> None:
    """Users are refused, or told that the outcome is unknown; never 200."""
    leader = await story.leader()
    killed = leader, (leader + 1) % MEMBERS
    for at in killed:
        story.members.kill(at)
    since_us, load = now_us(), story.load
    refused: list[Any] = []

    async def answered() -> bool:
        refused[:] = [each for each in load.asked if each.call_us > since_us and each.return_us and each.status >= 500]
        return len(refused) >= 6

    await until(answered, "users are refused")
    done = [each for each in load.asked if each.call_us > since_us and each.status in (200, 201) and each.value]
    assert not done, done[:2]
    assert {each.status for each in refused} <= {500, 503, 504}
    await story.back(*killed)


FAULTS: tuple[Callable[[Story], Awaitable[None]], ...] = (
    kill_the_leader, stop_the_leader, stop_a_follower, kill_all, no_quorum,
)  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 1 + max(RUNS, 1)))
async def test_what_two_api_servers_on_a_real_etcd_told_is_true(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    secrets, members = make_secrets(tmp_path / "secrets"), Members(tmp_path)
    roles: list[Role] = []
    try:
        for at in range(MEMBERS):
            members.start(at)
        for at in range(MEMBERS):
            await asyncio.to_thread(eventually, lambda at=at: members.healthy(at), f"m{at} is healthy")
        flags = "--etcd-servers", ",".join(members.urls), "--secrets-dir", str(secrets / "apiserver")
        roles = [Role("apiserver", *flags, "--secure-port", "0") for _ in range(API_SERVERS)]
        for role in roles:
            await role.start()
        admin = load_kubeconfig(secrets / "admin" / "kubeconfig")
        access = [dataclasses.replace(admin, server=await role.ready()) for role in roles]
        async with patience(), EtcdLoad(access, rng) as load:
            story = Story(members, load, rng)
            for fault in rng.sample(FAULTS, len(FAULTS)):
                await fault(story)
            load.check_all(await load.judged(members.urls[0].removeprefix("http://")))
            print(f"seed {seed}: {dict(load.counts())}")
    finally:
        for role in roles:
            await role.kill()
        members.stop()
