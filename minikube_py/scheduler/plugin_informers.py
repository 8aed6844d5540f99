"""What plugins read of the cluster besides pods and nodes: one informer per requested resource, or, for what cannot be
watched, one request a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from minikube_py.client.informer import Informer, InformerFactory
from minikube_py.client.rest import Object, ResourceRef, RestClient
from minikube_py.env import Clock, Rng, ended, run_until
from minikube_py.errors import MinikubeError
from minikube_py.own_code import told

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 10.0
"""How long startup waits for resources that are not served or forbidden before it continues without them."""


POLL_PERIOD_S: Final = 60.0
POLL_JITTER: Final = 0.1
"""Of the period, more or less."""
POLL_DEADLINE_S: Final = 30.0
POLL_OBJECTS_MAX: Final = 500_000
POLL_BYTES_MAX: Final = 256 << 20
"""Of JSON, over all pages of an answer: twice what 500,000 objects of usage with a few labels have."""
SLICE: Final = 500
"""Objects read in one turn of the event loop."""


class Polled:
    """A resource that cannot be watched, such as usage: all its objects once a minute, as `project` has them. Another
    server may answer anything and without end, so objects and bytes are counted page by page, and of a page only what
    `project` made of it is kept. `problem`: why the last request failed, "" if it did not. Each is counted as
    `scheduler_plugin_polls_total`."""

    def __init__(
        self,
        resource: ResourceRef,
        project: Callable[[Object], Any],
        client: RestClient,
        clock: Clock,
        rng: Rng,
        count: Callable[..., None],
    ) -> None:
        self.problem = ""
        self.asked = asyncio.Event()
        self._resource, self._client, self._clock, self._rng, self._count = resource, client, clock, rng, count
        self._project = project
        self._takes: list[Callable[[Sequence[Any]], Awaitable[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def listen(self, take: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        """`take` gets what `project` made of each object of an answer, only until it returns. What it raises is a
        problem of that answer: another server's may hold anything."""
        self._takes.append(take)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"poll of {self._resource.plural}")

    @property
    def failure(self) -> BaseException | None:
        task = self._task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    async def stop(self) -> None:
        if (task := self._task) is not None:
            task.cancel()
            await ended(task)

    async def _run(self) -> None:
        while True:
            await self._ask()
            self.asked.set()
            await self._clock.sleep(POLL_PERIOD_S * (1 + POLL_JITTER * (2 * self._rng.random() - 1)))

    async def _ask(self) -> None:
        what, problem = f"{self._resource.plural}.{self._resource.group}", ""
        found: list[Any] = []
        try:
            deadline_s = self._clock.monotonic_s() + POLL_DEADLINE_S
            problem = await run_until(self._clock, deadline_s, self._read(found)) or await self._taken(found)
        except TimeoutError:
            problem = f"no answer within {POLL_DEADLINE_S:g} s"
        except MinikubeError as error:
            problem = str(error)
        except Exception as error:
            problem = f"the answer cannot be read: {told(error)}"
        finally:
            # A cancelled request's frames, which hold this list too, may live until the next full collection.
            found.clear()
        self._count("scheduler_plugin_polls_total", (("resource", what), ("result", "error" if problem else "success")))
        if problem != self.problem:
            self.problem = problem
            logger.warning("plugins read %s: %s", what, problem or "there is an answer again")

    async def _read(self, found: list[Any]) -> str:
        """Adds to `found` what each object says. Why reading stopped before the end, or ""."""
        objects = size_bytes = 0
        async for page in self._client.pages(self._resource):
            objects, size_bytes = objects + len(page.items), size_bytes + page.size_bytes
            if objects > POLL_OBJECTS_MAX:
                return f"{objects} objects or more, and {POLL_OBJECTS_MAX} is the most that is read"
            if size_bytes > POLL_BYTES_MAX:
                return f"{size_bytes} bytes or more, and {POLL_BYTES_MAX} is the most that is read"
            for start in range(0, len(page.items), SLICE):
                found += map(self._project, page.items[start : start + SLICE])
                await asyncio.sleep(0)
            # Or it would be held beside the next one, while that is asked for.
            page.items.clear()
        return ""

    async def _taken(self, items: Sequence[Any]) -> str:
        """Why one of those that listen could not take it, or ""; the others have it."""
        problem = ""
        for take in self._takes:
            try:
                await take(items)
            except Exception as error:
                problem = f"the answer cannot be read: {told(error)}"
        return problem


class PluginInformers:
    """One informer per resource and projection, shared by all callers; they must pass the same `project` function."""

    def __init__(self, factory: InformerFactory, clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._informers: dict[tuple[ResourceRef, Callable[[Object], Any]], Informer[Any]] = {}
        self._polled: dict[tuple[ResourceRef, Callable[[Object], Any]], Polled] = {}

    def of(self, resource: ResourceRef, project: Callable[[Object], Any]) -> Informer[Any]:
        found = self._informers.get((resource, project))
        if found is None:
            found = self._informers[resource, project] = self._factory.make(resource, project)
        return found

    def _everything(self) -> list[Informer[Any] | Polled]:
        return [*self._informers.values(), *self._polled.values()]

    def polled(
        self,
        resource: ResourceRef,
        project: Callable[[Object], Any],
        client: RestClient,
        rng: Rng,
        count: Callable[..., None],
    ) -> Polled:
        found = self._polled.get((resource, project))
        if found is None:
            found = self._polled[resource, project] = Polled(resource, project, client, self._clock, rng, count)
        return found

    def start(self) -> None:
        for each in self._everything():
            each.start()

    async def wait_synced(self) -> None:
        """Returns when all are synced or were asked for, or at the timeout. Raises the error that ended any of them."""
        synced = [asyncio.ensure_future(informer.wait_synced()) for informer in self._informers.values()]
        synced += [asyncio.ensure_future(_once(polled)) for polled in self._polled.values()]
        if not synced:
            return
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
        found = (each.failure for each in self._everything())
        return next((failure for failure in found if failure is not None), None)

    async def stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self._everything()))


async def _once(polled: Polled) -> None:
    await polled.asked.wait()
