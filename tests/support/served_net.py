"""Three store members in one event loop, each behind its own native server on a real socket."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from member_net import CLUSTER, PLAIN, MemberNet
from ports import free_ports

from minikube_py.env import Disk
from minikube_py.raft.configuration import NodeId
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import Member
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.server import StoreServer

TOKEN = "three"


class ServedNet(MemberNet):
    def __init__(self, folder: Path, config: MemberConfig = PLAIN, count: int = 3) -> None:
        super().__init__(folder, config)
        self.ports = dict(zip(range(1, count + 1), free_ports(count)))
        self.servers: dict[int, StoreServer] = {}

    def endpoint(self, id: int) -> Endpoint:
        return Endpoint("127.0.0.1", self.ports[id], TOKEN)

    async def form(self, count: int = 3, disks: dict[int, Disk] | None = None) -> None:
        first = tuple(Member(NodeId(id), f"store-{id}", f"h{id}:1", self.endpoint(id).address) for id in self.ports)
        for member in first:
            await self.start(member.id, Bootstrap(CLUSTER, member.id, first))

    async def start(self, id: int, bootstrap: Bootstrap | None = None, disk: Disk | None = None) -> StoreMember:
        member = await super().start(id, bootstrap, disk)
        self.servers[id] = StoreServer(member, TOKEN, "127.0.0.1", self.ports[id])
        await self.servers[id].start()
        return member

    def kill(self, id: int) -> None:
        """The system closes its sockets, as those of an ended process."""
        super().kill(id)
        server = self.servers.pop(id)
        server.port.stop_listening()
        for connection in list(server.connections):
            connection._transport.abort()

    def cut_clients(self, id: int) -> None:
        for connection in list(self.servers[id].connections):
            connection._transport.abort()

    async def stop(self) -> None:
        for server in self.servers.values():
            await server.stop()
        await super().stop()

    @contextlib.asynccontextmanager
    async def connected(self, *ids: int, seed: int = 1, **options: Any) -> AsyncIterator[StoreClient]:
        """A client that knows these members, by default all."""
        endpoints = [self.endpoint(id) for id in ids or self.ports]
        client = StoreClient(endpoints, self.clock, random.Random(seed), **options)
        await client.start()
        try:
            yield client
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def served(folder: Path, config: MemberConfig = PLAIN) -> AsyncIterator[ServedNet]:
    net = ServedNet(folder, config)
    await net.form()
    try:
        await net.settled()
        yield net
    finally:
        await net.stop()
