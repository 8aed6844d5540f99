"""A control plane of store and API server only, whose nodes and bound pods are written directly to the store.

So 100,000 nodes exist within seconds, and no leases are renewed: only the load itself is measured. The scheduler runs
in this process, either together with the store and the API server, or over HTTPS with `members` store processes.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.control_plane.kubeconfig import write_kubeconfig
from minikube_py.control_plane.split import SplitControlPlane
from minikube_py.control_plane.store_access import find_access
from minikube_py.control_plane.users import USERS
from minikube_py.env import Clock, SystemClock
from minikube_py.index.catalogue import admitted
from minikube_py.lab.cluster import require_unused
from minikube_py.lab.environment import Environment, describe
from minikube_py.lab.progress import progress
from minikube_py.lab.virtual import environment_of
from minikube_py.mvcc.types import Put
from minikube_py.store.client import StoreClient
from minikube_py.store.storage import Storage

PUTS_PER_TXN = 100
TXNS_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """`transport`: an administrator's; `scheduler`: a scheduler's."""

    storage: Storage
    transport: ApiTransport
    scheduler: ApiTransport
    clock: Clock
    environment: Environment


@asynccontextmanager
async def stage(
    members: int,
    *,
    data_dir: Path | None,
    scored_percent: int,
    step: Step,
    virtual: VirtualCluster | None = None,
) -> AsyncIterator[Stage]:
    """Stopped on exit. Without `data_dir` a temporary folder is used and removed. With `virtual`, on whose loop this
    runs, there is no folder: it is started here and stopped by its owner.

    Raises: SetupError, DataDirBusy, RoleFailed."""
    if virtual is not None:
        config = VirtualConfig(components=())
        await virtual.bring_up(config)
        scheduler = virtual.transport(USERS[tokens.SCHEDULER])
        environment = environment_of(config, scored_percent)
        yield Stage(virtual.plane.storage, virtual.transport(), scheduler, virtual.clock, environment)
        return
    require_unused(data_dir)
    folder = data_dir or Path(tempfile.mkdtemp(prefix="minikube-py-"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        async with AsyncExitStack() as running:
            made = await (_alone(folder, running, step) if members == 1 else _apart(folder, members, running, step))
            storage, transport, scheduler, layout = made
            described = describe(folder, layout, scored_percent)
            yield Stage(storage, transport, scheduler, SystemClock(), described)
    finally:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)


Made = tuple[Storage, ApiTransport, ApiTransport, str]


async def _alone(folder: Path, running: AsyncExitStack, step: Step) -> Made:
    config = ControlPlaneConfig(folder, port=0, components=())
    plane = ControlPlane(config, SystemClock(), random.Random(), step)
    running.push_async_callback(plane.stop)
    await plane.start()
    layout = "one process: store, API server, scheduler and load"
    return plane.storage, plane.transport(), plane.transport(USERS[tokens.SCHEDULER]), layout


async def _apart(folder: Path, members: int, running: AsyncExitStack, step: Step) -> Made:
    config = ControlPlaneConfig(folder, port=0, components=(), members=members, structures=admitted())
    plane = SplitControlPlane(config, SystemClock(), step, lambda text: step("supervisor", text))
    running.push_async_callback(plane.stop)
    await plane.start()
    transports = []
    for role in (tokens.ADMIN, tokens.SCHEDULER):
        kubeconfig = folder / f"lab-{role}.kubeconfig"
        write_kubeconfig(kubeconfig, plane.credentials.access(plane.server, role), role)
        transport = HttpTransport(load_kubeconfig(kubeconfig))
        running.push_async_callback(transport.close)
        transports.append(transport)
    storage = StoreClient(find_access(folder).endpoints(), SystemClock(), random.Random())
    running.push_async_callback(storage.close)
    await storage.start()
    layout = f"{members} store members and an API server as processes over TLS; scheduler and load in one more"
    return storage, transports[0], transports[1], layout


async def write_all(storage: Storage, puts: Iterable[Put], total: int, title: str) -> None:
    """Runs several transactions concurrently; their order does not matter for independent objects."""
    with progress(title, total) as shown:
        done = 0
        waiting = iter(puts)

        async def work() -> None:
            nonlocal done
            for batch in iter(lambda: list(islice(waiting, PUTS_PER_TXN)), []):
                await storage.txn((), batch)
                done += len(batch)
                shown.update(done)

        async with asyncio.TaskGroup() as group:
            for _ in range(TXNS_IN_FLIGHT):
                group.create_task(work())


def numbered_uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def keyed(prefix: bytes, objects: Iterable[tuple[str, bytes]]) -> Iterator[Put]:
    """`objects`: (name, stored form)."""
    return (Put(prefix + name.encode(), value) for name, value in objects)
