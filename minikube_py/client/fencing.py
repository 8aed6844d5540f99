"""An `ApiTransport` whose writes require leadership: a former leader starts no write.

It checks before each write, on the caller's clock, so that it also works for a process that was paused and does not
know yet. A write started in time may still arrive late: see `leader_election`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent
from minikube_py.errors import Unavailable

READS = frozenset({"GET", "HEAD", "OPTIONS"})


class FencedTransport:
    """Reads pass. If `may_act()` is False a write raises Unavailable without being sent."""

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
            raise Unavailable(f"not sent: the lease {self._what} is no longer held")
        return await self._transport.request(method, path, params, body, content_type)

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        return self._transport.watch(path, params)

    async def close(self) -> None:
        await self._transport.close()
