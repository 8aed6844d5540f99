"""API servers to test components against: ours in process and over HTTPS, and upstream."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import needs

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.store.member import StoreMember

TOKEN = "a-token-of-enough-length"


@asynccontextmanager
async def our_core(folder: Path) -> AsyncIterator[ApiServer]:
    clock = SystemClock()
    member = StoreMember(SystemDisk(folder / "store"), clock, random.Random(1))
    await member.start()
    core = ApiServer(member.storage, clock, random.Random(2), tokens={TOKEN: ADMIN})
    await core.start()
    try:
        yield core
    finally:
        await core.stop()
        await member.stop()


@asynccontextmanager
async def served(core: ApiServer, folder: Path, port: int = 0) -> AsyncIterator[ClusterAccess]:
    """The core over HTTPS."""
    certificates = ensure_certificates(folder / "pki")
    server = HttpServer(core, "127.0.0.1", port, certificates.server_context())
    port = await server.start()
    try:
        yield ClusterAccess(f"https://127.0.0.1:{port}", ca_pem=certificates.authority_pem, token=TOKEN)
    finally:
        await server.stop()


@contextmanager
def original(*flags: str) -> Iterator[Path]:
    """The kubeconfig of a running upstream."""
    with needs.original(*flags) as ready:
        yield Path(ready["kubeconfig"])


@asynccontextmanager
async def transport_to(target: str, folder: Path, kubeconfig: Path | None = None) -> AsyncIterator[ApiTransport]:
    """`target`: "in process", "https" or "original" (then with its kubeconfig)."""
    if target == "original":
        assert kubeconfig is not None
        transport: ApiTransport = HttpTransport(load_kubeconfig(kubeconfig))
        try:
            yield transport
        finally:
            await transport.close()
        return
    async with our_core(folder) as core:
        if target == "in process":
            transport = InProcessTransport(core)
            try:
                yield transport
            finally:
                await transport.close()
        else:
            async with served(core, folder) as access:
                transport = HttpTransport(access)
                try:
                    yield transport
                finally:
                    await transport.close()
