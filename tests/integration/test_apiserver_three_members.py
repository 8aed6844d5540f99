"""API servers on three store members: requests outlast the loss of the leader, and watches go on without a new list."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from api_core import MAPS, PODS, Events, config_map, node, pod
from patience import until
from served_net import ServedNet, served

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.store.client import StoreClient

pytestmark = pytest.mark.virtual_time


Json = dict[str, Any]


class Api:
    """One API server on a client of its own. `loads`: how often it had to read the whole store."""

    def __init__(self, net: ServedNet, client: StoreClient, seed: int) -> None:
        self.client = client
        self.api = ApiServer(client, net.clock, random.Random(seed))
        self.loads = 0
        load = self.api._load

        async def counted(replayed: int) -> None:
            self.loads += 1
            await load(replayed)

        self.api._load = counted  # type: ignore[method-assign]

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Json]:
        path, _, query = path.partition("?")
        data = b"" if body is None else orjson.dumps(body)
        response = await self.api.handle(Request(method, path, parse_query(query), data, ADMIN))
        text = b"".join(response.pieces) if response.pieces is not None else response.body
        return response.status, orjson.loads(text) if text[:1] == b"{" else {"text": text.decode()}

    async def watch(self, path: str) -> Events:
        path, _, query = path.partition("?")
        response = await self.api.handle(Request("GET", path, parse_query(query + "&watch=true"), b"", ADMIN))
        assert response.stream is not None
        return Events(response.stream)


@contextlib.asynccontextmanager
async def servers(net: ServedNet, count: int = 2) -> AsyncIterator[list[Api]]:
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for seed in range(1, count + 1):
            client = await stack.enter_async_context(net.connected(seed=seed, request_timeout_s=30))
            made.append(Api(net, client, seed))
        await asyncio.gather(*(each.api.start() for each in made))
        yield made
        for each in made:
            await each.api.stop()


async def everything(events: Events, seen: list[tuple[str, Json]]) -> None:
    while (event := await events.next(60)) is not None:
        seen.append(event)


@pytest.mark.parametrize("how", ["killed", "cut off"])
async def test_clients_notice_nothing_but_time_when_the_leader_is_gone(tmp_path, how):
    async with served(tmp_path) as net, servers(net) as (one, other):
        _, listed = await one.ask("GET", MAPS)
        revision = listed["metadata"]["resourceVersion"]
        seen: list[list[tuple[str, Json]]] = [[], []]
        watches = [await each.watch(f"{MAPS}?resourceVersion={revision}") for each in (one, other)]
        reading = [asyncio.ensure_future(everything(watch, into)) for watch, into in zip(watches, seen)]
        await one.ask("POST", "/api/v1/nodes", node("n0", cpu="8"))
        selected = await other.watch("/api/v1/nodes?fieldSelector=free.cpu>=4")
        statuses: list[int] = []

        async def create(api: Api, name: int) -> None:
            for number in range(40):
                status, _ = await api.ask("POST", MAPS, config_map(f"m{name}-{number}"))
                statuses.append(status)

        creating = [asyncio.ensure_future(create((one, other)[name % 2], name)) for name in range(6)]
        await until(lambda: len(statuses) > 30)
        leader = (await net.leader()).member_id
        net.kill(leader) if how == "killed" else net.isolate(leader)
        await asyncio.gather(*creating)
        assert statuses == [201] * 240
        status, _ = await other.ask("POST", PODS, pod("big", node="n0", cpu="6"))
        assert status == 201
        await until(lambda: all(len(into) >= 240 for into in seen))
        assert [kind for into in seen for kind, _ in into] == ["ADDED"] * 480
        for into in seen:
            revisions = [int(obj["metadata"]["resourceVersion"]) for _, obj in into]
            assert revisions == sorted(revisions) and len(set(revisions)) == 240
        assert await selected.named(2) == [("ADDED", "n0"), ("DELETED", "n0")]
        assert (one.loads, other.loads) == (1, 1)
        assert (await one.ask("GET", "/readyz"))[0] == 200
        for task in reading:
            task.cancel()


async def test_servers_are_ready_when_the_store_is(tmp_path):
    async with served(tmp_path) as net, servers(net, 1) as [one]:
        assert (await one.ask("GET", "/readyz"))[0] == 200
        leader = await net.leader()
        others = net.others(leader)
        for id in others:
            net.kill(id)
        await until(lambda: not leader.replica.leading)
        status, answer = await one.ask("GET", "/readyz")
        assert status == 500 and "[-]etcd failed: reason withheld\n" in answer["text"]
        assert (await one.ask("GET", "/readyz?exclude=etcd&exclude=etcd-readiness"))[0] == 200
        assert (await one.ask("GET", "/livez"))[0] == 200
        # What may be old is still told.
        assert (await one.ask("GET", f"{MAPS}?resourceVersion=0"))[0] == 200
        writing = asyncio.ensure_future(one.ask("POST", MAPS, config_map("late")))
        for id in others:
            await net.start(id)
        assert (await writing)[0] == 201
        assert (await one.ask("GET", "/readyz"))[0] == 200


@pytest.mark.parametrize("seed", [1, 2])
async def test_two_servers_agree_after_whatever_happened_to_the_members(tmp_path, seed):
    rng = random.Random(seed)
    async with served(tmp_path) as net, servers(net) as apis:
        known: list[dict[str, str]] = [{}, {}]

        async def follow(api: Api, into: dict[str, str]) -> None:
            """As an informer does: a list, then its watch; a new list only when the server says so."""
            _, listed = await api.ask("GET", MAPS)
            for item in listed["items"]:
                into[item["metadata"]["name"]] = item["data"]["n"]
            watch = await api.watch(f"{MAPS}?resourceVersion={listed['metadata']['resourceVersion']}")
            while (event := await watch.next(60)) is not None:
                kind, obj = event
                name = obj["metadata"]["name"]
                if kind == "DELETED":
                    del into[name]
                else:
                    assert kind in ("ADDED", "MODIFIED") and (kind == "ADDED") == (name not in into)
                    into[name] = obj["data"]["n"]

        async def write(api: Api, worker: int) -> None:
            for n in range(40):
                name = f"m{rng.randrange(12)}"
                if rng.random() < 0.6:
                    await api.ask("POST", MAPS, config_map(name, n=f"{worker}.{n}"))
                elif rng.random() < 0.7:
                    await api.ask("PUT", f"{MAPS}/{name}", config_map(name, n=f"{worker}.{n}"))
                else:
                    await api.ask("DELETE", f"{MAPS}/{name}")

        following = [asyncio.ensure_future(follow(api, into)) for api, into in zip(apis, known)]
        writing = [asyncio.ensure_future(write(apis[worker % 2], worker)) for worker in range(6)]
        while not all(task.done() for task in writing):
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            id, roll = rng.randrange(1, 4), rng.random()
            if roll < 0.4:
                net.kill(id)
                await asyncio.sleep(rng.uniform(0.02, 0.2))
                await net.start(id)
            elif roll < 0.6:
                net.isolate(id)
                await asyncio.sleep(rng.uniform(0.02, 0.4))
                net.heal()
            else:
                net.cut_clients(id)
        await asyncio.gather(*writing)
        _, listed = await apis[0].ask("GET", MAPS)
        there = {item["metadata"]["name"]: item["data"]["n"] for item in listed["items"]}
        await until(lambda: known == [there, there])
        assert not any(task.done() for task in following)
        assert [api.loads for api in apis] == [1, 1]
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
