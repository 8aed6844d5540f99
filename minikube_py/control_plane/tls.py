"""TLS contexts of servers and clients. Apart from the making of certificates, which few processes need."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Offers HTTP/1.1 by ALPN. Raises: OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context(authority_pem: bytes) -> ssl.SSLContext:
    """Trusts this authority and nothing else. Raises: ssl.SSLError where it is no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority_pem.decode("ascii", "replace"))
    return context
