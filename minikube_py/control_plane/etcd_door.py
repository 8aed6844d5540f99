"""etcd's API in front of a member: where it listens, what it shows and whom it lets in.

Whoever connects shows a certificate of the authority that the members share; without TLS nobody does, so that is for
loopback addresses alone."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from minikube_py.control_plane.certificates import ensure_client_certificate
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.listen import free_address
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.role import TlsFiles

if TYPE_CHECKING:
    from minikube_py.etcd.node import Connect
    from minikube_py.etcd.server import EtcdServer
    from minikube_py.store.member import StoreMember

FLAG = "--listen-client-urls"


CLIENT = "etcd-client"
"""The certificate that `up` makes for etcd's clients, in its folder of keys."""


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """`urls`: of `--listen-client-urls`, with commas. `authority_file`: who signs what clients show."""

    urls: str
    tls: TlsFiles
    authority_file: Path | None

    async def start(self, member: StoreMember, connect: Connect | None) -> EtcdServer:
        """Raises: SetupError; MinikubeError where it cannot listen."""
        try:
            from minikube_py.etcd.node import Node
            from minikube_py.etcd.server import EtcdServer, Tls
        except ModuleNotFoundError as error:
            raise SetupError(f"{FLAG} needs {error.name}: pip install 'minikube_py[etcd]'") from None
        secure, places = parse_urls(self.urls)
        tls = None
        if secure:
            assert self.authority_file is not None
            certificate, key, authority = [
                read_text(path, what).encode()
                for path, what in (
                    (self.tls.certificate, "certificate"),
                    (self.tls.key, "private key"),
                    (self.authority_file, "certificate authority of clients"),
                )
            ]
            tls = Tls(certificate, key, authority)
        for host, port in places:
            free_address(host, port, FLAG)
        server = EtcdServer(Node(member, connect), [f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in places], tls)
        await server.start()
        return server


def of_plane(config: ControlPlaneConfig, position: int = 0) -> EtcdOptions | None:
    """Of the member at `position`, with a certificate for its clients. Raises: SetupError."""
    if config.etcd_port is None:
        return None
    folder = config.pki_folder
    ensure_client_certificate(folder, CLIENT)
    port = config.etcd_port and config.etcd_port + position
    tls = TlsFiles(folder / "server.crt", folder / "server.key")
    return EtcdOptions(f"https://{LOOPBACK}:{port}", tls, folder / "ca.crt")


def parse_urls(text: str) -> tuple[bool, Sequence[tuple[str, int]]]:
    """Whether they are https, and the places. Raises: SetupError."""
    schemes, places = set(), []
    for item in filter(None, (part.strip() for part in text.split(","))):
        url = urlsplit(item)
        try:
            port = url.port
        except ValueError:
            port = None
        if url.scheme not in ("http", "https") or not url.hostname or port is None or url.path.strip("/"):
            raise SetupError(f"{FLAG} {item!r}: write https://HOST:PORT, several with commas between")
        if url.scheme == "http" and not _is_loopback(url.hostname):
            raise SetupError(f"{FLAG} {item!r}: without TLS there is no telling who asks; only a loopback address may")
        schemes.add(url.scheme)
        places.append((url.hostname, port))
    if len(schemes) != 1:
        raise SetupError(f"{FLAG} {text!r}: names no URL, or http and https together")
    return schemes == {"https"}, places


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
