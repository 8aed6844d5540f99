"""The roles as separate processes, over TLS with a token each: `up --split`, `up --members 3`.

The supervisor holds the data folder, starts the store's members, API servers, then schedulers, controllers and kubelet
together, restarts children that die, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import orjson

from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import ensure_front_proxy, ensure_peer_certificate
from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig, Step
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.etcd_door import of_plane
from minikube_py.control_plane.exit_codes import DAMAGED
from minikube_py.control_plane.files import (
    Credentials,
    ensure_credentials,
    write_admin_kubeconfig,
    write_store_access,
)
from minikube_py.control_plane.kubeconfig import write_kubeconfig
from minikube_py.control_plane.listen import free_address
from minikube_py.control_plane.private_files import make_private_folder, write_private
from minikube_py.control_plane.progress import Patient, Say, say
from minikube_py.control_plane.room import require_room
from minikube_py.control_plane.running import Note
from minikube_py.control_plane.store_layout import (
    MemberPlace,
    begun_members,
    member_count,
    member_places,
    members_folder,
    restore_first,
)
from minikube_py.control_plane.supervisor import Child
from minikube_py.control_plane.users import users_by_token, write_token_auth_file
from minikube_py.env import Clock, SystemDisk, ended
from minikube_py.store.data_dir import DataDir

STORE, APISERVER = "store", "apiserver"
LED = (tokens.SCHEDULER, tokens.CONTROLLERS)
LAYOUT = "one process per role (store, API server, scheduler, controllers, kubelet), over TLS"


class SplitControlPlane:
    """`step` is called for each role that became ready, `progress` while one takes long, `say` when one ended and was
    restarted."""

    def __init__(
        self,
        config: ControlPlaneConfig,
        clock: Clock,
        step: Step = lambda *_: None,
        say: Say = say,
        progress: Say = lambda _: None,
    ) -> None:
        self.config = config
        self.layout = LAYOUT
        self.server = ""
        self.credentials: Credentials
        self._clock, self._step, self._say, self._progress = clock, step, say, progress
        self._held: DataDir | None = None
        self._note: Note | None = None
        self._children: dict[str, Child] = {}
        self._stores: list[str] = []

    async def start(self) -> str:
        """Returns the first API server's URL. Raises: SetupError, DataDirBusy, RoleFailed."""
        config = self.config
        self._held = DataDir(config.data_dir)
        count = member_count(config) if config.etcd is None else 0
        self.credentials = ensure_credentials(config)
        self._step("certificates", "")
        make_private_folder(config.roles_folder)
        host, port = free_address(config.host, config.port)
        if config.etcd is None:
            await (self._start_store() if count == 1 else self._start_members(member_places(config, count)))
        servers = await self._start_apiservers(host, port)
        self.server = servers[0]
        write_admin_kubeconfig(config, self.credentials, self.server)
        await self._start_clients(servers)
        for child in self._children.values():
            child.keep(self._say)
        self._note = Note(config.data_dir)
        return self.server

    async def stop(self) -> None:
        """In reverse order; returns when all have ended."""
        if self._note is not None:
            self._note.remove()
        for roles in ((*LED, tokens.KUBELET), (APISERVER,), (STORE,)):
            await asyncio.gather(*(child.stop() for child in self._children.values() if child.role in roles))
        if self._held is not None:
            self._held.close()
            self._held = None

    def failure(self) -> BaseException | None:
        """None: a child that ends is restarted."""
        return None

    async def ready(self) -> str:
        """Its children report for themselves."""
        return ""

    def pids(self) -> dict[str, int | None]:
        return {name: child.pid for name, child in self._children.items()}

    # --- store ------------------------------------------------------------------------------------------------------

    async def _start_store(self) -> None:
        """A single member: any free port at its first start, the same one afterwards."""
        restore_first(self.config)
        flags = ["--data-dir", str(self.config.member_folder), *self._store_secrets(), *self._etcd(0)]
        child = self._child(STORE, STORE, lambda: [*flags, "--listen", child.where or f"{LOOPBACK}:0"])
        await self._start_child(STORE)
        self._stores = [child.where]
        write_store_access(self.config, self.credentials, self._stores)

    async def _start_members(self, places: Sequence[MemberPlace]) -> None:
        """All at once: they wait for each other. If a majority has started before, the healthy ones suffice if they are
        a majority; new ones, and those that will join a restored one, are all needed.

        Raises: RoleFailed, of the first failure that leaves too few."""
        restore_first(self.config, places)
        folder = members_folder(self.config)
        begun = begun_members(self.config, places)
        if not begun:
            folder.mkdir(parents=True, exist_ok=True)
            require_room(SystemDisk(folder), self.config.reserve_bytes, len(places))
        initial = ",".join(f"{place.name}={place.peer}" for place in places)
        peer_file, peer_key_file = ensure_peer_certificate(self.config.pki_folder)
        secrets = [
            *("--peer-cert-file", str(peer_file), "--peer-key-file", str(peer_key_file)),
            *("--peer-ca-file", str(self.credentials.certificates.authority_file)),
            *("--peer-token-file", str(self.config.tokens_folder / tokens.PEER)),
        ]
        for position, place in enumerate(places):
            flags = [
                *("--name", place.name, "--data-dir", str(folder / place.name)),
                *("--listen", place.client, "--listen-peers", place.peer),
                *("--initial-cluster", initial, "--rejoin"),
                *self._store_secrets(),
                *self._etcd(position),
                *secrets,
            ]
            self._child(place.name, STORE, partial(list, flags), partial(_member_advice, folder / place.name))
        self._stores = [place.client for place in places]
        for failure in await self._start_majority([place.name for place in places], begun):
            self._say(str(failure))
        write_store_access(self.config, self.credentials, self._stores)

    async def _start_majority(self, names: Sequence[str], begun: set[str]) -> list[RoleFailed]:
        """Returns the failures that a majority can tolerate."""
        failures: list[RoleFailed] = []

        async def start(name: str) -> None:
            try:
                await self._start_child(name)
            except RoleFailed as failure:
                begun.discard(name)
                if len(begun) <= len(names) // 2:
                    raise
                failures.append(failure)

        starts = [asyncio.create_task(start(name)) for name in names]
        try:
            await asyncio.gather(*starts)
        finally:
            for task in starts:
                task.cancel()
            await ended(*starts)
        return failures

    def _store_secrets(self) -> list[str]:
        certificates = self.credentials.certificates
        return [
            *("--token-file", str(self.config.tokens_folder / tokens.STORE)),
            *("--tls-cert-file", str(certificates.server_file)),
            *("--tls-private-key-file", str(certificates.server_key_file)),
            *("--quota-bytes", str(self.config.quota_bytes), "--reserve-bytes", str(self.config.reserve_bytes)),
            *self._retention(),
            *self._structures(),
        ]

    def _retention(self) -> list[str]:
        kept_s = self.config.retain_s
        return [] if kept_s is None else ["--auto-compaction-retention", f"{math.ceil(kept_s * 1000)}ms"]

    def _structures(self) -> list[str]:
        return [word for target in self.config.structures for word in ("--structure", target)]

    def _etcd(self, position: int) -> list[str]:
        etcd = of_plane(self.config, position)
        if etcd is None:
            return []
        http = ["--listen-client-http-urls", etcd.http_urls] if etcd.http_urls else []
        return ["--listen-client-urls", etcd.urls, *http, "--trusted-ca-file", str(etcd.authority_file)]

    # --- API servers ------------------------------------------------------------------------------------------------

    async def _start_apiservers(self, host: str, port: int) -> list[str]:
        """Their URLs; the first one listens as configured, the others anywhere."""
        names = _names(APISERVER, self.config.apiservers)
        users_file = self.config.roles_folder / "users.csv"
        write_token_auth_file(users_file, users_by_token(self.credentials.by_role))
        addresses = [(host, port), *(free_address(host, 0) for _ in names[1:])]
        for at, (name, address) in enumerate(zip(names, addresses, strict=True)):
            flags = [*self._apiserver_flags(users_file, *address), *self.config.audit.of_process(at).flags()]
            self._child(name, APISERVER, partial(list, flags))
        await asyncio.gather(*(self._start_child(name) for name in names))
        return [self._children[name].where for name in names]

    def _apiserver_flags(self, users_file: Path, host: str, port: int) -> list[str]:
        certificates = self.credentials.certificates
        proxy = ensure_front_proxy(self.config.pki_folder)
        return [
            *("--bind-address", host, "--secure-port", str(port)),
            *self._store_flags(),
            *("--token-auth-file", str(users_file)),
            *("--service-account-signing-key-file", str(self.config.accounts_key_file)),
            *("--tls-cert-file", str(certificates.server_file)),
            *("--tls-private-key-file", str(certificates.server_key_file)),
            *("--client-ca-file", str(certificates.clients_file)),
            *("--proxy-client-cert-file", str(proxy.certificate)),
            *("--proxy-client-key-file", str(proxy.key)),
            *("--requestheader-client-ca-file", str(proxy.authority)),
            *(f"--enable-admission-plugins={name}" for name in self.config.enabled_plugins),
            *self._structures(),
            *self._gates(),
        ]

    def _gates(self) -> list[str]:
        on = ",".join(f"{name}=true" for name in sorted(self.config.gates))
        return ["--feature-gates", on] if on else []

    def _store_flags(self) -> list[str]:
        if self.config.etcd is not None:
            return self.config.etcd.flags()
        return [
            *("--store", ",".join(self._stores)),
            *("--store-token-file", str(self.config.tokens_folder / tokens.STORE)),
            *("--store-ca-file", str(self.credentials.certificates.authority_file)),
        ]

    # --- their clients ----------------------------------------------------------------------------------------------

    async def _start_clients(self, servers: Sequence[str]) -> None:
        """In parallel; several API servers are assigned round robin."""
        config = self.config
        counts = {tokens.SCHEDULER: config.schedulers, tokens.CONTROLLERS: config.controllers, tokens.KUBELET: 1}
        names = [
            (name, role) for role, count in counts.items() if role in config.components for name in _names(role, count)
        ]
        names += [(f"{tokens.SCHEDULER}-{name}", tokens.SCHEDULER) for name, _ in config.more_schedulers]
        for number, (name, role) in enumerate(names):
            kubeconfig = config.roles_folder / f"{name}.kubeconfig"
            write_kubeconfig(kubeconfig, self.credentials.access(servers[number % len(servers)], role), role)
            self._child(name, role, partial(list, self._client_flags(name, role, kubeconfig, servers)))
        await asyncio.gather(*(self._start_child(name) for name, _ in names))

    def _client_flags(self, name: str, role: str, kubeconfig: Path, servers: Sequence[str]) -> list[str]:
        flags = ["--kubeconfig", str(kubeconfig), "--healthz", f"{LOOPBACK}:0"]
        if role in LED:
            # The supervisor starts a successor only after the previous one has ended, so it need not wait for its
            # lease.
            flags += ["--leader-elect-identity", f"up-{name}", *self._gates()]
        if role == tokens.CONTROLLERS:
            flags += [f"--enable-controllers={name}" for name in self.config.enabled_controllers]
            certificates = self.credentials.certificates
            flags += ["--service-account-private-key-file", str(self.config.accounts_key_file)]
            flags += ["--cluster-signing-cert-file", str(certificates.clients_file)]
            flags += ["--cluster-signing-key-file", str(certificates.clients_key_file)]
        if role == tokens.SCHEDULER:
            flags += ["--matcher", self.config.matcher, *self._scheduler_flags(name)]
            if len(servers) > 1:
                flags += ["--asked-at", ",".join(servers)]
            if self.config.seed is not None:
                flags += ["--seed", str(self.config.seed)]
        if role == tokens.KUBELET:
            if not self.config.shapes:
                flags += ["--nodes", str(self.config.nodes)]
            else:
                path = self.config.roles_folder / "shapes.json"
                write_private(path, orjson.dumps([shape._asdict() for shape in self.config.shapes]))
                flags += ["--shapes", str(path)]
            for path in self.config.stages:
                flags += ["--stages", str(path)]
        return flags

    def _scheduler_flags(self, child: str) -> list[str]:
        for name, path in self.config.more_schedulers:
            if child == f"{tokens.SCHEDULER}-{name}":
                lease = ["--leader-elect-resource-name", f"kube-scheduler-{name}"]
                return [*lease, "--scheduler-name", name, *self.config.chosen._replace(file=path).flags()]
        return self.config.chosen.flags()

    # --- children ---------------------------------------------------------------------------------------------------

    def _child(
        self, name: str, role: str, flags: Callable[[], Sequence[str]], advice: Callable[[int], str] = lambda _: ""
    ) -> Child:
        log_file = self.config.roles_folder / f"{name}.log"
        child = Child(name, flags, log_file, self._clock, role=role, advice=advice)
        self._children[name] = child
        return child

    async def _start_child(self, name: str) -> None:
        """Raises: RoleFailed."""
        child = self._children[name]
        if child.role != STORE:
            self._step(name, await child.start(self._progress))
            return
        # Members waiting briefly for each other is not worth reporting.
        patient = Patient(name, self._progress)
        try:
            self._step(name, await child.start(patient))
        finally:
            patient.end()


def _names(role: str, count: int) -> list[str]:
    return [role] if count == 1 else [f"{role}-{number}" for number in range(1, count + 1)]


def _member_advice(folder: Path, code: int) -> str:
    if code != DAMAGED:
        return ""
    return (
        f"; if the other members are healthy (minikube-py store status), remove {folder}: it rejoins by itself with "
        "their data"
    )
