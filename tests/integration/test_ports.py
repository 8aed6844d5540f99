"""A port and those who connect to it over TLS without a word, without an end, or without sense."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
from patience import Deadline, patience

from minikube_py.control_plane.certificates import Certificates, ensure_certificates
from minikube_py.env import SystemClock
from minikube_py.ports.descriptors import PortLimits
from minikube_py.ports.port import Incoming, Port

LIMITS = PortLimits(20, waiting_max=400, waiting_per_peer_max=300, strangers_max=16, strangers_per_peer_max=8)


class Echo(asyncio.Protocol):
    """Who says `me` is authenticated; what is said comes back."""

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"me"):
            self.incoming.authenticated()
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.incoming.left()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return ensure_certificates(Path(tmp_path_factory.mktemp("pki")), ["127.0.0.1"])


@contextlib.asynccontextmanager
async def listening(certificates: Certificates, limits: PortLimits = LIMITS) -> AsyncIterator[Port]:
    port = Port("tests", Echo, limits, SystemClock(), tls=certificates.server_context())
    await port.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await port.close()


async def until(what: Callable[[], object]) -> None:
    deadline = Deadline()
    while not what():
        deadline.check(what)
        await asyncio.sleep(0.001)


def client_hello(certificates: Certificates) -> bytes:
    out = ssl.MemoryBIO()
    half = certificates.client_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    return out.read()


async def said(port: Port, *parts: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A connection without TLS of its own, on which so much was sent."""
    connection = socket.create_connection(port.address, source_address=(source, 0))
    connection.setblocking(False)
    for part in parts:
        connection.send(part)
    # The port accepts meanwhile: its queue in the kernel is not endless.
    await asyncio.sleep(0)
    return connection


async def echoed(port: Port, certificates: Certificates, text: bytes = b"me") -> asyncio.StreamWriter:
    """A sound client, once it has its answer."""
    async with patience():
        reader, writer = await asyncio.open_connection(*port.address, ssl=certificates.client_context())
        writer.write(text)
        assert await reader.readexactly(len(text)) == text
    return writer


def made(port: Port) -> int:
    """TLS buffers that this port's connections hold."""
    loop = asyncio.get_running_loop()
    protocols = (each for each in gc.get_objects() if isinstance(each, SSLProtocol))
    return sum(each._server_side and each._loop is loop for each in protocols)


async def closed(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def end_all_strangers(port: Port) -> None:
    for incoming in [each for peer in port._peers.values() for each in peer.strangers]:
        port._end(incoming, "")
    await until(lambda: not port._handshakes)


async def test_what_fails_in_a_handshake_leaves_nothing_for_the_collector(certificates: Certificates) -> None:
    """It walks what is old only rarely (store.collector): what is garbage in circles would stay."""
    hello = client_hello(certificates)
    async with listening(certificates) as port:
        gc.collect()
        gc.disable()
        try:
            for parts in ((), (b"\x16",), (hello[:100],), (hello,), (b"GET / HTTP/1.1\r\n\r\n",), (b"\0" * 100_000,)):
                for abort in (True, False):
                    writers = [await said(port, *parts) for _ in range(4)]
                    for writer in writers:
                        if abort:
                            writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        writer.close()
                    await until(lambda: not port._peers and not port._handshakes)
            stuck = [await said(port, hello) for _ in range(12)]
            await until(lambda: port.strangers_count == 8)
            for _ in range(2):
                port.sweep(port.clock.monotonic_s() + LIMITS.patience_s)
            await until(lambda: not port._waiting)
            await end_all_strangers(port)
            for writer in stuck:
                writer.close()
            await closed(await echoed(port, certificates))
            await until(lambda: not port.authenticated_count)
            for _ in range(5):
                await asyncio.sleep(0)
            assert made(port) == 0
            assert [each for each in gc.get_objects() if isinstance(each, Incoming) and each._port is port] == []
            assert port.ended["handshake"] >= 40
        finally:
            gc.enable()
            gc.collect()


async def test_a_flood_of_half_made_handshakes_holds_no_more_than_the_limit(certificates: Certificates) -> None:
    hello = client_hello(certificates)
    async with listening(certificates) as port:
        kept = [await said(port, hello) for _ in range(60)]
        await until(lambda: port.waiting_count == 60)
        assert port.strangers_count == made(port) == LIMITS.strangers_per_peer_max
        # What waits has been read no further than its first bytes.
        waiting = await said(port, hello + b"x" * 100_000)
        await until(lambda: port.waiting_count == 61)
        assert max(len(each.early) for each in port._waiting) <= 2048
        good = asyncio.create_task(echoed(port, certificates))
        await until(lambda: port.waiting_count == 62)
        port.sweep(port.clock.monotonic_s() + LIMITS.patience_s)
        await closed(await good)
        for writer in [*kept, waiting]:
            writer.close()
        await until(lambda: not port._peers)
        assert port.authenticated_count == 0 and made(port) == 0


async def test_silent_connections_delay_nobody_and_are_bounded(certificates: Certificates) -> None:
    async with listening(certificates) as port:
        known = await echoed(port, certificates)
        silent = [await said(port) for _ in range(LIMITS.waiting_per_peer_max + 50)]
        await until(lambda: port.ended["waiting_per_peer_max"] == 50)
        assert port.waiting_count == LIMITS.waiting_per_peer_max and made(port) == 1
        more = [await echoed(port, certificates) for _ in range(3)]
        assert port.authenticated_count == 4
        port.sweep(port.clock.monotonic_s() + LIMITS.handshake_s)
        await until(lambda: not port.waiting_count)
        assert port.authenticated_count == 4 and not known.transport.is_closing()
        for writer in silent:
            writer.close()
        await closed(*more, known)


async def test_one_address_cannot_keep_all_places_from_another(certificates: Certificates) -> None:
    limits = PortLimits(20, strangers_max=8, strangers_per_peer_max=8)
    hello = client_hello(certificates)
    async with listening(certificates, limits) as port:
        kept = [await said(port, hello) for _ in range(20)]
        await until(lambda: port.waiting_count == 20)
        other = await said(port, hello, source="127.0.0.2")
        await until(lambda: port.waiting_count == 21)
        port.sweep(port.clock.monotonic_s() + limits.patience_s)
        await until(lambda: len(port._peers["127.0.0.2"].strangers) == 1)
        for writer in [*kept, other]:
            writer.close()


async def test_a_burst_of_sound_clients_is_served_to_the_last(certificates: Certificates) -> None:
    limits = PortLimits(100, strangers_max=8, strangers_per_peer_max=4)
    async with listening(certificates, limits) as port:
        writers = await asyncio.gather(*(echoed(port, certificates) for _ in range(60)))
        assert port.authenticated_count == 60
        assert not port.ended["strangers_per_peer_max"]
        await closed(*writers)


async def test_who_does_not_prove_who_it_is_ends_at_its_deadline(certificates: Certificates) -> None:
    limits = PortLimits(20, proof_s=30.0)
    async with listening(certificates, limits) as port:
        stranger, known = await echoed(port, certificates, b"hello"), await echoed(port, certificates)
        port.sweep(port.clock.monotonic_s() + limits.proof_s)
        await until(lambda: not port.strangers_count)
        assert port.ended == {"proof_s": 1} and port.authenticated_count == 1
        await closed(stranger, known)


async def test_what_a_client_sends_with_its_handshake_arrives_once_and_in_order(certificates: Certificates) -> None:
    async with listening(certificates) as port:
        for size in (3, 5_000, 300_000):
            text = bytes(range(256)) * (size // 256) + b"end"
            await closed(await echoed(port, certificates, text))


async def test_a_closed_port_keeps_nothing(certificates: Certificates) -> None:
    hello = client_hello(certificates)
    async with listening(certificates) as port:
        kept = [await said(port, *parts) for parts in ((), (hello,)) for _ in range(12)]
        await until(lambda: port.waiting_count == 24)
    await until(lambda: not port._handshakes and not port._waiting)
    assert made(port) == 0
    for writer in kept:
        writer.close()
