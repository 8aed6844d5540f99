"""All roles in one process and one event loop: `minikube-py up`.

Store, API server core and its HTTPS adapter; scheduler, controllers and fake kubelet call the core directly, without
sockets or re-encoding. Started in that order, stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.outgoing import HttpsOutgoing
from minikube_py.client.outside import HttpOutside
from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import ensure_front_proxy
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig, Step
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.etcd_door import of_plane
from minikube_py.control_plane.files import (
    Credentials,
    ensure_credentials,
    write_admin_kubeconfig,
    write_store_access,
)
from minikube_py.control_plane.listen import free_address, publish, start_http, url_of
from minikube_py.control_plane.plane import Plane, PlaneConfig
from minikube_py.control_plane.progress import Say
from minikube_py.control_plane.room import member_config, require_room
from minikube_py.control_plane.running import Note
from minikube_py.control_plane.stage_files import read_stages
from minikube_py.control_plane.store_layout import restore_first
from minikube_py.control_plane.tokens import read_signing_authority
from minikube_py.control_plane.users import users_by_token
from minikube_py.controllers.base import ControllerConfig
from minikube_py.env import Clock, Disk, Rng
from minikube_py.errors import MinikubeError
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.ports.descriptors import PROCESS
from minikube_py.ports.port import SHUTDOWN_TIMEOUT_S
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import Fatal, MemberConfig, exit_now
from minikube_py.store.server import StoreServer

LAYOUT = "one process: store, API server, scheduler, controllers, kubelet"


class InMemory(NamedTuple):
    """A store that ends with its process."""

    disk: Disk
    config: MemberConfig


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end, however often the caller is cancelled. Raises: what it raises; CancelledError."""
    task, cancelled = asyncio.get_running_loop().create_task(work), None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


class ControlPlane(Plane):
    """`config.seed` is only for the scheduler: uids drawn from the same seed at a second start on the same folder would
    not be unique. With `in_memory` the store is on that disk, `config.data_dir` holds only certificates and tokens, and
    the store is not reachable from outside. `fatal` is called when the store cannot continue: a command ends its
    process, a library must not."""

    grace_s = SHUTDOWN_TIMEOUT_S
    """For requests in flight when it ends."""

    def __init__(
        self,
        config: ControlPlaneConfig,
        clock: Clock,
        rng: Rng,
        step: Step = lambda *_: None,
        progress: Say = lambda _: None,
        in_memory: InMemory | None = None,
        fatal: Fatal = exit_now,
    ) -> None:
        super().__init__(clock, rng, step, progress)
        self._fatal = fatal
        self.outside = HttpOutside
        self._in_memory = in_memory
        self.config = config
        self.gates = config.gates
        self.layout = LAYOUT
        self.server = ""
        self.http: HttpServer | None = None
        self.credentials: Credentials

    async def start(self) -> str:
        """Returns the API server's URL; if it fails or is cancelled, nothing is left running or locked.

        Raises: SetupError, DataDirBusy, Corruption, RoleFailed."""
        try:
            await self._start()
        except BaseException:
            await to_its_end(self.stop())
            raise
        return self.server

    async def _start(self) -> None:
        config, running = self.config, self._running
        scheduler = read_scheduler(config.chosen, config.matcher, gates=config.gates)
        more_schedulers = {
            name: read_scheduler(config.chosen._replace(file=file), config.matcher, name=name, gates=config.gates)
            for name, file in config.more_schedulers
        }
        running.callback(DataDir(config.data_dir).close)
        self.credentials = ensure_credentials(config)
        self._step("certificates", "")
        await self._start_store()
        await self._start_api_server()
        certificates = self.credentials.certificates
        authority_pem = certificates.authority_pem.decode("ascii")
        await self.start_components(
            PlaneConfig(
                scheduler=scheduler,
                more_schedulers=more_schedulers,
                controllers=ControllerConfig(
                    gates=config.gates,
                    root_ca_pem=authority_pem,
                    signing_key=self.credentials.signing_key,
                    signing_authority=read_signing_authority(certificates.clients_file, certificates.clients_key_file),
                    enabled=config.enabled_controllers,
                ),
                kubelet=KubeletConfig(nodes=config.node_specs, stages=read_stages(config.stages)),
                components=config.components,
                ties=config.seed,
            )
        )
        if self._in_memory is None:
            running.callback(Note(config.data_dir).remove)

    async def ready(self) -> str:
        """The caller asks its API server."""
        return ""

    async def _start_store(self) -> None:
        if self._in_memory is not None:
            memory = self._in_memory
            await self.start_member(memory.disk, memory.config, fatal=self._fatal)
            self._step("store", "in memory")
            return
        if self.config.etcd is not None:
            storage = self.config.etcd.storage(self._clock)
            await self.use_storage(storage)
            try:
                await storage.start()
            except MinikubeError as error:
                raise SetupError(f"--etcd-servers {self.config.etcd.servers}: {error}") from None
            self._step("store", f"etcd at {self.config.etcd.servers}, revision {storage.revision}")
            return
        restore_first(self.config)
        # A member that outlived its supervisor would still hold this lock.
        held = DataDir(self.config.member_folder)
        self._running.callback(held.close)
        config = self.config
        room = member_config(config.quota_bytes, config.reserve_bytes, config.retain_s)
        disk = held.disk()
        require_room(disk, room.reserved_bytes)
        await self.start_member(disk, room, fatal=self._fatal)
        # For access from outside: `minikube-py store status`, `snapshot save`.
        credentials = self.credentials
        token, context = credentials.by_role[tokens.STORE], credentials.certificates.server_context()
        server = StoreServer(self.member, token, LOOPBACK, 0, context, descriptors=PROCESS)
        await server.start()
        self._running.push_async_callback(server.stop)
        write_store_access(self.config, credentials, [f"{LOOPBACK}:{server.address[1]}"])
        if (etcd := of_plane(self.config)) is not None:
            door = await etcd.start(self.member, self._running)
            self._step("etcd", f"https://{LOOPBACK}:{door.port}")
        self._step("store", f"revision {self.member.storage.revision}")

    async def _start_api_server(self) -> None:
        config = self.config
        host, port = free_address(config.host, config.port)
        self.enabled_plugins = config.enabled_plugins
        self.prepare_core(users_by_token(self.credentials.by_role), self.credentials.signing_key)
        self.core.webhook_caller.outgoing = HttpsOutgoing()
        proxy = ensure_front_proxy(config.pki_folder)
        self.core.services.pass_on(proxy.read(self.credentials.certificates.clients_file))
        self.core.auditor = config.audit.auditor(self._clock, self._child, self.core.limits.request_timeout_s)
        http = self.http = HttpServer(self.core, host, port, self.credentials.certificates.api_context())
        http.grace_s = self.grace_s
        # Ended after the core, which first ends its watches, so the connections have nothing left to wait for.
        self._running.push_async_callback(http.stop)
        await self.start_core()
        await start_http(http, host, port)
        await publish(self.core, host, port)
        self.server = url_of(host, port)
        write_admin_kubeconfig(config, self.credentials, self.server)
        self._step("apiserver", self.server)
        if shortage := PROCESS.shortage():
            self._step("connections", shortage)
