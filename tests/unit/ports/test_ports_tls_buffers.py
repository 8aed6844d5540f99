"""A server in somebody else's program leaves asyncio as it was."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

from minikube_py.ports.memory import TLS_BUFFER_BYTES, restore_tls_buffers, shrink_tls_buffers


def test_the_buffers_of_tls_are_as_before_when_the_last_server_has_stopped() -> None:
    before = SSLProtocol.max_size
    shrink_tls_buffers()
    shrink_tls_buffers()
    assert SSLProtocol.max_size == TLS_BUFFER_BYTES
    restore_tls_buffers()
    assert SSLProtocol.max_size == TLS_BUFFER_BYTES
    restore_tls_buffers()
    assert SSLProtocol.max_size == before != TLS_BUFFER_BYTES
