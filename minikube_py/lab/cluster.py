"""A control plane for one run, in one process or in several, and the transport for the load.

In one process the load calls the core directly, like the components. If each role is a process, the load goes over
HTTPS from this process, which does nothing else.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.errors import RoleFailed, SetupError
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.progress import Say
from minikube_py.control_plane.split import SplitControlPlane
from minikube_py.env import Clock, Rng, SystemClock
from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab.environment import Environment, describe
from minikube_py.lab.nodes import wait_ready
from minikube_py.lab.virtual import environment_of
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME

PlaneMaker = Callable[[ControlPlaneConfig, Clock, Rng, Step, Say], ControlPlane]
"""Creates a run's in-process control plane: the plain one, or a recording one."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`transport` is an administrator's."""

    transport: ApiTransport
    clock: Clock
    environment: Environment
    config: ControlPlaneConfig
    layout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a run takes place. `step`: gets its progress; `split`: each role is a process; `plane`: makes the control
    plane of one process. Without `data_dir` a temporary folder is used and removed. With `virtual`, on whose loop it
    runs, there is none: it is started by the run and stopped by its owner. `chosen`: the scheduler; `matcher`: its own,
    on real time."""

    step: Step
    split: bool = False
    data_dir: Path | None = None
    seed: int | None = None
    plane: PlaneMaker = ControlPlane
    virtual: VirtualCluster | None = None
    chosen: ChosenScheduler = DEFAULT_SCHEDULER
    etcd: EtcdBehind | None = None
    matcher: str = "columns"


@asynccontextmanager
async def cluster(shapes: Sequence[NodeSpec], ground: Ground) -> AsyncIterator[Cluster]:
    """A running control plane with the nodes `shapes`, all registered and Ready; stopped on exit.

    Raises: SetupError, ConfigError, DataDirBusy, RoleFailed.
    """
    chosen, data_dir, step = ground.chosen, ground.data_dir, ground.step
    scheduler = read_scheduler(chosen, needed=DEFAULT_SCHEDULER_NAME)
    if ground.virtual is not None:
        yield await _in_virtual_time(ground.virtual, tuple(shapes), step, scheduler)
        return
    require_unused(data_dir)
    folder = data_dir or Path(tempfile.mkdtemp(prefix="minikube-py-"))
    try:
        config = ControlPlaneConfig(
            folder, port=0, shapes=tuple(shapes), seed=ground.seed, matcher=ground.matcher, chosen=chosen,
            etcd=ground.etcd,
        )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        running = _split(config, step) if ground.split else _in_process(config, step, ground.plane)
        async with running as (transport, layout):
            await wait_ready(transport, len(config.shapes))
            step("nodes", f"{len(config.shapes):,} Ready")
            environment = describe(folder, layout, scheduler.percentage_of_nodes_to_score)
            yield Cluster(transport, SystemClock(), environment, config, layout)
    finally:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)


async def _in_virtual_time(
    virtual: VirtualCluster, shapes: tuple[NodeSpec, ...], step: Step, scheduler: SchedulerConfig
) -> Cluster:
    config = replace(virtual.config, nodes=shapes, scheduler=scheduler)
    await virtual.bring_up(config)
    transport = virtual.transport()
    await wait_ready(transport, len(shapes))
    step("nodes", f"{len(shapes):,} Ready")
    environment = environment_of(config, scheduler.percentage_of_nodes_to_score)
    return Cluster(transport, virtual.clock, environment, ControlPlaneConfig(Path(), shapes=shapes), environment.layout)


def require_unused(data_dir: Path | None) -> None:
    """Data of another run would falsify the results. Raises: SetupError."""
    if data_dir is not None and ControlPlaneConfig(data_dir).member_folder.exists():
        raise SetupError(f"{data_dir} holds a control plane already; use a separate folder for measurements")


@asynccontextmanager
async def watched(failure: Callable[[], BaseException | None]) -> AsyncIterator[None]:
    """Raises: RoleFailed at the end if a component ended itself, in place of an error inside, which that explains."""
    try:
        yield
    finally:
        if (error := failure()) is not None:
            raise RoleFailed(f"a component ended by itself during the run: {error!r}") from error


@asynccontextmanager
async def running(*components: Component) -> AsyncIterator[None]:
    """Started here in order, and stopped. Raises: as `watched`."""
    async with AsyncExitStack() as stack:
        for component in components:
            stack.push_async_callback(component.stop)
            await component.start()
            await stack.enter_async_context(watched(partial(failure_of, component)))
        yield


def _progress(text: str) -> None:
    print(f"  {text}", flush=True)


@asynccontextmanager
async def _in_process(
    config: ControlPlaneConfig, step: Step, maker: PlaneMaker
) -> AsyncIterator[tuple[ApiTransport, str]]:
    plane = maker(config, SystemClock(), random.Random(), step, _progress)
    try:
        await plane.start()
        async with watched(plane.failure):
            yield plane.transport(), plane.layout
    finally:
        await plane.stop()


@asynccontextmanager
async def _split(config: ControlPlaneConfig, step: Step) -> AsyncIterator[tuple[ApiTransport, str]]:
    plane = SplitControlPlane(config, SystemClock(), step, lambda text: step("supervisor", text), _progress)
    try:
        await plane.start()
        transport = HttpTransport(load_kubeconfig(config.kubeconfig_file))
        try:
            yield transport, plane.layout
        finally:
            await transport.close()
    finally:
        await plane.stop()
