"""A store member as a simulated process: the product's own parts, put together as its role does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from minikube_py.errors import MinikubeError
from minikube_py.sim.world import Process
from minikube_py.store.bootstrap import Answer, Form, Initial, Intent
from minikube_py.store.discovery import Discovery
from minikube_py.store.identity import has_log, load_identity, own_identity
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.membership import Member, MemberChange
from minikube_py.store.peer_asking import PeerAsker
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.peers import Joined, Peers
from minikube_py.store.replica import Bootstrap
from minikube_py.store.server import StoreServer

PEER_PORT: Final = 2380
CLIENT_PORT: Final = 2379
TOKEN: Final = "a token that members and clients share"

CONFIG: Final = MemberConfig(
    request_bytes_max=8 << 10,
    segment_bytes=48 << 10,
    snapshot_log_bytes=24 << 10,
    retain_s=0.0,
    retain_bytes=0,
    own_gc=False,
)
"""So small that segments and snapshots change all the time. History is compacted by clients alone: they know of it."""
LIMITS: Final = PeerLimits(snapshot_chunk_bytes=2 << 10, snapshot_window_bytes=6 << 10, snapshot_patience_s=5.0)


@dataclass(slots=True)
class Started:
    """What a member was started as. `ready` is told when it takes part."""

    name: str
    initial: Initial
    rejoin: bool
    ready: Callable[[StoreMember], None]


async def run_member(process: Process, started: Started) -> None:
    """Lives until it is killed, fails, or is removed. Raises: what ends a start."""
    loop = asyncio.get_running_loop()
    disk, clock, rng = process.disk, process.clock, process.rng
    begun = has_log(disk)
    identity = load_identity(disk) if begun else own_identity(disk, rng, rejoin=started.rejoin)
    if identity is None:
        raise MinikubeError("a log without an identity")
    peer, client = f"{process.name}:{PEER_PORT}", f"{process.name}:{CLIENT_PORT}"
    own = Member(identity.id, started.name, peer, client)

    def say(text: str) -> None:
        process.world.scheduler.log(f"{process.loop.name} says: {text}")

    member = StoreMember(disk, clock, rng, CONFIG, fatal=process.die, removed=process.die, syncs=process.syncs)
    peers = Peers(own, TOKEN, clock, rng, limits=LIMITS, say=say, run_sync=process.syncs.wait)
    await peers.listen("0.0.0.0", PEER_PORT)
    bootstrap: Bootstrap | None = None
    members: tuple[Member, ...] = ()
    if not begun:
        discovery = Discovery(Intent(own, started.initial, started.rejoin), PeerAsker(TOKEN), clock, rng, say)
        peers.answer_with(discovery.who)
        decision = await discovery.run()
        if isinstance(decision, Form):
            bootstrap = Bootstrap(decision.cluster_id, own.id, decision.members)
        else:
            bootstrap, members = Bootstrap(decision.cluster_id, own.id), decision.membership.members
    await member.start(bootstrap, peers)

    def who() -> Answer:
        raft = member.raft
        return Answer(own, member.cluster_id, member.membership, raft.leader, raft.log.applied)

    def join(change: MemberChange, joined: Joined) -> None:
        task = loop.create_task(_change(member, change, joined))
        changes[task] = None
        task.add_done_callback(changes.pop)

    changes: dict[asyncio.Task[None], None] = {}
    peers.begin(member, member.cluster_id, who, join, members)
    server = StoreServer(member, TOKEN, "0.0.0.0", CLIENT_PORT)
    await server.start()
    started.ready(member)
    await loop.create_future()


async def _change(member: StoreMember, change: MemberChange, joined: Joined) -> None:
    try:
        await member.change_members(change)
    except MinikubeError as error:
        joined(error)
    else:
        joined(None)

