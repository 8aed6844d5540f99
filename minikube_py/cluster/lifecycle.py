"""Whether a cluster can still be used; callers get the reason why not, instead of what its parts raise as they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent
from minikube_py.cluster.errors import ClusterError
from minikube_py.errors import MinikubeError

SERVER_ERROR: Final = 500


class Lifecycle:
    """`over`: why nothing can be done with the cluster any more; "" while it runs."""

    def __init__(self) -> None:
        self.over = ""

    def end(self, why: str) -> None:
        """The first reason counts."""
        self.over = self.over or why

    def store_failed(self, message: str) -> None:
        self.end(f"the cluster's store has failed, so the cluster can only be stopped: {message}")

    def require(self) -> None:
        """Raises: ClusterError if it is over."""
        if self.over:
            raise ClusterError(self.over)

    @contextmanager
    def within(self) -> Iterator[None]:
        """Raises: ClusterError if it is over, or ends meanwhile and something fails for that."""
        self.require()
        try:
            yield
        except MinikubeError as error:
            if self.over and not isinstance(error, ClusterError):
                raise ClusterError(self.over) from error
            raise


class LifecycleTransport:
    """`ApiTransport` of a cluster, as long as it lives."""

    def __init__(self, transport: ApiTransport, life: Lifecycle) -> None:
        self._transport, self._life = transport, life

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """Raises: ClusterError if it is over."""
        with self._life.within():
            response = await self._transport.request(method, path, params, body, content_type)
            if response.status >= SERVER_ERROR:
                self._life.require()
            return response

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        self._life.require()
        return self._transport.watch(path, params)

    async def close(self) -> None:
        await self._transport.close()
