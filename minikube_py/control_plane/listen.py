"""Sockets to listen on, opened before anything else, so that a taken port is told at once and in one line."""

from __future__ import annotations

import socket

from minikube_py.control_plane.config import DEFAULT_PORT
from minikube_py.control_plane.errors import SetupError

BACKLOG = 1024


def listen(host: str, port: int | None, flag: str = "--port") -> socket.socket:
    """`port` 0: any free one; None: 6443, or any free one where that is taken. Raises: SetupError, naming `flag`."""
    try:
        return _open(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _open(host, 0)
        reason = (error.strerror or str(error)).lower()
        raise SetupError(f"cannot listen on {host}:{port}: {reason}; name another with {flag}") from error
    except OverflowError as error:
        raise SetupError(f"cannot listen on {host}:{port}: a port is 0 to 65535; name another with {flag}") from error


def _open(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port whose connections are only dying out is free; one that somebody listens on is not.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(BACKLOG)
        server.setblocking(False)
    except BaseException:
        server.close()
        raise
    return server


def address_of(server: socket.socket) -> tuple[str, int]:
    host, port = server.getsockname()[:2]
    return host, port


def url_of(server: socket.socket) -> str:
    host, port = address_of(server)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def parse_address(text: str, flag: str) -> tuple[str, int]:
    """`host:port` or `[address]:port`. Raises: SetupError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SetupError(f"{flag} {text}: not an address; write host:port")
    return host.strip("[]"), int(port)
