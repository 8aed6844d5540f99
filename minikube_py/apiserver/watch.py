"""Watch streams: who sees which change, encoded once for all that see it alike, delivered in batches.

Watchers that ask for the same (scope, selectors, form) stand in one `Group`: a change is matched and encoded once per
group, and the batch of one turn of the loop is one object that all its streams share. A stream is what an adapter
reads from; it holds a bounded queue of batches, and is cut off alone when it does not keep up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

import orjson

from minikube_py.api.errors import Json, expired, internal
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import PODS
from minikube_py.api.selectors import FieldSelector, LabelSelector
from minikube_py.api.tables import TablePrinter, columns
from minikube_py.apiserver.forms import Form, object_bytes, partial_bytes
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.watch_cache import Change, Entry, ResourceCache, slices
from minikube_py.apiserver.watch_stream import Batch, Stream, WatchBudget, error_event, left
from minikube_py.client.transport import WatchEvent
from minikube_py.env import Clock
from minikube_py.fields.evaluate import where_of
from minikube_py.fields.where import Predicate

log = logging.getLogger(__name__)
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_SENT: Final[dict[Any, bytes]] = {}
"""In place of the bytes of a change that was sent. Nobody writes into it."""
_NO_COLUMNS: Final = b'"columnDefinitions":null'


def unshown(key: bytes) -> Batch:
    """The last events of a watch on a value that cannot be brought into its form; to be called where that raised."""
    log.exception("the value of %s cannot be shown", key)
    return Batch([error_event(internal("a changed object cannot be shown in the form that was asked for"))])


# --- what a watcher asks for ----------------------------------------------------------------------------------------


SelectionKey = tuple[str, str, str, str]


class Selection:
    """Scope and selectors of a list or watch, compiled once. `declared_since`: the revision since which the declared
    fields have meant what they do; a list or watch begun before asked for something else, and cannot go on."""

    __slots__ = (
        "_where", "declared_since", "fields", "labels", "name", "namespace", "node", "prefix", "resource", "selective",
    )  # fmt: skip

    def __init__(
        self,
        resource: Kind,
        namespace: str,
        labels: LabelSelector,
        fields: FieldSelector,
        declared_since: int = 0,
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.labels = labels
        self.fields = fields
        self.declared_since = declared_since
        self.prefix = resource.collection_prefix(namespace)
        self.name = fields.exact("metadata.name")
        self.node = fields.exact("spec.nodeName") if resource is PODS else None
        self._where: Predicate | None = None
        if fields.where and not self.needs_store():
            assert fields.declared is not None, "a where names declared fields"
            self._where = where_of(fields.declared, fields.where)
        self.selective = bool(labels or fields.requirements or self._where)

    def needs_store(self) -> bool:
        """True where a declared field depends on other objects, so that only the store can answer."""
        declared = self.fields.declared
        return declared is not None and any(
            declared.depends_on_others(comparison.field) for comparison in self.fields.where.comparisons
        )

    def has_index(self) -> bool:
        """True where an index of the store was declared for such questions, and none of the cache's own is better."""
        return self.fields.has_index and not self.name and not self.node

    def matches(self, entry: Entry) -> bool:
        """Selectors only; the scope is the prefix's. What only the store can answer is not looked at."""
        if self.labels and not self.labels.matches(entry.labels):
            return False
        if self.fields.requirements and not self.fields.matches_attributes(entry.fields):
            return False
        return self._where is None or self._where(entry.row_by(self.fields.declared))

    def key(self) -> SelectionKey:
        """Equal where the same is asked for: the same text, and fields that mean the same."""
        return self.namespace, str(self.labels), str(self.fields), str(self.fields.asked()) if self._where else ""


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
        row = printer.row_bytes(value, str(revision))
        return b"%b%b]}" % (self._table_head(revision), row)

    def _table_head(self, revision: int) -> bytes:
        text = '{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":{"resourceVersion":"%d"},%s,"rows":['
        return (text % (self.form.version, revision, _NO_COLUMNS.decode())).encode()

    def with_columns(self, event: WatchEvent, fields: tuple[str, ...] = ()) -> WatchEvent:
        """The first event of a Table watch tells the columns; the others do not."""
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
            obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
            return WatchEvent("BOOKMARK", orjson.dumps({**obj, **_ZERO_BODIES.get(self.resource, {})}))
        meta_version = f"meta.k8s.io/{self.form.version}"
        partial = {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": metadata}
        if self.form.kind == "partial":
            return WatchEvent("BOOKMARK", orjson.dumps(partial))
        row = {"cells": [""] * len(columns(self.resource)), "object": partial}
        return WatchEvent("BOOKMARK", self._table_head(revision) + orjson.dumps(row) + b"]}")


_ZERO_BODIES: Final[dict[Kind, Json]] = {PODS: {"spec": {"containers": None}, "status": {}}}
"""What else an object without content prints, where that is not nothing."""


class Group:
    """The streams that see the same events: one selection, one form, with bookmarks or without.

    Changes up to `after` are not sent: the watch asked for a revision that is not here yet."""

    def __init__(self, selection: Selection, encoder: Encoder, bookmarks: bool, after: int) -> None:
        self.selection = selection
        self.encoder = encoder
        self.bookmarks = bookmarks
        self.after = after
        self.streams: dict[Stream, None] = {}
        self.pending: list[WatchEvent] = []

    def event_of(self, change: Change) -> WatchEvent | None:
        """What this group sees of a change: nothing, ADDED, MODIFIED or DELETED."""
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
            return WatchEvent("MODIFIED" if before else "ADDED", self.encoder.of_change(change, False))
        return WatchEvent("DELETED", self.encoder.of_change(change, True)) if before else None

    def flush(self) -> None:
        """Hands what is pending to all streams as one batch."""
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

    def initial(self, entries: list[Entry], slice_size: int, end: WatchEvent | None) -> Iterator[Batch]:
        """The state as ADDED events, encoded as it is pulled; then `end`."""
        encode = self.encoder.encode
        for part in slices(entries, slice_size, self.encoder.form.kind != "object"):
            yield Batch([WatchEvent("ADDED", encode(entry.value, entry.revision)) for entry in part])
        if end is not None:
            yield Batch([end])


GroupKey = tuple[SelectionKey, tuple[str, str, str], bool, int]


class Broadcaster:
    """All groups of one resource. Changes come in order from its cache; batches leave at the end of the loop's turn.

    Groups that ask for one name, one node or one namespace are found by it, so that thousands of them cost nothing
    to a change that is not theirs.
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
        self._due: list[Change] = []
        self._groups_due: list[Group] = []
        self.streams = 0
        cache.sink = self._take

    # --- changes ----------------------------------------------------------------------------------------------------

    def _take(self, change: Change) -> None:
        if not self._groups:
            return
        for group in self._candidates(change):
            try:
                event = group.event_of(change)
            except Exception:
                # Raised from here, it would end the store, and with it all others.
                group.end(unshown(change.key))
                continue
            if event is not None:
                if not group.pending:
                    self._groups_due.append(group)
                group.pending.append(event)
        if not self._due:
            asyncio.get_running_loop().call_soon(self._flush)
        self._due.append(change)

    def _candidates(self, change: Change) -> list[Group]:
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

    def _flush(self) -> None:
        for change in self._due:
            change.encoded = _SENT
            if change.previous is not None:
                change.previous.forget()
        self._due = []
        due, self._groups_due = self._groups_due, []
        for group in due:
            group.flush()

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
            shelf = self._shelf(selection)
            if shelf is None:
                self._anywhere[found] = None
            else:
                shelf[0].setdefault(shelf[1], {})[found] = None
        return found

    def join(self, group: Group) -> Stream:
        """A stream that gets every event of the group after this moment."""
        group.flush()

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
        for group in list(self._groups.values()):
            if group.bookmarks and revision > group.after:
                group.flush()
                batch = Batch([group.encoder.bookmark(revision)])
                for stream in list(group.streams):
                    stream.push(batch)

    def finish_all(self) -> None:
        for group in list(self._groups.values()):
            group.flush()
            for stream in list(group.streams):
                stream.finish()

    def replay(self, group: Group, revision: int) -> list[WatchEvent]:
        """What the group would have seen after `revision`. Raises: StatusError 410 where history begins later."""
        if revision < self.cache.history_from:
            raise expired(f"too old resource version: {revision} ({self.cache.history_from})")
        events: list[WatchEvent] = []
        for change in self.cache.since(revision):
            change.encoded = {}
            event = group.event_of(change)
            change.encoded = _SENT
            if event is not None:
                events.append(event)
        return events


def single_event_stream(limits: Limits, encoder: Encoder, event: WatchEvent) -> Stream:
    """A stream that says one thing and ends."""
    stream = Stream(limits, encoder, left, WatchBudget(limits))
    stream.push(Batch([event]))
    stream.finish()
    return stream

