"""The HTTPS transport where servers misbehave: what is refused, what is unknown, what is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from api_targets import our_core, served
from patience import until
from ports import free_ports

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.informer import Informer
from minikube_py.client.kubeconfig import ClusterAccess
from minikube_py.client.rest import CONFIG_MAPS, RestClient
from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.env import SystemClock
from minikube_py.errors import OutcomeUnknown, Unavailable

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Script:
    """A server that answers each request by what `answers` gives next: bytes to send (None: none), then whether to hang
    up. `requests` are the request lines seen."""

    def __init__(self, answers: list[tuple[bytes | None, bool]]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head.split(" HTTP")[0])
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.split(":")[1]))
                answer, hang_up = self.answers.pop(0) if self.answers else (OK, False)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
                if hang_up:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*answers: tuple[bytes | None, bool], **options: Any) -> AsyncIterator[tuple[Script, HttpTransport]]:
    script = Script(list(answers))
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(ClusterAccess(f"http://127.0.0.1:{port}", token="t"), **options)
    try:
        yield script, transport
    finally:
        await transport.close()
        server.close()
        for writer in script.writers:
            writer.close()
        await server.wait_closed()


async def test_nobody_listens_so_nothing_was_done() -> None:
    other = HttpTransport(ClusterAccess("http://127.0.0.1:9"))
    for method in ("GET", "POST"):
        with pytest.raises(Unavailable):
            await other.request(method, "/x", None, b"{}")
    with pytest.raises(Unavailable):
        async for _ in other.watch("/x"):
            pass
    await other.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_whose_answer_is_lost_is_unknown_and_not_sent_again(method: str) -> None:
    async with scripted((OK, False), (None, True)) as (script, transport):
        await transport.request("GET", "/warm")
        with pytest.raises(OutcomeUnknown):
            await transport.request(method, "/x", None, b"{}")
        assert script.requests == ["GET /warm", f"{method} /x"]


async def test_a_read_whose_answer_is_lost_is_sent_once_more() -> None:
    async with scripted((None, True)) as (script, transport):
        assert (await transport.request("GET", "/x")).status == 200
        assert script.requests == ["GET /x", "GET /x"]


async def test_a_read_that_fails_twice_is_unavailable() -> None:
    async with scripted((None, True), (None, True)) as (_, transport):
        with pytest.raises(Unavailable):
            await transport.request("GET", "/x")


async def test_half_an_answer_is_no_answer() -> None:
    async with scripted((OK[:-1], True)) as (_, transport):
        with pytest.raises(OutcomeUnknown):
            await transport.request("POST", "/x", None, b"{}")


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with scripted((None, False), timeout_s=1.0) as (_, transport):
        with pytest.raises(OutcomeUnknown):
            await transport.request("POST", "/x", None, b"{}")


async def test_an_answer_that_is_no_status_is_an_error_all_the_same() -> None:
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<bad>"
    async with scripted((page, False), (page, False)) as (_, transport):
        with pytest.raises(StatusError, match="the server answered 502: <bad>"):
            await RestClient(transport).get(CONFIG_MAPS, "x", "a")
        ((event,),) = [batch async for batch in transport.watch("/x")]
        assert event.type == "ERROR" and b"<bad>" in event.object


async def test_queries_and_names_arrive_as_they_are_meant() -> None:
    async with scripted() as (script, transport):
        await transport.request("GET", "/x%2Fy", {"fieldSelector": "a=b,c!=d e+f&g"})
        (request,) = script.requests
        path, _, query = request.removeprefix("GET ").partition("?")
        assert path == "/x%2Fy" and parse_qs(query) == {"fieldSelector": ["a=b,c!=d e+f&g"]}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LINES = b"".join(b'{"type":"ADDED","object":{"metadata":{"name":"n%d"}}}\n' % number for number in range(3))
SPLITS: dict[str, Callable[[bytes], list[bytes]]] = {
    "at once": lambda data: [data],
    "byte by byte": lambda data: [data[i : i + 1] for i in range(len(data))],
    "in the middle of lines": lambda data: [data[:70], data[70:75], data[75:]],
    "without the last newline's chunk": lambda data: [data[:-1], b"\n"],
}


@pytest.mark.parametrize("split", SPLITS)
async def test_events_come_whole_however_they_are_cut(split: str) -> None:
    body = b"".join(chunk(piece) for piece in SPLITS[split](LINES)) + chunk(b"")[:-2] + b"\r\n"
    async with scripted((CHUNKED + body, False)) as (_, transport):
        events = [event async for batch in transport.watch("/x") for event in batch]
        assert [event.object for event in events] == [b'{"metadata":{"name":"n%d"}}' % n for n in range(3)]


async def test_a_watch_that_breaks_off_is_unavailable_after_its_whole_events() -> None:
    body = chunk(LINES + b'{"type":"ADDED","obj')
    async with scripted((CHUNKED + body, True)) as (_, transport):
        seen = 0
        with pytest.raises(Unavailable):
            async for batch in transport.watch("/x"):
                seen += len(batch)
        assert seen == 3


async def test_a_watch_that_is_left_closes_its_connection() -> None:
    async with scripted((CHUNKED + chunk(LINES), False)) as (script, transport):
        async for _ in transport.watch("/x"):
            break
        await until(lambda: asyncio.sleep(0, script.writers[0].is_closing()), "the server sees it go")


@dataclass(frozen=True, slots=True)
class View:
    uid: str
    version: str


def project(obj: dict[str, Any]) -> View:
    return View(obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])


async def test_an_informer_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    async with our_core(tmp_path) as core:
        [port] = free_ports(1)
        async with served(core, tmp_path, port) as access:
            transport = HttpTransport(access)
            client = RestClient(transport)
            informer: Informer[View] = Informer(
                client, CONFIG_MAPS, project, clock=SystemClock(), rng=random.Random(1)
            )
            informer.start()
            await informer.wait_synced()
            await client.create(CONFIG_MAPS, {"metadata": {"name": "before"}}, "default")

        async def told() -> bool:
            return informer.stats.errors > 0

        await until(told, "it noticed")
        async with served(core, tmp_path, port):
            await client.create(CONFIG_MAPS, {"metadata": {"name": "after"}}, "default")

            async def complete() -> bool:
                return set(informer.store.keys()) >= {"default/before", "default/after"}

            await until(complete, "it caught up")
            assert informer.stats.lists == 1
            await informer.stop()
            await transport.close()


async def test_a_wrong_token_and_an_unknown_authority(tmp_path: Path) -> None:
    async with our_core(tmp_path) as core, served(core, tmp_path) as access:
        wrong = HttpTransport(ClusterAccess(access.server, ca_pem=access.ca_pem, token="wrong"))
        with pytest.raises(StatusError) as refused:
            await RestClient(wrong).list(CONFIG_MAPS)
        assert refused.value.code == 401
        await wrong.close()
        stranger = HttpTransport(ClusterAccess(access.server, token=access.token))
        with pytest.raises(Unavailable, match="certificate"):
            await stranger.request("POST", "/api/v1/namespaces")
        await stranger.close()


class Mute:
    """A TLS server in a thread that reads requests, and neither answers nor says goodbye."""

    def __init__(self, folder: Path) -> None:
        self.certificates = ensure_certificates(folder, ["127.0.0.1"])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.read: queue.Queue[bytes] = queue.Queue()
        self._held: list[ssl.SSLSocket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        context = self.certificates.server_context()
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self._listening.accept()
                self._held.append(context.wrap_socket(raw, server_side=True))
                self.read.put(self._held[-1].recv(1 << 16))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for held in self._held:
            held.close()

    def clients(self) -> int:
        """How many sockets of this process are open towards it."""
        found = 0
        for each in gc.get_objects():
            with contextlib.suppress(OSError):
                found += isinstance(each, socket.socket) and each.getpeername() == ("127.0.0.1", self.port)
        return found


@pytest.mark.parametrize("how", ["cancelled", "timed out", "watch cancelled", "given up while the session closes"])
async def test_no_socket_outlives_a_transport_whatever_its_server_says(how: str, tmp_path: Path) -> None:
    mute = Mute(tmp_path)
    try:
        access = ClusterAccess(f"https://127.0.0.1:{mute.port}", mute.certificates.authority_pem, token="t")
        transport = HttpTransport(access, timeout_s=0.5 if how == "timed out" else 60.0)
        asking = transport.watch("/x") if how.startswith("watch") else None
        task = asyncio.ensure_future(anext(asking) if asking is not None else transport.request("GET", "/x"))
        await asyncio.to_thread(mute.read.get, timeout=10)
        assert mute.clients() > 0
        if how == "timed out":
            with pytest.raises(Unavailable):
                await task
        elif how != "given up while the session closes":
            task.cancel()
            await asyncio.wait([task])
        await transport.close()
        assert mute.clients() == 0
        await asyncio.wait([task])
        task.cancelled() or task.exception()
    finally:
        await asyncio.to_thread(mute.close)
