"""Store, API server core, scheduler, controllers and fake kubelets on one event loop: shared by all layouts within one
process. Files, sockets, threads, clock and seed are passed in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.api.registry import registry_of
from minikube_py.api.service_tokens import SigningKey
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.apiserver.rules import User
from minikube_py.client.informer import InformerFactory
from minikube_py.client.repeats import Decoded
from minikube_py.client.rest import RestClient
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane import tokens
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.config import COMPONENTS, Step
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.progress import Registered, Say
from minikube_py.control_plane.users import USERS
from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.manager import ControllerManager
from minikube_py.env import Clock, Disk, Outside, Rng
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.kubelet.making import make_kubelet
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler
from minikube_py.store.fsync import SyncRunner
from minikube_py.store.member import Fatal, MemberConfig, StoreMember, exit_now
from minikube_py.store.storage import Storage

CATCH_UP_TURNS: Final = 100
"""Of the event loop; an event needs a few."""


@dataclass(frozen=True, slots=True)
class PlaneConfig:
    """The configuration of the components. `ties`: seeds the scheduler's tie-breaking, which then shares no generator
    with its informers; None: from its Rng. `components`: which ones to run. `more_schedulers`: additional, by name."""

    scheduler: SchedulerConfig
    controllers: ControllerConfig
    kubelet: KubeletConfig
    components: tuple[str, ...] = COMPONENTS
    ties: int | None = None
    more_schedulers: Mapping[str, SchedulerConfig] = field(default_factory=dict)


class Plane:
    """The parts, started in the order store, core, components and stopped in reverse. `step` is called for each part
    that became ready, `progress` while one takes long."""

    def __init__(self, clock: Clock, rng: Rng, step: Step = lambda *_: None, progress: Say = lambda _: None) -> None:
        self.member: StoreMember
        self.core: ApiServer
        self.components: dict[str, Component] = {}
        self._clock, self._rng, self._step, self._progress = clock, rng, step, progress
        self.generators: list[Rng] = [rng]
        """The source of the parts' generators."""
        self.enabled_plugins: tuple[str, ...] = ()
        self.outside: Callable[[], Outside | None] = lambda: None
        """Makes the scheduler's client of its extenders; without it a configuration with extenders is refused."""
        self.gates: FeatureGates = NO_GATES
        """Feature gates enabled although upstream's default is off, for `prepare_core`."""
        self._running = AsyncExitStack()
        self._config: PlaneConfig | None = None
        self._generators_before = 0
        self._informers: dict[str, InformerFactory] = {}
        self._decoded = Decoded()
        self._other: Storage | None = None

    @property
    def storage(self) -> Storage:
        """The member's storage, unless another is set."""
        return self._other or self.member.storage

    async def use_storage(self, storage: Storage) -> None:
        """Replaces a member's storage; it is already started, and closed with the plane."""
        self._other = storage
        self._running.push_async_callback(storage.close)

    def transport(self, user: User = USERS[tokens.ADMIN]) -> ApiTransport:
        """Directly to the core, as `user`."""
        return InProcessTransport(self.core, user)

    def make_core(self, users: Mapping[str, User], rng: Rng, key: SigningKey | None = None) -> ApiServer:
        """The API server on the storage, before it starts; `users` by their tokens. `key` signs the tokens of service
        accounts; None: a new one."""
        return self.new_core(
            self.storage,
            self._clock,
            rng,
            tokens=users,
            registry=registry_of(self.gates),
            signing_key=key,
            enabled_plugins=self.enabled_plugins,
        )

    def new_core(self, storage: Storage, clock: Clock, rng: Rng, **options: Any) -> ApiServer:
        """Planes with another class of API server override this; `options` are the class's."""
        return ApiServer(storage, clock, rng, **options)

    async def stop(self) -> None:
        """In reverse order; ends everything started."""
        await self._running.aclose()

    def failure(self) -> BaseException | None:
        """The error by which a component ended itself, if any: a bug."""
        return next(filter(None, map(failure_of, self.components.values())), None)

    def _health(self) -> dict[str, str]:
        found = {name: failure_of(each) for name, each in self.components.items()}
        return {name: "" if failure is None else f"it ended: {failure}" for name, failure in found.items()}

    def metrics(self) -> dict[str, float]:
        """Of the components, with equal series summed; the API server's /metrics includes them."""
        found: dict[str, float] = {}
        for part in self.components.values():
            for name, value in part.metrics().items():
                found[name] = found.get(name, 0) + value
        return found

    async def start_member(
        self,
        disk: Disk,
        config: MemberConfig | None = None,
        syncs: SyncRunner | None = None,
        fatal: Fatal = exit_now,
    ) -> None:
        """Starts the store's only member in the folder `disk`. Raises: Corruption; OSError if the disk fails."""
        self.member = StoreMember(disk, self._clock, self._child(), config, fatal, syncs=syncs)
        await self.member.start()
        self._running.push_async_callback(self.member.stop)

    def prepare_core(self, users: Mapping[str, User], key: SigningKey) -> None:
        """Creates the API server's core on the started store."""
        self.core = self.make_core(users, self._child(), key)

    async def start_core(self) -> None:
        """Raises: RoleFailed, Unavailable."""
        self._running.push_async_callback(self.core.stop)
        await self.core.start()
        await _require_ready(self.transport())

    async def start_components(self, config: PlaneConfig) -> None:
        """In parallel: each only waits for its lists. Raises: StatusError, RequestError, Unavailable."""
        first = self._config is None
        if first:
            self._running.push_async_callback(self.stop_components)
        self._config = config
        ties = None if config.ties is None else random.Random(config.ties)
        made: dict[str, Component] = {
            "scheduler": self._scheduler("scheduler", config.scheduler, self._child(), ties),
            "controllers": self._controllers(self._child(), config.controllers),
            "kubelet": self._kubelet(self._child(), config.kubelet),
        }
        self.components = {name: made[name] for name in COMPONENTS if name in config.components}
        for name, scheduler in config.more_schedulers.items():
            name = f"scheduler {name}"
            self.components[name] = self._scheduler(name, scheduler, self._child())
        if first:
            # Those of the informers, which are never replaced.
            self._generators_before = len(self.generators)
        await asyncio.gather(*(self._start_component(name) for name in self.components))
        self.core.component_metrics, self.core.component_health = self.metrics, self._health
        schedulers = [each for each in self.components.values() if isinstance(each, Scheduler)]
        if schedulers:
            self.core.ask_scheduler = partial(_ask, schedulers)

    def _scheduler(self, name: str, config: SchedulerConfig, rng: Rng, ties: Rng | None = None) -> Scheduler:
        transport, outside = self.transport(USERS[tokens.SCHEDULER]), self.outside()
        return Scheduler(transport, self._clock, ties or rng, config, outside, self._factory(name, transport, rng))

    def _controllers(self, rng: Rng, config: ControllerConfig) -> ControllerManager:
        transport = self.transport(USERS[tokens.CONTROLLERS])
        informers = self._factory("controllers", transport, rng)
        return ControllerManager(transport, self._clock, rng, config=config, informers=informers)

    def _kubelet(self, rng: Rng, config: KubeletConfig) -> FakeKubelet:
        transport, told = self.transport(USERS[tokens.KUBELET]), Registered(self._clock, self._progress)
        informers = self._factory("kubelet", transport, rng)
        return make_kubelet(transport, self._clock, rng, config, told, self.transport, informers)

    def _factory(self, name: str, transport: ApiTransport, rng: Rng) -> InformerFactory:
        if name not in self._informers:
            self._informers[name] = InformerFactory(RestClient(transport), self._clock, rng, self._decoded)
        return self._informers[name]

    async def stop_components(self) -> None:
        """In reverse order. What they hold in memory is gone."""
        await self._stop_components()
        for factory in self._informers.values():
            await factory.forget_unused()

    async def _stop_components(self) -> None:
        async with AsyncExitStack() as ending:
            for component in self.components.values():
                ending.push_async_callback(component.stop)
        del self.generators[self._generators_before :]

    async def pause_components(self) -> None:
        """Stops them for `start_again`: their informers go on, without handlers."""
        for factory in self._informers.values():
            factory.keep()
        await self._stop_components()

    async def start_again(self, nodes: Collection[str], down: Collection[str]) -> None:
        """Starts paused components as after a restart: nothing is left of the old ones but what informers know of the
        objects, which is all that is in the store by now. The kubelet registers only those of its nodes that are in
        `nodes`, and those in `down` are silent. Raises: as `start_components`."""
        await self._catch_up()
        config = self._config
        assert config is not None
        kept = tuple(each for each in config.kubelet.nodes if each.name in nodes)
        await self.start_components(replace(config, kubelet=replace(config.kubelet, nodes=kept, down=frozenset(down))))
        self._config = config
        for factory in self._informers.values():
            await factory.forget_unused()

    async def _catch_up(self) -> None:
        """A bookmark follows all events before it. An informer that has not got it by then is replaced."""
        await self.core.lister.wait_fresh()
        revision = self.core.cache.revision
        self.core.watching.bookmark_all()
        for _ in range(CATCH_UP_TURNS):
            if not any(factory.lacks(revision) for factory in self._informers.values()):
                return
            await asyncio.sleep(0)
        for factory in self._informers.values():
            await factory.forget_unused(revision)

    def _child(self) -> Rng:
        made = child_of(self._rng)
        self.generators.append(made)
        return made

    async def _start_component(self, name: str) -> None:
        await self.components[name].start()
        self._step(name, "")


def _ask(schedulers: Sequence[Scheduler], question: str, subject: Any, params: Mapping[str, str]) -> Any:
    """The one that has the pod; None if none has."""
    return next(filter(None, (each.ask(question, subject, params) for each in schedulers)), None)


def child_of(rng: Rng) -> Rng:
    """A separate generator for each part, so that draws of one do not affect others."""
    return random.Random(rng.getrandbits(64))


async def _require_ready(transport: ApiTransport) -> None:
    answer = await transport.request("GET", "/readyz")
    if answer.status != 200:
        text = answer.body[:500].decode(errors="replace")
        raise RoleFailed(f"the API server is not ready: /readyz answered {answer.status}: {text}")
