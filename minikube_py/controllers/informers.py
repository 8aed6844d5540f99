"""Informers shared by several owners, each of which starts once those that it needs are synced.

A kind that is forbidden or not served delays only the owners that need it; `Starting.missing` reports the kind and
reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minikube_py.client.informer import Informer, InformerFactory
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.client.store import Indexer
from minikube_py.env import Clock, ended

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 10.0
"""How long startup waits for kinds that do not respond before it continues without them."""


class Informers:
    """One informer per resource, shared by all callers. `projections` and `indexers` say what is kept of which
    resource; `project` applies to all others."""

    def __init__(
        self,
        factory: InformerFactory,
        project: Callable[[Object], Any],
        projections: Mapping[ResourceRef, Callable[[Object], Any]],
        indexers: Mapping[ResourceRef, Mapping[str, Indexer[Any]]],
    ) -> None:
        self._factory = factory
        self._project = project
        self._projections = projections
        self._indexers = indexers
        self._informers: dict[ResourceRef, Informer[Any]] = {}
        self._started = False

    def of(self, resource: ResourceRef) -> Informer[Any]:
        """The shared informer."""
        informer = self._informers.get(resource)
        if informer is None:
            project = self._projections.get(resource, self._project)
            informer = self._factory.make(resource, project, indexers=self._indexers.get(resource))
            self._informers[resource] = informer
            if self._started:
                informer.start()
        return informer

    def all(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    def start(self) -> None:
        self._started = True
        for informer in self.all():
            informer.start()

    async def wait_synced(self, resources: Iterable[ResourceRef]) -> None:
        """Raises the error that ended any of them."""
        for resource in resources:
            await self.of(resource).wait_synced()

    def missing(self, resources: Iterable[ResourceRef]) -> dict[ResourceRef, str]:
        """Unsynced resources with reasons."""
        found = ((resource, self._informers.get(resource)) for resource in resources)
        return {each: informer.problem for each, informer in found if informer and not informer.has_synced()}

    async def drop(self, resource: ResourceRef) -> None:
        """Stops following a resource that is no longer served."""
        informer = self._informers.pop(resource, None)
        if informer is not None:
            await informer.stop()

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self.all()))


@dataclass(slots=True)
class Needs:
    """The informers that one owner uses: required and optional ones."""

    informers: Informers
    needed: dict[ResourceRef, None] = field(default_factory=dict)
    wanted: dict[ResourceRef, None] = field(default_factory=dict)

    def of(self, resource: ResourceRef, needed: bool = True) -> Informer[Any]:
        (self.needed if needed else self.wanted)[resource] = None
        return self.informers.of(resource)

    async def drop(self, resource: ResourceRef) -> None:
        self.wanted.pop(resource, None)
        await self.informers.drop(resource)


class Starting:
    """Starts each owner once its informers are synced, and reports which owner waits for what."""

    def __init__(self, informers: Informers, clock: Clock, timeout_s: float = SYNC_TIMEOUT_S) -> None:
        self._informers = informers
        self._clock = clock
        self._timeout_s = timeout_s
        self._needs: dict[str, Needs] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._late: list[asyncio.Task[None]] = []
        self._deadline: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self, owners: Mapping[str, tuple[Needs, Callable[[], None]]]) -> None:
        """Returns when all have started, or at the deadline: the rest start later. Raises the error that ended a
        required informer."""
        self._needs |= {name: needs for name, (needs, _) in owners.items()}
        if not self.missing():
            for _, start in owners.values():
                start()
            return
        loop = asyncio.get_running_loop()
        self._deadline = deadline = loop.create_task(self._clock.sleep(self._timeout_s))
        for name, (needs, start) in owners.items():
            self._tasks.append(loop.create_task(self._start(needs, start), name=f"start of {name}"))
        pending: set[asyncio.Task[None]] = set(self._tasks)
        while pending and not deadline.done():
            done, _ = await asyncio.wait({*pending, deadline}, return_when=asyncio.FIRST_COMPLETED)
            for task in (task for task in self._tasks if task in done):
                task.result()
            pending -= done
        if not pending:
            deadline.cancel()
            await ended(deadline)
        for name, missing in self.missing().items():
            told = "; ".join(f"{ref.plural} ({why or 'no answer'})" for ref, why in missing.items())
            logger.warning("%s has not got %s", name, told)

    def add(self, name: str, needs: Needs, make: Callable[[], Callable[[], None]]) -> None:
        """One that nobody needed before: `make` makes it, and returns how it is started once what it `needs` is there.
        Nobody waits for it. After `stop` it is not made."""
        if self._stopped:
            return

        async def made() -> None:
            await self._start(needs, make())

        self._needs[name] = needs
        self._late.append(asyncio.get_running_loop().create_task(made(), name=f"start of {name}"))

    async def _start(self, needs: Needs, start: Callable[[], None]) -> None:
        await self._informers.wait_synced(list(needs.needed))
        if needs.wanted and self._deadline is not None:
            wanted = asyncio.get_running_loop().create_task(self._informers.wait_synced(list(needs.wanted)))
            await asyncio.wait((wanted, self._deadline), return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                wanted.result()
            wanted.cancel()
            await ended(wanted)
        start()

    def missing(self) -> dict[str, dict[ResourceRef, str]]:
        """Owner to the kinds it still lacks, with reasons."""
        found = {name: self._informers.missing((*n.needed, *n.wanted)) for name, n in self._needs.items()}
        return {name: missing for name, missing in found.items() if missing}

    @property
    def failures(self) -> list[BaseException]:
        """The errors that ended owners' starts."""
        ends = (task.exception() for task in (*self._tasks, *self._late) if task.done() and not task.cancelled())
        return [failure for failure in ends if failure is not None]

    async def stop(self) -> None:
        self._stopped = True
        for task in (*self._tasks, *self._late, self._deadline):
            if task is not None:
                task.cancel()
                await ended(task)
