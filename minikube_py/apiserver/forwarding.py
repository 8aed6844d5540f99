"""HTTPS to other API servers: one request, whose answer is read as it arrives, or a connection that is upgraded.

Answers pass through with backpressure: reading stops above 128 KiB that are not passed on. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import Final, NamedTuple

import aiohttp
from yarl import URL

from minikube_py.api.errors import go_quote
from minikube_py.apiserver.outgoing import DEADLINE, FrontProxy, NoAnswer, authorities, told
from minikube_py.client.connector import Connector

_BUFFER_BYTES: Final = 64 << 10
"""aiohttp stops reading above twice as much."""
_HEAD_BYTES_MAX: Final = 64 << 10
_CONNECT_S: Final = 30.0
_REFUSAL_S: Final = 10.0
"""How long the body of an answer that refuses an upgrade may take. Source: `upgradeaware.go`."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FIELD: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_STOPPED: Final = "this server is stopping"
Headers = Sequence[tuple[str, str]]


class Target(NamedTuple):
    """`address`: host and port. `name`: the one that its certificate must have. `authority`: PEM in base64; "": the
    system's."""

    address: str
    name: str
    authority: str
    insecure: bool


class Asked(NamedTuple):
    """`path` with its query, as they are sent."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""


class Opened(NamedTuple):
    """The head of an answer; the names of its headers are canonical, as Go writes them."""

    status: int
    headers: Mapping[str, Sequence[str]]
    response: aiohttp.ClientResponse

    async def body(self, most: int, timeout_s: float) -> bytes:
        """Raises: NoAnswer if it is longer, late or broken off."""
        found = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                async for part in self.parts():
                    found += part
                    if len(found) > most:
                        raise NoAnswer(f"the answer is longer than {most} bytes, which is the limit")
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None
        finally:
            self.response.close()
        return bytes(found)

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """Raises: NoAnswer if it breaks off. Ends the connection if it is not read to its end."""
        try:
            async for part in self.response.content.iter_any():
                yield part
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(str(error) or "unexpected EOF") from None
        finally:
            self.response.close()


class Forwarder:
    """Pools connections. Close it on the event loop that used it."""

    def __init__(self, proxy: FrontProxy) -> None:
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None
        self._tunnels: dict[Tunnel, None] = {}
        self._closed = False
        self._context = lru_cache(64)(self._made_context)

    def context(self, target: Target) -> ssl.SSLContext:
        """Raises: BadAuthority."""
        return self._context(target.authority, target.insecure)

    def _made_context(self, authority: str, insecure: bool) -> ssl.SSLContext:
        context = authorities(authority)
        if insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self._proxy.certificate_file is not None:
            context.load_cert_chain(self._proxy.certificate_file, self._proxy.key_file)
        return context

    async def open(self, target: Target, asked: Asked) -> Opened:
        """Raises: NoAnswer, BadAuthority."""
        if self._closed:
            raise NoAnswer(_STOPPED)
        context = self.context(target)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(limit=0), auto_decompress=False, read_bufsize=_BUFFER_BYTES,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )  # fmt: skip
        url = URL(f"https://{target.address}{asked.path}", encoded=True)
        try:
            response = await self._session.request(
                asked.method, url, headers=asked.headers, data=BytesIO(asked.body) if asked.body else None, ssl=context,
                server_hostname=target.name, allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S),
            )  # fmt: skip
        except aiohttp.ServerDisconnectedError:
            raise NoAnswer("EOF") from None
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_STOPPED if self._closed else told(error, url)) from None
        headers: dict[str, list[str]] = {}
        for name, value in response.headers.items():
            headers.setdefault(canonical(name), []).append(value)
        return Opened(response.status, headers, response)

    async def upgrade(self, target: Target, asked: Asked) -> Tunnel:
        """The head of the answer, and the connection. Raises: NoAnswer, BadAuthority."""
        context = self.context(target)
        url = URL(f"https://{target.address}", encoded=True)
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    url.host, url.port, ssl=context, server_hostname=target.name, limit=_HEAD_BYTES_MAX
                )
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None
        except (OSError, ValueError) as error:
            raise NoAnswer(told(error, url)) from None
        tunnel = Tunnel(reader, writer, self._tunnels)
        try:
            if self._closed:
                raise NoAnswer(_STOPPED)
            await tunnel.ask(asked)
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    async def close(self) -> None:
        """Ends tunnels, too."""
        self._closed = True
        for tunnel in list(self._tunnels):
            tunnel.close()
        if self._session is not None:
            await self._session.close()


class Tunnel:
    """A connection that the other server may have upgraded: `status` 101 if it has. It is in `opened` until it is
    closed."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opened: dict[Tunnel, None]
    ) -> None:
        self._reader, self._writer, self._opened = reader, writer, opened
        opened[self] = None
        self.status = 0
        self.headers: dict[str, list[str]] = {}

    async def ask(self, asked: Asked) -> None:
        """Raises: NoAnswer, also if a value would begin another header."""
        for name, value in asked.headers:
            if _CONTROLS.search(value):
                raise NoAnswer(f"net/http: invalid header field value for {go_quote(name)}")
        lines = [f"{asked.method} {asked.path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.headers)]
        self._writer.write("\r\n".join((*lines, "", "")).encode("utf-8", "replace"))
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape")
        except (asyncio.IncompleteReadError, OSError):
            raise NoAnswer("unexpected EOF") from None
        except asyncio.LimitOverrunError:
            raise NoAnswer(f"the answer's head is longer than {_HEAD_BYTES_MAX} bytes, which is the limit") from None
        first, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
        status = first.split(" ")[1:2]
        if not first.startswith("HTTP/1.") or not status or not (status[0].isascii() and status[0].isdigit()):
            raise NoAnswer(f"malformed HTTP response {first[:80]!r}")
        self.status = int(status[0])
        for line in rest:
            if (field := _FIELD.fullmatch(line)) is None:
                raise NoAnswer(f"malformed MIME header line: {line[:80]!r}")
            self.headers.setdefault(canonical(field[1]), []).append(field[2].strip())

    async def body(self, most: int) -> bytes:
        """Of an answer that refuses the upgrade. Raises: NoAnswer if it is longer, late or broken off."""
        try:
            async with asyncio.timeout(_REFUSAL_S):
                found = await self._body(most)
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None
        except (asyncio.IncompleteReadError, ValueError, OSError):
            raise NoAnswer("unexpected EOF") from None
        if len(found) > most:
            raise NoAnswer(f"the answer is longer than {most} bytes, which is the limit")
        return found

    async def _body(self, most: int) -> bytes:
        """As much of it as shows that it is too long. Raises: OSError, ValueError, IncompleteReadError."""
        found = bytearray()
        if "chunked" in "".join(self.headers.get("Transfer-Encoding", ())).lower():
            while size := int((await self._reader.readline()).partition(b";")[0], 16):
                found += await self._reader.readexactly(min(size, most + 1))
                if len(found) > most:
                    break
                await self._reader.readexactly(2)
        elif lengths := self.headers.get("Content-Length"):
            return await self._reader.readexactly(min(int(lengths[0]), most + 1))
        else:
            while len(found) <= most and (part := await self._reader.read(_BUFFER_BYTES)):
                found += part
        return bytes(found)

    async def read(self) -> bytes:
        """Empty at the end."""
        with suppress(OSError):
            return await self._reader.read(_BUFFER_BYTES)
        return b""

    async def write(self, data: bytes) -> None:
        """Raises: OSError."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._opened.pop(self, None)
        self._writer.transport.abort()


def canonical(name: str) -> str:
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))



