"""A patch that reports a node as healthy takes a shorter way, with the same outcome as the long one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from api_core import JSON, MERGE, Core, node
from virtual_time import run_virtually

from minikube_py.api.errors import forbidden
from minikube_py.api.kinds.core import NODES
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver.admission import ORDER, Attributes, Chain, Plugin
from minikube_py.apiserver.auth import ADMIN, SHARED_KUBELET
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.rules import AUTHENTICATED, User
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.kubelet.node_status import heartbeat

Json = dict[str, Any]
ALL = "/api/v1/nodes"
TIMES = ("2028-02-29T12:00:00Z", "2026-02-29T12:00:00Z", "2026-11-31T12:00:00Z", "2026-11-23T20:00:00.1Z", "", "now")
KINDS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
OWN = User("system:node:n", ("system:nodes", AUTHENTICATED))


def beat(rng: random.Random, version: str) -> bytes:
    time = f"2026-11-23T20:00:{rng.randrange(60):02}Z" if rng.random() < 0.9 else rng.choice(TIMES)
    if rng.random() < 0.8:
        return heartbeat(time)
    kinds = KINDS if rng.random() < 0.7 else rng.choices((*KINDS, "NetworkUnavailable"), k=rng.randrange(5))
    patch: Json = {"status": {"conditions": [{"type": kind, "lastHeartbeatTime": time} for kind in kinds]}}
    conditions = patch["status"]["conditions"]
    edges = rng.randrange(10)
    if edges == 0:
        patch["metadata"] = {"resourceVersion": rng.choice((version, "1"))}
    elif edges == 1:
        patch["metadata"] = {"annotations": {"lastHeartbeatTime": time}}
    elif edges == 2 and conditions:
        conditions[0]["lastHeartbeatTime"] = "2026-11-23T20:01:00Z"
    elif edges == 3 and conditions:
        conditions[0] |= {"status": rng.choice(("True", "Unknown")), "lastTransitionTime": time}
    elif edges == 4 and conditions:
        conditions[0] = {"$patch": "delete", "type": conditions[0]["type"]}
    elif edges == 5:
        patch["status"]["phase"] = "Running"
    elif edges == 6:
        patch["status"]["unknown"] = {"lastHeartbeatTime": time}
    elif edges == 7:
        patch["status"]["conditions"] = None
    return orjson.dumps(patch)


def asked(rng: random.Random, version: str) -> tuple[str, str, bytes, dict[str, str], str, User, str]:
    """Method, path, body, query, content type, user and user agent of one request."""
    kind = rng.random()
    if kind < 0.01:
        return "DELETE", f"{ALL}/n", b"", {}, JSON, ADMIN, ""
    if kind < 0.08:
        status = orjson.loads(heartbeat(rng.choice(TIMES[:1] * 3 + TIMES)))["status"]
        conditions = [{**each, "status": "True"} for each in status["conditions"]]
        made = {**node("n"), "status": {**node("n")["status"], "conditions": conditions}}
        return "POST", ALL, orjson.dumps(made), {}, JSON, rng.choice((SHARED_KUBELET,) * 4 + (OWN,)), ""
    if kind < 0.1:
        labels = {"metadata": {"labels": {"a": str(rng.randrange(3))}, "annotations": {"lastHeartbeatTime": TIMES[0]}}}
        return "PATCH", f"{ALL}/n", orjson.dumps(labels), {}, MERGE, ADMIN, ""
    query = rng.choice(({},) * 60 + ({"dryRun": "All"}, {"fieldManager": "me"}))
    content_type = rng.choice((STRATEGIC_MERGE_PATCH,) * 60 + (MERGE, JSON))
    user = rng.choice((SHARED_KUBELET,) * 60 + (ADMIN, OWN))
    path = rng.choice((f"{ALL}/n/status",) * 60 + (f"{ALL}/n",))
    return "PATCH", path, beat(rng, version), query, content_type, user, rng.choice(("",) * 40 + ("other",))


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Core]:
    core = await Core(folder).start()
    try:
        yield core
    finally:
        await core.stop()


async def history(folder: Path, seed: int, short: bool) -> tuple[list[Any], int]:
    """What each request of a seed is answered, with the object after it; how many went the short way."""
    rng, found, short_ones = random.Random(seed), [], 0
    async with running(folder) as core:
        beats = core.api.writer.beats
        if not short:
            beats.learn = lambda *_: None  # type: ignore[method-assign]
        write = beats.write

        async def counted(*given: Any) -> Any:
            nonlocal short_ones
            done = await write(*given)
            short_ones += done is not None
            return done

        beats.write = counted  # type: ignore[method-assign]
        version = ""
        for _ in range(80):
            method, path, body, query, content_type, user, agent = asked(rng, version)
            request = Request(method, path, query, body, user, JSON, content_type)
            request.user_agent = agent
            answer = await core.api.handle(request)
            found.append((answer.status, answer.body, answer.headers))
            _, now = await core.ask("GET", f"{ALL}/n")
            version = now["metadata"].get("resourceVersion", "")
            found.append(now)
    return found, short_ones


def test_the_short_way_has_the_outcome_of_the_long_one(tmp_path: Path) -> None:
    short_ones = 0
    for seed in range(30):
        found, these = run_virtually(lambda s=seed: history(tmp_path / f"short-{s}", s, True))
        other, none = run_virtually(lambda s=seed: history(tmp_path / f"long-{s}", s, False))
        assert found == other, seed
        assert not none
        short_ones += these
    assert short_ones > 100


def test_only_nodes_beat_and_no_field_of_them_depends_on_the_time() -> None:
    assert [kind for kind in REGISTRY.kinds if kind.beats] == [NODES]
    assert not (NODES.generation or NODES.converts or NODES.read or NODES.namespaced)


def beats_of(core: Core, user: User = SHARED_KUBELET) -> Any:
    async def one(second: int) -> int:
        body = heartbeat(f"2026-11-23T20:00:{second:02}Z")
        status, _ = await core.ask("PATCH", f"{ALL}/n/status", body, content_type=STRATEGIC_MERGE_PATCH, user=user)
        return status

    return one


def test_who_does_not_play_the_node_any_more_is_refused_on_the_short_way_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as core:
            assert (await core.ask("POST", ALL, node("n"), user=SHARED_KUBELET))[0] == 201
            one = beats_of(core)
            assert [await one(second) for second in range(4)] == [200] * 4
            lease = {"metadata": {"name": "n"}, "spec": {"holderIdentity": "n"}}
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
            assert (await core.ask("POST", path, lease, user=OWN))[0] == 201
            assert await one(5) == 403

    run_virtually(main)


def test_an_admission_plugin_that_comes_sees_the_next_beat(tmp_path: Path) -> None:
    class Refuses(Plugin):
        name = ORDER[0]

        async def validate(self, attributes: Attributes) -> None:
            raise forbidden(NODES, attributes.name, "by this plugin")

    async def main() -> None:
        async with running(tmp_path) as core:
            assert (await core.ask("POST", ALL, node("n")))[0] == 201
            one = beats_of(core, ADMIN)
            assert [await one(second) for second in range(4)] == [200] * 4
            core.api.writer.chain = Chain((Refuses(),))
            assert await one(5) == 403

    run_virtually(main)
