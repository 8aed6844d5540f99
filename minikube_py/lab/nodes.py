"""Waits until the nodes of a run are Ready."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from minikube_py.client.transport import ApiTransport
from minikube_py.env import ended
from minikube_py.errors import MinikubeError, Unavailable

READY_WITHIN_S = 300.0
"""Timeout without another node becoming Ready."""
PAGE = 500


class NodesNotReady(MinikubeError):
    """The nodes did not become Ready in time."""


async def wait_ready(transport: ApiTransport, count: int, within_s: float = READY_WITHIN_S) -> None:
    """Until `count` nodes are Ready, by list and watch; continues while more become Ready.

    Raises: NodesNotReady, Unavailable."""
    ready: set[str] = set()
    following = asyncio.create_task(_follow(transport, count, ready))
    try:
        before = -1
        while not following.done() and len(ready) > before:
            before = len(ready)
            await asyncio.wait((following,), timeout=within_s)
    finally:
        following.cancel()
        await ended(following)
    if following.cancelled():
        text = f"{len(ready):,} of {count:,} nodes became Ready within {within_s:.0f} s"
        raise NodesNotReady(f"{text}; fewer --nodes may help")
    following.result()


async def _follow(transport: ApiTransport, count: int, ready: set[str]) -> None:
    version = await _list(transport, ready)
    while len(ready) < count:
        async for batch in transport.watch("/api/v1/nodes", {"resourceVersion": version}):
            for event in batch:
                node = orjson.loads(event.object)
                if event.type == "ERROR":
                    raise Unavailable(f"the watch of nodes ended: {node.get('message', node)}")
                version = node["metadata"]["resourceVersion"]
                _take(ready, node, event.type != "DELETED")
            if len(ready) >= count:
                return


async def _list(transport: ApiTransport, ready: set[str]) -> str:
    params = {"limit": str(PAGE)}
    while True:
        answer = await transport.request("GET", "/api/v1/nodes", params)
        page = orjson.loads(answer.body)
        if answer.status != 200:
            raise Unavailable(f"list of nodes answered {answer.status}: {page.get('message', '')}")
        for node in page["items"]:
            _take(ready, node, True)
        if not page["metadata"].get("continue"):
            version: str = page["metadata"]["resourceVersion"]
            return version
        params["continue"] = page["metadata"]["continue"]


def _take(ready: set[str], node: Mapping[str, Any], exists: bool) -> None:
    conditions = node.get("status", {}).get("conditions", ())
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    (ready.add if exists and is_ready else ready.discard)(node["metadata"]["name"])
