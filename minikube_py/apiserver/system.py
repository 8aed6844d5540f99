"""Objects that every cluster starts with: namespaces, priority classes, and the `kubernetes` service.

None is a condition for serving: only a server that runs can delete what cannot be read (`attempt`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES, SERVICES
from minikube_py.api.kinds.scheduling import PRIORITYCLASSES, SYSTEM_PRIORITIES, SYSTEM_USES
from minikube_py.api.kinds.service_cidrs import DEFAULT_NAME, SERVICECIDRS, cidrs_of
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.namespaces import SYSTEM
from minikube_py.apiserver.reading import WRONG
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.writes import Writer

log = logging.getLogger(__name__)

_LABELS: Final = {"provider": "kubernetes", "component": "apiserver"}


_NO_ANSWER: Final = (503, 504)


async def attempt(what: str, work: Awaitable[object]) -> None:
    """Does the work. Objects that cannot be read, made or changed are logged, as upstream does, and stop nothing.

    `what` is not done then. Raises: StatusError 503 or 504 if the store does not answer; other errors of the store."""
    try:
        await work
    except WRONG as error:
        if isinstance(error, StatusError) and error.code in _NO_ANSWER:
            raise
        log.warning("%s: %s", what, str(error) or type(error).__name__, exc_info=not isinstance(error, StatusError))


async def create_namespaces(writer: Writer) -> None:
    """Existing ones are unchanged."""
    for name in SYSTEM:
        obj: Json = {"metadata": {"name": name}}
        await attempt(f"namespace {name} is not made", _create(writer, NAMESPACES, obj, ""))


async def create_priority_classes(writer: Writer) -> None:
    """The system's priority classes, available in every cluster."""
    for name, value in SYSTEM_PRIORITIES.items():
        obj: Json = {"metadata": {"name": name}, "value": value, "description": SYSTEM_USES[name]}
        await attempt(f"priority class {name} is not made", _create(writer, PRIORITYCLASSES, obj, ""))


async def keep(writer: Writer, cache: WatchCache) -> None:
    """Makes again what somebody deleted, as upstream's controller of system namespaces does each minute."""
    if any(_absent(cache, NAMESPACES, "", name) for name in SYSTEM):
        await create_namespaces(writer)
    if PRIORITYCLASSES in cache.caches and any(_absent(cache, PRIORITYCLASSES, "", name) for name in SYSTEM_PRIORITIES):
        await create_priority_classes(writer)


def _absent(cache: WatchCache, kind: Kind, namespace: str, name: str) -> bool:
    """Not so of what is there and cannot be read."""
    key = kind.key(namespace, name)
    return key not in cache.of(kind).entries and key not in cache.reading.why


async def create_service_cidr(writer: Writer, cidr: str, wall_s: float) -> None:
    """The default ServiceCIDR. An existing one is unchanged, except for a missing status."""
    told = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready"}
    ready = {"conditions": [{**told, "lastTransitionTime": timestamp(wall_s)}]}

    def tell(old: Json) -> Json:
        same, conditions = cidrs_of(old) == [cidr], (old.get("status") or {}).get("conditions") or ()
        if not same or old["metadata"].get("deletionTimestamp") or any(each["type"] == "Ready" for each in conditions):
            return old
        return {**old, "metadata": dict(old["metadata"]), "status": ready}

    obj: Json = {"metadata": {"name": DEFAULT_NAME}, "spec": {"cidrs": [cidr]}}
    await attempt(f"the ServiceCIDR {DEFAULT_NAME} is not made", _create(writer, SERVICECIDRS, obj, ""))
    marking = writer.change(SERVICECIDRS, "", DEFAULT_NAME, tell)
    await attempt(f"the ServiceCIDR {DEFAULT_NAME} is not marked ready", marking)


async def create_service(writer: Writer, cluster_ip: str, port: int) -> None:
    """`kubernetes.default`, for the API servers; `EndpointReconciler` keeps its endpoints."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    service: Json = {
        "metadata": {"name": "kubernetes", "labels": dict(_LABELS)},
        "spec": {"clusterIP": cluster_ip, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"},
    }

    def redirect(old: Json) -> Json:
        return {**old, "metadata": dict(old["metadata"]), "spec": {**old["spec"], "ports": ports}}

    async def serve() -> None:
        if not await _create(writer, SERVICES, service, "default"):
            await writer.change(SERVICES, "default", "kubernetes", redirect)

    await attempt(f"the service kubernetes does not lead to port {port}", serve())


async def keep_service(writer: Writer, cache: WatchCache, cluster_ip: str, port: int) -> None:
    """Recreates it if somebody deleted it; `port` 0: this server is not published yet."""
    if port and _absent(cache, SERVICES, "default", "kubernetes"):
        await create_service(writer, cluster_ip, port)


async def _create(writer: Writer, resource: Kind, obj: Json, namespace: str) -> bool:
    """Whether it was created. Raises: StatusError if what is there cannot be read, or it cannot be created."""
    if await writer.store.get(resource.key(namespace, obj["metadata"]["name"])) is not None:
        return False
    try:
        await writer.create_object(resource, namespace, obj)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True
