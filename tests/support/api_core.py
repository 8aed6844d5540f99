"""An API server on an embedded store for tests: started on a folder, called by method and path."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from virtual_time import LoopClock, LoopSyncs

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Request, Response, parse_query
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import Stream
from minikube_py.env import Clock, SystemDisk
from minikube_py.store.member import StoreMember

Json = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def pod(name: str, node: str = "", cpu: str = "100m", labels: Json | None = None) -> Json:
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def config_map(name: str, labels: Json | None = None, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels or {}}, "data": data}


def node(name: str, cpu: str = "8", memory: str = "32Gi") -> Json:
    resources = {"cpu": cpu, "memory": memory, "pods": "110"}
    status = {"allocatable": resources, "capacity": resources}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


class Events:
    """The events of one watch, one at a time."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._seen: list[tuple[str, Json]] = []

    async def next(self, timeout_s: float = 5.0) -> tuple[str, Json] | None:
        """The next event, None at the end."""
        while not self._seen:
            async with asyncio.timeout(timeout_s):
                batches = await self.stream.next()
            if not batches:
                return None
            self._seen += [(e.type, orjson.loads(e.object)) for batch in batches for e in batch.events]
        return self._seen.pop(0)

    async def take(self, count: int) -> list[tuple[str, Json]]:
        found = [await self.next() for _ in range(count)]
        assert None not in found, f"the watch ended after {found.index(None)} events"
        return [event for event in found if event is not None]

    async def named(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        return [(kind, obj["metadata"].get("name", "")) for kind, obj in await self.take(count)]

    async def rest(self) -> list[tuple[str, Json]]:
        """Everything up to the end of the stream."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    def close(self) -> None:
        self.stream.close()


class Core:
    """A server and its store. `ask` returns status and decoded body; `watch` the events of a watch."""

    def __init__(self, folder: Path, limits: Limits | None = None, clock: Clock | None = None, seed: int = 1) -> None:
        self.clock = clock or LoopClock()
        self.member = StoreMember(SystemDisk(folder / "store"), LoopClock(), random.Random(seed), syncs=LoopSyncs())
        self.tokens: dict[str, User] = {"admin-token": ADMIN}
        self.limits = limits
        self.seed = seed
        self.api: ApiServer

    async def start(self) -> Core:
        await self.member.start()
        self.api = self.server()
        await self.api.start()
        return self

    def server(self) -> ApiServer:
        """Another API server on the same store."""
        rng = random.Random(self.seed + 1)
        return ApiServer(self.member.storage, self.clock, rng, tokens=self.tokens, limits=self.limits)

    async def stop(self) -> None:
        await self.api.stop()
        await self.member.stop()

    async def respond(
        self, method: str, path: str, body: Any = None, accept: str = JSON, content_type: str = JSON, user: User = ADMIN
    ) -> Response:
        path, _, query = path.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        return await self.api.handle(Request(method, path, parse_query(query), data, user, accept, content_type))

    async def ask(
        self, method: str, path: str, body: Any = None, accept: str = JSON, content_type: str = JSON, user: User = ADMIN
    ) -> tuple[int, Json]:
        response = await self.respond(method, path, body, accept, content_type, user)
        data = b"".join(response.pieces) if response.pieces is not None else response.body
        return response.status, orjson.loads(data)

    async def done(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Json:
        """The body of an answer that must be a success."""
        status, answer = await self.ask(method, path, body, content_type=content_type)
        assert status < 300, answer
        return answer

    async def watch(self, path: str, accept: str = JSON) -> Events:
        joiner = "&" if "?" in path else "?"
        response = await self.respond("GET", f"{path}{joiner}watch=true", accept=accept)
        assert response.stream is not None, response.body
        return Events(response.stream)


def names(answer: Mapping[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]
