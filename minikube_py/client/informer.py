"""A local copy of the API's objects, maintained by list and watch, with callbacks for its changes.

Whatever happens - 410, a restart, lost connections, a watch ended for being slow - the copy converges to the server's
state, and handlers see every difference, including deletions missed in a gap. Source: client-go/tools/cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Generic

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.backoff import Backoff
from minikube_py.client.repeats import Renewed, Repeats
from minikube_py.client.rest import Object, ResourceRef, RestClient, path_of, status_error
from minikube_py.client.store import Indexer, ObjectStore, T
from minikube_py.client.transport import WatchEvent
from minikube_py.client.unreadable import NAMELESS, Unreadable
from minikube_py.env import Clock, Rng
from minikube_py.errors import MinikubeError

logger = logging.getLogger(__name__)

WATCH_TIMEOUT_S = 300.0
"""A watch requests a timeout of [1, 2) times this, so that a silently dead connection cannot last."""
SHORT_WATCH_S = 1.0
"""A watch that ended sooner without an event counts as a failure; otherwise a server that refuses watches would be
overloaded."""
SLICE_OBJECTS = 500
"""Objects of a list whose handlers run in one turn of the loop."""


def _ignore(*_: Any) -> None:
    return


@dataclass(frozen=True, slots=True)
class Handler(Generic[T]):
    """Called on the event loop, in order, after the store changed; must be quick. An object for which a handler raises
    is withdrawn from all handlers, and omitted.

    An object deleted and recreated under its name is reported by on_delete and on_add. `on_batch` follows each
    batch, `on_list` each list: objects that came and went since the last event before it are never reported."""

    on_add: Callable[[T], None] = _ignore
    on_update: Callable[[T, T], None] = _ignore
    """(old, new)"""
    on_delete: Callable[[T], None] = _ignore
    """Argument: the object last in the store."""
    on_batch: Callable[[], None] = _ignore
    on_list: Callable[[], None] = _ignore


@dataclass(slots=True)
class InformerStats:
    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    expired: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects: empty means all. `page_size` 0 lists without paging."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    page_size: int = 1000

    def params(self) -> dict[str, str]:
        params: dict[str, str] = {}
        if self.label_selector:
            params["labelSelector"] = self.label_selector
        if self.field_selector:
            params["fieldSelector"] = self.field_selector
        return params


class _Expired(Exception):
    """The watch cannot continue from its resourceVersion: list again."""


@dataclass(slots=True)
class _Synced:
    done: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)


def key_of(obj: Object) -> str:
    """`namespace/name`, or `name`; one shared string for all informers of the object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return intern(f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"]))


class Informer(Generic[T]):
    """`project(obj)` makes the slotted projection that is kept, or None for an object of no interest. An object for
    which it, an indexer or a handler raises is only in `unreadable` until it changes.

    Usage: add handlers, `start()`, `await wait_synced()`; `store` is the copy. An event costs one decode and one
    projection."""

    def __init__(
        self,
        client: RestClient,
        resource: ResourceRef,
        project: Callable[[Object], T | None],
        *,
        clock: Clock,
        rng: Rng,
        selection: Selection | None = None,
        indexers: Mapping[str, Indexer[T]] | None = None,
        decode: Callable[[bytes], Any] = orjson.loads,
    ) -> None:
        self.resource = resource
        self.store: ObjectStore[T] = ObjectStore(indexers)
        self.stats = InformerStats()
        self.unreadable = Unreadable(resource)
        self.resource_version = ""
        self.problem = ""
        """Why the last list failed; "" if it succeeded."""
        self._client = client
        self._project = project
        self._decode = decode
        self._repeats: Repeats[T] | None = Repeats(project) if isinstance(project, Renewed) else None
        self._clock = clock
        self._rng = rng
        self._selection = selection if selection is not None else Selection()
        self._handlers: list[Handler[T]] = []
        self._handlers_at_start: list[Handler[T]] = []
        self._shows = False
        self.lives_on = False
        """`stop()` only releases it."""
        self._backoff = Backoff(rng)
        self._synced = _Synced()
        self._task: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler[T]) -> None:
        """A handler added late gets on_add for all known objects."""
        if self._shows:
            self._show(handler)
        else:
            self._handlers_at_start.append(handler)

    def _show(self, handler: Handler[T]) -> None:
        self._handlers.append(handler)
        if len(self.store):
            for key in sorted(self.store.keys()):
                if (item := self.store.get(key)) is None:
                    continue
                try:
                    handler.on_add(item)
                except Exception as error:
                    self._leave_out(key, error)
            self._end_batch(handler)

    def start(self) -> None:
        """Idempotent. Handlers of one that was released get on_add at once for what it knows."""
        if self._shows:
            return
        self._shows = True
        handlers, self._handlers_at_start = self._handlers_at_start, []
        for handler in handlers:
            self._show(handler)
        if self._task is not None:
            self._finish_sync()
        else:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"informer {self.resource.plural}")

    async def stop(self) -> None:
        """Idempotent. The store keeps its content."""
        if self.lives_on:
            self.release()
            return
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        self._finish_sync(asyncio.CancelledError())

    def release(self) -> None:
        """Forgets its handlers, and goes on following the objects."""
        self._finish_sync(asyncio.CancelledError())
        self._handlers, self._handlers_at_start = [], []
        self._shows, self._synced = False, _Synced()

    def knows(self, revision: int) -> bool:
        """Whether it holds all objects as of `revision`, and follows them."""
        following = self._task is not None and not self._task.done() and not self.unreadable.why
        return following and self.resource_version.isdigit() and int(self.resource_version) >= revision

    def has_synced(self) -> bool:
        """The first list is complete and its handlers were called."""
        return self._synced.done

    async def wait_synced(self) -> None:
        """Raises the informer's failure if it ended before."""
        if self._synced.done:
            return
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
        waiter = asyncio.get_running_loop().create_future()
        self._synced.waiters.append(waiter)
        await waiter

    @property
    def failure(self) -> BaseException | None:
        """The error by which this informer ended itself: a bug."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def _finish_sync(self, error: BaseException | None = None) -> None:
        waiters, self._synced.waiters = self._synced.waiters, []
        if error is None:
            self._synced.done = True
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            elif isinstance(error, asyncio.CancelledError):
                waiter.cancel()
            else:
                waiter.set_exception(error)

    # --- list and watch ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._list()
                    if self._shows:
                        self._finish_sync()
                    while True:
                        await self._watch()
                except _Expired as error:
                    self.stats.expired += 1
                    logger.info("%s: list again: %s", self.resource.plural, error)
                    await self._clock.sleep(self._backoff.next_s())
                except (MinikubeError, orjson.JSONDecodeError) as error:
                    self._failed("list", error)
                    self.problem = str(error) or type(error).__name__
                    await self._clock.sleep(self._backoff.next_s())
        except Exception as error:
            logger.exception("the informer of %s stops", self.resource.plural)
            self._finish_sync(error)
            raise

    def _failed(self, what: str, error: Exception) -> None:
        self.stats.errors += 1
        logger.warning("%s of %s: %s", what, self.resource.plural, error or type(error).__name__)

    async def _list(self) -> None:
        self.stats.lists += 1
        selection = self._selection
        try:
            items, version = await self._pages(selection.page_size)
        except StatusError as error:
            if error.code != 410:
                raise
            # The first page's revision was compacted meanwhile; an unpaged list cannot expire.
            items, version = await self._pages(0)
        await self._replace(items)
        self.resource_version = version
        for handler in self._handlers:
            handler.on_list()
        self.problem = ""

    async def _pages(self, page_size: int) -> tuple[dict[str, T], str]:
        found: dict[str, T] = {}
        unread: dict[str, None] = {}
        version = ""
        selection, project = self._selection, self._project
        pages = self._client.pages(
            self.resource,
            selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            limit=page_size,
        )
        async for page in pages:
            for obj in page.items:
                key = NAMELESS
                try:
                    key = key_of(obj)
                    if (item := project(obj)) is not None:
                        found[key] = item
                except Exception as error:
                    unread[key] = None
                    self.unreadable.add(key, error)
            version = page.resource_version
        self.unreadable.keep(unread)
        return found, version

    async def _replace(self, found: dict[str, T]) -> None:
        """In slices: handlers of a hundred thousand objects at once would block other tasks for seconds."""
        known = self.store.keys()
        for number, key in enumerate([key for key in known if key not in found], start=1):
            self._remove(key)
            if number % SLICE_OBJECTS == 0:
                await self._end_slice()
        for number, (key, item) in enumerate(found.items(), start=1):
            try:
                self._put(key, item)
            except Exception as error:
                self._leave_out(key, error)
            if number % SLICE_OBJECTS == 0:
                await self._end_slice()
        await self._end_slice()

    async def _end_slice(self) -> None:
        for handler in self._handlers:
            self._end_batch(handler)
        await asyncio.sleep(0)

    def _end_batch(self, handler: Handler[T]) -> None:
        try:
            handler.on_batch()
        except Exception:
            self.unreadable.failed += 1
            logger.exception("a handler of a batch of %s failed", self.resource.plural)

    async def _watch(self) -> None:
        """One watch, until it ends. Raises: _Expired."""
        self.stats.watches += 1
        started_s, before = self._clock.monotonic_s(), self.stats.events + self.stats.bookmarks
        params = self._selection.params()
        params["resourceVersion"] = self.resource_version
        params["allowWatchBookmarks"] = "true"
        params["timeoutSeconds"] = str(int(WATCH_TIMEOUT_S * (1.0 + self._rng.random())))
        failed = False
        batches = self._client.transport.watch(path_of(self.resource, self._selection.namespace), params)
        try:
            async for batch in batches:
                self._apply(batch)
        except (MinikubeError, orjson.JSONDecodeError) as error:
            self._failed("watch", error)
            failed = True
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()
        if self.stats.events + self.stats.bookmarks > before:
            self._backoff.reset()
        elif self._clock.monotonic_s() - started_s < SHORT_WATCH_S:
            failed = True
        if failed:
            await self._clock.sleep(self._backoff.next_s())

    def _apply(self, batch: list[WatchEvent]) -> None:
        """Raises: _Expired, StatusError."""
        decode, stats, repeats = self._decode, self.stats, self._repeats
        version = ""
        for kind, body in batch:
            if repeats is not None and kind == "MODIFIED" and (found := repeats.find(body, self.store.get)) is not None:
                key, item, version = found
                stats.events += 1
                self._keep(key, item)
                continue
            obj = decode(body)
            if kind == "ERROR":
                self._advance(version)
                self._raise_error(body)
            try:
                version = obj["metadata"].get("resourceVersion", "")
            except (LookupError, TypeError, AttributeError) as error:
                self.unreadable.add(NAMELESS, error)
                continue
            if kind == "BOOKMARK":
                stats.bookmarks += 1
                continue
            stats.events += 1
            self._take(obj, kind == "DELETED", body)
        self._advance(version)
        for handler in self._handlers:
            self._end_batch(handler)

    def _take(self, obj: Object, gone: bool, body: bytes) -> None:
        key = NAMELESS
        try:
            key = key_of(obj)
            if gone or (item := self._project(obj)) is None:
                self._remove(key)
            else:
                self._put(key, item)
                if self._repeats is not None:
                    self._repeats.learn(body, key, item)
        except Exception as error:
            self._leave_out(key, error)
        else:
            if self.unreadable.why:
                self.unreadable.drop(key)

    def _keep(self, key: str, item: T) -> None:
        """As `_take`, of what is projected already."""
        try:
            self._put(key, item)
        except Exception as error:
            self._leave_out(key, error)

    def _advance(self, version: str) -> None:
        # A watch on a sum sends objects with their own, older versions; a bookmark then gives the revision reached.
        if not isinstance(version, str) or not version:
            return
        try:
            if int(version) < int(self.resource_version):
                return
        except TypeError:
            return
        except ValueError:
            pass
        self.resource_version = version

    def _raise_error(self, body: bytes) -> None:
        error = status_error(500, body)
        if error.code == 410 or (error.code == 504 and "resource version" in error.message):
            # 504: the server has never seen our version, so its history is a different one.
            raise _Expired(error.message)
        raise error

    # --- changes ----------------------------------------------------------------------------------------------------

    def _put(self, key: str, item: T) -> None:
        """Raises what an indexer or a handler raises; then no handler keeps the object."""
        old = self.store.get(key)
        if old is not None and old.uid != item.uid:
            self._remove(key)
            old = None
        self.store.put(key, item)
        told = 0
        try:
            for handler in self._handlers:
                told += 1
                if old is None:
                    handler.on_add(item)
                else:
                    handler.on_update(old, item)
        except Exception:
            self.store.remove(key)
            for handler in self._handlers[:told]:
                self._tell_gone(handler, item)
            if old is not None:
                # The handler that raised may have kept some of it.
                for handler in self._handlers[told - 1 :]:
                    self._tell_gone(handler, old)
            raise

    def _remove(self, key: str) -> None:
        old = self.store.remove(key)
        if old is not None:
            for handler in self._handlers:
                self._tell_gone(handler, old)

    def _tell_gone(self, handler: Handler[T], item: T) -> None:
        try:
            handler.on_delete(item)
        except Exception:
            self.unreadable.failed += 1
            logger.exception("a handler of the end of one of the %s failed", self.resource.plural)

    def _leave_out(self, key: str, error: Exception) -> None:
        self.unreadable.add(key, error)
        self._remove(key)


class InformerFactory:
    """Makes the informers of one component. Between `keep()` and `forget_unused()` the component may be replaced: what
    it stops goes on, and its successor gets it instead of one that lists again. An informer remembers nothing but the
    objects as they are on the server. `decode`: of events' bodies; its objects may be shared."""

    def __init__(
        self, client: RestClient, clock: Clock, rng: Rng, decode: Callable[[bytes], Any] = orjson.loads
    ) -> None:
        self._client, self._clock, self._rng, self._decode = client, clock, rng, decode
        self._made: dict[Hashable, Informer[Any]] = {}
        self._kept: dict[Hashable, Informer[Any]] = {}

    def make(
        self,
        resource: ResourceRef,
        project: Callable[[Object], T | None],
        selection: Selection | None = None,
        indexers: Mapping[str, Indexer[T]] | None = None,
    ) -> Informer[T]:
        key = (resource, project, selection, tuple((indexers or {}).items()))
        informer: Informer[T] | None = self._kept.pop(key, None)
        if informer is None:
            informer = Informer(
                self._client,
                resource,
                project,
                clock=self._clock,
                rng=self._rng,
                selection=selection,
                indexers=indexers,
                decode=self._decode,
            )
        else:
            informer.lives_on = False
        self._made[key] = informer
        return informer

    def keep(self) -> None:
        self._kept, self._made = self._kept | self._made, {}
        for informer in self._kept.values():
            informer.lives_on = True

    def lacks(self, revision: int) -> bool:
        """Whether a kept informer does not know that revision."""
        return not all(informer.knows(revision) for informer in self._kept.values())

    async def forget_unused(self, revision: int | None = None) -> None:
        """Ends the kept informers that do not know `revision`; None: all of them."""
        for key, informer in list(self._kept.items()):
            if revision is None or not informer.knows(revision):
                self._kept.pop(key, None)
                informer.lives_on = False
                await informer.stop()
