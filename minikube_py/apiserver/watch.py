"""Watch streams: each change is matched and encoded once for all watchers of the same events, and delivered in batches.

Watchers that ask for the same (scope, selectors, form) form one `Group`, whose streams share one batch per event loop
turn. Adapters read from a stream; it has a bounded queue of batches, and a slow one is closed without affecting others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import orjson

from minikube_py.api import go_json
from minikube_py.api.errors import Json, expired, internal
from minikube_py.api.kind import Kind
from minikube_py.api.tables import TablePrinter, columns
from minikube_py.apiserver.bookmarks import bookmark_object
from minikube_py.apiserver.forms import Form, object_bytes, partial_bytes, with_meta_version
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.selection import DECODED_BYTES_SHIFT, STEPS_OF_OBJECT, Selection, SelectionKey
from minikube_py.apiserver.watch_cache import Change, Entry, ResourceCache, slices
from minikube_py.apiserver.watch_stream import Batch, Stream, WatchBudget, error_event, left
from minikube_py.client.transport import WatchEvent
from minikube_py.env import Clock

log = logging.getLogger(__name__)
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_new = tuple.__new__
_SENT: Final[dict[Any, bytes]] = {}
"""Replaces the bytes of a sent change. Read-only."""
PUMPED_STEPS: Final = 25_000
"""Steps per event loop turn: less than 10 ms."""
STEPS_OF_STREAM: Final = 10
COPIED_BYTES_SHIFT: Final = 7
BYTES_OF_CELL: Final = 32
"""As which a cell counts that is made of a decoded object."""
_NO_COLUMNS: Final = b'"columnDefinitions":null'


def unshown(key: bytes) -> Batch:
    """The final events of a watch whose value could not be encoded; call in the exception handler."""
    log.exception("the value of %s cannot be shown", key)
    return Batch([error_event(internal("a changed object cannot be shown in the form that was asked for"))])


class Encoder:
    """The bytes of objects in one form, as watch events carry them."""

    __slots__ = ("clock", "form", "key", "resource")

    def __init__(self, resource: Kind, form: Form, clock: Clock) -> None:
        self.resource = resource
        self.form = form
        self.clock = clock
        self.key = (form.kind, form.version, form.include_object)

    def encode(self, value: bytes, revision: int) -> bytes:
        if self.form.kind == "object":
            return object_bytes(self.resource, value, revision)
        if self.form.kind == "partial":
            return partial_bytes(value, revision, self.form.version)
        printer = TablePrinter(self.resource, self.clock.wall_s(), self.form.include_object)
        row = go_json.escaped(printer.row_bytes(value, str(revision)))
        return b"%b%b]}" % (self._table_head(revision), with_meta_version(row, self.form))

    def steps(self, size_bytes: int) -> int:
        """The cost of encoding that many bytes, decoded or copied."""
        if self.form.kind == "table":
            size_bytes += BYTES_OF_CELL * len(self.resource.printer.columns)
        return size_bytes >> (COPIED_BYTES_SHIFT if self.form.kind == "object" else DECODED_BYTES_SHIFT)

    def _table_head(self, revision: int) -> bytes:
        text = '{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":{"resourceVersion":"%d"},%s,"rows":['
        return (text % (self.form.version, revision, _NO_COLUMNS.decode())).encode()

    def with_columns(self, event: WatchEvent, fields: tuple[str, ...] = ()) -> WatchEvent:
        """Only the first event of a Table watch has the columns."""
        wanted = b'"columnDefinitions":' + orjson.dumps(columns(self.resource, fields))
        return WatchEvent(event.type, event.object.replace(_NO_COLUMNS, wanted, 1))

    def of_change(self, change: Change, deleted: bool) -> bytes:
        """The object of a change; for a deletion its last state, at the revision of the change."""
        key = (self.key, deleted)
        found = change.encoded.get(key)
        if found is None:
            if deleted:
                assert change.previous is not None, "what left was there"
                found = self.encode(change.previous.value, change.revision)
            else:
                assert change.entry is not None, "what stays is there"
                found = self.encode(change.entry.value, change.entry.revision)
            change.encoded[key] = found
        return found

    def bookmark(self, revision: int, initial_events_end: bool = False) -> WatchEvent:
        metadata: Json = {"resourceVersion": str(revision)}
        if initial_events_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        if self.form.kind == "object":
            return WatchEvent("BOOKMARK", orjson.dumps(bookmark_object(self.resource, metadata)))
        meta_version = f"meta.k8s.io/{self.form.version}"
        partial = {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata}
        if self.form.kind == "partial":
            return WatchEvent("BOOKMARK", orjson.dumps(partial))
        row = {"cells": [""] * len(columns(self.resource)), "object": partial}
        return WatchEvent("BOOKMARK", self._table_head(revision) + orjson.dumps(row) + b"]}")


class Group:
    """The streams that see the same events: one selection, one form, with bookmarks or without.

    Changes up to `after` are skipped: the watch starts at a future revision."""

    def __init__(self, selection: Selection, encoder: Encoder, bookmarks: bool, after: int) -> None:
        self.selection = selection
        self.encoder = encoder
        self.bookmarks = bookmarks
        self.after = after
        self.streams: dict[Stream, None] = {}
        self.pending: list[WatchEvent] = []
        self.seen = 0
        """This group's position in the broadcaster's queue."""

    def event_of(self, change: Change) -> WatchEvent | None:
        """A change's event type for this group: none, ADDED, MODIFIED or DELETED."""
        selection = self.selection
        if not change.key.startswith(selection.prefix) or change.revision <= self.after:
            return None
        entry, previous = change.entry, change.previous
        if selection.selective:
            now = entry is not None and selection.matches(entry)
            before = previous is not None and selection.matches(previous)
        else:
            now, before = entry is not None, previous is not None
        if now:
            return _new(WatchEvent, ("MODIFIED" if before else "ADDED", self.encoder.of_change(change, False)))
        return WatchEvent("DELETED", self.encoder.of_change(change, True)) if before else None

    def flush(self) -> None:
        """Sends pending events to all streams as one batch."""
        if not self.pending:
            return
        batch = Batch(self.pending)
        self.pending = []
        budget: WatchBudget | None = None
        for stream in list(self.streams):
            stream.push(batch)
            budget = stream.budget
        if budget is not None:
            budget.relieve()

    def end(self, last: Batch) -> None:
        self.flush()
        for stream in list(self.streams):
            stream.push(last)
            stream.finish()

    def steps(self, change: Change) -> int:
        """The cost of `event_of` with encoded bytes."""
        if not self.selection.selective:
            return STEPS_OF_OBJECT
        states = (change.entry, change.previous)
        return sum(self.selection.steps(state) for state in states if state is not None)

    def initial(self, entries: list[Entry], slice_size: int, end: WatchEvent | None) -> Iterator[Batch]:
        """The state as ADDED events, encoded lazily; then `end`."""
        encode = self.encoder.encode
        form, printer = self.encoder.form, self.encoder.resource.printer
        at_once = printer.at_once(slice_size) if form.kind == "table" else slice_size
        for part in slices(entries, at_once, form.kind != "object"):
            yield Batch([WatchEvent("ADDED", encode(entry.value, entry.revision)) for entry in part])
        if end is not None:
            yield Batch([end])


GroupKey = tuple[SelectionKey, tuple[str, str, str], bool, int]


class Broadcaster:
    """All groups of one resource.

    Changes come in order from its cache; batches are sent at the end of the event loop turn. Groups for one name, node
    or namespace are indexed, so that thousands of them cost other changes nothing.
    """

    def __init__(self, cache: ResourceCache, limits: Limits, clock: Clock, budget: WatchBudget) -> None:
        self.cache = cache
        self._limits = limits
        self._budget = budget
        self._clock = clock
        self._groups: dict[GroupKey, Group] = {}
        self._anywhere: dict[Group, None] = {}
        self._by_name: dict[str, dict[Group, None]] = {}
        self._by_node: dict[str, dict[Group, None]] = {}
        self._by_namespace: dict[str, dict[Group, None]] = {}
        self._queue: deque[Change | int] = deque()
        """Queue for the groups: changes, and revisions for bookmarks."""
        self._first = 1
        """The number of the first item of the queue."""
        self._left: Iterator[Group] | None = None
        """Groups that have not processed it."""
        self._groups_due: list[Group] = []
        self._pumping = False
        self.streams = 0
        cache.sink = self._take
        cache.ended = self.finish_all

    # --- changes ----------------------------------------------------------------------------------------------------

    def _take(self, change: Change | int) -> None:
        if not self._groups:
            return
        self._queue.append(change)
        self._schedule()

    def _schedule(self) -> None:
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Processes the queue for a bounded number of steps and flushes groups; continues in the next turn."""
        self._pumping = False
        steps, queue = PUMPED_STEPS, self._queue
        while queue and steps > 0:
            item = queue[0]
            if self._left is None:
                self._left = iter(self._candidates(item))
            for group in self._left:
                steps -= self._show(group, item, self._first)
                if steps <= 0:
                    break
            else:
                self._left = None
                queue.popleft()
                self._first += 1
                self._shown(item)
        due, self._groups_due = self._groups_due, []
        for group in due:
            group.flush()
        if queue:
            self._schedule()

    def _show(self, group: Group, item: Change | int, number: int) -> int:
        """Returns the steps used."""
        if number <= group.seen:
            return 1
        group.seen = number
        if isinstance(item, int):
            if not group.bookmarks or item <= group.after:
                return 1
            event: WatchEvent | None = group.encoder.bookmark(item)
            steps = STEPS_OF_OBJECT
        else:
            fresh = len(item.encoded)
            try:
                event = group.event_of(item)
            except Exception:
                # An exception here would stop the store and all watchers.
                group.end(unshown(item.key))
                return STEPS_OF_OBJECT
            steps = group.steps(item)
            if event is not None and len(item.encoded) > fresh:
                steps += group.encoder.steps(len(event.object))
        if event is None:
            return steps
        if not group.pending:
            self._groups_due.append(group)
        group.pending.append(event)
        return steps + STEPS_OF_STREAM * len(group.streams)

    @staticmethod
    def _shown(item: Change | int) -> None:
        if isinstance(item, int):
            return
        item.encoded = _SENT
        if item.previous is not None:
            item.previous.forget()

    def catch_up(self, group: Group) -> None:
        """Flushes the group's streams."""
        for number, item in enumerate(self._queue, self._first):
            self._show(group, item, number)
        group.flush()

    def _candidates(self, change: Change | int) -> list[Group]:
        if isinstance(change, int):
            return list(self._groups.values())
        found = list(self._anywhere)
        if self._by_name or self._by_namespace:
            *_, namespace, name = change.key.rsplit(b"/", 2)
            found += self._by_name.get(name.decode(), ())
            found += self._by_namespace.get(namespace.decode(), ())
        if self._by_node:
            entries = [entry for entry in (change.entry, change.previous) if entry]
            for node in dict.fromkeys(entry.fields.get("spec.nodeName", "") for entry in entries):
                found += self._by_node.get(node, ())
        return found

    # --- streams ----------------------------------------------------------------------------------------------------

    def _shelf(self, selection: Selection) -> tuple[dict[str, dict[Group, None]], str] | None:
        if selection.name:
            return self._by_name, selection.name
        if selection.node:
            return self._by_node, selection.node
        if selection.namespace:
            return self._by_namespace, selection.namespace
        return None

    def group(self, selection: Selection, form: Form, bookmarks: bool, after: int = 0) -> Group:
        encoder = Encoder(self.cache.resource, form, self._clock)
        key = (selection.key(), encoder.key, bookmarks, after)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Group(selection, encoder, bookmarks, after)
            found.seen = self._first + len(self._queue) - 1
            shelf = self._shelf(selection)
            if shelf is None:
                self._anywhere[found] = None
            else:
                shelf[0].setdefault(shelf[1], {})[found] = None
        return found

    def join(self, group: Group) -> Stream:
        """A stream that gets the group's events from now on."""
        self.catch_up(group)

        def leave(stream: Stream) -> None:
            self._leave(group, stream)

        stream = Stream(self._limits, group.encoder, leave, self._budget)
        group.streams[stream] = None
        self.streams += 1
        return stream

    def _leave(self, group: Group, stream: Stream) -> None:
        if group.streams.pop(stream, 0) == 0:
            return
        self.streams -= 1
        if group.streams:
            return
        key = (group.selection.key(), group.encoder.key, group.bookmarks, group.after)
        self._groups.pop(key, None)
        shelf = self._shelf(group.selection)
        if shelf is None:
            self._anywhere.pop(group, None)
        else:
            groups = shelf[0][shelf[1]]
            groups.pop(group, None)
            if not groups:
                del shelf[0][shelf[1]]

    def bookmark_all(self, revision: int) -> None:
        self._take(revision)

    def finish_all(self, last: Batch | None = None) -> None:
        for group in list(self._groups.values()):
            self.catch_up(group)
            for stream in list(group.streams):
                if last is not None:
                    stream.push(last)
                stream.finish()

    def replay(self, group: Group, revision: int) -> Iterator[Batch]:
        """The group's events after `revision` up to now, lazily; an empty batch ends a turn without events. Raises:
        StatusError 410 if history begins later."""
        if revision < self.cache.history_from:
            raise expired(f"too old resource version: {revision} ({self.cache.history_from})")
        return self._replayed(group, self.cache.since(revision))

    def _replayed(self, group: Group, changes: list[Change]) -> Iterator[Batch]:
        steps_max = self._limits.list_slice * STEPS_OF_OBJECT
        events: list[WatchEvent] = []
        steps = 0
        for change in changes:
            steps += group.steps(change)
            sent, change.encoded = change.encoded, {}
            event = group.event_of(change)
            change.encoded = sent
            if event is not None:
                steps += group.encoder.steps(len(event.object))
                events.append(event)
            if change.previous is not None:
                change.previous.forget()
            if steps >= steps_max:
                yield Batch(events)
                events, steps = [], 0
        if events:
            yield Batch(events)


def single_event_stream(limits: Limits, encoder: Encoder, event: WatchEvent) -> Stream:
    """A stream with one event."""
    stream = Stream(limits, encoder, left, WatchBudget(limits))
    stream.push(Batch([event]))
    stream.finish()
    return stream

