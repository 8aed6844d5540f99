"""Each role as it runs in a process of its own: store, API server, scheduler, controllers, kubelet.

The API server reaches the store, and the others the API server, over TLS with a token of their own.
"""

from __future__ import annotations

import random
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.tls import server_context
from minikube_py.control_plane.tokens import read_token
from minikube_py.env import SystemClock
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import StoreMember
from minikube_py.store.server import StoreServer


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate and key, PEM."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Raises: SetupError."""
        for path, what in ((self.certificate, "certificate"), (self.key, "private key")):
            read_text(path, what)
        try:
            return server_context(self.certificate, self.key)
        except ssl.SSLError as error:
            raise SetupError(f"{self.certificate} and {self.key} are not a certificate and its key: {error}") from error


class _Role:
    """What was started is put on a stack, and taken off it in reverse order."""

    def __init__(self) -> None:
        self._running = AsyncExitStack()

    async def stop(self) -> None:
        await self._running.aclose()


class StoreRole(_Role):
    """A store member and its server. `listen_on` is `host:port`, port 0 for any free one."""

    def __init__(self, data_dir: Path, listen_on: str, token_file: Path, tls: TlsFiles) -> None:
        super().__init__()
        self._data_dir, self._listen_on, self._token_file, self._tls = data_dir, listen_on, token_file, tls

    async def start(self) -> str:
        """Raises: SetupError, DataDirBusy, Corruption; MinikubeError where the address cannot be had."""
        host, port = parse_address(self._listen_on, "--listen")
        token, context = read_token(self._token_file), self._tls.context()
        held = DataDir(self._data_dir)
        self._running.callback(held.close)
        member = StoreMember(held.disk(), SystemClock(), random.Random())
        await member.start()
        self._running.push_async_callback(member.stop)
        server = StoreServer(member, token, host, port, context)
        await server.start()
        self._running.push_async_callback(server.stop)
        host, port = server.address
        return f"{host}:{port}"
