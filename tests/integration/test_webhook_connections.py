"""What connections to a webhook's server end with, in the words of kube-apiserver 1.36."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from yarl import URL

from minikube_py.apiserver import outgoing
from minikube_py.apiserver.outgoing import BrokenBody, HttpsOutgoing, NoAnswer
from minikube_py.control_plane.certificates import ensure_certificates

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\nbody")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{")
    await writer.drain()
    writer.close()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1 << 16)
    writer.close()


async def _said(folder: Path, serve: Serve, change: Callable[[ssl.SSLContext], None] | None) -> NoAnswer:
    """`change` None: no TLS."""
    made = ensure_certificates(folder)
    context = made.server_context()
    if change is not None:
        change(context)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context if change is not None else None)
    door = HttpsOutgoing()
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    try:
        with pytest.raises(NoAnswer) as caught:
            await door.post(url, base64.b64encode(made.authority_pem).decode(), b"body", 5.0)
        return caught.value
    finally:
        await door.close()
        server.close()


def _none(context: ssl.SSLContext) -> None:
    pass


async def test_an_answer_that_is_cut_is_told_without_its_address(tmp_path: Path) -> None:
    error = await _said(tmp_path, _cut, _none)
    assert isinstance(error, BrokenBody)
    assert str(error) == "unexpected error when reading response body. Please retry. Original error: unexpected EOF"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "remote error: tls: certificate required"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "remote error: tls: protocol version not supported"),
        ("WRONG_VERSION_NUMBER", "tls: first record does not look like a TLS handshake"),
    ],
)
def test_an_alert_is_told_in_gos_words(reason: str, told: str) -> None:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert outgoing.told(error, URL("https://127.0.0.1:1/x")) == told


async def test_a_handshake_that_is_not_answered_is_an_end(tmp_path: Path) -> None:
    assert str(await _said(tmp_path, _hang_up, None)) == "EOF"


async def test_what_is_no_tls_is_told(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"SSH-2.0-x\r\n")
        await writer.drain()
        writer.close()

    assert str(await _said(tmp_path, greet, None)) == "tls: first record does not look like a TLS handshake"


def test_a_certificate_for_clients_is_for_others() -> None:
    error = ssl.SSLCertVerificationError("unsuitable certificate purpose")
    error.verify_code = 26
    told = "tls: failed to verify certificate: x509: certificate specifies an incompatible key usage"
    assert outgoing._told_certificate(error) == told
