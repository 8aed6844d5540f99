"""An `ApiTransport` whose writes end with a right to act: who leads no longer begins no write.

It asks before each write, on the caller's own clock, so that it holds also for a process that was paused and does not
know yet. A write that was begun in time may still arrive late: see `leader_election`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent
from minikube_py.errors import Unavailable

READS = frozenset({"GET", "HEAD", "OPTIONS"})


class FencedTransport:
    """Reads pass. A write raises Unavailable, and nothing is sent, where `may_act()` is False."""

    def __init__(self, transport: ApiTransport, may_act: Callable[[], bool], what: str) -> None:
        self._transport = transport
        self._may_act = may_act
        self._what = what
        self.refused = 0

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        if method not in READS and not self._may_act():
            self.refused += 1
            raise Unavailable(f"not sent: the lease {self._what} is not held any more")
        return await self._transport.request(method, path, params, body, content_type)

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        return self._transport.watch(path, params)

    async def close(self) -> None:
        await self._transport.close()
