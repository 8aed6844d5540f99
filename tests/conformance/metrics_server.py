"""`metrics.k8s.io`, and other metrics, by a server of its own: what scripts say that pods use, for upstream by
APIServices and for ours in its transport, which passes the same requests to the same answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minikube_py.client.rest import ResourceRef, RestClient
from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent, put_all
from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.errors import MinikubeError

Json = dict[str, Any]
ROOT = "/apis/metrics.k8s.io/v1beta1"
API_SERVICES = ResourceRef("apiregistration.k8s.io", "v1", "apiservices")
SERVICES = ResourceRef("", "v1", "services")
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
ROOTS = (ROOT, CUSTOM, EXTERNAL)
GROUP_OF_CUSTOM, _CUSTOM_VERSION = CUSTOM.rpartition("/")[0], CUSTOM.removeprefix("/apis/")
_GROUP = {
    "kind": "APIGroup", "apiVersion": "v1", "name": "custom.metrics.k8s.io",
    "preferredVersion": {"groupVersion": _CUSTOM_VERSION, "version": "v1beta2"},
    "versions": [{"groupVersion": _CUSTOM_VERSION, "version": "v1beta2"}],
}  # fmt: skip
_AT = "2026-01-01T00:00:00Z"
_DISCOVERY = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
    "resources": [
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
    ],
}  # fmt: skip


class Used:
    """What the pods of each application use, by the value of their label `app`: items of a PodMetricsList, or an error
    as code and message. `measured`: other metrics, by name: for each pod, as pairs, and of others, one after the
    other."""

    def __init__(self) -> None:
        self.by_app: dict[str, list[Json] | tuple[int, str]] = {}
        self.measured: dict[str, Measured | tuple[int, str]] = {}
        self.asked: Counter[str] = Counter()

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        path = urllib.parse.unquote(path)
        if path in ROOTS:
            version = path.removeprefix("/apis/")
            listed = _DISCOVERY if path == ROOT else {**_DISCOVERY, "groupVersion": version, "resources": []}
            return 200, json.dumps(listed).encode()
        if path == GROUP_OF_CUSTOM:
            return 200, json.dumps(_GROUP).encode()
        if path.startswith((f"{CUSTOM}/namespaces/", f"{EXTERNAL}/namespaces/")):
            return self._measured(path)
        if not path.startswith(f"{ROOT}/namespaces/"):
            return _status(404, "the server could not find the requested resource")
        app = query.get("labelSelector", "").removeprefix("app=")
        self.asked[app] += 1
        found = self.by_app.get(app, [])
        if isinstance(found, tuple):
            return _status(*found)
        listed = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": found}
        return 200, json.dumps(listed).encode()


    def _measured(self, path: str) -> tuple[int, bytes]:
        found = self.measured.get(path.rpartition("/")[2], Measured([], []))
        if isinstance(found, tuple) and not isinstance(found, Measured):
            return _status(*found)
        if path.startswith(EXTERNAL):
            items = [{"metricName": "m", "metricLabels": {}, "timestamp": _AT, "value": each} for each in found.values]
            kind, version = "ExternalMetricValueList", EXTERNAL
        else:
            named = found.pods if "/pods/*/" in path else [("o", value) for value in found.values]
            items = [
                {"describedObject": {"name": name}, "metric": {"name": "m"}, "timestamp": _AT, "value": value}
                for name, value in named
            ]
            kind, version = "MetricValueList", CUSTOM
        listed = {"kind": kind, "apiVersion": version.removeprefix("/apis/"), "metadata": {}, "items": items}
        return 200, json.dumps(listed).encode()


class Measured(NamedTuple):
    pods: list[tuple[str, str]]
    values: list[str]


def _status(code: int, message: str) -> tuple[int, bytes]:
    reason = {404: "NotFound", 403: "Forbidden", 500: "InternalError", 503: "ServiceUnavailable"}[code]
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return code, json.dumps({**said, "reason": reason, "code": code}).encode()


class WithMetrics:
    """A transport whose requests for metrics go elsewhere."""

    def __init__(self, inner: ApiTransport, used: Used) -> None:
        self._inner = inner
        self._used = used

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        if path.startswith(ROOTS) or path == GROUP_OF_CUSTOM:
            return ApiResponse(*self._used.answer(path, params or {}))
        return await self._inner.request(method, path, params, body, content_type)

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        return self._inner.watch(path, params)

    async def put_all(self, writes: Sequence[tuple[str, bytes]]) -> Sequence[ApiResponse | MinikubeError]:
        return await put_all(self._inner, writes)

    async def close(self) -> None:
        await self._inner.close()


@contextlib.asynccontextmanager
async def serving(used: Used, folder: Path) -> AsyncIterator[int]:
    """The port of a server over HTTPS. Connections end with it: clients keep them open."""
    talking: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking[asyncio.current_task()] = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                url = urllib.parse.urlsplit(head.split(" ", 2)[1])
                code, body = used.answer(url.path, dict(urllib.parse.parse_qsl(url.query)))
                said = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(said.encode() + body)
                await writer.drain()
        writer.close()
        del talking[asyncio.current_task()]

    context = ensure_certificates(folder).server_context()
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ending = [task for task in talking if task is not None]
        for writer in talking.values():
            writer.transport.abort()
        await asyncio.gather(*ending)


async def registered(client: RestClient, port: int) -> None:
    """The API server passes requests for metrics to localhost, by a service without endpoints of its own."""
    service = {"metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await client.create(SERVICES, service, "default")
    for root in ROOTS:
        group, version = root.split("/")[2:]
        spec = {
            "group": group, "version": version, "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "default", "name": "metrics", "port": port},
        }  # fmt: skip
        await client.create(API_SERVICES, {"metadata": {"name": f"{version}.{group}"}, "spec": spec})
