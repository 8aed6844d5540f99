"""The cache of a resource whose stored objects a webhook converts: it follows the store as the webhook answers.

It costs nothing before the first request. Objects that need no conversion pass at once if nothing is queued. If the
webhook fails, the cache is cleared, watches end and waiting requests fail; the next request restarts it. Upstream's
caches do the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedDict

from minikube_py.api.errors import StatusError, internal, too_many_requests
from minikube_py.api.kind import Kind
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.watch_cache import ResourceCache, SharedKeys, WatchCache
from minikube_py.mvcc.types import Event

if TYPE_CHECKING:
    from minikube_py.apiserver.conversions import Conversions

log = logging.getLogger(__name__)
_BATCH: Final = 200
_SLOW: Final = "the conversion webhook does not keep up with writes; please try again"


class _Life:
    """From the first request until the webhook fails. `waiting`: store events not converted yet."""

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        self.loaded = False
        self.task: asyncio.Task[None] | None = None
        self.why: StatusError | None = None


class ConvertedCache(ResourceCache):
    """`standing`: the objects as stored."""

    lags = True

    def __init__(
        self, owner: WatchCache, resource: Kind, limits: Limits, standing: SharedKeys, conversions: Conversions
    ) -> None:
        super().__init__(owner, resource, limits)
        self._standing = standing
        self._conversions = conversions
        self._life: _Life | None = None
        self._moved: asyncio.Future[None] | None = None

    @property
    def revision(self) -> int:
        waiting = self._life.waiting if self._life is not None else ()
        return waiting[0].kv.mod_revision - 1 if waiting else self.owner.revision

    async def ready(self) -> None:
        """Waits until it holds all events received so far. Raises: StatusError 500, 429."""
        wanted, life = self.owner.revision, self._life
        if life is None:
            life = self._life = _Life()
            life.task = asyncio.get_running_loop().create_task(self._load(life))
        while self._life is life and not (life.loaded and self.revision >= wanted):
            if self._moved is None:
                self._moved = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._moved)
        if self._life is not life:
            raise life.why or too_many_requests("the objects are being converted; please try again")

    def count(self) -> int:
        return self._standing.count()

    def sleep(self) -> None:
        """Clears the cache and ends its watches."""
        life, self._life = self._life, None
        if life is None:
            return
        if life.task is not None:
            life.task.cancel()
        self.entries = SortedDict()
        self.history.clear()
        self._tell()
        if self.ended is not None:
            self.ended()

    def _tell(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None and not moved.done():
            moved.set_result(None)

    def take(self, event: Event) -> None:
        """Takes events of the store."""
        life = self._life
        if life is None:
            return
        if life.task is None and (event.type != "PUT" or self._conversions.is_plain(self.resource, event.kv)):
            kv = self._conversions.plain(self.resource, event.kv) if event.type == "PUT" else event.kv
            self.apply(event._replace(kv=kv))
            return
        life.waiting.append(event)
        if len(life.waiting) > self._limits.history_events_max:
            life.why = too_many_requests(_SLOW)
            self.sleep()
        elif life.task is None:
            life.task = asyncio.get_running_loop().create_task(self._follow(life))

    async def _load(self, life: _Life) -> None:
        try:
            kvs, at = self._standing.all(), self.owner.revision
            found = await self._conversions.all_shown(self.resource, kvs)
            read = (self.owner.reading.take(self.resource, kv) for kv in found)
            self.load((kv for kv in read if kv is not None), at)
            life.loaded = True
        except Exception as error:
            self._fail(life, error)
            return
        await self._follow(life)

    async def _follow(self, life: _Life) -> None:
        try:
            while life.waiting:
                batch = list(islice(life.waiting, _BATCH))
                stored = [event.kv for event in batch if event.type == "PUT"]
                shown = iter(await self._conversions.all_shown(self.resource, stored))
                for event in batch:
                    life.waiting.popleft()
                    self.apply(event._replace(kv=next(shown)) if event.type == "PUT" else event)
                self._tell()
            life.task = None
            self._tell()
        except Exception as error:
            self._fail(life, error)

    def _fail(self, life: _Life, error: Exception) -> None:
        life.task = None
        if not isinstance(error, StatusError):
            log.exception("the objects of %s cannot be converted", self.resource)
        life.why = error if isinstance(error, StatusError) else internal("the objects cannot be converted")
        if self._life is life:
            self.sleep()
