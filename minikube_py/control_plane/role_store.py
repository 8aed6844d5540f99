"""`minikube-py store`: a store member, its links and its server as a separate process."""

from __future__ import annotations

import asyncio
import random
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.control_plane.errors import Dismissed, SetupError
from minikube_py.control_plane.etcd_door import EtcdOptions
from minikube_py.control_plane.linked_member import LinkedMember, PeerPort
from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.progress import say
from minikube_py.control_plane.role import StackedRole, TlsFiles
from minikube_py.control_plane.room import member_config, require_room
from minikube_py.control_plane.store_access import StoreAccess
from minikube_py.control_plane.tls import peer_client_context, peer_server_context
from minikube_py.control_plane.tokens import read_token
from minikube_py.env import SystemClock, ended
from minikube_py.errors import MinikubeError
from minikube_py.ports.descriptors import PROCESS
from minikube_py.store.bootstrap import parse_initial_cluster
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import exit_now
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.membership import ChangeKind, MemberChange
from minikube_py.store.room import QUOTA_BYTES, SEGMENTS_RESERVED
from minikube_py.store.server import StoreServer
from minikube_py.wal.segment import SEGMENT_BYTES

if TYPE_CHECKING:
    from minikube_py.store.client import StoreClient

ANNOUNCE_RETRY_S = 1.0
ASK_URLS_S = 1.0
FORWARDED_S = 7.0
"""As long as etcd waits for a write: 5 s and two election timeouts."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """`listen`, `address`: `host:port` to listen on, and to be reached at by the other members. `initial`: as of
    `--initial-cluster`; empty if the folder already holds a member."""

    listen: str
    address: str
    initial: str
    rejoin: bool
    token_file: Path
    tls: TlsFiles
    authority_file: Path

    def port(self) -> PeerPort:
        """Raises: SetupError, MinikubeError."""
        host, number = parse_address(self.listen, "--listen-peers")
        authority = read_text(self.authority_file, "certificate authority of peers").encode()
        for path, what in ((self.tls.certificate, "peer certificate"), (self.tls.key, "peer's private key")):
            read_text(path, what)
        try:
            server = peer_server_context(self.tls.certificate, self.tls.key, authority)
            client = peer_client_context(self.tls.certificate, self.tls.key, authority)
        except ssl.SSLError as error:
            raise SetupError(f"{self.tls.certificate}, {self.tls.key}, {self.authority_file}: {error}") from error
        initial = parse_initial_cluster(self.initial) if self.initial else ()
        token = read_token(self.token_file)
        return PeerPort(host, number, token, initial, self.rejoin, server, client, descriptors=PROCESS)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`listen`: `host:port`, port 0 for any free one. `client`: its address for clients, "" if not published. `peers`
    None: a single member. `etcd` None: its API is not served. `room`: quota and reserve in bytes. `retain_s`: how long
    history is kept, whatever its size; 0: forever; None: MemberConfig's default."""

    data_dir: Path
    listen: str
    token_file: Path
    tls: TlsFiles
    name: str
    client: str = ""
    peers: PeerOptions | None = None
    etcd: EtcdOptions | None = None
    room: tuple[int, int] = (QUOTA_BYTES, SEGMENTS_RESERVED * SEGMENT_BYTES)
    retain_s: float | None = None

    def config(self) -> MemberConfig:
        return member_config(*self.room, self.retain_s)


class StoreRole(StackedRole):
    def __init__(self, options: StoreOptions) -> None:
        super().__init__()
        self._options = options
        self._linked: LinkedMember
        self._started = False
        self._ended: MinikubeError | None = None

    async def start(self) -> str:
        """Raises: SetupError, DataDirBusy, Corruption, LogLost, BootstrapRefused; MinikubeError if an address cannot be
        bound."""
        options = self._options
        host, port = parse_address(options.listen, "--listen")
        token, context = read_token(options.token_file), options.tls.context()
        peers = options.peers.port() if options.peers else None
        held = DataDir(options.data_dir)
        self.running.callback(held.close)
        disk, config = held.disk(), options.config()
        require_room(disk, config.reserved_bytes)
        self._linked = LinkedMember(
            disk,
            SystemClock(),
            random.Random(),
            peers,
            name=options.name,
            peer=options.peers.address if options.peers else "",
            client=options.client,
            fatal=exit_now,
            removed=self._removed,
            say=say,
            config=config,
        )
        member = self._linked.member
        server = StoreServer(member, token, host, port, context, descriptors=PROCESS)
        # The member first: it hands leadership over, and its server redirects the clients.
        self.running.push_async_callback(server.stop)
        self.running.push_async_callback(self._linked.stop)
        await self._linked.start()
        await server.start()
        if options.etcd is not None:
            others = (partial(self._connect, token), partial(self._ask_urls, token)) if peers else ()
            await options.etcd.start(member, self.running, *others)
        announcing = asyncio.create_task(self._announce(token))
        self.running.push_async_callback(_cancel, announcing)
        self._started = True
        if shortage := PROCESS.shortage():
            say(shortage)
        host, port = server.address
        return f"{host}:{port}"

    def failure(self) -> BaseException | None:
        return self._ended

    def unwell(self) -> str:
        return "" if self._linked.member.replica.leader() is not None else "no leader: no majority is reachable"

    def metrics(self) -> dict[str, float]:
        return self._linked.member.metrics() if self._started else {}

    async def ready(self) -> str:
        """True of any member that answers reads: it asks the leader, which confirms with a majority."""
        if why := self.unwell():
            return why
        try:
            await self._linked.member.storage.get(b"\0")
        except MinikubeError as error:
            return str(error)
        return ""

    def _removed(self, reason: str) -> None:
        self._ended = Dismissed(reason)

    def _access(self, token: str) -> StoreAccess:
        """To all members. Raises: SetupError."""
        assert self._options.peers is not None
        authority = read_text(self._options.peers.authority_file, "certificate authority").encode()
        members = self._linked.member.membership.members
        addresses = tuple(parse_address(each.client, "a member's address") for each in members if each.client)
        if not addresses:
            raise SetupError("no member reports its client address: start them with --advertise")
        return StoreAccess(addresses, token, authority)

    async def _ask_urls(self, token: str) -> dict[int, tuple[str, ...]]:
        """The members' URLs of etcd's API, of those that answer soon."""
        from minikube_py.control_plane.store_admin import StoreAdmin

        reports = await StoreAdmin(self._access(token), ASK_URLS_S).status()
        return {each.id: tuple(each.status.get("client_urls", ())) for each in reports if each.status is not None}

    async def _connect(self, token: str) -> StoreClient:
        """To the leader, for writes sent to this member. Raises: Unavailable; MinikubeError."""
        from minikube_py.store.client import StoreClient

        endpoints = self._access(token).endpoints()
        client = StoreClient(endpoints, SystemClock(), random.Random(), request_timeout_s=FORWARDED_S)
        await client.start()
        return client

    async def _announce(self, token: str) -> None:
        """Corrects the members' record if this member starts with another name or address."""
        options, member = self._options, self._linked.member
        while True:
            known = member.membership.get(member.member_id)
            wanted = (options.name, self._linked.own.peer, options.client)
            if known is not None:
                has = (known.name, known.peer, known.client)
                if all(want in ("", have) for want, have in zip(wanted, has)):
                    return
                name, peer, client = wanted
                change = MemberChange(ChangeKind.UPDATE, member.member_id, name, peer, client)
                try:
                    await self._propose(change, token)
                except MinikubeError as error:
                    say(f"cannot report this member's address to the others: {error}")
            await asyncio.sleep(ANNOUNCE_RETRY_S)

    async def _propose(self, change: MemberChange, token: str) -> None:
        """Raises: MinikubeError."""
        from minikube_py.control_plane.store_admin import StoreAdmin

        member, peers = self._linked.member, self._options.peers
        if member.replica.leading or peers is None:
            await member.change_members(change)
            return
        leader = member.replica.leader()
        if leader is None or not leader.client:
            raise SetupError("no leader is known yet")
        authority = read_text(peers.authority_file, "certificate authority").encode()
        address = parse_address(leader.client, "the leader's address")
        await StoreAdmin(StoreAccess((address,), token, authority)).change(change)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await ended(task)
