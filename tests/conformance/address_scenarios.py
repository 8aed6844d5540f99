"""ServiceCIDRs beside a controller manager: when they are ready, and what holds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from patience import until

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import SERVICE_CIDRS, SERVICES, RestClient

NAMESPACE = "work"
Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]


def held(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            found = {each["metadata"]["name"]: each for each in await client.list(SERVICE_CIDRS)}
            return {
                name: [each["metadata"].get("finalizers"), "deletionTimestamp" in each["metadata"], each.get("status")]
                for name, each in found.items()
                if name != "kubernetes"
            }

        async def add(name: str, cidr: str) -> None:
            await client.create(SERVICE_CIDRS, {"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})

        async def served() -> bool:
            """An allocator learns of a network after it was made."""
            spec = {"clusterIP": "10.9.0.2", "ports": [{"port": 80}]}
            try:
                await client.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec}, NAMESPACE)
            except StatusError as error:
                if error.code != 422:
                    raise
                return False
            return True

        await add("low", "10.9.0.0/28")
        await add("six", "fd09::/64")
        told = [await settled(client, ask)]
        await until(served, "a service has an address of the network")
        await client.delete(SERVICE_CIDRS, "low")
        told.append(await settled(client, ask))
        await client.delete(SERVICES, "s", NAMESPACE)
        await client.delete(SERVICE_CIDRS, "six")
        return told

    return scenario
