"""`nodes/proxy`: a simulated kubelet's responses to proxied requests, from this server's data.

A node that is not ready does not respond. Source: kubernetes `pkg/registry/core/node` (ResourceLocation),
`pkg/kubelet/server`, `k8s.io/kubelet/pkg/apis/stats/v1alpha1`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import orjson

from minikube_py.api.errors import Json, StatusError, bad_request, not_found, service_unavailable
from minikube_py.api.kinds.core import NODES, PODS
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.forms import object_bytes
from minikube_py.apiserver.messages import TEXT, Request, Response
from minikube_py.apiserver.nonresource import METRICS_TEXT
from minikube_py.apiserver.proxying import admitted, redirected, target_of
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.usage_metrics import source_of
from minikube_py.apiserver.watch_cache import Entry
from minikube_py.client.transport import JSON
from minikube_py.fields.usage import NOTHING, Usage, containers_of

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

_PORT: Final = "10250"
_SLICE: Final = 200
"""Pods processed per event loop turn."""


async def answer(server: ApiServer, asked: Route, request: Request) -> Response:
    """Raises: StatusError 400, 404, 500, 503."""
    rest = await admitted(server.writer, asked, request)
    target = target_of(asked.name, "node")
    await server.lister.wait_fresh()
    entry = server.cache.of(NODES).entries.get(NODES.key("", target.name))
    if entry is None:
        raise not_found(NODES, target.name)
    node = entry.decode()
    address = _address(node)
    if not rest:
        return redirected(request)
    _check_answers(node, address, target.port or _PORT)
    page = _PAGES.get(rest.rstrip("/"))
    if page is None:
        return Response(404, b"404 page not found\n", TEXT)
    if request.method != "GET":
        return Response(405, b"405: Method Not Allowed", TEXT)
    return await page(server, target.name)


def _address(node: Json) -> str:
    """Raises: StatusError 400, 500."""
    known = (node.get("status") or {}).get("addresses") or ()
    by_type = {each.get("type"): each.get("address") or "" for each in known}
    address = by_type.get("InternalIP") or by_type.get("ExternalIP") or ""
    if not address:
        raise StatusError(500, "", "no preferred addresses found; known addresses: []")
    ip = ip_address(address)
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        raise bad_request("address not allowed")
    return address


def _check_answers(node: Json, address: str, port: str) -> None:
    """Raises: StatusError 503."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    if port != _PORT or not ready:
        where = f"dial tcp {address}:{port}: connect: connection refused"
        raise service_unavailable(f"error trying to reach service: {where}")


def _pods(server: ApiServer, node: str) -> list[Entry]:
    return server.cache.of(PODS).on_node(node)


async def _healthz(server: ApiServer, node: str) -> Response:
    return Response(200, b"ok", TEXT)


async def _pod_list(server: ApiServer, node: str) -> Response:
    items = [object_bytes(PODS, entry.value, entry.revision) for entry in _pods(server, node)]
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[%b]}' % b",".join(items)
    return Response(200, body, JSON)


async def _metrics(server: ApiServer, node: str) -> Response:
    """The kubelet metrics that are known here."""
    pods = containers = 0
    for at, entry in enumerate(_pods(server, node), 1):
        status = entry.decode().get("status") or {}
        pods += status.get("phase") == "Running"
        containers += sum("running" in (each.get("state") or {}) for each in status.get("containerStatuses") or ())
        if at % _SLICE == 0:
            await asyncio.sleep(0)
    running = '{container_state="running"}'
    told = (
        ("kubelet_node_name", "The node's name. The count is always 1.", f'{{node="{node}"}} 1'),
        ("kubelet_running_containers", "Number of containers currently running", f'{running} {containers}'),
        ("kubelet_running_pods", "Number of pods that have a running pod sandbox", f" {pods}"),
    )  # fmt: skip
    text = "".join(f"# HELP {name} {what}\n# TYPE {name} gauge\n{name}{value}\n" for name, what, value in told)
    return Response(200, text.encode(), METRICS_TEXT)


async def _summary(server: ApiServer, node: str) -> Response:
    source, now_s = source_of(server), server.clock.wall_s()
    total, pods = NOTHING, []
    for at, entry in enumerate(_pods(server, node), 1):
        pod = entry.decode()
        if (pod.get("status") or {}).get("phase") != "Running":
            continue
        used = {each["name"]: source.usage(pod, now_s, each["name"]) for each in containers_of(pod)}
        whole = NOTHING
        for each in used.values():
            whole = whole.plus(each)
        total = total.plus(whole)
        pods.append(_pod_stats(pod, used, whole, now_s))
        if at % _SLICE == 0:
            await asyncio.sleep(0)
    told = {"node": {"nodeName": node, **_stats(total, now_s)}, "pods": pods}
    return Response(200, orjson.dumps(told), JSON)


def _pod_stats(pod: Json, used: dict[str, Usage], whole: Usage, now_s: float) -> Json:
    metadata, started = pod["metadata"], (pod.get("status") or {}).get("startTime")
    since = {"startTime": started} if started else {}
    containers = [{"name": name, **since, **_stats(each, now_s)} for name, each in used.items()]
    reference = {name: metadata.get(name, "") for name in ("name", "namespace", "uid")}
    return {"podRef": reference, **since, "containers": containers, **_stats(whole, now_s)}


def _stats(used: Usage, now_s: float) -> Json:
    time = timestamp(now_s)
    memory = {"time": time, "workingSetBytes": used.memory_bytes}
    return {"cpu": {"time": time, "usageNanoCores": used.cpu_nanos}, "memory": memory}


_PAGES: Final[dict[str, Callable[[ApiServer, str], Awaitable[Response]]]] = {
    "/healthz": _healthz,
    "/metrics": _metrics,
    "/pods": _pod_list,
    "/stats/summary": _summary,
}
