"""The real kube-scheduler and ours on one API server, each with extenders that one server plays: the same requests,
nodes, conditions, messages and events. Each case is run for one scheduler and then for the other, on the same cluster.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import needs
import pytest
from aiohttp import web
from ports import free_ports
from test_preemption_vs_original import EVENTS, PODS, Json, items, patched, until
from test_real_programs import running

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.outside import HttpOutside
from minikube_py.client.rest import RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import SchedulerConfig, parse
from minikube_py.scheduler.configuration.messages import API_VERSION, KIND
from minikube_py.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(300)]

THEIRS, OURS = "theirs", "ours"
Handler = Callable[[Json], Any]
FILTER, SCORE = {"filterVerb": "filter"}, {"prioritizeVerb": "prioritize", "weight": 2}
CACHED = {"nodeCacheCapable": True}
EXTENDERS: dict[str, Json] = {
    "soft": FILTER | SCORE | CACHED | {"ignorable": True},
    "names": FILTER | SCORE | CACHED,
    "whole": FILTER | SCORE,
    "second": FILTER | CACHED,
    "slow": FILTER | CACHED | {"httpTimeout": "300ms"},
    "closed": FILTER | CACHED,
    "binds": {"bindVerb": "bind"},
    "victims": {"preemptVerb": "preempt"} | CACHED,
    "bodies": {"preemptVerb": "preempt"},
}
"""By name; each is asked about pods that ask for `example.com/NAME`."""
NODES = {"n1": ("4", "8Gi"), "n2": ("4", "6Gi"), "n3": ("2", "16Gi"), "tiny": ("500m", "1Gi")}
RUNNING = {"on-n1": ("n1", "2500m"), "on-n2": ("n2", "1"), "on-n3": ("n3", "100m")}


def configuration(side: str, port: int, closed: int) -> Json:
    extenders = [
        {
            "urlPrefix": f"http://127.0.0.1:{closed if name == 'closed' else port}/{side}/{name}",
            "managedResources": [{"name": f"example.com/{name}", "ignoredByScheduler": True}],
            **each,
        }
        for name, each in EXTENDERS.items()
    ]
    profiles = [{"schedulerName": side}]
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles, "extenders": extenders}


class Case(NamedTuple):
    """`asks`: the extenders; `answers`: by `name/verb`, from the request; bytes are sent as they are, a number is a
    status, None is no answer at all."""

    name: str
    asks: tuple[str, ...]
    answers: dict[str, Handler]
    cpu: str = "1"
    priority: int = 0
    evicts: bool = False


# --- what the extenders answer --------------------------------------------------------------------------------------


def names(request: Json) -> list[str]:
    return request["NodeNames"] or [node["metadata"]["name"] for node in (request["Nodes"] or {}).get("items", ())]


def say(answer: Any) -> Handler:
    return lambda _: answer


def only(*wanted: str) -> Handler:
    return lambda request: {
        "NodeNames": [name for name in names(request) if name in wanted],
        "FailedNodes": {name: "too far" for name in names(request) if name not in wanted},
    }


def every(request: Json) -> Json:
    return {"Nodes": request["Nodes"], "NodeNames": request["NodeNames"]}


def scores(**given: int) -> Handler:
    return lambda _: [{"Host": name, "Score": score} for name, score in given.items()]


def victims_on(node: str) -> Handler:
    def handle(request: Json) -> Json:
        whole = request["NodeNameToVictims"] or {}
        meta = {n: {"Pods": [{"UID": p["metadata"]["uid"]} for p in v["Pods"]]} for n, v in whole.items()}
        return {"NodeNameToMetaVictims": {node: (request["NodeNameToMetaVictims"] or meta)[node]}}

    return handle


def failing(name: str, answer: Any, verb: str = "filter") -> Case:
    return Case(f"{name} {verb} {str(answer)[:40]}", (name,), {f"{name}/{verb}": say(answer)})


NONE: Handler = say([])
CASES = [
    Case("one node left", ("names",), {"names/filter": only("n3"), "names/prioritize": NONE}),
    Case("scores decide", ("names",), {"names/filter": every, "names/prioritize": scores(n1=9, n2=1)}),
    Case("scores in balance", ("names",), {"names/filter": every, "names/prioritize": scores(n1=1, n9=10)}),
    Case("whole nodes are empty", ("whole",), {"whole/filter": every, "whole/prioritize": NONE}, "100m"),
    Case("names are not", ("names",), {"names/filter": every, "names/prioritize": NONE}, "100m"),
    Case(
        "one after another",
        ("names", "second"),
        {"names/filter": only("n1", "n2"), "second/filter": only("n2", "n3"), "names/prioritize": NONE},
    ),
    Case("none is left", ("names", "second"), {"names/filter": only("n1"), "second/filter": only("n2")}),
    Case(
        "beyond help",
        ("names",),
        {
            "names/filter": say(
                {"FailedAndUnresolvableNodes": {"n1": "gone"}, "FailedNodes": {"n1": "far", "n2": "far"}}
            )
        },
    ),
    Case("a node of nobody", ("names",), {"names/filter": say({"NodeNames": [], "FailedNodes": {"x": "far"}})}),
    Case("a filtered one again", ("names",), {"names/filter": say({"FailedNodes": {"tiny": "far", "n1": "far"}})}),
    failing("names", {"Error": "the device is busy"}),
    failing("names", {"NodeNames": ["n1", "n9"]}),
    failing("names", 503),
    failing("names", b""),
    failing("names", b"<html>"),
    failing("names", b'{"NodeNames":["n1"'),
    failing("names", b'{"NodeNames":["n1"}'),
    failing("names", b'{"NodeNames" ["n1"]}'),
    failing("names", b'{"NodeNames":["n1"] "Error":""}'),
    failing("names", b"[]"),
    failing("names", {"NodeNames": "n1"}),
    failing("names", {"NodeNames": [1]}),
    failing("names", {"FailedNodes": {"n1": 5}}),
    failing("names", {"Error": 1.5}),
    failing("names", b"null"),
    failing("names", {}),
    failing("names", b'{"nodenames":["n2"]} and more'),
    failing("names", b'{"NODENAMES":["n1"],"nodeNames":["n2"]}'),
    failing("whole", {"Nodes": {"items": [{"metadata": {"name": "n2"}}]}}),
    failing("slow", None),
    Case("connection refused", ("closed",), {}),
    Case("ignored", ("soft",), {"soft/filter": say(500), "soft/prioritize": say(500)}),
    Case("binds", ("binds",), {}),
    failing("binds", {"Error": "not that one"}, "bind"),
    failing("binds", 500, "bind"),
    Case("victims", ("victims",), {"victims/preempt": victims_on("n1")}, "3500m", 10, True),
    Case("other victims", ("victims",), {"victims/preempt": victims_on("n2")}, "3500m", 10, True),
    Case("bodies of victims", ("bodies",), {"bodies/preempt": victims_on("n2")}, "3500m", 10, True),
    Case("no victims", ("victims",), {"victims/preempt": say({})}, "3500m", 10),
    Case("strange victims", ("victims",), {"victims/preempt": say({"NodeNameToMetaVictims": {"n1": {}}})}, "3500m", 10),
    Case(
        "unknown victims",
        ("victims",),
        {"victims/preempt": say({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "x"}]}}})},
        "3500m",
        10,
    ),
]


# --- the two schedulers and the server of their extenders -----------------------------------------------------------


class Desk:
    """The extenders of both sides. `bind` binds as an extender does."""

    def __init__(self, client: RestClient) -> None:
        self.case = CASES[0]
        self.requests: list[tuple[str, str, Json]] = []
        self._client = client

    async def handle(self, request: web.Request) -> web.StreamResponse:
        side, name, verb = request.path.strip("/").split("/")
        body = json.loads(await request.read())
        self.requests.append((side, f"{name}/{verb}", body))
        assert request.headers["Content-Type"] == "application/json"
        handler = self.case.answers.get(f"{name}/{verb}")
        if handler is None:
            assert verb == "bind"
            await self._bind(body)
            answer: Any = {}
        else:
            answer = handler(body)
        if answer is None:
            # Until the caller gives up.
            await asyncio.Event().wait()
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.Response(body=answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    async def _bind(self, body: Json) -> None:
        metadata = {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": body["Node"]}}
        await self._client.request("POST", f"{PODS}/{body['PodName']}/binding", None, binding)

    def first_attempt(self, side: str) -> list[tuple[str, Json]]:
        """Until the pod is tried again."""
        found: dict[str, Json] = {}
        for by, path, body in self.requests:
            if by == side:
                if path in found:
                    break
                found[path] = body
        return sorted(found.items())


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with needs.original() as ready:
        yield Path(ready["kubeconfig"])


def written(folder: Path, kubeconfig: Path, config: Json) -> str:
    full = {**config, "leaderElection": {"leaderElect": False}, "clientConnection": {"kubeconfig": str(kubeconfig)}}
    (folder / "config.json").write_text(json.dumps(full))
    return f"--config={folder / 'config.json'}"


@asynccontextmanager
async def both(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[RestClient, Desk]]:
    transports = [HttpTransport(load_kubeconfig(kubeconfig)) for _ in range(2)]
    client = RestClient(transports[0])
    desk = Desk(client)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{path:.*}", desk.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port, closed = runner.addresses[0][1], free_ports(1)[0]
    chosen: SchedulerConfig = parse(configuration(OURS, port, closed))
    scheduler = Scheduler(transports[1], SystemClock(), random.Random(1), chosen, HttpOutside())
    try:
        config = written(folder, kubeconfig, configuration(THEIRS, port, closed))
        with running("kube-scheduler", str(kubeconfig), folder, config):
            await set_up(client)
            await scheduler.start()
            yield client, desk
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        await runner.cleanup()
        for transport in transports:
            await transport.close()


async def set_up(client: RestClient) -> None:
    made: Json = {"metadata": {"name": "p10"}, "value": 10}
    await client.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", None, made)
    for name, (cpu, memory) in NODES.items():
        amounts = {"cpu": cpu, "memory": memory, "pods": "20"}
        await client.request("POST", "/api/v1/nodes", None, {"metadata": {"name": name}})
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await patched(client, f"/api/v1/nodes/{name}/status", status)
        await patched(client, f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    await run_pods(client)


def pod(name: str, cpu: str, asks: tuple[str, ...] = (), **spec: Any) -> Json:
    extended = {f"example.com/{each}": "1" for each in asks}
    resources = {"requests": {"cpu": cpu, **extended}, "limits": extended}
    containers = [{"name": "c", "image": "x", "resources": resources}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **spec},
    }


async def run_pods(client: RestClient) -> None:
    there = {
        each["metadata"]["name"] for each in await items(client, PODS) if "deletionTimestamp" not in each["metadata"]
    }
    for name, (node, cpu) in RUNNING.items():
        if name not in there:
            await client.request("POST", PODS, None, pod(name, cpu, nodeName=node))


async def outcome(client: RestClient, desk: Desk, case: Case, side: str) -> Json:
    desk.case = case
    desk.requests.clear()
    more = {"priorityClassName": f"p{case.priority}"} if case.priority else {}
    made = await client.request("POST", PODS, None, pod("waiting", case.cpu, case.asks, schedulerName=side, **more))
    uid = made["metadata"]["uid"]

    async def done() -> Json | None:
        events = [each for each in await items(client, EVENTS) if each["involvedObject"].get("uid") == uid]
        events.sort(key=lambda event: event["metadata"]["name"])
        first = next((each for each in events if each["reason"] in ("Scheduled", "FailedScheduling")), None)
        pods = {each["metadata"]["name"]: each for each in await items(client, PODS)}
        status, spec = pods["waiting"]["status"], pods["waiting"]["spec"]
        conditions = [each for each in status.get("conditions", ()) if each["type"] == "PodScheduled"]
        if first is None or not conditions:
            return None
        if first["reason"] == "Scheduled" and "nodeName" not in spec:
            return None
        gone = sorted({*RUNNING} - {*pods})
        if case.evicts != bool(gone):
            return None
        return {
            "event": [first["type"], first["reason"], first["action"], first["message"].replace(side, "SIDE")],
            # Once its victims have gone, it is placed.
            "node": "" if case.evicts else spec.get("nodeName", ""),
            "why": [] if case.evicts else [conditions[0]["status"], conditions[0].get("reason", "")],
            "gone": gone,
            "requests": [normal(path, body, side) for path, body in desk.first_attempt(side)],
        }

    try:
        return dict(await until(done))
    finally:
        await client.request("DELETE", f"{PODS}/waiting", {"gracePeriodSeconds": "0"})
        await until(lambda: rests(client))
        await run_pods(client)
        await client.request("DELETE", EVENTS)


async def rests(client: RestClient) -> bool:
    return "waiting" not in {each["metadata"]["name"] for each in await items(client, PODS)}


def normal(path: str, body: Json, side: str) -> Any:
    """Without what no two pods have in common; lists of nodes in the order of their names."""
    body = json.loads(json.dumps(body).replace(f'"{side}"', '"SIDE"'))
    if "PodUID" in body:
        return [path, {**body, "PodUID": bool(body["PodUID"])}]
    metadata = body["Pod"]["metadata"]
    assert metadata.pop("uid") and metadata.pop("resourceVersion") and metadata.pop("creationTimestamp")
    if body.get("NodeNames"):
        body["NodeNames"].sort()
    if body.get("Nodes"):
        body["Nodes"]["items"].sort(key=lambda node: node["metadata"]["name"])
    for found in (body.get("NodeNameToMetaVictims") or {}).values():
        for each in found["Pods"]:
            each["UID"] = bool(each["UID"])
    for found in (body.get("NodeNameToVictims") or {}).values():
        for each in found["Pods"]:
            for name in ("uid", "resourceVersion", "creationTimestamp"):
                assert each["metadata"].pop(name)
    return [path, body]


async def test_the_same_requests_places_and_words(kubeconfig: Path, tmp_path: Path) -> None:
    differing = []
    async with both(kubeconfig, tmp_path) as (client, desk):
        for case in CASES:
            theirs = await outcome(client, desk, case, THEIRS)
            ours = await outcome(client, desk, case, OURS)
            if theirs != ours:
                differing.append((case.name, theirs, ours))
    assert not differing, json.dumps(differing, indent=1)
