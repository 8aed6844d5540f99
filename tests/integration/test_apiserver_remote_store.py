"""The API server on a store over a connection that breaks again and again: no change is missed or doubled."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import patience

from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.client.informer import Handler, Informer, Selection
from minikube_py.client.rest import NODES, PODS, ResourceRef, RestClient
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import Compare, DeleteRange, Put
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.server import StoreServer


class Hasty(SystemClock):
    """Backoffs are not what is tested here."""

    async def sleep(self, duration_s: float) -> None:
        await super().sleep(duration_s / 50)


class Seen:
    """A projection: what must be the same in the end."""

    def __init__(self, obj: dict[str, Any]) -> None:
        self.uid = obj["metadata"]["uid"]
        self.value = (self.uid, (obj["metadata"].get("labels") or {}).get("n"))


def node(name: str, n: int) -> bytes:
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {"n": str(n)}}
    return orjson.dumps({"metadata": metadata, "status": {"allocatable": resources, "capacity": resources}})


def pod(name: str, node_name: str, n: int) -> bytes:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "5"}}}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}-{n}", "labels": {"n": str(n)}}
    return orjson.dumps({"metadata": metadata, "spec": {"nodeName": node_name, "containers": containers}})


async def churn(member: StoreMember, rng: random.Random, clients: list[StoreClient], steps: int) -> None:
    """Writes straight into the store, while the connections to it break."""
    storage = member.storage
    for n in range(steps):
        name = f"o{rng.randrange(12)}"
        node_key, pod_key = b"/registry/nodes/" + name.encode(), b"/registry/pods/default/" + name.encode()
        roll = rng.random()
        if roll < 0.5:
            await storage.txn((), (Put(node_key, node(name, n)),))
        elif roll < 0.75:
            gone = (Compare(pod_key, "CREATE", "=", 0),)
            await storage.txn(gone, (Put(pod_key, pod(name, name, n)),), (DeleteRange(pod_key),))
        elif roll < 0.8:
            await storage.txn((), (DeleteRange(node_key),))
        if rng.random() < 0.2:
            connection = rng.choice(clients)._connection
            if connection is not None:
                connection._transport.abort()
        if rng.random() < 0.02 and member.state.compact_revision < member.state.revision:
            await storage.compact(member.state.revision)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.1:
            await asyncio.sleep(0.01)


def informer(
    api: ApiServer, resource: ResourceRef, rng: random.Random, told: dict[str, Any], selector: str = ""
) -> Informer[Seen]:
    """`told` is what the handlers make of what they hear; each call must fit what is there."""
    made: Informer[Seen] = Informer(
        RestClient(InProcessTransport(api)), resource, Seen, clock=Hasty(), rng=rng,
        selection=Selection(field_selector=selector),
    )  # fmt: skip

    def add(item: Seen) -> None:
        assert item.uid not in told
        told[item.uid] = item.value

    def update(old: Seen, new: Seen) -> None:
        assert told[old.uid] == old.value
        told[new.uid] = new.value

    def delete(item: Seen) -> None:
        assert told.pop(item.uid) == item.value

    made.add_handler(Handler(add, update, delete))
    return made


async def listed(api: ApiServer, resource: ResourceRef, selector: str = "") -> dict[str, Any]:
    client = RestClient(InProcessTransport(api))
    async with patience():
        while True:
            try:
                objects = await client.list(resource, field_selector=selector)
                return {seen.uid: seen.value for seen in map(Seen, objects)}
            except MinikubeError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", [3, 4, 5])
async def test_nothing_is_lost_while_connections_to_the_store_break(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    member = StoreMember(SystemDisk(tmp_path), SystemClock(), rng, MemberConfig(own_gc=False), pytest.fail)
    await member.start()
    server = StoreServer(member, "token")
    await server.start()
    host, port = server.address
    client = StoreClient(Endpoint(host, port, "token"), Hasty(), rng)
    await client.start()
    api = ApiServer(client, Hasty(), rng)
    await api.start()
    asked = [(PODS, ""), (NODES, ""), (NODES, "free.cpu>=4")]
    told: list[dict[str, Any]] = [{} for _ in asked]
    informers = [informer(api, *what[:1], rng, into, what[1]) for what, into in zip(asked, told)]
    for each in informers:
        each.start()
    await churn(member, rng, [client], 800)
    try:
        for what, into, each in zip(asked, told, informers):
            wanted = await listed(api, *what)
            async with patience():
                while into != wanted:
                    assert each.failure is None
                    await asyncio.sleep(0.02)
            assert {item.uid: item.value for item in each.store} == wanted
        assert api.cache.revision == member.state.revision
        assert client.metrics()["minikube_py_store_client_connects_total"] > 10
    finally:
        for each in informers:
            await each.stop()
        await api.stop()
        await client.close()
        await server.stop()
        await member.stop()
