"""The native protocol's server: one member's part of the store over TCP or TLS.

It reports the leader to its clients when they connect and whenever it changes, so that they move there by themselves.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

from minikube_py.errors import MinikubeError
from minikube_py.ports.descriptors import Descriptors, PortLimits
from minikube_py.ports.port import Port
from minikube_py.store.connection import Connection
from minikube_py.store.framing import frame
from minikube_py.store.limits import LARGE_AT_ONCE, ServerLimits
from minikube_py.store.protocol import GREETING, Answer, Leadership, Welcome

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember


class StoreServer:
    """Serves `member` to clients that show `token`. `port` 0 takes a free one; see `address`."""

    def __init__(
        self,
        member: StoreMember,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        limits: ServerLimits | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.member = member
        self.limits = limits or ServerLimits()
        self._token = token
        self._where = (host, port)
        wanted = PortLimits.proving(self.limits.connections_max, self.limits.hello_s)
        self.port = Port("store clients", partial(Connection, self), wanted, member.clock, tls, descriptors)
        self.connections: dict[Connection, None] = {}
        """In order of arrival, so that broadcasts have the same order in every run of a simulation."""
        self.watches_cut_off = 0
        self.work: set[asyncio.Task[None]] = set()
        self.reading = asyncio.Semaphore(LARGE_AT_ONCE)
        """Work that takes a connection more than one turn of the loop."""

    async def start(self) -> None:
        """Raises: MinikubeError if the address cannot be bound."""
        try:
            await self.port.listen(*self._where)
        except OSError as error:
            host, port = self._where
            raise MinikubeError(f"cannot serve the store on {host}:{port}: {error.strerror}") from None
        self.member.leader_listeners.append(self._tell_leader)

    async def stop(self) -> None:
        """Accepts no more connections and ends the existing ones after answering their requests."""
        if self._tell_leader not in self.member.leader_listeners:
            return
        self.member.leader_listeners.remove(self._tell_leader)
        await self.port.close()
        for task in list(self.work):
            task.cancel()
        for connection in list(self.connections):
            connection.finish()
        while self.connections:
            await asyncio.wait([connection.closed for connection in self.connections])
        await self.port.wait_closed()

    @property
    def address(self) -> tuple[str, int]:
        return self.port.address

    def welcome(self, hello: tuple[Any, ...]) -> MinikubeError | None:
        """Why this hello is refused, None if it is accepted."""
        refusal = GREETING.refuses(hello, self._token)
        if refusal is not None:
            return MinikubeError(refusal[1])
        cluster_id = hello[3]
        if cluster_id not in (0, self.member.replica.cluster_id):
            return MinikubeError(f"this is cluster {self.member.replica.cluster_id}, not {cluster_id!r}")
        return None

    def greeting(self) -> Welcome:
        member = self.member
        return Welcome(member.replica.cluster_id, member.state.revision, member.member_id, self.leadership())

    def leadership(self) -> Leadership:
        member = self.member
        leader = member.replica.leader()
        members = tuple([(each.id, each.client) for each in member.membership.members])
        if leader is None:
            return Leadership(0, "", member.raft.term, members)
        return Leadership(leader.id, leader.client, member.raft.term, members)

    def _tell_leader(self) -> None:
        told = frame((0, Answer.LEADER, *self.leadership()))
        for connection in list(self.connections):
            connection.tell(told)
