"""ResourceQuotas and what comes and goes beside them: what a controller manager says is used, at rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from minikube_py.client.rest import PODS, SERVICES, ResourceRef, RestClient

NAMESPACE = "work"
QUOTAS = ResourceRef("", "v1", "resourcequotas")
SECRETS = ResourceRef("", "v1", "secrets")
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_HARD: dict[str, dict[str, Any]] = {
    "all": {
        "hard": {"pods": "9", "count/pods": "9", "requests.cpu": "4", "limits.memory": "1Gi", "services": "5",
                 "secrets": "9"},
    },
    "ending": {"hard": {"pods": "5"}, "scopes": ["Terminating"]},
    "none": {"hard": {"count/unknown.example.com": "3", "count/deployments.apps": "1", "services.nodeports": "3"}},
}  # fmt: skip


async def _pod(client: RestClient, name: str, cpu: str, **spec: Any) -> None:
    resources = {"requests": {"cpu": cpu}, "limits": {"memory": "64Mi"}}
    containers = [{"name": "c", "image": "x", "resources": resources}]
    await client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}, NAMESPACE)


def counted(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            return {each["metadata"]["name"]: each["status"] for each in await client.list(QUOTAS, NAMESPACE)}

        await _pod(client, "before", "100m")
        for name, spec in _HARD.items():
            await client.create(QUOTAS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
        told = [await settled(client, ask)]
        for name, cpu in (("a", "250m"), ("b", "1")):
            await _pod(client, name, cpu, **({"activeDeadlineSeconds": 600} if name == "b" else {}))
        ports = {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}
        await client.create(SERVICES, {"metadata": {"name": "s"}, "spec": ports}, NAMESPACE)
        await client.create(SECRETS, {"metadata": {"name": "m"}}, NAMESPACE)
        told.append(await settled(client, ask))
        await client.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
        await client.patch(PODS, "before", {"spec": {"activeDeadlineSeconds": 500}}, NAMESPACE)
        await client.patch(SERVICES, "s", {"spec": {"type": "ClusterIP"}}, NAMESPACE)
        await client.delete(SECRETS, "m", NAMESPACE)
        told.append(await settled(client, ask))
        await client.delete(PODS, "b", NAMESPACE, grace_period_s=0)
        await client.delete(SERVICES, "s", NAMESPACE)
        await client.patch(QUOTAS, "all", {"spec": {"hard": {"secrets": None, "resourcequotas": "9"}}}, NAMESPACE)
        told.append(await settled(client, ask))
        return told

    return scenario
