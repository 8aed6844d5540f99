"""The public door: a control plane in this process, in one line.

    with Cluster(nodes=3) as cluster:          # a thread and an event loop of its own
        cluster.apply("rc.yaml")
        cluster.wait("rc/web", ready=3)

    async with Cluster(nodes=3) as cluster:    # in the caller's loop
        await cluster.wait("rc/web", ready=3)

    with Cluster(nodes=3, clock="virtual", seed=7) as cluster:
        cluster.advance(minutes=5)             # milliseconds; the same seed, the same history
        print(cluster.digest)

The store is in memory unless `data_dir` names a folder. Nothing is left behind, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from minikube_py.cluster import snapshots
from minikube_py.cluster.door import DEFAULT, AsyncDoor, PlainDoor, ReachedPlainly
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.real import InLoop, Options, Threaded
from minikube_py.cluster.snapshots import Snapshot
from minikube_py.control_plane.stage_files import read_stages
from minikube_py.env import Clock
from minikube_py.kubelet.config import KubeletConfig, NodeSpec

if TYPE_CHECKING:
    # Loaded with the first cluster in virtual time.
    from minikube_py.cluster.program import Program
    from minikube_py.cluster.virtual_engine import Input, VirtualEngine

T = TypeVar("T")
NOT_RUNNING = "the cluster is not running; enter it by `with` or `async with`"


class Cluster(PlainDoor):
    """`nodes`: how many fake nodes, named node-0 and on, or which. `clock`: "virtual" for time that passes by `advance`
    alone, where `seed` (0 unless given) decides all that could differ between two runs; in real time it seeds the
    scheduler's choices among equals. `data_dir`: keep everything there; None for a store in memory, as it always is in
    virtual time. `port`: 0 for any free one. `stages`: files or folders of stages by which pods and nodes live. One
    start at a time."""

    of_this_process = True

    def __init__(
        self,
        nodes: int | Sequence[NodeSpec] = 1,
        *,
        clock: Literal["real", "virtual"] = "real",
        seed: object = None,
        data_dir: Path | str | None = None,
        port: int = 0,
        stages: Path | str | Sequence[Path | str] = (),
    ) -> None:
        super().__init__()
        if clock not in ("real", "virtual"):
            raise ClusterError(f'clock is "real" or "virtual", not {clock!r}')
        if clock == "virtual" and data_dir is not None:
            raise ClusterError("a cluster in virtual time draws the same uids each time, so it keeps no folder")
        self.clock = clock
        paths = (stages,) if isinstance(stages, str | Path) else stages
        folder = None if data_dir is None else Path(data_dir)
        self._options = Options(nodes, folder, port, seed, tuple(map(Path, paths)))
        self._engine: Threaded | VirtualEngine | None = None
        self._in_loop: AsyncCluster | None = None
        self._views: list[Namespaced] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when its nodes are registered.

        Raises: SetupError, DataDirBusy, Corruption, RoleFailed, SimFailure; nothing is left then."""
        self._require_new()
        options = self._options
        engine: Threaded | VirtualEngine
        if self.clock == "virtual":
            from minikube_py.cluster.virtual import VirtualConfig
            from minikube_py.cluster.virtual_engine import VirtualEngine

            config = VirtualConfig(options.shapes, kubelet=KubeletConfig(stages=read_stages(options.stages)))
            engine = VirtualEngine(options.seed or 0, config, options.port)
        else:
            engine = Threaded(options)
        engine.start()
        self._engine = engine
        return self

    def stop(self) -> None:
        """Idempotent. Raises: what an orderly end raises."""
        self._stop(quietly=False)

    def _stop(self, quietly: bool) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        views, self._views = self._views, []
        try:
            for each in (self, *views):
                each.client.close()
        finally:
            if isinstance(engine, Threaded):
                engine.stop()
            else:
                engine.stop(quietly)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(quietly=kind is not None)

    async def __aenter__(self) -> AsyncCluster:
        self._require_new()
        if self.clock == "virtual":
            raise ClusterError("virtual time runs a loop of its own: use `with`, and run(main) for coroutines")
        self._in_loop = AsyncCluster(self._options)
        try:
            await self._in_loop.start()
        except BaseException:
            self._in_loop = None
            raise
        return self._in_loop

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._in_loop = self._in_loop, None
        if running is not None:
            await running.stop()

    def snapshot(self) -> Snapshot:
        """All objects but leases, once the cluster has come to rest."""
        found: Snapshot = self._reached().within(snapshots.settled)
        return found

    def restore(self, snapshot: Snapshot) -> None:
        """Puts that state back, by forward writes: revisions go on, open watches see the events, and the components
        have come to rest in it. Nodes that were down are up again."""
        engine = self._reached()
        engine.all_well()
        engine.within(partial(snapshots.put_back, snapshot=snapshot))

    def in_namespace(self, name: str) -> Namespaced:
        """The same cluster, where everything happens in that namespace that names none."""
        view = Namespaced(self, name)
        self._views.append(view)
        return view

    # -- virtual time -------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the cluster was made."""
        return self._virtual().virtual.now_s

    @property
    def digest(self) -> str:
        """SHA-256 of the history so far; see `minikube_py.cluster.history`."""
        return self._virtual().virtual.digest

    @property
    def inputs(self) -> Sequence[Input]:
        """All that came from outside, in order: requests that write, advances, faults."""
        return tuple(self._virtual().inputs)

    def save_log(self, path: Path | str) -> None:
        """Seed, nodes and inputs, for `minikube-py replay --from PATH --until EVENT`, which makes the same history."""
        from minikube_py.cluster import input_log

        input_log.write(Path(path), self._virtual())

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Everything happens that is due within that virtual time, its end included.

        Raises: InvalidRequest for time that runs back; SimFailure."""
        self._virtual().advance(seconds + 60 * minutes + 3600 * hours)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `main()` returns or raises, on the cluster's loop; virtual time passes as it takes."""
        found: T = self._virtual().run(main)
        return found

    def program(self, main: Callable[[Any], object], *, name: str = "", namespace: str = DEFAULT) -> Program:
        """A program of yours as a process of its own beside the control plane: `main(clients)` runs from now on, is
        started again where it raises, and may `crash()`. A coroutine function uses `clients.httpx_asyncio()`,
        `clients.lightkube_asyncio()`, `await clients.kubernetes_asyncio()`; a plain function `clients.httpx()`,
        `clients.lightkube()`, `clients.kubernetes()` and `time.sleep`. Faults are for it."""
        return self._virtual().start_program(main, name or getattr(main, "__name__", "program"), namespace)

    def _virtual(self) -> VirtualEngine:
        self._reached()
        engine = self._engine
        if engine is None or isinstance(engine, Threaded):
            raise ClusterError('this cluster runs in real time; Cluster(clock="virtual") has a clock to advance')
        return engine

    # -- inside -------------------------------------------------------------------------------------------------------

    def _require_new(self) -> None:
        if self._engine is not None or self._in_loop is not None:
            raise ClusterError("the cluster was started already")

    def _reached(self) -> ReachedPlainly:
        if self._in_loop is not None:
            raise ClusterError("within `async with Cluster() as c`, use c, whose methods are awaited")
        if self._engine is None:
            raise ClusterError(NOT_RUNNING)
        return self._engine


class Namespaced(PlainDoor):
    """A cluster seen from one namespace; `namespace` is its name."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(namespace)
        self.cluster = cluster
        self._kinds = cluster._kinds

    def _reached(self) -> ReachedPlainly:
        return self.cluster._reached()


class AsyncCluster(AsyncDoor):
    """What `async with Cluster()` gives: as Cluster, with methods that are awaited."""

    def __init__(self, options: Options) -> None:
        super().__init__(DEFAULT)
        self._options = options
        self._engine: InLoop | None = None

    async def start(self) -> None:
        engine = InLoop(self._options)
        await engine.start()
        self._engine = engine

    async def stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            await self.client.aclose()
        finally:
            await engine.stop()

    def _reached(self) -> InLoop:
        if self._engine is None:
            raise ClusterError(NOT_RUNNING)
        return self._engine

    def _clock(self) -> Clock:
        return self._reached().clock
