"""The whole control plane in virtual time: from one seed one history, to the byte, in any process.

    with VirtualCluster(seed=7, nodes=3) as cluster:
        cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
        cluster.advance(minutes=5)
        print(cluster.digest)

Store member, API server core, scheduler, controllers and fake kubelets are those that `minikube-py up` runs, on the
loop, clock and disk of `minikube_py.sim`. Nothing waits: time passes when everybody waits. The seed decides the uids,
the scheduler's ties, how long each sync of the disk takes and in which order what is ready at one moment runs. What
processor time costs is not part of it: a turn of the loop takes no virtual time.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from minikube_py.api.service_tokens import SigningKey
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON, ApiResponse, ApiTransport
from minikube_py.cluster.history import HistoryDigest, Told
from minikube_py.cluster.player import GatedPlane
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import COMPONENTS
from minikube_py.control_plane.plane import PlaneConfig, child_of
from minikube_py.control_plane.users import USERS
from minikube_py.controllers.base import ControllerConfig
from minikube_py.env import Rng
from minikube_py.errors import InvalidRequest
from minikube_py.kubelet.config import KubeletConfig, NodeSpec, numbered_nodes
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.sim.clock import MachineClock, SimClock
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.loop import NS_PER_S, LoopOptions, Scheduler, SimFailure, SimLoop
from minikube_py.sim.running import cancel_others
from minikube_py.sim.syncs import SimSyncs, SyncTimes
from minikube_py.store.member import MemberConfig

if TYPE_CHECKING:
    from minikube_py.cluster.virtual_members import VirtualMembers
    from minikube_py.store.storage import Storage

T = TypeVar("T")

ELIDED: Final = "heartbeats elided"
ELIDED_MONITOR_S: Final = 300.0
LOOK_S: Final = 60.0
"""As the API server's limit of a request."""
LOOP: Final = LoopOptions(shuffle=True, steps_at_once_max=50_000_000, steps_max=1 << 62)
"""A burst of a hundred thousand pods is one moment's work."""
OF_SEVERAL: Final = MemberConfig(segment_bytes=1 << 20, own_gc=False)
MEMBER: Final = MemberConfig(segment_bytes=1 << 20, own_gc=False, tick_s=0.25)
"""Small segments: each is in memory twice, as written and as synced. A member alone elects nobody; by longer ticks a
minute in which nothing happens costs a third, and leases end within half a second of their time."""


@dataclass(frozen=True, slots=True)
class VirtualConfig:
    """The gates of `scheduler` are those of all components.

    `members`: how many the store has; several are machines of their own, and the control plane is a client of theirs.
    `member`: its configuration where it is alone. `syncs`: how long the disk's syncs take. `ties`: seeds the
    scheduler's choices among equals; None: the cluster's seed does. `heartbeats`: "elided" leaves out Leases and
    repeated statuses of nodes, which are then never lost; the digest says so."""

    nodes: Sequence[NodeSpec] = ()
    components: tuple[str, ...] = COMPONENTS
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    controllers: ControllerConfig = field(default_factory=ControllerConfig)
    kubelet: KubeletConfig = field(default_factory=KubeletConfig)
    members: int = 1
    member: MemberConfig = MEMBER
    syncs: SyncTimes = field(default_factory=SyncTimes)
    loop: LoopOptions = LOOP
    ties: int | None = None
    heartbeats: Literal["written", "elided"] = "written"

    @property
    def name(self) -> str:
        """What the digest begins with."""
        return ELIDED if self.heartbeats == "elided" else ""

    @property
    def told(self) -> PlaneConfig:
        """The configuration of the components. Elided: no node renews its Lease, and none is given up for it."""
        kubelet = replace(self.kubelet, nodes=(*self.kubelet.nodes, *self.nodes))
        controllers = replace(self.controllers, gates=self.scheduler.gates)
        if self.heartbeats == "elided":
            kubelet = replace(kubelet, heartbeats=False)
            controllers = replace(
                controllers,
                node_monitor_period_s=ELIDED_MONITOR_S,
                node_monitor_grace_s=math.inf,
                node_startup_grace_s=math.inf,
            )
        return PlaneConfig(self.scheduler, controllers, kubelet, self.components, self.ties)


class VirtualCluster:
    """Used from plain code; its event loop runs only while one of the methods does, and one that called it waits then.

    What a real process would only log ends the run as SimFailure: a task's exception that nobody retrieves, a
    callback that raises, a component that ends by itself."""

    def __init__(
        self, seed: object = 0, nodes: int | Sequence[NodeSpec] = (), config: VirtualConfig | None = None
    ) -> None:
        shapes = tuple(numbered_nodes(nodes)) if isinstance(nodes, int) else nodes
        self.seed = seed
        self.config = config or VirtualConfig(nodes=shapes)
        self._time = Scheduler(f"cluster {seed}", self.config.loop)
        rng = Rng(f"cluster {seed}")
        self.loop = SimLoop(self._time, "cluster", rng=child_of(rng))
        self.clock = SimClock(self.loop, MachineClock())
        self.history = HistoryDigest(lambda: self._time.now_ns)
        self._rng = rng
        self._plane: GatedPlane | None = None
        self._frozen = False
        self.members: VirtualMembers | None = None
        """Those of the store, where there are several."""
        # Drawn aside: what else is drawn of the seed stays as it is.
        self.token = f"{Rng(f'token {seed}').getrandbits(128):032x}"
        """An administrator's, for clients within the process."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when all components are synced and the nodes registered.

        Raises: SimFailure; MinikubeError of every kind."""
        self.run(self.bring_up)
        return self

    async def bring_up(self, config: VirtualConfig | None = None) -> None:
        """What `start` does, for a coroutine that `run` runs, and that knows only then what is to stand there."""
        self.config = config = config or self.config
        disk = SimDisk(child_of(self._rng))
        syncs = SimSyncs(self.loop, disk, child_of(self._rng), lambda: config.syncs)
        plane = self._plane = GatedPlane(self.clock, self._rng)
        plane.gates = config.scheduler.gates
        if config.members == 1:
            await plane.start_member(disk, config.member, syncs, self._time.fail)
        else:
            await plane.use_storage(await self._several(config))
        self.history.follow(plane.storage, config.name)
        key = SigningKey.drawn(Rng(f"service accounts {self.seed}").getrandbits(256))
        plane.prepare_core({self.token: USERS[tokens.ADMIN]}, key)
        await plane.start_core()
        told = config.told
        controllers = replace(told.controllers, signing_key=key)
        await plane.start_components(replace(told, controllers=controllers))
        self._time.beside.generators = plane.generators

    async def _several(self, config: VirtualConfig) -> Storage:
        # Few runs have them, and with them come sockets and servers.
        from minikube_py.cluster.virtual_members import VirtualMembers

        self.members = VirtualMembers.of(self.seed, self._time, config.members, config.loop, config.syncs)
        self.loop.use(self.members.network)
        return await self.members.connect(self.clock, child_of(self._rng), OF_SEVERAL)

    def stop(self) -> None:
        """Ends all of it; idempotent. Raises: SimFailure for what only shows now."""
        if self._time.loops:
            try:
                if self.broken is None:
                    self.run(self._stop)
            finally:
                self._end()

    def close(self) -> None:
        """As `stop`, where something may be on its way already that matters more than how this ends."""
        with suppress(Exception):
            self.stop()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
            return
        # What went wrong is on its way.
        self.close()

    @property
    def plane(self) -> GatedPlane:
        """Its parts: member, core and components, as the product has them."""
        assert self._plane is not None, "start the cluster first"
        return self._plane

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster was made."""
        return self._time.now_s

    @property
    def now_ns(self) -> int:
        return self._time.now_ns

    @property
    def steps(self) -> int:
        """Callbacks that were run."""
        return self._time.steps

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Everything happens that is due within that time, its end included.

        Raises: InvalidRequest for time that runs back; SimFailure."""
        self.advance_ns(self.duration_ns(seconds + 60 * minutes + 3600 * hours))

    @staticmethod
    def duration_ns(duration_s: float) -> int:
        """Raises: InvalidRequest for time that runs back."""
        if not 0 <= duration_s < math.inf:
            raise InvalidRequest(f"time passes by 0 s or more, not by {duration_s:g} s")
        return round(duration_s * NS_PER_S)

    def advance_ns(self, duration_ns: int) -> None:
        """As `advance`. Raises: SimFailure."""
        self._time.run_to(self._time.now_ns + duration_ns)
        self._check()

    def advance_until(self, duration_ns: float, holds: Callable[[], bool]) -> None:
        """As `advance_ns`, but no further than to where `holds` does. Raises: SimFailure."""
        self._time.run_to(self._time.now_ns + round(duration_ns), holds)
        self._check()

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], stops: bool = False) -> T:
        """What `main()` returns or raises, on the cluster's loop; as much time passes as that takes. `stops`: a signal
        ends it before.

        Raises: SimFailure."""
        self._freeze()
        return self.loop.run_until_complete(main(), stops)

    def look(self, main: Callable[[], Coroutine[Any, Any, T]], limit_s: float = LOOK_S) -> T:
        """What `main()` returns or raises, which only looks: the history goes on afterwards as if it had not been. What
        waits for time has it pass for itself alone, up to `limit_s`.

        Raises: TooLong where it would have to wait longer, or for what stands still meanwhile; SimFailure."""
        self._freeze()
        return self._time.beside.look(self.loop, main, limit_s)

    def held(self) -> AbstractContextManager[None]:
        """Signals of this process wait meanwhile, but where time passes by `advance`. Raises: what their handlers
        raise, at the end."""
        return self._time.interrupts.held()

    @property
    def broken(self) -> BaseException | None:
        """What hit the simulation in the middle of a step: it can do nothing any more."""
        return self._time.interrupts.error

    def _freeze(self) -> None:
        if not self._frozen:
            # Collections walk what the run makes, and nothing that was there before.
            gc.freeze()
            self._frozen = True

    # -- the API ------------------------------------------------------------------------------------------------------

    def transport(self, user: User = USERS[tokens.ADMIN]) -> ApiTransport:
        """For coroutines that `run` runs."""
        return self.plane.transport(user)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """One request of an administrator's. A GET leaves the history as it was, unless the store has several members,
        which must agree for it; all else is part of it."""

        async def ask() -> ApiResponse:
            return await self.transport().request(method, path, params, body, content_type)

        return self.look(ask) if method == "GET" and self.members is None else self.run(ask)

    def node_down(self, name: str) -> None:
        """The node falls silent; its pods stay as they are, whatever is requested from them. Idempotent.

        Raises: InvalidRequest where there is no such node, no kubelet, or no heartbeat to miss."""
        if self.config.heartbeats == "elided":
            raise InvalidRequest("with heartbeats elided no node is ever lost")
        self._kubelet().power_off(name)

    def node_up(self, name: str) -> None:
        """It is there again, and deals with what was requested from its pods meanwhile. Idempotent."""
        self._kubelet().power_on(name)

    def new_rng(self) -> Rng:
        """A generator of its own for what else is to run here."""
        return child_of(self._rng)

    # -- the history --------------------------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """SHA-256 of the history so far; see HistoryDigest."""
        return self.history.hexdigest()

    def on_change(self, told: Told | None) -> None:
        """`told` hears of every change in the store from now on."""
        self.history.on_change = told

    # -- inside -------------------------------------------------------------------------------------------------------

    def _kubelet(self) -> FakeKubelet:
        kubelet = self.plane.components.get("kubelet")
        if not isinstance(kubelet, FakeKubelet):
            raise InvalidRequest("this cluster has no kubelet")
        return kubelet

    async def _stop(self) -> None:
        self.history.stop()
        if self._plane is not None:
            await self._plane.stop()
        if self.members is not None:
            await self.members.stop(self.clock)
        await cancel_others(self.loop)

    def _check(self) -> None:
        failure = self.plane.failure()
        if failure is not None:
            raise SimFailure(f"a component ended by itself at {self.now_s:.6f} s: {failure}") from failure

    def _end(self) -> None:
        logged = logging.root.manager.disable
        # Whoever is killed where it waits says so, to nobody's use.
        logging.disable(logging.CRITICAL)
        try:
            self._time.finish()
        finally:
            logging.disable(logged)
            if self._frozen:
                self._frozen = False
                gc.unfreeze()
