"""The state machine against a model that keeps one whole dictionary per revision.

Whatever the order of puts, deletes, txns (nested ones and reads within them too), leases, compactions, snapshots and
replays: every answer, every range at every retained revision, every watch from every retained start, and every refusal
are the model's.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest, LeaseExists, LeaseNotFound, RequestError
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.snapshot import restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    FROM_KEY,
    Command,
    Compact,
    CompactResult,
    Compare,
    DeleteRange,
    DeleteResult,
    Event,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.mvcc.watch import WatchHub

KEYS = st.sampled_from([b"a", b"a\0", b"b", b"b/1", b"b/2", b"c", b"\xff"])
ENDS = st.sampled_from([b"", b"", FROM_KEY, b"b", b"b0", b"c\0"])
VALUES = st.sampled_from([b"", b"1", b"22", b"\0"])
LEASES = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3])
SELDOM = st.sampled_from([False] * 9 + [True])
PUTS = st.builds(Put, KEYS, VALUES, LEASES, st.booleans(), SELDOM, SELDOM)
DELETES = st.builds(DeleteRange, KEYS, ENDS, st.booleans())
COMPARES = st.one_of(
    st.builds(
        Compare,
        KEYS,
        st.sampled_from(["VERSION", "CREATE", "MOD", "LEASE"]),
        st.sampled_from(["=", "!=", "<", ">"]),
        st.integers(0, 6),
        ENDS,
    ),
    st.builds(Compare, KEYS, st.just("VALUE"), st.sampled_from(["=", "!=", "<", ">"]), VALUES, ENDS),
)
REVISIONS = st.sampled_from([0, 0, 0, 0, 1, 3, 6, 12])
READS = st.tuples(KEYS, ENDS, st.integers(0, 2), REVISIONS, st.booleans(), SELDOM).map(
    lambda drawn: RangeRequest(*drawn)
)
LEAVES = st.lists(st.one_of(PUTS, DELETES, READS), max_size=2).map(tuple)
NESTED = st.builds(Txn, st.lists(COMPARES, max_size=1).map(tuple), LEAVES, LEAVES)
OPS = st.lists(st.one_of(PUTS, DELETES, READS, NESTED), max_size=3).map(tuple)
LOOKS_BACK = st.builds(
    lambda op, compare, version, then, other: Txn(
        (), (op, Txn((Compare(op.key, "VERSION", compare, version),), then, other))
    ),
    st.one_of(PUTS, DELETES),
    st.sampled_from(["=", ">"]),
    st.integers(0, 2),
    LEAVES,
    LEAVES,
)
TXNS = st.one_of(st.builds(Txn, st.lists(COMPARES, max_size=2).map(tuple), OPS, OPS), LOOKS_BACK)
LEASE_TTL_S = 60
Held = dict[bytes, KeyValue]


def inside(key: bytes, start: bytes, end: bytes) -> bool:
    return key == start if not end else key >= start and (end == FROM_KEY or key < end)


class Model:
    """One dictionary per revision, and the events that lead from each to the next."""

    def __init__(self) -> None:
        self.states: dict[int, Held] = {1: {}}
        self.events: dict[int, list[Event]] = {}
        self.revision = 1
        self.compacted = -1
        self.leases: set[int] = set()

    def apply(self, command: Command) -> Any:
        """The answer. Raises as the real one must, having changed nothing."""
        if isinstance(command, LeaseGrant):
            if command.id in self.leases:
                raise LeaseExists
            self.leases.add(command.id)
            return LeaseResult(self.revision, command.id, LEASE_TTL_S)
        if isinstance(command, LeaseRevoke):
            if command.id not in self.leases:
                raise LeaseNotFound
            self.leases.remove(command.id)
            held = self.states[self.revision]
            attached = [DeleteRange(key) for key in sorted(held) if held[key].lease == command.id]
            self._write(Txn((), tuple(attached)))
            return LeaseResult(self.revision, command.id, LEASE_TTL_S)
        if isinstance(command, Compact):
            if command.revision <= self.compacted:
                raise Compacted(command.revision, self.compacted)
            if command.revision > self.revision:
                raise FutureRevision(command.revision, self.revision)
            self.compacted = command.revision
            return CompactResult(self.revision)
        assert isinstance(command, Txn | Put | DeleteRange)
        self._check_puts(command)
        if isinstance(command, Txn):
            self._check_overlap(command.success)
            self._check_overlap(command.failure)
        return self._write(command)

    def _check_puts(self, op: Any) -> None:
        if isinstance(op, Txn):
            for each in (*op.success, *op.failure):
                self._check_puts(each)
        if isinstance(op, Put) and op.ignore_value and op.value:
            raise InvalidRequest("etcdserver: value is provided")
        if isinstance(op, Put) and op.ignore_lease and op.lease:
            raise InvalidRequest("etcdserver: lease is provided")

    def _check_overlap(self, ops: Any) -> tuple[set[bytes], list[tuple[bytes, bytes]]]:
        """What `ops` put and delete. A nested txn's branches exclude each other."""
        deletes = [(op.key, op.range_end) for op in ops if isinstance(op, DeleteRange)]
        puts: set[bytes] = set()

        def add(keys: Any) -> None:
            for key in keys:
                if key in puts or any(start <= key < end if end else key == start for start, end in deletes):
                    raise InvalidRequest("etcdserver: duplicate key given in txn request")
                puts.add(key)

        for op in ops:
            if isinstance(op, Txn):
                then_puts, then_deletes = self._check_overlap(op.success)
                else_puts, else_deletes = self._check_overlap(op.failure)
                add(then_puts)
                add(else_puts - then_puts)
                deletes += then_deletes + else_deletes
        add(op.key for op in ops if isinstance(op, Put))
        return puts, deletes

    def _holds(self, compare: Compare) -> bool:
        fields = {
            "VERSION": "version",
            "CREATE": "create_revision",
            "MOD": "mod_revision",
            "VALUE": "value",
            "LEASE": "lease",
        }
        held = self.states[self.revision]
        found = [held[key] for key in held if inside(key, compare.key, compare.range_end)]
        if not found and compare.target == "VALUE":
            return False
        for kv in found or [KeyValue(b"", b"", 0, 0, 0, 0)]:
            left: Any = getattr(kv, fields[compare.target])
            right: Any = compare.operand
            if not {"=": left == right, "!=": left != right, "<": left < right, ">": left > right}[compare.op]:
                return False
        return True

    def _branch(self, txn: Txn) -> tuple[bool, Any]:
        """Compares look at the state before the command, nested ones too."""
        succeeded = all(map(self._holds, txn.compare))
        return succeeded, txn.success if succeeded else txn.failure

    def _taken(self, op: Any) -> list[Any]:
        if not isinstance(op, Txn):
            return [op]
        return [leaf for each in self._branch(op)[1] for leaf in self._taken(each)]

    def _write(self, command: Any) -> Any:
        before = self.states[self.revision]
        for op in self._taken(command):
            if isinstance(op, Put):
                if op.lease and op.lease not in self.leases:
                    raise LeaseNotFound
                if (op.ignore_value or op.ignore_lease) and op.key not in before:
                    raise InvalidRequest("etcdserver: key not found")
            if isinstance(op, RangeRequest) and op.revision:
                if op.revision > self.revision:
                    raise FutureRevision(op.revision, self.revision)
                if op.revision < self.compacted:
                    raise Compacted(op.revision, self.compacted)
        held, events = dict(before), list[Event]()
        result = self._run(command, held, events)
        if events:
            self.revision += 1
            self.states[self.revision] = held
            self.events[self.revision] = events
        return result

    def _run(self, op: Any, held: Held, events: list[Event]) -> Any:
        """Does `op` to `held`, and answers as of the moment."""
        revision = self.revision + 1
        if isinstance(op, Put):
            old = held.get(op.key)
            value = old.value if old and op.ignore_value else op.value
            lease = old.lease if old and op.ignore_lease else op.lease
            created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
            held[op.key] = KeyValue(op.key, value, created, revision, version, lease)
            events.append(Event("PUT", held[op.key], old))
            return PutResult(revision, old if op.prev_kv else None)
        if isinstance(op, DeleteRange):
            gone = [held.pop(key) for key in sorted(held) if inside(key, op.key, op.range_end)]
            events += [Event("DELETE", KeyValue(kv.key, b"", 0, revision, 0, 0), kv) for kv in gone]
            now = revision if events else self.revision
            return DeleteResult(now, len(gone), tuple(gone) if op.prev_kv else ())
        now = revision if events else self.revision
        if isinstance(op, RangeRequest):
            return read(self.states[op.revision] if op.revision else held, op, now)
        succeeded, ops = self._branch(op)
        responses = tuple([self._run(each, held, events) for each in ops])
        return TxnResult(revision if events else self.revision, succeeded, responses)


def read(held: Held, request: RangeRequest, now: int) -> RangeResult:
    wanted = [held[key] for key in sorted(held) if inside(key, request.key, request.range_end)]
    if request.count_only:
        return RangeResult([], len(wanted), False, now)
    shown = wanted[: request.limit] if request.limit else wanted
    kvs = [kv._replace(value=b"", lease=0) if request.keys_only else kv for kv in shown]
    return RangeResult(kvs, len(wanted), len(shown) < len(wanted), now)


class MvccAgainstModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.model = Model()
        self.state = StateMachine()
        self.commands: list[Command] = []
        self.watch()
        for lease in (1, 2):
            self.both(LeaseGrant(lease, LEASE_TTL_S))

    def watch(self) -> None:
        self.hub = WatchHub(self.state)
        self.seen: list[Event] = []
        self.watched_from = self.state.revision
        self.hub.add(b"\0", FROM_KEY, 0, lambda batch: self.seen.extend(batch.events))

    def both(self, command: Command) -> None:
        assert unpack(pack(command)) == command
        before = self.state.revision
        try:
            expected = self.model.apply(command)
        except RequestError as error:
            with pytest.raises(type(error)) as refused:
                self.state.apply(command)
            assert str(refused.value) == str(error)
            assert self.state.revision == before
            assert self.state.last_events == []
            return
        assert self.state.apply(command) == expected
        self.commands.append(command)
        assert self.state.revision == self.model.revision
        assert self.state.last_events == (
            self.model.events.get(self.model.revision, []) if self.state.revision > before else []
        )

    @rule(command=st.one_of(PUTS, DELETES, TXNS))
    def write(self, command: Command) -> None:
        self.both(command)

    @rule(commands=st.lists(st.one_of(PUTS, PUTS, PUTS, DELETES, TXNS), min_size=3, max_size=8))
    def write_many(self, commands: list[Command]) -> None:
        for command in commands:
            self.both(command)

    @rule(lease=st.integers(1, 3))
    def grant(self, lease: int) -> None:
        self.both(LeaseGrant(lease, LEASE_TTL_S))

    @rule(lease=st.integers(1, 3))
    def revoke(self, lease: int) -> None:
        self.both(LeaseRevoke(lease))

    @rule(back=st.integers(-1, 4))
    def compact(self, back: int) -> None:
        self.both(Compact(self.model.revision - back))

    @rule(budget=st.integers(1, 5))
    def trim(self, budget: int) -> None:
        self.state.trim(budget)

    @rule()
    def notify(self) -> None:
        self.hub.notify()
        expected = [
            event
            for revision in range(self.watched_from + 1, self.model.revision + 1)
            for event in self.model.events[revision]
        ]
        assert self.seen == expected

    @rule(more=st.lists(st.one_of(PUTS, DELETES), max_size=4))
    def snapshot_while_writing(self, more: list[Command]) -> None:
        slices = records_of(self.state)
        digest, revision = self.state.hash(), self.state.revision
        for command in more:
            self.both(command)
        restored = restore(msgpack.unpackb(msgpack.packb(records)) for records in slices)
        assert restored.revision == revision
        assert restored.hash() == digest
        # It goes on as the one it came from does.
        for command in more:
            try:
                restored.apply(command)
            except RequestError:
                continue
        assert restored.hash() == self.state.hash()
        assert restored.leases() == self.state.leases()
        self.state = restored
        self.watch()

    @rule()
    def replay(self) -> None:
        replayed = StateMachine()
        for command in self.commands:
            replayed.apply(unpack(pack(command)))
        assert (replayed.revision, replayed.compact_revision) == (self.state.revision, self.state.compact_revision)
        for revision in range(max(1, self.state.compact_revision), self.state.revision + 1):
            assert replayed.hash(revision) == self.state.hash(revision)

    @rule(key=KEYS, end=ENDS, limit=st.integers(0, 3), back=st.integers(-1, 6), keys_only=st.booleans())
    def range(self, key: bytes, end: bytes, limit: int, back: int, keys_only: bool) -> None:
        revision = max(1, self.model.revision - back)
        request = RangeRequest(key, end, limit, revision, keys_only)
        if revision > self.model.revision or revision < self.model.compacted:
            with pytest.raises(FutureRevision if revision > self.model.revision else Compacted):
                self.state.range(request)
            return
        held = self.model.states[revision]
        assert self.state.range(request) == read(held, request, self.model.revision)
        counted = request._replace(count_only=True)
        assert self.state.range(counted) == read(held, counted, self.model.revision)
        assert self.state.get(key, revision) == held.get(key)

    @rule(key=KEYS, end=ENDS, start=st.integers(0, 40), budget=st.integers(1, 4))
    def watch_the_past(self, key: bytes, end: bytes, start: int, budget: int) -> None:
        if end and end != FROM_KEY and key >= end:
            with pytest.raises(InvalidRequest):
                self.hub.add(key, end, start, lambda _: None)
            return
        start = max(1, start % (self.model.revision + 2))
        batches: list[WatchBatch] = []
        watcher = self.hub.add(key, end, start, batches.append)
        self.hub.notify()
        while self.hub.catch_up(budget):
            pass
        got = [event for batch in batches for event in batch.events]
        if start < max(self.model.compacted, 1):
            assert not got
            assert isinstance(batches[-1].error, Compacted)
            assert len(batches) == 1
            return
        revisions = range(start, self.model.revision + 1)
        assert got == [
            event
            for revision in revisions
            for event in self.model.events.get(revision, [])
            if inside(event.kv.key, key, end)
        ]
        assert got == list(self.state.events(key, end, start, self.state.revision))
        # No revision is split over two batches.
        parts = [{event.kv.mod_revision for event in batch.events} for batch in batches]
        assert len({revision for part in parts for revision in part}) == sum(map(len, parts))
        watcher.cancel()

    @invariant()
    def the_present_is_the_models(self) -> None:
        if hasattr(self, "model"):
            held = self.model.states[self.model.revision]
            assert self.state.range(RangeRequest(b"\0", FROM_KEY)).kvs == [held[key] for key in sorted(held)]
            for lease_id, _ in self.state.leases():
                assert self.state.lease_keys(lease_id) == sorted(key for key in held if held[key].lease == lease_id)

    def teardown(self) -> None:
        """Once all that was compacted is freed, nothing is kept that no retained revision needs."""
        if not hasattr(self, "model"):
            return
        while self.state.trim(1000):
            pass
        oldest = max(1, self.model.compacted)
        needed = {
            (kv.key, kv.mod_revision)
            for revision, held in self.model.states.items()
            if revision >= oldest
            for kv in held.values()
        }
        index = self.state.index
        kept = {(kv.key, kv.mod_revision) for kv in index.current.values()}
        for older in index.history.values():
            # A version put and deleted in one revision stood at none.
            later = [kv.mod_revision for kv in older[1:]] + [0]
            kept |= {
                (kv.key, kv.mod_revision) for kv, then in zip(older, later) if kv.version and kv.mod_revision != then
            }
        assert kept == needed
        assert self.state.log.first >= min(oldest, self.model.revision)
        assert set(index.dead) == index.history.keys() - index.current.keys()


TestMvccAgainstModel = MvccAgainstModel.TestCase
TestMvccAgainstModel.settings = settings(max_examples=150, stateful_step_count=50)
