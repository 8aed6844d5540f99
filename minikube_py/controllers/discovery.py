"""Reads from the discovery documents which kinds the API server serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from minikube_py.api.errors import StatusError
from minikube_py.client.rest import ResourceRef, RestClient


class ServedResource(NamedTuple):
    ref: ResourceRef
    kind: str
    namespaced: bool
    verbs: frozenset[str]


class Served(NamedTuple):
    """`failed`: groups whose discovery failed, so their resources are unknown."""

    resources: list[ServedResource]
    failed: frozenset[str]


async def served_resources(client: RestClient) -> Served:
    """Every resource in its group's preferred version, without subresources.

    Raises: StatusError, Unavailable if the core group or the group list cannot be read."""
    found = _resources("", "v1", (await client.request("GET", "/api/v1")).get("resources"))
    failed: set[str] = set()
    groups = (await client.request("GET", "/apis")).get("groups") or ()
    for group in groups:
        seen: set[str] = set()
        preferred = group.get("preferredVersion", {}).get("version")
        versions = [version["version"] for version in group.get("versions") or ()]
        for version in sorted(versions, key=lambda v: v != preferred):
            try:
                document = await client.request("GET", f"/apis/{group['name']}/{version}")
            except StatusError as error:
                if error.code != 404:
                    failed.add(group["name"])
                continue
            for resource in _resources(group["name"], version, document.get("resources")):
                if resource.ref.plural not in seen:
                    seen.add(resource.ref.plural)
                    found.append(resource)
    return Served(found, frozenset(failed))


def _resources(group: str, version: str, documents: Iterable[dict[str, Any]] | None) -> list[ServedResource]:
    return [
        ServedResource(
            ResourceRef(group, version, document["name"]),
            document.get("kind", ""),
            bool(document.get("namespaced")),
            frozenset(document.get("verbs") or ()),
        )
        for document in documents or ()
        if "/" not in document["name"]
    ]
