"""A store member as a simulated process: the code of `minikube-py store` in the simulated environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from minikube_py.control_plane.linked_member import LinkedMember, PeerPort
from minikube_py.sim.world import Process
from minikube_py.store.bootstrap import Initial
from minikube_py.store.links import PeerLinks
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig
from minikube_py.store.peer_connection import PeerLimits
from minikube_py.store.server import StoreServer

PEER_PORT: Final = 2380
CLIENT_PORT: Final = 2379
TOKEN: Final = "a token that members and clients share"

CONFIG: Final = MemberConfig(
    request_bytes_max=8 << 10,
    segment_bytes=20 << 10,
    snapshot_log_bytes=24 << 10,
    tail_entries_max=40,
    tail_bytes_max=12 << 10,
    log_bytes_max=64 << 10,
    retain_s=0.0,
    retain_bytes=0,
    own_gc=False,
)
"""So small that segments and snapshots change all the time. Only clients compact the history, so that they know of
it."""
LIMITS: Final = PeerLimits(snapshot_chunk_bytes=2 << 10, snapshot_window_bytes=6 << 10, snapshot_patience_s=5.0)


@dataclass(slots=True)
class Started:
    """How a member was started. `made` is called before it reads its disk, `ready` when it takes part; `stop`, once
    set, ends it cleanly. `through`: see LinkedMember."""

    name: str
    initial: Initial
    rejoin: bool
    ready: Callable[[StoreMember], None]
    made: Callable[[Process, StoreMember], None] | None = None
    through: Callable[[Process, PeerLinks], PeerLinks] | None = None
    config: MemberConfig = CONFIG
    stop: asyncio.Event = field(default_factory=asyncio.Event)


async def run_member(process: Process, started: Started) -> None:
    """Runs until it is stopped, killed or removed, or fails. Raises: errors of the start."""

    def say(text: str) -> None:
        process.world.scheduler.log(f"{process.loop.name} says: {text}")

    through = started.through
    port = PeerPort("0.0.0.0", PEER_PORT, TOKEN, started.initial, started.rejoin, limits=LIMITS)
    linked = LinkedMember(
        process.disk,
        process.clock,
        process.rng,
        port,
        name=started.name,
        peer=f"{process.name}:{PEER_PORT}",
        client=f"{process.name}:{CLIENT_PORT}",
        fatal=process.die,
        removed=process.die,
        say=say,
        config=started.config,
        syncs=process.syncs,
        through=None if through is None else lambda links: through(process, links),
    )
    if started.made is not None:
        started.made(process, linked.member)
    server = StoreServer(linked.member, TOKEN, "0.0.0.0", CLIENT_PORT)
    await linked.start()
    await server.start()
    started.ready(linked.member)
    await started.stop.wait()
    # As in the role: the member hands leadership over, and its server redirects the clients.
    await linked.stop()
    await server.stop()
