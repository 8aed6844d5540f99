"""Services, pods and Endpoints whose EndpointSlices upstream's controllers and ours are to make alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from minikube_py.client.rest import ENDPOINT_SLICES, ENDPOINTS, EVENTS, NODES, PODS, SERVICES, RestClient

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


# --- hints by the zones' CPU ------------------------------------------------------------------------------------------


_MODES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "auto": ({"service.kubernetes.io/topology-mode": "Auto"}, {}),
    "old": ({"service.kubernetes.io/topology-aware-hints": "auto"}, {"trafficDistribution": "PreferClose"}),
    "few": ({"service.kubernetes.io/topology-mode": "Auto"}, {"selector": {"only": "p1"}}),
    "other": ({"service.kubernetes.io/topology-mode": "other"}, {}),
}


async def _zoned_node(client: RestClient, name: str, zone: str, cpu: str) -> None:
    """Ready for longer than the script takes."""
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": {"cpu": cpu}, "capacity": {"cpu": cpu}, "conditions": [ready]}
    await client.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})


async def _hints(client: RestClient) -> Any:
    """By service, how many endpoints of each zone are for which. Which of a zone's endpoints goes to another is chance."""
    found: dict[str, Counter[str]] = {}
    for piece in await client.list(ENDPOINT_SLICES, NAMESPACE):
        counted = found.setdefault(piece["metadata"]["labels"]["kubernetes.io/service-name"], Counter())
        for endpoint in piece["endpoints"] or ():
            zones = [each["name"] for each in (endpoint.get("hints") or {}).get("forZones") or ()]
            counted[f"{endpoint.get('zone')} {endpoint['conditions']['ready']} for {zones}"] += 1
    events = {
        (e["involvedObject"]["name"], e["type"], e["reason"], e["message"], json.dumps(e["source"]))
        for e in await client.list(EVENTS, NAMESPACE) if e["involvedObject"]["kind"] == "Service" and "Topology" in e["reason"]
    }  # fmt: skip
    return {"hints": {name: dict(counted) for name, counted in found.items()}, "events": sorted(map(list, events))}


def by_zone(settled: Settled) -> Scenario:
    async def scenario(client: RestClient) -> Any:
        await _zoned_node(client, "a1", "a", "4")
        await _zoned_node(client, "b1", "b", "2")
        for at in range(1, 7):
            await _pod(client, f"p{at}", "a1" if at < 4 else "b1", f"10.1.0.{at}")
        await client.patch(PODS, "p1", {"metadata": {"labels": {"only": "p1"}}}, NAMESPACE)
        for name, (chosen, spec) in _MODES.items():
            body = {"metadata": {"name": name, "annotations": chosen}, "spec": {"selector": _SELECTOR, "ports": [{"port": 80}], **spec}}
            await client.create(SERVICES, body, NAMESPACE)
        steps = [await settled(client, lambda: _hints(client))]

        async def step() -> None:
            steps.append(await settled(client, lambda: _hints(client)))

        await _pod(client, "p7", "b1", "10.1.0.7")
        await _pod(client, "p8", "b1", "10.1.0.8", ready=False)
        await step()
        await _zoned_node(client, "c1", "", "2")
        await step()
        await client.delete(NODES, "c1")
        await step()
        await client.patch(PODS, "p7", {"metadata": {"labels": {"app": "other"}}}, NAMESPACE)
        await step()
        change = {"metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": None}}}
        await client.patch(SERVICES, "old", change, NAMESPACE)
        await client.patch(SERVICES, "auto", {"metadata": {"annotations": {"service.kubernetes.io/topology-mode": None}}}, NAMESPACE)
        await step()
        for name in ("a1", "b1"):
            await client.delete(NODES, name)
        for said, at in (("HintsEnabled", 0), ("b True for ['a']", 1), ("Insufficient Node", 2), ("has been disabled", 5)):
            assert said in str(steps[at]), steps[at]
        return steps

    return scenario
