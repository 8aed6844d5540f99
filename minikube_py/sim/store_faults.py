"""Plays a schedule of faults (`sim.faults`) on the machines, links and disks of a simulated store.

Links carry TCP here, so that what a packet network would do shows as a stream sees it: loss is delay, doubling is odd
boundaries, a cut is either a reset or silence. Left out, and counted, is what the store does not promise to survive:
a second member's data lost before the first is a voter again, or a cluster with one member that loses it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from minikube_py.env import Rng
from minikube_py.sim.faults import Fault, aim
from minikube_py.sim.loop import shuffle
from minikube_py.sim.network import LinkQuality
from minikube_py.sim.world import Machine, Process, World

US_PER_S: Final = 1_000_000
RESET_SHARE: Final = 0.4
"""Of cuts: those that reset. The others swallow everything."""


class FaultyStore(Protocol):
    """What the faults ask of the store they are played on. Places are those of the schedule."""

    world: World
    elected: Callable[[int], None] | None
    """Told the place of whoever comes to lead."""

    def host(self, place: int) -> str:
        """The machine at that place."""

    def hosts(self) -> list[str]:
        """All machines there are, clients' too."""

    def leading(self) -> int | None:
        """The place of the leader."""

    def forming(self) -> int:
        """How many places there were at the beginning."""

    def known(self, place: int) -> bool:
        """False: nobody was ever started there, or it was removed for good."""

    def may_lose(self, place: int) -> bool:
        """Whether the data of that place may go now, for ever."""

    def hold_down(self, place: int) -> None:
        """What runs there has ended and stays down until it is released as often."""

    def release(self, place: int, *, wiped: bool = False) -> None: ...

    def wish(self, fault: Fault) -> None:
        """grow, shrink, transfer, compact, snapshot: to be asked of the store itself."""


class FaultPlayer:
    """`play` returns when the last fault has begun; `end_all` ends those that still last. `counts`: by kind, what was
    played; `left_out`, what was not."""

    def __init__(self, store: FaultyStore, rng: Rng) -> None:
        self._store = store
        self._world = store.world
        self._rng = rng
        self._ends: dict[int, Callable[[], None]] = {}
        self._number = 0
        self.counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()

    async def play(self, schedule: Sequence[Fault]) -> None:
        begin_s = self._world.scheduler.now_s
        for fault in schedule:
            await asyncio.sleep(max(0.0, begin_s + fault.at_us / US_PER_S - self._world.scheduler.now_s))
            self.begin(fault)

    def begin(self, fault: Fault) -> None:
        aimed = aim(fault, self._store.leading(), self._store.forming())
        if aimed is None:
            self.left_out[fault.kind] += 1
            return
        fault = aimed
        places = tuple(place for place in fault.places if self._store.known(place) or fault.kind == "grow")
        if fault.places and not places:
            self.left_out[fault.kind] += 1
            return
        self._world.scheduler.log(f"fault {fault}")
        begin: Callable[[Fault], bool] = getattr(self, f"_{fault.kind}")
        self.counts[fault.kind] += 1
        if not begin(fault._replace(places=places)):
            self.counts[fault.kind] -= 1
            self.left_out[fault.kind] += 1

    def end_all(self) -> None:
        """Everything is well from here on, but for what is broken."""
        for number in list(self._ends):
            self._end(number)
        self._world.network.heal()
        for machine in self._world.machines.values():
            machine.disk.mend()
            if machine.process is not None:
                machine.process.syncs.in_the_next(None)

    def _until(self, fault: Fault, end: Callable[[], None]) -> bool:
        self._number += 1
        self._ends[self._number] = end
        self._world.scheduler.after(fault.duration_us / US_PER_S, self._end, self._number)
        return True

    def _end(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            end()

    # -- links --------------------------------------------------------------------------------------------------------

    def _sides(self, fault: Fault) -> tuple[list[str], list[str]]:
        """A fault of all members' links is one of their clients' too, half of the time."""
        store = self._store
        sources = [store.host(place) for place in fault.places]
        others = [store.host(place) for place in fault.others if store.known(place)]
        if self._rng.random() < 0.5:
            clients = [host for host in store.hosts() if host not in sources and host not in others]
            (sources if self._rng.random() < 0.5 else others).extend(clients)
        return sources, others

    def _quality(self, fault: Fault, change: Callable[[LinkQuality], LinkQuality]) -> bool:
        sources, others = self._sides(fault)
        network = self._world.network
        network.set_quality(change(network.quality), sources, others)
        return self._until(fault, lambda: network.set_quality(network.quality, sources, others))

    def _loss(self, fault: Fault) -> bool:
        return self._quality(fault, lambda quality: replace(quality, loss=fault.amount, retransmit_s=0.05))

    def _double(self, fault: Fault) -> bool:
        return self._quality(fault, lambda quality: replace(quality, split=fault.amount))

    def _delay(self, fault: Fault) -> bool:
        return self._quality(fault, lambda quality: replace(quality, jitter_s=fault.amount / US_PER_S / 3))

    def _cut(self, fault: Fault) -> bool:
        sources, others = self._sides(fault)
        network = self._world.network
        if self._rng.random() < RESET_SHARE:
            network.cut(sources, others)
            return self._until(fault, lambda: network.mend(sources, others))
        network.clog(sources, others)
        return self._until(fault, lambda: network.unclog(sources, others))

    def _clog(self, fault: Fault) -> bool:
        sources, others = self._sides(fault)
        network = self._world.network
        network.clog(sources, others)
        return self._until(fault, lambda: network.unclog(sources, others))

    # -- processes ----------------------------------------------------------------------------------------------------

    def _machine(self, place: int) -> Machine:
        return self._world.machine(self._store.host(place))

    def _down(self, fault: Fault, *, power: bool) -> bool:
        """Some peers of a machine that lost its power hear nothing of it until it is back."""
        for place in fault.places:
            self._store.hold_down(place)
            self._world.kill(self._store.host(place), power=power, silently=power and self._rng.random() < 0.5)
        return self._until(fault, lambda: self._release(fault.places))

    def _release(self, places: Sequence[int], *, wiped: bool = False) -> None:
        order = list(places)
        shuffle(order, self._rng)
        for place in order:
            self._store.release(place, wiped=wiped)

    def _crash(self, fault: Fault) -> bool:
        if not fault.amount:
            return self._down(fault, power=True)
        for place in fault.places:
            self._store.hold_down(place)
            self._machine(place).disk.cut_after(int(fault.amount))
        return self._until(fault, lambda: self._release_surely(fault.places))

    def _release_surely(self, places: Sequence[int]) -> None:
        """A disk that had too little to do to come to its last operation loses its power now."""
        for place in places:
            self._world.kill(self._store.host(place), power=True)
        self._release(places)

    def _torn_sync(self, fault: Fault) -> bool:
        for place in fault.places:
            self._store.hold_down(place)
            process = self._machine(place).process
            if process is not None:
                process.syncs.in_the_next(partial(self._world.kill, process.name, power=True))
        return self._until(fault, lambda: self._release_surely(fault.places))

    def _kill(self, fault: Fault) -> bool:
        return self._down(fault, power=False)

    def _pause(self, fault: Fault) -> bool:
        hosts = [self._store.host(place) for place in fault.places]
        for host in hosts:
            self._world.pause(host)

        def end() -> None:
            for host in hosts:
                self._world.resume(host)

        return self._until(fault, end)

    def _depose(self, fault: Fault) -> bool:
        """What a leader began is to be left with a few: it goes almost as soon as it has come."""

        def elected(place: int) -> None:
            process = self._machine(place).process
            self._world.scheduler.after(fault.amount / US_PER_S, self._strike, (place, process))

        def leave() -> None:
            self._store.elected = None

        self._store.elected = elected
        return self._until(fault, leave)

    def _strike(self, whom: tuple[int, Process | None]) -> None:
        place, process = whom
        if self._store.elected is None or process is None or process.ended is not None:
            return
        how = self._rng.random()
        fault = Fault(0, "kill", (place,), (), self._rng.randint(50_000, 500_000))
        if how < 0.4:
            self._down(fault, power=how >= 0.2)
            return
        others = [other for other in range(self._store.forming()) if other != place and self._store.known(other)]
        if how < 0.8 and others:
            others.remove(self._rng.choice(others))
        rest = tuple(others)
        self._clog(fault._replace(others=rest))
        if how < 0.6 or how > 0.9:
            self._clog(fault._replace(places=rest, others=(place,)))

    # -- disks and clocks ---------------------------------------------------------------------------------------------

    def _rot(self, fault: Fault) -> bool:
        [place] = fault.places[:1]
        if not self._store.may_lose(place):
            return False
        host = self._store.host(place)
        self._store.hold_down(place)
        # No power cut: it might take the last record's witness, and then nobody could tell damage from a torn write.
        self._world.kill(host)
        where = self._machine(place).disk.rot(self._rng)
        self._world.scheduler.log(f"rot on {host}: {where}")
        return self._until(fault, lambda: self._release((place,)))

    def _wipe(self, fault: Fault) -> bool:
        [place] = fault.places[:1]
        if not self._store.may_lose(place):
            return False
        host = self._store.host(place)
        self._store.hold_down(place)
        self._world.kill(host, power=True)
        self._world.wipe(host)
        return self._until(fault, lambda: self._release((place,), wiped=True))

    def _full(self, fault: Fault) -> bool:
        machines = [self._machine(place) for place in fault.places]
        for machine in machines:
            machine.disk.capacity_bytes = machine.disk.used_bytes() + int(fault.amount)

        def end() -> None:
            for machine in machines:
                machine.disk.capacity_bytes = None

        return self._until(fault, end)

    def _slow_sync(self, fault: Fault) -> bool:
        machines = [self._machine(place) for place in fault.places]
        usual = self._world.options.syncs
        for machine in machines:
            machine.syncs = replace(usual, sync_s=usual.sync_s + fault.amount / US_PER_S)

        def end() -> None:
            for machine in machines:
                machine.syncs = usual

        return self._until(fault, end)

    def _bad_sync(self, fault: Fault) -> bool:
        for place in fault.places:
            self._machine(place).disk.fail_sync_after(int(fault.amount))
        return True

    def _clock(self, fault: Fault) -> bool:
        hosts = [self._store.host(place) for place in fault.places]
        rates = {host: self._world.machine(host).clock.rate for host in hosts}
        for host in hosts:
            self._world.drift(host, fault.amount)
            self._world.machine(host).clock.jump(self._rng.uniform(-100.0, 100.0))

        def end() -> None:
            for host in hosts:
                self._world.drift(host, rates[host])

        return self._until(fault, end)

    # -- what the store itself is asked -------------------------------------------------------------------------------

    def _wish(self, fault: Fault) -> bool:
        self._store.wish(fault)
        return True

    _grow = _shrink = _transfer = _compact = _snapshot = _wish
