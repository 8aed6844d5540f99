"""Several store members in virtual time, each on a separate machine, and the control plane's client of them: what
`minikube-py up --members 3` runs as processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from minikube_py.control_plane.waiting import when_available
from minikube_py.env import Clock, Rng
from minikube_py.errors import InvalidRequest
from minikube_py.sim.access import endpoint
from minikube_py.sim.loop import LoopOptions, Scheduler
from minikube_py.sim.member_process import PEER_PORT, Started, run_member
from minikube_py.sim.network import Network
from minikube_py.sim.syncs import SyncTimes
from minikube_py.sim.world import World, WorldOptions
from minikube_py.store.client import StoreClient
from minikube_py.store.member import StoreMember
from minikube_py.store.member_config import MemberConfig

MEMBERS_MAX: Final = 7
STOP_LOOK_S: Final = 0.01


@dataclass(slots=True)
class VirtualMembers:
    """`count` members, by host; started by `connect`."""

    count: int
    world: World
    started: dict[str, Started] = field(default_factory=dict)
    members: dict[str, StoreMember] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: object, time: Scheduler, count: int, loop: LoopOptions, syncs: SyncTimes) -> VirtualMembers:
        """On machines without clock drift, driven by `time`. Raises: InvalidRequest for an unsupported number."""
        if not 1 < count <= MEMBERS_MAX:
            raise InvalidRequest(f"a store in virtual time has 1 to {MEMBERS_MAX} members, not {count}")
        return cls(count, World(f"members {seed}", WorldOptions(loop=loop, syncs=syncs), time))

    @property
    def network(self) -> Network:
        return self.world.network

    async def connect(self, clock: Clock, rng: Rng, config: MemberConfig) -> StoreClient:
        """Starts the members, and returns a client once one of them leads. Raises: MinikubeError."""
        hosts = [f"store-{number}" for number in range(self.count)]
        initial = tuple((f"m{number}", f"{host}:{PEER_PORT}") for number, host in enumerate(hosts))
        for (name, _), host in zip(initial, hosts):
            ready = partial(self.members.__setitem__, host)
            started = self.started[host] = Started(name, initial, False, ready, config=config)
            self.world.start(host, partial(run_member, started=started))

        async def connected() -> StoreClient:
            client = StoreClient([endpoint(host) for host in hosts], clock, rng)
            try:
                await client.start()
                await client.get(b"\0")
            except BaseException:
                await client.close()
                raise
            return client

        return await when_available(connected, "the store", clock, rng, lambda _: None)

    async def stop(self, clock: Clock) -> None:
        """Each hands over leadership and ends, one after the other."""
        for host, started in self.started.items():
            # The event belongs to the member's loop.
            process = self.world.running(host)
            if process is not None:
                process.loop.call_soon(started.stop.set)
            while self.world.running(host) is not None:
                await clock.sleep(STOP_LOOK_S)
        await asyncio.sleep(0)
