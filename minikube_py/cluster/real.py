"""A control plane in real time, in this process: on a separate thread and event loop, or in the caller's loop.

It always cleans up: after a failed or cancelled start, an exception, Ctrl-C, a fork, or an exit without stopping it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from minikube_py.client.transport import ApiTransport
from minikube_py.cluster import snapshots
from minikube_py.cluster.errors import STOPPED, ClusterError
from minikube_py.cluster.folder import Folder
from minikube_py.cluster.gate import DOOR
from minikube_py.cluster.lifecycle import Lifecycle, LifecycleTransport
from minikube_py.cluster.loop_thread import LoopThread
from minikube_py.cluster.operations import Operations, waited
from minikube_py.cluster.player import GatedControlPlane
from minikube_py.cluster.waiting import Waiting
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import InMemory, to_its_end
from minikube_py.control_plane.plane import Plane
from minikube_py.env import Clock, SystemClock
from minikube_py.kubelet.config import NodeSpec, numbered_nodes
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.faults import Fault
from minikube_py.store.member import MemberConfig

log = logging.getLogger(__name__)
MEMBER: Final = MemberConfig(segment_bytes=2 << 20, own_gc=False)
"""Segments as small as the largest request allows: each is in memory twice. Garbage collection belongs to the process's
owner."""


@dataclass(frozen=True, slots=True)
class Options:
    """As the arguments of Cluster."""

    nodes: int | Sequence[NodeSpec] = 1
    data_dir: Path | None = None
    port: int = 0
    seed: int | str | None = None
    stages: tuple[Path, ...] = ()

    @property
    def shapes(self) -> tuple[NodeSpec, ...]:
        return tuple(numbered_nodes(self.nodes)) if isinstance(self.nodes, int) else tuple(self.nodes)


class RealPlane:
    """The control plane with its folder; and access from outside."""

    folder: Folder
    plane: GatedControlPlane
    clock: Clock
    life: Lifecycle

    @property
    def url(self) -> str:
        return self.plane.server

    @property
    def token(self) -> str:
        return self.plane.credentials.by_role[tokens.ADMIN]

    @property
    def authority_pem(self) -> str:
        return self.plane.credentials.certificates.authority_pem.decode("ascii")

    def kubeconfig(self, namespace: str) -> Path:
        return self.folder.kubeconfig(namespace, self.plane.credentials.access(self.url))

    def transport(self) -> ApiTransport:
        return LifecycleTransport(self.plane.transport(), self.life)

    def own_transport(self) -> ApiTransport:
        return LifecycleTransport(self.plane.transport(DOOR), self.life)

    time_passes = True

    def in_process(self, package: Any) -> Any:
        """No special transport for the clients of `package`: they use sockets."""
        return None

    def clients_within(self, namespace: str) -> None:
        """Clients for coroutines use sockets, too."""


class Threaded(RealPlane):
    """On a separate thread and event loop: any synchronous client may wait for it."""

    def __init__(self, options: Options) -> None:
        self._thread = LoopThread(partial(InLoop, options))

    def start(self) -> None:
        """Raises: what the control plane's start raises; nothing is left then."""
        made = self._thread.start()
        self.folder, self.plane, self.clock, self.life = made.folder, made.plane, made.clock, made.life

    @property
    def ending(self) -> bool:
        return self._thread.ending

    def require_outside(self) -> None:
        """Raises: ClusterError in a webhook's function: a request that runs waits for it."""
        webhooks = self.plane.player.webhooks
        if webhooks is not None and webhooks.answer_here:
            raise ClusterError("a webhook's function cannot stop the cluster, which waits for its answer")

    def stop(self, quietly: bool = False) -> None:
        """Idempotent. Raises: what the end raises."""
        self._thread.stop()

    def within(self, work: Callable[[Plane, Clock], Coroutine[Any, Any, Any]], *named: Any) -> Any:
        """Returns or raises what `work` does, on the cluster's loop, with its parts."""
        with self.life.within():
            return self._thread.run(lambda: work(self.plane, self.clock))

    def call(self, work: Callable[[Operations], Any], operations: Operations, reads: bool) -> Any:
        return self._thread.run(lambda: work(operations))

    def inject(self, fault: Fault) -> None:
        self.do("", lambda: self.plane.player.begin(fault))

    def do(self, name: str, call: Callable[[], None]) -> None:
        async def act() -> None:
            call()

        self._thread.run(act)

    def all_well(self) -> None:
        self.do("", self.plane.player.all_well)

    def failure(self) -> BaseException | None:
        """Why it cannot continue."""
        return ClusterError(self.life.over) if self.life.over else self.plane.failure()

    def programs_started(self) -> Sequence[Any]:
        """They are for virtual time."""
        return ()

    def end_programs(self, but: Sequence[Any]) -> None:
        """There are none."""

    def wait(
        self, operations: Operations, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str
    ) -> list[dict[str, Any]]:
        return waited(self._thread, self.clock, operations, waiting, timeout_s, namespace, selector)


class InLoop(RealPlane):
    """In the caller's loop."""

    def __init__(self, options: Options) -> None:
        self.folder = Folder(options.data_dir, self._let_go)
        seed = None if options.seed is None else random.Random(str(options.seed)).getrandbits(63)
        config = ControlPlaneConfig(
            self.folder.path, port=options.port, shapes=options.shapes, seed=seed, stages=options.stages
        )
        memory = None if options.data_dir is not None else InMemory(SimDisk(), MEMBER)
        self.clock, self.life = SystemClock(), Lifecycle()
        self.plane = GatedControlPlane(config, self.clock, random.Random(), in_memory=memory, fatal=self._store_failed)

    def _store_failed(self, message: str) -> None:
        log.critical(message)
        self.life.store_failed(message)

    def _let_go(self) -> None:
        """The sockets belong to the parent, whose clients see their end."""
        http = self.plane.http
        if http is not None:
            http.abandon()

    async def start(self) -> None:
        """Raises: what the control plane's start raises; nothing is left then."""
        try:
            with self.life.within():
                await self.plane.start()
        except BaseException:
            self.folder.clear()
            raise

    def inject(self, fault: Fault) -> None:
        self.plane.player.begin(fault)

    def do(self, name: str, call: Callable[[], None]) -> None:
        call()

    def all_well(self) -> None:
        self.plane.player.all_well()

    async def _end(self) -> None:
        await snapshots.no_more(self.plane)
        await self.plane.stop()

    async def stop(self) -> None:
        self.life.end(STOPPED)
        try:
            if self.folder.owner.is_here:
                await to_its_end(self._end())
        finally:
            self.folder.clear()
