"""Recovers what it can from sound log entries behind a gap, when the state they were applied to is unknown.

A command carries whole values, so if it is known to have written, what it wrote is known. A condition on a key written
since the gap is decided by the revision of that write, so revisions must be exactly the true ones: the number made in
the gap follows from conditions that name the revision of a later write. A condition on another key holds if it names a
revision made in the gap, because the client had read it there; otherwise it is evaluated against the state before the
gap and the next condition on the key. All entries behind a gap with a condition, or a lease from before it, are
`assumed`: right if clients name what they have read, but not certain.

Commands of users are checked against the known users and roles, as apply did. If a gap may have changed these, the
commands are `assumed` too, and only changes of users and roles that grant nothing are applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from minikube_py.errors import InvalidRequest
from minikube_py.index.declared import dump, key_of
from minikube_py.mvcc import snapshot as records_of
from minikube_py.mvcc.auth import TOKEN, Auth
from minikube_py.mvcc.codec import field_set_to_plain, unpack
from minikube_py.mvcc.key_index import KeyIndex
from minikube_py.mvcc.lease import Lease, Leases
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.txn import holds
from minikube_py.mvcc.types import (
    FROM_KEY,
    SINGLE_KEY,
    AsUser,
    ChangeAuth,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    KeyValue,
    LeaseGrant,
    LeaseRevoke,
    Op,
    Put,
    RaiseVersion,
    Txn,
    bare,
)
from minikube_py.mvcc.versions import FIRST, LATEST, USERS
from minikube_py.wal.recovery import LogEntry

CHANGE: Final = 1
CANDIDATES_MAX: Final = 6
NARROWING: Final = ("enable", "user delete", "user revoke-role", "role delete", "role revoke-permission")
"""Changes of users and roles that grant no new permission."""


class BehindGaps:
    """Keys, leases and declarations, without history and sessions. `assumed`: indexes of entries. `gap_revision`: the
    last one that the last gap made. `auth_lost`: a record of users and roles may have existed and is missing.
    `auth_sure`: no gap can have changed them. `unsure_changes`: entries behind a gap that may have changed them."""

    def __init__(self, state: StateMachine) -> None:
        self.revision = state.revision
        self.version = state.version
        self.current: dict[bytes, KeyValue] = dict(state.index.current)
        """Under the name that `mvcc.txn.holds` reads."""
        self.leases: dict[int, int] = {lease.id: lease.ttl_s for lease in state.lessor.by_id.values()}
        self.fields: dict[str, Any] = {each.name: field_set_to_plain(each) for each in state.tables.declared.values()}
        self.auth = Auth()
        self.auth.load(state.auth.records())
        self.auth_sure, self.auth_lost = True, False
        self.unsure_changes: list[int] = []
        self._lessor = Leases()
        self.assumed: list[int] = []
        self._sessions = state.sessions
        self._seen: set[tuple[int, int]] = set()
        self._sure: set[bytes] = set()
        self._sure_leases: set[int] = set()
        self._existed: set[bytes] = set()
        self._gap_starts = self.gap_revision = state.revision
        self._fits = self._fitted = self._index = 0
        self._named: dict[bytes, list[tuple[int, int]]] = {}
        self._guessed = False
        self._exact = True
        """Nothing is missing so far, so everything is known as apply knew it."""

    def records(self, records: list[Any], lost: int) -> None:
        """Applies the readable parts of a newer, damaged snapshot on top of what was known. `lost`: how many of its
        records precede the first missing one."""
        self._exact = False
        known = [record[1:] for record in records if record[0] == records_of.USERS_AND_ROLES]
        self.auth_lost = not known and _may_have_had_users(records, lost)
        if not self.auth_lost:
            self.auth.load(known)
        self.auth_sure = not self.auth_lost
        for record in records:
            tag = record[0]
            if tag == records_of.HEAD:
                self.revision = max(self.revision, record[2])
                self.version = record[5] if len(record) > 5 else self.version
            elif tag == records_of.BASE:
                self.current[record[1]] = KeyValue(*record[1:])
            elif tag == records_of.EVENTS:
                for event in record[2]:
                    self._event(event, record[1])
            elif tag == records_of.LEASE:
                self.leases[record[1]] = record[2]
            elif tag == records_of.FIELDS:
                self.fields[record[1][0]] = record[1]
        self.revision = max([self.revision, *(kv.mod_revision for kv in self.current.values())])

    def run(self, entries: Sequence[LogEntry], missing: int) -> None:
        """Applies entries without a gap, behind one of `missing` entries, each of which made at most one revision."""
        commands = [(each.index, command) for each in entries if (command := self._new(each)) is not None]
        self._named = {}
        self.auth_sure &= not missing
        self._exact &= not missing
        for index, command in commands:
            for compare in _compares(command):
                if compare.target == "MOD" and compare.op == "=" and compare.operand:
                    self._named.setdefault(compare.key, []).append((index, cast(int, compare.operand)))
        before = best = self._save()
        fits: int | None = None
        for made in (0,) if self._exact else _revisions_made(commands, self.revision, missing):
            self._load(before)
            self._do(commands, made)
            if fits is None or self._fits > fits:
                best, fits = self._save(), self._fits
        self._load(best)

    def state(self) -> StateMachine:
        """Raises: Corruption if the parts are inconsistent."""
        kvs = [kv if kv.lease in self.leases else kv._replace(lease=0) for _, kv in sorted(self.current.items())]
        head = [records_of.HEAD, records_of.FORMAT, self.revision, self.revision, 0, self.version]
        leases = [[records_of.LEASE, id, ttl_s, 0, 0] for id, ttl_s in sorted(self.leases.items())]
        fields = [[records_of.FIELDS, plain] for plain in self.fields.values()]
        base = [[records_of.BASE, *kv] for kv in kvs]
        auth = [[records_of.USERS_AND_ROLES, *record] for record in self.auth.records()]
        return records_of.restore([[head, *leases, *fields, *auth, *base, [records_of.END]]])

    def range(self, key: bytes, range_end: bytes) -> list[KeyValue]:
        """As `KeyIndex.range`."""
        if range_end == SINGLE_KEY:
            return [self.current[key]] if key in self.current else []
        return [kv for at, kv in self.current.items() if key <= at and (range_end == FROM_KEY or at < range_end)]

    def _new(self, entry: LogEntry) -> Any:
        """The command without its session, or None if it was executed before or is not a command."""
        if not entry.data or entry.kind == CHANGE:
            return None
        try:
            command: Any = unpack(entry.data)
        except InvalidRequest:
            return None
        if type(command) is not InSession:
            return command
        name = (command.session, command.sequence)
        known = self._sessions.by_id.get(command.session)
        done = known is not None and (command.sequence in known.replies or command.sequence < known.acknowledged)
        if done or name in self._seen:
            return None
        self._seen.add(name)
        return command.command

    def _save(self) -> tuple[Any, ...]:
        numbers = (self.revision, self.version, self.gap_revision)
        lists = (self.assumed[:], self.unsure_changes[:])
        return numbers, dict(self.current), dict(self.leases), dict(self.fields), *lists, self.auth.records()

    def _load(self, saved: tuple[Any, ...]) -> None:
        self.revision, self.version, self.gap_revision = saved[0]
        self.current, self.leases, self.fields = (dict(each) for each in saved[1:4])
        self.assumed, self.unsure_changes = saved[4][:], saved[5][:]
        self.auth.load(saved[6])

    def _do(self, commands: list[tuple[int, Any]], made: int) -> None:
        self._gap_starts = self.revision
        self.revision += made
        self.gap_revision = self.revision
        self._fitted = self.revision
        self._sure, self._sure_leases, self._existed, self._fits = set(), set(), set(), 0
        self._lessor = Leases()
        for key, kv in self.current.items():
            self._attach(key, 0, kv.lease)
        for index, command in commands:
            self._index, self._guessed = index, not self._exact and any(_compares(command))
            if self._may(command) and self._apply(bare(command)):
                self.revision += 1
            if self._guessed:
                self.assumed.append(index)

    def _may(self, command: Any) -> bool:
        """Whether apply permitted it to its sender; if that is unknown, by the users and roles that are known."""
        auth, inner = self.auth, cast(Any, bare(command))
        changes = type(inner) is ChangeAuth and inner.action != TOKEN
        if not self.auth_sure and (changes or type(command) is AsUser):
            self._guessed = True
            self.unsure_changes += [self._index] * changes
        if type(command) is not AsUser:
            return True
        if not self.auth_sure:
            # A client cannot name a revision before it was made.
            auth.revision = max(auth.revision, command.revision)
        try:
            auth.check(command, self._lessor)
        except InvalidRequest:
            return False
        return self.auth_sure or not changes or inner.action in NARROWING

    def _apply(self, command: Any) -> bool:
        """Whether it made a revision."""
        kind = type(command)
        if kind in (Put, DeleteRange, Txn):
            return self._write(list(self._taken(command)))
        if kind is LeaseGrant:
            self._sure_leases.add(command.id)
            self.leases.setdefault(command.id, command.ttl_s)
        elif kind is LeaseRevoke:
            self._guessed |= not self._knows_lease(command.id)
            self._sure_leases.add(command.id)
            self.leases.pop(command.id, None)
            return self._delete([kv.key for kv in self.current.values() if kv.lease == command.id])
        elif kind is DeclareFields:
            self.fields[command.field_set.name] = field_set_to_plain(command.field_set)
        elif kind is DeclareIndex:
            spec, key = command.spec, key_of(command.spec.name)
            declared = key in self.current and (self._exact or key in self._sure)
            if declared or (self._exact and spec.on not in self.fields):
                return False
            return self._write([Put(key, dump(spec))])
        elif kind is DropIndex:
            return self._delete([key_of(command.name)])
        elif kind is ChangeAuth:
            with suppress(InvalidRequest):
                self.auth.change(command)
        elif kind is RaiseVersion:
            self.version = min(max(self.version, command.version), LATEST)
        return False

    def _taken(self, op: Op) -> Iterator[Op]:
        """The operations that run, depending on its conditions."""
        if type(op) is not Txn:
            yield op
            return
        held = [self._holds(compare) for compare in op.compare]
        for each in op.success if all(held) else op.failure:
            yield from self._taken(each)

    def _write(self, ops: list[Op]) -> bool:
        for op in ops:
            if type(op) is Put and op.lease:
                if not self._knows_lease(op.lease):
                    self._guessed = True
                elif op.lease not in self.leases:
                    return False
        wrote = [self._op(op, self.revision + 1) for op in ops]
        return any(wrote)

    def _knows_lease(self, id: int) -> bool:
        """Whether it is certain that the lease exists, or that it does not."""
        return self._exact or id in self._sure_leases

    def _op(self, op: Op, revision: int) -> bool:
        if type(op) is DeleteRange:
            if op.range_end != SINGLE_KEY:
                # Everything else was deleted, too.
                return self._delete([kv.key for kv in self.range(op.key, op.range_end)])
            self._sure.add(op.key)
            return self._delete([op.key])
        if type(op) is not Put:
            return False
        before = self.current.get(op.key)
        if before is None and (op.ignore_value or op.ignore_lease):
            self._guessed |= not self._exact
            return False
        value = before.value if before is not None and op.ignore_value else op.value
        lease = before.lease if before is not None and op.ignore_lease else op.lease
        self._event([op.key, value, lease], revision)
        self._sure.add(op.key)
        return True

    def _delete(self, keys: list[bytes]) -> bool:
        gone = [key for key in keys if self._end(key) or key in self._existed]
        self._sure.update(gone)
        self._existed.difference_update(gone)
        return bool(gone)

    def _end(self, key: bytes) -> bool:
        before = self.current.pop(key, None)
        if before is not None:
            self._attach(key, before.lease, 0)
        return before is not None

    def _attach(self, key: bytes, old: int, new: int) -> None:
        """Attaches the key even to an unknown lease: keys attached to it end with it."""
        if new and new not in self._lessor.by_id:
            self._lessor.by_id[new] = Lease(new, 0)
        self._lessor.move(key, old, new)

    def _event(self, event: list[Any], revision: int) -> None:
        key = event[0]
        if len(event) == 1:
            self._end(key)
            return
        before = self.current.get(key)
        self._attach(key, before.lease if before else 0, event[2])
        created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
        self.current[key] = KeyValue(key, event[1], created, revision, version, event[2])

    def _holds(self, compare: Compare) -> bool:
        key, target, op, operand, range_end = compare
        named = cast(int, operand) if target in ("MOD", "CREATE") and op == "=" and not range_end else 0
        answer = holds(compare, cast(KeyIndex, self))
        if self._exact:
            return answer
        if key not in self._sure or range_end:
            # A client cannot name a revision before it was made.
            self.revision = max(self.revision, named)
            if named > self._gap_starts:
                self._existed.add(key)
                answer = True
            return self._guess(key, answer)
        standing = self.current.get(key)
        if target == "MOD" and standing is not None and named > standing.mod_revision:
            # A guess was wrong: revisions were undercounted since the last condition that matched.
            self.revision += named - standing.mod_revision
            self._gap_starts = self._fitted
            self._sure.clear()
            self._fits -= 1
            return self._guess(key, True)
        if named:
            self._fits += 1 if answer else -1
            if answer and target == "MOD":
                self._fitted = named
        return answer

    def _guess(self, key: bytes, answer: bool) -> bool:
        """`answer`, unless the next condition on the key decides: it names the revision of this write, or the previous
        one."""
        read = next((named for at, named in self._named.get(key, ()) if at > self._index), 0)
        if read == self.revision + 1:
            return True
        standing = self.current.get(key)
        if standing is not None and read == standing.mod_revision:
            return False
        return answer


def _revisions_made(commands: list[tuple[int, Any]], known: int, missing: int) -> list[int]:
    """How many revisions a gap may have made: what later conditions imply, or the maximum possible minus a few. Without
    evidence take the maximum: a revision must never be used twice."""
    written: dict[bytes, int] = {}
    votes: Counter[int] = Counter()
    count = least = 0
    for _, command in commands:
        for compare in _compares(command):
            operand = compare.operand
            if compare.op != "=" or compare.target not in ("MOD", "CREATE") or cast(int, operand) <= known:
                continue
            if compare.target == "MOD" and compare.key in written:
                votes[cast(int, operand) - known - written[compare.key]] += 1
            elif compare.key not in written:
                least = max(least, cast(int, operand) - known - count)
        keys = list(_written(command))
        count += bool(keys)
        written.update(dict.fromkeys(keys, count))
    most = max(missing, least)
    common = [made for made, _ in votes.most_common() if least <= made <= most][:CANDIDATES_MAX]
    return list(dict.fromkeys([*common, most, *range(most, max(least, most - CANDIDATES_MAX) - 1, -1)]))


def _may_have_had_users(records: list[Any], lost: int) -> bool:
    """Whether a snapshot without the record of users may have had one: it precedes sessions and keys, since version
    `USERS` of the rules."""
    head = records[0] if records and records[0][0] == records_of.HEAD else None
    if head is not None and (head[5] if len(head) > 5 else FIRST) < USERS:
        return False
    behind = (records_of.SESSION, records_of.BASE, records_of.BOUNDARY, records_of.EVENTS, records_of.END)
    return all(record[0] not in behind for record in records[:lost])


def _compares(command: Any) -> Iterator[Compare]:
    command = bare(command)
    if type(command) is Txn:
        yield from command.compare


def _written(command: Any) -> Iterator[bytes]:
    """The keys that a command writes or deletes if its conditions hold."""
    command = bare(command)
    if type(command) in (Put, DeleteRange):
        yield command.key
    elif type(command) is Txn:
        for op in command.success:
            yield from _written(op)
