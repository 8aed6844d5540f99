"""An API server on a real etcd for tests: like `api_core.Core`, with another store."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import AsyncIterator

from api_core import Core
from etcd_api import RealEtcd as RealEtcd
from etcd_api import real_etcd as real_etcd
from patience import until

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.limits import Limits
from minikube_py.env import SystemClock
from minikube_py.etcd.client import Endpoints
from minikube_py.etcd.storage import EtcdStorage

_PREFIXES = itertools.count(1)


@contextlib.asynccontextmanager
async def storage_at(*places: str, prefix: str = "", timeout_s: float = 10.0) -> AsyncIterator[EtcdStorage]:
    """On that etcd, under a unique prefix unless one is given."""
    storage = EtcdStorage(
        Endpoints(places),
        SystemClock(),
        prefix=prefix or f"/test-{next(_PREFIXES)}",
        compaction_interval_s=0,
        request_timeout_s=timeout_s,
    )
    await storage.start()
    try:
        yield storage
    finally:
        await storage.close()


class OnEtcd(Core):
    """One API server on a started storage."""

    def __init__(self, storage: EtcdStorage, limits: Limits | None = None, seed: int = 1) -> None:
        self.clock = SystemClock()
        self.storage = storage
        self.tokens = {"admin-token": ADMIN}
        self.limits = limits
        self.seed = seed

    async def start(self) -> OnEtcd:
        self.api = self.server()
        await self.api.start()
        return self

    def server(self) -> ApiServer:
        rng = random.Random(self.seed + 1)
        return ApiServer(self.storage, self.clock, rng, tokens=self.tokens, limits=self.limits)

    async def stop(self) -> None:
        await self.api.stop()

    async def in_step(self) -> None:
        """Waits until the watch cache has caught up with the store."""
        await until(lambda: self.api.ready and self.storage.feed.following, "the API server follows etcd")


@contextlib.asynccontextmanager
async def served(
    *places: str, prefix: str = "", limits: Limits | None = None, timeout_s: float = 10.0
) -> AsyncIterator[OnEtcd]:
    async with storage_at(*places, prefix=prefix, timeout_s=timeout_s) as storage:
        core = await OnEtcd(storage, limits).start()
        try:
            yield core
        finally:
            await core.stop()


__all__ = ["OnEtcd", "RealEtcd", "real_etcd", "served", "storage_at"]
