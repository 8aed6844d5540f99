"""etcd's API on three members: each takes what any client asks, and the death of one costs time and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from etcd_api import Answer, Caller
from needs import original_program
from patience import PATIENCE_S, Deadline, until
from ports import free_ports
from store_cluster import HOST, StoreCluster, make_secrets

from minikube_py.etcd.messages import pb

LEADERLESS = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""What is answered while nobody leads: the second where nobody took a write."""


class Doors:
    """The members' etcd APIs, by name."""

    def __init__(self, cluster: StoreCluster, secrets: Path) -> None:
        self.cluster = cluster
        self.store = secrets / "store"
        self.ports: dict[str, int] = {}
        self.callers: dict[str, Caller] = {}

    async def start(self, *names: str) -> None:
        roles = []
        for name in names:
            port = self.ports.setdefault(name, free_ports(1)[0])
            roles.append(await self.cluster.spawn(name, "--listen-client-urls", f"https://{HOST}:{port}"))
        await asyncio.gather(*(role.ready() for role in roles))
        for name in names:
            self.callers[name] = Caller(f"{HOST}:{self.ports[name]}", self.credentials())

    def credentials(self) -> Any:
        pem = [(self.store / name).read_bytes() for name in ("authority.pem", "peer.key", "peer.pem")]
        return grpc.ssl_channel_credentials(*pem)

    async def call(self, name: str, method: str, request: Any = None) -> Answer:
        return await asyncio.to_thread(self.callers[name].call, method, request)

    async def ok(self, name: str, method: str, request: Any = None) -> Any:
        """Asked again while nobody leads, as on a slow machine now and then: nothing that is asked so minds."""
        deadline = Deadline()
        while (answer := await self.call(name, method, request))[0] in LEADERLESS:
            deadline.check((name, method, answer))
        assert answer[0] == "ok", (name, method, answer)
        return answer[1]

    async def etcdctl(self, *words: str) -> str:
        """With all members as its endpoints."""
        endpoints = ",".join(f"https://{HOST}:{port}" for port in self.ports.values())
        tls = [f"--cacert={self.store}/authority.pem", f"--cert={self.store}/peer.pem", f"--key={self.store}/peer.key"]
        patient = [f"--{which}-timeout={PATIENCE_S:g}s" for which in ("command", "dial")]
        command = [str(original_program("etcdctl")), f"--endpoints={endpoints}", *tls, *patient, *words]
        found = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert found.returncode == 0, (words, found.stdout, found.stderr)
        return found.stdout

    async def leader(self) -> str:
        async def found() -> str:
            for name in self.callers:
                if not self.cluster.answers(name):
                    continue
                code, status = await self.call(name, "Maintenance/Status")
                if code == "ok" and status.get("leader") == status["header"]["member_id"]:
                    return name
            return ""

        return str(await until(found, "one of them leads"))


@contextlib.asynccontextmanager
async def doors(folder: Path) -> AsyncIterator[Doors]:
    secrets = await asyncio.to_thread(make_secrets, folder / "secrets")
    cluster = StoreCluster(folder, secrets, random.Random(3))
    found = Doors(cluster, secrets)
    try:
        await cluster.links.start()
        for number in range(1, 4):
            await cluster.place(f"store-{number}")
        await found.start(*cluster.places)
        yield found
    finally:
        for caller in found.callers.values():
            caller.close()
        await cluster.close()


async def hand_over(found: Doors) -> None:
    """Whoever does not lead refuses to; the leader does it."""
    before = await found.leader()
    target = next(name for name in found.callers if name != before)
    moving = pb.MoveLeaderRequest(targetID=(await found.ok(target, "Maintenance/Status"))["header"]["member_id"])
    refusals: list[Any] = []

    async def moved() -> bool:
        leader = await found.leader()
        if leader == target:
            return True
        other = next(name for name in found.callers if name not in (leader, target))
        refusals.append(await found.call(other, "Maintenance/MoveLeader", moving))
        await found.call(leader, "Maintenance/MoveLeader", moving)
        return False

    await until(moved, f"{target} leads")
    assert ("FAILED_PRECONDITION", "etcdserver: not leader") in refusals


def counted(expected: int) -> Any:
    """Adds one to a counter, if it is `expected`."""
    compare = pb.Compare(key=b"counter", target=0, result=0, version=expected)
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"counter", value=b"%d" % (expected + 1)))
    get = pb.RequestOp(request_range=pb.RangeRequest(key=b"counter"))
    return pb.TxnRequest(compare=[compare], success=[put], failure=[get])


async def everything_through_everyone(found: Doors) -> None:
    for position, name in enumerate(found.callers):
        written = await found.ok(name, "KV/Put", pb.PutRequest(key=b"from/%d" % position, value=name.encode()))
        for other in found.callers:
            read = await found.ok(other, "KV/Range", pb.RangeRequest(key=b"from/%d" % position))
            assert read["kvs"][0]["value"] == name.encode()
            assert read["header"]["revision"] >= written["header"]["revision"]
        granted = await found.ok(name, "Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=300))
        left = await found.ok(name, "Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=granted["ID"]))
        assert 0 < left["TTL"] <= left["grantedTTL"] == 300
        renewals = found.callers[name].stream("Lease/LeaseKeepAlive")
        renewals.send(pb.LeaseKeepAliveRequest(ID=granted["ID"]))
        assert (await asyncio.to_thread(renewals.next))["TTL"] == 300
        renewals.close()
        members = (await found.ok(name, "Cluster/MemberList"))["members"]
        assert sorted(each["name"] for each in members) == sorted(found.callers)
        ports = {each["name"]: int(each["clientURLs"][0].rpartition(":")[2]) for each in members}
        assert ports == found.ports


@pytest.mark.original
async def test_any_member_takes_what_a_client_asks_and_nothing_is_done_twice(tmp_path: Path) -> None:
    async with doors(tmp_path) as found:
        await everything_through_everyone(found)
        assert (await found.etcdctl("endpoint", "health")).count("is healthy") == 3
        assert len((await found.etcdctl("endpoint", "status", "--cluster")).splitlines()) == 3
        leader = await found.leader()
        others = [name for name in found.callers if name != leader]
        # Whoever shows no certificate of the authority is not served.
        stranger = Caller(
            f"{HOST}:{found.ports[leader]}", grpc.ssl_channel_credentials((found.store / "authority.pem").read_bytes())
        )
        assert (await asyncio.to_thread(stranger.call, "KV/Range", pb.RangeRequest(key=b"a")))[0] == "UNAVAILABLE"
        stranger.close()
        # A counter, increased through one that follows, while the leader dies.
        follower = others[0]
        watching = found.callers[follower].stream("Watch/Watch")
        watching.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"counter")))
        await asyncio.to_thread(watching.next)
        done, unknown, version = 0, 0, 0
        for step in range(24):
            if step == 10:
                await found.cluster.kill(leader)
            code, answer = await found.call(follower, "KV/Txn", counted(version))
            if code != "ok":
                assert code in LEADERLESS, (code, answer)
                unknown += 1
                continue
            if answer.get("succeeded"):
                done, version = done + 1, version + 1
            else:
                # Only its own writes: what a lost answer had done.
                version = answer["responses"][0]["response_range"]["kvs"][0]["version"]
        counter = (await found.ok(follower, "KV/Range", pb.RangeRequest(key=b"counter")))["kvs"][0]
        assert 0 < done <= counter["version"] <= done + unknown
        assert counter["value"] == b"%d" % counter["version"]
        seen: list[int] = []
        while len(seen) < counter["version"]:
            seen += [event["kv"]["version"] for event in (await asyncio.to_thread(watching.next))["events"]]
        assert seen == list(range(1, counter["version"] + 1))
        watching.close()
        # Back again, and another is to lead.
        await found.start(leader)
        await hand_over(found)
        hashes = {}
        for name in found.callers:
            # Answered once the member has all that was acknowledged; its hash alone waits for nothing, as etcd's.
            await found.ok(name, "KV/Range", pb.RangeRequest(key=b"counter"))
            answer = await found.ok(name, "Maintenance/HashKV", pb.HashKVRequest(revision=counter["mod_revision"]))
            hashes[name] = answer["hash"]
        assert len(set(hashes.values())) == 1
        await nobody_leads(found)


async def nobody_leads(found: Doors) -> None:
    """What a member says when the others are gone: to who wants one that knows a leader, and to who does not."""
    left, *others = found.callers
    needing, patient = [
        found.callers[left].stream("Watch/Watch", metadata) for metadata in ((("hasleader", "true"),), None)
    ]
    for stream in (needing, patient):
        stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")))
        assert (await asyncio.to_thread(stream.next))["created"]
    await found.cluster.kill(*others)
    assert await asyncio.to_thread(needing.next) == ("UNAVAILABLE", "etcdserver: no leader")
    refused = await asyncio.to_thread(
        found.callers[left].call, "KV/Range", pb.RangeRequest(key=b"a"), (("hasleader", "true"),)
    )
    assert refused == ("UNAVAILABLE", "etcdserver: no leader")
    # What it has itself it still tells; what needs the others, it does not.
    assert (await found.call(left, "KV/Range", pb.RangeRequest(key=b"counter", serializable=True)))[0] == "ok"
    nobody_took_it = await found.call(left, "KV/Put", pb.PutRequest(key=b"a"))
    assert nobody_took_it == ("DEADLINE_EXCEEDED", "context deadline exceeded")
    assert (await found.call(left, "Maintenance/Status"))[1]["errors"] == ["etcdserver: no leader"]
    for stream in (needing, patient):
        stream.close()
