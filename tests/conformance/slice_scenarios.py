"""Services, pods and Endpoints whose EndpointSlices upstream's controllers and ours are to make alike."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from minikube_py.client.rest import ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES, RestClient

NAMESPACE = "work"
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
Scenario = Callable[[RestClient], Awaitable[Any]]
_SELECTOR = {"app": "web"}
_SERVICES: dict[str, dict[str, Any]] = {
    "plain": {"selector": _SELECTOR, "ports": [{"port": 80}]},
    "named": {"selector": _SELECTOR, "ports": [{"name": "a", "port": 80, "targetPort": "http", "appProtocol": "h2c"}]},
    "headless": {"selector": _SELECTOR, "clusterIP": "None"},
    "unready": {"selector": _SELECTOR, "ports": [{"port": 80}], "publishNotReadyAddresses": True},
    "close": {"selector": _SELECTOR, "ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"},
    "zonal": {"selector": _SELECTOR, "ports": [{"port": 80}], "trafficDistribution": "PreferSameZone"},
    "nobody": {"selector": {"app": "none"}, "ports": [{"port": 80}]},
    "manual": {"ports": [{"port": 80}]},
    "external": {"type": "ExternalName", "externalName": "example.com"},
}


def _ordered(items: Iterable[Any] | None) -> list[Any]:
    return sorted(items or (), key=lambda item: json.dumps(item, sort_keys=True))


async def _pod(client: RestClient, name: str, node: str, ip: str, ready: bool = True, **spec: Any) -> None:
    containers = [{"name": "c", "image": "x", "ports": [{"name": "http", "containerPort": 8080}]}]
    metadata = {"name": name, "labels": _SELECTOR}
    await client.create(PODS, {"metadata": metadata, "spec": {"containers": containers, "nodeName": node, **spec}}, NAMESPACE)
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
    await client.patch(PODS, name, {"status": status}, NAMESPACE, subresource="status")


async def _told(client: RestClient) -> Any:
    """By service, without the order in which upstream's maps give endpoints, ports and names."""
    found: dict[str, list[Any]] = {}
    for piece in await client.list(ENDPOINT_SLICES, NAMESPACE):
        metadata = piece["metadata"]
        metadata.pop("annotations", {}).pop("endpoints.kubernetes.io/last-change-trigger-time", None)
        owners = [{name: owner[name] for name in owner if name != "uid"} for owner in metadata.get("ownerReferences") or ()]
        for endpoint in piece["endpoints"] or ():
            endpoint.get("targetRef", {}).pop("uid", None)
        found.setdefault(metadata["labels"]["kubernetes.io/service-name"], []).append({
            "labels": metadata["labels"], "owners": owners, "prefix": metadata.get("generateName"),
            "type": piece["addressType"], "endpoints": _ordered(piece["endpoints"]),
            "ports": _ordered(piece["ports"]),
        })  # fmt: skip
    return {name: _ordered(pieces) for name, pieces in found.items()}


def of_services(settled: Settled) -> Scenario:
    async def scenario(client: RestClient) -> Any:
        for name, zone in (("n", "a"), ("m", "")):
            await client.create(NODES, {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone} if zone else {}}})
        for name, spec in _SERVICES.items():
            await client.create(SERVICES, {"metadata": {"name": name, "labels": {"team": "x"}}, "spec": spec}, NAMESPACE)
        await _pod(client, "p1", "n", "10.1.0.1")
        await _pod(client, "p2", "m", "10.1.0.2", ready=False)
        await _pod(client, "p3", "m", "10.1.0.3", hostname="h", subdomain="headless")
        await _pod(client, "p4", "n", "10.1.0.4")
        steps = [await settled(client, lambda: _told(client))]
        ended = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}
        await client.patch(PODS, "p4", {"status": {"phase": "Failed", "conditions": [ended]}}, NAMESPACE, subresource="status")
        await client.patch(SERVICES, "plain", {"metadata": {"labels": {"team": "y"}}}, NAMESPACE)
        await client.patch(SERVICES, "close", {"spec": {"trafficDistribution": None}}, NAMESPACE)
        await client.patch(SERVICES, "named", {"spec": {"ports": [{"name": "a", "port": 80, "targetPort": 9}]}}, NAMESPACE)
        (piece, *_) = [p for p in await client.list(ENDPOINT_SLICES, NAMESPACE) if p["metadata"]["name"].startswith("zonal")]
        await client.delete(ENDPOINT_SLICES, piece["metadata"]["name"], NAMESPACE)
        steps.append(await settled(client, lambda: _told(client)))
        for pod in ("p1", "p3"):
            await client.patch(PODS, pod, {"metadata": {"labels": {"app": "other"}}}, NAMESPACE)
        await client.delete(SERVICES, "unready", NAMESPACE)
        steps.append(await settled(client, lambda: _told(client)))
        for name in ("n", "m"):
            await client.delete(NODES, name)
        return steps

    return scenario


def mirrored(settled: Settled) -> Scenario:
    async def scenario(client: RestClient) -> Any:
        for name in ("manual", "skipped"):
            await client.create(SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}, NAMESPACE)
        subsets = [
            {"addresses": [{"ip": "10.2.0.1", "nodeName": "n"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "10.2.0.2", "hostname": "h"}],
             "ports": [{"name": "a", "port": 80}]},
            {"addresses": [{"ip": "10.2.0.3"}], "ports": [{"name": "b", "port": 81, "protocol": "UDP"}]},
        ]  # fmt: skip
        metadata = {"labels": {"team": "x"}, "annotations": {"note": "n"}}
        await client.create(ENDPOINTS, {"metadata": {"name": "manual", **metadata}, "subsets": subsets}, NAMESPACE)
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        await client.create(ENDPOINTS, {"metadata": {"name": "skipped", "labels": labels}, "subsets": subsets}, NAMESPACE)
        await client.create(ENDPOINTS, {"metadata": {"name": "lonely"}, "subsets": subsets}, NAMESPACE)
        steps = [await settled(client, lambda: _told(client))]
        await client.patch(ENDPOINTS, "manual", {"subsets": subsets[1:], "metadata": {"labels": {"team": "y"}}}, NAMESPACE)
        await client.patch(ENDPOINTS, "skipped", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": None}}}, NAMESPACE)
        steps.append(await settled(client, lambda: _told(client)))
        await client.delete(ENDPOINTS, "manual", NAMESPACE)
        await client.delete(SERVICES, "skipped", NAMESPACE)
        steps.append(await settled(client, lambda: _told(client)))
        return steps

    return scenario
