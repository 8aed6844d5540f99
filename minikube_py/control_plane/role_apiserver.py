"""`minikube-py apiserver`: the API server in a process of its own, on a store reached over TLS."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http import HttpServer
from minikube_py.control_plane.listen import free_address, parse_address, publish, start_http, url_of
from minikube_py.control_plane.role import StackedRole, TlsFiles, trusting
from minikube_py.control_plane.tokens import read_token
from minikube_py.control_plane.users import read_token_auth_file
from minikube_py.env import SystemClock
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """`address` is `host:port`."""

    address: str
    token_file: Path
    authority_file: Path

    def endpoint(self) -> Endpoint:
        """Raises: SetupError."""
        host, port = parse_address(self.address, "--store")
        return Endpoint(host, port, read_token(self.token_file), trusting(self.authority_file))


class ApiServerRole(StackedRole):
    def __init__(self, store: StoreAccess, host: str, port: int, users_file: Path, tls: TlsFiles) -> None:
        super().__init__()
        self._store, self._host, self._port, self._users_file, self._tls = store, host, port, users_file, tls

    async def start(self) -> str:
        """Raises: SetupError, Unavailable where the store does not answer."""
        users, context = read_token_auth_file(self._users_file), self._tls.context()
        clock = SystemClock()
        storage = StoreClient(self._store.endpoint(), clock, random.Random())
        host, port = free_address(self._host, self._port, "--secure-port")
        await storage.start()
        self.running.push_async_callback(storage.close)
        core = ApiServer(storage, clock, random.Random(), tokens=users)
        http = HttpServer(core, host, port, context)
        # The core ends its watches first; then the connections have nothing left to wait for.
        self.running.push_async_callback(http.stop)
        self.running.push_async_callback(core.stop)
        await core.start()
        await start_http(http, host, port, "--secure-port")
        await publish(core, host, port)
        return url_of(host, port)
