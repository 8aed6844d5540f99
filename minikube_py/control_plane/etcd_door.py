"""etcd's API in front of a member: its addresses, its certificate and its clients' authentication.

Clients need a certificate of the authority shared by the members; without TLS they are not authenticated, so that is
only for loopback addresses."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.control_plane.config import DEFAULT_PORT, LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.etcd_urls import parse_urls
from minikube_py.control_plane.listen import free_address, free_row, start_http
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.role import TlsFiles
from minikube_py.errors import to_install
from minikube_py.ports.addresses import join_address
from minikube_py.ports.descriptors import PROCESS

if TYPE_CHECKING:
    from minikube_py.etcd.node import AskUrls, Connect
    from minikube_py.etcd.server import EtcdServer
    from minikube_py.store.member import StoreMember

FLAG, HTTP_FLAG = "--listen-client-urls", "--listen-client-http-urls"


PROGRESS_LEAST_S = 0.1
"""etcd's minimum: shorter intervals are raised to it, as there."""
CLIENT = "etcd-client"
"""The certificate that `up` creates for etcd's clients, in its folder of keys."""


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """`urls`: of `--listen-client-urls`, separated by commas; `http_urls` of `--listen-client-http-urls`.
    `authority_file`: the authority of client certificates. `progress_s`: of `--watch-progress-notify-interval`."""

    urls: str
    tls: TlsFiles
    authority_file: Path | None
    http_urls: str = ""
    progress_s: float = 600.0

    async def start(
        self,
        member: StoreMember,
        running: AsyncExitStack,
        connect: Connect | None = None,
        ask_urls: AskUrls | None = None,
    ) -> EtcdServer:
        """Everything started ends with `running`. Raises: SetupError; MinikubeError if it cannot listen."""
        try:
            from minikube_py.etcd.grpc_server import Limits
            from minikube_py.etcd.node import Node
            from minikube_py.etcd.server import EtcdServer
        except ModuleNotFoundError as error:
            raise SetupError(f"etcd's API needs {error.name}: {to_install('etcd-api')}") from None
        secure, places = parse_urls(self.urls, FLAG)
        tls = self.context("h2") if secure else None
        limits = Limits(progress_s=max(self.progress_s, PROGRESS_LEAST_S))
        for host, port in places:
            free_address(host, port, FLAG)
        server = EtcdServer(Node(member, connect, ask_urls), places, tls, limits, PROCESS)
        await server.start()
        running.push_async_callback(server.stop)
        if self.http_urls:
            await self._start_http(server, running)
        scheme = "https" if secure else "http"
        member.client_urls = tuple([f"{scheme}://{join_address(host, port or server.port)}" for host, port in places])
        return server

    async def _start_http(self, server: EtcdServer, running: AsyncExitStack) -> None:
        """Raises: SetupError."""
        from minikube_py.etcd.http import HttpDoor

        secure, places = parse_urls(self.http_urls, HTTP_FLAG)
        context = self.context("http/1.1") if secure else None
        for host, port in places:
            door = HttpDoor(server, (host, port), context)
            await start_http(door, host, port, HTTP_FLAG)
            running.push_async_callback(door.stop)

    def context(self, *alpn: str) -> ssl.SSLContext:
        """For a port that requires client certificates; `alpn`: its protocol. Raises: SetupError."""
        assert self.authority_file is not None
        context = self.tls.context()
        context.verify_mode = ssl.CERT_REQUIRED
        authority = read_text(self.authority_file, "certificate authority of clients")
        try:
            context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise SetupError(f"{self.authority_file} is not a certificate authority: {error}") from None
        context.set_alpn_protocols(alpn)
        return context


def of_plane(config: ControlPlaneConfig, position: int = 0) -> EtcdOptions | None:
    """Of the member at `position`, with a certificate for its clients. Raises: SetupError."""
    if config.etcd_port is None:
        return None
    # cryptography is slow to import, and a single member makes no certificates.
    from minikube_py.control_plane.certificates import ensure_client_certificate

    folder = config.pki_folder
    ensure_client_certificate(folder, CLIENT)
    tls = TlsFiles(folder / "server.crt", folder / "server.key")
    url, http_url = _url(config.etcd_port, position), _url(config.etcd_http_port, position)
    return EtcdOptions(url, tls, folder / "ca.crt", http_url)


def _url(port: int | None, position: int) -> str:
    return "" if port is None else f"https://{LOOPBACK}:{port and port + position}"


def with_ports(config: ControlPlaneConfig, members: int) -> ControlPlaneConfig:
    """Port 0 becomes the first of free ones in a row, which members that start again keep. Raises: OSError."""
    named = (port for port in (config.etcd_port, config.etcd_http_port) if port)
    others = [DEFAULT_PORT if config.port is None else config.port]
    first = free_row(LOOPBACK, 2 * members, [*others, *(port + at for port in named for at in range(members))])
    if config.etcd_port == 0:
        config = replace(config, etcd_port=first)
    return config if config.etcd_http_port != 0 else replace(config, etcd_http_port=first + members)
