"""What plugins read of the cluster besides pods and nodes: one informer per requested resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from minikube_py.client.informer import Informer, InformerFactory
from minikube_py.client.rest import Object, ResourceRef
from minikube_py.env import Clock, ended

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 10.0
"""How long startup waits for resources that are not served or forbidden before it continues without them."""


class PluginInformers:
    """One informer per resource and projection, shared by all callers; they must pass the same `project` function."""

    def __init__(self, factory: InformerFactory, clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._informers: dict[tuple[ResourceRef, Callable[[Object], Any]], Informer[Any]] = {}

    def of(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Informer[Any]:
        found = self._informers.get((resource, project))
        if found is None:
            found = self._informers[resource, project] = self._factory.make(resource, project)
        return found

    def start(self) -> None:
        for informer in self._informers.values():
            informer.start()

    async def wait_synced(self) -> None:
        """Returns when all are synced, or at the timeout. Raises the error that ended any of them."""
        if not self._informers:
            return
        synced = [asyncio.ensure_future(informer.wait_synced()) for informer in self._informers.values()]
        deadline = asyncio.ensure_future(self._clock.sleep(SYNC_TIMEOUT_S))
        waiting = list(synced)
        try:
            while waiting and not deadline.done():
                done, _ = await asyncio.wait((*waiting, deadline), return_when=asyncio.FIRST_COMPLETED)
                for each in waiting:
                    if each in done:
                        each.result()
                waiting = [each for each in waiting if each not in done]
        finally:
            for each in (*synced, deadline):
                each.cancel()
            await ended(*synced, deadline)
        for informer in self._informers.values():
            if not informer.has_synced():
                why = informer.problem or "no answer yet"
                logger.error("scheduling begins without the %s of the cluster: %s", informer.resource.plural, why)

    def all(self) -> Iterable[Informer[Any]]:
        return self._informers.values()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended one of them: a bug."""
        found = (informer.failure for informer in self._informers.values())
        return next((failure for failure in found if failure is not None), None)

    async def stop(self) -> None:
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()))
