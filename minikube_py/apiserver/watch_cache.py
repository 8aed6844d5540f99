"""The watch cache: one watch on the store feeds a cache per resource, which serves lists and watches.

A cache holds the store's bytes in key order, and recent changes for resuming watches. Labels and fields are decoded
lazily, once per object state, and shared.

Source: apiserver `pkg/storage/cacher` (semantics of resourceVersion, history and bookmarks).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from sortedcontainers import SortedDict

from minikube_py.api.errors import path_not_found
from minikube_py.api.kind import Kind
from minikube_py.api.selectors import field_attributes
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.reading import WRONG, Reading
from minikube_py.client.sharing import shared_labels
from minikube_py.fields.evaluate import row_of
from minikube_py.fields.spec import FieldSet
from minikube_py.mvcc.types import Event, KeyValue, prefix_end

if TYPE_CHECKING:
    from minikube_py.apiserver.conversions import Conversions
    from minikube_py.apiserver.projections import Projection

log = logging.getLogger(__name__)
REGISTRY_PREFIX = b"/registry/"
EventType = Literal["ADDED", "MODIFIED", "DELETED"]
_NO_LABELS: Mapping[str, str] = {}
_NO_ROW: Mapping[str, int | str] = {}


class Entry:
    """One state of one object. `value` is shared with the store; do not modify decoded copies."""

    __slots__ = ("_declared", "_fields", "_row", "key", "known_labels", "resource", "revision", "value")

    def __init__(self, resource: Kind, kv: KeyValue) -> None:
        self.resource = resource
        self.key = kv.key
        self.value = kv.value
        self.revision = kv.mod_revision
        self.known_labels: Mapping[str, str] | None = None
        """None: not decoded yet."""
        self._fields: Mapping[str, str] = _NO_LABELS
        self._row: Mapping[str, int | str] = _NO_ROW
        self._declared: FieldSet | None = None

    def forget(self) -> None:
        """Drops decoded data: history needs bytes, rarely fields."""
        self.known_labels = None
        self._fields = _NO_LABELS
        self._row = _NO_ROW
        self._declared = None

    def decode(self) -> Any:
        """The object; its labels and selectable fields are kept."""
        obj = orjson.loads(self.value)
        self.known_labels = shared_labels(obj["metadata"].get("labels"))
        self._fields = field_attributes(self.resource, obj)
        return obj

    @property
    def labels(self) -> Mapping[str, str]:
        if self.known_labels is None:
            self.decode()
        return self.known_labels or _NO_LABELS

    @property
    def fields(self) -> Mapping[str, str]:
        """The selectable fields as text; empty ones are absent."""
        if self.known_labels is None:
            self.decode()
        return self._fields

    def has_row(self, declared: FieldSet | None) -> bool:
        """Whether `row_by` is cached."""
        return self._declared is declared

    def row_by(self, declared: FieldSet | None) -> Mapping[str, int | str]:
        """The fields of `declared` that depend on the object alone. The last result is cached."""
        if self._declared is not declared:
            self._row = row_of(declared, self.decode()) if declared is not None else _NO_ROW
            self._declared = declared
        return self._row

    @property
    def row(self) -> Mapping[str, int | str]:
        """The built-in fields that depend on the object alone."""
        return self.row_by(self.resource.field_set)


WHOLE_BYTES_MAX: Final = 1 << 20
DECODED_BYTES_MAX: Final = 128 << 10
DECODED_PER_SLICE: Final = 5
"""The extra cost of decoding for output."""
_VALUE: Final = attrgetter("value")


def slices(entries: Sequence[Entry], count_max: int, decoded: bool) -> Iterator[Sequence[Entry]]:
    """The entries in slices bounded by count and bytes, at least one each, for yielding to the event loop. `decoded`:
    output needs decoding. Entries are measured as they are used: what a look brings into the caches is still there."""
    bytes_max = DECODED_BYTES_MAX if decoded else WHOLE_BYTES_MAX
    count_max = max(count_max // DECODED_PER_SLICE, 1) if decoded else count_max
    for start in range(0, len(entries), count_max):
        part = entries[start : start + count_max]
        ends = list(accumulate(map(len, map(_VALUE, part))))
        first = sent = 0
        while first < len(ends):
            last = max(bisect_right(ends, sent + bytes_max, first), first + 1)
            yield part[first:last] if last - first < len(part) else part
            first, sent = last, ends[last - 1]


def as_read(resource: Kind, value: bytes) -> bytes:
    """Stored values as served; other values are unchanged."""
    if resource.read is None:
        return value
    try:
        return resource.read(value)
    except (ValueError, TypeError, AttributeError, LookupError):
        return value


def kv_as_read(resource: Kind, kv: KeyValue) -> KeyValue:
    return kv if resource.read is None else kv._replace(value=as_read(resource, kv.value))


class ShownEntry(Entry):
    """An object in a version other than the stored one, converted lazily."""

    __slots__ = ("_stored",)

    def __init__(self, resource: Kind, stored: Entry) -> None:
        self.resource = resource
        self.key = stored.key
        self.revision = stored.revision
        self._stored = stored
        self.forget()

    def __getattr__(self, name: str) -> bytes:
        if name != "value":
            raise AttributeError(name)
        self.value = as_read(self.resource, self._stored.value)
        return self.value


class Change:
    """One event of one resource. `entry` is None for a deletion, `previous` for a creation.

    `encoded` keeps the bytes of each form while the change is being sent: all watchers of one form share them."""

    __slots__ = ("encoded", "entry", "key", "previous", "revision", "size_bytes")

    def __init__(
        self, key: bytes, revision: int, entry: Entry | None, previous: Entry | None, size_bytes: int = 0
    ) -> None:
        self.key = key
        self.revision = revision
        self.entry = entry
        self.previous = previous
        self.size_bytes = size_bytes or (len(previous.value) if previous is not None else 100)
        self.encoded: dict[Any, bytes] = {}


ChangeSink = Callable[[Change], None]


class ResourceCache:
    """The objects of one resource at `owner.revision`, and their last changes.

    `history_from` is the first revision with complete `history`. A cache that `lags` may be behind its owner until
    `ready`.
    """

    lags = False

    def __init__(self, owner: WatchCache, resource: Kind, limits: Limits) -> None:
        self.owner = owner
        self.resource = resource
        self.entries: SortedDict = SortedDict()
        self.history: deque[Change] = deque()
        self.history_from = 0
        self.last_change = 0
        self.sink: ChangeSink | None = None
        self.ended: Callable[[], None] | None = None
        """Ends all watches."""
        self.projection: Projection | None = None
        self.faces: list[Face] = []
        """The faces in use."""
        self._history_bytes = 0
        self._limits = limits
        self._by_node: dict[str, dict[bytes, Entry]] | None = None

    @property
    def revision(self) -> int:
        """The revision up to which it is complete."""
        return self.owner.revision

    async def ready(self) -> None:
        """Raises: StatusError where it cannot be."""

    def count(self) -> int:
        return len(self.entries)

    def take(self, event: Event) -> None:
        """A change event of the store."""
        self.apply(event if event.type != "PUT" else event._replace(kv=kv_as_read(self.resource, event.kv)))

    def sleep(self) -> None:
        """Drops it: unused, or its source changed."""

    def load(self, kvs: Iterable[KeyValue], revision: int) -> None:
        """Reloads with these objects; `kvs` in key order, all readable."""
        resource = self.resource
        self.entries = SortedDict((kv.key, Entry(resource, kv)) for kv in kvs)
        self.history.clear()
        self._history_bytes = 0
        self.history_from = revision
        self.last_change = revision
        self._by_node = None
        if self.projection is not None:
            self.projection.load(self.entries.values())
        for face in self.faces:
            face.begin()

    def apply(self, event: Event) -> None:
        kv = event.kv
        key = kv.key
        entries = self.entries
        previous = entries.get(key)
        entry = self.owner.entry_of(self.resource, kv, event.type != "PUT")
        if entry is not None:
            entries[key] = entry
        elif previous is not None:
            del entries[key]
        else:
            return
        if self.projection is not None:
            self.projection.put(key, entry)
        change = Change(key, kv.mod_revision, entry, previous)
        self.last_change = kv.mod_revision
        self._remember(change)
        if self._by_node is not None:
            self._index(self._by_node, previous, entry)
        if self.sink is not None:
            self.sink(change)
        for face in self.faces:
            face.follow(change)

    def _remember(self, change: Change) -> None:
        history = self.history
        history.append(change)
        self._history_bytes += change.size_bytes
        limits = self._limits
        while len(history) > limits.history_events_max or self._history_bytes > limits.history_bytes_max:
            dropped = history.popleft()
            self._history_bytes -= dropped.size_bytes
            self.history_from = dropped.revision

    def since(self, revision: int) -> list[Change]:
        """The changes after `revision`, which must not be below `history_from`."""
        found: list[Change] = []
        for change in reversed(self.history):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    # --- reading ----------------------------------------------------------------------------------------------------

    def select(self, prefix: bytes, after: bytes | None = None) -> list[Entry]:
        """The entries under `prefix`, in key order, from `after` (inclusive)."""
        entries = self.entries
        if prefix == self.resource.prefix and not after:
            return list(map(entries.__getitem__, entries))
        low = after if after and after > prefix else prefix
        return list(map(entries.__getitem__, entries.irange(low, prefix_end(prefix), (True, False))))

    def page(self, prefix: bytes, after: bytes | None, limit: int) -> tuple[list[Entry], int]:
        """Up to `limit` entries from `after` on, and how many more there are."""
        entries = self.entries
        low = after if after and after > prefix else prefix
        first, end = entries.bisect_left(low), entries.bisect_left(prefix_end(prefix))
        stop = min(end, first + limit)
        return list(map(entries.__getitem__, entries.islice(first, stop))), max(end - stop, 0)

    def iterate(self, prefix: bytes, after: bytes | None) -> Iterator[Entry]:
        """As `select`, lazily; consume it before the next change."""
        entries = self.entries
        low = after if after and after > prefix else prefix
        return map(entries.__getitem__, entries.irange(low, prefix_end(prefix), (True, False)))

    def on_node(self, node: str) -> list[Entry]:
        """The pods bound to `node`, in key order, by an index built on first use."""
        if self._by_node is None:
            self._by_node = {}
            for entry in self.entries.values():
                self._index(self._by_node, None, entry)
        found = self._by_node.get(node)
        return [found[key] for key in sorted(found)] if found else []

    @staticmethod
    def _index(by_node: dict[str, dict[bytes, Entry]], previous: Entry | None, entry: Entry | None) -> None:
        if previous is not None and (node := previous.fields.get("spec.nodeName")):
            pods = by_node[node]
            pods.pop(previous.key, None)
            if not pods:
                del by_node[node]
        if entry is not None and (node := entry.fields.get("spec.nodeName")):
            by_node.setdefault(node, {})[entry.key] = entry


class Face(ResourceCache):
    """A resource stored as another one: that one's cache in this version. It costs nothing until used; then only
    entries read are converted."""

    def __init__(self, standing: ResourceCache, resource: Kind, limits: Limits) -> None:
        super().__init__(standing.owner, resource, limits)
        self._standing = standing

    def wake(self) -> None:
        if self not in self._standing.faces:
            self._standing.faces.append(self)
            self.begin()

    def begin(self) -> None:
        """Reloads from the other cache and its history."""
        standing = self._standing
        self.entries = SortedDict((key, ShownEntry(self.resource, entry)) for key, entry in standing.entries.items())
        self.history = deque(map(self._shown, standing.history))
        self._history_bytes = sum(change.size_bytes for change in self.history)
        self.history_from, self.last_change = standing.history_from, standing.last_change

    def _shown(self, change: Change) -> Change:
        entry, previous = (each and ShownEntry(self.resource, each) for each in (change.entry, change.previous))
        return Change(change.key, change.revision, entry, previous, change.size_bytes)

    def follow(self, stored: Change) -> None:
        change = self._shown(stored)
        if change.entry is not None:
            self.entries[change.key] = change.entry
        else:
            del self.entries[change.key]
        self.last_change = change.revision
        self._remember(change)
        if self.sink is not None:
            self.sink(change)


class SharedKeys:
    """The stored objects under a prefix, and their caches: one per served version, perhaps none. They change at run
    time."""

    def __init__(self) -> None:
        self._kvs: dict[bytes, KeyValue] = {}
        self.caches: tuple[ResourceCache, ...] = ()

    def load(self, kvs: Iterable[KeyValue], revision: int) -> None:
        self._kvs = {kv.key: kv for kv in kvs}
        self.show(self.caches, revision)

    def all(self) -> list[KeyValue]:
        return [kv for _, kv in sorted(self._kvs.items())]

    def count(self) -> int:
        return len(self._kvs)

    def show(self, caches: tuple[ResourceCache, ...], revision: int) -> None:
        """Switches to these caches, which start empty."""
        self.caches = caches
        for cache in caches:
            if cache.lags:
                cache.sleep()
                continue
            kvs = (kv_as_read(cache.resource, kv) for kv in self.all())
            read = (cache.owner.reading.take(cache.resource, kv) for kv in kvs)
            cache.load((kv for kv in read if kv is not None), revision)

    def apply(self, event: Event) -> None:
        kv = event.kv
        if event.type == "PUT":
            self._kvs[kv.key] = kv
        else:
            self._kvs.pop(kv.key, None)
        for cache in self.caches:
            cache.take(event)


def nobody_converts(kind: Kind) -> Conversions | None:
    """Placeholder; a server sets its conversions before serving kinds with a conversion webhook."""
    assert kind.conversion_webhook is None, f"no conversions for {kind.plural}"
    return None


class WatchCache:
    """All resource caches, fed by one watch over `/registry/`, so they share one revision.

    `revision` is that of the last batch. `on_batch_end` runs after each batch, when all changes have been sunk. Keys of
    named groups without a registered resource are kept for resources defined later.
    """

    def __init__(self, resources: Iterable[Kind], limits: Limits) -> None:
        self.revision = 0
        self.lost_revision = 0
        """The newest one before the store went back, as after a restore: later ones than `revision` up to this mean
        nothing now."""
        stored = [resource for resource in resources if resource.stored]
        self.reading = Reading(self._standing)
        self.caches: dict[Kind, ResourceCache] = {
            resource: ResourceCache(self, resource, limits) for resource in stored if resource.converts is None
        }
        self._limits = limits
        by_prefix = {resource.prefix: cache for resource, cache in self.caches.items()}
        self._by_segment: dict[bytes, ResourceCache | dict[bytes, ResourceCache | SharedKeys]] = {}
        for resource, cache in self.caches.items():
            parts = resource.prefix.split(b"/")[2:-1]
            if len(parts) == 1:
                self._by_segment[parts[0]] = cache
            else:
                group = self._by_segment.setdefault(parts[0], {})
                assert isinstance(group, dict), "a group is no core resource's plural"
                group[parts[1]] = cache
        for resource in stored:
            if resource.converts is not None:
                self.caches[resource] = Face(by_prefix[resource.prefix], resource, limits)
        self._waiting: dict[asyncio.Future[None], int] = {}
        self.conversions_of: Callable[[Kind], Conversions | None] = nobody_converts

    def of(self, resource: Kind) -> ResourceCache:
        """Raises: StatusError 404 if the resource is no longer served."""
        found = self.caches.get(resource)
        if found is None:
            raise path_not_found()
        if isinstance(found, Face):
            found.wake()
        return found

    def serve(self, kinds: Sequence[Kind]) -> None:
        """Serves exactly `kinds` beside the initial ones. Kinds served before keep their cache."""
        before = {kind: cache for kind, cache in self.caches.items() if kind.definition}
        wanted: dict[SharedKeys, list[ResourceCache]] = {}
        for kind in kinds:
            shared = self._shared(kind.prefix)
            wanted.setdefault(shared, []).append(before.get(kind) or self.cache_of(kind, shared))
        kept = set(kinds)
        for kind, cache in before.items():
            if kind not in kept:
                cache.sleep()
            del self.caches[kind]
            wanted.setdefault(self._shared(kind.prefix), [])
        for shared, caches in wanted.items():
            if tuple(caches) != shared.caches:
                shared.show(tuple(caches), self.revision)
            self.caches |= {cache.resource: cache for cache in caches}

    def cache_of(self, kind: Kind, shared: SharedKeys) -> ResourceCache:
        converting = self.conversions_of(kind)
        if converting is None:
            return ResourceCache(self, kind, self._limits)
        # Loaded with the first conversion webhook.
        from minikube_py.apiserver.converted_cache import ConvertedCache

        return ConvertedCache(self, kind, self._limits, shared, converting)

    def _shared(self, key: bytes) -> SharedKeys:
        """The holder of keys with this prefix: `/registry/GROUP/PLURAL/`."""
        group, plural = key.split(b"/", 4)[2:4]
        segment = self._by_segment.setdefault(group, {})
        assert isinstance(segment, dict), "a group is no core resource's plural"
        found = segment.setdefault(plural, SharedKeys())
        assert isinstance(found, SharedKeys), "no definition takes the place of a kind that is built in"
        return found

    def find(self, key: bytes) -> ResourceCache | SharedKeys | None:
        """The cache that a store key belongs to, or None for keys of no resource."""
        end = key.find(b"/", 10)
        group = key[10:end]
        found: Any = self._by_segment.get(group)
        if isinstance(found, dict):
            found = found.get(key[end + 1 : key.find(b"/", end + 1)])
        if found is None and b"." in group and key.count(b"/") > 3:
            return self._shared(key)
        return found if not isinstance(found, dict) else None

    def readable(self, kvs: Iterable[KeyValue]) -> Iterator[KeyValue]:
        """The holders of registered resources."""
        for kv in kvs:
            cache = self.find(kv.key)
            if isinstance(cache, SharedKeys):
                yield kv
            elif cache is not None and (read := self.reading.take(cache.resource, kv)) is not None:
                yield read

    def entry_of(self, resource: Kind, kv: KeyValue, gone: bool = False) -> Entry | None:
        """The object in `kv`; None if `gone` or unreadable."""
        if not gone and self.reading.is_own(kv):
            return Entry(resource, kv)
        read = self.reading.take(resource, kv, gone)
        if read is None:
            return None
        entry = Entry(resource, read)
        try:
            entry.decode()
        except WRONG as error:
            self.reading.leave_out(kv.key, error)
            return None
        return entry

    def _standing(self, key: bytes) -> tuple[Kind | None, KeyValue | None]:
        cache = self.find(key)
        if isinstance(cache, SharedKeys) or cache is None:
            return None, None
        entry: Entry | None = cache.entries.get(key)
        if entry is None:
            return cache.resource, None
        return cache.resource, KeyValue(key, entry.value, 0, entry.revision, 0, 0)

    def load(self, kvs: Iterable[KeyValue], revision: int) -> None:
        """Reloads all registered objects at `revision`, as given by `readable`."""
        sorted_out: dict[ResourceCache | SharedKeys, list[KeyValue]] = {}
        for found in self._by_segment.values():
            sorted_out |= {each: [] for each in (found.values() if isinstance(found, dict) else (found,))}
        for kv in kvs:
            cache = self.find(kv.key)
            if cache is not None:
                sorted_out.setdefault(cache, []).append(kv)
        for cache, kept in sorted_out.items():
            cache.load(kept, revision)
        if revision < self.revision:
            self.lost_revision = max(self.lost_revision, self.revision)
        self.revision = 0
        self.advance(revision)

    def apply(self, events: Iterable[Event], revision: int) -> None:
        find = self.find
        for event in events:
            cache = find(event.kv.key)
            if cache is not None:
                cache.apply(event)
        self.advance(revision)

    def advance(self, revision: int) -> None:
        if revision <= self.revision:
            return
        self.revision = revision
        for future, wanted in self._waiting.items():
            if wanted <= revision and not future.done():
                future.set_result(None)

    async def wait_until(self, revision: int, timeout_s: float) -> bool:
        """Returns when `revision` is reached; False if that takes longer than `timeout_s`."""
        if revision <= self.revision:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = revision
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return self.revision >= revision
        finally:
            del self._waiting[future]
        return True
