"""A control plane in this process, in one line: started, used by any client, thrown away.

    with Cluster(nodes=3) as cluster:          # a thread and an event loop of its own
        print(cluster.kubectl("get", "nodes"))

    async with Cluster(nodes=3) as cluster:    # in the caller's loop
        ...

The store is in memory unless `data_dir` names a folder. Nothing is left behind, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from minikube_py.client.transport import JSON, ApiResponse, ApiTransport
from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane, InMemory
from minikube_py.env import SystemClock
from minikube_py.errors import MinikubeError
from minikube_py.sim.disk import SimDisk
from minikube_py.store.member import MemberConfig

log = logging.getLogger(__name__)
MEMBER: Final = MemberConfig(segment_bytes=1 << 20, own_gc=False)
"""Small segments, each of which is in memory twice; and the process's garbage collection is its owner's."""


class ClusterError(MinikubeError):
    """A request to the cluster failed; the text says what and why."""


class Cluster:
    """`nodes`: how many fake nodes. `data_dir`: keep everything there; None for a store in memory. `port`: 0 for any
    free one. `seed`: of the scheduler's choices among equals. One start at a time."""

    def __init__(
        self, nodes: int = 1, *, data_dir: Path | str | None = None, port: int = 0, seed: int | None = None
    ) -> None:
        self._nodes, self._port, self._seed = nodes, port, seed
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: Path | None = None
        self._plane: ControlPlane | None = None
        self._thread: _Thread | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when its nodes are registered, served by a thread of its own.

        Raises: SetupError, DataDirBusy, Corruption, RoleFailed; nothing is left then."""
        plane = self._prepare()
        self._thread = _Thread(plane)
        try:
            self._thread.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Idempotent. Raises: what an orderly end raises."""
        thread, self._thread = self._thread, None
        try:
            if thread is not None:
                thread.stop()
        finally:
            self._clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        plane = self._prepare()
        try:
            await plane.start()
        except BaseException:
            self._clear()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._running.stop()
        finally:
            self._clear()

    # -- how to reach it ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self._running.server

    @property
    def token(self) -> str:
        """An administrator's bearer token."""
        return self._running.credentials.by_role[tokens.ADMIN]

    @property
    def kubeconfig_path(self) -> Path:
        """An administrator's; gone when the cluster is."""
        return self._running.config.kubeconfig_file

    def transport(self) -> ApiTransport:
        """Straight to the API server, as an administrator; for coroutines of the cluster's own loop."""
        return self._running.transport()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """One request, as an administrator; for plain code, within `with`."""
        if self._thread is None:
            raise ClusterError("request() is for `with Cluster()`; within `async with`, await transport().request()")
        work = self.transport().request(method, path, params, body, content_type)
        return asyncio.run_coroutine_threadsafe(work, self._thread.loop).result()

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """What `kubectl` prints. Within `async with`, call it by `asyncio.to_thread`: it waits for the cluster.

        Raises: ClusterError where there is no kubectl, or it fails; with what it said."""
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError("there is no kubectl on the PATH; install it, or use request()")
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig_path)}
        done = subprocess.run([program, *arguments], input=input, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
        return done.stdout

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> ControlPlane:
        if self._plane is None:
            raise ClusterError("the cluster is not running; enter it by `with` or `async with`")
        return self._plane

    def _prepare(self) -> ControlPlane:
        if self._plane is not None:
            raise ClusterError("the cluster was started already")
        folder = self._data_dir
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="minikube-py-"))
        config = ControlPlaneConfig(folder, port=self._port, nodes=self._nodes, seed=self._seed)
        memory = None if self._data_dir is not None else InMemory(SimDisk(), MEMBER, log.critical)
        self._plane = ControlPlane(config, SystemClock(), random.Random(), in_memory=memory)
        return self._plane

    def _clear(self) -> None:
        self._plane = None
        folder, self._temporary = self._temporary, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class _Thread:
    """A control plane on an event loop in a thread of its own."""

    def __init__(self, plane: ControlPlane) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._plane = plane
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._stop: asyncio.Event
        # Who never stops it must still be able to leave.
        self._thread = threading.Thread(target=self._run, name="minikube-py", daemon=True)

    def start(self) -> None:
        """Raises: what the control plane's start raises."""
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        """Also where the start has failed, or whoever waited for it was interrupted. Raises: what the end raises."""
        if not self._thread.is_alive() and not self._ended.done():
            return
        try:
            self._ready.exception()
            self.loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            # The loop has ended: the start failed.
            pass
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._plane.start()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            await self._stop.wait()
        finally:
            await self._plane.stop()
