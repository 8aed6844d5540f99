"""How simulated clients reach the simulated store: by the product's own StoreClient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from minikube_py.fields.where import Where
from minikube_py.mvcc.types import LeaseResult, RangeRequest, SessionCommand
from minikube_py.sim.history import KeepAlive, Request
from minikube_py.sim.store_member import CLIENT_PORT, TOKEN
from minikube_py.sim.world import Process
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.storage import WatchHandle, WatchSink

TIMEOUTS_S: Final = (0.7, 1.5, 4.0)
"""Short ones make for more writes of which nobody knows."""


class StoreAccess:
    """Implements `store_clients.Access`."""

    def __init__(self, process: Process, hosts: Sequence[str]) -> None:
        self._process = process
        self._endpoints = [Endpoint(host, CLIENT_PORT, TOKEN) for host in hosts]
        self.client: StoreClient

    async def start(self) -> None:
        process = self._process
        timeout_s = process.rng.choice(TIMEOUTS_S)
        self.client = StoreClient(self._endpoints, process.clock, process.rng, request_timeout_s=timeout_s)
        await self.client.start()

    async def ask(self, request: Request, serializable: bool) -> Any:
        return await asked_of(self.client, request, serializable)

    def watch(
        self, key: bytes, range_end: bytes, start_revision: int, sink: WatchSink, where: Where | None
    ) -> WatchHandle:
        return self.client.watch(key, range_end, start_revision, sink, where)


async def asked_of(client: StoreClient, request: Request, serializable: bool) -> Any:
    """The answer to `request`. Raises: as `store_clients.Access.ask`."""
    if isinstance(request, RangeRequest):
        return await client.range(request, serializable=serializable)
    if isinstance(request, KeepAlive):
        return LeaseResult(0, request.id, await client.lease_keep_alive(request.id))
    return await client.command(cast(SessionCommand, request))
