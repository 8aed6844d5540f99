"""Injects faults of the registry into a running control plane, in real and in virtual time
(`sim.inject_api.ApiPlayer`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from minikube_py.apiserver.core import ApiServer
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.gate import Gate, GatedServer, Met
from minikube_py.cluster.webhooks import Webhook, Webhooks
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.plane import Plane
from minikube_py.env import Clock, Rng, ended
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.sim.faults import Fault
from minikube_py.sim.inject_api import KINDS, Rule, too_old, unnoticed
from minikube_py.store.storage import Storage

US_PER_S = 1_000_000


class Player:
    """`on_crash` is called with the number of writes that the program under test may still make, and what to call when
    it crashes."""

    def __init__(self, plane: Plane, gate: Gate, clock: Clock) -> None:
        self.gate = gate
        self.on_crash: Callable[[int, Met], None] | None = None
        self.webhooks: Webhooks | None = None
        self._plane, self._clock = plane, clock
        self._met: Met = unnoticed
        """Of the fault that begins now."""
        self._ending: dict[asyncio.Task[None], str] = {}
        """Ends of faults that last, with the node that each is about."""
        self.nodes_down = False
        """Whether any went down since all was well."""

    def check(self, fault: Fault) -> None:
        """Raises: ClusterError for faults of store members, and for an unknown node."""
        if fault.kind not in KINDS:
            raise ClusterError(f"{fault.kind}: no fault of a whole control plane; there are: {', '.join(KINDS)}")
        if fault.kind.startswith("node_") and not self.plays(fault.subject):
            raise ClusterError(f"name: no simulated node is named {fault.subject}")

    def plays(self, node: str) -> bool:
        """Whether its kubelet plays it; True without a kubelet."""
        kubelet = self._plane.components.get("kubelet")
        return not isinstance(kubelet, FakeKubelet) or kubelet.plays(node)

    def begin(self, fault: Fault, met: Met = unnoticed) -> None:
        """`met` is called each time the fault has an effect. Raises: as `check`."""
        self.check(fault)
        # Created lazily: it has the faults of all machines, and most clusters use none.
        from minikube_py.sim.fault_schedule import REGISTRY

        self._met = met
        REGISTRY[fault.kind].begin(self, fault)  # type: ignore[arg-type]

    def all_well(self) -> None:
        """Ends the injected faults."""
        for task in self._ending:
            task.cancel()
        self.gate.all_well()
        if self.webhooks is not None:
            self.webhooks.all_well()
        kubelet = self._plane.components.get("kubelet")
        if isinstance(kubelet, FakeKubelet):
            kubelet.power_on_all()
        self.nodes_down = False

    def served(self) -> dict[str, Webhook]:
        """The webhooks of the test, by name."""
        return {} if self.webhooks is None else dict(self.webhooks.served)

    def serve_only(self, hooks: dict[str, Webhook]) -> None:
        if self.webhooks is not None:
            self.webhooks.served = dict(hooks)

    async def stop(self) -> None:
        self.gate.all_well()
        if self.webhooks is not None:
            self.webhooks.all_well()
        ending = list(self._ending)
        for task in ending:
            task.cancel()
        await ended(*ending)

    # -- for the rows of the registry ---------------------------------------------------------------------------------

    def rule(self, rule: Rule, duration_us: int) -> None:
        gate, rule = self.gate, rule._replace(met=self._met)
        gate.rules.append(rule)
        if duration_us:
            self._after(duration_us, lambda: gate.rules.remove(rule) if rule in gate.rules else None)

    def expire(self, subject: str) -> None:
        self._expire(subject, self._met)

    def _expire(self, subject: str, met: Met) -> None:
        self.gate.expired_at[subject] = self._revision(), met
        self._end(subject, met, gone=True)

    def _end(self, subject: str, met: Met, gone: bool) -> None:
        revision = self._revision()
        error = too_old(str(revision), revision) if gone else None
        for each in self.gate.of(subject):
            each.stream.fail(error)
            met()

    def cut(self, subject: str) -> None:
        self._end(subject, self._met, gone=False)

    def stall(self, subject: str, duration_us: int, expire: bool) -> None:
        stalled, met = self.gate.stalled, self._met
        stalled[subject] = stalled.get(subject, 0) + 1

        def over() -> None:
            if any(each.held for each in self.gate.of(subject)):
                met()
            left = stalled.get(subject, 0) - 1
            if left > 0:
                stalled[subject] = left
            else:
                stalled.pop(subject, None)
            if expire:
                self._expire(subject, met)
            self.gate.release()

        self._after(duration_us, over)

    def repeat(self, subject: str) -> None:
        for each in self.gate.of(subject):
            if each.repeat():
                self._met()

    def stale(self, subject: str, revisions: int, duration_us: int) -> None:
        self.gate.stale[subject] = revisions, self._met
        self._end(subject, self._met, gone=True)
        if duration_us:
            self.stall(subject, duration_us, False)

    def node(self, name: str, up: bool, duration_us: int) -> None:
        kubelet = self._plane.components.get("kubelet")
        if not isinstance(kubelet, FakeKubelet):
            raise ClusterError("this cluster has no kubelet")
        for task, about in self._ending.items():
            if about == name:
                task.cancel()
        if up:
            kubelet.power_on(name)
            return
        kubelet.power_off(name)
        self.nodes_down = True
        self._met()
        if duration_us:
            self._after(duration_us, lambda: kubelet.power_on(name), name)

    def crash(self, writes: int) -> None:
        if self.on_crash is None:
            raise ClusterError("crash_client is for a program that Cluster.program() started")
        self.on_crash(writes, self._met)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _revision(self) -> int:
        return self._plane.core.cache.revision

    def _after(self, duration_us: int, call: Callable[[], Any], about: str = "") -> None:
        async def later() -> None:
            await self._clock.sleep(duration_us / US_PER_S)
            call()

        task = asyncio.get_running_loop().create_task(later())
        self._ending[task] = about
        task.add_done_callback(lambda done: self._ending.pop(done, None))


class GatedPlane(Plane):
    """A plane with faults."""

    player: Player

    threads = False
    """Whether webhooks of the test run on threads."""

    def new_core(self, storage: Storage, clock: Clock, rng: Rng, **options: Any) -> ApiServer:
        core = GatedServer(storage, clock, rng, **options)
        self.player = Player(self, core.gate, clock)
        return core

    def serve(self, hook: Webhook) -> None:
        """The API server calls it from now on. Replaces an earlier one of that name."""
        caller = self.core.webhook_caller
        if (webhooks := self.player.webhooks) is None:
            webhooks = self.player.webhooks = Webhooks(caller.outgoing, self.threads)
            caller.outgoing = webhooks
        webhooks.serve(hook)

    async def stop(self) -> None:
        player = getattr(self, "player", None)
        if player is not None:
            await player.stop()
        await super().stop()


class GatedControlPlane(GatedPlane, ControlPlane):
    """The same with a folder, certificates and HTTPS."""

    grace_s = 0.0
    threads = True
