"""Watch requests: where a stream starts, its initial events, and its source.

Streams that depend on the objects alone come from the watch cache. A selector on a sum (`free.cpu>=4`) can change
without a write to the object; such streams come from the store's watch.

Source: KEP-3157 (WatchList), apiserver `pkg/storage/cacher/cacher.go`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import orjson

from minikube_py.api.errors import (
    StatusError,
    bad_request,
    expired,
    not_acceptable,
    service_unavailable,
    too_many_requests,
)
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NODES
from minikube_py.apiserver.forms import Form, check_options
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.lists import Lister
from minikube_py.apiserver.messages import Response
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.options import ListOptions
from minikube_py.apiserver.reading import WRONG, Reading
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.selection import STEPS_OF_OBJECT, Selection, pick_all
from minikube_py.apiserver.watch import Broadcaster, Encoder, Group, single_event_stream, unshown
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.apiserver.watch_stream import Batch, Stream, WatchBudget, error_event
from minikube_py.client.transport import JSON, WatchEvent
from minikube_py.env import Clock
from minikube_py.errors import Compacted, FieldsRedeclared, MinikubeError, RequestError
from minikube_py.mvcc.types import Event, KeyValue, RangeRequest, prefix_end
from minikube_py.store.storage import WatchBatch, WatchHandle

BOOKMARK_BEFORE_END_S = 2.0
"""A watch shorter than this ends without a bookmark, as upstream's do."""


class Watching:
    """Opens streams and limits their number."""

    def __init__(
        self, store: ObjectStore, cache: WatchCache, lister: Lister, limits: Limits, clock: Clock, rng: random.Random
    ) -> None:
        self._store = store
        self._cache = cache
        self._lister = lister
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._store_streams: dict[_StoreFeed, None] = {}
        self.budget = WatchBudget(limits)
        self.broadcasters: dict[Kind, Broadcaster] = {
            resource: Broadcaster(of, limits, clock, self.budget) for resource, of in cache.caches.items()
        }

    def follow_caches(self) -> None:
        """A broadcaster per current cache; broadcasters of removed caches end their streams."""
        caches = self._cache.caches
        for resource in [resource for resource in self.broadcasters if resource not in caches]:
            self.broadcasters.pop(resource).finish_all()
        for resource, of in caches.items():
            if resource not in self.broadcasters:
                self.broadcasters[resource] = Broadcaster(of, self._limits, self._clock, self.budget)

    def _broadcaster(self, resource: Kind) -> Broadcaster:
        """Raises: StatusError 404 if the resource is no longer served."""
        self._cache.of(resource)
        return self.broadcasters[resource]

    def streams(self) -> int:
        return len(self._store_streams) + sum(each.streams for each in self.broadcasters.values())

    def metrics(self) -> dict[str, float]:
        return {
            "apiserver_watch_queues_bytes": self.budget.held_bytes,
            "apiserver_terminated_watchers_total": self.budget.cut,
        }

    def bookmark_all(self) -> None:
        for broadcaster in self.broadcasters.values():
            if broadcaster.streams:
                broadcaster.bookmark_all(broadcaster.cache.revision)

    def finish_all(self, error: StatusError | None = None) -> None:
        """Ends every stream after its queued events, and `error`; watchers reconnect."""
        last = None if error is None else Batch([error_event(error)])
        for broadcaster in self.broadcasters.values():
            broadcaster.finish_all(last)
        for feed in list(self._store_streams):
            if last is not None:
                feed.stream.push(last)
            feed.stream.finish()

    async def open(self, route: Route, options: ListOptions, form: Form) -> Response:
        """Raises: StatusError 400, 422, 429, 504."""
        if self.streams() >= self._limits.watchers_max:
            raise too_many_requests(f"too many watches: the limit is {self._limits.watchers_max}", 5)
        check_options(form)
        if route.name:
            # Validate the options as sent.
            await self._lister.selection(route, options)
            terms = [term for term in (options.field_selector, f"metadata.name={route.name}") if term]
            options = options._replace(field_selector=",".join(terms))
        form = form._replace(single=True)
        selection = await self._lister.selection(route, options)
        if form.media_type != JSON:
            raise not_acceptable((f"{JSON};stream=watch",))
        stream = await self._stream(selection, options, form)
        if form.kind == "table" and route.resource is NODES:
            stream.enrich = NodeColumns(self._lister, self._lister.shown_fields(selection))
        return Response(200, stream=stream)

    async def _stream(self, selection: Selection, options: ListOptions, form: Form) -> Stream:
        lost, revision = self._cache.lost_revision, self._cache.revision
        # Once the store has passed it, nobody can tell which history an older one is of.
        passed = revision > lost and not options.send_initial_events
        if 0 < options.revision <= lost and (passed or options.revision > revision):
            text = f"resource version {options.revision} may be one that was lost"
            error = expired(f"{text}: the store was restored from a snapshot")
            return single_event_stream(self._limits, Encoder(selection.resource, form, self._clock), error_event(error))
        if selection.needs_store():
            return await self._from_store(selection, options, form)
        initial_events = options.send_initial_events
        if initial_events is None:
            initial_events = options.revision == 0
        elif options.revision_text in ("", "0") and not initial_events:
            await self._lister.wait_fresh()
        if initial_events:
            if options.revision_text not in ("", "0"):
                await self._lister.wait_for(options.revision)
            elif options.revision_text == "":
                await self._lister.wait_fresh()
        if (cache := self._cache.of(selection.resource)).lags:
            await cache.ready()
        if initial_events:
            return await self._with_state(selection, options, form)
        return self._from_history(selection, options, form)

    def _timeout_s(self, options: ListOptions) -> float:
        if options.timeout_s:
            return float(options.timeout_s)
        return self._limits.watch_timeout_s * (1 + self._rng.random())

    async def _with_state(self, selection: Selection, options: ListOptions, form: Form) -> Stream:
        """The state as ADDED events, then changes."""
        broadcaster = self._broadcaster(selection.resource)
        group = broadcaster.group(selection, form, options.bookmarks)
        stream = broadcaster.join(group)
        cache, revision = broadcaster.cache, broadcaster.cache.revision
        if selection.selective:
            entries: list[Entry] = []
            candidates = list(self._lister.candidates(cache, selection, None))
            try:
                await pick_all(entries, iter(candidates), selection, 0, self._limits.list_slice * STEPS_OF_OBJECT)
            except BaseException:
                stream.close()
                raise
        else:
            entries = cache.select(selection.prefix)
        end: WatchEvent | None = None
        if options.bookmarks and options.marks_state:
            end = group.encoder.bookmark(revision, initial_events_end=True)
        initial = group.initial(entries, self._limits.list_slice, end)
        self._begin(stream, initial, options, group)
        return stream

    def _from_history(self, selection: Selection, options: ListOptions, form: Form) -> Stream:
        """Events after a revision, then new ones. A revision that is too old, or older than the selected fields'
        declaration, ends the stream with an error event."""
        broadcaster = self._broadcaster(selection.resource)
        revision = options.revision or broadcaster.cache.revision
        after = revision if revision > broadcaster.cache.revision else 0
        group = broadcaster.group(selection, form, options.bookmarks, after)
        stream = broadcaster.join(group)
        try:
            if options.revision and options.revision < selection.declared_since:
                raise _redeclared(selection.declared_since)
            events = broadcaster.replay(group, revision) if not after else None
        except StatusError as error:
            stream.close()
            return single_event_stream(self._limits, group.encoder, error_event(error))
        self._begin(stream, events, options, group)
        return stream

    def _begin(
        self, stream: Stream, initial: Iterator[Batch] | None, options: ListOptions, source: Group | _StoreFeed
    ) -> None:
        timeout_s = self._timeout_s(options)

        def reached() -> int:
            if isinstance(source, Group):
                return max(self._cache.of(source.selection.resource).revision, source.after)
            return source.revision

        stream.reached = reached

        def at_timeout(ending: Stream) -> None:
            if options.bookmarks and timeout_s > BOOKMARK_BEFORE_END_S:
                # A bookmark guarantees that all earlier events were sent.
                revision = self._cache.revision
                if isinstance(source, Group):
                    if (broadcaster := self.broadcasters.get(source.selection.resource)) is not None:
                        broadcaster.catch_up(source)
                        revision = broadcaster.cache.revision
                else:
                    revision = source.revision
                ending.push(Batch([source.encoder.bookmark(revision)]))
            ending.finish()

        stream.begin(initial, timeout_s, at_timeout)

    # --- selectors that only the store can answer -------------------------------------------------------------------

    async def _from_store(self, selection: Selection, options: ListOptions, form: Form) -> Stream:
        encoder = Encoder(selection.resource, form, self._clock)
        revision = options.revision
        with_state = options.send_initial_events if options.send_initial_events is not None else revision == 0
        entries: list[Entry] = []
        if with_state:
            request = RangeRequest(selection.prefix, prefix_end(selection.prefix), where=selection.fields.indexed)
            result = await self._store.range(request)
            revision = result.revision
            entries = [entry for kv in result.kvs if selection.matches(entry := Entry(selection.resource, kv))]
        elif not revision:
            revision = await self._store.current_revision()
        feed = _StoreFeed(
            self._store_streams, selection, encoder, self._limits, options.bookmarks, revision, self.budget,
            self._store.reading,
        )  # fmt: skip
        try:
            feed.handle = self._store.storage.watch(
                selection.prefix, prefix_end(selection.prefix), revision + 1, feed.take, selection.fields.indexed
            )
        except RequestError as error:
            feed.stream.close()
            raise bad_request(str(error)) from None
        end = None
        if with_state and options.bookmarks and options.marks_state:
            end = encoder.bookmark(revision, initial_events_end=True)
        initial = Group(selection, encoder, False, 0).initial(entries, self._limits.list_slice, end)
        self._begin(feed.stream, initial, options, feed)
        return feed.stream


class NodeColumns:
    """Fills the extra columns of a node table: each node's free resources, from the store."""

    def __init__(self, lister: Lister, fields: tuple[str, ...]) -> None:
        self._lister = lister
        self.fields = fields

    async def __call__(self, batch: Batch) -> Batch:
        return Batch([await self._with_cells(event) for event in batch.events])

    async def _with_cells(self, event: WatchEvent) -> WatchEvent:
        if event.type == "ERROR":
            return event
        table = orjson.loads(event.object)
        for row in table["rows"]:
            name = row["cells"][0]
            values = await self._lister.field_texts(NODES.key("", name), self.fields) if name else {}
            row["cells"] += [values.get(field, "<none>" if name else "") for field in self.fields]
        return WatchEvent(event.type, orjson.dumps(table))


class _StoreFeed:
    """One stream on the store's own watch. Each batch ends with a bookmark at the store's revision if the watcher
    allows bookmarks: ADDED and MODIFIED have the object's own version, possibly far behind, and clients must be able to
    resume. `revision`: progress of the store's watch."""

    def __init__(
        self,
        registered: dict[_StoreFeed, None],
        selection: Selection,
        encoder: Encoder,
        limits: Limits,
        bookmarks: bool,
        revision: int,
        budget: WatchBudget,
        reading: Reading,
    ) -> None:
        self._registered = registered
        self._reading = reading
        self._selection = selection
        self.encoder = encoder
        self._bookmarks = bookmarks
        self.revision = revision
        self.handle: WatchHandle | None = None
        self.stream = Stream(limits, encoder, self._left, budget)
        registered[self] = None

    def _left(self, stream: Stream) -> None:
        self._registered.pop(self, None)
        if self.handle is not None:
            self.handle.cancel()

    def take(self, batch: WatchBatch) -> None:
        events: list[WatchEvent] = []
        for event in batch.events:
            try:
                seen = self._seen(event)
            except Exception:
                # As in a group, an exception here would stop the store.
                self.stream.push(unshown(event.kv.key))
                self.stream.finish()
                return
            if seen is not None:
                events.append(seen)
        if events:
            if self._bookmarks:
                events.append(self.encoder.bookmark(batch.revision))
            self.stream.push(Batch(events))
            self.stream.budget.relieve()
        if batch.error is None:
            self.revision = max(self.revision, batch.revision)
        else:
            self.stream.push(Batch([error_event(_status_of(batch.error))]))
            self.stream.finish()

    def _seen(self, event: Event) -> WatchEvent | None:
        """The store matched indexed fields; other selectors check both states of the object."""
        encode = self.encoder.encode
        kv, previous = event.kv, event.prev_kv
        # Earlier states were checked on arrival.
        before = previous is not None and self._matches(previous)
        if event.type == "DELETE":
            if not before or previous is None:
                return None
            return WatchEvent("DELETED", encode(previous.value, kv.mod_revision))
        read = self._reading.maybe(kv)
        if read is not None and self._matches(read):
            return WatchEvent("MODIFIED" if before else "ADDED", encode(read.value, kv.mod_revision))
        if before and previous is not None:
            return WatchEvent("DELETED", encode(previous.value, kv.mod_revision))
        return None

    def _matches(self, kv: KeyValue) -> bool:
        try:
            return self._selection.matches(Entry(self._selection.resource, kv))
        except WRONG:
            return False


def _status_of(error: MinikubeError) -> StatusError:
    if isinstance(error, Compacted):
        return expired(f"too old resource version: {error.requested} ({error.compact_revision})")
    if isinstance(error, FieldsRedeclared):
        return _redeclared(0)
    return service_unavailable(f"the store is not available: {error}")


def _redeclared(revision: int) -> StatusError:
    """Makes the watcher relist, as for an expired version."""
    since = f" at revision {revision}" if revision else ""
    return expired(f"too old resource version: the fields of the selector were declared again{since}")
