"""`ApiTransport`: how a component reaches the API server, over HTTPS or directly to its core in the same process.

Requests and watch streams are the same; components cannot distinguish the two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

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
