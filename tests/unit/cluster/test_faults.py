"""Faults on demand, in real and in virtual time: a client sees them, components and the door's methods do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import kubernetes
import orjson
import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.client.transport import MERGE_PATCH, ApiTransport
from minikube_py.cluster.methods import AsyncMethods
from minikube_py.sim.fault_schedule import REGISTRY
from minikube_py.sim.inject_api import KINDS

pytestmark = pytest.mark.real_time("real sockets and threads")
MAPS = "/api/v1/namespaces/default/configmaps"
Story = Callable[[Any, ApiTransport], Coroutine[Any, Any, None]]


def config_map(name: str) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})


async def patched(transport: ApiTransport, name: str) -> int:
    return (await transport.request("PATCH", f"{MAPS}/{name}", None, b'{"data":{"a":"b"}}', MERGE_PATCH)).status


async def events(transport: ApiTransport, since: str = "") -> AsyncIterator[tuple[str, str]]:
    """Type and name, or code, of each."""
    params = {"resourceVersion": since} if since else {}
    async for batch in transport.watch(MAPS, params):
        for each in batch:
            obj = orjson.loads(each.object)
            yield each.type, str(obj.get("code") or obj["metadata"]["name"])


async def revision(transport: ApiTransport) -> str:
    return orjson.loads((await transport.request("GET", MAPS)).body)["metadata"]["resourceVersion"]


async def conflicts(faults: Any, transport: ApiTransport) -> None:
    await transport.request("POST", MAPS, None, config_map("a"))
    faults.conflict_next("configmaps", times=2)
    assert [await patched(transport, "a") for _ in range(3)] == [409, 409, 200]
    assert (await transport.request("GET", f"{MAPS}/a")).status == 200


async def throttled(faults: Any, transport: ApiTransport) -> None:
    faults.throttle_next("configmaps", times=2)
    answers = [await transport.request("POST", MAPS, None, config_map("a")) for _ in range(3)]
    assert [each.status for each in answers] == [429, 429, 201]
    assert answers[0].headers["Retry-After"] == "1"
    status = orjson.loads(answers[0].body)
    assert (status["reason"], status["details"]) == ("TooManyRequests", {"retryAfterSeconds": 1})


async def failures(faults: Any, transport: ApiTransport) -> None:
    faults.fail_next("configmaps")
    assert (await transport.request("GET", "/api/v1/nodes")).status == 200
    assert (await transport.request("POST", MAPS, None, config_map("a"))).status == 500
    assert (await transport.request("GET", f"{MAPS}/a")).status == 404
    faults.fail_next(done=True)
    assert (await transport.request("POST", MAPS, None, config_map("a"))).status == 504
    assert (await transport.request("GET", f"{MAPS}/a")).status == 200


async def expiry(faults: Any, transport: ApiTransport) -> None:
    since = await revision(transport)
    watch = events(transport, since)
    await transport.request("POST", MAPS, None, config_map("a"))
    assert await anext(watch) == ("ADDED", "a")
    faults.expire_watches("configmaps")
    assert [each async for each in watch] == [("ERROR", "410")]
    assert [each async for each in events(transport, since)] == [("ERROR", "410")]
    await transport.request("POST", MAPS, None, config_map("b"))
    again = events(transport, str(int(await revision(transport)) - 0))
    await transport.request("POST", MAPS, None, config_map("c"))
    assert await anext(again) == ("ADDED", "c")
    await again.aclose()  # type: ignore[attr-defined]


async def cut_and_repeated(faults: Any, transport: ApiTransport) -> None:
    since = await revision(transport)
    watch = events(transport, since)
    await transport.request("POST", MAPS, None, config_map("a"))
    assert await anext(watch) == ("ADDED", "a")
    faults.repeat_events("configmaps")
    assert await anext(watch) == ("ADDED", "a")
    faults.cut_watches()
    assert [each async for each in watch] == []
    resumed = events(transport, since)
    assert await anext(resumed) == ("ADDED", "a")
    await resumed.aclose()  # type: ignore[attr-defined]


async def late(faults: Any, transport: ApiTransport) -> None:
    watch = events(transport, await revision(transport))
    first = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    faults.delay_events(0.2, "configmaps")
    await transport.request("POST", MAPS, None, config_map("a"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not first.done()
    assert await first == ("ADDED", "a")
    faults.hide_events(0.2)
    await transport.request("POST", MAPS, None, config_map("b"))
    assert [each async for each in watch] == [("ERROR", "410")]


async def stale(faults: Any, transport: ApiTransport) -> None:
    await transport.request("POST", MAPS, None, config_map("a"))
    faults.stale_list(1, "configmaps")
    names = []
    for _ in range(2):
        items = orjson.loads((await transport.request("GET", MAPS)).body)["items"]
        names.append("a" in [each["metadata"]["name"] for each in items])
    assert names == [False, True]


async def slowness(faults: Any, transport: ApiTransport) -> None:
    faults.slow(0.05, "configmaps")
    asked = asyncio.ensure_future(transport.request("GET", MAPS))
    other = await transport.request("GET", "/api/v1/nodes")
    assert other.status == 200 and not asked.done()
    assert (await asked).status == 200
    faults.all_well()
    faults.no_leader(0.05)
    assert (await transport.request("GET", MAPS)).status == 503
    while (await transport.request("GET", MAPS)).status == 503:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


STORIES: list[Story] = [conflicts, failures, throttled, expiry, cut_and_repeated, late, stale, slowness]


class Within:
    """The faults of a cluster in virtual time, begun from its own loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._player = cluster._virtual().virtual.plane.player

    def __getattr__(self, name: str) -> Any:
        door = AsyncMethods()
        door._inject = self._player.begin  # type: ignore[method-assign]
        door._plural = str  # type: ignore[method-assign]
        return self._player.all_well if name == "all_well" else getattr(door, name)


@pytest.mark.parametrize("story", STORIES)
async def test_a_client_in_real_time(story: Story) -> None:
    async with Cluster() as cluster:
        await story(cluster, cluster.transport())


@pytest.mark.parametrize("story", STORIES)
def test_a_client_in_virtual_time(story: Story) -> None:
    digests = []
    for _ in range(2):
        with Cluster(clock="virtual", seed=3) as cluster:
            transport = cluster.transport()
            cluster.run(lambda cluster=cluster, transport=transport: story(Within(cluster), transport))  # type: ignore[misc]
            cluster.advance(1)
            digests.append(cluster.digest)
    assert digests[0] == digests[1]


def test_the_doors_own_methods_and_the_components_pass() -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        cluster.fail_next(times=1000)
        cluster.conflict_next(times=1000)
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                       "spec": {"containers": [{"name": "c", "image": "i"}]}})  # fmt: skip
        cluster.wait("pod/a", phase="Running")
        assert cluster.client.httpx().get("/api/v1/nodes").status_code == 500
        cluster.all_well()
        assert cluster.client.httpx().get("/api/v1/nodes").status_code == 200


def test_a_client_over_https_meets_them_too() -> None:
    with Cluster() as cluster:
        client = cluster.client.httpx()
        cluster.fail_next("nodes")
        assert client.get("/api/v1/nodes").json()["message"] == "Internal error occurred: injected by the test"
        assert client.get("/api/v1/nodes").status_code == 200


def test_a_node_goes_down_and_comes_back() -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        cluster.node("node-0").down()
        cluster.wait("node/node-0", until=lambda node: "Unknown" in str(node["status"]["conditions"]), timeout_s=100)
        cluster.node("node-0").up()
        cluster.wait("node/node-0", condition="Ready", timeout_s=100)
        cluster.node("node-1").down(100)
        cluster.wait("node/node-1", until=lambda node: "Unknown" in str(node["status"]["conditions"]), timeout_s=90)
        cluster.wait("node/node-1", condition="Ready", timeout_s=100)
        with pytest.raises(ClusterError, match="no simulated node is named n9"):
            cluster.node("n9").down()


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [("Always", 137, "Running", 1), ("OnFailure", 1, "Running", 1), ("OnFailure", 0, "Succeeded", 0),
     ("Never", 1, "Failed", 0), ("Never", 0, "Succeeded", 0)],
)  # fmt: skip
def test_a_container_ends_with_an_exit_code(policy: str, code: int, phase: str, restarts: int) -> None:
    with Cluster(clock="virtual") as cluster:
        spec = {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        with pytest.raises(ClusterError, match="does not run"):
            cluster.end_container("a")
        cluster.wait("pod/a", phase="Running")
        pod = cluster.end_container("a", code, reason="OOMKilled" if code == 137 else "")
        (status,) = pod["status"]["containerStatuses"]
        assert (pod["status"]["phase"], status["restartCount"]) == (phase, restarts)
        ended = (status["lastState"] if restarts else status["state"])["terminated"]
        assert ended["exitCode"] == code
        assert ended["reason"] == ("OOMKilled" if code == 137 else "Error" if code else "Completed")
        cluster.advance(5)
        assert cluster.get("pod/a")["status"]["phase"] == phase


def test_each_fault_is_a_row_of_the_registry_and_others_are_refused() -> None:
    assert set(KINDS) <= set(REGISTRY)
    with Cluster(clock="virtual") as cluster:
        from minikube_py.sim.faults import Fault

        with pytest.raises(ClusterError, match="torn_sync: no fault of a whole control plane"):
            cluster._inject(Fault(0, "torn_sync"))
        with pytest.raises(ClusterError, match="for_s is a number of seconds from 0"):
            cluster.slow(1, for_s=-1)
        assert cluster.inputs == ()


def outcomes_of(api_client: Any) -> list[object]:
    """What a program meets whose every request may be refused: reads and deletions are repeated by urllib3."""
    api, found = kubernetes.client.CoreV1Api(api_client), []
    for ask in (
        lambda: api.list_node(),
        lambda: api.create_namespaced_config_map("default", {"metadata": {"name": "a"}}),
        lambda: api.patch_namespaced_config_map("a", "default", {"data": {"a": "b"}}),
        lambda: api.delete_namespaced_config_map("a", "default"),
    ):
        try:
            found.append(ask() and 200)
        except kubernetes.client.ApiException as error:
            found.append(error.status)
    return found


@pytest.mark.parametrize("times", [1, 3, 4, 5, 9])
def test_the_kubernetes_client_waits_as_asked_in_both_times(times: int) -> None:
    found: list[list[object]] = []
    with Cluster(nodes=1) as cluster:
        cluster.throttle_next(times=times)
        found.append(outcomes_of(cluster.client.kubernetes()))
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.throttle_next(times=times)
        cluster.program(lambda clients: found.append(outcomes_of(clients.kubernetes())))
        cluster.advance(30)
    assert found[0] == found[1] and (429 in found[0] or times < 4)
