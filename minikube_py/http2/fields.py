"""Which header fields make a request (RFC 9113, section 8.2 and 8.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from minikube_py.http2.hpack import Field

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?:[^\x00\r\n\t ](?:[^\x00\r\n]*[^\x00\r\n\t ])?)?")
_OF_CONNECTIONS: Final = frozenset(
    [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"]
)
_PSEUDO: Final = frozenset([b":method", b":scheme", b":path", b":authority"])


def well_formed(fields: Sequence[Field]) -> bool:
    """Those of a request that is no CONNECT. As Go's gRPC, it takes any `te`."""
    found: dict[bytes, bytes] = {}
    ordinary = False
    for name, value in fields:
        if name[:1] == b":":
            if ordinary or name not in _PSEUDO or name in found:
                return False
            found[name] = value
        else:
            ordinary = True
            if _NAME.fullmatch(name) is None or name in _OF_CONNECTIONS:
                return False
        if _VALUE.fullmatch(value) is None:
            return False
    return bool(found.get(b":method")) and bool(found.get(b":scheme")) and bool(found.get(b":path"))


def trailers_well_formed(fields: Sequence[Field]) -> bool:
    return all(
        _NAME.fullmatch(name) is not None and name not in _OF_CONNECTIONS and _VALUE.fullmatch(value) is not None
        for name, value in fields
    )
