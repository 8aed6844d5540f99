"""`minikube-py scheduler | controllers | kubelet`: each reaches the API server over HTTPS with the token of its
kubeconfig."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from minikube_py.api.feature_gates import NO_GATES, FeatureGates
from minikube_py.client.events import EventRecorder
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.leader_election import LeaderElector, new_identity
from minikube_py.client.lease_lock import Timing
from minikube_py.client.rest import RestClient
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.leading import Leading
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.progress import Registered, say
from minikube_py.control_plane.role import StackedRole
from minikube_py.control_plane.stage_files import read_stages
from minikube_py.control_plane.tokens import read_signing_authority, read_signing_key
from minikube_py.control_plane.waiting import api_is_ready, when_available
from minikube_py.env import SystemClock
from minikube_py.errors import MinikubeError, RequestError
from minikube_py.kubelet.config import NodeSpec, Share
from minikube_py.scheduler.configuration.chosen import ChosenScheduler

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Election:
    """Which Lease to acquire. `identity` None: a unique one."""

    namespace: str
    name: str
    identity: str | None
    timing: Timing


@dataclass(frozen=True, slots=True)
class Claim:
    """How a kubelet process finds its share of the nodes: by the first free Lease `prefix<k>`."""

    prefix: str
    identity: str | None
    timing: Timing


class ClientRole(StackedRole):
    def __init__(self, kubeconfig: Path, name: str) -> None:
        super().__init__()
        self._kubeconfig, self._name = kubeconfig, name
        self._working: Leading | Component | None = None
        self._transport: ApiTransport | None = None

    def failure(self) -> BaseException | None:
        working = self._working
        if working is None:
            return None
        return working.failure() if isinstance(working, Leading) else failure_of(working)

    def metrics(self) -> Mapping[str, float]:
        """None while it is a standby."""
        working = self._component
        return {} if working is None else working.metrics()

    @property
    def _component(self) -> Component | None:
        return self._working.component if isinstance(self._working, Leading) else self._working

    def unwell(self) -> str:
        return self._working.unwell() if isinstance(self._working, Leading) else ""

    async def ready(self) -> str:
        """All its work goes through the API server."""
        if (why := self.unwell()) or self._transport is None:
            return why
        try:
            await api_is_ready(self._transport)
        except MinikubeError as error:
            return f"the API server: {error}"
        return ""

    async def run(self, election: Election | None, make: Callable[[ApiTransport], Component]) -> str:
        """Runs the component of `make`, at once or when the election is won. Returns whether it works or is a
        standby."""
        transport, clock, rng = await self.connect(), SystemClock(), random.Random()
        if election is None:
            component = make(transport)
            self.running.push_async_callback(component.stop)
            await component.start()
            self._working = component
            return "synced"
        client = RestClient(self.own_connection())
        recorder = EventRecorder(client, clock, rng, election.name)
        self.running.push_async_callback(recorder.stop)
        recorder.start()
        elector = LeaderElector(
            client,
            clock,
            rng,
            election.name,
            election.identity or new_identity(rng),
            namespace=election.namespace,
            timing=election.timing,
            recorder=recorder,
        )
        return await self.lead(Leading(elector, transport, make, say))

    async def lead(self, leading: Leading, held: bool = False) -> str:
        self.running.push_async_callback(leading.stop)
        self._working = leading
        return await leading.start(held)

    def own_connection(self, use: str = "lease", server: str = "") -> ApiTransport:
        """For the lease: its renewals must not queue behind the work that it guards. `server`: another one."""
        access = load_kubeconfig(self._kubeconfig)
        access = replace(access, server=server or access.server)
        transport = HttpTransport(access, user_agent=f"minikube-py-{self._name}-{use}", connections_max=2)
        self.running.push_async_callback(transport.close)
        return transport

    async def connect(self) -> ApiTransport:
        """Returns when the API server is ready. Raises: BadKubeconfig."""
        access = load_kubeconfig(self._kubeconfig)
        transport = HttpTransport(access, user_agent=f"minikube-py-{self._name}")
        self.running.push_async_callback(transport.close)
        server = f"the API server {access.server}"
        self._transport = transport
        await when_available(partial(api_is_ready, transport), server, SystemClock(), random.Random(), say)
        return transport


class SchedulerRole(ClientRole):
    """`chosen`: which scheduler; `seed`: of the tie-breaking generator; `matcher`: as in `SchedulerConfig`; `name`: of
    the file's only profile if that has none; `asked_at`: URLs of the API servers that may call it, by default the
    kubeconfig's."""

    def __init__(
        self,
        kubeconfig: Path,
        chosen: ChosenScheduler,
        seed: int | None,
        election: Election | None,
        matcher: str,
        name: str = "",
        asked_at: Sequence[str] = (),
        gates: FeatureGates = NO_GATES,
    ) -> None:
        super().__init__(kubeconfig, "scheduler")
        self._gates = gates
        self._asked_at = asked_at
        self._chosen, self._seed, self._election, self._matcher = chosen, seed, election, matcher
        self._profile = name

    async def start(self) -> str:
        """Raises: BadKubeconfig, SetupError, ConfigError, InvalidRequest, StatusError, Unavailable."""
        from minikube_py.client.outside import HttpOutside
        from minikube_py.scheduler.answering import Answering
        from minikube_py.scheduler.configuration.files import read_scheduler
        from minikube_py.scheduler.scheduler import Scheduler

        config = read_scheduler(self._chosen, self._matcher, name=self._profile, gates=self._gates)
        if config.unused:
            say(f"flags of this command set what {', '.join(config.unused)} of {self._chosen.file} would set")
        where = await self.run(
            self._election,
            lambda transport: Scheduler(transport, SystemClock(), random.Random(self._seed), config, HttpOutside()),
        )
        own = self._election.identity if self._election is not None else None
        name = own or new_identity(random.Random())
        for server in self._asked_at or ("",):
            client = RestClient(self.own_connection("questions", server))
            answering = Answering(client, SystemClock(), name, self._scheduler)
            self.running.push_async_callback(answering.stop)
            answering.start()
        return where

    def _scheduler(self) -> Scheduler | None:
        return cast("Scheduler | None", self._component)


class ControllersRole(ClientRole):
    """`key_file`: of the key that signs the tokens of service accounts; None: Secrets get none. `signing`: the
    authority that signs certificate requests, and its key; None: they are not signed. `enabled`: as in
    `ControllerConfig`."""

    def __init__(
        self,
        kubeconfig: Path,
        election: Election | None,
        key_file: Path | None = None,
        signing: tuple[Path, Path] | None = None,
        gates: FeatureGates = NO_GATES,
        enabled: tuple[str, ...] = (),
    ) -> None:
        super().__init__(kubeconfig, "controllers")
        self._gates, self._enabled = gates, enabled
        self._key_file, self._signing = key_file, signing
        self._election = election

    async def start(self) -> str:
        """Raises: BadKubeconfig, StatusError, Unavailable."""
        from minikube_py.controllers.base import ControllerConfig
        from minikube_py.controllers.manager import ControllerManager

        authority = load_kubeconfig(self._kubeconfig).ca_pem or b""
        key = None if self._key_file is None else read_signing_key(self._key_file)
        signing = None if self._signing is None else read_signing_authority(*self._signing)
        config = ControllerConfig(
            gates=self._gates,
            root_ca_pem=authority.decode("ascii"),
            signing_key=key,
            signing_authority=signing,
            enabled=self._enabled,
        )
        return await self.run(
            self._election,
            lambda transport: ControllerManager(transport, SystemClock(), random.Random(), config=config),
        )


class KubeletRole(ClientRole):
    """`shapes`: a JSON list of NodeSpec; without it `nodes` of the default shape. `share` is `index/count`; with a
    `claim` it runs `nodes` of them: those of the claimed slot. `stages`: files and folders of them."""

    def __init__(
        self,
        kubeconfig: Path,
        nodes: int,
        shapes: Path | None,
        share: str,
        claim: Claim | None,
        stages: tuple[Path, ...] = (),
    ) -> None:
        super().__init__(kubeconfig, "kubelet")
        self._nodes, self._shapes, self._share, self._claim = nodes, shapes, share, claim
        self._stages = stages

    async def start(self) -> str:
        """Raises: BadKubeconfig, SetupError, StatusError, Unavailable."""
        from minikube_py.kubelet.config import KubeletConfig, numbered_nodes
        from minikube_py.kubelet.fake import FakeKubelet
        from minikube_py.kubelet.making import make_kubelet

        clock = SystemClock()
        stages = read_stages(self._stages)
        registered = Registered(clock, say)
        share = parse_share(self._share)
        shapes = read_shapes(self._shapes) if self._shapes else None

        def make(config: KubeletConfig, transport: ApiTransport) -> FakeKubelet:
            return make_kubelet(transport, clock, random.Random(), config, registered)

        if self._claim is None:
            specs = shapes if shapes is not None else numbered_nodes(self._nodes)
            await self.run(None, partial(make, KubeletConfig(nodes=tuple(specs), share=share, stages=stages)))
            return f"{len(specs)} nodes"
        transport = await self.connect()
        slot, elector = await self._claimed(self._claim, self.own_connection(), clock)
        first = slot * self._nodes
        specs = shapes[first : first + self._nodes] if shapes is not None else numbered_nodes(self._nodes, first=first)
        config = KubeletConfig(nodes=tuple(specs), slot=slot, slot_nodes=self._nodes, stages=stages)
        await self.lead(Leading(elector, transport, partial(make, config), say), held=True)
        return f"{len(specs)} nodes of slot {slot}" + (f", from {specs[0].name}" if specs else "")

    async def _claimed(self, claim: Claim, transport: ApiTransport, clock: SystemClock) -> tuple[int, LeaderElector]:
        from minikube_py.kubelet.slots import Slots

        rng = random.Random()
        identity = claim.identity or new_identity(rng)
        slots = Slots(RestClient(transport), clock, rng, identity, prefix=claim.prefix, timing=claim.timing, say=say)
        return await slots.claim()


def parse_share(text: str) -> Share:
    """`0/3`: the first of three shares. Raises: SetupError."""
    index, _, count = text.partition("/")
    try:
        return Share(int(index), int(count))
    except (ValueError, RequestError) as error:
        raise SetupError(f"{text}: write INDEX/COUNT with INDEX below COUNT, as 0/3") from error


def read_shapes(path: Path) -> list[NodeSpec]:
    """Raises: SetupError, naming the entry."""
    entries = _document(path)
    if not isinstance(entries, list):
        raise SetupError(f"{path}: not a list of nodes")
    specs = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise SetupError(f"{path}: entry {number} has no name")
        unknown = sorted(set(entry) - set(NodeSpec._fields))
        if unknown:
            known = ", ".join(NodeSpec._fields)
            raise SetupError(f"{path}: entry {number} ({entry['name']}) has {unknown[0]!r}; known are {known}")
        specs.append(NodeSpec(**entry))
    return specs


def _document(path: Path) -> Any:
    from minikube_py.api.yaml_text import YamlError, documents

    try:
        return next(iter(documents(read_text(path, "file").encode())), None)
    except YamlError as error:
        raise SetupError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
