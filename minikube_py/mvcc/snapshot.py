"""A state machine as records, and back.

The records hold the key-values at the oldest retained revision and every event since; a restored state replays them, so
that it answers at the same revisions as the one it was taken from. Indexes are not stored but rebuilt from their
declarations, which are among the key-values. The call captures only references to immutable values, so later applies do
not affect it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from minikube_py.errors import Corruption, MinikubeError, shown
from minikube_py.fields.spec import FieldSet
from minikube_py.mvcc.auth import are_users_and_roles
from minikube_py.mvcc.codec import event_from_plain, field_set_from_plain, field_set_to_plain
from minikube_py.mvcc.event_log import EventLog, Events
from minikube_py.mvcc.lease import Lease
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Alarm, Event, KeyValue
from minikube_py.mvcc.versions import FIRST, LATEST, RELEASES, TooNew

FORMAT: Final = 3
"""Format 1 had no sessions; 3 has the version of the rules and the grants' numbers. It is written only if the version
is not the first, so that releases that know no other read the earlier formats and refuse this one."""
# Never change a number: they are stored in files on disk.
HEAD, BASE, EVENTS, BOUNDARY, LEASE, FIELDS, END, SESSION, ALARM, USERS_AND_ROLES = range(10)
SLICE_RECORDS: Final = 500
SCANNED_MAX: Final = 2000
"""How many versions and events that give no record are skipped at most per slice, which may be empty."""


def records(state: StateMachine) -> Iterator[list[Any]]:
    """Slices of records of `state` as of this call (not of the first `next`), each cheap; some are empty."""
    log = state.log
    # State before the compacted revision is dropped; events of that revision can still be watched.
    boundary = state.compact_revision
    base = max(boundary, 1)
    head = [HEAD, FORMAT, state.revision, boundary, state.sessions.count, state.version]
    leases = [[LEASE, each.id, each.ttl_s, each.remaining_s, each.granted] for each in state.lessor.by_id.values()]
    if state.version >= RELEASES:
        head += [state.alarms.rewritten_bytes, state.alarms.grown_bytes]
    if state.version == FIRST:
        head[1:] = [2, *head[2:-1]]
        leases = [lease[:-1] for lease in leases]
    fields = [[FIELDS, field_set_to_plain(field_set)] for field_set in state.tables.declared.values()]
    alarms = [[ALARM, *alarm] for alarm in sorted(state.alarms.raised)]
    auth = [[USERS_AND_ROLES, *record] for record in state.auth.records()]
    later = log.between(base, log.last)
    sessions = ([SESSION, *record] for record in state.sessions.records())
    at_boundary: Events = log.at(boundary) if log.first <= boundary <= log.last else ()
    return _slices(
        chain(
            [head, *sorted(leases), *fields, *alarms, *auth],
            sessions,
            (kv and [BASE, *kv] for kv in standing(list(state.index.current.values()), later, base)),
            [[BOUNDARY, boundary, list(at_boundary)]] if at_boundary else [],
            ([EVENTS, events[0].kv.mod_revision, [_slim(event) for event in events]] for events in later),
            [[END]],
        )
    )


def standing(current: list[KeyValue], later: list[Events], base: int) -> Iterator[KeyValue | None]:
    """The versions at `base`: current ones since then, and those that the first later event replaced.

    Yields None from time to time, so that a long stretch without any can be interrupted."""
    replaced = (event[2] for event in chain.from_iterable(later))
    passed = 0
    for kv in chain(current, replaced):
        if kv is not None and kv.mod_revision <= base:
            yield kv
        else:
            passed += 1
            if passed == SCANNED_MAX:
                passed = 0
                yield None


def _slim(event: Event) -> list[Any]:
    """An event without the previous version, which the replay restores."""
    kind, kv, _ = event
    return [kv.key, kv.value, kv.lease] if kind == "PUT" else [kv.key]


def _slices(source: Iterator[list[Any] | None]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for record in source:
        if record is not None:
            batch.append(record)
        if record is None or len(batch) == SLICE_RECORDS:
            yield batch
            batch = []
    if batch:
        yield batch


def is_record(record: Any) -> bool:
    """Whether its shape is that of one of `records`."""
    if not isinstance(record, list) or not record or type(record[0]) is not int:
        return False
    tag, *parts = record
    if tag == HEAD:
        return len(parts) >= 3 and all(type(part) is int for part in parts)
    if tag == BASE:
        return list(map(type, parts)) == [bytes, bytes, int, int, int, int]
    if tag == EVENTS:
        return list(map(type, parts)) == [int, list] and all(map(_is_event, parts[1]))
    if tag == LEASE:
        return list(map(type, parts[:2])) == [int, int]
    if tag == USERS_AND_ROLES:
        return are_users_and_roles(parts)
    return tag != FIELDS or (len(parts) == 1 and isinstance(parts[0], list) and bool(parts[0]))


def _is_event(event: Any) -> bool:
    return isinstance(event, list) and list(map(type, event)) in ([bytes], [bytes, bytes, int])


def restore(slices: Iterable[list[Any]]) -> StateMachine:
    """The state machine of the records: same answers at every retained revision. Raises: Corruption if they are not
    those of one complete snapshot."""
    loader = Loader(StateMachine(FIRST))
    for each in slices:
        loader.feed(each)
    for _ in loader.finish():
        pass
    return loader.state


class Loader:
    """Fills a new `state` in the slices of `records`, so that other work can run in between.

    Raises: Corruption if the records are not those of one complete snapshot."""

    def __init__(self, state: StateMachine) -> None:
        self.state = state
        self._revision = 0
        self._boundary = 0
        self._versions: list[KeyValue] = []
        self._field_sets: list[FieldSet] = []
        self._begun = False
        self._loaded = False
        self._complete = False
        self._log: EventLog | None = None

    def feed(self, records: list[Any]) -> None:
        try:
            for record in records:
                self._take(record)
        except TooNew:
            raise
        except (LookupError, TypeError, ValueError, MinikubeError) as error:
            raise Corruption(f"snapshot: {type(error).__name__}: {error}") from error

    def finish(self) -> Iterator[None]:
        """After the last slice. The first step takes about 50 ms per 100,000 keys without later events, the others
        build one index each."""
        try:
            self._load_versions()
            yield
            self._load_events()
            yield
            for field_set in self._field_sets:
                self.state.load_fields(field_set)
                yield
        except (LookupError, TypeError, ValueError, MinikubeError) as error:
            raise Corruption(f"snapshot: {type(error).__name__}: {error}") from error

    def _take(self, record: list[Any]) -> None:
        state = self.state
        tag = record[0]
        if not self._begun:
            self._begin(record)
        elif tag == BASE:
            self._versions.append(KeyValue(*record[1:]))
        elif tag == EVENTS:
            self._load_versions()
            self._commit(record[1], [_change(state, record[1], *slim) for slim in record[2]])
        elif tag == LEASE:
            lease = Lease(record[1], record[2], record[3], granted=record[4] if len(record) > 4 else 0)
            state.lessor.by_id[lease.id] = lease
        elif tag == FIELDS:
            self._field_sets.append(field_set_from_plain(record[1]))
        elif tag == BOUNDARY:
            self._commit(record[1], [event_from_plain(event) for event in record[2]])
        elif tag == SESSION:
            state.sessions.load(record[1:])
        elif tag == ALARM:
            state.alarms.raised.add(Alarm(*record[1:]))
        elif tag == USERS_AND_ROLES:
            state.auth.load([record[1:]])
        elif tag == END:
            self._complete = True
        else:
            raise Corruption(f"unknown record {shown(tag)}")

    def _begin(self, head: list[Any]) -> None:
        if head[0] != HEAD or head[1] not in (1, 2, FORMAT):
            raise Corruption(f"the first record is not a head of format {FORMAT} or before")
        _, _, self._revision, self._boundary, *rest = head
        self.state.sessions.count = rest[0] if rest else 0
        self.state.version = rest[1] if head[1] >= FORMAT else FIRST
        if self.state.version > LATEST:
            raise TooNew(self.state.version)
        if len(rest) > 2:
            self.state.alarms.rewritten_bytes, self.state.alarms.grown_bytes = rest[2:4]
        self._begun = True

    def _load_versions(self) -> None:
        if not self._loaded:
            self.state.index.load(self._versions)
            self._versions = []
            self._loaded = True

    def _commit(self, revision: int, events: list[Event]) -> None:
        if self._log is None:
            self._log = self.state.log = EventLog(revision)
        self.state.commit(revision, events)

    def _load_events(self) -> None:
        state, revision = self.state, self._revision
        if self._log is None:
            state.log = EventLog(max(self._boundary, 1) + 1)
        if not self._complete or state.log.last != revision:
            raise Corruption(f"it ends at revision {state.log.last}, but its header says {revision}")
        state.load(revision, self._boundary, state.index.current.values())


def _change(state: StateMachine, revision: int, key: bytes, *put: Any) -> Event:
    return state.index.put(key, put[0], revision, put[1]) if put else state.index.delete(key, revision)
