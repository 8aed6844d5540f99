"""The processes of a simulated control plane beside its store, and their supervisor: API servers, scheduler,
controllers and kubelets, each with the code of its `minikube-py` role."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

from minikube_py.api.service_tokens import SigningKey
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.rules import User
from minikube_py.client.leader_election import LeaderElector, LeadershipLost
from minikube_py.client.rest import RestClient
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import drawn_authority
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.config import DEFAULT_PORT
from minikube_py.control_plane.leading import Leading
from minikube_py.control_plane.users import USERS
from minikube_py.control_plane.waiting import api_is_ready, when_available
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.manager import ControllerManager
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError
from minikube_py.kubelet.config import Delay, KubeletConfig, NodeSpec
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.sim.access import endpoint
from minikube_py.sim.api_calls import ApiCalls, CallTransport, Link
from minikube_py.sim.fault_player import FaultPlayer
from minikube_py.sim.world import Ended, Process, World
from minikube_py.store.client import StoreClient

RESTART_S: Final = (0.1, 2.0)
WATCHDOG_S: Final = 1.0
Make = Callable[[ApiTransport, Clock, Rng], Any]
LED: Final[tuple[tuple[str, str, Make], ...]] = (
    ("scheduler", tokens.SCHEDULER, Scheduler),
    ("controllers", tokens.CONTROLLERS, lambda *given: ControllerManager(*given, config=_controllers())),
)
ADDRESSES: Final = "192.0.2.{}"
"""Of the API servers, in a network for documentation (RFC 5737)."""
AUTHORITIES: Final = "authorities of every simulated control plane"


@dataclass(slots=True)
class Part:
    """`down`: how many faults hold it down. `running`: the component, once it has started."""

    host: str
    main: Callable[[Part, Process], Coroutine[Any, Any, None]]
    down: int = 0
    running: Any = None
    lives: int = 0

    @property
    def component(self) -> Any:
        """The running component; None while it is a standby."""
        return self.running.component if isinstance(self.running, Leading) else self.running


class Parts:
    """`fail` is called for errors that no process may have."""

    def __init__(self, world: World, rng: Rng, calls: ApiCalls, fail: Callable[[str], None]) -> None:
        self.world, self.rng, self.calls, self.fail = world, rng, calls, fail
        self.by_host: dict[str, Part] = {}
        self.api_hosts: list[str] = []
        self.clients: list[str] = []
        self.led: list[list[str]] = []

    # -- setup --------------------------------------------------------------------------------------------------------

    def add_api_server(self, host: str, store_hosts: list[str]) -> None:
        async def main(part: Part, process: Process) -> None:
            async def connected() -> StoreClient:
                client = StoreClient([endpoint(each) for each in store_hosts], process.clock, process.rng)
                try:
                    await client.start()
                    await client.get(b"\0")
                except BaseException:
                    await client.close()
                    raise
                return client

            storage = await when_available(connected, "the store", process.clock, process.rng, _say)
            core = ApiServer(storage, process.clock, process.rng, tokens={}, signing_key=_authorities()[0])
            await core.start()
            await core.publish(ADDRESSES.format(self.api_hosts.index(host) + 1), DEFAULT_PORT)
            self.calls.serve(process, core)
            part.running = core
            while True:
                await process.clock.sleep(WATCHDOG_S)

        self.api_hosts.append(host)
        self.by_host[host] = Part(host, main)

    def add_client(self, host: str, role: str, make: Make, lease: str = "") -> None:
        """`lease`: it works while it is the leader."""

        async def main(part: Part, process: Process) -> None:
            transport = self.transport(process, USERS[role])
            await when_available(partial(api_is_ready, transport), "the API", process.clock, process.rng, _say)
            made = _leading(lease, process, make) if lease else lambda given: make(given, process.clock, process.rng)
            component = made(transport)
            await component.start()
            part.running = component
            failed = component.failure if isinstance(component, Leading) else partial(failure_of, component)
            while (failure := failed()) is None:
                await process.clock.sleep(WATCHDOG_S)
            raise failure

        self.clients.append(host)
        self.by_host[host] = Part(host, main)

    def add_components(self, names: Sequence[str], kubelets: list[list[NodeSpec]]) -> None:
        """`names`: if there are two of a kind, one of them leads."""
        for name, role, make in LED:
            hosts = [each for each in names if each.partition("-")[0] == name]
            self.led.append(hosts)
            for host in hosts:
                self.add_client(host, role, make, name if len(hosts) > 1 else "")
        for number, nodes in enumerate(kubelets):
            config = KubeletConfig(
                nodes=tuple(nodes), slot=number, slot_nodes=len(nodes), start_delay=Delay(0.0, 2.0),
                stop_delay=Delay(0.0, 3.0),
            )  # fmt: skip
            self.add_client(f"kubelet-{number}", tokens.KUBELET, partial(_kubelet, config))

    def transport(self, process: Process, user: User) -> CallTransport:
        return CallTransport(self.calls, process.loop, process.rng, self.api_hosts, user, process.name)

    def links_of(self, host: str) -> list[Link]:
        if host in self.api_hosts:
            return [(client, host) for client in self.clients]
        return [(host, each) for each in self.api_hosts]

    def missing(self) -> str:
        """What is not running yet."""
        missing = [part.host for part in self.by_host.values() if part.running is None]
        headless = [hosts for hosts in self.led if all(self.by_host[host].component is None for host in hosts)]
        return ", ".join([*missing, *(f"a leader of {' and '.join(hosts)}" for hosts in headless)])

    # -- lifecycle
    # --------------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for part in self.by_host.values():
            self._start(part)

    def heal(self) -> None:
        self.calls.all_well()
        for part in self.by_host.values():
            part.down = 0
            self.world.resume_wholly(part.host)
            self._start(part)

    def hold_down(self, host: str) -> None:
        self.by_host[host].down += 1

    def release(self, host: str) -> None:
        part = self.by_host[host]
        part.down = max(0, part.down - 1)
        self._start(part)

    def _start(self, part: Part) -> None:
        if not part.down and self.world.running(part.host) is None:
            part.lives += 1
            self.world.start(part.host, partial(part.main, part))

    def ended(self, process: Process, ended: Ended) -> bool:
        """Whether it was one of these. A process that fails during its start is restarted, as by a supervisor."""
        part = self.by_host.get(process.name)
        if part is None:
            return False
        worked, part.running = part.running is not None, None
        self.calls.ended(process)
        worked = worked and not isinstance(ended.error, LeadershipLost)
        if ended.how != "killed" and (worked or not isinstance(ended.error, MinikubeError)):
            self.fail(f"{process.loop.name} {ended.how}: {ended.why}")
        self.world.scheduler.after(self.rng.uniform(*RESTART_S), self._start, part)
        return True


class PartsPlayer(FaultPlayer):
    """As FaultPlayer, also for these processes."""

    parts: Parts


@cache
def _authorities() -> tuple[SigningKey, str]:
    """The key of service accounts, and the root certificate as PEM: as each role reads them from its files."""
    rng = Rng(AUTHORITIES)
    return SigningKey.drawn(rng.getrandbits(256)), drawn_authority(rng, datetime.fromtimestamp(0, UTC))[0].decode()


def _controllers() -> ControllerConfig:
    key, root = _authorities()
    return ControllerConfig(signing_key=key, root_ca_pem=root)


def _kubelet(config: KubeletConfig, transport: ApiTransport, clock: Clock, rng: Rng) -> FakeKubelet:
    return FakeKubelet(transport, clock, rng, config)


def _leading(lease: str, process: Process, make: Make) -> Callable[[ApiTransport], Leading]:
    def made(fenced: ApiTransport) -> Component:
        component: Component = make(fenced, process.clock, process.rng)
        return component

    def leading(transport: ApiTransport) -> Leading:
        identity = f"{process.name}_{process.rng.getrandbits(64):016x}"
        elector = LeaderElector(RestClient(transport), process.clock, process.rng, lease, identity)
        return Leading(elector, transport, made, _say)

    return leading


def _say(text: str) -> None:
    """Discarded."""
