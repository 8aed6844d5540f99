"""GET of one object and of collections: consistency by resourceVersion, pages, forms.

Lists of the newest or "any" state come from the watch cache; of an older revision from the store; with a selector that
only the store can answer, or that an index covers, from a store index.

Source: KEP-2340, apiserver `pkg/storage/continue.go`, `pkg/storage/cacher`.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

import orjson

from minikube_py.api import go_json, json_text
from minikube_py.api.errors import (
    Json,
    StatusError,
    bad_request,
    not_found,
    too_large_resource_version,
)
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import NODES, PODS
from minikube_py.api.selectors import parse_field_selector, parse_label_selector
from minikube_py.api.tables import TablePrinter, table_head
from minikube_py.api.values import json_type
from minikube_py.apiserver.declared import Declarations
from minikube_py.apiserver.forms import (
    FieldValues,
    Form,
    check_list,
    check_options,
    items_bytes,
    object_bytes,
    partial_bytes,
    single_bytes,
    with_meta_version,
)
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import Response
from minikube_py.apiserver.object_store import TOO_OLD, ObjectStore
from minikube_py.apiserver.options import EXACT, ListOptions
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.selection import STEPS_OF_OBJECT, Selection, pick, pick_all
from minikube_py.apiserver.watch_cache import Entry, ResourceCache, WatchCache, kv_as_read, slices
from minikube_py.apiserver.work import Work, WorkHere, in_form
from minikube_py.client.transport import JSON
from minikube_py.env import Clock
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.text import value_text
from minikube_py.mvcc.types import KeyValue, RangeRequest, prefix_end

_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9_\r\n-]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WHOLE: Final = re.compile("-?(?:0|[1-9][0-9]{0,18})")
_TOKEN_VERSION: Final = "meta.k8s.io/v1"
_INCONSISTENT_CONTINUE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
SHOWN_FIELDS: Final = ("free.cpu", "free.memory")
FIELD_COLUMNS_MAX: Final = 8
_SAMPLED_NODES: Final = 64
_TEXTS_KEPT_MAX: Final = 4096
SPARSE_SHARE: Final = 16
"""Below this fraction (one in N) of wanted keys in a range, keys are read one by one."""


def encode_continue(revision: int, after: bytes, prefix: bytes) -> str:
    """A token that continues after the key `after`. Revision -1: the newest at that time."""
    start = "/" + after[len(prefix) :].decode() + "\0"
    text = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _continue_expired(low: bytes, prefix: bytes) -> StatusError:
    return ContinueExpired(_INCONSISTENT_CONTINUE, encode_continue(-1, low.removesuffix(b"\0"), prefix))


def _is_int64(number: str) -> bool:
    return _WHOLE.fullmatch(number) is not None and -(1 << 63) <= int(number) < 1 << 63


def decode_continue(token: str, prefix: bytes) -> tuple[int, bytes]:
    """(revision, first key). Raises: StatusError 400."""
    what = "invalid continue token: continue key is not valid"
    wrong = _NOT_BASE64.search(token)
    # Go skips line breaks, and reports the start of the incomplete group.
    packed = token.replace("\r", "").replace("\n", "")
    if wrong is not None or len(packed) % 4 == 1:
        position = wrong.start() if wrong is not None else len(token) - 1
        raise bad_request(f"{what}: illegal base64 data at input byte {position}")
    text = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    try:
        value = json_text.read(text)
    except json_text.Syntax as error:
        raise bad_request(f"{what}: {error}") from None
    into = f"{what}: json: cannot unmarshal {{}} into Go "
    if not isinstance(value, json_text.Members | None):
        raise bad_request(into.format(json_type(value)) + "value of type storage.continueToken")
    fields: Json = {"v": "", "rv": 0, "start": ""}
    for name, item in value or ():
        known = fields.get(name.lower())
        if known is None or item is None:
            continue
        number, whole, told = isinstance(item, json_text.Number), known.__class__ is int, json_type(item)
        if number and whole:
            told = f"number {item}"
        if number != whole or not isinstance(item, str) or (number and not _is_int64(item)):
            wanted = "int64" if whole else "string"
            raise bad_request(into.format(told) + f"struct field continueToken.{name.lower()} of type {wanted}")
        # As Go reads what is no text.
        fields[name.lower()] = int(item) if number else _SURROGATE.sub("\ufffd", item)
    if fields["v"] != _TOKEN_VERSION:
        raise bad_request(f"{what}: server does not recognize this encoded version {fields['v']}")
    revision, start = fields["rv"], fields["start"]
    if not start:
        raise bad_request(f"{what}: encoded start key empty (version {_TOKEN_VERSION})")
    if revision == 0 or not -1 <= revision < 1 << 63:
        raise bad_request(f"{what}: incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    relative = start.lstrip("/")
    if any(part == ".." for part in relative.split("/")):
        raise bad_request(f"{what}: {start}")
    return revision, prefix + relative.encode()


FieldRow = tuple[int | str | None, ...]
MakeRows = Callable[[Sequence[Entry]], list[bytes]]
"""The bytes of some of a list's items, in turn."""


class Shown(NamedTuple):
    """Additional table columns: the values of the fields `names` by key."""

    names: tuple[str, ...]
    rows: dict[bytes, FieldRow]


class Page(NamedTuple):
    """`remaining` is None if not reported (selectors); `after` is the key to continue after, None at the end. `shown`
    is set if the store returned it with the objects."""

    items: list[Entry]
    revision: int
    after: bytes | None = None
    remaining: int | None = None
    shown: Shown | None = None


class Lister:
    def __init__(
        self, store: ObjectStore, cache: WatchCache, declared: Declarations, limits: Limits, clock: Clock
    ) -> None:
        self._store = store
        self._cache = cache
        self._declared = declared
        self._limits = limits
        self._clock = clock
        self.work: Work = WorkHere()
        self._steps = limits.list_slice * STEPS_OF_OBJECT

    # --- one object -------------------------------------------------------------------------------------------------

    async def get(self, route: Route, options: ListOptions, form: Form) -> Response:
        """Raises: StatusError 404, 504, 406."""
        kv = await self.find(route, options)
        fields = await self._node_fields(route.resource, [kv], 0) if form.kind == "table" else None
        body = single_bytes(route.resource, kv.value, kv.mod_revision, form, self._clock.wall_s(), fields)
        return Response(200, await in_form(body, form, self.work), form.media_type)

    async def find(self, route: Route, options: ListOptions) -> KeyValue:
        resource = route.resource
        key = resource.key(route.namespace, route.name)
        if options.revision_text:
            await self.wait_for(options.revision)
            if (cache := self._cache.of(resource)).lags:
                await cache.ready()
            entry = cache.entries.get(key)
            if entry is not None:
                return KeyValue(key, entry.value, 0, entry.revision, 0, 0)
            self._store.reading.check(key)
            raise not_found(resource, route.name)
        kv = await self._store.get(key)
        if kv is None:
            raise not_found(resource, route.name)
        return (await self._as_read(resource, [kv]))[0]

    async def _as_read(self, resource: Kind, kvs: Sequence[KeyValue]) -> Sequence[KeyValue]:
        """Raises: StatusError 500 if a webhook cannot convert them."""
        if (converting := self._cache.conversions_of(resource)) is not None:
            return await converting.all_shown(resource, kvs)
        return kvs if resource.read is None else [kv_as_read(resource, kv) for kv in kvs]

    async def wait_for(self, revision: int) -> None:
        """Raises: StatusError 504 if the cache does not catch up in time."""
        if not await self._cache.wait_until(revision, self._limits.fresh_timeout_s):
            raise too_large_resource_version(revision, self._cache.revision)

    async def wait_fresh(self) -> None:
        """Waits until the cache holds everything acknowledged before this call."""
        await self.wait_for(await self._store.current_revision())

    # --- collections ------------------------------------------------------------------------------------------------

    async def selection(self, route: Route, options: ListOptions) -> Selection:
        """Raises: StatusError 400 on selectors that cannot be read."""
        version = self._declared.version
        try:
            return self._select(route, options)
        except StatusError:
            if not options.field_selector:
                raise
            # Another API server may have just declared the field, and this client has seen it.
            await self.wait_fresh()
            if self._declared.version == version:
                raise
        return self._select(route, options)

    def _select(self, route: Route, options: ListOptions) -> Selection:
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(route.resource, options.field_selector, self._declared.of(route.resource))
        since = self._declared.since(route.resource, fields)
        return Selection(route.resource, route.namespace, labels, fields, since)

    async def answer(self, route: Route, options: ListOptions, form: Form) -> Response:
        """Raises: StatusError 400, 410, 504."""
        page, selection = await self.page(route, options, form.kind == "table")
        response = await self.render(route.resource, page, form, selection)
        left_out = self._store.reading.why and self._store.reading.warning(selection.prefix)
        return response.warning(left_out) if left_out else response

    async def page(self, route: Route, options: ListOptions, table: bool = False) -> tuple[Page, Selection]:
        selection = await self.selection(route, options)
        limit = options.limit
        if self._limits.list_page_max:
            limit = min(limit or self._limits.list_page_max, self._limits.list_page_max)
        cache = self._cache.of(route.resource)
        start: bytes | None = None
        revision = 0
        if options.continue_token:
            revision, start = decode_continue(options.continue_token, selection.prefix)
            if options.revision:
                raise bad_request("specifying resource version is not allowed when using continue")
            revision = max(revision, 0)
            if 0 < revision < selection.declared_since:
                # Earlier pages used other fields of the same names.
                raise _continue_expired(start, selection.prefix)
        elif options.revision and (options.match == EXACT or (limit and not options.match)):
            revision = options.revision
        if selection.needs_store() or selection.has_index():
            await self._await_asked(options, revision)
            names = self.shown_fields(selection) if table and route.resource is NODES else ()
            going_on = bool(options.continue_token)
            return await self._from_index(selection, start, limit, revision, going_on, names), selection
        if not revision:
            if not options.revision_text:
                await self.wait_fresh()
            else:
                await self.wait_for(options.revision)
                limit = 0 if options.revision_text == "0" else limit
            if cache.lags:
                await cache.ready()
            return await self._current(cache, selection, start, limit), selection
        await self.wait_for(revision)
        if cache.lags:
            await cache.ready()
        if revision >= cache.last_change:
            page = await self._current(cache, selection, start, limit)
            return page._replace(revision=revision), selection
        page = await self._from_store(cache, selection, start, limit, revision, bool(options.continue_token))
        return page, selection

    async def _await_asked(self, options: ListOptions, revision: int) -> None:
        if revision or options.revision:
            await self.wait_for(revision or options.revision)

    async def _current(self, cache: ResourceCache, selection: Selection, start: bytes | None, limit: int) -> Page:
        revision = cache.revision
        if not selection.selective:
            if not limit:
                return Page(cache.select(selection.prefix, start), revision)
            items, remaining = cache.page(selection.prefix, start, limit)
            return Page(items, revision, items[-1].key if remaining else None, remaining)
        found: list[Entry] = []
        candidates, wanted = iter(self.candidates(cache, selection, start)), limit + 1 if limit else 0
        if not pick(found, candidates, selection, wanted, self._steps):
            # Take a copy: the rest may change between slices.
            rest = list(candidates)
            await asyncio.sleep(0)
            await pick_all(found, iter(rest), selection, wanted, self._steps)
        if limit and len(found) > limit:
            return Page(found[:limit], revision, found[limit - 1].key)
        return Page(found, revision)

    @staticmethod
    def candidates(cache: ResourceCache, selection: Selection, start: bytes | None) -> Iterable[Entry]:
        """Candidates in key order, by an index if the selector allows it."""
        resource = selection.resource
        name = selection.name
        if name and (selection.namespace or not resource.namespaced):
            entry = cache.entries.get(resource.key(selection.namespace, name))
            return [entry] if entry is not None and (start is None or entry.key >= start) else []
        if selection.node and resource is PODS:
            prefix = selection.prefix
            on_node = cache.on_node(selection.node)
            return [e for e in on_node if e.key.startswith(prefix) and (start is None or e.key >= start)]
        return cache.iterate(selection.prefix, start)

    async def _from_store(
        self, cache: ResourceCache, selection: Selection, start: bytes | None, limit: int, revision: int, going_on: bool
    ) -> Page:
        """The state at an older revision."""
        prefix, selective = selection.prefix, selection.selective
        low, found = start or prefix, list[Entry]()
        size = max(limit, self._limits.list_slice) if limit and selective else limit
        while True:
            request = RangeRequest(low, prefix_end(prefix), limit=size, revision=revision)
            try:
                result = await self._store.range(request)
            except StatusError as error:
                raise self._expired(error, low, prefix, going_on) from None
            entries = [Entry(cache.resource, kv) for kv in await self._as_read(cache.resource, result.kvs)]
            if not selective:
                remaining = result.count - len(entries) if limit and result.more else None
                return Page(entries, revision, entries[-1].key if result.more else None, remaining)
            after = await self._take(found, entries, selection, limit, result.more)
            if after is not None or not result.more:
                return Page(found, revision, after)
            low = entries[-1].key + b"\0"
            # The rarer the matches, the larger the next query.
            size *= 2

    async def _take(
        self, found: list[Entry], entries: list[Entry], selection: Selection, limit: int, more: bool
    ) -> bytes | None:
        """Adds matches to `found`, up to `limit`, yielding to the event loop between slices. `more`: more entries
        follow. Returns the key to continue after, None if all were examined."""
        walk = iter(entries)
        await pick_all(found, walk, selection, limit, self._steps)
        if limit and len(found) >= limit and (next(walk, None) is not None or more):
            return found[-1].key
        return None

    @staticmethod
    def _expired(error: StatusError, low: bytes, prefix: bytes, going_on: bool) -> StatusError:
        """The token in the response continues the list at the newest state."""
        if error.message != TOO_OLD or not going_on:
            return error
        return _continue_expired(low, prefix)

    async def _from_index(
        self,
        selection: Selection,
        start: bytes | None,
        limit: int,
        revision: int,
        going_on: bool,
        fields: tuple[str, ...] = (),
    ) -> Page:
        """Results of the store's index; the other selectors are checked here."""
        resource, prefix = selection.resource, selection.prefix
        low, found = start or prefix, list[Entry]()
        shown = Shown(fields, {}) if fields else None
        size = max(limit, self._limits.list_slice) if limit and selection.selective else limit
        while True:
            indexed = selection.fields.indexed
            request = RangeRequest(low, prefix_end(prefix), size, revision, where=indexed, fields=fields)
            try:
                result = await self._store.range(request)
            except StatusError as error:
                raise self._expired(error, low, prefix, going_on) from None
            revision = revision or result.revision
            entries = [Entry(resource, kv) for kv in await self._as_read(resource, result.kvs)]
            if shown is not None:
                shown.rows.update((kv.key, row) for kv, row in zip(result.kvs, result.fields or ()))
            after = await self._take(found, entries, selection, limit, result.more)
            if after is not None or not result.more or not entries:
                return Page(found, revision, after, shown=shown)
            low = entries[-1].key + b"\0"
            # The rarer the matches, the larger the next query.
            size *= 2

    # --- rendering --------------------------------------------------------------------------------------------------

    async def render(self, resource: Kind, page: Page, form: Form, selection: Selection) -> Response:
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.after is not None:
            metadata["continue"] = encode_continue(page.revision, page.after, selection.prefix)
            if page.remaining:
                metadata["remainingItemCount"] = page.remaining
        elif resource.names_items and form.kind == "object":
            metadata["continue"] = ""
        check_options(form)
        if form.kind == "table":
            if (order := resource.printer.order) is not None:
                page = page._replace(items=sorted(page.items, key=lambda entry: order(entry.decode())))
            fields = await self._table_fields(resource, page, selection)
            head = with_meta_version(table_head(resource, metadata, fields.names if fields else ()), form)
            rows = self._rows(resource, form, fields)
        else:
            head = _list_head(resource, metadata, form)
            rows = _items(resource, form)
        at_once = resource.printer.at_once(self._limits.list_slice) if form.kind == "table" else self._limits.list_slice
        parts = slices(page.items, at_once, form.kind != "object")
        first = next(parts, ())
        if len(first) == len(page.items):
            return Response(200, await in_form(_joined(rows(first), head, b"]}"), form, self.work), form.media_type)
        pieces = _pieces(head, map(rows, chain((first,), parts)))
        if form.media_type == JSON:
            return Response(200, b"", form.media_type, pieces=pieces)
        made: list[bytes] = []
        for piece in pieces:
            made.append(piece)
            await asyncio.sleep(0)
        return Response(200, await in_form(b"".join(made), form, self.work), form.media_type)

    def _rows(self, resource: Kind, form: Form, fields: FieldValues | None) -> MakeRows:
        printer = TablePrinter(resource, self._clock.wall_s(), form.include_object, fields.names if fields else ())
        values: Iterator[dict[str, str] | None] = iter(fields.values) if fields is not None else repeat(None)

        def made(items: Sequence[Entry]) -> list[bytes]:
            rows = [printer.row_bytes(entry.value, str(entry.revision), own) for entry, own in zip(items, values)]
            rows = rows if form.version == "v1" else [with_meta_version(row, form) for row in rows]
            return [go_json.escaped(b",".join(rows))] if rows else rows

        return made

    async def _node_fields(
        self, resource: Kind, kvs: list[KeyValue], revision: int, selection: Selection | None = None
    ) -> FieldValues | None:
        """The free resources of nodes, for the further columns of their table."""
        if resource is not NODES or not kvs:
            return None
        names = self.shown_fields(selection)
        first, last = kvs[0].key, kvs[-1].key
        entries = self._cache.of(resource).entries
        between = entries.bisect_right(last) - entries.bisect_left(first)
        one = RangeRequest(first, revision=revision, keys_only=True, fields=names)
        if between > SPARSE_SHARE * len(kvs):
            requests = [one._replace(key=kv.key) for kv in kvs]
        else:
            requests = [one._replace(range_end=last + b"\0")]
        results = await asyncio.gather(*(self._store.range(request) for request in requests))
        by_key = {kv.key: row for result in results for kv, row in zip(result.kvs, result.fields or [])}
        declared = selection.fields.declared if selection is not None else resource.field_set
        as_text = _texts_of(declared, names)
        return FieldValues(names, [as_text(by_key.get(kv.key)) for kv in kvs])

    async def _table_fields(self, resource: Kind, page: Page, selection: Selection) -> FieldValues | None:
        if resource is not NODES:
            return None
        if page.shown is None:
            kvs = [KeyValue(e.key, e.value, 0, e.revision, 0, 0) for e in page.items]
            return await self._node_fields(resource, kvs, page.revision, selection)
        names, rows = page.shown
        as_text = _texts_of(selection.fields.declared, names)
        return FieldValues(names, [as_text(rows.get(entry.key)) for entry in page.items])

    def shown_fields(self, selection: Selection | None) -> tuple[str, ...]:
        """The further columns of nodes: requested fields, cpu and memory, and other resources of the first nodes."""
        asked = [c.field for c in selection.fields.where.comparisons] if selection is not None else []
        sample = self._cache.of(NODES).entries.islice(0, _SAMPLED_NODES)
        entries = self._cache.of(NODES).entries
        declared = self._declared.of(NODES).field_set
        rows = [entries[key].row_by(declared) for key in sample]
        offered = {name for row in rows for name in row if name.startswith("allocatable.")}
        others = sorted("free." + name.removeprefix("allocatable.") for name in offered)
        wanted = dict.fromkeys((*SHOWN_FIELDS, *(f for f in asked if f not in NODES.selectable), *others))
        return tuple(wanted)[:FIELD_COLUMNS_MAX]

    async def field_texts(self, key: bytes, fields: tuple[str, ...]) -> dict[str, str]:
        """The values of one node's declared fields now; empty if it is deleted."""
        result = await self._store.range(RangeRequest(key, keys_only=True, fields=fields))
        return _texts_of(self._declared.of(NODES).field_set, fields)(result.fields[0]) if result.fields else {}


class ContinueExpired(StatusError):
    """410 with a token in the Status' metadata that continues the list."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(410, "Expired", message)
        self.token = token

    def to_status(self) -> Json:
        status = super().to_status()
        status["metadata"] = {"continue": self.token}
        return status


def _list_head(resource: Kind, metadata: Json, form: Form) -> bytes:
    if form.kind == "partial":
        check_list(resource, form)
        kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{form.version}"
    else:
        kind, version = resource.list_kind, resource.api_version
    return orjson.dumps({"kind": kind, "apiVersion": version, "metadata": metadata})[:-1] + b',"items":['


def _items(resource: Kind, form: Form) -> MakeRows:
    if form.kind == "partial":
        return lambda items: [partial_bytes(entry.value, entry.revision, form.version) for entry in items]
    if resource.names_items:
        return lambda items: [object_bytes(resource, entry.value, entry.revision) for entry in items]
    return items_bytes


def _joined(rows: list[bytes], before: bytes, after: bytes = b"") -> bytes:
    """One copy of all rows: these are most of the bytes. Consumes `rows`."""
    if not rows:
        return before + after
    rows[0] = before + rows[0]
    rows[-1] += after
    return b",".join(rows)


def _pieces(head: bytes, made: Iterable[list[bytes]]) -> Iterator[bytes]:
    """A large list in parts: the head, batches of items made as they are sent, then the end."""
    yield head
    opening = b""
    for rows in made:
        yield _joined(rows, opening)
        opening = b","
    yield b"]}\n"


class _Texts(dict[int | str, str]):
    """The values of one field as text: most objects of a table have those of others."""

    def __init__(self, spec: FieldSpec, name: str) -> None:
        self._spec = spec
        self._name = name

    def __missing__(self, value: int | str) -> str:
        if len(self) >= _TEXTS_KEPT_MAX:
            self.clear()
        found = self[value] = value_text(self._spec, self._name, value)
        return found


def _texts_of(declared: FieldSet | None, names: tuple[str, ...]) -> Callable[[FieldRow | None], dict[str, str]]:
    """Maps a row of the fields `names` to the texts of those that it has."""
    texts: list[tuple[int, str, _Texts]] = []
    for place, name in enumerate(names):
        if declared is not None and (spec := declared.find(name)) is not None:
            texts.append((place, name, _Texts(spec, name)))

    def as_text(row: FieldRow | None) -> dict[str, str]:
        if row is None:
            return {}
        return {name: text[value] for place, name, text in texts if (value := row[place]) is not None}

    return as_text
