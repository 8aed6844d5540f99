"""What every cluster has from its first moment: namespaces, and the `kubernetes` service with its endpoints."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.registry import ENDPOINTS, NAMESPACES, SERVICES, Resource
from minikube_py.apiserver.namespaces import SYSTEM
from minikube_py.apiserver.writes import Writer

_LABELS: Final = {"provider": "kubernetes", "component": "apiserver"}


async def create_namespaces(writer: Writer) -> None:
    """Those that are there already stay as they are."""
    for name in SYSTEM:
        await _create(writer, NAMESPACES, {"metadata": {"name": name}}, "")


async def publish(writer: Writer, cluster_ip: str, host: str, port: int) -> None:
    """Makes `kubernetes.default` lead to this server at the IPv4 address `host`, wherever it listened before."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    service: Json = {
        "metadata": {"name": "kubernetes", "labels": dict(_LABELS)},
        "spec": {"clusterIP": cluster_ip, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"},
    }
    if not await _create(writer, SERVICES, service, "default"):

        def redirect(old: Json) -> Json:
            return {**old, "metadata": dict(old["metadata"]), "spec": {**old["spec"], "ports": ports}}

        await writer.change(SERVICES, "default", "kubernetes", redirect)
    if IPv4Address(host).is_loopback:
        # Endpoints may not hold it, and nobody beyond this machine could use it.
        return
    subsets = [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]
    endpoints: Json = {
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": subsets,
    }
    if not await _create(writer, ENDPOINTS, endpoints, "default"):

        def readdress(old: Json) -> Json:
            return {**old, "metadata": dict(old["metadata"]), "subsets": subsets}

        await writer.change(ENDPOINTS, "default", "kubernetes", readdress)


async def _create(writer: Writer, resource: Resource, obj: Json, namespace: str) -> bool:
    try:
        await writer.create_object(resource, namespace, obj)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        return False
    return True
