"""Begins the faults of a run at the steps of the programs that they are aimed at, and records which had an effect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from minikube_py.cluster.aimed_faults import Aimed
from minikube_py.cluster.player import Player
from minikube_py.cluster.program import EVENTS, Programs, Step
from minikube_py.sim.faults import S

NS_PER_US: Final = 1000
WELL_AFTER_US: Final = S


class FaultInjection:
    """`begun`: the faults, in order, with their time and their final numbers. `met`: the places of those that affected
    a request, a watch, a node or the program. Some time after the last fault that began, all end."""

    def __init__(self, programs: Programs, player: Player, faults: Sequence[Aimed]) -> None:
        self.begun: list[tuple[int, Aimed]] = []
        self.met: dict[int, None] = {}
        self._programs, self._player, self._faults = programs, player, faults
        self._loop = programs.virtual.loop
        self._time = self._loop.scheduler
        self._at: dict[Step, list[int]] = {}
        self._well_ns = 0

    def start(self) -> None:
        for place, (fault, step) in enumerate(self._faults):
            if step is None:
                self._later(place, fault.at_us)
            else:
                self._at.setdefault(step, []).append(place)
        self._programs.on_step = self._stepped

    def _stepped(self, step: Step) -> None:
        for place in self._at.pop(step, ()):
            fault = self._faults[place].fault
            if not fault.at_us and (step.verb in EVENTS or fault.kind == "crash_client"):
                # Before the event passes, or the request is sent. Requests take time to the API server.
                self._begin(place)
            else:
                self._later(place, fault.at_us)

    def _later(self, place: int, delay_us: int) -> None:
        self._well_after(delay_us + self._faults[place].fault.duration_us)
        self._time.at(self._time.now_ns + delay_us * NS_PER_US, lambda _: self._loop.call_soon(self._begin, place))

    def _begin(self, place: int) -> None:
        fault, step = self._faults[place]
        timeline = self._programs.timeline
        if fault.kind == "stale":
            before = timeline.revision_before(fault.subject, int(fault.amount))
            back = self._programs.virtual.plane.core.cache.revision - before
            # What a cluster has from its start, such as its namespaces, was always there.
            fault = fault._replace(amount=float(back if before else 1))
        self.begun.append((self._time.now_ns - timeline.zero_ns, Aimed(fault, step)))
        timeline.add(f"fault: {fault}")
        self._player.begin(fault, partial(self.met.setdefault, place))
        self._well_after(fault.duration_us)

    def _well_after(self, duration_us: int) -> None:
        at_ns = self._time.now_ns + (duration_us + WELL_AFTER_US) * NS_PER_US
        if at_ns > self._well_ns:
            self._well_ns = at_ns
            self._time.at(at_ns, lambda _: self._loop.call_soon(self._well))

    def _well(self) -> None:
        if self._time.now_ns >= self._well_ns:
            self._programs.timeline.add("no more faults")
            self._player.all_well()
            self._programs.all_well()
