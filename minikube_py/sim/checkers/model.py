"""etcd's semantics in the simplest form: the reference for every answer.

Source: etcd api/etcdserverpb/rpc.proto and its documentation. It keeps every version of every key, so it answers at any
revision, and it can undo the last revision, so it is usable in a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Final

from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import Where
from minikube_py.index.declared import INDEXES_PREFIX, IndexSpec, dump, key_of
from minikube_py.mvcc.types import (
    Command,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DeleteResult,
    DropIndex,
    Event,
    KeyValue,
    LeaseRevoke,
    Op,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.sim.checkers.objects import Rows, Undeclared

ABSENT: Final = KeyValue(b"", b"", 0, 0, 0, 0)
ANY_KEY: Final = (b"", b"\0")


INDEXES_END: Final = INDEXES_PREFIX[:-1] + b"0"
Meaning = list[tuple[FieldSpec, SumSpec | None]]
"""Each field's spec and that of the sum it uses."""


class Impossible(Exception):
    """A correct store would have refused this command."""


class Model:
    """A store's key-values, from the empty revision 1 to `revision`."""

    def __init__(self, field_sets: Iterable[FieldSet] = ()) -> None:
        self.revision = 1
        self.current: dict[bytes, KeyValue] = {}
        self.events: list[tuple[Event, ...]] = [(), ()]
        """`events[r]` are those of revision r."""
        self.field_sets = {each.name: each for each in field_sets}
        self._keys: list[bytes] = []
        self._revisions: dict[bytes, list[int]] = {}
        self._versions: dict[bytes, list[KeyValue | None]] = {}
        self._specs: dict[bytes, IndexSpec] = {}
        self._effective: dict[tuple[str, tuple[bytes, ...]], FieldSet] = {}
        self._rows: dict[int, dict[tuple[str, tuple[bytes, ...]], Rows]] = {}

    # -- commands --------------------------------------------------------------------------------------------------

    def run(self, command: Command) -> PutResult | DeleteResult | TxnResult | None:
        """Executes a command that a store accepted; makes a new revision if it changed a key. The answer is None for
        commands whose answer says nothing about keys. Raises: Impossible."""
        run = _Run(self)
        answer: PutResult | DeleteResult | TxnResult | None = None
        if isinstance(command, Put):
            answer = run.put(command)
        elif isinstance(command, DeleteRange):
            answer = run.delete(command)
        elif isinstance(command, Txn):
            answer = run.txn(command)
        elif isinstance(command, LeaseRevoke):
            for kv in self.of_lease(command.id):
                run.delete(DeleteRange(kv.key))
        elif isinstance(command, DeclareIndex):
            answer = self._declare_index(run, command)
        elif isinstance(command, DropIndex):
            if key_of(command.name) not in self.current:
                raise Impossible(f"index {command.name} is dropped, and is not there")
            answer = run.delete(DeleteRange(key_of(command.name)))
        elif isinstance(command, DeclareFields):
            self.field_sets[command.field_set.name] = command.field_set
        if run.events:
            self.take(run.events)
        return answer

    def _declare_index(self, run: _Run, command: DeclareIndex) -> PutResult:
        """The declaration is stored under its own key; repeating it changes nothing."""
        spec = command.spec
        key, value = key_of(spec.name), dump(spec)
        self._specs[value] = spec
        known = self.current.get(key)
        if known is not None and known.value != value:
            raise Impossible(f"index {spec.name} is declared already, as another")
        if known is not None:
            return PutResult(self.revision)
        there = self.effective(spec.on, self.revision)
        sums = {each.name: each for each in there.sums} if there is not None else {}
        for added in spec.declares:
            meaning = there.find(added.name) if there is not None else None
            if meaning is not None and meaning != added:
                raise Impossible(f"index {spec.name} declares {added.name}, which stands for something else")
        if any(sums.get(added.name, added) != added for added in spec.sums):
            raise Impossible(f"index {spec.name} declares a sum that stands for something else")
        return run.put(Put(key, value))

    def take(self, events: Iterable[Event]) -> None:
        """`events` are those of the next revision."""
        self.revision += 1
        happened = tuple(events)
        self.events.append(happened)
        for event in happened:
            key = event.kv.key
            after = event.kv if event.type == "PUT" else None
            if key not in self._versions:
                insort(self._keys, key)
                self._revisions[key], self._versions[key] = [], []
            self._revisions[key].append(self.revision)
            self._versions[key].append(after)
            if after is None:
                self.current.pop(key, None)
            else:
                self.current[key] = after

    def undo(self) -> None:
        """Undoes the last revision."""
        for event in reversed(self.events.pop()):
            key = event.kv.key
            self._revisions[key].pop()
            self._versions[key].pop()
            if event.prev_kv is None:
                self.current.pop(key, None)
            else:
                self.current[key] = event.prev_kv
        self._rows.pop(self.revision, None)
        self.revision -= 1

    # -- reads -----------------------------------------------------------------------------------------------------

    def at(self, key: bytes, revision: int) -> KeyValue | None:
        revisions = self._revisions.get(key)
        if revisions is None:
            return None
        place = bisect_right(revisions, revision)
        return self._versions[key][place - 1] if place else None

    def of_lease(self, lease: int) -> list[KeyValue]:
        """The keys attached to a lease, in order."""
        return [self.current[key] for key in sorted(key for key, kv in self.current.items() if kv.lease == lease)]

    def standing(self, key: bytes, range_end: bytes, revision: int) -> list[KeyValue]:
        """All key-values of a range at `revision`, in order."""
        if not range_end:
            kv = self.at(key, revision)
            return [] if kv is None else [kv]
        start = bisect_left(self._keys, key)
        stop = len(self._keys) if range_end == b"\0" else bisect_left(self._keys, range_end)
        found = (self.at(each, revision) for each in self._keys[start:stop])
        return [kv for kv in found if kv is not None]

    def range(self, request: RangeRequest, now: int) -> RangeResult:
        """The answer of a read at revision `now`. Raises: Unsupported."""
        at = request.revision if request.revision > 0 else now
        kvs = self.standing(request.key, request.range_end, at)
        if request.where is not None:
            holding = self.rows_for(request.key, request.range_end, request.where, at, now).holding(request.where)
            kvs = [kv for kv in kvs if kv.key in holding]
        return answer(request, kvs, now, self._fields(request, at, now))

    def _fields(self, request: RangeRequest, at: int, now: int) -> Rows | None:
        if not request.fields:
            return None
        return self.rows_for(request.key, request.range_end, None, at, now, request.fields)

    def rows_for(
        self, key: bytes, range_end: bytes, where: Where | None, revision: int, now: int, names: tuple[str, ...] = ()
    ) -> Rows:
        """Rows at `revision` of the FieldSet that declares the requested fields at revision `now`: queries of the past
        also use the declarations at the time of the query. Raises: Undeclared if none does."""
        wanted = [*names, *(comparison.field for comparison in (where.comparisons if where else ()))]
        name = self.declaring(key, wanted, now)
        if name is None:
            raise Undeclared(f"no declared fields {wanted} for [{key!r}, {range_end!r}) at revision {now}")
        return self.rows(name, revision, now)

    def rows(self, name: str, revision: int, now: int) -> Rows:
        """Recomputed for each revision that touched an object the rows depend on."""
        field_set = self.effective(name, now)
        assert field_set is not None
        sources = (field_set.prefix, *(spec.source_prefix for spec in field_set.sums))
        while revision > 1 and not any(event.kv.key.startswith(sources) for event in self.events[revision]):
            revision -= 1
        rows = self._rows.setdefault(revision, {})
        place = (name, self._declarations(name, now))
        if place not in rows:
            rows[place] = Rows(field_set, self.standing(*ANY_KEY, revision))
        return rows[place]

    # -- declarations ----------------------------------------------------------------------------------------------

    def declaring(self, key: bytes, wanted: Iterable[str], now: int) -> str | None:
        """The FieldSet that covers the keys from `key` on and declares all `wanted` fields at revision `now`."""
        for name, base in self.field_sets.items():
            field_set = self.effective(name, now) if key.startswith(base.prefix) else None
            if field_set is not None and all(map(field_set.find, wanted)):
                return name
        return None

    def meaning(self, key: bytes, where: Where, now: int) -> Meaning | None:
        """The meaning of the fields of `where` at revision `now`, for keys from `key` on; None if one is not
        declared."""
        wanted = [comparison.field for comparison in where.comparisons]
        name = self.declaring(key, wanted, now)
        field_set = self.effective(name, now) if name is not None else None
        if field_set is None:
            return None
        sums = {each.name: each for each in field_set.sums}
        found = [field_set.find(field) for field in wanted]
        return [(spec, sums.get(spec.minus or spec.args.get("sum", ""))) for spec in found if spec is not None]

    def effective(self, name: str, now: int) -> FieldSet | None:
        """The FieldSet with the fields added by the indexes declared at revision `now`."""
        base = self.field_sets.get(name)
        if base is None:
            return None
        place = (name, self._declarations(name, now))
        if place not in self._effective:
            self._effective[place] = _with(base, [self._specs[value] for value in place[1]])
        return self._effective[place]

    def _declarations(self, name: str, now: int) -> tuple[bytes, ...]:
        """Indexes on a FieldSet that add something to it, in the order of their names."""
        standing = self.standing(INDEXES_PREFIX, INDEXES_END, now)
        specs = ((kv.value, self._specs[kv.value]) for kv in standing)
        return tuple([value for value, spec in specs if spec.on == name and (spec.declares or spec.sums)])


class _Run:
    """One command in execution: its events so far, and the current state of the keys they touched."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._revision = model.revision + 1
        self.events: list[Event] = []
        self._touched: dict[bytes, KeyValue | None] = {}
        self._put: set[bytes] = set()
        self._deleted: list[tuple[bytes, bytes]] = []

    def _get(self, key: bytes) -> KeyValue | None:
        return self._touched[key] if key in self._touched else self._model.current.get(key)

    def _now(self) -> int:
        return self._revision if self.events else self._model.revision

    def put(self, put: Put) -> PutResult:
        before = self._get(put.key)
        if put.key in self._put or any(within(put.key, *interval) for interval in self._deleted):
            raise Impossible(f"{put.key!r} is put twice, or deleted and put, in one txn")
        if before is None and (put.ignore_value or put.ignore_lease):
            raise Impossible(f"{put.key!r} is to keep its value or lease, but there is no such key")
        self._put.add(put.key)
        kept = before or ABSENT
        kv = KeyValue(
            put.key,
            kept.value if put.ignore_value else put.value,
            kept.create_revision if before else self._revision,
            self._revision,
            kept.version + 1,
            kept.lease if put.ignore_lease else put.lease,
        )
        self._touched[put.key] = kv
        self.events.append(Event("PUT", kv, before))
        return PutResult(self._revision, before if put.prev_kv else None)

    def delete(self, delete: DeleteRange) -> DeleteResult:
        gone = self._range(delete.key, delete.range_end)
        if delete.range_end != b"\0":
            # Upstream detects no overlap with a delete of all keys from one on.
            self._deleted.append((delete.key, delete.range_end))
            if any(within(key, delete.key, delete.range_end) for key in self._put):
                raise Impossible(f"[{delete.key!r}, {delete.range_end!r}) is deleted and put to in one txn")
        for kv in gone:
            self._touched[kv.key] = None
            self.events.append(Event("DELETE", tombstone(kv.key, self._revision), kv))
        return DeleteResult(self._now(), len(gone), tuple(gone) if delete.prev_kv else ())

    def _range(self, key: bytes, range_end: bytes) -> list[KeyValue]:
        if not range_end:
            kv = self._get(key)
            return [] if kv is None else [kv]
        names = {name for name in self._model.current.keys() | self._touched.keys() if within(name, key, range_end)}
        found = (self._get(name) for name in sorted(names))
        return [kv for kv in found if kv is not None]

    def txn(self, txn: Txn) -> TxnResult:
        """All compares, including nested ones, see the state before the txn; reads see the txn's earlier writes."""
        before = self._model
        succeeded = all(holds(compare, before) for compare in txn.compare)
        responses = tuple([self._op(op) for op in (txn.success if succeeded else txn.failure)])
        return TxnResult(self._now(), succeeded, responses)

    def _op(self, op: Op) -> PutResult | DeleteResult | RangeResult | TxnResult:
        if isinstance(op, Put):
            return self.put(op)
        if isinstance(op, DeleteRange):
            return self.delete(op)
        if isinstance(op, Txn):
            return self.txn(op)
        if 0 < op.revision < self._revision:
            return self._model.range(op, self._now())._replace(revision=self._now())
        return answer(op, self._range(op.key, op.range_end), self._now(), None)


def _with(base: FieldSet, specs: Iterable[IndexSpec]) -> FieldSet:
    """The first one gives a name its meaning; a field with an undeclared sum is ignored."""
    fields, sums = {each.name: each for each in base.fields}, {each.name: each for each in base.sums}
    for spec in specs:
        for total in spec.sums:
            sums.setdefault(total.name, total)
        for added in spec.declares:
            used = added.args.get("sum") if added.extractor in ("sum@1", "sum@2", "sum@3") else added.minus
            if base.find(added.name) is None and (used is None or used in sums):
                fields.setdefault(added.name, added)
    return FieldSet(base.name, base.prefix, tuple(fields.values()), tuple(sums.values()))


def tombstone(key: bytes, revision: int) -> KeyValue:
    return KeyValue(key, b"", 0, revision, 0, 0)


def parts_of(request: object) -> Iterator[object]:
    """The operations of a txn, in both branches, including nested ones; any other request is its only part."""
    if isinstance(request, Txn):
        for op in (*request.success, *request.failure):
            yield from parts_of(op)
    else:
        yield request


def within(name: bytes, key: bytes, range_end: bytes) -> bool:
    if not range_end:
        return name == key
    return name >= key and (range_end == b"\0" or name < range_end)


def holds(compare: Compare, model: Model) -> bool:
    """A missing key compares as zeros, except that its VALUE compares false; every key of a range must agree."""
    kvs = model.standing(compare.key, compare.range_end, model.revision)
    if not kvs:
        return compare.target != "VALUE" and _agrees(ABSENT, compare)
    return all(_agrees(kv, compare) for kv in kvs)


def _agrees(kv: KeyValue, compare: Compare) -> bool:
    actual = {
        "VERSION": kv.version,
        "CREATE": kv.create_revision,
        "MOD": kv.mod_revision,
        "VALUE": kv.value,
        "LEASE": kv.lease,
    }[compare.target]
    operand = compare.operand
    if compare.op in ("=", "!="):
        return (actual == operand) == (compare.op == "=")
    return actual < operand if compare.op == "<" else actual > operand  # type: ignore[operator]


_SORT_FIELDS: Final = {"KEY": 0, "VALUE": 1, "CREATE": 2, "MOD": 3, "VERSION": 4}


def answer(request: RangeRequest, kvs: list[KeyValue], now: int, rows: Rows | None) -> RangeResult:
    """The result for all key-values of the range: counted, filtered, sorted, limited, stripped, in this order."""
    count = len(kvs)
    if request.count_only:
        return RangeResult([], count, False, now)
    low, high, low_create, high_create = request[11:15]
    kvs = [
        kv
        for kv in kvs
        if low <= kv.mod_revision <= (high or kv.mod_revision)
        and low_create <= kv.create_revision <= (high_create or kv.create_revision)
    ]
    filtered = bool(low or high or low_create or high_create)
    if request.sort_order == "NONE" and request.sort_target != "KEY" and request.limit and not filtered:
        # Without an order upstream takes the first ones by key, plus one to detect more, and sorts afterwards.
        kvs = kvs[: request.limit + 1]
    kvs.sort(key=lambda kv: kv[_SORT_FIELDS[request.sort_target]], reverse=request.sort_order == "DESCEND")
    more = 0 < request.limit < len(kvs)
    if more:
        kvs = kvs[: request.limit]
    fields = None if rows is None else [tuple([rows.value(kv.key, name) for name in request.fields]) for kv in kvs]
    if request.keys_only:
        kvs = [kv._replace(value=b"", lease=kv.lease if request.sort_target == "VALUE" else 0) for kv in kvs]
    return RangeResult(kvs, count, more, now, fields)
