"""TLS contexts of servers, clients and peers. Separate from creating certificates, which few processes need."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(certificate: Path, key: Path, clients_pem: bytes = b"") -> ssl.SSLContext:
    """Offers HTTP/1.1 by ALPN. `clients_pem`: the authority of client certificates, which are optional; one of another
    authority is refused. Raises: OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if clients_pem:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=clients_pem.decode("ascii", "replace"))
    return context


def client_context(authority_pem: bytes) -> ssl.SSLContext:
    """Trusts only this authority. Raises: ssl.SSLError if it is not a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority_pem.decode("ascii", "replace"))
    return context


def peer_server_context(certificate: Path, key: Path, authority_pem: bytes) -> ssl.SSLContext:
    """Requires a client certificate of this authority. Raises: OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # No session resumption: a link lasts as long as both its ends.
    context.num_tickets = 0
    return _of_peers(context, certificate, key, authority_pem)


def peer_client_context(certificate: Path, key: Path, authority_pem: bytes) -> ssl.SSLContext:
    """Has a client certificate, and checks the peer's authority and name. Raises: OSError, ssl.SSLError."""
    return _of_peers(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key, authority_pem)


def _of_peers(context: ssl.SSLContext, certificate: Path, key: Path, authority_pem: bytes) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(cadata=authority_pem.decode("ascii", "replace"))
    return context
