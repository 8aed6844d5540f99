"""Pods that live by KWOK's stages, and what is seen of their statuses on the way: for the real KWOK and for ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from ssl import _create_unverified_context
from typing import Any, NamedTuple

import patience
from asking import Ask, Server

from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.stages.files import Stages

Json = dict[str, Any]
NODE = "node-0"
NODE_OBJECT = {"metadata": {"name": NODE}, "spec": {"podCIDR": "10.64.0.0/24", "podCIDRs": ["10.64.0.0/24"]}}
PODS = "/api/v1/namespaces/default/pods"
_NODES = ("node/fast", "node/heartbeat-with-lease")
SETS = {
    "fast": ("pod/fast", *_NODES),
    "general": ("pod/general", *_NODES),
    "chaos": ("pod/general", "pod/chaos", *_NODES),
}
_STAGES = ("pod-create", "pod-ready", "pod-complete", "pod-delete", "pod-init-container-running",
           "pod-init-container-completed", "pod-container-running-failed",
           "pod-init-container-running-failed")  # fmt: skip
HOLD = "example.com/hold"


class Scene(NamedTuple):
    """`ends`: the phase in which the pod comes to rest."""

    pod: Json
    ends: str


def scenes(name: str, seed: int, count: int) -> list[Scene]:
    rng = random.Random(f"{name} {seed}")
    return [_scene(name, f"p{at}", rng) for at in range(count)]


def _scene(name: str, pod_name: str, rng: random.Random) -> Scene:
    """Where several stages could come next, weights leave one: chance is not compared."""
    annotations: Json = {}
    for stage in _STAGES:
        prefix = f"{stage}.stage.kwok.x-k8s.io"
        annotations |= {f"{prefix}/delay": rng.choice(("20ms", "0s", "0.05s")), f"{prefix}/jitter-delay": "50ms"}
    spec: Json = {"nodeName": NODE, "containers": [_container(each, rng) for each in rng.choice(("c", "cd", "cde"))]}
    inits = [_container(each, rng) for each in rng.choice(("", "", "i", "ij"))]
    for each in inits:
        if name == "fast" and rng.random() < 0.5:
            each["restartPolicy"] = "Always"
    if inits:
        spec["initContainers"] = inits
    spec["terminationGracePeriodSeconds"] = 1
    spec["restartPolicy"] = rng.choice(("Always", "OnFailure", "Never"))
    if rng.random() < 0.3:
        spec["hostNetwork"] = True
    if rng.random() < 0.3:
        spec["readinessGates"] = [{"conditionType": "example.com/up"}]
    metadata: Json = {"name": pod_name, "namespace": "default", "annotations": annotations, "labels": {}}
    ends = "Running"
    kind = rng.randrange(5)
    if kind == 0:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "0f8fad5b-d9cb-469f-a165-70867728950e"}
        metadata["ownerReferences"] = [owner]
        ends = "Succeeded"
    elif kind < 4 and name == "chaos":
        ends = "Failed"
        stage = "pod-init-container-running-failed" if inits and kind == 1 else "pod-container-running-failed"
        metadata["labels"][f"{stage}.stage.kwok.x-k8s.io"] = "true"
        if stage == "pod-init-container-running-failed":
            annotations["pod-create.stage.kwok.x-k8s.io/weight"] = "0"
        _fault(annotations, stage, rng)
    if rng.random() < 0.3:
        metadata["finalizers"] = [HOLD]
    return Scene({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, ends)


def _container(name: str, rng: random.Random) -> Json:
    return {"name": name, "image": rng.choice(("nginx", "registry.example/a:1"))}


def _fault(annotations: Json, stage: str, rng: random.Random) -> None:
    told = {"reason": rng.choice(("OOMKilled", "ImagePullBackOff", "a: b")), "message": "it said so",
            "exit-code": rng.choice(("1", "137")), "container-name": rng.choice(("c", "i", ""))}  # fmt: skip
    del told["message" if told["reason"] == "a: b" else "container-name"]
    # KWOK writes the reason as it is: what is no plain scalar would be no status.
    if told["reason"] == "a: b":
        told["reason"] = '"a: b"'
    for key, value in told.items():
        if rng.random() < 0.7:
            annotations[f"{stage}.stage.kwok.x-k8s.io/{key}"] = value


class Seen:
    """The statuses of all pods, in order, as a watch tells them until the server ends; times and addresses apart."""

    def __init__(self, url: str, token: str) -> None:
        request = urllib.request.Request(f"{url}{PODS}?watch=true", headers={"Authorization": f"Bearer {token}"})
        self._stream = urllib.request.urlopen(request, context=_create_unverified_context())
        self.statuses: dict[str, list[Any]] = {}
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with contextlib.suppress(ValueError, OSError), self._stream:
            for line in self._stream:
                event = json.loads(line)
                name, told = event["object"]["metadata"]["name"], normalized(event["object"].get("status") or {})
                if event["type"] == "DELETED":
                    told = "deleted"
                found = self.statuses.setdefault(name, [])
                if not found or found[-1] != told:
                    found.append(told)

    def gone(self, name: str) -> bool:
        return self.statuses.get(name, [None])[-1] == "deleted"


def normalized(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: normalized(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [normalized(each, key) for each in value]
    if key.endswith(("Time", "At")) and value is not None:
        return "TIME"
    return "IP" if key in ("hostIP", "podIP", "ip") else value


def played(server: Server, url: str, drawn: Sequence[Scene], start: Callable[[], Any]) -> dict[str, list[Any]]:
    """All statuses of the pods: made, played until they rest, deleted, and let go by who held them."""
    assert server.ask(Ask("node", "POST", "/api/v1/nodes", NODE_OBJECT)).code == 201
    seen = Seen(url, server.token)
    with start():
        for pod, _ in drawn:
            answer = server.ask(Ask("pod", "POST", PODS, pod))
            assert answer.code == 201, answer
        ends = {pod["metadata"]["name"]: end for pod, end in drawn}
        patience.eventually(lambda: _phases(server) == ends, lambda: f"all pods rest: {_unlike(_phases(server), ends)}")
        for name in ends:
            assert server.ask(Ask("delete", "DELETE", f"{PODS}/{name}")).code < 300
        held = [pod["metadata"]["name"] for pod, _ in drawn if "finalizers" in pod["metadata"]]
        free = [name for name in ends if name not in held]
        patience.eventually(lambda: all(map(seen.gone, free)), "those that nobody holds are gone")
        for name in held:
            patch = {"metadata": {"finalizers": None}}
            ask = Ask("let go", "PATCH", f"{PODS}/{name}", patch, "application/merge-patch+json")
            assert server.ask(ask).code == 200
        patience.eventually(lambda: all(map(seen.gone, held)), "those that were held are gone")
        return seen.statuses


def _unlike(found: dict[str, str], ends: dict[str, str]) -> str:
    wrong = (name for name, end in ends.items() if found.get(name) != end)
    return ", ".join(f"{name} is {found.get(name)!r}, not {ends[name]!r}" for name in wrong)


def _phases(server: Server) -> dict[str, str]:
    items = json.loads(server.ask(Ask("list", "GET", PODS)).body)["items"]
    return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in items}


def stage_files(folder: Path, name: str) -> list[Path]:
    folders = [folder / each for each in SETS[name]]
    return [file for each in folders for file in sorted(each.glob("*.yaml")) if file.name != "kustomization.yaml"]


def played_virtually(drawn: Sequence[Scene], stages: Stages) -> dict[str, list[Any]]:
    """As `played`, by ours in virtual time: no scheduler and no controllers, as there."""
    config = VirtualConfig(components=("kubelet",), kubelet=KubeletConfig(stages=stages))
    seen = _Told()
    with VirtualCluster("stages", config=config) as cluster:
        cluster.run(lambda: _play_virtually(cluster, drawn, seen))
    return seen.statuses


class _Told:
    def __init__(self) -> None:
        self.statuses: dict[str, list[Any]] = {}

    async def follow(self, cluster: VirtualCluster) -> None:
        async for events in cluster.transport().watch(PODS):
            for event in events:
                obj = json.loads(event.object)
                told: Any = normalized(obj.get("status") or {})
                if event.type == "DELETED":
                    told = "deleted"
                found = self.statuses.setdefault(obj["metadata"]["name"], [])
                if not found or found[-1] != told:
                    found.append(told)


async def _play_virtually(cluster: VirtualCluster, drawn: Sequence[Scene], seen: _Told) -> None:
    transport = cluster.transport()

    async def ask(method: str, path: str, body: Any = None, kind: str = "application/json") -> None:
        answer = await transport.request(method, path, None, None if body is None else json.dumps(body).encode(), kind)
        assert answer.status < 300, answer

    await ask("POST", "/api/v1/nodes", NODE_OBJECT)
    following = asyncio.ensure_future(seen.follow(cluster))
    await cluster.clock.sleep(5)
    for pod, _ in drawn:
        await ask("POST", PODS, pod)
    await cluster.clock.sleep(30)
    names = [pod["metadata"]["name"] for pod, _ in drawn]
    for name in names:
        await ask("DELETE", f"{PODS}/{name}")
    await cluster.clock.sleep(30)
    for pod, _ in drawn:
        if "finalizers" in pod["metadata"]:
            path = f"{PODS}/{pod['metadata']['name']}"
            await ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    await cluster.clock.sleep(30)
    following.cancel()
