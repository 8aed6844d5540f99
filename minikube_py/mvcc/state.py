"""The replicated state machine: etcd's revisioned key-values with leases, and the indexes over them.

Deterministic: the same commands in the same order give the same answers on every member. `apply` checks a command in
full before it writes the first key; a refusal by RequestError changes nothing. A write and the affected indexes change
in the same step. Semantics and messages: etcd's (api/v3rpc, mvcc)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast

import msgpack

from minikube_py.env import at_once
from minikube_py.errors import Compacted, FutureRevision, InvalidRequest, MinikubeError, RequestError
from minikube_py.fields.asked import Asked, parts_of
from minikube_py.fields.spec import FieldSet
from minikube_py.index.declared import INDEXES_PREFIX, declared_since, dump, key_of, parse
from minikube_py.index.table import Table
from minikube_py.mvcc.ahead import LARGE_KEYS, Ahead
from minikube_py.mvcc.alarms import Alarms
from minikube_py.mvcc.auth import Auth
from minikube_py.mvcc.budgets import check_compares, check_reads
from minikube_py.mvcc.decoding import changes_of, decode
from minikube_py.mvcc.event_log import EventLog
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.lease import Leases
from minikube_py.mvcc.reads import Explained, Reads
from minikube_py.mvcc.scanned import hash_of_rows
from minikube_py.mvcc.sessions import Sessions
from minikube_py.mvcc.successor import FIRST_REVISION, oldest_revision
from minikube_py.mvcc.tables import RowsEnded, Tables, described
from minikube_py.mvcc.txn import KEY_NOT_FOUND, RESERVED, Path, check, mark_single, path, taken
from minikube_py.mvcc.types import (
    FROM_KEY,
    AsUser,
    ChangeAuth,
    CloseSession,
    Command,
    Compact,
    CompactResult,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DeleteResult,
    DropIndex,
    Event,
    InSession,
    KeyValue,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Op,
    OpenSession,
    Put,
    PutResult,
    RaiseVersion,
    RangeRequest,
    RangeResult,
    Release,
    Result,
    SessionResult,
    SetAlarm,
    Txn,
    TxnResult,
    prefix_end,
)
from minikube_py.mvcc.validate import validate, validate_range
from minikube_py.mvcc.versions import GRANTS_HAVE_NAMES, LATEST, TXNS_HAVE_BUDGETS, TooNew

HASHED_PER_STEP: Final = 500
ERROR_CHARS_MAX: Final = 500
TRIM_PER_COMPACT: Final = 5000
TRIM_PER_APPLY: Final = 32
"""Events whose memory a compaction frees at once, and those each later apply frees of the rest."""


class StateMachine:
    """`revision` is the last one; reads answer from `compact_revision` (-1: never compacted) to it.

    `last_events` are those of the last apply; `last_lease` is the lease that it granted, or with a TTL of 0 revoked:
    the lessor follows it, because a command sent twice is executed once. `version`: of the rules in force
    (`mvcc.versions`); a store's log begins with the first."""

    def __init__(self, version: int = LATEST) -> None:
        self.version = version
        self.revision = FIRST_REVISION
        self.compact_revision = -1
        self.last_events: list[Event] = []
        self.last_lease: LeaseResult | None = None
        self.index = KeyIndex()
        self.log = EventLog(FIRST_REVISION + 1)
        self.lessor = Leases()
        self.tables = Tables()
        self.sessions = Sessions()
        self.alarms = Alarms()
        self.auth = Auth()
        self.before_compact: list[Callable[[int], None]] = []
        """Called with a compaction's revision before it takes effect: the last chance to read what it frees."""
        self.ahead = Ahead(self, self.lessor, self.tables, self.auth)
        self._reads = Reads(self, self.tables)
        self._untrimmed = FIRST_REVISION + 1
        self._trimmed_events = 0
        self._apply: dict[type, Callable[[Any], Result]] = {
            Txn: self._apply_txn,
            Release: self._apply_release,
            Put: self._apply_put,
            DeleteRange: self._apply_delete,
            LeaseGrant: self._apply_grant,
            LeaseRevoke: self._apply_revoke,
            LeaseCheckpoint: self._apply_checkpoint,
            Compact: self._apply_compact,
            DeclareFields: self._apply_declare,
            DeclareIndex: self._apply_declare_index,
            DropIndex: self._apply_drop_index,
            ChangeAuth: self._apply_auth,
            AsUser: self._apply_as_user,
        }
        self._handlers: dict[type, Callable[[Any], Result]] = {
            **self._apply,
            InSession: self._apply_in_session,
            OpenSession: self._apply_open,
            CloseSession: self._apply_close,
            RaiseVersion: self._apply_raise,
            SetAlarm: self._apply_alarm,
        }

    # -- commands --------------------------------------------------------------------------------------------------

    def apply(self, command: Command) -> Result:
        """Raises: RequestError (its subclasses) where etcd refuses, without any change. SessionExpired if the command's
        session has ended; then it was not executed now."""
        self.last_events = []
        self.last_lease = None
        handler = self._handlers.get(type(command))
        if handler is None:
            raise InvalidRequest(f"unknown command {type(command).__name__}")
        if self.alarms.raised:
            self.alarms.check(command)
        result = handler(command)
        self.sessions.counted()
        if self._untrimmed <= self.compact_revision:
            self.trim(TRIM_PER_APPLY)
        return result

    def _apply_put(self, put: Put) -> PutResult:
        check(put)
        self._check_put(put)
        events: list[Event] = []
        result = self._put(put, self.revision + 1, events)
        self._commit(events)
        return result

    def _apply_delete(self, delete: DeleteRange) -> DeleteResult:
        check(delete)
        self._check_delete(delete)
        events: list[Event] = []
        rows = self.ahead.rows((self.revision + 1, delete.key, delete.range_end))
        result = self._delete(delete, self.revision + 1, events)
        self._commit(events, rows)
        return result

    def _apply_txn(self, txn: Txn) -> TxnResult:
        events: list[Event] = []
        if (txn.single or (not txn.plain and mark_single(txn))) and path(txn, self.index)[0]:
            # Nearly every write of an API server.
            self._check_put(put := cast(Put, txn.success[0]))
            result = tuple.__new__(TxnResult, (self.revision + 1, True, (self._put(put, self.revision + 1, events),)))
        else:
            result = self._run(txn, self._checked(txn)[0], self.revision + 1, events)
        self._commit(events)
        return result

    def _checked(self, txn: Txn) -> tuple[Path, Sequence[Op]]:
        """The branches taken, and their ops. Raises: if the txn is refused as a whole."""
        if not txn.plain:
            check(txn)
            if self.version >= TXNS_HAVE_BUDGETS:
                check_compares(txn, self.index)
        chosen = path(txn, self.index)
        ops = (txn.success if chosen.succeeded else txn.failure) if txn.plain else list(taken(txn, chosen))
        for op in ops:
            if type(op) is Put:
                self._check_put(op)
            elif type(op) is RangeRequest:
                self.require_retained(op.revision)
            elif type(op) is DeleteRange:
                self._check_delete(op)
        if self.version >= TXNS_HAVE_BUDGETS:
            check_reads(ops, self.index, self._died)
        return chosen, ops

    def _apply_release(self, release: Release) -> TxnResult:
        txn = release.txn
        check(txn)
        counted = self.alarms.release(taken(txn, path(txn, self.index)), self.index.current)
        result = self._apply_txn(txn)
        self.alarms.released(*counted)
        return result

    def _died(self) -> int:
        """How many deletions of keys are retained: equal on every member, whatever it has trimmed."""
        log = self.log
        return sum([kind == "DELETE" for each in log.between(self.compact_revision, log.last) for kind, _, _ in each])

    def _apply_grant(self, grant: LeaseGrant) -> LeaseResult:
        # The count is unique to each applied command.
        granted = self.sessions.count + 1 if self.version >= GRANTS_HAVE_NAMES else 0
        lease = self.lessor.grant(grant.id, grant.ttl_s, granted)
        self.last_lease = LeaseResult(self.revision, lease.id, lease.ttl_s)
        return self.last_lease

    def _apply_revoke(self, revoke: LeaseRevoke) -> LeaseResult:
        lease = self.lessor.get(revoke.id, revoke.granted)
        revision = self.revision + 1
        rows = self.ahead.rows((revision, lease.id, b""))
        if len(lease.keys) < LARGE_KEYS:
            events = [self.index.delete(key, revision) for key in sorted(lease.keys)]
        else:
            events = self.index.end(self.ahead.endings((revision, lease.id, b"")))
        del self.lessor.by_id[lease.id]
        self._commit(events, rows)
        self.last_lease = LeaseResult(self.revision, lease.id, 0)
        return LeaseResult(self.revision, lease.id, lease.ttl_s)

    def _apply_checkpoint(self, checkpoint: LeaseCheckpoint) -> LeaseResult:
        lease = self.lessor.checkpoint(checkpoint.id, checkpoint.remaining_s)
        return LeaseResult(self.revision, lease.id, lease.ttl_s)

    def _apply_compact(self, compact: Compact) -> CompactResult:
        if compact.revision <= self.compact_revision:
            raise Compacted(compact.revision, self.compact_revision)
        if compact.revision > self.revision:
            raise FutureRevision(compact.revision, self.revision)
        for listener in self.before_compact:
            listener(compact.revision)
        self.compact_revision = compact.revision
        self.alarms.rewritten_bytes = 0
        self.tables.compact(compact.revision)
        self.trim(TRIM_PER_COMPACT)
        return CompactResult(self.revision)

    def _apply_declare(self, declare: DeclareFields) -> CompactResult:
        field_set = declare.field_set
        if self.tables.declared.get(field_set.name) != field_set or field_set.name in self.tables.degraded:
            self.tables.check(field_set, self.version)
            self.load_fields(field_set)
        return CompactResult(self.revision)

    def _apply_declare_index(self, declare: DeclareIndex) -> PutResult:
        spec = declare.spec
        if self.tables.check_index(spec, self.version):
            events: list[Event] = []
            self._put(Put(key_of(spec.name), dump(spec)), self.revision + 1, events)
            self._commit(events)
            self.tables.declare_index(spec)
        return PutResult(self.revision)

    def _apply_drop_index(self, drop: DropIndex) -> DeleteResult:
        self.tables.check_drop(drop.name)
        events: list[Event] = []
        result = self._delete(DeleteRange(key_of(drop.name)), self.revision + 1, events)
        self._commit(events)
        self.tables.drop_index(drop.name)
        return result

    def _apply_raise(self, raising: RaiseVersion) -> CompactResult:
        """Never lowers it. Raises: TooNew, after which this member must stop."""
        if raising.version > LATEST:
            raise TooNew(raising.version)
        self.version = max(self.version, raising.version)
        return CompactResult(self.revision)

    def _apply_alarm(self, command: SetAlarm) -> CompactResult:
        self.alarms.set(command)
        return CompactResult(self.revision)

    def _apply_auth(self, change: ChangeAuth) -> CompactResult:
        self.auth.change(change)
        return CompactResult(self.revision)

    def _apply_as_user(self, request: AsUser) -> Result:
        self.auth.check(request, self.lessor)
        return self._apply[type(request.command)](request.command)

    # -- sessions --------------------------------------------------------------------------------------------------

    def _apply_open(self, opening: OpenSession) -> SessionResult:
        return SessionResult(self.revision, self.sessions.open(opening.client).id)

    def _apply_close(self, closing: CloseSession) -> SessionResult:
        self.sessions.close(closing.session)
        return SessionResult(self.revision, closing.session)

    def _apply_in_session(self, request: InSession) -> Result:
        command = request.command
        handler = self._apply.get(type(command))
        if handler is None:
            raise InvalidRequest(f"{type(command).__name__} cannot be sent in a session")
        session = self.sessions.admit(request)
        if session is None:
            return self.sessions.kept(request)
        try:
            if self.alarms.raised:
                self.alarms.check(command)
            result = handler(command)
        except RequestError as error:
            self.sessions.keep_refusal(session, request.sequence, error)
            raise
        self.sessions.keep(session, request.sequence, result)
        return result

    # -- writing ---------------------------------------------------------------------------------------------------

    def _check_put(self, put: Put) -> None:
        if put.lease:
            self.lessor.get(put.lease)
        if (put.ignore_value or put.ignore_lease) and put.key not in self.index.current:
            raise InvalidRequest(KEY_NOT_FOUND)

    def _check_delete(self, delete: DeleteRange) -> None:
        # Whether the range [prefix, prefix_end) has declarations; in most stores it is empty.
        if self.tables.specs and any(_holds(delete, key_of(name)) for name in self.tables.specs):
            raise InvalidRequest(RESERVED)

    def require_retained(self, revision: int) -> None:
        """Raises: Compacted or FutureRevision if `revision` cannot be answered; 0 can."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision and revision < self.compact_revision:
            raise Compacted(revision, self.compact_revision)

    def _run(self, txn: Txn, chosen: Path, revision: int, events: list[Event]) -> TxnResult:
        nested = iter(chosen.nested)
        ops = txn.success if chosen.succeeded else txn.failure
        responses = [self._run_op(op, nested, revision, events) for op in ops]
        return TxnResult(revision if events else self.revision, chosen.succeeded, tuple(responses))

    def _run_op(
        self, op: Op, nested: Iterator[Path], revision: int, events: list[Event]
    ) -> PutResult | DeleteResult | RangeResult | TxnResult:
        if type(op) is Put:
            return self._put(op, revision, events)
        if type(op) is RangeRequest:
            return self._reads.range(op, revision if events else self.revision, events)
        if type(op) is DeleteRange:
            return self._delete(op, revision, events)
        return self._run(cast(Txn, op), next(nested), revision, events)

    def _put(self, put: Put, revision: int, events: list[Event]) -> PutResult:
        key, value, lease, prev_kv, ignore_value, ignore_lease = put
        # A key deleted by the txn itself (upstream misses this overlap, and panics) has no lease or value to keep.
        if (ignore_value or ignore_lease) and (standing := self.index.current.get(key)) is not None:
            value = standing.value if ignore_value else value
            lease = standing.lease if ignore_lease else lease
        event = self.index.put(key, value, revision, lease)
        previous = event[2]
        old_lease = 0 if previous is None else previous.lease
        if old_lease != lease:
            self.lessor.move(key, old_lease, lease)
        events.append(event)
        return tuple.__new__(PutResult, (revision, previous if prev_kv else None))

    def _delete(self, delete: DeleteRange, revision: int, events: list[Event]) -> DeleteResult:
        key, range_end, prev_kv = delete
        if range_end and self.index.count(key, range_end) >= LARGE_KEYS:
            ended = self.index.end(self.ahead.endings((revision, key, range_end)))
        else:
            ended = [self.index.delete(each, revision) for each in list(self.index.keys(key, range_end))]
        previous = cast(list[KeyValue], [event[2] for event in ended])
        for key, *_, lease in [kv for kv in previous if kv[5]]:
            self.lessor.move(key, lease, 0)
        events += ended
        return DeleteResult(revision if events else self.revision, len(ended), tuple(previous) if prev_kv else ())

    def _commit(self, events: list[Event], rows: RowsEnded | None = None) -> None:
        if events:
            self.commit(self.revision + 1, events, rows)

    def commit(self, revision: int, events: list[Event], rows: RowsEnded | None = None) -> None:
        """The only place where a revision is made: the changes in `index` go to history, watchers and tables. Used by
        `apply` and by followers of others' decisions: a snapshot's replay, the mirror of an etcd. `rows`: prepared
        changes of rows."""
        self.revision = revision
        self.log.append(tuple(events))
        self.last_events = events
        if events and self.tables.by_name:
            self.tables.apply(revision, events, rows)

    # -- reading ---------------------------------------------------------------------------------------------------

    def range(self, request: RangeRequest) -> RangeResult:
        """Raises: InvalidRequest, Compacted, FutureRevision; any other failure is reported only to this reader."""
        validate_range(request)
        try:
            return self._reads.range(request, self.revision, ())
        except MinikubeError:
            raise
        except Exception as error:
            raise unanswerable(error) from error

    def read_txn(self, txn: Txn) -> TxnResult:
        """The answer of a txn that writes nothing, without the log. Raises: as `apply`."""
        validate(txn)
        chosen, ops = self._checked(txn)
        if any(type(op) is not RangeRequest for op in ops):
            raise InvalidRequest("a txn with writes must go through the log")
        return self._run(txn, chosen, self.revision + 1, [])

    def get(self, key: bytes, revision: int = 0) -> KeyValue | None:
        """The state of `key` at `revision` (0: now). Raises: Compacted, FutureRevision."""
        if revision <= 0:
            return self.index.current.get(key)
        self.require_retained(revision)
        return self.index.at(key, revision)

    def events(self, key: bytes, range_end: bytes, start_revision: int, until_revision: int) -> Iterator[Event]:
        """The events of the range in [start_revision, until_revision], in order. Raises: Compacted."""
        if start_revision < self.compact_revision:
            raise Compacted(start_revision, self.compact_revision)
        selected = chain.from_iterable(self.log.between(start_revision - 1, until_revision))
        return iter(select(selected, key, range_end))

    def leases(self) -> list[tuple[int, int]]:
        """(id, ttl_s) of all leases, by id."""
        return sorted((lease.id, lease.ttl_s) for lease in self.lessor.by_id.values())

    def lease_keys(self, lease_id: int) -> list[bytes]:
        """The keys attached, in order. Raises: LeaseNotFound."""
        return sorted(self.lessor.get(lease_id).keys)

    @property
    def data_bytes(self) -> int:
        """Bytes of the retained versions and events, which the quota limits."""
        return self.index.size_bytes + self.log.size_bytes

    @property
    def size_bytes(self) -> int:
        """Approximate memory of all retained versions, events and indexes."""
        return self.data_bytes + self.tables.size_bytes()

    def hash(self, revision: int = 0) -> int:
        """A 64-bit digest of the key-values and of all rows as they stood at `revision`: equal on members that agree,
        whatever was compacted or restored. 0: the current ones, and the open sessions, which have no history; equal on
        members that have applied the same entries. Raises: Compacted, FutureRevision."""
        return at_once(self.hash_steps(revision))

    def hash_steps(self, revision: int = 0, *, rows: bool = True) -> Generator[None, None, int]:
        """As `hash`, in slices interleaved with applies, as of this call's revision. A later compaction beyond it ends
        it with Compacted. Without `rows` only the key-values, which are the same at a revision whatever the
        declarations."""
        at = revision if revision > 0 else self.revision
        sessions = [] if revision else [msgpack.packb(record) for record in self.sessions.records()]
        if sessions:
            sessions.insert(0, msgpack.packb([self.sessions.count]))
        sessions += [msgpack.packb(alarm) for alarm in sorted(self.alarms.raised)] if not revision else []
        digest = hashlib.blake2b(digest_size=8)
        start: bytes | None = b""
        while start is not None:
            self.require_retained(at)
            kvs = self.index.range_at(start, b"\0", at, HASHED_PER_STEP)
            digest.update(b"".join(map(msgpack.packb, kvs)))
            start = kvs[-1].key + b"\0" if len(kvs) == HASHED_PER_STEP else None
            yield
        for name, declared in sorted(self.tables.declared.items()) if rows else ():
            self.require_retained(at)
            index = self.tables.complete(name)
            # Index fields do not reach every member's table at the same time; their declarations are in the keys.
            if index is None:
                found = yield from hash_of_rows(self, declared, at)
            else:
                found = index.hash(min(at, index.revision), declared)
            digest.update(f"{name} {found}".encode())
            yield
        if not revision and self.alarms.grown_bytes | self.alarms.rewritten_bytes:
            sessions.append(msgpack.packb([self.alarms.rewritten_bytes, self.alarms.grown_bytes]))
        if not revision:
            sessions += map(msgpack.packb, self.auth.records())
        for record in sessions:
            digest.update(record)
        return int.from_bytes(digest.digest(), "big")

    # -- the past --------------------------------------------------------------------------------------------------

    def trim(self, budget: int) -> int:
        """Frees memory of about `budget` compacted events; returns how many revisions are left to free.

        Answers do not depend on it. A member calls it when idle."""
        compacted = min(self.compact_revision, self.log.last)
        keys: list[bytes] = []
        while self._untrimmed <= compacted and len(keys) < budget:
            events, start = self.log.at(self._untrimmed), self._trimmed_events
            self._trimmed_events = start + budget - len(keys)
            keys += [event.kv.key for event in events[start : self._trimmed_events]]
            if self._trimmed_events >= len(events):
                self._untrimmed, self._trimmed_events = self._untrimmed + 1, 0
        self.index.trim(dict.fromkeys(keys), self.compact_revision)
        # Events of the compacted revision itself can still be watched.
        self.log.trim(min(self._untrimmed, self.compact_revision))
        return max(0, self.compact_revision + 1 - self._untrimmed)

    def _build(self, field_set: FieldSet) -> Table:
        """A table that answers at every retained revision: the state at the oldest one, then later events."""
        oldest = oldest_revision(self)
        prefixes = dict.fromkeys([field_set.prefix, *(spec.source_prefix for spec in field_set.sums)])
        standing = {kv.key: kv for prefix in prefixes for kv in self.index.range_at(prefix, prefix_end(prefix), oldest)}
        table = Table(field_set, oldest, ((key, decode(kv.value)) for key, kv in standing.items()))
        for events in self.log.between(oldest, self.revision):
            changes = changes_of(events, table.prefixes)
            if changes:
                table.apply(events[0].kv.mod_revision, changes)
        return table

    # -- snapshots -------------------------------------------------------------------------------------------------

    def load(self, revision: int, compact_revision: int, versions: Iterable[KeyValue]) -> None:
        """For the module snapshot: takes over once all revisions have been committed again."""
        self.revision = revision
        self.compact_revision = compact_revision
        self._untrimmed = max(self.log.first, compact_revision + 1)
        for kv in versions:
            if kv.lease:
                self.lessor.by_id[kv.lease].keys.add(kv.key)
        self.tables.load_indexes(parse(kv.value) for kv in self.index.range(INDEXES_PREFIX, prefix_end(INDEXES_PREFIX)))

    def load_fields(self, field_set: FieldSet) -> None:
        """A declaration of fields takes effect; for the module snapshot, after `load`."""
        whole, table, why = self.tables.whole(field_set), None, ""
        try:
            table = self._build(whole)
        except (MinikubeError, MemoryError):
            raise
        except Exception as error:
            why = described(error)
        self.tables.declare(field_set, table)
        if table is None:
            self.tables.degrade(field_set.name, self.revision, why)

    # -- indexes -------------------------------------------------------------------------------------------------------

    def build_indexes(self, rows: int) -> bool:
        """Adds about `rows` more rows to incomplete indexes and tables; True while there are more.

        Answers do not depend on it. A member calls it between other work."""
        return self.tables.build(self, rows)

    def declared_since(self, field_set: str, asked: Asked) -> int:
        """The revision since which the fields have had their current meaning; 0 for the FieldSet's own fields."""
        standing = ((spec, self.index.current[key_of(spec.name)].create_revision) for spec in self.tables.on(field_set))
        return declared_since(self.tables.declared[field_set], standing, parts_of(asked))

    def explain(self, request: RangeRequest) -> Explained:
        """The plans for a request with a `where`, for a caller with a clock to run. Raises: as `range`."""
        validate_range(request)
        try:
            return self._reads.explain(request, self.revision)
        except MinikubeError:
            raise
        except Exception as error:
            raise unanswerable(error) from error


def unanswerable(error: Exception) -> InvalidRequest:
    """The error for a reader whose request failed unexpectedly."""
    return InvalidRequest(f"the request cannot be answered: {type(error).__name__}: {error}"[:ERROR_CHARS_MAX])


def _holds(delete: DeleteRange, key: bytes) -> bool:
    start, range_end, _ = delete
    return key == start if not range_end else start <= key and (range_end == FROM_KEY or key < range_end)


def select(events: Iterable[Event], key: bytes, range_end: bytes) -> list[Event]:
    """The `events` whose key is in the range."""
    if not range_end:
        return [event for event in events if event[1][0] == key]
    if range_end == b"\0":
        return [event for event in events if event[1][0] >= key]
    return [event for event in events if key <= event[1][0] < range_end]
