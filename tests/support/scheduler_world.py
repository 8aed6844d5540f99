"""A minimal API server for the scheduler, in memory, and a manual clock."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from scheduler_objects import node_object, pod_object

from minikube_py.client.transport import ApiResponse, WatchEvent


class ManualClock:
    """`advance` wakes sleepers up to then, in order."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.now_s

    async def sleep(self, duration_s: float) -> None:
        self._count += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + duration_s, self._count, done))
        await done

    async def advance(self, duration_s: float) -> None:
        until_s = self.now_s + duration_s
        while self._sleepers and self._sleepers[0][0] <= until_s:
            at_s, _, done = heapq.heappop(self._sleepers)
            self.now_s = max(self.now_s, at_s)
            if not done.done():
                done.set_result(None)
            await settle()
        self.now_s = until_s
        await settle()


async def settle() -> None:
    """Runs everything that can run without time passing."""
    for _ in range(60):
        await asyncio.sleep(0)


def failure(code: int, reason: str, message: str) -> ApiResponse:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return ApiResponse(code, json.dumps(status).encode())


def _parts(path: str) -> list[str]:
    """What follows the group and version."""
    parts = path.split("/")
    return parts[3:] if parts[1] == "api" else parts[4:]


class FakeApi:
    """An ApiTransport. `on_bind(pod name, node)`, if set, may return an answer, raise, or return None."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.listed: list[str] = []
        self.on_list: Callable[[str], Awaitable[None]] | None = None
        """Runs before a kind is listed."""
        self.events: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.bound: list[tuple[str, str]] = []
        self.on_bind: Callable[[str, str], ApiResponse | None] | None = None
        self.on_delete: Callable[[str], ApiResponse | None] | None = None
        self._version = 0
        self._watchers: dict[str, list[asyncio.Queue[list[WatchEvent]]]] = defaultdict(list)

    # --- test actions -----------------------------------------------------------------------------------------------

    def put(self, plural: str, obj: dict[str, Any]) -> None:
        self._version += 1
        key = self._key(obj)
        kind = "MODIFIED" if key in self.objects[plural] else "ADDED"
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[plural][key] = obj
        self._tell(plural, kind, obj)

    def delete(self, plural: str, key: str) -> None:
        self._version += 1
        obj = self.objects[plural].pop(key)
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._tell(plural, "DELETED", obj)

    def node(self, name: str, **more: Any) -> None:
        self.put("nodes", node_object(name, **more))

    def pod(self, name: str, **more: Any) -> None:
        self.put("pods", pod_object(name, **more))

    def where(self, name: str) -> str:
        return str(self.objects["pods"][f"default/{name}"]["spec"].get("nodeName", ""))

    def condition(self, name: str) -> dict[str, Any]:
        conditions = self.objects["pods"][f"default/{name}"].get("status", {}).get("conditions", [{}])
        found: dict[str, Any] = conditions[0]
        return found

    # --- ApiTransport -----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        await asyncio.sleep(0)
        parts = _parts(path)
        document = json.loads(body) if body else {}
        if method == "GET" and len(parts) == 1:
            self.listed.append(parts[0])
            if self.on_list is not None:
                await self.on_list(parts[0])
            items = list(self.objects[parts[0]].values())
            listed = {"metadata": {"resourceVersion": str(self._version)}, "items": items}
            return ApiResponse(200, json.dumps(listed).encode())
        if parts[-1] == "events":
            self.events.append(document)
            return ApiResponse(201, body or b"")
        if method == "PUT":
            return self._update(parts, document)
        key = f"{parts[1]}/{parts[3]}"
        if method == "PATCH" and parts[2] == "resourceclaims":
            return self._release(key, {each["uid"] for each in document["status"]["reservedFor"]})
        pod = self.objects["pods"].get(key)
        if method == "POST" and parts[-1] == "binding":
            return self._bind(key, pod, document)
        if pod is None:
            return failure(404, "NotFound", f'pods "{parts[3]}" not found')
        if method == "PATCH":
            self.patches.append((parts[3], document))
            self._patch(pod, document["status"])
        if method == "DELETE":
            return self._delete(key, pod)
        return ApiResponse(200, json.dumps(self.objects["pods"][key]).encode())

    def _release(self, key: str, uids: set[str]) -> ApiResponse:
        """A claim is no longer reserved for these pods."""
        if key not in self.objects["resourceclaims"]:
            return failure(404, "NotFound", f'resourceclaims "{key}" not found')
        claim = json.loads(json.dumps(self.objects["resourceclaims"][key]))
        claim["status"]["reservedFor"] = [each for each in claim["status"]["reservedFor"] if each["uid"] not in uids]
        self.put("resourceclaims", claim)
        return ApiResponse(200, json.dumps(claim).encode())

    def _patch(self, pod: dict[str, Any], written: dict[str, Any]) -> None:
        changed = json.loads(json.dumps(pod))
        status = changed.setdefault("status", {})
        conditions = {each["type"]: each for each in (*status.get("conditions", ()), *written.get("conditions", ()))}
        if conditions:
            status["conditions"] = list(conditions.values())
        if "nominatedNodeName" in written:
            status["nominatedNodeName"] = written["nominatedNodeName"] or ""
        self.put("pods", changed)

    def _delete(self, key: str, pod: dict[str, Any]) -> ApiResponse:
        """Marks the pod, as for one that a kubelet ends; `delete` removes it."""
        name = key.split("/")[1]
        if self.on_delete is not None and (answer := self.on_delete(name)) is not None:
            return answer
        changed = json.loads(json.dumps(pod))
        changed["metadata"]["deletionTimestamp"] = "2024-01-01T00:01:00Z"
        self.put("pods", changed)
        return ApiResponse(200, b"{}")

    def _update(self, parts: list[str], document: dict[str, Any]) -> ApiResponse:
        *_, plural, name = parts[:-1] if parts[-1] == "status" else parts
        known = self.objects[plural].get(self._key(document))
        if known is None:
            return failure(404, "NotFound", f'{plural} "{name}" not found')
        if known["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            return failure(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}"')
        self.put(plural, document)
        return ApiResponse(200, json.dumps(document).encode())

    def _bind(self, key: str, pod: dict[str, Any] | None, document: dict[str, Any]) -> ApiResponse:
        name, node = key.split("/")[1], document["target"]["name"]
        if self.on_bind is not None and (answer := self.on_bind(name, node)) is not None:
            return answer
        if pod is None:
            return failure(404, "NotFound", f'pods "{name}" not found')
        if pod["spec"].get("nodeName"):
            return failure(409, "Conflict", f"pod {name} is already assigned to node")
        self.bind(key, node)
        return ApiResponse(201, b"{}")

    def bind(self, key: str, node: str) -> None:
        changed = json.loads(json.dumps(self.objects["pods"][key]))
        changed["spec"]["nodeName"] = node
        changed.get("status", {}).pop("nominatedNodeName", None)
        self.bound.append((key.split("/")[1], node))
        self.put("pods", changed)

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        plural = _parts(path)[0]
        queue: asyncio.Queue[list[WatchEvent]] = asyncio.Queue()
        self._watchers[plural].append(queue)
        while True:
            yield await queue.get()

    async def close(self) -> None:
        return

    @staticmethod
    def _key(obj: dict[str, Any]) -> str:
        metadata = obj["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])

    def _tell(self, plural: str, kind: str, obj: dict[str, Any]) -> None:
        for queue in self._watchers[plural]:
            queue.put_nowait([WatchEvent(kind, json.dumps(obj).encode())])
