"""Events of a watch with a `where`: objects that enter, change inside and leave the set of matches.

A sum can move an object into or out of the set without a write to it: its row then changes at a revision without an
event for it. Such a change is reported only if the object enters or leaves; inside the set only writes are."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from heapq import merge
from itertools import islice
from typing import Final

from minikube_py.fields.where import Where
from minikube_py.index.table import Table
from minikube_py.mvcc.event_log import EventLog
from minikube_py.mvcc.key_index import KeyIndex, end_of, tombstone
from minikube_py.mvcc.types import Event

ROWS_PER_SLICE: Final = 500


def where_events(
    keys: KeyIndex, log: EventLog, table: Table, where: Where, after: int, until: int, bounds: tuple[bytes, bytes]
) -> list[Event]:
    """The changes of the set in (after, until], in order of revision; within one, writes first, then by key."""
    index = table.index
    key, range_end = bounds
    start, end = key, end_of(range_end) if range_end else key + b"\0"
    moved: dict[int, dict[bytes, bool]] = {}
    touched: dict[bytes, None] = {}
    for revision, name, _, holds in index.transitions(where, after, until):
        if start <= name and (end is None or name < end):
            moved.setdefault(revision, {})[name] = holds
            touched[name] = None
    written: dict[int, list[Event]] = {}
    for events in log.between(after, until):
        own = [event for event in events if start <= event.kv.key and (end is None or event.kv.key < end)]
        if own:
            written[own[0].kv.mod_revision] = own
            touched.update((event.kv.key, None) for event in own)
    if not touched:
        return []
    names = list(touched)
    inside = dict(zip(names, index.matching(where, min(after, index.revision), names)))
    found: list[Event] = []
    for revision in sorted(moved.keys() | written.keys()):
        rows = moved.get(revision, {})
        seen = set()
        last: dict[bytes, Event] = {}
        _last_by_key(written.get(revision, []), last)
        for name, event in last.items():
            seen.add(name)
            was = inside[name]
            now = inside[name] = rows.get(name, was)
            found += _written(event, revision, was, now)
        for name in sorted(rows.keys() - seen):
            was = inside[name]
            now = inside[name] = rows[name]
            if now != was:
                found += _carried(keys, name, revision, now)
    return found


def where_slices(
    keys: KeyIndex, log: EventLog, table: Table, where: Where, revision: int, bounds: tuple[bytes, bytes]
) -> Generator[int, None, list[Event]]:
    """The same for one revision, in slices; yields how many rows or events each has examined. Later revisions may be
    applied meanwhile; the revision before it and later ones must not be compacted."""
    key, range_end = bounds
    start, end = key, end_of(range_end) if range_end else key + b"\0"
    changes = table.index.changes_at(where, revision)
    rows: dict[bytes, tuple[bool, bool]] = {}
    for part in changes:
        rows.update([(name, (was, now)) for name, was, now in part if start <= name and (end is None or name < end)])
        yield len(part)
    last: dict[bytes, Event] = {}
    written = iter(log.at(revision))
    while events := list(islice(written, ROWS_PER_SLICE)):
        _last_by_key([each for each in events if start <= each.kv.key and (end is None or each.kv.key < end)], last)
        yield len(events)
    found: list[Event] = []
    writes = iter(last.items())
    while some := list(islice(writes, ROWS_PER_SLICE)):
        for (name, event), stands in zip(some, changes.passes([name for name, _ in some])):
            found += _written(event, revision, *rows.pop(name, (stands, stands)))
        yield len(some)
    crossings: list[list[bytes]] = []
    left = iter(rows.items())
    while others := list(islice(left, ROWS_PER_SLICE)):
        crossings.append(sorted([name for name, (was, now) in others if was != now]))
        yield len(others)
    ordered = merge(*crossings)
    while names := list(islice(ordered, ROWS_PER_SLICE)):
        for name in names:
            found += _carried(keys, name, revision, rows[name][1])
        yield len(names)
    return found


def _written(event: Event, revision: int, was: bool, now: bool) -> tuple[Event, ...]:
    """The event for a write of the object."""
    if now:
        return (event if was else Event("PUT", event.kv, None),)
    return (Event("DELETE", tombstone(event.kv.key, revision), event.prev_kv),) if was else ()


def _carried(keys: KeyIndex, name: bytes, revision: int, now: bool) -> tuple[Event, ...]:
    """The event if a sum moved the object into or out of the set."""
    kv = keys.at(name, revision)
    if kv is None:
        return ()
    return (Event("PUT", kv, None) if now else Event("DELETE", tombstone(name, revision), kv),)


def _last_by_key(events: Iterable[Event], last: dict[bytes, Event]) -> None:
    """One event per key: a txn may put a key and then delete it, which is a deletion of the earlier state."""
    for event in events:
        earlier = last.pop(event.kv.key, None)
        last[event.kv.key] = event if earlier is None else event._replace(prev_kv=earlier.prev_kv)
