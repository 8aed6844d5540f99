"""Addresses to listen on: a port that is taken is reported in one line, before anything else starts."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from errno import EADDRINUSE, EADDRNOTAVAIL
from typing import TYPE_CHECKING, Protocol

from minikube_py.control_plane.config import DEFAULT_PORT, LOOPBACK
from minikube_py.control_plane.errors import SetupError
from minikube_py.ports.addresses import split_address

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

CANNOT_LISTEN = "cannot listen on"
"""How the error begins."""
ROWS_MAX = 100
HOST_FLAGS = {"--port": "--host", "--secure-port": "--bind-address"}
ANYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}


def free_address(host: str, port: int | None, flag: str = "--port") -> tuple[str, int]:
    """`port` 0: any free one; None: 6443, or any free one if that is taken. Raises: SetupError, naming `flag`."""
    try:
        return _try(host, DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == EADDRINUSE:
            return _try(host, 0)
        raise _taken(host, DEFAULT_PORT if port is None else port, flag, error) from error


def free_row(host: str, count: int, but: Collection[int] = ()) -> int:
    """The first of that many free ports in a row, with none of `but`: nobody listens there yet. Raises: OSError."""
    tried = 0
    while True:
        _, first = _try(host, 0)
        row = range(first, first + count)
        try:
            if any(port in row for port in but):
                raise OSError(EADDRINUSE, "named by a flag")
            for port in row[1:]:
                _try(host, port)
            return first
        except (OSError, OverflowError):
            tried += 1
            if tried == ROWS_MAX:
                raise


def _try(host: str, port: int) -> tuple[str, int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        # A port with only closing connections is free; one with a listener is not.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(1)
        bound: tuple[str, int] = server.getsockname()[:2]
        return bound


def _taken(host: str, port: int, flag: str, error: OSError) -> SetupError:
    reason = (error.strerror or str(error)).lower()
    flag = HOST_FLAGS.get(flag, flag) if error.errno == EADDRNOTAVAIL else flag
    return SetupError(f"{CANNOT_LISTEN} {host}:{port}: {reason}; name another with {flag}")


class Startable(Protocol):
    async def start(self) -> object: ...


async def start_http(server: Startable, host: str, port: int, flag: str = "--port") -> None:
    """Raises: SetupError if the port was taken meanwhile."""
    try:
        await server.start()
    except OSError as error:
        raise _taken(host, port, flag, error) from error


async def publish(core: ApiServer, host: str, port: int) -> None:
    """Publishes this server as the `kubernetes` service's endpoint: `host`, or if that is a loopback or wildcard
    address, which endpoints may not have, the address of the outbound interface, as upstream does. A host without one
    publishes none. To clients it names the address that it listens on."""
    given = ipaddress.ip_address(host)
    address = _outward_address() if given.is_loopback or given.is_unspecified else host
    core.address = url_of(host if given.is_loopback else address or host, port).removeprefix("https://")
    if address is not None:
        await core.publish(address, port)


def _outward_address() -> str | None:
    """The source address of a packet to another host; none is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return None
    found = ipaddress.ip_address(address)
    return None if found.is_loopback or found.is_unspecified else address


def url_of(host: str, port: int) -> str:
    """A server on all addresses is reached from here by the loopback address."""
    host = ANYWHERE.get(host, host)
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def parse_address(text: str, flag: str) -> tuple[str, int]:
    """`host:port` or `[address]:port`. Raises: SetupError."""
    found = split_address(text)
    if found is None:
        raise SetupError(f"{flag} {text}: not an address; write host:port")
    return found
