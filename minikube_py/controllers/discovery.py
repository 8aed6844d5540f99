"""Reads from the discovery documents which kinds the API server serves. Groups may be other servers', whose answers may
have any form."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from minikube_py.api.document import objects, text, texts
from minikube_py.api.errors import StatusError
from minikube_py.client.rest import Object, ResourceRef, RestClient
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)
RESOURCES_MAX: Final = 4096
"""Of one group and version, with subresources: each may get an informer."""
_SOUND: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}", re.ASCII).fullmatch


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
    found = _resources("", "v1", await client.request("GET", "/api/v1"))
    failed: set[str] = set()
    groups = (await client.request("GET", "/apis")).get("groups") or ()
    for group in groups:
        seen: set[str] = set()
        preferred = group.get("preferredVersion", {}).get("version")
        versions = [version["version"] for version in group.get("versions") or ()]
        for version in sorted(versions, key=lambda v: v != preferred):
            path = f"/apis/{group['name']}/{version}"
            try:
                resources = _resources(group["name"], version, await client.request("GET", path))
            except MinikubeError as error:
                if not isinstance(error, StatusError) or error.code != 404:
                    logger.warning("discovery of %s: %s", path, error or type(error).__name__)
                    failed.add(group["name"])
                continue
            for resource in resources:
                if resource.ref.plural not in seen:
                    seen.add(resource.ref.plural)
                    found.append(resource)
    return Served(found, frozenset(failed))


def _resources(group: str, version: str, document: Object) -> list[ServedResource]:
    """Those with a sound name. Raises: MinikubeError."""
    rows = document.get("resources") or []
    if not isinstance(rows, list):
        raise MinikubeError("its resources are no list")
    if len(rows) > RESOURCES_MAX:
        raise MinikubeError(f"it has {len(rows)} resources; the limit is {RESOURCES_MAX}")
    return [
        ServedResource(
            ResourceRef(group, version, row["name"]),
            text(row, "kind"),
            row.get("namespaced") is True,
            frozenset(texts(row, "verbs")),
        )
        for row in objects(document, "resources")
        if _SOUND(text(row, "name"))
    ]
