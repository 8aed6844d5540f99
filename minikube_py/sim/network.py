"""Simulated TCP: hosts, directed links between them, and their faults.

Bytes of a connection arrive in order, or the connection breaks; data is lost only with the connection. A lost segment
arrives later. Links are directed, so that a partition may be one-sided. A link may be

- clogged: nothing arrives, connections stay up; sent data arrives when it is unclogged;
- cut: connections over it are reset, new ones refused.

The kernel continues while a process is stopped: connections to it are established, and bytes for it are accepted up to
the window. The `ssl` argument of the loop's calls is accepted and ignored: the simulation is of the data inside TLS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from minikube_py.env import Rng
from minikube_py.ports.addresses import PORT_MAX
from minikube_py.sim.loop import NS_PER_S, Scheduler
from minikube_py.sim.sockets import Connection, SimServer, SimTransport

if TYPE_CHECKING:
    from minikube_py.sim.loop import SimLoop

EPHEMERAL_PORT_MIN = 40_000
LOSSES_MAX = 5
HERE = frozenset(("127.0.0.1", "localhost", "0.0.0.0", "::", "::1", ""))


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """A segment takes `delay_s` plus an exponential share of mean `jitter_s`, and its size over `bytes_per_s`; a lost
    one (`loss`, a probability) arrives after `retransmit_s`, doubled for each loss in a row. `split`: the probability
    that a write is sent in pieces, cut at any byte. A connection without an acknowledgement for `give_up_s` ends."""

    delay_s: float = 0.0002
    jitter_s: float = 0.0002
    loss: float = 0.0
    retransmit_s: float = 0.2
    bytes_per_s: float = math.inf
    split: float = 0.1
    window_bytes: int = 256 << 10
    give_up_s: float = 60.0
    connect_timeout_s: float = 20.0


LOCAL = LinkQuality(delay_s=0.00002, jitter_s=0.00001)


class Link:
    """One direction between two hosts. `clogs` counts the faults that clog it, since they may overlap."""

    __slots__ = ("clogs", "cut", "destination", "free_ns", "pipes", "quality", "source")

    def __init__(self, source: str, destination: str, quality: LinkQuality) -> None:
        self.source = source
        self.destination = destination
        self.quality = quality
        self.clogs = 0
        self.cut = False
        self.free_ns = 0
        self.pipes: dict[int, Any] = {}

    def __str__(self) -> str:
        return f"{self.source}->{self.destination}"


class Network:
    """All hosts and links. Links are created on first use, with `quality`, those of a host to itself with `LOCAL`."""

    def __init__(self, scheduler: Scheduler, quality: LinkQuality | None = None) -> None:
        self.scheduler = scheduler
        self.quality = quality or LinkQuality()
        self.rng = Rng(f"network {scheduler.rng.getrandbits(64)}")
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._ports: dict[str, int] = {}
        self.off: dict[str, None] = {}
        self.connections: dict[int, Connection] = {}
        self.segments = 0
        self.bytes = 0

    # -- for loops ----------------------------------------------------------------------------------------------------

    async def serve(
        self, loop: SimLoop, factory: Callable[[], Any], host: Any, port: int, **options: Any
    ) -> SimServer:
        """Raises: OSError if the port is taken, NotImplementedError for what is not simulated."""
        _refuse_options("create_server", options)
        return SimServer(self, loop, factory, "0.0.0.0" if host is None else str(host), port)

    async def connect(
        self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[SimTransport, Any]:
        """Raises: ConnectionRefusedError, TimeoutError; NotImplementedError for what is not simulated."""
        _refuse_options("create_connection", options)
        if not 0 <= int(port) <= PORT_MAX:
            raise OverflowError(f"connect(): port must be 0-{PORT_MAX}.")
        target = loop.host if host in HERE else host
        connection = Connection(self, loop, (loop.host, self.free_port(loop.host)), (target, int(port)))
        transport = connection.client
        await transport.establish()
        protocol = factory()
        transport.attach(protocol)
        return transport, protocol

    def free_port(self, host: str) -> int:
        port = self._ports.get(host, EPHEMERAL_PORT_MIN)
        self._ports[host] = port + 1
        return port

    def listen(self, server: SimServer) -> None:
        address = (server.loop.host, server.port)
        if address in self._listeners:
            raise OSError(98, f"address {address[0]}:{address[1]} is already in use")
        self._listeners[address] = server

    def unlisten(self, server: SimServer) -> None:
        address = (server.loop.host, server.port)
        if self._listeners.get(address) is server:
            del self._listeners[address]

    def listener(self, address: tuple[str, int]) -> SimServer | None:
        return self._listeners.get(address)

    # -- links --------------------------------------------------------------------------------------------------------

    def link(self, source: str, destination: str) -> Link:
        link = self._links.get((source, destination))
        if link is None:
            quality = LOCAL if source == destination else self.quality
            link = self._links[source, destination] = Link(source, destination, quality)
        return link

    def arrival_ns(self, link: Link, size_bytes: int) -> int:
        """When a segment sent now arrives at the other end."""
        quality, random = link.quality, self.rng.random
        delay_s = quality.delay_s - quality.jitter_s * math.log(1.0 - random())
        if quality.loss:
            retransmit_s = quality.retransmit_s
            for _ in range(LOSSES_MAX):
                if random() >= quality.loss:
                    break
                delay_s += retransmit_s
                retransmit_s *= 2
        start_ns = self.scheduler.now_ns
        if quality.bytes_per_s != math.inf:
            start_ns = max(start_ns, link.free_ns) + int(size_bytes / quality.bytes_per_s * NS_PER_S)
            link.free_ns = start_ns
        return start_ns + int(delay_s * NS_PER_S)

    def set_quality(self, quality: LinkQuality, sources: Iterable[str], destinations: Iterable[str]) -> None:
        for link in self._between(sources, destinations):
            link.quality = quality

    def clog(self, sources: Iterable[str], destinations: Iterable[str]) -> None:
        """Nothing arrives at `destinations` from `sources` until it is unclogged as often."""
        for link in self._between(sources, destinations):
            link.clogs += 1
            self.scheduler.log(f"clog {link}")

    def unclog(self, sources: Iterable[str], destinations: Iterable[str]) -> None:
        for link in self._between(sources, destinations):
            if link.clogs:
                link.clogs -= 1
                self._release(link)

    def cut(self, sources: Iterable[str], destinations: Iterable[str]) -> None:
        """Resets connections over these links, in either direction, and refuses new ones."""
        for link in self._between(sources, destinations):
            link.cut = True
            self.scheduler.log(f"cut {link}")
            other = self.link(link.destination, link.source)
            for pipe in [*link.pipes.values(), *other.pipes.values()]:
                pipe.connection.reset()

    def mend(self, sources: Iterable[str], destinations: Iterable[str]) -> None:
        for link in self._between(sources, destinations):
            link.cut = False

    def heal(self) -> None:
        """Restores all links to their initial quality; hosts stay as they are."""
        for link in self._links.values():
            link.quality = LOCAL if link.source == link.destination else self.quality
            link.clogs = 0
            link.cut = False
            self._release(link)

    # -- hosts --------------------------------------------------------------------------------------------------------

    def drop_loop(self, loop: SimLoop, *, silently: bool) -> None:
        """A process ended. Its kernel notifies its peers, unless the whole machine lost power silently."""
        for address, server in list(self._listeners.items()):
            if server.loop is loop:
                del self._listeners[address]
        if silently:
            self.off[loop.host] = None
        for connection in list(self.connections.values()):
            connection.drop(loop, silently=silently)

    def power_on(self, host: str) -> None:
        """A machine that lost power is back: peers still using its old connections get a reset."""
        if host in self.off:
            del self.off[host]
            for (_, destination), link in self._links.items():
                if destination == host:
                    self._release(link)

    def _between(self, sources: Iterable[str], destinations: Iterable[str]) -> list[Link]:
        destinations = tuple(destinations)
        return [self.link(source, to) for source in sources for to in destinations if source != to]

    def _release(self, link: Link) -> None:
        if not link.clogs:
            for pipe in list(link.pipes.values()):
                pipe.release_soon()


_NO_MATTER_HERE: Final = (
    "ssl", "server_hostname", "ssl_handshake_timeout", "ssl_shutdown_timeout", "backlog", "start_serving",
    "reuse_address", "reuse_port", "happy_eyeballs_delay", "interleave",
)  # fmt: skip


def _refuse_options(call: str, options: dict[str, Any]) -> None:
    unknown = [name for name, value in options.items() if name not in _NO_MATTER_HERE and value is not None]
    if unknown:
        raise NotImplementedError(f"{call}({', '.join(unknown)}=...) is not simulated")
