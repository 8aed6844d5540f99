"""The whole control plane in virtual time: a seed determines the history, to the byte, in any process.

    with VirtualCluster(seed=7, nodes=3) as cluster:
        cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
        cluster.advance(minutes=5)
        print(cluster.digest)

Store member, API server core, scheduler, controllers and fake kubelets are those of `minikube-py up`, on the loop,
clock and disk of `minikube_py.sim`. Nothing really waits: time advances when all tasks wait. The seed decides the uids,
the scheduler's ties, the duration of each disk sync and the order of tasks ready at one moment. CPU time is not
modelled: a turn of the loop takes no virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from minikube_py.api.service_tokens import SigningKey
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON, ApiResponse, ApiTransport
from minikube_py.cluster.history import HistoryDigest, Told
from minikube_py.cluster.player import GatedPlane
from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import drawn_authority
from minikube_py.control_plane.config import COMPONENTS, DEFAULT_PORT
from minikube_py.control_plane.plane import PlaneConfig, child_of
from minikube_py.control_plane.users import USERS
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.certificate_signing import SigningAuthority
from minikube_py.env import Rng
from minikube_py.errors import InvalidRequest
from minikube_py.kubelet.config import KubeletConfig, NodeSpec, numbered_nodes
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.sim.clock import MachineClock, SimClock
from minikube_py.sim.disk import SimDisk
from minikube_py.sim.inspection import INSPECTION
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
ADDRESS: Final = "192.0.2.1"
"""The API server's, of a network for documentation (RFC 5737): `default/kubernetes` leads there."""
LOOK_S: Final = 60.0
"""The API server's limit of a request."""
LOOP: Final = LoopOptions(shuffle=True, steps_at_once_max=50_000_000, steps_max=1 << 62)
"""A burst of a hundred thousand pods happens in one moment."""
OF_SEVERAL: Final = MemberConfig(segment_bytes=2 << 20, own_gc=False)
MEMBER: Final = MemberConfig(segment_bytes=2 << 20, own_gc=False, tick_s=0.25)
"""Segments as small as the largest request allows: each is in memory twice, as written and as synced. A single member
holds no elections: with longer ticks an idle minute costs a third, and leases end within half a second of their
time."""


@dataclass(frozen=True, slots=True)
class VirtualConfig:
    """The gates of `scheduler` are those of all components.

    `members`: the number of store members; several are separate machines, and the control plane is their client.
    `member`: the configuration of a single one. `syncs`: how long the disk's syncs take. `ties`: seeds the scheduler's
    tie-breaking; None: from the cluster's seed. `heartbeats`: "elided" omits Leases and repeated statuses of nodes,
    which are then never lost; the digest says so."""

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
        """The prefix of the digest."""
        return ELIDED if self.heartbeats == "elided" else ""

    @property
    def told(self) -> PlaneConfig:
        """The configuration of the components. Elided: no node renews its Lease, and none is considered lost for it."""
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
    """For plain code; its event loop runs only during a method call, and an outer event loop waits then.

    Errors that a real process would only log end the run with SimFailure: a task's exception never retrieved, a
    callback that raises, a component that ends itself."""

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
        self.members: VirtualMembers | None = None
        """Of the store, if there are several."""
        # Drawn separately, so that other draws from the seed are unchanged.
        self.token = f"{Rng(f'token {seed}').getrandbits(128):032x}"
        """An administrator's, for clients within the process."""
        self.uses: dict[tuple[str, str], None] = {}
        """Secrets (namespace, name) whose token was used by something that must not write."""

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when all components are synced and the nodes registered.

        Raises: SimFailure; MinikubeError of every kind."""
        self.run(self.bring_up)
        return self

    async def bring_up(self, config: VirtualConfig | None = None) -> None:
        """The work of `start`, as a coroutine for `run`, with contents that are known only then."""
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
        plane.core.accounts.on_use = self._on_use
        await plane.core.publish(ADDRESS, DEFAULT_PORT)
        told = config.told
        root = drawn_authority(Rng(f"authority {self.seed}"), datetime.fromtimestamp(self.clock.wall_s(), UTC))
        signer, root_pem = SigningAuthority(*root), root[0].decode("ascii")
        controllers = replace(told.controllers, signing_key=key, root_ca_pem=root_pem, signing_authority=signer)
        await plane.start_components(replace(told, controllers=controllers))
        self._time.beside.generators = plane.generators

    async def _several(self, config: VirtualConfig) -> Storage:
        # Few runs have them, and they import sockets and servers.
        from minikube_py.cluster.virtual_members import VirtualMembers

        self.members = VirtualMembers.of(self.seed, self._time, config.members, config.loop, config.syncs)
        self.loop.use(self.members.network)
        return await self.members.connect(self.clock, child_of(self._rng), OF_SEVERAL)

    def stop(self) -> None:
        """Ends everything; idempotent. Raises: SimFailure for errors that only show now."""
        if self._time.loops:
            try:
                if self.broken is None:
                    self.run(self._stop)
            finally:
                self._end()

    def drop(self) -> None:
        """At once, without its orderly end: nobody holds it. Idempotent."""
        if self._time.loops:
            with suppress(Exception):
                self._end()

    def close(self) -> None:
        """As `stop`, if another exception may already be propagating, which takes precedence."""
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
        # The failure is already propagating.
        self.close()

    @property
    def plane(self) -> GatedPlane:
        """Its parts: member, core and components, as in the product."""
        assert self._plane is not None, "start the cluster first"
        return self._plane

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster was created."""
        return self._time.now_s

    @property
    def now_ns(self) -> int:
        return self._time.now_ns

    @property
    def steps(self) -> int:
        """The number of callbacks run."""
        return self._time.steps

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Runs everything due within that time, including its end.

        Raises: InvalidRequest for negative time; SimFailure."""
        self.advance_ns(self.duration_ns(seconds + 60 * minutes + 3600 * hours))

    @staticmethod
    def duration_ns(duration_s: float) -> int:
        """Raises: InvalidRequest for negative time."""
        if not 0 <= duration_s < math.inf:
            raise InvalidRequest(f"time passes by 0 s or more, not by {duration_s:g} s")
        return round(duration_s * NS_PER_S)

    def advance_ns(self, duration_ns: int) -> None:
        """As `advance`. Raises: SimFailure."""
        self._time.run_to(self._time.now_ns + duration_ns)
        self._check()

    def advance_until(self, duration_ns: float, holds: Callable[[], bool]) -> None:
        """As `advance_ns`, but only until `holds` does. Raises: SimFailure."""
        self._time.run_to(self._time.now_ns + round(duration_ns), holds)
        self._check()

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], stops: bool = False) -> T:
        """Returns or raises what `main()` does, on the cluster's loop; time passes as needed. `stops`: a signal ends it
        early.

        Raises: SimFailure."""
        return self.loop.run_until_complete(main(), stops)

    def look(self, main: Callable[[], Coroutine[Any, Any, T]], limit_s: float = LOOK_S) -> T:
        """Returns or raises what `main()` does, which must only read: the history then continues as if it had not run.
        While it waits, time passes for it alone, up to `limit_s`.

        Raises: TooLong if it would have to wait longer, or for the stopped history; SimFailure."""
        return self._time.beside.look(self.loop, main, limit_s)

    def held(self) -> AbstractContextManager[None]:
        """Only this thread uses it meanwhile, and signals of the process are deferred, except during `advance`. Raises:
        what their handlers raise, at the end."""
        return self._time.entered()

    @property
    def broken(self) -> BaseException | None:
        """The error that hit the simulation in the middle of a step: it is not usable any more."""
        return self._time.interrupts.error

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
        """One request of an administrator. A GET does not change the history, unless the store has several members,
        which must agree on it; everything else is part of it."""

        async def ask() -> ApiResponse:
            return await self.transport().request(method, path, params, body, content_type)

        return self.look(ask) if method == "GET" and self.members is None else self.run(ask)

    def node_down(self, name: str) -> None:
        """The node goes silent; its pods stay as they are, whatever is requested. Idempotent.

        Raises: InvalidRequest if there is no such node, no kubelet, or no heartbeat to miss."""
        if self.config.heartbeats == "elided":
            raise InvalidRequest("with heartbeats elided no node is ever lost")
        self._kubelet().power_off(name)

    def node_up(self, name: str) -> None:
        """It returns, and handles requests about its pods made meanwhile. Idempotent."""
        self._kubelet().power_on(name)

    def new_rng(self) -> Rng:
        """A separate generator for other code to run here."""
        return child_of(self._rng)

    # -- the history --------------------------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """SHA-256 of the history so far; see HistoryDigest."""
        return self.history.hexdigest()

    def on_change(self, told: Told | None) -> None:
        """`told` is called with every change in the store from now on."""
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

    async def _on_use(self, namespace: str, secret: str) -> None:
        if INSPECTION.get():
            self.uses[namespace, secret] = None
        else:
            await self.plane.core.accounts.write_use(namespace, secret)

    def _check(self) -> None:
        failure = self.plane.failure()
        if failure is not None:
            raise SimFailure(f"a component ended by itself at {self.now_s:.6f} s: {failure}") from failure

    def _end(self) -> None:
        self._time.finish()
