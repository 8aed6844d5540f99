"""Several API servers on one store: none assumes that it is the only one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from api_core import MAPS, PODS, Core, Events, config_map, names, pod
from step_clock import StepClock
from virtual_time import LoopClock

from minikube_py.api import services
from minikube_py.api.kinds.core import ENDPOINTS
from minikube_py.api.kinds.service_cidrs import IPADDRESSES
from minikube_py.apiserver import endpoints
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.health import READY_S
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.mvcc.types import RangeRequest, prefix_end
from minikube_py.store.storage import Storage

Json = dict[str, Any]
SERVICES = "/api/v1/namespaces/default/services"
KUBERNETES = "/api/v1/namespaces/default/endpoints/kubernetes"


class Asked:
    """One API server, asked by method and path."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Json]:
        path, _, query = path.partition("?")
        data = b"" if body is None else orjson.dumps(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = Request(method, path, parse_query(query), data, ADMIN, "application/json", kind)
        response = await self.api.handle(request)
        if response.stream is not None:
            raise AssertionError("ask for a watch by `watch`")
        text = b"".join(response.pieces) if response.pieces is not None else response.body
        return response.status, orjson.loads(text) if text[:1] == b"{" else {"text": text.decode()}

    async def done(self, method: str, path: str, body: Any = None) -> Json:
        status, answer = await self.ask(method, path, body)
        assert status < 300, answer
        return answer

    async def watch(self, path: str) -> Events:
        path, _, query = path.partition("?")
        request = Request("GET", path, parse_query(query + "&watch=true"), b"", ADMIN)
        response = await self.api.handle(request)
        assert response.stream is not None
        return Events(response.stream)


@pytest_asyncio.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    """The store, and one server that only exists so that it does."""
    made = Core(tmp_path)
    await made.member.start()
    yield made
    await made.member.stop()


def server(core: Core, seed: int, **options: Any) -> ApiServer:
    clock = options.pop("clock", None) or LoopClock()
    storage: Storage = options.pop("storage", None) or core.member.storage
    return ApiServer(storage, clock, random.Random(seed), **options)


async def two(core: Core, **options: Any) -> tuple[Asked, Asked]:
    apis = [server(core, seed, **options) for seed in (1, 2)]
    await asyncio.gather(*(api.start() for api in apis))
    return Asked(apis[0]), Asked(apis[1])


async def test_they_begin_an_empty_store_at_once(core: Core) -> None:
    apis = [server(core, seed) for seed in range(4)]
    await asyncio.gather(*(api.start() for api in apis))
    await asyncio.gather(*(api.publish(f"10.9.0.{n}", 6443) for n, api in enumerate(apis)))
    one = Asked(apis[0])
    found = names(await one.done("GET", "/api/v1/namespaces"))
    assert found == ["default", "kube-node-lease", "kube-public", "kube-system"]
    [service] = (await one.done("GET", SERVICES))["items"]
    assert service["spec"]["clusterIP"] == "10.0.0.1"
    [claim] = (await core.member.storage.range(RangeRequest(IPADDRESSES.prefix, prefix_end(IPADDRESSES.prefix)))).kvs
    assert claim.key.endswith(b"/10.0.0.1")
    # Whoever came last has seen all others.
    [subset] = (await one.done("GET", KUBERNETES))["subsets"]
    assert [each["ip"] for each in subset["addresses"]] == [f"10.9.0.{n}" for n in range(4)]
    for api in apis:
        await api.stop()


async def test_the_endpoints_are_those_of_the_servers_that_live(core: Core) -> None:
    clock = StepClock()
    core.member.lessor._clock = clock
    first, second, third = (server(core, seed, clock=clock) for seed in (1, 2, 3))
    for number, api in enumerate((first, second, third)):
        await api.start()
        await api.publish("10.9.0.1", 6443 + number)

    async def ports() -> list[int]:
        subsets = (await Asked(third).done("GET", KUBERNETES))["subsets"]
        return [subset["ports"][0]["port"] for subset in subsets]

    assert await ports() == [6443, 6444, 6445]
    await second.stop()
    assert await ports() == [6443, 6445]
    # The first is killed: it says no more, and its lease ends.
    assert first.endpoints._task is not None
    first.endpoints._task.cancel()
    first.endpoints._task = None
    async with asyncio.timeout(20):
        while await ports() != [6445]:
            assert clock.now_s < 4 * endpoints.INTERVAL_S
            await clock.advance(1)
            for lease_id in core.member.lessor.expired():
                await core.member.storage.lease_revoke(lease_id)
            await asyncio.sleep(0.01)
    assert clock.now_s >= endpoints.LEASE_TTL_S
    # The last one's stays.
    await third.stop()
    [kv] = await keys(core, ENDPOINTS.prefix)
    assert b'"port":6445' in kv.value
    assert await keys(core, endpoints.PREFIX) == []
    await first.stop()


async def keys(core: Core, prefix: bytes) -> list[Any]:
    return (await core.member.storage.range(RangeRequest(prefix, prefix_end(prefix)))).kvs


async def test_a_server_whose_lease_ended_while_it_stood_still_announces_itself_again(core: Core) -> None:
    clock = StepClock()
    core.member.lessor._clock = clock
    api = server(core, 1, clock=clock)
    await api.start()
    await api.publish("10.9.0.1", 6443)
    await core.member.storage.lease_revoke(api.endpoints._lease)
    assert await keys(core, endpoints.PREFIX) == []
    await clock.advance(endpoints.INTERVAL_S)
    async with asyncio.timeout(20):
        while not (found := await keys(core, endpoints.PREFIX)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [kv.key for kv in found] == [endpoints.PREFIX + b"10.9.0.1:6443"]
    await api.stop()


async def test_no_two_services_get_the_same_address_or_port(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range with just enough for all, so that servers must collide and try others."""
    monkeypatch.setattr(services, "NODE_PORT_LAST", services.NODE_PORT_FIRST + 10)
    one, other = await two(core, cluster_range="10.0.0.0/28")
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    bodies = [{"metadata": {"name": f"s{i}"}, "spec": spec} for i in range(11)]
    made = await asyncio.gather(*((one, other)[i % 2].done("POST", SERVICES, body) for i, body in enumerate(bodies)))
    assert len({service["spec"]["clusterIP"] for service in made}) == 11
    assert len({service["spec"]["ports"][0]["nodePort"] for service in made}) == 11
    for each in (one, other):
        await each.api.stop()


async def test_services_that_come_to_need_ports_at_once_all_get_one(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody asked for by number is not refused because somebody else was given that number."""
    monkeypatch.setattr(services, "NODE_PORT_LAST", services.NODE_PORT_FIRST + 5)
    one, other = await two(core)
    for i in range(6):
        await one.done("POST", SERVICES, {"metadata": {"name": f"s{i}"}, "spec": {"ports": [{"port": 80}]}})
    change = {"spec": {"type": "NodePort"}}
    made = await asyncio.gather(*((one, other)[i % 2].done("PATCH", f"{SERVICES}/s{i}", change) for i in range(6)))
    assert len({service["spec"]["ports"][0]["nodePort"] for service in made}) == 6
    wanted = {"spec": {"type": "NodePort", "ports": [{"port": 81, "nodePort": services.NODE_PORT_FIRST}]}}
    await one.done("POST", SERVICES, {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 81}]}})
    status, answer = await other.ask("PATCH", f"{SERVICES}/late", wanted)
    assert status == 422 and "provided port is already allocated" in answer["message"]
    for each in (one, other):
        await each.api.stop()


async def test_a_namespace_that_one_closes_is_closed_for_the_other(core: Core) -> None:
    one, other = await two(core)
    await one.done("POST", "/api/v1/namespaces", {"metadata": {"name": "short"}})
    path = "/api/v1/namespaces/short/configmaps"
    await other.done("POST", path, config_map("a"))
    creating = [other.ask("POST", path, config_map(f"b{i}")) for i in range(20)]
    results = await asyncio.gather(*creating[:10], one.done("DELETE", "/api/v1/namespaces/short"), *creating[10:])
    assert {result[0] for result in results if isinstance(result, tuple)} <= {201, 403}
    status, answer = await other.ask("POST", path, config_map("late"))
    assert status == 403 and "because it is being terminated" in answer["message"]
    namespace = (await other.done("GET", "/api/v1/namespaces/short"))["metadata"]["resourceVersion"]
    for item in (await one.done("GET", path))["items"]:
        assert int(item["metadata"]["resourceVersion"]) < int(namespace)
    for each in (one, other):
        await each.api.stop()


async def test_what_is_read_at_one_can_be_watched_from_there_at_the_other(core: Core) -> None:
    one, other = await two(core)
    for i in range(5):
        await one.done("POST", MAPS, config_map(f"a{i}"))
    revision = (await one.done("GET", MAPS))["metadata"]["resourceVersion"]
    # The other is behind: its cache does not hold that revision yet.
    other.api.cache.revision = 3
    watch = await other.watch(f"{MAPS}?resourceVersion={revision}")
    late = await other.ask("GET", f"{MAPS}?resourceVersion={int(revision) + 100}")
    assert late[0] == 504 and "Too large resource version" in late[1]["message"]
    await one.done("POST", MAPS, config_map("b0"))
    await other.done("POST", MAPS, config_map("b1"))
    assert await watch.named(2) == [("ADDED", "b0"), ("ADDED", "b1")]
    assert [each["metadata"]["name"] for each in (await other.done("GET", MAPS))["items"]][-1] == "b1"
    for each in (one, other):
        await each.api.stop()


async def test_both_work_on_one_object_and_no_change_is_lost(core: Core) -> None:
    one, other = await two(core)
    await one.done("POST", MAPS, config_map("count"))
    changes = [
        (one, other)[i % 2].ask("PATCH", f"{MAPS}/count", {"data": {f"k{i}": "v"}}) for i in range(30)
    ]
    statuses = [status for status, _ in await asyncio.gather(*changes)]
    assert statuses == [200] * 30
    assert len((await one.done("GET", f"{MAPS}/count"))["data"]) == 30
    stale = await one.done("GET", f"{MAPS}/count")
    await other.done("PATCH", f"{MAPS}/count", {"data": {"more": "v"}})
    assert (await one.ask("PUT", f"{MAPS}/count", stale))[0] == 409
    for each in (one, other):
        await each.api.stop()


async def test_events_have_leases_of_their_servers_own(core: Core) -> None:
    one, other = await two(core)
    path = "/api/v1/namespaces/default/events"
    for number, each in enumerate((one, other, one)):
        involved = {"kind": "Pod", "namespace": "default", "name": "p"}
        await each.done("POST", path, {"metadata": {"name": f"e{number}"}, "involvedObject": involved})
    leases = [kv.lease for kv in await keys(core, b"/registry/events/")]
    assert leases[0] == leases[2] != leases[1] and all(leases)
    # One that ends early harms nobody but what it held.
    await core.member.storage.lease_revoke(leases[0])
    assert [kv.key[-2:] for kv in await keys(core, b"/registry/events/")] == [b"e1"]
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    status, _ = await one.ask("POST", path, {"metadata": {"name": "e3"}, "involvedObject": involved})
    assert status == 503
    await one.done("POST", path, {"metadata": {"name": "e3"}, "involvedObject": involved})
    for each in (one, other):
        await each.api.stop()


async def test_a_pod_is_bound_once(core: Core) -> None:
    one, other = await two(core)
    await one.done("POST", PODS, pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    statuses = await asyncio.gather(*(
        each.ask("POST", f"{PODS}/p/binding", {**binding, "target": {"kind": "Node", "name": f"n{n}"}})
        for n, each in enumerate((one, other))
    ))  # fmt: skip
    assert sorted(status for status, _ in statuses) == [201, 409]
    for each in (one, other):
        await each.api.stop()


class Failing:
    """A store of which some requests end badly."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.error: Exception | None = None
        self.stuck = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def txn(self, *args: Any) -> Any:
        if self.error is not None:
            raise self.error
        return await self._storage.txn(*args)

    async def get(self, *args: Any) -> Any:
        if self.stuck:
            await asyncio.get_running_loop().create_future()
        return await self._storage.get(*args)


async def test_an_unknown_outcome_is_told_as_such(core: Core) -> None:
    storage = Failing(core.member.storage)
    api = server(core, 1, storage=storage)
    await api.start()
    storage.error = OutcomeUnknown("the store gave no answer within 10 s; the write may or may not have taken effect")
    status, answer = await Asked(api).ask("POST", MAPS, config_map("a"))
    assert (status, answer["reason"]) == (504, "Timeout")
    assert "etcdserver: request timed out, possibly due to previous leader failure" in answer["message"]
    assert "the outcome is unknown" in answer["message"]
    storage.error = Unavailable("no leader of the store was reached within 10 s")
    status, answer = await Asked(api).ask("POST", MAPS, config_map("a"))
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    await api.stop()


async def test_readiness_is_that_of_the_store_and_does_not_wait_for_it_long(core: Core) -> None:
    storage = Failing(core.member.storage)
    api = server(core, 1, storage=storage)
    await api.start()
    one = Asked(api)
    assert await one.ask("GET", "/readyz") == (200, {"text": "ok"})
    storage.stuck = True
    begun_s = asyncio.get_running_loop().time()
    status, answer = await one.ask("GET", "/readyz")
    assert status == 500 and "[-]etcd failed: reason withheld" in answer["text"]
    assert READY_S <= asyncio.get_running_loop().time() - begun_s < READY_S + 1, "in virtual time"
    storage.stuck = False
    assert (await one.ask("GET", "/readyz"))[0] == 200
    await api.stop()
