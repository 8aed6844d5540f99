"""HTTP calls to external servers: `env.Outside` on the real network.

Errors have the texts of Go's net/http, which users know from upstream's events and logs."""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from minikube_py.api.errors import go_quote
from minikube_py.env import Answer, Tls
from minikube_py.env import read_file as read_bounded
from minikube_py.errors import Unavailable

if TYPE_CHECKING:
    import aiohttp

ANSWER_BYTES_MAX = 64 << 20
"""A larger answer is refused: Go would read it until memory runs out."""
CHUNK_BYTES = 1 << 18


class HttpOutside:
    """Connections are kept between calls. Used from one event loop."""

    def __init__(self) -> None:
        self._sessions: dict[Tls | None, aiohttp.ClientSession] = {}

    async def post(self, url: str, body: bytes, tls: Tls | None, timeout_s: float) -> Answer:
        # Imported lazily: a fifth of the start time, needed only for external calls.
        import aiohttp
        from yarl import URL

        told = f"Post {go_quote(url)}: "
        session = self._session(tls)
        timeout = aiohttp.ClientTimeout(total=timeout_s if timeout_s > 0 else None)
        server_name = tls.server_name if tls is not None and tls.server_name else None
        got_headers = False
        try:
            # Go sets no Accept header, and exactly this type.
            async with session.post(
                URL(url, encoded=True),
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=timeout,
                server_hostname=server_name,
            ) as response:
                got_headers = True
                return Answer(response.status, await _read(response, told))
        except TimeoutError:
            if got_headers:
                raise Unavailable(
                    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                ) from None
            raise Unavailable(
                f"{told}context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unavailable("unexpected EOF" if got_headers else told + _in_go(error)) from error

    def _session(self, tls: Tls | None) -> aiohttp.ClientSession:
        found = self._sessions.get(tls)
        if found is None:
            import aiohttp

            from minikube_py.client.connector import Connector

            connector = Connector(limit=0, ssl=True if tls is None else context_of(tls))
            found = self._sessions[tls] = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": "minikube-py"},
                skip_auto_headers=("Accept",),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            # A call that was received before the connection broke must not be repeated.
            found._retry_connection = False
        return found

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


async def _read(response: aiohttp.ClientResponse, told: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(CHUNK_BYTES):
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise Unavailable(f"{told}the answer is larger than {ANSWER_BYTES_MAX >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


_SYSCALLS = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
}


def _in_go(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError):
        known = _SYSCALLS.get(error.os_error.errno or 0)
        if known is None:
            return str(error.os_error)
        with suppress(OSError):
            # Go's message has the address, not the name.
            address = socket.inet_pton(socket.AF_INET, error.host) and error.host
            return f"dial tcp {address}:{error.port}: connect: {known}"
        return f"dial tcp: {error.host}:{error.port}: connect: {known}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, OSError) and error.errno == errno.ECONNRESET:
        return "read: connection reset by peer"
    return str(error) or type(error).__name__


def context_of(tls: Tls) -> ssl.SSLContext:
    """Raises: ValueError, with upstream's message if there is one."""
    if tls.authority_pem and tls.insecure:
        raise ValueError("specifying a root certificates file with the insecure flag is not allowed")
    try:
        context = ssl.create_default_context(cadata=tls.authority_pem.decode() if tls.authority_pem else None)
    except (ssl.SSLError, ValueError):
        wrong = "unable to parse bytes as PEM block"
        raise ValueError(f"unable to load root certificates: {wrong}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_pem and tls.key_pem:
        # ssl loads a certificate only from a path; the file exists only during this call, readable only by this user.
        with TemporaryDirectory() as folder:
            pem = Path(folder, "client.pem")
            pem.touch(mode=0o600)
            pem.write_bytes(tls.certificate_pem + b"\n" + tls.key_pem)
            try:
                context.load_cert_chain(pem)
            except (ssl.SSLError, ValueError):
                raise ValueError("tls: failed to find any PEM data in certificate input") from None
    return context


def read_file(name: str) -> bytes:
    """Raises: ValueError, with Go's message."""
    try:
        return read_bounded(Path(name))
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ValueError(f"open {name}: {why}") from None
