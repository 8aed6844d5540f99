"""Flow schemas whose priority levels exist, come and go: what the server says of them, and who owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from minikube_py.client.rest import ResourceRef, RestClient

GROUP = "flowcontrol.apiserver.k8s.io"
FLOWS = ResourceRef(GROUP, "v1", "flowschemas")
LEVELS = ResourceRef(GROUP, "v1", "prioritylevelconfigurations")
LIMITED = {"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}}
RULE = {
    "subjects": [{"kind": "User", "user": {"name": "u"}}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
OTHER = {"type": "Other", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def _level(name: str) -> dict[str, Any]:
    return {"priorityLevelConfiguration": {"name": name}}


def dangling(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            return {
                kind.plural: {item["metadata"]["name"]: _told(item) for item in await client.list(kind)}
                for kind in (FLOWS, LEVELS)
            }

        async def patch(name: str, body: dict[str, Any], subresource: str = "") -> None:
            await client.patch(FLOWS, name, body, subresource=subresource, params={"fieldManager": "later"})
            told.append(await settled(client, ask))

        told = [await settled(client, ask)]
        maker = {"fieldManager": "maker"}
        for name, level in (("mine", "later"), ("yours", "exempt")):
            spec = {"rules": [RULE], **_level(level)}
            await client.create(FLOWS, {"metadata": {"name": name}, "spec": spec}, params=maker)
        told.append(await settled(client, ask))
        await client.create(LEVELS, {"metadata": {"name": "later"}, "spec": LIMITED}, params=maker)
        told.append(await settled(client, ask))
        await patch("yours", {"spec": _level("nobody")})
        await patch("yours", {"spec": _level("later")})
        await patch("mine", {"status": {"conditions": [OTHER, {**OTHER, "type": "Dangling"}]}}, "status")
        await patch("mine", {"status": None}, "status")
        await client.delete(LEVELS, "later")
        told.append(await settled(client, ask))
        await client.delete(FLOWS, "mine")
        await client.delete(FLOWS, "yours")
        return told

    return scenario


def _told(obj: dict[str, Any]) -> Any:
    owners = [
        [entry[name] for name in ("manager", "operation", "fieldsV1")] + [entry.get("subresource")]
        for entry in obj["metadata"].get("managedFields") or ()
    ]
    return {"spec": obj["spec"], "status": obj.get("status"), "owners": sorted(owners, key=str)}
