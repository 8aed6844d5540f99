"""Shared by the roles as processes: TLS files, and a stack of what was started."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.tls import server_context


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate and key, PEM; `clients`: the authority of client certificates."""

    certificate: Path
    key: Path
    clients: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Raises: SetupError."""
        for path, what in ((self.certificate, "certificate"), (self.key, "private key")):
            read_text(path, what)
        try:
            clients = b"" if self.clients is None else read_text(self.clients, "clients' authority").encode()
            return server_context(self.certificate, self.key, clients)
        except ssl.SSLError as error:
            raise SetupError(f"{self.certificate} and {self.key} are not a certificate and its key: {error}") from error


class StackedRole:
    """`start` puts what it begins on `running`; it is ended in reverse order."""

    def __init__(self) -> None:
        self.running = AsyncExitStack()

    async def stop(self) -> None:
        await self.running.aclose()

    def failure(self) -> BaseException | None:
        return None

    def unwell(self) -> str:
        """Why it can do nothing, as far as it knows."""
        return ""

    def metrics(self) -> Mapping[str, float]:
        """By Prometheus series."""
        return {}

    async def ready(self) -> str:
        return self.unwell()
