"""The public API: a control plane in this process, in one line.

    with Cluster(nodes=3) as cluster:          # a thread and an event loop of its own
        cluster.apply("rc.yaml")
        cluster.wait("rc/web", ready=3)

    async with Cluster(nodes=3) as cluster:    # in the caller's loop
        await cluster.wait("rc/web", ready=3)

    with Cluster(nodes=3, clock="virtual", seed=7) as cluster:
        cluster.advance(minutes=5)             # milliseconds; the same seed, the same history
        print(cluster.digest)

The store is in memory unless `data_dir` names a folder. Nothing is left behind, however it ends; a process that a
signal kills leaves a temporary folder, which the next one removes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from minikube_py.cluster import snapshots
from minikube_py.cluster.arguments import FilePath, FilePaths, Namespace, Nodes, Port, Seed, State, Time, checked
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.methods import DEFAULT, AsyncMethods, BlockingEngine
from minikube_py.cluster.owner import Owner
from minikube_py.cluster.real import InLoop, Options, Threaded
from minikube_py.cluster.snapshots import Snapshot
from minikube_py.cluster.start_errors import parameters_named
from minikube_py.cluster.virtual_time import InVirtualTime
from minikube_py.control_plane.stage_files import read_stages
from minikube_py.env import Clock
from minikube_py.kubelet.config import KubeletConfig

if TYPE_CHECKING:
    # Imported with the first cluster in virtual time.
    from minikube_py.cluster.virtual_engine import VirtualEngine

VIRTUAL_ONLY = (
    'this cluster runs in real time; virtual time is in Cluster(clock="virtual"), and in the fixtures of pytest with '
    "--minikube-clock virtual"
)
NOT_RUNNING = "the cluster is not running; enter it by `with` or `async with`"


class Cluster(InVirtualTime):
    """`nodes`: how many fake nodes, named node-0 and on, or which. `clock`: "virtual" for time that passes by `advance`
    alone, where `seed` (an int or a text, 7 being "7"; 0 unless given) decides all that could differ between two runs;
    in real time it seeds the scheduler's choices among equals. `data_dir`: keep everything there; None for a store in
    memory, as it always is in virtual time. `port`: 0 for any free one. `stages`: files or folders of stages
    by which pods and nodes live. One start at a time."""

    of_this_process = True

    @checked
    def __init__(
        self,
        nodes: Nodes = 1,
        *,
        clock: Time = "real",
        seed: Seed | None = None,
        data_dir: FilePath | None = None,
        port: Port = 0,
        stages: FilePaths = (),
    ) -> None:
        super().__init__()
        if clock == "virtual" and data_dir is not None:
            raise ClusterError("data_dir: a cluster in virtual time draws the same uids each time and keeps no folder")
        self.clock = clock
        paths = (stages,) if isinstance(stages, str | Path) else stages
        # A program may change its working folder later.
        folder = None if data_dir is None else Path(data_dir).absolute()
        self._options = Options(nodes, folder, port, seed, tuple(Path(each).absolute() for each in paths))
        self._engine: Threaded | VirtualEngine | None = None
        self._in_loop: AsyncCluster | None = None
        self._views: list[Namespaced] = []
        self._owner = Owner()

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when its nodes are registered.

        Raises: ClusterError, SimFailure; nothing is left then."""
        self._require_new()
        options = self._options
        with parameters_named(options.data_dir, options.stages):
            engine = self._started(options)
        self._engine, self._owner = engine, Owner()
        return self

    def _started(self, options: Options) -> Threaded | VirtualEngine:
        engine: Threaded | VirtualEngine
        if self.clock == "virtual":
            from minikube_py.cluster.virtual import VirtualConfig
            from minikube_py.cluster.virtual_engine import VirtualEngine

            seed = 0 if options.seed is None else options.seed
            config = VirtualConfig(options.shapes, kubelet=KubeletConfig(stages=read_stages(options.stages)))
            engine = VirtualEngine(seed, config, options.port)
        else:
            engine = Threaded(options)
        engine.start()
        return engine

    def stop(self) -> None:
        """Idempotent. Raises: what an orderly end raises."""
        self._stop(quietly=False)

    def _stop(self, quietly: bool) -> None:
        """An interrupted one can be repeated; what lives on a thread ends by itself."""
        engine = self._engine
        if engine is None or not self._owner.is_here:
            # In a forked child, it is its parent's.
            if isinstance(engine, Threaded):
                engine.stop()
            self._forget()
            return
        engine.require_outside()
        try:
            for each in (self, *self._views):
                each.client.close()
        finally:
            try:
                engine.stop(quietly)
            except Exception:
                self._forget()
                raise
            self._forget()

    def _forget(self) -> None:
        # Views may be used after the next start: their clients are closed with it again.
        self._engine = None

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
        if not _within_asyncio():
            raise ClusterError("`async with` is for a loop of asyncio; with trio: `with`, by trio.to_thread.run_sync")
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
        """All objects but leases, once the cluster is at rest: in virtual time, time passes until it is."""
        found: Snapshot = self._reached().within(snapshots.settled, "snapshot")
        return found

    def restore(self, snapshot: State) -> None:
        """Restores that state by forward writes: revisions continue, open watches see the events, and the components
        continue from it as after a restart. Faults end, but nodes that were down at the snapshot are down again."""
        engine = self._reached()
        snapshots.require_own(engine.plane, snapshot)
        engine.all_well()
        engine.within(partial(snapshots.put_back, snapshot=snapshot), "restore", snapshot.revision)
        engine.plane.player.nodes_down = bool(snapshot.down)

    def _mark(self) -> tuple[int, int]:
        """For `_has_changed`. In virtual time nothing happens by itself: the revision tells all."""
        engine = self._reached()
        found: tuple[int, int]
        found = engine.within(snapshots.mark) if engine.time_passes else (engine.plane.storage.revision, 0)
        return found

    def _has_changed(self, mark: tuple[int, int]) -> bool:
        """Whether an object but a lease was written or deleted since."""
        engine = self._reached()
        storage = engine.plane.storage
        if not engine.time_passes:
            return storage.revision != mark[0]
        found: bool = engine.within(lambda *_: snapshots.changed_since(storage, *mark))
        return found

    @property
    def cluster(self) -> Self:
        """Itself; of a view, the cluster behind it."""
        return self

    def in_namespace(self, name: Namespace) -> Namespaced:
        """The same cluster with another default namespace."""
        self._require_parent()
        view = Namespaced(self, name)
        self._views.append(view)
        return view

    # -- inside -------------------------------------------------------------------------------------------------------

    def _require_new(self) -> None:
        self._require_parent()
        if self._engine is not None or self._in_loop is not None:
            raise ClusterError("the cluster was started already")

    def _require_parent(self) -> None:
        """Raises: ClusterError in a child forked while it runs."""
        if self._engine is not None:
            self._owner.require()

    def _ruin(self) -> str:
        """Why it cannot go on; "" while it can."""
        if self._engine is None:
            return "it was stopped"
        error = self._engine.failure()
        return "" if error is None else f"{type(error).__name__}: {error}"

    def _virtual(self) -> VirtualEngine:
        engine = self._require_engine()
        if isinstance(engine, Threaded):
            raise ClusterError(VIRTUAL_ONLY)
        return engine

    def _reached(self) -> BlockingEngine:
        return self._require_engine()

    def _require_engine(self) -> Threaded | VirtualEngine:
        """Raises: ClusterError if it is not running here."""
        if self._in_loop is not None:
            raise ClusterError("within `async with Cluster() as c`, use c, whose methods are awaited")
        if self._engine is None:
            raise ClusterError(NOT_RUNNING)
        self._require_parent()
        if isinstance(self._engine, Threaded):
            self._engine.life.require()
        return self._engine


class Namespaced(InVirtualTime):
    """A cluster with the default namespace `namespace`. Its lifecycle and state belong to `cluster`: start, stop,
    snapshot and restore are there."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(namespace)
        self.cluster = cluster
        self._kinds = cluster._kinds

    def _reached(self) -> BlockingEngine:
        return self.cluster._reached()

    def _virtual(self) -> VirtualEngine:
        return self.cluster._virtual()

    def in_namespace(self, name: Namespace) -> Namespaced:
        """The same cluster with another default namespace."""
        return self.cluster.in_namespace(name)


class AsyncCluster(AsyncMethods):
    """The result of `async with Cluster()`: as Cluster in real time, with awaited methods."""

    def __init__(self, options: Options) -> None:
        super().__init__(DEFAULT)
        self._options = options
        self._engine: InLoop | None = None
        self._views: list[AsyncNamespaced] = []

    async def start(self) -> None:
        with parameters_named(self._options.data_dir, self._options.stages):
            engine = InLoop(self._options)
            await engine.start()
        self._engine = engine

    async def stop(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        views, self._views = self._views, []
        try:
            for each in (self, *views):
                await each.client.aclose()
        finally:
            await engine.stop()

    @property
    def cluster(self) -> Self:
        """See Cluster."""
        return self

    async def snapshot(self) -> Snapshot:
        """See Cluster."""
        engine = self._reached()
        with engine.life.within():
            return await snapshots.settled(engine.plane, engine.clock)

    async def restore(self, snapshot: State) -> None:
        """See Cluster."""
        engine = self._reached()
        snapshots.require_own(engine.plane, snapshot)
        engine.all_well()
        with engine.life.within():
            await snapshots.put_back(engine.plane, engine.clock, snapshot)

    def in_namespace(self, name: Namespace) -> AsyncNamespaced:
        """See Cluster."""
        view = AsyncNamespaced(self, name)
        self._views.append(view)
        return view

    def _reached(self) -> InLoop:
        if self._engine is None:
            raise ClusterError(NOT_RUNNING)
        self._engine.folder.owner.require()
        self._engine.life.require()
        return self._engine

    def _clock(self) -> Clock:
        return self._reached().clock


class AsyncNamespaced(AsyncMethods):
    """As Namespaced, of an AsyncCluster."""

    def __init__(self, cluster: AsyncCluster, namespace: str) -> None:
        super().__init__(namespace)
        self.cluster = cluster
        self._kinds = cluster._kinds

    def in_namespace(self, name: Namespace) -> AsyncNamespaced:
        """The same cluster with another default namespace."""
        return self.cluster.in_namespace(name)

    def _reached(self) -> InLoop:
        return self.cluster._reached()

    def _clock(self) -> Clock:
        return self.cluster._clock()


def _within_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
