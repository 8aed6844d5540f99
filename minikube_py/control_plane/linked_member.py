"""A store member with its links: its identity, how it joins its cluster, and its peer port.

The parts and their order are the same wherever a member runs: `minikube-py store` on sockets and disks, or the
simulator."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from minikube_py.env import Clock, Disk, Rng
from minikube_py.errors import Corruption, MinikubeError
from minikube_py.ports.descriptors import Descriptors
from minikube_py.raft.configuration import NodeId
from minikube_py.store.applying import Callbacks
from minikube_py.store.bootstrap import Answer, Form, Initial, Intent
from minikube_py.store.discovery import Alone, Discovery
from minikube_py.store.fsync import FsyncRunner, SyncRunner
from minikube_py.store.identity import has_log, id_text, load_identity, own_identity
from minikube_py.store.links import PeerLinks
from minikube_py.store.log_files import LogFiles
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import Member, MemberChange
from minikube_py.store.peer_asking import PeerAsker
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peers import Joined, Peers
from minikube_py.store.recovery import stands_alone
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.room import where
from minikube_py.wal.snapshot import snapshot_name

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PeerPort:
    """How the other members are reached. `initial`: the initial members of the cluster, this one included; ignored if
    the folder holds a log. `rejoin`: return under a new id after the disk was lost."""

    host: str
    port: int
    token: str
    initial: Initial = ()
    rejoin: bool = False
    tls_server: ssl.SSLContext | None = None
    tls_client: ssl.SSLContext | None = None
    limits: PeerLimits = field(default_factory=PeerLimits)
    descriptors: Descriptors | None = None


class LinkedMember:
    """`name`, `peer`, `client`: how other members and clients see this one. Without a `port` it is a single member.

    `fatal` and `removed` are called with the reason when it ends, and should end the process; `say` is called with what
    it waits for. `through`: a layer between the member and its links, such as the faults of a simulation."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        port: PeerPort | None,
        *,
        name: str,
        peer: str = "",
        client: str = "",
        fatal: Told,
        removed: Told,
        say: Told,
        config: MemberConfig | None = None,
        syncs: SyncRunner | None = None,
        through: Callable[[PeerLinks], PeerLinks] | None = None,
    ) -> None:
        config = config or MemberConfig()
        self._disk, self._clock, self._rng, self._port = disk, clock, rng, port
        self._name, self._peer, self._client = name, peer, client
        # The waiter may have gone; the member's work continues.
        self._say = partial(Callbacks(), say)
        self._through = through
        self._syncs: SyncRunner = syncs or FsyncRunner(clock, config.fsync)
        self.member = StoreMember(disk, clock, rng, config, fatal, removed, self._syncs)
        self.member.say = self._say
        self.peers: Peers | None = None
        self.own = Member(NodeId(0), name, peer, client)
        self._begun = False
        self._changes: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Returns when it takes part. If it has to form or join a cluster, that is when the others agree. Raises:
        Corruption, LogLost, BootstrapRefused, MinikubeError; OSError."""
        port = self._port
        if port is None:
            await self.member.start()
            self._begun = True
            self._check_alone()
            return
        begun = has_log(self._disk)
        id = self._begun_as() if begun else own_identity(self._disk, self._rng, rejoin=port.rejoin).id
        self.own = Member(id, self._name, self._peer, self._client)
        peers = self.peers = Peers(
            self.own,
            port.token,
            self._clock,
            self._rng,
            tls_server=port.tls_server,
            tls_client=port.tls_client,
            limits=port.limits,
            say=self._say,
            run_sync=self._syncs.wait,
            descriptors=port.descriptors,
        )
        self.member.strangers = peers.strangers
        await peers.listen(port.host, port.port)
        bootstrap: Bootstrap | None = None
        members: tuple[Member, ...] = ()
        if not begun:
            bootstrap, members = await self._meet(port, peers)
        links = self._through(peers) if self._through is not None else peers
        await self.member.start(bootstrap, links, partial(self._ask_before_leading, port) if begun else None)
        self._begun = True
        self._check_own()
        if begun:
            self._check_cluster(port.initial)
        peers.begin(self.member, self.member.replica.cluster_id, self._who, self._join, members)

    async def stop(self) -> None:
        """Hands leadership over if possible, and ends. Ends everything begun by `start`, even partially."""
        for task in self._changes:
            task.cancel()
        try:
            if self._begun:
                await self.member.stop()
            else:
                self._syncs.close()
        finally:
            if self.peers is not None:
                await self.peers.stop()

    async def _meet(self, port: PeerPort, peers: Peers) -> tuple[Bootstrap, tuple[Member, ...]]:
        """Raises: BootstrapRefused."""
        asker = PeerAsker(port.token, port.tls_client, port.limits)
        intent = Intent(self.own, port.initial, port.rejoin)
        discovery = Discovery(intent, asker, self._clock, self._rng, self._say)
        peers.answer_with(discovery.who)
        decision = await discovery.run()
        if isinstance(decision, Form):
            return Bootstrap(decision.cluster_id, self.own.id, decision.members, decision.version), ()
        return Bootstrap(decision.cluster_id, self.own.id), decision.membership.members

    async def _ask_before_leading(self, port: PeerPort) -> None:
        """A single voter leads at once, and nobody else could tell that its files were edited. Raises: Corruption."""
        replica, files = self.member.replica, self.member.replica.files
        known = [*(peer for _, peer in port.initial), *(each.peer for each in replica.membership.members)]
        others = [address for address in dict.fromkeys(known) if address and address != self._peer]
        if not others or not stands_alone(replica.raft, replica.membership):
            return
        alone = Alone(self.own.id, replica.cluster_id, replica.raft.log.committed)
        self._say(f"asking {', '.join(others)} for other voters, of which the files here know none")
        asker = PeerAsker(port.token, port.tls_client, port.limits)
        answer = await alone.refuted(others, asker, self._clock)
        if answer is not None:
            folder, name = where(self._disk), answer.member.name
            file = snapshot_name(files.snapshot.head.index) if files.snapshot is not None else "the log"
            raise Corruption(
                f"{folder}/{file} has {self._name} as the only voter of cluster {id_text(replica.cluster_id)}, and "
                f"{name} ({answer.member.peer}), whose log reaches as far, knows {', '.join(alone.others(answer))}: it "
                f"was edited, or is an older copy. Empty {folder} and start with --rejoin; the other members send it "
                f"all data. If {name} is no member any more, stop it first"
            )

    def _begun_as(self) -> NodeId:
        identity = load_identity(self._disk)
        if identity is not None:
            return identity.id
        # A folder older than identities, or with a removed identity file: take it from the log.
        loaded = LogFiles(self._disk, self._rng).load()
        assert loaded.log.tail is not None, "there is a log"
        return NodeId(loaded.log.tail.head.member_id)

    def _check_own(self) -> None:
        """Two members with one id would vote twice. Raises: Corruption."""
        membership, id = self.member.membership, self.member.member_id
        found, meant = membership.get(id), [each for each in membership.members if each.name == self._name]
        if found is not None and found.name != self._name and meant:
            folder = where(self._disk)
            raise Corruption(
                f"{folder} holds member {found.name} ({id_text(id)}), and was started as {self._name}, which is member "
                f"{id_text(meant[0].id)}: one folder was copied over the other. Empty {folder}, and start with "
                "--rejoin; the other members send it all data"
            )

    def _check_cluster(self, initial: Initial) -> None:
        """Members come and go, and `initial` may stay; but one of them is known, unless this is the log of other
        members. One that names itself alone may have got another name, and one that joined may know nobody yet.
        Raises: Corruption."""
        known = (*self.member.membership.members, *self.member.membership.expected)
        places = {part for each in known for part in (each.name, each.peer) if part}
        unknown = self.member.membership.get(self.member.member_id) is None  # It was joining.
        if unknown or len(initial) < 2 or any(part in places for each in initial for part in each):
            return
        folder, members = where(self._disk), ", ".join(each.name or id_text(each.id) for each in known)
        raise Corruption(
            f"{folder} is of cluster {id_text(self.member.replica.cluster_id)}, whose members are {members}, and "
            f"--initial-cluster names {', '.join(name for name, _ in initial)}: it is another cluster's folder. Give "
            f"{self._name} its own; if that is lost, an empty one with --rejoin. To serve this one's data, start it "
            "without --initial-cluster"
        )

    def _check_alone(self) -> None:
        members = self.member.membership.members
        if len(members) > 1:
            others = ", ".join(f"{each.name} ({each.peer})" for each in members if each.id != self.member.member_id)
            raise MinikubeError(
                f"this member is one of {len(members)}, the others are {others}: start it with --listen-peers or "
                "--advertise, so that they can reach it"
            )

    def _who(self) -> Answer:
        raft = self.member.raft
        return Answer(self.own, self.member.replica.cluster_id, self.member.membership, raft.leader, raft.log.applied)

    def _join(self, change: MemberChange, joined: Joined) -> None:
        task = asyncio.get_running_loop().create_task(self._change(change, joined))
        self._changes[task] = None
        task.add_done_callback(self._changes.pop)

    async def _change(self, change: MemberChange, joined: Joined) -> None:
        try:
            await self.member.change_members(change)
        except MinikubeError as error:
            joined(error)
        else:
            joined(None)
