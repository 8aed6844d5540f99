"""All roles in one process and one event loop: `minikube-py up`.

Store, API server core and its HTTPS adapter; scheduler, controllers and fake kubelet reach the core straight, without
sockets or re-encoding. Started in that order, stopped in reverse.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack

from minikube_py.apiserver.auth import User
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http import HttpServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane import tokens
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.config import COMPONENTS, LOOPBACK, ControlPlaneConfig, Step
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.files import (
    Credentials,
    ensure_credentials,
    write_admin_kubeconfig,
    write_store_access,
)
from minikube_py.control_plane.listen import free_address, publish, start_http, url_of
from minikube_py.control_plane.progress import Registered, Say
from minikube_py.control_plane.running import Note
from minikube_py.control_plane.store_layout import restore_first
from minikube_py.control_plane.users import USERS, users_by_token
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.manager import ControllerManager
from minikube_py.env import Clock, Rng
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import StoreMember
from minikube_py.store.server import StoreServer
from minikube_py.store.storage import Storage

LAYOUT = "one process: store, API server, scheduler, controllers, kubelet"


class ControlPlane:
    """`step` is told of each part that became ready, `progress` how far one is that takes long. `config.seed` is the
    scheduler's alone: uids drawn from the same seed at a second start on the same folder would name two objects by one
    uid."""

    def __init__(
        self,
        config: ControlPlaneConfig,
        clock: Clock,
        rng: Rng,
        step: Step = lambda *_: None,
        progress: Say = lambda _: None,
    ) -> None:
        self.config = config
        self.layout = LAYOUT
        self.server = ""
        self.credentials: Credentials
        self.member: StoreMember
        self.core: ApiServer
        self.components: dict[str, Component] = {}
        self._clock, self._rng, self._step, self._progress = clock, rng, step, progress
        self._running = AsyncExitStack()

    @property
    def storage(self) -> Storage:
        return self.member.storage

    def transport(self, user: User = USERS[tokens.ADMIN]) -> ApiTransport:
        """Straight to the core, as `user`."""
        return InProcessTransport(self.core, user)

    async def start(self) -> str:
        """Returns the API server's URL. Raises: SetupError, DataDirBusy, Corruption, RoleFailed."""
        config, running = self.config, self._running
        running.callback(DataDir(config.data_dir).close)
        self.credentials = ensure_credentials(config)
        self._step("certificates", "")
        await self._start_store()
        await self._start_api_server()
        await self._start_components()
        running.callback(Note(config.data_dir).remove)
        return self.server

    def make_core(self, users: Mapping[str, User], rng: Rng) -> ApiServer:
        """The API server on the member's storage, before it starts."""
        return ApiServer(self.member.storage, self._clock, rng, tokens=users)

    async def stop(self) -> None:
        """In reverse order; whatever was started is ended."""
        await self._running.aclose()

    def failure(self) -> BaseException | None:
        return next(filter(None, map(failure_of, self.components.values())), None)

    def unwell(self) -> str:
        return ""

    def metrics(self) -> dict[str, float]:
        """Of the components; the API server's own, and the store's, are on its /metrics."""
        return {name: value for part in self.components.values() for name, value in part.metrics().items()}

    async def _start_store(self) -> None:
        restore_first(self.config)
        # A member that outlived its supervisor would hold this one still.
        held = DataDir(self.config.member_folder)
        self._running.callback(held.close)
        self.member = StoreMember(held.disk(), self._clock, _child(self._rng))
        await self.member.start()
        self._running.push_async_callback(self.member.stop)
        # For who looks at the store from outside: `minikube-py store status`, `snapshot save`.
        credentials = self.credentials
        token, context = credentials.by_role[tokens.STORE], credentials.certificates.server_context()
        server = StoreServer(self.member, token, LOOPBACK, 0, context)
        await server.start()
        self._running.push_async_callback(server.stop)
        write_store_access(self.config, credentials, [f"{LOOPBACK}:{server.address[1]}"])
        self._step("store", f"revision {self.member.storage.revision}")

    async def _start_api_server(self) -> None:
        config, running = self.config, self._running
        users = users_by_token(self.credentials.by_role)
        self.core = self.make_core(users, _child(self._rng))
        host, port = free_address(config.host, config.port)
        http = HttpServer(self.core, host, port, self.credentials.certificates.server_context())
        # The core ends its watches first; then the connections have nothing left to wait for.
        running.push_async_callback(http.stop)
        running.push_async_callback(self.core.stop)
        await self.core.start()
        await start_http(http, host, port)
        await publish(self.core, host, port)
        await _require_ready(self.transport())
        self.server = url_of(host, port)
        write_admin_kubeconfig(config, self.credentials, self.server)
        self._step("apiserver", self.server)

    async def _start_components(self) -> None:
        """Together: each waits for its lists only."""
        rng, clock, config = self._rng, self._clock, self.config
        ties = _child(rng) if config.seed is None else random.Random(config.seed)
        controllers = ControllerConfig(root_ca_pem=self.credentials.certificates.authority_pem.decode("ascii"))
        kubelet = KubeletConfig(nodes=config.node_specs)
        made: dict[str, Component] = {
            "scheduler": Scheduler(
                self.transport(USERS[tokens.SCHEDULER]), clock, ties, SchedulerConfig(matcher=config.matcher)
            ),
            "controllers": ControllerManager(
                self.transport(USERS[tokens.CONTROLLERS]), clock, _child(rng), config=controllers
            ),
            "kubelet": FakeKubelet(
                self.transport(USERS[tokens.KUBELET]), clock, _child(rng), kubelet, Registered(clock, self._progress)
            ),
        }
        self.components = {name: made[name] for name in COMPONENTS if name in config.components}
        for component in self.components.values():
            self._running.push_async_callback(component.stop)
        await asyncio.gather(*(self._start_component(name) for name in self.components))

    async def _start_component(self, name: str) -> None:
        await self.components[name].start()
        self._step(name, "")


def _child(rng: Rng) -> Rng:
    """A generator of its own for each part, so that what one draws does not change what another gets."""
    return random.Random(rng.getrandbits(64))


async def _require_ready(transport: ApiTransport) -> None:
    answer = await transport.request("GET", "/readyz")
    if answer.status != 200:
        text = answer.body[:500].decode(errors="replace")
        raise RoleFailed(f"the API server is not ready: /readyz answered {answer.status}: {text}")
