"""The roles as processes of their own, over TLS with a token each: `up --split`.

The supervisor holds the data folder, starts store, API server, then scheduler, controllers and kubelet together,
starts again what dies, and stops them in reverse order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import orjson

from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig, Step
from minikube_py.control_plane.files import Credentials, ensure_credentials, write_admin_kubeconfig
from minikube_py.control_plane.kubeconfig import write_kubeconfig
from minikube_py.control_plane.listen import free_address
from minikube_py.control_plane.private_files import make_private_folder, write_private
from minikube_py.control_plane.progress import Say
from minikube_py.control_plane.supervisor import Child
from minikube_py.control_plane.users import users_by_token, write_token_auth_file
from minikube_py.env import Clock
from minikube_py.store.data_dir import DataDir

STORE, APISERVER = "store", "apiserver"
CLIENTS = (tokens.SCHEDULER, tokens.CONTROLLERS, tokens.KUBELET)
LED = (tokens.SCHEDULER, tokens.CONTROLLERS)
LAYOUT = "one process per role (store, API server, scheduler, controllers, kubelet), over TLS"


class SplitControlPlane:
    """`step` is told of each role that became ready, `progress` how far one is that takes long, `say` of each that
    ended and came back."""

    def __init__(
        self,
        config: ControlPlaneConfig,
        clock: Clock,
        step: Step = lambda *_: None,
        say: Say = print,
        progress: Say = lambda _: None,
    ) -> None:
        self.config = config
        self.layout = LAYOUT
        self.server = ""
        self.credentials: Credentials
        self._clock, self._step, self._say, self._progress = clock, step, say, progress
        self._held: DataDir | None = None
        self._children: dict[str, Child] = {}

    async def start(self) -> str:
        """Returns the API server's URL. Raises: SetupError, DataDirBusy, RoleFailed."""
        self._held = DataDir(self.config.data_dir)
        self.credentials = ensure_credentials(self.config)
        self._step("certificates", "")
        make_private_folder(self.config.roles_folder)
        host, port = free_address(self.config.host, self.config.port)
        await self._start(STORE, self._store_flags())
        await self._start(APISERVER, self._apiserver_flags(host, port))
        self.server = self._children[APISERVER].where
        write_admin_kubeconfig(self.config, self.credentials, self.server)
        for role in CLIENTS:
            write_kubeconfig(self._kubeconfig(role), self.credentials.access(self.server, role), role)
        wanted = [role for role in CLIENTS if role in self.config.components]
        await asyncio.gather(*(self._start(role, self._client_flags(role)) for role in wanted))
        for child in self._children.values():
            child.keep(self._say)
        return self.server

    async def stop(self) -> None:
        """In reverse order; returns when all have ended."""
        children = self._children
        await asyncio.gather(*(children[role].stop() for role in CLIENTS if role in children))
        for role in (APISERVER, STORE):
            if role in children:
                await children[role].stop()
        if self._held is not None:
            self._held.close()
            self._held = None

    def failure(self) -> BaseException | None:
        """None: a child that ends is started again."""
        return None

    def unwell(self) -> str:
        return ""

    def pids(self) -> dict[str, int | None]:
        return {name: child.pid for name, child in self._children.items()}

    async def _start(self, name: str, flags: Sequence[str]) -> None:
        log_file = self.config.roles_folder / f"{name}.log"
        child = Child(name, lambda: self._flags_now(name, flags), log_file, self._clock)
        self._children[name] = child
        self._step(name, await child.start(self._progress))

    def _flags_now(self, name: str, flags: Sequence[str]) -> list[str]:
        """The store's port, any free one at its first start, is the same at the next ones."""
        if name != STORE:
            return list(flags)
        return [*flags, "--listen", self._children[STORE].where or f"{LOOPBACK}:0"]

    def _store_flags(self) -> list[str]:
        certificates = self.credentials.certificates
        return [
            *("--data-dir", str(self.config.member_folder)),
            *("--token-file", str(self.config.tokens_folder / tokens.STORE)),
            *("--tls-cert-file", str(certificates.server_file)),
            *("--tls-private-key-file", str(certificates.server_key_file)),
        ]

    def _apiserver_flags(self, host: str, port: int) -> list[str]:
        certificates = self.credentials.certificates
        users_file = self.config.roles_folder / "users.csv"
        write_token_auth_file(users_file, users_by_token(self.credentials.by_role))
        return [
            *("--bind-address", host, "--secure-port", str(port)),
            *("--store", self._children[STORE].where),
            *("--store-token-file", str(self.config.tokens_folder / tokens.STORE)),
            *("--store-ca-file", str(certificates.authority_file)),
            *("--token-auth-file", str(users_file)),
            *("--tls-cert-file", str(certificates.server_file)),
            *("--tls-private-key-file", str(certificates.server_key_file)),
        ]

    def _client_flags(self, role: str) -> list[str]:
        flags = ["--kubeconfig", str(self._kubeconfig(role))]
        if role in LED:
            # The supervisor starts the next one only when the one before has ended: it need not wait for its lease.
            flags += ["--leader-elect-identity", f"up-{role}"]
        if role == tokens.SCHEDULER and self.config.seed is not None:
            flags += ["--seed", str(self.config.seed)]
        if role == tokens.KUBELET:
            flags += ["--nodes", str(self.config.nodes)]
            if self.config.shapes:
                path = self.config.roles_folder / "shapes.json"
                write_private(path, orjson.dumps([shape._asdict() for shape in self.config.shapes]))
                flags += ["--shapes", str(path)]
        return flags

    def _kubeconfig(self, role: str) -> Path:
        return self.config.roles_folder / f"{role}.kubeconfig"
