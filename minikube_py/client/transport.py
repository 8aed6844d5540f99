"""`ApiTransport`: how a component reaches the API server, over HTTPS or directly to its core in the same process.

Requests and watch streams are the same; components cannot distinguish the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from minikube_py.errors import MinikubeError

USER_AGENT: Final = "minikube-py"
"""How the `User-Agent` of each component begins."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiResponse(NamedTuple):
    """`body` is JSON: the object, list or Status."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; `object` is the JSON bytes, shared: never change them."""

    type: str
    object: bytes


class ApiTransport(Protocol):
    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """Any status is returned, not raised.

        Raises: Unavailable if nothing was sent, OutcomeUnknown if the answer to a write was lost."""

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        """Batches of events of `GET path?watch=true&params`; ends when the server ends it.

        An answer other than 200 becomes one ERROR event with the Status. Raises: Unavailable."""

    async def close(self) -> None: ...


PutAll = Callable[[Sequence[tuple[str, bytes]]], Awaitable[Sequence[ApiResponse | MinikubeError]]]


async def put_all(
    transport: ApiTransport, writes: Sequence[tuple[str, bytes]]
) -> Sequence[ApiResponse | MinikubeError]:
    """PUTs of bodies to paths, sent at once: what `request` returns or raises for each. A transport within the server's
    process has a method of this name."""
    together: PutAll | None = getattr(transport, "put_all", None)
    if together is not None:
        return await together(writes)
    return await asyncio.gather(*(put_one(transport, path, body) for path, body in writes))


async def put_one(transport: ApiTransport, path: str, body: bytes) -> ApiResponse | MinikubeError:
    try:
        return await transport.request("PUT", path, None, body)
    except MinikubeError as error:
        return error
