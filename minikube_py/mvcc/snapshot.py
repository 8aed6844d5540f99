"""A state machine as records, and back.

The records hold the key-values at the oldest retained revision and every event since; a restored state replays them, so
that it answers at the same revisions as the one it was taken from. Indexes are not stored but rebuilt from their
declarations, which are among the key-values. The call captures only references to immutable values, so later applies do
not affect it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from operator import attrgetter, le
from typing import Any, Final

import msgpack

from minikube_py.env import at_once
from minikube_py.errors import Corruption, MinikubeError
from minikube_py.fields.spec import FieldSet
from minikube_py.index.declared import INDEXES_PREFIX, key_of
from minikube_py.mvcc.alarms import KINDS
from minikube_py.mvcc.auth import are_users_and_roles
from minikube_py.mvcc.codec import event_from_plain, field_set_from_plain, field_set_to_plain
from minikube_py.mvcc.event_log import EventLog, Events
from minikube_py.mvcc.lease import MAX_TTL_S, NO_LEASE, Lease
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Alarm, Event, KeyValue, prefix_end
from minikube_py.mvcc.versions import FIRST, LATEST, RELEASES, TooNew

FORMAT: Final = 3
"""Format 1 had no sessions; 3 has the version of the rules and the grants' numbers. It is written only if the version
is not the first, so that releases that know no other read the earlier formats and refuse this one."""
# Never change a number: they are stored in files on disk.
HEAD, BASE, EVENTS, BOUNDARY, LEASE, FIELDS, END, SESSION, ALARM, USERS_AND_ROLES = range(10)
COUNT_END: Final = 1 << 62
"""No revision or count of commands comes so far; from there on, what follows would not fit into 64 bits."""
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
    if state.version >= RELEASES:
        head += [state.alarms.rewritten_bytes, state.alarms.grown_bytes]
    if state.version == FIRST:
        head[1:] = [2, *head[2:-1]]
    later = log.between(base, log.last)
    at_boundary: Events = log.at(boundary) if log.first <= boundary <= log.last else ()
    return _slices(
        chain(
            [head],
            _apart(state),
            (kv and [BASE, *kv] for kv in standing(list(state.index.current.values()), later, base)),
            [[BOUNDARY, boundary, list(at_boundary)]] if at_boundary else [],
            ([EVENTS, events[0].kv.mod_revision, [_slim(event) for event in events]] for events in later),
            [[END]],
        )
    )


def _apart(state: StateMachine) -> Iterator[list[Any]]:
    """The records of all that is no key and no event, but for the head, as of this call."""
    parts = slice(4 if state.version == FIRST else 5)
    return chain(
        (
            [LEASE, each.id, each.ttl_s, each.remaining_s, each.granted][parts]
            for each in list(state.lessor.by_id.values())
        ),
        [[FIELDS, field_set_to_plain(field_set)] for field_set in state.tables.declared.values()],
        [[ALARM, *alarm] for alarm in sorted(state.alarms.raised)],
        [[USERS_AND_ROLES, *record] for record in state.auth.records()],
        ([SESSION, *record] for record in state.sessions.records()),
    )


def rest_hash_steps(state: StateMachine) -> Generator[None, None, int]:
    """In slices, a 64-bit digest of what `StateMachine.hash` of a revision leaves out: leases, declared fields, alarms,
    users and roles, sessions, the version of the rules, what is compacted. It has no history: `state` counts as of this
    call. Equal on members that have applied the same entries, in whatever order they hold it."""
    alarms = state.alarms
    numbers = (state.compact_revision, state.version, state.sessions.count, alarms.rewritten_bytes, alarms.grown_bytes)
    return _sum_of(_slices(chain([[HEAD, *numbers]], _apart(state))))


def rest_hash(state: StateMachine) -> int:
    return at_once(rest_hash_steps(state))


def _sum_of(slices: Iterator[list[Any]]) -> Generator[None, None, int]:
    total = 0
    for records in slices:
        digests = [blake2b(msgpack.packb(record), digest_size=8).digest() for record in records]
        total += sum([int.from_bytes(digest, "big") for digest in digests])
        yield
    return total & (1 << 64) - 1


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
    """Whether it is one of `records` by itself: its parts, their types and ranges."""
    if not isinstance(record, list) or not record or type(record[0]) is not int:
        return False
    is_one = _SHAPES.get(record[0])
    return is_one is not None and is_one(*record[1:])


def _is_head(*parts: Any) -> bool:
    if len(parts) < 3 or not _are(int, parts):
        return False
    format, revision, boundary, *rest = parts
    sizes = _HEADS.get(format, (len(rest),))
    counts = all(0 <= each < COUNT_END for each in rest)
    return len(rest) in sizes and counts and -1 <= boundary <= revision and 0 < revision < COUNT_END


def _is_base(*parts: Any) -> bool:
    if tuple(map(type, parts)) != _KEY_VALUE:
        return False
    _, _, created, modified, version, lease = parts
    return 0 < created <= modified < COUNT_END and 0 < version < COUNT_END and _is_lease_id(lease)


def _all_bases(records: list[Any]) -> list[KeyValue]:
    """The versions, if all records are sound BASE records, as in most slices; else none."""
    if set(map(type, records)) != {list} or set(map(len, records)) != {1 + len(_KEY_VALUE)}:
        return []
    columns = list(zip(*records))
    if [set(map(type, column)) for column in columns] != [{int}, *({each} for each in _KEY_VALUE)]:
        return []
    tags, keys, values, created, modified, versions, leases = columns
    ranges = min(created) > 0 and max(modified) < COUNT_END and min(versions) > 0 and max(versions) < COUNT_END
    if set(tags) != {BASE} or not ranges or not all(map(le, created, modified)):
        return []
    if not (_is_lease_id(min(leases)) and _is_lease_id(max(leases))):
        return []
    return [tuple.__new__(KeyValue, each) for each in zip(keys, values, created, modified, versions, leases)]


def _is_events(*parts: Any) -> bool:
    return tuple(map(type, parts)) == (int, list) and bool(parts[1]) and all(map(_is_event, parts[1]))


def _is_event(event: Any) -> bool:
    types = tuple(map(type, event)) if isinstance(event, list) else ()
    return types == (bytes,) or (types == (bytes, bytes, int) and _is_lease_id(event[2]))


def _is_lease(*parts: Any) -> bool:
    if not _are(int, parts) or not 3 <= len(parts) <= 4:
        return False
    id, ttl_s, remaining_s, *granted = parts
    ranges = 0 < ttl_s <= MAX_TTL_S and -COUNT_END < remaining_s < COUNT_END
    return id != NO_LEASE and _is_lease_id(id) and ranges and all(0 <= each < COUNT_END for each in granted)


def _is_lease_id(id: int) -> bool:
    return -(1 << 63) <= id < 1 << 63


def _is_session(*parts: Any) -> bool:
    if tuple(map(type, parts)) != (int, int, int, int, list):
        return False
    id, _, used, acknowledged, replies = parts
    if not (0 < id < COUNT_END and 0 <= used < COUNT_END and 0 < acknowledged < COUNT_END):
        return False
    return all(type(each) is list and len(each) == 2 and type(each[0]) is int for each in replies)


def _are(kind: type, parts: Iterable[Any]) -> bool:
    return all(type(part) is kind for part in parts)


_HEADS: Final = {1: (0,), 2: (1,), FORMAT: (2, 4)}
"""How many parts the head of each format has beyond the first three."""
_KEY_VALUE: Final = (bytes, bytes, int, int, int, int)
_SHAPES: Final[dict[int, Callable[..., bool]]] = {
    HEAD: _is_head,
    BASE: _is_base,
    EVENTS: _is_events,
    BOUNDARY: lambda *parts: tuple(map(type, parts)) == (int, list) and bool(parts[1]),
    LEASE: _is_lease,
    FIELDS: lambda *parts: len(parts) == 1 and isinstance(parts[0], list | tuple) and bool(parts[0]),
    END: lambda *parts: not parts,
    SESSION: _is_session,
    ALARM: lambda *parts: tuple(map(type, parts)) == (int, str) and parts[0] >= 0 and parts[1] in KINDS,
    USERS_AND_ROLES: lambda *parts: are_users_and_roles(list(parts)),
}
NAMES: Final = ("HEAD", "BASE", "EVENTS", "BOUNDARY", "LEASE", "FIELDS", "END", "SESSION", "ALARM", "USERS_AND_ROLES")


def restore(slices: Iterable[list[Any]]) -> StateMachine:
    """The state machine of the records: same answers at every retained revision. Raises: Unfit if they are not
    those of one complete snapshot; TooNew."""
    loader = Loader(StateMachine(FIRST))
    for each in slices:
        loader.feed(each)
    for _ in loader.finish():
        pass
    return loader.state


class Unfit(Corruption):
    """Records of a snapshot that are not those of a state, though each byte is as it was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its records are no state of a store: {what}")
        self.what = what


class Loader:
    """Fills a new `state` in the slices of `records`, so that other work can run in between.

    Raises: Unfit if the records are not those of one complete snapshot: checksums do not show who wrote them, and
    a state that they do not fit would fail later, in apply."""

    def __init__(self, state: StateMachine) -> None:
        self.state = state
        self._revision = 0
        self._boundary = 0
        self._versions: list[KeyValue] = []
        self._field_sets: dict[str, FieldSet] = {}
        self._loaded = False
        self._complete = False
        self._log: EventLog | None = None
        self._count = 0
        """Records so far."""

    def feed(self, records: list[Any]) -> None:
        if type(records) is not list:
            raise Unfit("no list of records")
        if self._count and not self._loaded and not self._complete and (versions := _all_bases(records)):
            self._versions += versions
            self._count += len(records)
            return
        for record in records:
            self._count += 1
            if not is_record(record):
                raise Unfit(f"record {self._count:,}{_named(record)} has not the parts of one")
            if self._complete or (record[0] == HEAD) != (self._count == 1):
                raise Unfit(f"record {self._count:,}{_named(record)} is out of place")
            try:
                self._take(record)
            except TooNew:
                raise
            except _UNFIT as error:
                raise _unfit(f"record {self._count:,}{_named(record)} does not fit", error) from error

    def finish(self) -> Iterator[None]:
        """After the last slice. The first step takes about 50 ms per 100,000 keys without later events, the others
        build one index each."""
        try:
            self._load_versions()
            yield
            self._load_events()
            yield
            for field_set in self._field_sets.values():
                self.state.load_fields(field_set)
                yield
        except _UNFIT as error:
            raise _unfit("its keys, leases and declarations do not fit together", error) from error

    def _take(self, record: list[Any]) -> None:
        state = self.state
        tag = record[0]
        if tag == HEAD:
            self._begin(record)
        elif tag == BASE:
            if self._loaded:
                raise Unfit("it follows changes")
            self._versions.append(KeyValue(*record[1:]))
        elif tag == EVENTS:
            self._load_versions()
            self._commit(record[1], [_change(state, record[1], *slim) for slim in record[2]])
        elif tag == LEASE:
            lease = Lease(record[1], record[2], record[3], granted=record[4] if len(record) > 4 else 0)
            _require(lease.id not in state.lessor.by_id, "there are two of this id")
            _require(lease.granted <= state.sessions.count, "it was granted by a later command")
            state.lessor.by_id[lease.id] = lease
        elif tag == FIELDS:
            field_set = field_set_from_plain(record[1])
            _require(field_set.name not in self._field_sets, "there are two of this name")
            self._field_sets[field_set.name] = field_set
        elif tag == BOUNDARY:
            events = [event_from_plain(event) for event in record[2]]
            _require(record[1] == self._boundary and self._log is None, "it is of another revision")
            _require(all(event.kv.mod_revision == record[1] for event in events), "its events are of another revision")
            self._commit(record[1], events, at_boundary=True)
        elif tag == SESSION:
            state.sessions.load(record[1:])
        elif tag == ALARM:
            alarm = Alarm(*record[1:])
            _require(alarm not in state.alarms.raised, "there are two of them")
            state.alarms.raised.add(alarm)
        elif tag == USERS_AND_ROLES:
            _require(not state.auth.used, "there are two of them")
            state.auth.load([record[1:]])
            _require(state.auth.records() == [record[1:]], "names are there twice or out of order")
        else:
            self._complete = True

    def _begin(self, head: list[Any]) -> None:
        if head[1] not in (1, 2, FORMAT):
            raise Unfit(f"its format is {head[1]}, this version reads {FORMAT} and before")
        _, _, self._revision, self._boundary, *rest = head
        self.state.sessions.count = rest[0] if rest else 0
        self.state.version = rest[1] if head[1] >= FORMAT else FIRST
        if self.state.version > LATEST:
            raise TooNew(self.state.version)
        if len(rest) > 2:
            self.state.alarms.rewritten_bytes, self.state.alarms.grown_bytes = rest[2:4]

    def _load_versions(self) -> None:
        if self._loaded:
            return
        base, versions = max(self._boundary, 1), self._versions
        self.state.index.load(versions)
        _require(len(self.state.index.current) == len(versions), "there are two of one key at one revision")
        last = max(versions, key=attrgetter("mod_revision"), default=None)
        _require(last is None or last.mod_revision <= base, f"a key was written after revision {base}")
        self._versions = []
        self._loaded = True

    def _commit(self, revision: int, events: list[Event], *, at_boundary: bool = False) -> None:
        if self._log is None:
            after = max(self._boundary, 1)
            _require(at_boundary or revision == after + 1, f"revision {revision} does not follow {after}")
            self._log = self.state.log = EventLog(revision)
        _require(revision == self._log.last + 1, f"revision {revision} does not follow {self._log.last}")
        self.state.commit(revision, events)

    def _load_events(self) -> None:
        state, revision = self.state, self._revision
        if self._log is None:
            state.log = EventLog(max(self._boundary, 1) + 1)
        if not self._complete or state.log.last != revision:
            raise Unfit(f"it ends at revision {state.log.last}, but its header says {revision}")
        missing = {kv.lease for kv in state.index.current.values()} - {NO_LEASE, *state.lessor.by_id}
        _require(not missing, f"keys belong to lease {min(missing, default=0)}, which is missing")
        state.load(revision, self._boundary, state.index.current.values())
        keys = state.index.keys(INDEXES_PREFIX, prefix_end(INDEXES_PREFIX))
        _require(sorted(map(key_of, state.tables.specs)) == list(keys), "an index is declared under another's key")


_UNFIT: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MinikubeError)


def _unfit(what: str, error: Exception) -> Unfit:
    """The text of an error of Python's would help nobody."""
    why = error.what if isinstance(error, Unfit) else str(error) if isinstance(error, MinikubeError) else ""
    return Unfit(f"{what}: {why}" if why else what)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise Unfit(what)


def _named(record: Any) -> str:
    tag = record[0] if isinstance(record, list) and record else None
    return f" ({NAMES[tag]})" if type(tag) is int and 0 <= tag < len(NAMES) else ""


def _change(state: StateMachine, revision: int, key: bytes, *put: Any) -> Event:
    return state.index.put(key, put[0], revision, put[1]) if put else state.index.delete(key, revision)
