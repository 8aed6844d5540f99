"""Claims for devices, their templates and pods that use them: wishes to a controller manager, and what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import EVENTS, PODS, ResourceRef, RestClient

NAMESPACE = "work"
CLAIMS = ResourceRef("resource.k8s.io", "v1", "resourceclaims")
SLICES = ResourceRef("resource.k8s.io", "v1", "resourceslices")
TEMPLATES = ResourceRef("resource.k8s.io", "v1", "resourceclaimtemplates")
FINALIZER = "resource.kubernetes.io/delete-protection"
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
_GIVEN = {"devices": {"results": [{"request": "r", "driver": "x.io", "pool": "p", "device": "d"}]}}
_LONG = "long-" * 11 + "x"


def _drawn(text: str) -> str:
    """A generated name without what is drawn, which follows a hyphen where the names of pod and claim are short."""
    return re.sub(r"(-|^long.*)[bcdfghjklmnpqrstvwxz2456789]{5}$", r"\1XXXXX", text)


async def _pod(client: RestClient, name: str, *claims: dict[str, Any], **spec: Any) -> None:
    containers = [{"name": "c", "image": "x"}]
    body = {"metadata": {"name": name}, "spec": {"containers": containers, "resourceClaims": list(claims), **spec}}
    await client.create(PODS, body, NAMESPACE)


async def _claim(client: RestClient, name: str, protected: bool = False) -> None:
    metadata = {"name": name, "finalizers": [FINALIZER] if protected else []}
    await client.create(CLAIMS, {"metadata": metadata, "spec": _SPEC}, NAMESPACE)


async def _allocate(client: RestClient, name: str, *pods: str, given: dict[str, Any] = _GIVEN) -> None:
    reserved = []
    for pod in pods:
        found = await client.get(PODS, pod, NAMESPACE) if pod != "unknown" else {"metadata": {"uid": "u"}}
        reserved.append({"resource": "pods", "name": pod, "uid": found["metadata"]["uid"]})
    status = {"allocation": given, "reservedFor": reserved}
    await client.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")


async def _standing(client: RestClient) -> Any:
    claims = {}
    for claim in await client.list(CLAIMS, NAMESPACE):
        metadata, status = claim["metadata"], claim.get("status") or {}
        shown = {part: metadata.get(part) for part in ("labels", "annotations", "finalizers", "ownerReferences", "generateName")}
        users = sorted(each["name"] for each in status.get("reservedFor") or ())
        claims[_drawn(metadata["name"])] = {
            **shown, "spec": claim["spec"], "allocated": "allocation" in status, "users": users, "going": "deletionTimestamp" in metadata,
        }  # fmt: skip
    pods = {}
    for pod in await client.list(PODS, NAMESPACE):
        statuses = pod["status"].get("resourceClaimStatuses") or ()
        pods[pod["metadata"]["name"]] = {each["name"]: _drawn(each.get("resourceClaimName") or "") for each in statuses}
    told = {
        _drawn(" | ".join((event["involvedObject"]["name"], event["type"], event["reason"], event["message"], str(event["source"]))))
        for event in await client.list(EVENTS, NAMESPACE)
        if event["reason"] == "FailedResourceClaimCreation"
    }
    return {"claims": claims, "pods": pods, "told": sorted(told)}


def devices(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            return await _standing(client)

        async def gone(name: str) -> bool:
            try:
                await client.get(CLAIMS, name, NAMESPACE)
            except StatusError as error:
                return error.code == 404
            return False

        metadata = {"labels": {"a": "b"}, "annotations": {"note": "n"}}
        await client.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": _SPEC}}, NAMESPACE)
        for name in ("shared", "own", "held", "kept", "lost"):
            await _claim(client, name, protected=name != "own")
        by_template = {"name": "gpu", "resourceClaimTemplateName": "t"}
        await _pod(client, "templated", by_template, {"name": "net", "resourceClaimTemplateName": "t"})
        await _pod(client, _LONG, {"name": "very-long-name-of-a-claim", "resourceClaimTemplateName": "t"})
        await _pod(client, "direct", {"name": "own", "resourceClaimName": "own"}, by_template)
        await _pod(client, "unmade", {"name": "gpu", "resourceClaimTemplateName": "nowhere"})
        await _pod(client, "placed", {"name": "s", "resourceClaimName": "shared"}, nodeName="n")
        await _pod(client, "user", {"name": "h", "resourceClaimName": "held"}, nodeName="n")
        answers: list[Any] = [await settled(client, ask)]
        await _allocate(client, "shared")
        await _allocate(client, "held", "user")
        await _allocate(client, "kept")
        await _allocate(client, "lost", "unknown")
        answers.append(await settled(client, ask))
        # A template that comes late; a pod that ends, one that goes, one that never had a node; a claim that goes.
        await client.create(TEMPLATES, {"metadata": {"name": "nowhere"}, "spec": {"spec": _SPEC}}, NAMESPACE)
        await client.patch(PODS, "placed", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
        await client.patch(PODS, "templated", {"status": {"phase": "Failed"}}, NAMESPACE, subresource="status")
        await client.delete(PODS, "user", NAMESPACE, grace_period_s=0)
        await client.delete(CLAIMS, "kept", NAMESPACE)
        await until(lambda: gone("kept"), "the claim that nobody uses is gone")
        answers.append(await settled(client, ask))
        # A claim that was made for a pod is deleted by somebody else.
        (made,) = [c for c in await client.list(CLAIMS, NAMESPACE) if c["metadata"]["name"].startswith("direct-gpu")]
        await client.delete(CLAIMS, made["metadata"]["name"], NAMESPACE)
        answers.append(await settled(client, ask))
        return answers

    return scenario


_TOLERATIONS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "all": [{"operator": "Exists", "effect": "NoExecute"}],
    "without-effect": [{"operator": "Exists"}],
    "of-the-key": [{"key": "x.io/bad", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
    "of-another-value": [{"key": "x.io/bad", "operator": "Equal", "value": "w", "effect": "NoExecute"}],
    "long": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}],
    "short": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": n} for n in (3600, 1)],
}


async def _taint(client: RestClient, *taints: dict[str, Any]) -> None:
    devices = [{"name": "d", "taints": list(taints)}, {"name": "other"}]
    spec = {"driver": "x.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices}
    found = next((each for each in await client.list(SLICES) if each["metadata"]["name"] == "s"), None)
    if found is None:
        await client.create(SLICES, {"metadata": {"name": "s"}, "spec": spec})
    else:
        await client.update(SLICES, {**found, "spec": spec})


async def _evicted(client: RestClient) -> Any:
    pods = {}
    for pod in await client.list(PODS, NAMESPACE):
        conditions = [each for each in pod["status"].get("conditions") or () if each["type"] == "DisruptionTarget"]
        pods[pod["metadata"]["name"]] = {"goes": "deletionTimestamp" in pod["metadata"], "conditions": conditions}
    told = []
    for event in await client.list(EVENTS, NAMESPACE):
        if event["reason"] == "DeviceTaintManagerEviction":
            about = {part: event["involvedObject"].get(part) for part in ("apiVersion", "kind", "name", "namespace")}
            told.append(f"{about} {event['type']} {event['message']} {event['source']} {event['count']}")
    return {"pods": pods, "told": sorted(told)}


def taints(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    """Pods whose claims hold a device, each with tolerations of its own; its taints come, change and go."""

    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            return await _evicted(client)

        await _taint(client, {"key": "x.io/bad", "value": "v", "effect": "NoSchedule"})
        for name, tolerations in _TOLERATIONS.items():
            await _claim(client, name)
            await _pod(client, name, {"name": "c", "resourceClaimName": name}, nodeName="n")
            given = {"devices": {"results": [{**_GIVEN["devices"]["results"][0], "tolerations": tolerations}]}}
            await _allocate(client, name, name, given=given)
        await _claim(client, "elsewhere")
        await _pod(client, "elsewhere", {"name": "c", "resourceClaimName": "elsewhere"}, nodeName="n")
        await _allocate(client, "elsewhere", "elsewhere", given={"devices": {"results": [{**_GIVEN["devices"]["results"][0], "device": "other"}]}})
        # Names a claim that is reserved for another pod.
        await _pod(client, "guest", {"name": "c", "resourceClaimName": "none"}, nodeName="n")
        answers = [await settled(client, ask)]
        # Not stale for as long as the test runs: upstream's disruption controller takes back what is older than 2 minutes.
        since = {"lastTransitionTime": "2099-01-01T00:00:00Z"}
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "Mine", "message": "m", **since}
        await client.patch(PODS, "without-effect", {"status": {"conditions": [condition]}}, NAMESPACE, subresource="status")
        await _taint(client, {"key": "x.io/bad", "value": "v", "effect": "NoExecute"})
        await until(lambda: _goes(client, "short"), "the shortest toleration has ended")
        answers.append(await settled(client, ask))
        await _taint(client)
        answers.append(await settled(client, ask))
        await client.delete(SLICES, "s")
        return answers

    return scenario


async def _goes(client: RestClient, name: str) -> bool:
    return "deletionTimestamp" in (await client.get(PODS, name, NAMESPACE))["metadata"]
