"""Repairs cluster IPs: each service address has an IPAddress, and each IPAddress belongs to a service that uses it.

Also migrates services of earlier releases.

Source: `pkg/registry/core/service/ipallocator/controller/repairip.go`. Upstream's events are logged.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.service_cidrs import ALLOCATOR, IPADDRESSES, MANAGED_BY, address_of
from minikube_py.api.meta import parse_timestamp
from minikube_py.apiserver.addresses import addresses_of
from minikube_py.apiserver.system import attempt
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.apiserver.writes import Writer
from minikube_py.mvcc.types import KeyValue

log = logging.getLogger(__name__)
INTERVAL_S: Final = 180.0
GRACE_S: Final = 60.0
"""How long an address may exist before its service."""


async def repair(writer: Writer, cache: WatchCache, wall_s: float) -> None:
    """Raises: StatusError where the store does not answer."""
    if IPADDRESSES not in cache.caches:
        return
    services = {entry.key: entry.decode() for entry in cache.of(SERVICES).select(SERVICES.prefix)}
    for service in services.values():
        for address in addresses_of(service):
            keeping = _keep(writer, cache, service, address, services)
            await attempt(f"IPAddress {address} is not put right", keeping)
    for entry in list(cache.of(IPADDRESSES).select(IPADDRESSES.prefix)):
        await attempt(f"{entry.key.decode()} is not put right", _clean_up(writer, entry, services, wall_s))


def _parent(obj: Json) -> tuple[str, ...]:
    found = (obj.get("spec") or {}).get("parentRef") or {}
    return tuple(found.get(name) or "" for name in ("group", "resource", "namespace", "name"))


async def _keep(writer: Writer, cache: WatchCache, service: Json, address: str, services: dict[bytes, Any]) -> None:
    key = IPADDRESSES.key("", address)
    cache.reading.check(key)
    entry = cache.of(IPADDRESSES).entries.get(key)
    wanted = address_of(service, address)
    if entry is not None:
        found = entry.decode()
        group, resource, namespace, name = _parent(found)
        owner = services.get(SERVICES.key(namespace, name)) if (group, resource) == ("", "services") else None
        if owner is not None and _parent(found) != _parent(wanted) and address in addresses_of(owner):
            log.warning("Cluster IP %s was assigned to multiple services; please recreate service", address)
            return
        labels = found["metadata"].get("labels") or {}
        told = all(labels.get(key) == value for key, value in wanted["metadata"]["labels"].items())
        if _parent(found) == _parent(wanted) and told:
            return
        await _delete(writer, entry)
    log.warning("Cluster IP %s is not allocated; repairing", address)
    try:
        await writer.create_object(IPADDRESSES, "", wanted)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise


async def _clean_up(writer: Writer, entry: Entry, services: dict[bytes, Any], wall_s: float) -> None:
    if why := _why_gone(entry.decode(), services, wall_s):
        log.warning("IPAddress %s %s: cleaning up", entry.key.decode().rpartition("/")[2], why)
        await _delete(writer, entry)


def _why_gone(obj: Json, services: dict[bytes, Any], wall_s: float) -> str:
    """For an address that the allocator manages; "" to keep it."""
    metadata = obj["metadata"]
    if (metadata.get("labels") or {}).get(MANAGED_BY) != ALLOCATOR:
        return ""
    group, resource, namespace, name = _parent(obj)
    if (group, resource) != ("", "services"):
        return "appears to have been modified, not referencing a Service"
    service = services.get(SERVICES.key(namespace, name))
    if service is not None and metadata["name"] in addresses_of(service):
        return ""
    if wall_s - parse_timestamp(metadata["creationTimestamp"]) <= GRACE_S:
        return ""
    return "appears to have leaked" if service is None else "has a wrong reference"


async def _delete(writer: Writer, entry: Entry) -> None:
    await writer.store.delete(KeyValue(entry.key, entry.value, 0, entry.revision, 0, 0))
