"""Objects that every cluster starts with: namespaces, priority classes, and the `kubernetes` service."""

from __future__ import annotations

import logging
from typing import Final

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NAMESPACES, SERVICES
from minikube_py.api.kinds.scheduling import PRIORITYCLASSES, SYSTEM_PRIORITIES, SYSTEM_USES
from minikube_py.api.kinds.service_cidrs import DEFAULT_NAME, SERVICECIDRS, cidrs_of
from minikube_py.api.meta import timestamp
from minikube_py.apiserver.namespaces import SYSTEM
from minikube_py.apiserver.object_store import OutOfSpace
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.apiserver.writes import Writer

log = logging.getLogger(__name__)

_LABELS: Final = {"provider": "kubernetes", "component": "apiserver"}


async def create_namespaces(writer: Writer) -> None:
    """Existing ones are unchanged."""
    for name in SYSTEM:
        await _create(writer, NAMESPACES, {"metadata": {"name": name}}, "")


async def create_priority_classes(writer: Writer) -> None:
    """The system's priority classes, available in every cluster."""
    for name, value in SYSTEM_PRIORITIES.items():
        obj: Json = {"metadata": {"name": name}, "value": value, "description": SYSTEM_USES[name]}
        await _create(writer, PRIORITYCLASSES, obj, "")


async def create_service_cidr(writer: Writer, cidr: str, wall_s: float) -> None:
    """The default ServiceCIDR. An existing one is unchanged, except for a missing status."""
    told = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready"}
    ready = {"conditions": [{**told, "lastTransitionTime": timestamp(wall_s)}]}

    def tell(old: Json) -> Json:
        same, conditions = cidrs_of(old) == [cidr], (old.get("status") or {}).get("conditions") or ()
        if not same or old["metadata"].get("deletionTimestamp") or any(each["type"] == "Ready" for each in conditions):
            return old
        return {**old, "metadata": dict(old["metadata"]), "status": ready}

    await _create(writer, SERVICECIDRS, {"metadata": {"name": DEFAULT_NAME}, "spec": {"cidrs": [cidr]}}, "")
    try:
        await writer.change(SERVICECIDRS, "", DEFAULT_NAME, tell)
    except StatusError as error:
        if not isinstance(error, OutOfSpace) and error.code != 404:
            raise
        log.warning("the ServiceCIDR %s is not marked ready: %s", DEFAULT_NAME, error)


async def create_service(writer: Writer, cluster_ip: str, port: int) -> None:
    """`kubernetes.default`, for the API servers; `EndpointReconciler` keeps its endpoints."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    service: Json = {
        "metadata": {"name": "kubernetes", "labels": dict(_LABELS)},
        "spec": {"clusterIP": cluster_ip, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"},
    }
    if not await _create(writer, SERVICES, service, "default"):

        def redirect(old: Json) -> Json:
            return {**old, "metadata": dict(old["metadata"]), "spec": {**old["spec"], "ports": ports}}

        try:
            await writer.change(SERVICES, "default", "kubernetes", redirect)
        except OutOfSpace as error:
            log.warning("the service kubernetes does not lead to port %d: %s", port, error)


async def keep_service(writer: Writer, cache: WatchCache, cluster_ip: str, port: int) -> None:
    """Recreates it if somebody deleted it; `port` 0: this server is not published yet."""
    if port and SERVICES.key("default", "kubernetes") not in cache.of(SERVICES).entries:
        await create_service(writer, cluster_ip, port)


async def _create(writer: Writer, resource: Kind, obj: Json, namespace: str) -> bool:
    """Whether it was created. A full store must not block startup, or deletes were impossible."""
    key = resource.key(namespace, obj["metadata"]["name"])
    if await writer.store.get(key) is not None:
        return False
    try:
        await writer.create_object(resource, namespace, obj)
    except OutOfSpace as error:
        log.warning("%s is not made: %s", key.decode(), error)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True
