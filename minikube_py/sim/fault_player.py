"""Plays a schedule of faults on the machines, links and disks of a simulated cluster.

Faults that the store does not promise to survive are skipped and counted: data lost on more members than a majority can
spare, or during a change of members."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from minikube_py.env import Rng
from minikube_py.sim.fault_schedule import JOINING, REGISTRY
from minikube_py.sim.faults import Fault, S, aim
from minikube_py.sim.loop import shuffle
from minikube_py.sim.world import Machine

if TYPE_CHECKING:
    from minikube_py.sim.cluster import SimCluster

T = TypeVar("T")


class FaultPlayer:
    """`play` returns when the last fault has begun; `end_all` ends those in progress. `counts`: by kind, the injected
    ones; `left_out`, the skipped ones."""

    def __init__(self, cluster: SimCluster, rng: Rng) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._seed = rng.getrandbits(64)
        self._streams: dict[str, Rng] = {}
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._ends: dict[int, Callable[[], object]] = {}
        self._number = 0

    async def play(self, faults: Sequence[Fault]) -> None:
        begin_s = self.world.scheduler.now_s
        for fault in faults:
            await asyncio.sleep(max(0.0, begin_s + fault.at_us / S - self.world.scheduler.now_s))
            self.begin(fault)

    def begin(self, fault: Fault) -> None:
        """Injects one, or skips it."""
        cluster, kind = self.cluster, fault.kind
        leader = cluster.leader()
        aimed = aim(fault, leader.number if leader is not None else None, cluster.forming)
        places = tuple([each for each in aimed.places if kind in JOINING or cluster.takes_part(each)]) if aimed else ()
        if aimed is None or (aimed.places and not places):
            self.left_out[kind] += 1
            return
        self.world.scheduler.log(f"fault {aimed}")
        begun = REGISTRY[kind].begin(self, aimed._replace(places=places))
        (self.counts if begun else self.left_out)[kind] += 1

    def end_all(self) -> None:
        """Everything is healthy from here on, except permanent damage."""
        for number in list(self._ends):
            self.end(number)
        self.world.network.heal()
        self.cluster.messages.heal()
        for machine in self.world.machines.values():
            machine.disk.mend()
            if machine.process is not None:
                machine.process.syncs.in_the_next(None)

    def rng_of(self, fault: Fault) -> Rng:
        """The stream of the fault's row: what other rows draw does not change it."""
        if fault.kind not in self._streams:
            self._streams[fault.kind] = Rng(f"{fault.kind} {self._seed}")
        return self._streams[fault.kind]

    # -- for the rows of the registry ----------------------------------------------------------------------------------

    def until(self, fault: Fault, end: Callable[[], object]) -> bool:
        """Calls `end` when the fault is over. True: it has begun."""
        self.begun(fault, end)
        return True

    def meanwhile(
        self, fault: Fault, items: Sequence[T], begin: Callable[[T], object], end: Callable[[T], object]
    ) -> bool:
        """Calls `begin` for each of `items` now, and `end` when the fault is over. True: it has begun."""
        for each in items:
            begin(each)
        return self.until(fault, lambda: [end(each) for each in items])

    def begun(self, fault: Fault, end: Callable[[], object]) -> int:
        """As `meanwhile`; returns a number to end it early, or to query whether it lasts."""
        self._number += 1
        self._ends[self._number] = end
        self.world.scheduler.after(fault.duration_us / S, self.end, self._number)
        return self._number

    def lasts(self, number: int) -> bool:
        return number in self._ends

    def end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            end()

    def hosts(self, places: Sequence[int]) -> list[str]:
        return [self.cluster.host(place) for place in places if self.cluster.takes_part(place)]

    def machine(self, place: int) -> Machine:
        return self.world.machine(self.cluster.host(place))

    def sides(self, fault: Fault) -> tuple[list[str], list[str]]:
        """The hosts of both; half of the time a fault of members' links also affects their clients."""
        sources, others = self.hosts(fault.places), self.hosts(fault.others)
        rng = self.rng_of(fault)
        if rng.random() < 0.5:
            members = {place.host for place in self.cluster.places}
            clients = [host for host in self.world.machines if host not in members]
            (sources if rng.random() < 0.5 else others).extend(clients)
        return sources, others

    def take_down(self, fault: Fault, *, power: bool) -> bool:
        """Some peers of a machine that lost power are not notified until it is back."""
        for place in fault.places:
            self.cluster.hold_down(place)
            self.world.kill(self.cluster.host(place), power=power, silently=power and self.rng_of(fault).random() < 0.5)
        return self.until(fault, lambda: self.release(fault))

    def release(self, fault: Fault) -> None:
        order = list(fault.places)
        shuffle(order, self.rng_of(fault))
        for place in order:
            self.cluster.release(place)

    def release_surely(self, fault: Fault) -> None:
        """A disk that did not reach its last operation loses power now."""
        for place in fault.places:
            self.world.kill(self.cluster.host(place), power=True)
        self.release(fault)
