"""Informers of kinds that only some pods need: each starts with the first such pod, and costs nothing before.

A pod is queued once the kinds it needs are synced: a claim that is not yet listed is not missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from minikube_py.client.informer import Handler, Informer, InformerFactory
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.client.store import Indexer
from minikube_py.env import Clock, ended
from minikube_py.scheduler.framework import Action, ClusterChange, ClusterEvent

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 10.0
"""A kind that is not synced by then is logged."""
_NO_INDEXERS: Mapping[str, Indexer[Any]] = {}
_T = TypeVar("_T")


class NeededKind(NamedTuple):
    """`name`: as in the framework's events, for example PersistentVolume; hints get what `project` returns, so the
    names of the built-in plugins' kinds are theirs. Equal ones share an informer; `project` is a module's function."""

    resource: ResourceRef
    name: str
    project: Callable[[Object], Any]
    indexers: Mapping[str, Indexer[Any]] = _NO_INDEXERS


class LentKinds:
    """Provides plugins with kinds besides pods and nodes. `told` gets each change of their objects; `on_batch` is
    called after a batch, and when a kind has synced."""

    def __init__(
        self,
        factory: InformerFactory,
        clock: Clock,
        told: Callable[[ClusterChange], None],
        on_batch: Callable[[], None],
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._told = told
        self._on_batch = on_batch
        self._informers: dict[Hashable, Informer[Any]] = {}
        self._names: dict[str, Hashable] = {}
        self._starting: dict[Informer[Any], asyncio.Task[None]] = {}
        self._shared: dict[str, Any] = {}
        self._running: dict[asyncio.Task[None], None] = {}

    def of(self, kind: NeededKind) -> Informer[Any]:
        """A kind's informer; it starts once a pod needs it."""
        key = (*kind[:3], *kind.indexers.items())
        informer = self._informers.get(key)
        if informer is None:
            informer = self._factory.make(kind.resource, kind.project, indexers=kind.indexers)
            informer.add_handler(self._handler(kind.name))
            self._informers[key] = informer
            if self._names.setdefault(kind.name, key) != key:
                logger.warning("two projections have the name %s: hints get what both return", kind.name)
        return informer

    def shared(self, name: str, make: Callable[[], _T]) -> _T:
        """A value shared by the plugins of all profiles, created on first use."""
        if name not in self._shared:
            self._shared[name] = make()
        found: _T = self._shared[name]
        return found

    def known(self, kinds: Iterable[NeededKind]) -> bool:
        """Whether all kinds are synced; starts the informers of the others."""
        known = True
        for kind in kinds:
            informer = self.of(kind)
            if informer.has_synced():
                continue
            known = False
            if informer not in self._starting:
                informer.start()
                self._starting[informer] = asyncio.get_running_loop().create_task(self._sync(kind.name, informer))
        return known

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a write in the background. Failures are logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._has_run)

    def _has_run(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a write outside scheduling failed: %s", error)

    async def stop(self) -> None:
        running = (*self._running, *self._starting.values())
        for task in running:
            task.cancel()
        await ended(*running)
        for informer in self._informers.values():
            await informer.stop()

    def all(self) -> Iterable[Informer[Any]]:
        return self._informers.values()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended one of the informers: a bug."""
        return next((each.failure for each in self._informers.values() if each.failure is not None), None)

    async def _sync(self, name: str, informer: Informer[Any]) -> None:
        patience = asyncio.get_running_loop().create_task(self._tell(name, informer))
        try:
            await informer.wait_synced()
        finally:
            patience.cancel()
            await ended(patience)
        self._on_batch()

    async def _tell(self, name: str, informer: Informer[Any]) -> None:
        await self._clock.sleep(SYNC_TIMEOUT_S)
        why = informer.problem or "no answer"
        logger.warning("pods that need a %s are held back: the kind cannot be listed (%s)", name, why)

    def _handler(self, name: str) -> Handler[Any]:
        added, updated, deleted = (ClusterEvent(name, a) for a in (Action.ADD, Action.UPDATE, Action.DELETE))
        told = self._told
        return Handler(
            on_add=lambda new: told(ClusterChange(added, None, new)),
            on_update=lambda old, new: told(ClusterChange(updated, old, new)),
            on_delete=lambda old: told(ClusterChange(deleted, old, None)),
            on_batch=self._on_batch,
        )
