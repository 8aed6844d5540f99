"""`pods/proxy` and `services/proxy`: an HTTP request to a pod's port, answered by a simulated container.

Source: `pkg/registry/core/pod/strategy.go` and `pkg/registry/core/service/storage` (ResourceLocation),
`apimachinery/pkg/util/proxy/upgradeaware.go`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

import orjson

from minikube_py.api.errors import Json, bad_request, go_quote, not_found, service_unavailable
from minikube_py.api.kinds.core import PODS
from minikube_py.api.kinds.core.endpoints import ENDPOINTS
from minikube_py.api.kinds.core.services import SERVICES
from minikube_py.apiserver.messages import TEXT, Request, Response, decode_path
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.writes import Writer
from minikube_py.containers.runtime import NotThere
from minikube_py.containers.serving import page
from minikube_py.env import Rng
from minikube_py.fields.digits import whole_number

_SCHEMES: Final = ("", "http", "https")
_DEFAULT_PORT: Final = "80"
_UP_TO_PROXY: Final = {True: re.compile("(?:/+[^/]+){7}"), False: re.compile("(?:/+[^/]+){5}")}
"""A path up to the segment `proxy`, by whether the kind is namespaced: names may be `proxy`, too."""


class Target(NamedTuple):
    """`port` is a number or a name, or ""."""

    scheme: str
    name: str
    port: str


def target_of(text: str, what: str) -> Target:
    """`name`, `name:port` or `scheme:name:port`. Raises: StatusError 400."""
    parts = text.split(":")
    found = {1: ("", text, ""), 2: ("", *parts), 3: tuple(parts)}.get(len(parts), ("", "", ""))
    target = Target(*found)
    if not target.name or target.scheme not in _SCHEMES:
        raise bad_request(f"invalid {what} request {go_quote(text)}")
    return target


def redirected(request: Request) -> Response:
    """Redirects an empty path to `/`."""
    query = f"?{request.head.query}" if request.head is not None and request.head.query else ""
    return Response(301, b"", TEXT, {"Location": f"{request.path}/{query}"})


async def admitted(writer: Writer, route: Route, request: Request) -> str:
    """The path to ask for, "" for none, once admission has let the connection pass, perhaps to another path.
    Raises: StatusError."""
    match = _UP_TO_PROXY[route.resource.namespaced].match(request.path)
    rest = request.path[match.end() :] if match is not None else ""
    passage = writer.enter(route, request, "CONNECT")
    if passage is not None and route.subresource is not None:
        options: Json = {"kind": route.subresource.kind, "apiVersion": "v1"}
        path = decode_path(rest).strip("/")
        path = f"/{path}" if path else ""
        if request.path.endswith("/") and not path.endswith("/"):
            path += "/"
        if path:
            options["path"] = path
        await passage.allow(None, options)
        if (left := options.get("path") or "") != path:
            return "/" + quote(left.lstrip("/"))
    return rest


class Proxying:
    def __init__(self, store: ObjectStore, writer: Writer, rng: Rng) -> None:
        self._store = store
        self._writer = writer
        self._rng = rng

    async def proxy(self, route: Route, request: Request) -> Response:
        """Raises: StatusError 400, 404, 503; what admission raises."""
        rest = await admitted(self._writer, route, request)
        if route.resource is PODS:
            pod, port = await self._of_pod(route)
        else:
            pod, port = await self._of_service(route)
        if not rest:
            return redirected(request)
        address = (pod.get("status") or {}).get("podIP") or ""
        refused = f"error trying to reach service: dial tcp {address}:{port}: connect: connection refused"
        if not (port.isascii() and port.isdigit() and len(port) < 6):
            raise service_unavailable(f"error trying to reach service: dial tcp: lookup tcp/{port}: unknown port")
        if (pod.get("status") or {}).get("phase") != "Running":
            raise service_unavailable(refused)
        try:
            return Response(200, page(pod, int(port), request.method, rest), TEXT)
        except NotThere:
            raise service_unavailable(refused) from None

    async def _of_pod(self, route: Route) -> tuple[Json, str]:
        target = target_of(route.name, "pod")
        pod = await self._get(PODS.key(route.namespace, target.name))
        if pod is None:
            raise not_found(PODS, target.name)
        declared = (each["ports"] for each in pod["spec"].get("containers") or () if each.get("ports"))
        first = next(declared, None)
        if not (pod.get("status") or {}).get("podIP"):
            raise bad_request("address not allowed")
        return pod, target.port or (str(first[0]["containerPort"]) if first else _DEFAULT_PORT)

    async def _of_service(self, route: Route) -> tuple[Json, str]:
        target, namespace = target_of(route.name, "service"), route.namespace
        wanted = target.port
        if wanted.isascii() and wanted.isdigit():
            service = await self._get(SERVICES.key(namespace, target.name))
            if service is None:
                raise not_found(SERVICES, target.name)
            number = whole_number(wanted)
            ports = [each for each in service["spec"].get("ports") or () if each["port"] == number]
            if not ports:
                raise service_unavailable(f"no service port {number} found for service {go_quote(target.name)}")
            wanted = ports[0].get("name", "")
        endpoints = await self._get(ENDPOINTS.key(namespace, target.name))
        if endpoints is None:
            raise not_found(SERVICES, target.name)
        subsets = endpoints.get("subsets") or []
        if not subsets:
            raise service_unavailable(f"no endpoints available for service {go_quote(target.name)}")
        for subset in subsets:
            port = next((each["port"] for each in subset.get("ports") or () if each.get("name", "") == wanted), None)
            addresses = subset.get("addresses") or []
            if port is None or not addresses:
                continue
            first = self._rng.randrange(len(addresses))
            for each in addresses[first:] + addresses[:first]:
                reference = each.get("targetRef") or {}
                pod = await self._get(PODS.key(namespace, reference.get("name") or "-"))
                if reference.get("kind") == "Pod" and pod is not None:
                    return pod, str(port)
        raise service_unavailable(f"no endpoints available for service {go_quote(route.name)}")

    async def _get(self, key: bytes) -> Json | None:
        kv = await self._store.get(key)
        return orjson.loads(kv.value) if kv is not None else None
