"""Requests by resource, namespace and name over any `ApiTransport`; failures as StatusError.

Source: kubernetes.io/docs/reference/using-api/api-concepts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.transport import JSON, MERGE_PATCH, ApiResponse, ApiTransport, WatchEvent
from minikube_py.errors import MinikubeError, OutcomeUnknown, Unavailable, shown

Object = dict[str, Any]


class ResourceRef(NamedTuple):
    """The resource part of a request's path. `group` is "" for the core group."""

    group: str
    version: str
    plural: str

    @property
    def prefix(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


NAMESPACES = ResourceRef("", "v1", "namespaces")
NODES = ResourceRef("", "v1", "nodes")
PODS = ResourceRef("", "v1", "pods")
SERVICES = ResourceRef("", "v1", "services")
ENDPOINTS = ResourceRef("", "v1", "endpoints")
REPLICATION_CONTROLLERS = ResourceRef("", "v1", "replicationcontrollers")
CONFIG_MAPS = ResourceRef("", "v1", "configmaps")
SECRETS = ResourceRef("", "v1", "secrets")
SERVICE_ACCOUNTS = ResourceRef("", "v1", "serviceaccounts")
PERSISTENT_VOLUME_CLAIMS = ResourceRef("", "v1", "persistentvolumeclaims")
EVENTS = ResourceRef("", "v1", "events")
CLUSTER_ROLES = ResourceRef("rbac.authorization.k8s.io", "v1", "clusterroles")
REPLICA_SETS = ResourceRef("apps", "v1", "replicasets")
DEPLOYMENTS = ResourceRef("apps", "v1", "deployments")
STATEFUL_SETS = ResourceRef("apps", "v1", "statefulsets")
DAEMON_SETS = ResourceRef("apps", "v1", "daemonsets")
CONTROLLER_REVISIONS = ResourceRef("apps", "v1", "controllerrevisions")
JOBS = ResourceRef("batch", "v1", "jobs")
CRON_JOBS = ResourceRef("batch", "v1", "cronjobs")
ENDPOINT_SLICES = ResourceRef("discovery.k8s.io", "v1", "endpointslices")
SERVICE_CIDRS = ResourceRef("networking.k8s.io", "v1", "servicecidrs")
ADDRESSES = ResourceRef("networking.k8s.io", "v1", "ipaddresses")
CERTIFICATE_REQUESTS = ResourceRef("certificates.k8s.io", "v1", "certificatesigningrequests")
SUBJECT_ACCESS_REVIEWS = ResourceRef("authorization.k8s.io", "v1", "subjectaccessreviews")
LEASES = ResourceRef("coordination.k8s.io", "v1", "leases")


LIST_OBJECTS_MAX: Final = 2_000_000
"""Of one list, over all its pages: what another API server answers may have no end. A page counts at least as one."""


class ListPage(NamedTuple):
    """`continue_token` is "" on the last page. `size_bytes`: of its JSON."""

    items: list[Object]
    resource_version: str
    continue_token: str
    size_bytes: int


_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*", re.ASCII).fullmatch
"""Most names need no quoting, which costs more than the rest of a path."""


def path_of(resource: ResourceRef, namespace: str = "", name: str = "", subresource: str = "") -> str:
    parts = [resource.prefix]
    if namespace:
        parts += ["namespaces", namespace if _PLAIN(namespace) else quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(name if _PLAIN(name) else quote(name, safe=":"))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def status_error(status: int, body: bytes) -> StatusError:
    """The StatusError in a body of `status`, or one made from its text if it is not a Status."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        text = body[:500].decode(errors="replace").strip()
        return StatusError(status, "", f"the server answered {status}: {text}", None)
    if not isinstance(document.get("code"), int) or not document["code"]:
        document["code"] = status
    return StatusError.from_status(document)


def refused_watch(status: int, body: bytes) -> WatchEvent:
    """The event of a watch that did not begin. A body that is no Status, as of an unknown path, becomes one."""
    return WatchEvent("ERROR", orjson.dumps(status_error(status, body).to_status()))


def _unreadable(method: str, path: str, what: str) -> MinikubeError:
    """Of an answer that says success. It may come from another server, to which requests are passed on."""
    return (Unavailable if method == "GET" else OutcomeUnknown)(f"the answer to {method} {path} is {what}")


def _document(method: str, path: str, body: bytes) -> Object:
    try:
        decoded: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _unreadable(method, path, f"no JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise _unreadable(method, path, f"no object but {shown(decoded)}")
    return decoded


class RestClient:
    """JSON in and out. All methods raise: StatusError, Unavailable; writes also OutcomeUnknown."""

    def __init__(self, transport: ApiTransport) -> None:
        self.transport = transport

    async def raw(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """The answer as bytes, for callers that need no decoding."""
        response = await self.transport.request(method, path, params, body, content_type)
        if response.status >= 300:
            raise status_error(response.status, response.body)
        return response

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> Object:
        payload = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        return _document(method, path, (await self.raw(method, path, params, payload, content_type)).body)

    async def get(self, resource: ResourceRef, name: str, namespace: str = "", resource_version: str = "") -> Object:
        params = {"resourceVersion": resource_version} if resource_version else None
        return await self.request("GET", path_of(resource, namespace, name), params)

    async def list_page(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> ListPage:
        params: dict[str, str] = {}
        if label_selector:
            params["labelSelector"] = label_selector
        if field_selector:
            params["fieldSelector"] = field_selector
        if limit:
            params["limit"] = str(limit)
        if continue_token:
            params["continue"] = continue_token
        if resource_version:
            params["resourceVersion"] = resource_version
        path = path_of(resource, namespace)
        body = (await self.raw("GET", path, params)).body
        document = _document("GET", path, body)
        metadata, items = document.get("metadata") or {}, document.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(items, list):
            raise _unreadable("GET", path, "no list of objects")
        version, token = metadata.get("resourceVersion", ""), metadata.get("continue", "")
        if not isinstance(version, str) or not isinstance(token, str):
            raise _unreadable("GET", path, "a list without version")
        return ListPage(items, version, token, len(body))

    async def pages(
        self,
        resource: ResourceRef,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
    ) -> AsyncIterator[ListPage]:
        """All pages, at one revision. `limit` 0: one page. Raises: Unavailable above LIST_OBJECTS_MAX."""
        token, count = "", 0
        while True:
            page = await self.list_page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_token=token,
            )
            token = page.continue_token
            count += max(1, len(page.items))
            yield page
            if not token:
                return
            if count >= LIST_OBJECTS_MAX:
                raise Unavailable(f"the list of {resource.plural} goes on after {count} objects, the limit")
            # A server in this process may answer without yielding.
            await asyncio.sleep(0)

    async def list(
        self, resource: ResourceRef, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[Object]:
        """All items, read in pages."""
        items: list[Object] = []
        pages = self.pages(resource, namespace, label_selector=label_selector, field_selector=field_selector)
        async for page in pages:
            items.extend(page.items)
        return items

    async def create(
        self, resource: ResourceRef, obj: Object, namespace: str = "", params: Mapping[str, str] | None = None
    ) -> Object:
        return await self.request("POST", path_of(resource, namespace), params, obj)

    async def update(self, resource: ResourceRef, obj: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        path = path_of(resource, metadata.get("namespace", ""), metadata["name"], subresource)
        return await self.request("PUT", path, None, obj)

    async def update_status(self, resource: ResourceRef, obj: Object) -> Object:
        return await self.update(resource, obj, "status")

    async def patch(
        self,
        resource: ResourceRef,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """`patch` is a document (dict or list) or its JSON bytes."""
        return await self.request("PATCH", path_of(resource, namespace, name, subresource), params, patch, content_type)

    async def delete(
        self,
        resource: ResourceRef,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_s: int | None = None,
        propagation: str = "",
    ) -> Object:
        """`uid` and `resource_version` are preconditions; `propagation` is Background, Foreground or Orphan."""
        body = delete_options(uid, resource_version, grace_period_s, propagation)
        return await self.request("DELETE", path_of(resource, namespace, name), None, body)

    async def bind(self, namespace: str, pod: str, node: str, uid: str = "") -> None:
        """`uid`, if given, must be the pod's. Raises StatusError 409 if it is already bound."""
        await self.raw("POST", path_of(PODS, namespace, pod, "binding"), None, binding_body(namespace, pod, node, uid))

    async def evict(self, namespace: str, pod: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
        """Raises StatusError 429 if a disruption budget forbids it."""
        body: Object = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": pod, "namespace": namespace},
        }
        if options := delete_options(uid, "", grace_period_s, ""):
            body["deleteOptions"] = options
        await self.raw("POST", path_of(PODS, namespace, pod, "eviction"), None, orjson.dumps(body))

    async def get_scale(self, resource: ResourceRef, name: str, namespace: str) -> Object:
        return await self.request("GET", path_of(resource, namespace, name, "scale"))

    async def scale(self, resource: ResourceRef, name: str, namespace: str, replicas: int) -> Object:
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(resource, name, patch, namespace, subresource="scale")


def binding_body(namespace: str, pod: str, node: str, uid: str = "") -> bytes:
    metadata = {"name": pod, "namespace": namespace}
    if uid:
        metadata["uid"] = uid
    target = {"kind": "Node", "name": node}
    return orjson.dumps({"kind": "Binding", "apiVersion": "v1", "metadata": metadata, "target": target})


def delete_options(uid: str, resource_version: str, grace_period_s: int | None, propagation: str) -> Object | None:
    """A DeleteOptions body, None without options."""
    options: Object = {}
    preconditions: Object = {}
    if uid:
        preconditions["uid"] = uid
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    if propagation:
        options["propagationPolicy"] = propagation
    return {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
