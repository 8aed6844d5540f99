"""An API server's outgoing HTTPS client, with a CA given per call.

A server in virtual time, or embedded in another program, has none and refuses with an error. Error texts are Go's.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import ssl
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from minikube_py.env import SystemClock

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

ANSWER_BYTES_MAX: Final = 8 << 20
RETRIES_MAX: Final = 10
"""Of an answer 429 or 5xx with Retry-After, within the time of the request; source: client-go `rest/with_retry.go`."""
DEADLINE: Final = "context deadline exceeded"
_REDIRECTS_MAX: Final = 10
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, */*"}
_UNTRUSTED: Final = frozenset((18, 19, 20, 21))
_EXPIRED: Final = frozenset((9, 10))
_FOR_OTHERS: Final = 26
_UNREAD: Final = "unexpected error when reading response body. Please retry. Original error: "
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "certificate required", "BAD_CERTIFICATE": "bad certificate",
    "CERTIFICATE_UNKNOWN": "unknown certificate", "CERTIFICATE_EXPIRED": "expired certificate",
    "UNKNOWN_CA": "unknown certificate authority", "HANDSHAKE_FAILURE": "handshake failure",
    "PROTOCOL_VERSION": "protocol version not supported", "INTERNAL_ERROR": "internal error",
    "UNRECOGNIZED_NAME": "unrecognized name", "ACCESS_DENIED": "access denied",
}  # fmt: skip
"""Go's texts of what the other side ends a handshake with. Source: crypto/tls `alert.go`."""
_BAD_AUTHORITY: Final = "unable to load root certificates: unable to parse bytes as PEM block"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class NoAnswer(Exception):
    """Why there is no answer. `url`: the one to report, if it is not that of the request."""

    def __init__(self, text: str, url: str = "") -> None:
        super().__init__(text)
        self.url = url


class NoDoor(NoAnswer):
    """This server makes no outgoing requests."""


class BrokenBody(NoAnswer):
    """An answer that ended too early."""


class BadAuthority(Exception):
    """Invalid certificates."""


class Outgoing(Protocol):
    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        """`authority`: certificates in PEM, in base64; "": the system's. `via`: host and port to connect to, if not the
        URL's. Raises: NoAnswer, BadAuthority."""
        ...

    async def close(self) -> None: ...


class Closed:
    """Refuses all requests."""

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        raise NoDoor("this API server makes no connections to other servers: it runs in virtual time or in process")

    async def close(self) -> None:
        pass


class _Sent(NamedTuple):
    """A request: `name` is the one that its certificate must have, if that is not the target's."""

    target: URL
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float
    context: ssl.SSLContext
    name: str | None


class HttpsOutgoing:
    """Pools connections. Close it on the event loop that used it."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        # Loaded on first use: it would take a fifth of startup.
        from yarl import URL

        context = _context(authority)
        target, name = URL(url, encoded=True), None
        headers = dict(_HEADERS)
        if via:
            headers["Host"], name = f"{target.host}:{target.port}", target.host
            target = URL(f"https://{via}{target.raw_path_qs}", encoded=True)
        sent = _Sent(target, headers, body, timeout_s, context, name)
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(RETRIES_MAX):
                    found = await self._answered(sent)
                    if (wait_s := _wait_s(found)) is None:
                        return found
                    await self._clock.sleep(wait_s)
                return await self._answered(sent)
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None

    async def _answered(self, sent: _Sent) -> Answer:
        import aiohttp

        for again in (True, False):
            made: list[str] = []
            try:
                return await self._post(sent, made)
            except aiohttp.ServerDisconnectedError:
                # A pooled connection was closed: retry. Who closed a fresh one may have acted on the request.
                if not again or made:
                    raise NoAnswer("EOF") from None
            except TimeoutError:
                raise NoAnswer(DEADLINE) from None
            except aiohttp.ClientPayloadError:
                raise BrokenBody(f"{_UNREAD}unexpected EOF") from None
            except (aiohttp.ClientError, OSError) as error:
                raise NoAnswer(told(error, sent.target), _last_location(error)) from None
        raise AssertionError("the second attempt returns or raises")

    async def _post(self, sent: _Sent, made: list[str]) -> Answer:
        """Adds to `made` if it makes a connection."""
        import aiohttp

        if self._session is None:
            from minikube_py.client.connector import Connector

            traced = aiohttp.TraceConfig()
            traced.on_connection_create_end.append(_note_made)
            self._session = aiohttp.ClientSession(connector=Connector(limit=0), trace_configs=[traced])
        timeout = aiohttp.ClientTimeout(total=sent.timeout_s)
        async with self._session.post(
            sent.target, data=sent.body, headers=sent.headers, ssl=sent.context, server_hostname=sent.name,
            timeout=timeout, max_redirects=_REDIRECTS_MAX, trace_request_ctx=made,
        ) as response:  # fmt: skip
            found = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                found += chunk
                if len(found) > ANSWER_BYTES_MAX:
                    raise NoAnswer(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
            return Answer(response.status, response.headers, bytes(found))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _note_made(session: object, context: Any, params: object) -> None:
    context.trace_request_ctx.append("made")


def _wait_s(answer: Answer) -> int | None:
    """None: it is not to be asked again."""
    said = answer.headers.get("Retry-After", "")
    later = answer.status == 429 or answer.status >= 500
    return int(said) if later and len(said) < 10 and said.isascii() and said.isdigit() else None


class FrontProxy(NamedTuple):
    """By which other API servers know this one, and what they need to know it and its users: PEM files (None: they do
    not know it), PEM texts of the authorities of front proxies and of clients, and the name in the certificate."""

    certificate_file: Path | None
    key_file: Path | None
    authority_pem: str = ""
    clients_pem: str = ""
    name: str = ""


@lru_cache(64)
def _context(authority: str) -> ssl.SSLContext:
    return authorities(authority)


def authorities(authority: str) -> ssl.SSLContext:
    """Trusts these certificates: PEM, in base64; "": the system's. Raises: BadAuthority."""
    if not authority:
        return ssl.create_default_context()
    try:
        text = base64.b64decode(authority).decode()
        if not text.strip():
            return ssl.create_default_context()
        return ssl.create_default_context(cadata=text)
    except (ValueError, ssl.SSLError):
        raise BadAuthority(_BAD_AUTHORITY) from None


def _last_location(error: Exception) -> str:
    import aiohttp

    return error.history[-1].headers.get("Location", "") if isinstance(error, aiohttp.TooManyRedirects) else ""


def told(error: Exception, target: URL) -> str:
    """As Go says it."""
    import aiohttp

    if isinstance(error, aiohttp.TooManyRedirects):
        return f"stopped after {_REDIRECTS_MAX} redirects"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _told_certificate(error.certificate_error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _told_certificate(cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {target.host}: no such host"
    if isinstance(cause, ConnectionRefusedError):
        host = f"[{target.host}]" if ":" in (target.host or "") else target.host
        return f"dial tcp {host}:{target.port}: connect: connection refused"
    if getattr(cause, "errno", None) == errno.ECONNRESET:
        return "read: connection reset by peer"
    if isinstance(cause, ConnectionResetError):
        return "EOF"
    if isinstance(cause, ssl.SSLError):
        if (alert := _ALERTS.get((cause.reason or "").partition("_ALERT_")[2])) is not None:
            return f"remote error: tls: {alert}"
        return "tls: first record does not look like a TLS handshake"
    return str(error) or type(error).__name__


def _told_certificate(error: Exception) -> str:
    code = getattr(error, "verify_code", 0)
    if code in _UNTRUSTED:
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if code in _EXPIRED:
        return "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"
    if code == _FOR_OTHERS:
        return "tls: failed to verify certificate: x509: certificate specifies an incompatible key usage"
    return f"tls: failed to verify certificate: x509: {getattr(error, 'verify_message', '') or error}"
