"""Machines and processes of a simulated world: started, killed at any await, stopped, restarted, wiped.

A process is an async main on a separate loop, with the disk, clock and network address of its machine; a machine has
one process at a time. A kill is abrupt: the process's callbacks and timers are dropped, the kernel ends its sockets,
its disk keeps the page cache (killed process) or the platter (power failure). Its coroutines are closed, so that frames
and files are freed; anything a `finally` in them tries raises `Killed` before it has an effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from minikube_py.env import Rng
from minikube_py.sim.clock import MachineClock, SimClock
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.loop import Killed, LoopOptions, Scheduler, SimLoop
from minikube_py.sim.network import LinkQuality, Network
from minikube_py.sim.running import cancel_all, run_on
from minikube_py.sim.syncs import SimSyncs, SyncTimes

T = TypeVar("T")
Main = Callable[["Process"], Coroutine[Any, Any, None]]
How = Literal["returned", "raised", "killed", "died"]


class Ended(NamedTuple):
    """How a process ended: it returned, raised `error`, was killed from outside, or exited with a reason."""

    how: How
    why: str = ""
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """`drift_max`: the most that machines' clocks run faster or slower, as a share. `wall_offset_max_s`: the most that
    their wall clocks are off. `reading_s`: the cost of reading the clock."""

    loop: LoopOptions = field(default_factory=LoopOptions)
    link: LinkQuality = field(default_factory=LinkQuality)
    syncs: SyncTimes = field(default_factory=SyncTimes)
    drift_max: float = 0.0
    wall_offset_max_s: float = 0.0
    reading_s: float = 0.0


@dataclass(slots=True)
class Machine:
    """Exists whether or not a process runs. `main`: what a restart runs; `usual_rate`: the normal rate of its clock."""

    name: str
    rng: Rng
    clock: MachineClock
    disk: SimDisk
    syncs: SyncTimes
    main: Main | None = None
    process: Process | None = None
    lives: int = 0
    usual_rate: float = 1.0
    ends: list[Ended] = field(default_factory=list)
    power_losses: int = 0
    sync_count: int = 0


class Process:
    """One run of one process, and its resources."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.life = machine.lives
        self.rng = Rng(f"{machine.name} {machine.lives} {machine.rng.getrandbits(64)}")
        self.disk = machine.disk
        self.loop = SimLoop(
            world.scheduler,
            f"{machine.name}.{machine.lives}",
            rng=Rng(f"loop {machine.rng.getrandbits(64)}"),
            host=machine.name,
            sockets=world.network,
            rate=machine.clock.rate,
            options=world.options.loop,
        )
        self.clock = SimClock(self.loop, machine.clock, world.options.reading_s)
        self.syncs = SimSyncs(self.loop, self.disk, machine.rng, lambda: machine.syncs)
        self.ended: Ended | None = None
        self.task: asyncio.Task[None] | None = None
        self.errands: list[asyncio.Task[None]] = []
        """References to work that others started in this process."""
        self.disk.used_by(self._power_failed, self._synced_inline)

    def __repr__(self) -> str:
        return f"<Process {self.loop.name}>"

    def die(self, why: str) -> NoReturn:
        """The process exits at once (os._exit). Raises: Killed."""
        self.world.end(self, Ended("died", why))
        raise Killed(why)

    def _power_failed(self, why: str) -> Killed:
        """The disk reports that this operation was the last of this run."""
        if self.ended is None:
            self.world.end(self, Ended("killed", "the power failed at a disk operation"), power=True)
        return Killed(f"{self.name}: {why}")

    def _synced_inline(self) -> None:
        """The loop itself waited for the disk."""
        self.loop.charge(self.machine.syncs.draw_s(self.machine.rng))


class World:
    """One simulated run; `seed` decides everything in it. `on_end` is called at each process's end, before anything
    else happens; without it, a process whose main raises fails the run. `scheduler`: it drives other loops, too."""

    def __init__(
        self, seed: object, options: WorldOptions | None = None, scheduler: Scheduler | None = None
    ) -> None:
        self.options = options or WorldOptions()
        self.seed = seed
        self.scheduler = scheduler or Scheduler(seed, self.options.loop)
        self.network = Network(self.scheduler, self.options.link)
        self.machines: dict[str, Machine] = {}
        self.on_end: Callable[[Process, Ended], None] | None = None

    # -- machines and processes ---------------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        """The machine of that name, created on first use."""
        machine = self.machines.get(name)
        if machine is None:
            rng = Rng(f"machine {name} {self.seed}")
            options = self.options
            rate = 1.0 + options.drift_max * rng.uniform(-1.0, 1.0)
            clock = MachineClock(rate, options.wall_offset_max_s * rng.uniform(-1.0, 1.0))
            machine = self.machines[name] = Machine(name, rng, clock, SimDisk(rng), options.syncs, usual_rate=rate)
        return machine

    def start(self, name: str, main: Main | None = None) -> Process:
        """Starts `main`, or what ran there last, on that machine.

        Raises: ValueError if something runs there, or nothing ever did."""
        machine = self.machine(name)
        if machine.process is not None:
            raise ValueError(f"{name} runs already")
        machine.main = main or machine.main
        if machine.main is None:
            raise ValueError(f"nothing to start on {name}")
        machine.lives += 1
        self.network.power_on(name)
        process = machine.process = Process(self, machine)
        self.scheduler.log(f"start {process.loop.name}")
        process.loop.call_soon(self._begin, process, machine.main)
        return process

    def kill(self, name: str, *, power: bool = False, silently: bool = False) -> None:
        """Kills the process on that machine, between two of its steps. `power`: the machine loses power, and with it
        what the disk had not synced. `silently`: peers are not notified until it is up again. No effect if nothing runs
        there."""
        process = self.machine(name).process
        if process is not None:
            self.end(process, Ended("killed"), power=power or silently, silently=silently)

    def pause(self, name: str) -> None:
        process = self.machine(name).process
        if process is not None:
            self.scheduler.log(f"pause {process.loop.name}")
            process.loop.pause()

    def resume(self, name: str) -> None:
        """Ends one pause."""
        process = self.machine(name).process
        if process is not None and process.loop.paused:
            self.scheduler.log(f"resume {process.loop.name}")
            process.loop.resume()

    def resume_wholly(self, name: str) -> None:
        while (process := self.machine(name).process) is not None and process.loop.paused:
            self.resume(name)

    def wipe(self, name: str) -> None:
        """Deletes all files of the machine. Raises: ValueError if something runs there."""
        machine = self.machine(name)
        if machine.process is not None:
            raise ValueError(f"{name} runs; kill it before its disk is wiped")
        machine.disk = SimDisk(machine.rng)

    def drift(self, name: str, rate: float) -> None:
        """From now on the machine's clock runs at `rate` times the true rate."""
        machine = self.machine(name)
        now_s = self.scheduler.now_s
        # The wall clock continues from its current value, at the new rate.
        machine.clock.wall_offset_s += now_s * (machine.clock.rate - rate)
        machine.clock.rate = rate
        if machine.process is not None:
            machine.process.loop.set_rate(rate)

    def calm(self) -> None:
        """From here on no loop and no sync stalls, in current and future processes; links are up to the network."""
        loop = replace(self.options.loop, stall_every=0)
        self.options = replace(self.options, loop=loop, syncs=replace(self.options.syncs, stall_every=0))
        for machine in self.machines.values():
            machine.syncs = self.options.syncs
            if machine.process is not None:
                machine.process.loop.options = loop

    def running(self, name: str) -> Process | None:
        return self.machine(name).process

    def end(self, process: Process, ended: Ended, *, power: bool = False, silently: bool = False) -> None:
        """The process ended. See `kill`."""
        if process.ended is not None:
            return
        process.ended = ended
        machine = process.machine
        self.scheduler.log(f"end {process.loop.name}: {ended.how}{' (power)' if power else ''} {ended.why}".rstrip())
        process.loop.kill()
        self.network.drop_loop(process.loop, silently=silently)
        machine.disk = process.disk.crash(machine.rng) if power else process.disk.killed()
        machine.power_losses += power
        machine.sync_count += process.disk.syncs
        process.disk.lose()
        machine.process = None
        machine.ends.append(ended)
        if self.on_end is not None:
            self.on_end(process, ended)
        elif ended.error is not None:
            self.scheduler.fail(f"{process.loop.name} raised {type(ended.error).__name__}: {ended.error}")

    # -- the run ------------------------------------------------------------------------------------------------------

    def drive(self, scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `scenario`, which may use all of this world, on a separate loop without faults; the world ends with it.
        Raises: SimFailure, and what it raises."""
        loop = SimLoop(self.scheduler, "driver", host="driver", sockets=self.network, options=LoopOptions())
        return run_on(loop, scenario)

    def fingerprint(self) -> str:
        return f"{self.scheduler.fingerprint()}.{self.network.rng.getrandbits(64):016x}.{self.network.bytes}"

    def _begin(self, process: Process, main: Main) -> None:
        # Keep a reference: a task that only waits for its own future would be garbage collected.
        process.task = process.loop.create_task(self._live(process, main), name=f"{process.loop.name} main")

    async def _live(self, process: Process, main: Main) -> None:
        ended = Ended("returned")
        try:
            await main(process)
        except Exception as error:
            ended = Ended("raised", f"{type(error).__name__}: {error}", error)
        task = asyncio.current_task()
        assert task is not None
        await cancel_all(process.loop, but=task)
        self.end(process, ended)
