"""`minikube-py apiserver`: the API server as a separate process, with a store reached over TLS."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minikube_py.api.errors import StatusError
from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.registry import registry_of
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.outgoing import HttpsOutgoing
from minikube_py.control_plane.auditing import NO_AUDIT, Auditing
from minikube_py.control_plane.certificates import NO_PROXY, ProxyFiles
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.control_plane.listen import free_address, publish, start_http, url_of
from minikube_py.control_plane.progress import say
from minikube_py.control_plane.role import StackedRole, TlsFiles
from minikube_py.control_plane.store_access import access_by_files
from minikube_py.control_plane.tokens import read_signing_key
from minikube_py.control_plane.users import read_token_auth_file
from minikube_py.control_plane.waiting import when_available
from minikube_py.env import Clock, SystemClock
from minikube_py.ports.descriptors import PROCESS
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint
from minikube_py.store.storage import Storage


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """`addresses`: `host:port` of the members, separated by commas."""

    addresses: str
    token_file: Path
    authority_file: Path

    def endpoints(self) -> list[Endpoint]:
        """Raises: SetupError."""
        return access_by_files(self.addresses, self.token_file, self.authority_file, "--store").endpoints()

    def storage(self, clock: Clock) -> StoreClient:
        """Not started. Raises: SetupError."""
        return StoreClient(self.endpoints(), clock, random.Random())


class ApiServerRole(StackedRole):
    def __init__(
        self,
        store: StoreFiles | EtcdBehind,
        host: str,
        port: int,
        users_file: Path,
        key_file: Path,
        tls: TlsFiles,
        limits: Limits | None = None,
        enabled_plugins: Sequence[str] = (),
        gates: FeatureGates = NO_GATES,
        audit: Auditing = NO_AUDIT,
        proxy: ProxyFiles = NO_PROXY,
    ) -> None:
        """`audit`: of requests. `key_file`: of the key that signs the tokens of service accounts."""
        super().__init__()
        self._key_file, self._enabled_plugins = key_file, enabled_plugins
        self._gates, self._audit, self._proxy = gates, audit, proxy
        self._limits = limits or Limits()
        self._store, self._host, self._port, self._users_file, self._tls = store, host, port, users_file, tls
        self._core: ApiServer | None = None

    async def start(self) -> str:
        """Waits for a store that is not up, or has no leader. Raises: SetupError, Unavailable if the store is lost
        meanwhile; MinikubeError if it refuses."""
        users, context = read_token_auth_file(self._users_file), self._tls.context()
        key, proxy = read_signing_key(self._key_file), self._proxy.read(self._tls.clients)
        clock = SystemClock()
        host, port = free_address(self._host, self._port, "--secure-port")

        async def connected() -> Storage:
            client = self._store.storage(clock)
            try:
                await client.start()
                await client.get(b"/registry/")
            except BaseException:
                await client.close()
                raise
            return client

        storage = await when_available(connected, "the store", clock, random.Random(), say)
        self.running.push_async_callback(storage.close)
        limits = self._limits
        core = ApiServer(
            storage,
            clock,
            random.Random(),
            tokens=users,
            limits=limits,
            registry=registry_of(self._gates),
            outgoing=HttpsOutgoing(),
            signing_key=key,
            enabled_plugins=self._enabled_plugins,
        )
        core.services.pass_on(proxy)
        core.auditor = self._audit.auditor(clock, random.Random, limits.request_timeout_s)
        http = HttpServer(core, host, port, context)
        # The core first ends its watches; then the connections have nothing left to wait for.
        self.running.push_async_callback(http.stop)
        self.running.push_async_callback(core.stop)
        await core.start()
        self._core = core
        await start_http(http, host, port, "--secure-port")
        if shortage := PROCESS.shortage():
            say(shortage)
        await publish(core, host, port)
        return url_of(host, port)

    def metrics(self) -> Mapping[str, float]:
        return {} if self._core is None else self._core.metrics()

    def unwell(self) -> str:
        """Why requests would be refused."""
        return "" if self._core is None or self._core.ready else "its watch caches are not up to date with the store"

    async def ready(self) -> str:
        if self._core is None or (why := self.unwell()):
            return why if self._core is not None else "it is starting"
        try:
            await self._core.store.current_revision()
        except StatusError as error:
            return error.message
        return ""
