"""Events of a watch with a `where`: what enters, changes inside and leaves the set of matching objects.

A sum can carry an object over the line without a write to it: its row then changes at a revision that has no event of
its own. Such a change alone is shown where it enters or leaves; inside the set only writes of the object are.
"""

from __future__ import annotations

from minikube_py.fields.where import Where
from minikube_py.index.table import Table
from minikube_py.mvcc.event_log import EventLog
from minikube_py.mvcc.key_index import KeyIndex, end_of, tombstone
from minikube_py.mvcc.types import Event


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
        for event in _last_by_key(written.get(revision, [])):
            name = event.kv.key
            seen.add(name)
            was = inside[name]
            now = inside[name] = rows.get(name, was)
            if now:
                found.append(event if was else Event("PUT", event.kv, None))
            elif was:
                found.append(Event("DELETE", tombstone(name, revision), event.prev_kv))
        for name in sorted(rows.keys() - seen):
            was = inside[name]
            now = inside[name] = rows[name]
            if now == was:
                continue
            kv = keys.at(name, revision)
            if kv is not None:
                found.append(Event("PUT", kv, None) if now else Event("DELETE", tombstone(name, revision), kv))
    return found


def _last_by_key(events: list[Event]) -> list[Event]:
    """One event per key: a txn may put a key and then delete it, which is a deletion of what was before."""
    if len(events) < 2:
        return events
    last: dict[bytes, Event] = {}
    for event in events:
        earlier = last.pop(event.kv.key, None)
        last[event.kv.key] = event if earlier is None else event._replace(prev_kv=earlier.prev_kv)
    return list(last.values())
