"""Validation of a request's header fields (RFC 9113, sections 8.2 and 8.3)."""

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
_PSEUDO: Final = {b":method": 1, b":scheme": 2, b":path": 4, b":authority": 8}
_NEEDED: Final = 7
ORDINARY: Final = 0
KNOWN_MAX: Final = 256


class Judge:
    """Checks whether a connection's requests are well formed. Most of their fields occurred before, and are cached."""

    def __init__(self) -> None:
        self._known: dict[Field, int] = {}
        """Valid fields: the bit of a pseudo-header's name, or ORDINARY."""

    def well_formed(self, fields: Sequence[Field]) -> bool:
        """Valid for a request other than CONNECT. Like Go's gRPC, it accepts any `te`."""
        known, seen, ordinary = self._known, 0, False
        for field in fields:
            kind = known.get(field)
            if kind is None:
                kind = _kind(*field)
                if kind is None:
                    return False
                if len(known) >= KNOWN_MAX:
                    known.clear()
                known[field] = kind
            if kind == ORDINARY:
                ordinary = True
            elif ordinary or seen & kind:
                return False
            seen |= kind
        return seen & _NEEDED == _NEEDED


def _kind(name: bytes, value: bytes) -> int | None:
    """None: it is not permitted in a request."""
    if _VALUE.fullmatch(value) is None:
        return None
    if name[:1] == b":":
        return _PSEUDO.get(name) if value or name == b":authority" else None
    return ORDINARY if _NAME.fullmatch(name) is not None and name not in _OF_CONNECTIONS else None


def trailers_well_formed(fields: Sequence[Field]) -> bool:
    return all(
        _NAME.fullmatch(name) is not None and name not in _OF_CONNECTIONS and _VALUE.fullmatch(value) is not None
        for name, value in fields
    )
