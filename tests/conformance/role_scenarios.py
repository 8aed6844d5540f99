"""Roles that aggregate others, with rules of their own or without: what a controller manager makes of their rules, and
whom they belong to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from minikube_py.api.errors import StatusError
from minikube_py.api.patch import APPLY_PATCH
from minikube_py.client.rest import CLUSTER_ROLES, RestClient

Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_READ, _WRITE = ({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in ("get", "create"))
_OWN: tuple[tuple[str, Any], ...] = (("absent", ...), ("null", None), ("one", [_WRITE]), ("like", [_READ]))
_SELECTED = {"nothing": ("nothing",), "part": ("part",), "either": ("part", "nothing")}


def _role(name: str, rules: Any = ..., **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, **more}
    return body if rules is ... else {**body, "rules": rules}


def _gathering() -> dict[str, dict[str, Any]]:
    """Every kind of own rules with every kind of selection."""
    found = {}
    for selected, values in _SELECTED.items():
        labels = [{"matchLabels": {"gather": each}} for each in values]
        for own, rules in _OWN:
            name = f"whole-{selected}-{own}"
            found[name] = _role(name, rules, aggregationRule={"clusterRoleSelectors": labels})
    return found


def aggregated(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        wholes = _gathering()

        async def ask() -> Any:
            return {name: _told(await client.get(CLUSTER_ROLES, name)) for name in wholes}

        async def apply_all(**params: str) -> Any:
            outcomes, params = {}, {"fieldManager": "later", **params}
            for name in wholes:
                body = _role(name, [_WRITE])
                try:
                    await client.patch(CLUSTER_ROLES, name, body, content_type=APPLY_PATCH, params=params)
                    outcomes[name] = "applied"
                except StatusError as error:
                    outcomes[name] = error.message
            return outcomes

        for body in wholes.values():
            await client.create(CLUSTER_ROLES, body, params={"fieldManager": "maker"})
        told = [await settled(client, ask)]
        part = _role("a-part", [_READ, _READ], metadata={"labels": {"gather": "part"}})
        await client.create(CLUSTER_ROLES, part, params={"fieldManager": "maker"})
        told += [await settled(client, ask), await apply_all(), await settled(client, ask)]
        await client.delete(CLUSTER_ROLES, "a-part")
        told += [await settled(client, ask), await apply_all(force="true"), await settled(client, ask)]
        for name in wholes:
            await client.delete(CLUSTER_ROLES, name)
        return told

    return scenario


def _told(role: dict[str, Any]) -> Any:
    owners = [
        f"{entry['manager']} {entry['operation']} {sorted(entry['fieldsV1'])}"
        for entry in role["metadata"].get("managedFields") or ()
    ]
    return {"rules": role.get("rules"), "owners": sorted(owners)}
